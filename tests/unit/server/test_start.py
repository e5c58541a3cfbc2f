"""What the start of a broker need not wait for is loaded by whoever needs it."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec

import pytest

from flintmq.server import server as server_module
from flintmq.server.server import Server, load

LATER = {
    "dataclasses": "makes its classes by exec, which takes ten times as long as a named tuple",
    "difflib": "for names that are not known",
    "flintmq.broker.definitions.definition_services": "for whoever asks for a service",
    "flintmq.broker.recovery": "for a broker with a data directory",
    "flintmq.broker.services.administration_services": "for whoever asks for a service",
    "flintmq.broker.transactions.dtx_branch": "for transactions of several brokers and databases",
    "flintmq.management": "a process of its own",
    "flintmq.server.commands.dtx": "for transactions of several brokers and databases",
    "flintmq.server.commands.file": "for clients of AMQP 0-8 and 0-9",
    "flintmq.server.commands.message": "for clients of AMQP 0-9",
    "flintmq.server.commands.stream": "for clients of AMQP 0-8 and 0-9",
    "flintmq.server.fast.session": "for clients of AMQP/Fast 0.8",
    "flintmq.server.fast09.session": "for clients of AMQP/Fast 0.9",
    "flintmq.server.network.proxy_protocol": "for listeners behind a proxy",
    "flintmq.server.network.tls": "for listeners with a certificate",
    "flintmq.server.process.rehearsal": "for tests",
    "flintmq.snapshot_rows": "for the management process",
    "flintmq.storage.journal.overflow": "for a broker with a data directory",
    "google_crc32c": "for what is on disk",
    "importlib.metadata": "for exchange types of other packages",
    "ipaddress": "for addresses that are not the usual ones",
    "pathlib": "for settings that name a file",
    "platform": "for events and traces",
    "shutil": "for Windows; argparse would load it for the width of the terminal",
    "stringprep": "for passwords beyond ASCII",
    "tempfile": "for a broker in memory that writes to disk",
    "tomllib": "for settings in a file",
    "urllib.parse": "for names of bindings, and for settings",
}
SOON = {
    "flintmq.broker.definitions.definition_services",
    "flintmq.broker.services.administration_services",
    "flintmq.server.commands.message",
    "flintmq.server.fast.session",
    "flintmq.server.fast09.session",
}
# Prints which of SOON are loaded when the server listens, and what the first client makes it load later.
LISTEN = """
import asyncio, json, sys
from flintmq.clock import Clock
from flintmq.config import Config, Listen
from flintmq.server.server import Server

SOON = {soon}

async def main():
    listen = Listen(("127.0.0.1",), 0, fast09_port={fast09_port})
    server = Server(Config()._replace(listen=listen), Clock(), asyncio.get_running_loop())
    port = int(server.listen()[0].rsplit(":", 1)[1])
    at_first = SOON & sys.modules.keys()
    async with asyncio.timeout(20):
        while not SOON <= sys.modules.keys():
            await asyncio.sleep(0.01)
    before = set(sys.modules)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(bytes((128, 1)))
    await asyncio.wait_for(reader.readexactly(1), 20)
    later = [name for name in sys.modules.keys() - before if name.startswith("flintmq")]
    writer.close()
    await server.stop(0.1)
    print(json.dumps([sorted(at_first), later]))

asyncio.run(main())
"""
LOAD = (
    "import flintmq.server, gc, json, sys; from flintmq import config; from flintmq.cli import parser; "
    "import flintmq.cli.local.serve; parser('serve'); config.load(hosts=['::1'], port=0); "
    "print(json.dumps([gc.isenabled(), list(sys.modules)]))"
)


def loaded(program: str) -> tuple[bool, set[str]]:
    """Whether garbage is collected at the end of a program, and the modules that it has loaded."""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    is_collecting, names = json.loads(done.stdout)
    return is_collecting, set(names)


def test_a_broker_starts_without_what_it_may_never_need() -> None:
    is_collecting, names = loaded(LOAD)
    assert is_collecting
    assert {name: LATER[name] for name in LATER.keys() & names} == {}


def test_a_program_that_collects_no_garbage_still_does_not() -> None:
    assert gc.isenabled()
    assert loaded(f"import gc; gc.disable(); {LOAD}")[0] is False


@pytest.mark.parametrize("name", sorted(LATER))
def test_what_is_loaded_later_exists(name: str) -> None:
    """A module of another name would never be found among those that are loaded."""
    assert find_spec(name) is not None


@pytest.mark.parametrize(
    ("fast09_port", "at_first"), [(None, []), (0, ["flintmq.server.fast09.session"])], ids=["", "fast09"]
)
def test_no_client_makes_a_server_load_anything(fast09_port: int | None, at_first: list[str]) -> None:
    """The files may be those of another version by then, and all others would wait."""
    program = LISTEN.format(soon=SOON, fast09_port=fast09_port)
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True)
    listening, later = json.loads(done.stdout)
    assert set(at_first) <= set(listening)
    assert bool(at_first) == bool(listening)
    assert later == []


def test_a_server_whose_fast_modules_are_gone_says_so(caplog: pytest.LogCaptureFixture) -> None:
    load("flintmq.server.fast.gone")
    assert "flintmq.server.fast.gone cannot be loaded" in caplog.text


class Loop:
    """Tells a time, and notes what is to be done later."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.later: list[tuple[float, Callable[[float], None], float]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, after_s: float, function: Callable[[float], None], worked_s: float) -> None:
        self.later.append((after_s, function, worked_s))


def test_a_busy_server_loads_nothing_that_can_wait_until_it_has_waited_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[tuple[str, ...]] = []
    monkeypatch.setattr(server_module, "load", lambda *names: done.append(names))
    server = Server.__new__(Server)
    loop = Loop()
    server.loop = loop  # type: ignore[assignment]
    server.unloaded = [("one",), ("another",), ("last",)]
    server.load_by_s = 10.0
    before_long = time.thread_time() - 1.0
    server.load_late(before_long)
    assert done == []
    server.load_late(time.thread_time())
    assert done == [("one",)]
    server.load_late(before_long)
    assert done == [("one",)]
    loop.now_s = 10.0
    server.load_late(before_long)
    assert len(loop.later) == 4, "each look has another one follow"
    server.load_late(before_long)
    assert done == [("one",), ("another",), ("last",)]
    assert len(loop.later) == 4
