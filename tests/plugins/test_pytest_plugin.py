"""The brokers of the pytest fixtures: there at once, gone with their tests and with pytest itself."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from flintmq import pytest_plugin
from flintmq.auth.passwords import hash_password_quickly
from flintmq.cli import fork_server
from flintmq.client import connect
from flintmq.server.server import FAST, LATE, STOP_TIMEOUT_S
from flintmq.testing.served_broker import ServedBroker
from flintmq.testing.sources import NURSERY, ForkingSource, Source, SpawningSource

SOURCES: list[Callable[[], Source]] = [ForkingSource, SpawningSource]
# Long enough for a machine that is busy, and a third of what a client that does not answer once cost.
SOON_S = STOP_TIMEOUT_S / 3
SETUP_S_MAX = 0.1
SETTINGS = """
virtual_hosts = ["orders/eu"]
[users.hashed]
password_hash = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
[users."o:k"]
password = "s@cret/"
permissions."orders/eu" = {configure = ".*", write = ".*", read = ".*"}
"""
BOSS_HASH = hash_password_quickly(b"from a vault").text()
MANY_USERS = f"""
virtual_hosts = ["orders/eu", "/"]
[users.idle]
password = "idle"
[users."o:k"]
password = "s@cret/"
permissions."orders/eu" = {{configure = ".*", write = ".*", read = ".*"}}
[users.reader]
password = "reader"
permissions."/" = {{configure = "", write = "", read = ".*"}}
permissions."orders/eu" = {{configure = "", write = "", read = ".*"}}
[users.boss]
password_hash = "{BOSS_HASH}"
permissions."/" = {{configure = ".*", write = ".*", read = ".*"}}
"""
HASTY_S = 1.5
CHILDREN_WHEN_IMPORTED = """
import os, pathlib
import pytest
ServedBroker = object
children = pathlib.Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
pathlib.Path("children").write_text(children)
"""
CHILDREN_OF_THE_CONTROLLER = f"""
import os
if "PYTEST_XDIST_WORKER" not in os.environ:
    exec({CHILDREN_WHEN_IMPORTED!r})
"""
HANGING_TEST = """
import pytest

@pytest.fixture(scope="session")
def flintmq_options():
    return ("--config", "hangs.toml")

def test_that_never_begins(flintmq):
    pass
"""
# Tells where its broker is and waits to be killed; a child of its own has all that it has open.
THEIR_TEST = """
import os, pathlib, time

def test_that_never_ends(flintmq):
    child = os.fork()
    if child:
        pathlib.Path("told.new").write_text(f"{flintmq.process} {child}")
        os.rename("told.new", "told")
    time.sleep(3600)
