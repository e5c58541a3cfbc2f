"""Exchange types of other packages: found by their entry points, and harmless when they are broken."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from peer import Peer

from flintmq import entry_points
from flintmq.broker.exchanges import exchange_plugins
from flintmq.wire import methods

pytestmark = pytest.mark.usefixtures("example")


def test_all_that_are_installed_and_right(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert exchange_plugins.load(None) == ["x-length", "x-shaky"]
    told = {record.args[1]: record.getMessage() for record in caplog.records if record.levelname == "ERROR"}  # type: ignore[index]
    assert told.keys() == {"taken", "incomplete", "number", "absent", "missing"}
    assert "'direct' already" in told["taken"]
    assert "does not define prepare, attach, detach, route" in told["incomplete"]
    assert "5 is not a subclass" in told["number"]
    assert "NoSuchClass" in told["absent"]
    assert "No module named 'flintmq_no_such_module'" in told["missing"]
    assert exchange_plugins.load(None) == ["x-length", "x-shaky"], (
        "again, as a second broker in a process would"
    )


@pytest.mark.parametrize("name", ["length", "xlength", "X-length", "topic2"])
def test_the_name_of_a_type_begins_with_x(name: str) -> None:
    """The standard keeps all other names for types to come."""
    loaded = importlib.import_module("flintmq_example").LengthExchange
    assert exchange_plugins.fault_of(loaded) == ""
    misnamed = type("Misnamed", (loaded,), {"type": name})
    assert exchange_plugins.fault_of(misnamed) == f"its `type` {name!r} does not begin with 'x-'"


def test_without_plug_ins_their_discovery_loads_nothing(example: Path) -> None:
    """importlib.metadata takes a fifth of the time that a broker takes to start."""
    code = (
        "import sys, flintmq.server; from flintmq.broker.exchanges.exchange_plugins import load; load(None)"
    )
    code += "; print('importlib.metadata' in sys.modules)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for path, is_loaded in (("", "False"), (str(example), "True")):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**environment, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == is_loaded


def test_exchange_types_can_be_the_first_that_a_program_imports() -> None:
    code = (
        "from flintmq.broker.exchanges.exchange_types import EXCHANGE_TYPES; print(len(EXCHANGE_TYPES) > 4)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr


def is_named(*path: str) -> bool:
    """Whether packages there have such exchanges, as they are now."""
    entry_points.heads_on.cache_clear()
    return entry_points.is_named(path, exchange_plugins.GROUP)


@pytest.mark.parametrize("kind", ["dist-info", "egg-info"])
def test_wherever_a_package_says_so(tmp_path: Path, kind: str) -> None:
    about = tmp_path / f"theirs-1.0.{kind}"
    about.mkdir()
    (about / "entry_points.txt").write_text("[console_scripts]\nx = y:z\n")
    nowhere = str(tmp_path / "nowhere")
    assert not is_named(nowhere, str(tmp_path))
    (about / "entry_points.txt").write_text("[flintmq.exchanges]\nx = y:z\n")
    assert is_named(nowhere, str(tmp_path))
    archive = tmp_path / "archive.zip"
    archive.write_bytes(b"PK")
    assert is_named(str(archive))


def test_a_finder_of_packages_that_lie_nowhere_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder:
        @staticmethod
        def find_spec(*_: object) -> None:
            return None

        @staticmethod
        def find_distributions(*_: object) -> tuple[()]:
            return ()

    assert not is_named()
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert is_named()


def test_only_those_that_are_wanted(caplog: pytest.LogCaptureFixture) -> None:
    assert exchange_plugins.load(["length", "unheard-of"]) == ["x-length"]
    assert "'unheard-of' is not installed" in caplog.text
    assert exchange_plugins.load([]) == []


def test_a_live_broker_with_plug_ins(tmp_path: Path) -> None:
    with BrokerProcess("--data", str(tmp_path / "data")) as broker:
        peer = Peer.connect(broker.port, heartbeat_s=0)
        peer.open(1, 2, 3)
        for name in ("length", "shaky"):
            peer.call(1, methods.ExchangeDeclare(exchange=name, type=f"x-{name}", durable=True))
        peer.call(1, methods.QueueDeclare(queue="three", durable=True))
        peer.call(1, methods.QueueBind(queue="three", exchange="length", routing_key="3"))
        peer.publish(1, b"fits", exchange="length", key="abc")
        peer.publish(1, b"does not", exchange="length", key="abcd")
        assert peer.call(1, methods.QueueDeclare(queue="three", durable=True)).message_count == 1
        peer.send(1, methods.QueueBind(queue="three", exchange="length", routing_key="three"))
        peer.expect_channel_close(1, 406)
        peer.call(2, methods.QueueBind(queue="three", exchange="shaky", routing_key="3"))
        peer.publish(2, b"lost", exchange="shaky", key="abc", mandatory=True)
        assert peer.expect(2, methods.BasicReturn).reply_text == "NO_ROUTE"
        peer.content(2)
        peer.send(2, methods.QueueBind(queue="three", exchange="shaky", routing_key="13"))
        peer.expect_channel_close(2, 541)
        assert peer.call(3, methods.QueueDeclare(queue="three", durable=True)).message_count == 1
        peer.close()
    assert any("failed to route" in line for line in broker.lines)
    with BrokerProcess("--data", str(tmp_path / "data")) as broker:
        peer = Peer.connect(broker.port, heartbeat_s=0)
        peer.open(1)
        peer.publish(1, b"again", exchange="length", key="xyz")
        assert peer.call(1, methods.QueueDeclare(queue="three", durable=True)).message_count == 1
        peer.close()
