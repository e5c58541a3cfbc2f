"""The `flintmq` command: what it says, and the status it ends with."""

from __future__ import annotations

import errno
import importlib.util
import io
import json
import os
import platform
import re
import subprocess
import sys
import types
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import flintmq
from flintmq import config
from flintmq.auth.passwords import parse_hash
from flintmq.broker.services.system_services import PROTOCOLS
from flintmq.build import build, compiled_modules, event_loop
from flintmq.cli import main, parser
from flintmq.cli.local import password
from flintmq.cli.output.machine_faults import explain
from flintmq.errors import ConfigFault, StorageFault

Serve = Callable[[config.Config], int]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """A server that does what the test says in place of the real one."""
    double = types.SimpleNamespace(run=lambda settings: 0)
    module = types.ModuleType("flintmq.server")
    module.run = lambda settings, *_: double.run(settings)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flintmq.server", module)
    return double


def said(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err.rstrip("\n")


def test_serve_hands_the_settings_over(server: types.SimpleNamespace, tmp_path: Path) -> None:
    file = tmp_path / "flintmq.toml"
    file.write_text('[listen]\nport = 1\n[storage]\nsync = "never"\n')
    seen: list[config.Config] = []

    def run(settings: config.Config) -> int:
        seen.append(settings)
        return 7

    server.run = run
    options = ["--host", "::1", "--host", "127.0.0.1", "--port", "0", "--data", "/d", "--log-level", "debug"]
    assert main(["serve", "--config", str(file), *options]) == 7
    expected = config.load(file, hosts=["::1", "127.0.0.1"], port=0, directory="/d", log_level="debug")
    assert seen == [expected]
    assert expected.storage.sync == "never"


def test_a_wrong_setting_is_one_line_and_status_2(
    server: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--port", "99999"]) == 2
    assert said(capsys) == "flintmq: --port = 99999: expected a whole number from 0 to 65535"
    assert main(["serve", "--config", "/no/such.toml"]) == 2
    assert said(capsys) == (
        "flintmq: /no/such.toml: cannot be read: No such file or directory; check the path given to --config"
    )


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            OSError(errno.EADDRINUSE, "Address already in use"),
            "flintmq: Address already in use "
            "(another program or another setting has this port; stop the program, or choose a port "
            "with --port or --management-port)",
        ),
        (
            OSError(errno.EMFILE, "Too many open files", "/d/lock"),
            "flintmq: /d/lock: Too many open files "
            "(the limit on open files is too low; raise it: ulimit -n, or LimitNOFILE= of a service)",
        ),
        (StorageFault("segment 3 is damaged"), "flintmq: segment 3 is damaged"),
        (OSError(errno.EIO, "Input/output error", "/d/journal"), "flintmq: /d/journal: Input/output error"),
    ],
)
def test_what_the_machine_refuses_is_one_line_and_status_1(
    server: types.SimpleNamespace, capsys: pytest.CaptureFixture[str], error: Exception, line: str
) -> None:
    def run(settings: config.Config) -> int:
        raise error

    server.run = run
    assert main(["serve"]) == 1
    assert said(capsys) == line