"""


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    made: Source = request.param()
    try:
        yield made
    finally:
        made.close()


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def wait_until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


@contextlib.contextmanager
def their_pytest(directory: Path, test: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A pytest of somebody else's, with the plug-in and no other."""
    (directory / "test_theirs.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "flintmq.pytest_plugin", "-p", "no:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with subprocess.Popen(
        [*command, *(words or ["."])], cwd=directory, env=environment, stdout=subprocess.PIPE, text=True
    ) as theirs:
        try:
            yield theirs
        finally:
            theirs.kill()


def is_there(process: int) -> bool:
    """Whether the process lives, and has not merely been left for its parent to look at."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def processes_of(mark: str) -> list[int]:
    """Those that have the mark among the words of their command line or their environment."""
    found = []
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if place.name.isdecimal() and mark.encode() in (place / "environ").read_bytes():
                found.append(int(place.name))
    return [process for process in found if is_there(process)]


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_pytest_that_is_killed_leaves_no_broker_behind(tmp_path: Path, end: signal.Signals) -> None:
    with their_pytest(tmp_path, THEIR_TEST) as theirs:
        wait_until((tmp_path / "told").exists, 60)
        broker, child = map(int, (tmp_path / "told").read_text().split())
        assert is_there(broker)
        theirs.send_signal(end)
    try:
        wait_until(lambda: not is_there(broker))
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_pytest_that_is_killed_while_its_broker_hangs_leaves_nothing_behind(
    tmp_path: Path, end: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the nursery, which waits for the broker's first line, nor the broker, which hangs."""
    mark = f"FLINTMQ_TEST_MARK={tmp_path}"
    monkeypatch.setenv(*mark.split("=", 1))
    os.mkfifo(tmp_path / "hangs.toml")  # nobody writes to it: whoever opens it waits
    with their_pytest(tmp_path, HANGING_TEST) as theirs:
        wait_until(lambda: len(processes_of(mark)) >= 3, 60)  # pytest, the nursery, the broker
        theirs.send_signal(end)
    wait_until(lambda: not processes_of(mark))


def test_a_nursery_whose_parent_died_before_it_was_there_ends(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:  # open here: its end is not to be seen by the socket
        command = [sys.executable, "-c", NURSERY, str(theirs.fileno()), "1"]
        nursery = subprocess.Popen(command, pass_fds=(theirs.fileno(),))
        try:
            assert nursery.wait(30) == 0
        finally:
            nursery.kill()
            nursery.wait()


def test_a_nursery_answers_before_it_loads_what_only_some_brokers_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not while a test begins, whose broker needs the processor."""
    done: list[str | float | None] = []
    monkeypatch.setattr(fork_server, "import_module", done.append)

    class Asked(fork_server.Nursery):
        def is_said(self, descriptor: int, timeout_s: float | None) -> bool:
            done.append(timeout_s)
            return super().is_said(descriptor, timeout_s)

        def answer_request(self) -> None:
            self.parent.recv(1)
            done.append("answered")

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.send(b"12")
        Asked(theirs, os.getppid()).load_late()
    pause_s = fork_server.PAUSE_S
    first, second = fork_server.DURABLE[:2]
    assert done[:8] == [0.0, "answered", pause_s, "answered", pause_s, first, 0.0, second]
    assert {*fork_server.DURABLE, *LATE[0], FAST} <= set(done)


@pytest.mark.parametrize("name", fork_server.DURABLE)
def test_what_durable_brokers_need_exists(name: str) -> None:
    assert find_spec(name) is not None


@pytest.mark.parametrize("kind", [ForkingSource, SpawningSource])
def test_a_broker_that_hangs_at_its_start_is_an_error_in_time(
    kind: type[ForkingSource | SpawningSource], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = f"FLINTMQ_TEST_MARK={tmp_path}"
    monkeypatch.setenv(*mark.split("=", 1))
    os.mkfifo(tmp_path / "hangs.toml")
    source = kind(start_timeout_s=HASTY_S)
    try:
        with pytest.raises(RuntimeError, match=rf"said nothing within {HASTY_S:g} s and was killed"):
            ServedBroker(source, ("--config", str(tmp_path / "hangs.toml")))
        nursery = {source.process.pid} if isinstance(source, ForkingSource) else set()
        assert set(processes_of(mark)) == nursery
        source.start_timeout_s = 60.0
        ServedBroker(source, ()).stop()  # others start as ever
    finally:
        source.close()


def test_a_nursery_that_does_not_answer_is_an_error_in_time() -> None:
    source = ForkingSource()
    try:
        ServedBroker(source, ()).stop()
        source.process.send_signal(signal.SIGSTOP)
        source.start_timeout_s = source.answer_timeout_s = 0.25
        with pytest.raises(RuntimeError, match="the process that starts brokers does not answer"):
            ServedBroker(source, ())
        with pytest.raises(RuntimeError, match="the process that starts brokers has ended with -9"):
            ServedBroker(source, ())
    finally:
        source.close()
    assert source.process.returncode == -signal.SIGKILL


def test_a_broker_that_stands_still_ends_with_its_nursery() -> None:
    source = ForkingSource()
    broker = ServedBroker(source, ())
    os.kill(broker.process, signal.SIGSTOP)
    source.close()
    wait_until(lambda: not is_there(broker.process))


def test_an_open_connection_does_not_hold_up_the_end(source: Source) -> None:
    broker = ServedBroker(source, ())
    with socket.create_connection(("127.0.0.1", broker.port), timeout=30) as silent:
        silent.sendall(b"AMQP\x00\x00\x09\x01")
        assert silent.recv(1) == b"\x01"
        began_s = time.monotonic()
        broker.stop()
        assert time.monotonic() - began_s < SOON_S
    assert not is_listening(broker.port)


def test_a_broker_of_the_nursery_is_there_at_once() -> None:
    source = ForkingSource()
    try:
        taken_s = []
        for _ in range(10):
            began_s = time.monotonic()
            broker = ServedBroker(source, ())
            taken_s.append(time.monotonic() - began_s)
            broker.stop()
        assert min(taken_s[1:]) < SETUP_S_MAX, taken_s
    finally:
        source.close()


@pytest.mark.parametrize(
    ("code", "is_needed"),
    [
        ("def test_one(flintmq): ...", True),
        ("async def test_one(self, tmp_path,\n        flintmq: ServedBroker) -> None: ...", True),
        ("@pytest.fixture\ndef channel(flintmq_session): ...", True),
        ("import flintmq\ndef test_one(broker): flintmq.client.connect(broker)", False),
        ("def test_one(flintmq_options): ...", False),
    ],
)
def test_the_nursery_loads_while_tests_are_collected(tmp_path: Path, code: str, is_needed: bool) -> None:
    """It is there before the module with the test is imported."""
    with their_pytest(tmp_path, f"{CHILDREN_WHEN_IMPORTED}\n{code}") as theirs:
        theirs.wait(60)
    assert bool((tmp_path / "children").read_text()) is is_needed


@pytest.mark.parametrize(
    ("words", "is_needed"),
    [
        ((".",), True),
        (("test_theirs.py",), True),
        (("test_theirs.py::test_one",), True),
        (("--rootdir=.",), True),  # without a file or folder
        (("unit",), False),
        (("missing.py",), False),
        (("--collect-only", "."), False),
        (("--markers",), False),
        (("--cache-show", "-p", "cacheprovider"), False),
        (("-p", "xdist", "-n", "0"), True),
        (("-p", "xdist", "-n", "1"), True),  # the worker imports it after the controller
    ],
)
def test_the_nursery_loads_while_conftest_files_do(
    tmp_path: Path, words: tuple[str, ...], is_needed: bool
) -> None:
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit" / "test_unit.py").write_text("def test_two(): ...")
    (tmp_path / "conftest.py").write_text(CHILDREN_WHEN_IMPORTED)
    with their_pytest(tmp_path, "def test_one(flintmq): ...", *words) as theirs:
        theirs.wait(60)
    assert bool((tmp_path / "children").read_text()) is is_needed


@pytest.mark.parametrize("option", ["--collect-only", "--fixtures", "--fixtures-per-test", "--setup-plan"])
def test_a_run_that_only_collects_tests_has_no_nursery(tmp_path: Path, option: str) -> None:
    test = f"{CHILDREN_WHEN_IMPORTED}\ndef test_one(flintmq): ..."
    with their_pytest(tmp_path, test, option, ".") as theirs:
        assert theirs.wait(60) == pytest.ExitCode.OK
    assert not (tmp_path / "children").read_text()


def test_the_controller_of_workers_has_no_nursery(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CHILDREN_OF_THE_CONTROLLER)
    with their_pytest(tmp_path, "def test_one(flintmq): ...", "-p", "xdist", "-n", "1", ".") as theirs:
        assert theirs.wait(60) == pytest.ExitCode.OK
    assert not (tmp_path / "children").read_text()


@pytest.mark.parametrize("word", ["a" * 300, "a" * 5000])
def test_the_early_look_leaves_a_word_that_is_no_path_to_pytest(tmp_path: Path, word: str) -> None:
    """The system does not look for a name of more than 255 octets, and says so by another error."""
    with their_pytest(tmp_path, "def test_one(flintmq): ...", word) as theirs:
        said, _ = theirs.communicate(timeout=60)
        assert theirs.returncode == pytest.ExitCode.USAGE_ERROR
    assert "Traceback" not in said


def test_the_early_look_for_tests_ends_in_a_large_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytest_plugin, "EARLY_ENTRIES_MAX", 5)
    for number in range(10):
        (tmp_path / f"test_{number}.py").touch()
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "test_deep.py").touch()
    found = list(pytest_plugin.early_files([tmp_path, tmp_path / "gone"], ["test_*.py"]))
    assert 4 <= len(found) <= 5


def test_a_conftest_that_fails_leaves_no_nursery_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = f"FLINTMQ_TEST_MARK={tmp_path}"
    monkeypatch.setenv(*mark.split("=", 1))
    (tmp_path / "conftest.py").write_text(f"{CHILDREN_WHEN_IMPORTED}\nraise ValueError")
    with their_pytest(tmp_path, "def test_one(flintmq): ...") as theirs:
        assert theirs.wait(60) == pytest.ExitCode.USAGE_ERROR
    assert (tmp_path / "children").read_text()
    assert not processes_of(mark)


def test_brokers_beside_each_other(source: Source) -> None:
    brokers = [ServedBroker(source, ()) for _ in range(3)]
    for broker in brokers:
        with connect(broker.uri) as connection, connection.channel() as channel:
            channel.queue("q")
    brokers[1].stop()
    assert [is_listening(broker.port) for broker in brokers] == [True, False, True]
    brokers[0].stop()
    brokers[2].stop()


def test_the_uri_is_that_of_a_user_of_the_settings(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flintmq.toml").write_text(SETTINGS)
    monkeypatch.chdir(tmp_path)
    broker = ServedBroker(source, ("--config", "flintmq.toml"))
    assert broker.uri == f"amqp://o%3Ak:s%40cret%2F@127.0.0.1:{broker.port}/orders%2Feu"
    with connect(broker.uri) as connection, connection.channel() as channel:
        channel.queue("q")
    broker.stop()


def test_every_user_of_the_settings_can_log_in(source: Source, tmp_path: Path) -> None:
    (tmp_path / "flintmq.toml").write_text(MANY_USERS)
    broker = ServedBroker(source, ("--config", str(tmp_path / "flintmq.toml")))
    # The first in the file that may do anything: "idle" has no permissions.
    assert broker.uri == f"amqp://o%3Ak:s%40cret%2F@127.0.0.1:{broker.port}/orders%2Feu"
    assert broker.uri_of("o:k") == broker.uri
    for uri in (
        broker.uri_of("reader"),
        broker.uri_of("reader", virtual_host="orders/eu"),
        broker.uri_of("boss", password="from a vault"),
    ):
        with connect(uri, recovery=None) as connection:
            assert connection.is_open
    with pytest.raises(ValueError, match="'boss' has a password_hash: give its password"):
        broker.uri_of("boss")
    with pytest.raises(ValueError, match=r"no user 'nobody' in the settings; there are .*reader"):
        broker.uri_of("nobody")
    broker.stop()


def test_without_settings_there_is_guest(source: Source) -> None:
    broker = ServedBroker(source, ())
    assert broker.uri_of("guest") == broker.uri == f"amqp://guest:guest@127.0.0.1:{broker.port}"
    broker.stop()


def test_settings_with_hashed_passwords_alone_say_so(source: Source, tmp_path: Path) -> None:
    (tmp_path / "flintmq.toml").write_text(f"[users.boss]\npassword_hash = {BOSS_HASH!r}\n")
    broker = ServedBroker(source, ("--config", str(tmp_path / "flintmq.toml")))
    with pytest.raises(ValueError, match="'boss' has a password_hash: give its password"):
        broker.uri  # noqa: B018
    assert broker.uri_of("boss", password="x") == f"amqp://boss:x@127.0.0.1:{broker.port}"
    broker.stop()


@pytest.mark.parametrize("options", [("--config", "none.toml"), ("--no-such-option",)])
def test_a_broker_that_does_not_start_says_why(
    source: Source, options: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeError, match="ended with status 2"):
        ServedBroker(source, options)
    assert options[-1] in capfd.readouterr().err
    ServedBroker(source, ()).stop()


def test_brokers_that_are_left_end_with_their_nursery() -> None:
    source = ForkingSource()
    processes = [ServedBroker(source, ()).process for _ in range(2)]
    source.process.kill()
    source.close()
    wait_until(lambda: not any(map(is_there, processes)))


def test_a_test_may_kill_its_broker(source: Source) -> None:
    broker = ServedBroker(source, ())
    os.kill(broker.process, signal.SIGKILL)
    wait_until(lambda: not is_there(broker.process))
    broker.stop()
    ServedBroker(source, ()).stop()