def test_an_interrupt_ends_quietly(server: types.SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    def run(settings: config.Config) -> int:
        raise KeyboardInterrupt

    server.run = run
    assert main(["serve"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_bug_keeps_its_traceback(server: types.SimpleNamespace) -> None:
    def run(settings: config.Config) -> int:
        raise ZeroDivisionError

    server.run = run
    with pytest.raises(ZeroDivisionError):
        main(["serve"])


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"),
            "Cannot assign requested address "
            "(this machine has no such address; give one that it has with --host)",
        ),
        (
            OSError(errno.EACCES, "Permission denied", "/d"),
            "/d: Permission denied "
            "(this user has no right to it; change its owner or mode, or name another one)",
        ),
        (
            OSError(errno.EACCES, "Permission denied"),
            "Permission denied (this user may not have the port; choose one above 1023)",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "No space left on device (the disk is full; make room, or choose another directory with --data)",
        ),
        (
            FileExistsError(errno.EEXIST, "File exists", "data"),
            "data: File exists (a file is in the way; choose a directory with --data)",
        ),
        (OSError("several\nlines"), "several lines"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_the_operating_system_is_explained(error: OSError, line: str) -> None:
    assert explain(error) == line


@pytest.mark.parametrize("arguments", [["sreve"], ["serve", "--port", "x"], ["info", "--loud"]])
def test_wrong_words_are_usage_and_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("usage: flintmq")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["queus"], "flintmq: error: there is no command 'queus'; did you mean 'queues'?"),
        (["xyzzy"], "flintmq: error: there is no command 'xyzzy'; `flintmq --help` lists all"),
        (
            ["list_queues"],
            "flintmq: error: there is no command 'list_queues'; did you mean 'flintmq ctl list_queues'?",
        ),
        (
            ["journal", "chek", "d"],
            "flintmq journal: error: there is no task 'chek'; expected one of inspect, check, repair; "
            "did you mean 'check'?",
        ),
        (
            ["bench", "--type", "clasic"],
            "flintmq bench: error: argument --type: there is no choice 'clasic'; expected one of classic, "
            "quorum, stream; did you mean 'classic'?",
        ),
        (["queues", "--jsn"], "flintmq queues: error: there is no option '--jsn'; did you mean '--json'?"),
        (["--jsn", "queues"], "flintmq queues: error: there is no option '--jsn'; did you mean '--json'?"),
        (
            ["users", "add", "--tag=x", "--nosuch", "shop"],
            "flintmq users add: error: there is no option '--nosuch'; `flintmq users add --help` lists the "
            "options",
        ),
        (["info", "more"], "flintmq info: error: more words than the command takes: more"),
    ],
)
def test_a_word_that_is_not_known_is_told_with_the_one_that_was_meant(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("usage: flintmq")
    assert lines[-1] == line


def test_info_tells_version_build_and_protocols(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    lines = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["version"] == flintmq.__version__
    assert lines["build"].split(" ")[0] == build()
    assert lines["python"].startswith(platform.python_version())
    assert lines["event loop"] == event_loop()
    assert lines["protocols"] == "AMQP 0-9-1, AMQP 0-9, AMQP 0-8, AMQP/Fast 0.9, AMQP/Fast 0.8"
    served = [f"AMQP {name}".replace("AMQP Fast", "AMQP/Fast") for name in PROTOCOLS.values()]
    assert sorted(served) == sorted(lines["protocols"].split(", "))


def test_the_build_is_compiled_where_machine_code_lies(tmp_path: Path) -> None:
    package = tmp_path / "flintmq"
    (package / "wire").mkdir(parents=True)
    (package / "wire" / "frames.py").touch()
    assert compiled_modules(package) == []
    for suffix in EXTENSION_SUFFIXES:
        (package / "wire" / f"frames{suffix}").touch()
    (package / "clock.cpython-27-other.pyd.txt").touch()
    assert compiled_modules(package) == ["flintmq.wire.frames"]


def test_hash_password_takes_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("p\u00e4ss word \nsecond line\n"))
    assert main(["hash-password"]) == 0
    assert parse_hash(capsys.readouterr().out.strip()).matches("p\u00e4ss word ".encode())


@pytest.mark.parametrize("algorithm", ["scrypt", "argon2id"])
def test_hash_password_makes_keys_of_scram_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], algorithm: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("secret\n"))
    assert main(["hash-password", "--algorithm", algorithm, "--scram"]) == 0
    written = capsys.readouterr().out.strip()
    assert written.startswith(f"${algorithm}$")
    assert ";$scram-sha-256$65536$" in written
    assert parse_hash(written).matches(b"secret")


@pytest.mark.parametrize(
    ("line", "octets"), [("", 0), ("\n", 0), ("x" * 1025 + "\n", 1025), ("\u00e4" * 513, 1026)]
)
def test_hash_password_refuses_none_and_too_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, octets: int
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(line))
    assert main(["hash-password"]) == 2
    assert said(capsys) == f"flintmq: a password has 1 to 1024 octets, this one {octets}"


def test_hash_password_takes_the_longest() -> None:
    assert parse_hash(password.hash_from(io.StringIO("x" * 1024 + "\r\n"))).matches(b"x" * 1024)


def test_hash_password_asks_twice_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    answers = iter(["one", "one", "one", "two"])
    monkeypatch.setattr(password, "getpass", lambda prompt: next(answers))
    assert parse_hash(password.hash_from(terminal)).matches(b"one")
    with pytest.raises(ConfigFault, match=r"^the two passwords differ; try again$"):
        password.hash_from(terminal)


def test_demo_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before a broker is started, or anything else."""
    there = importlib.util.find_spec
    absent = ("pyspark", "pandas", "pyarrow")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in absent else there(name))
    assert main(["demo", "--plain"]) == 2
    assert (
        said(capsys) == "flintmq: the demo needs pyspark, pandas, pyarrow: pip install 'flintmq[pipelines]'"
    )


def test_python_m_flintmq_is_the_command() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-m", "flintmq", "--version"]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=30)
    assert (ran.returncode, ran.stdout) == (0, f"flintmq {flintmq.__version__}\n")


@pytest.mark.parametrize("command", ["serve", "queues"])
def test_a_command_is_parsed_by_its_own_parser_alone(command: str) -> None:
    """Which costs a start of the broker, or of a script that calls the command often, a millisecond."""
    found = parser(command)
    assert found.parse_args([command]).command == command
    with pytest.raises(SystemExit):
        found.parse_args(["info"])
    loaded = "sorted(name for name in sys.modules if name.startswith('flintmq.cli.'))"
    program = f"import sys, json, flintmq.cli; flintmq.cli.parser({command!r}); print(json.dumps({loaded}))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert not {"flintmq.cli.pipelines.pipeline", "flintmq.cli.operating.definitions"} & set(
        json.loads(ran.stdout)
    )


@pytest.mark.parametrize(("columns", "width"), [("50", 48), ("160", 158), ("0", 78), ("wide", 78)])
def test_help_is_as_wide_as_the_terminal(
    columns: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    longest = max(map(len, capsys.readouterr().out.splitlines()))
    assert width - 20 < longest <= width


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys, json, flintmq.cli; flintmq.cli.parser().format_help(); "
        "print(json.dumps(sorted(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    loaded = set(json.loads(ran.stdout))
    assert "flintmq.cli" in loaded
    assert not loaded & {
        "asyncio",
        "hashlib",
        "tomllib",
        "ssl",
        "difflib",
        "flintmq.config",
        "flintmq.server",
    }


def test_without_a_command_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "run the broker" in captured.err
    assert "list queues with what is in them" in captured.err
