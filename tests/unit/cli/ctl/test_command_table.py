"""The commands of `flintmq ctl`: what each takes, and what its help says."""

from __future__ import annotations

import shlex

import pytest

from flintmq.cli import main
from flintmq.cli.ctl import ctl
from flintmq.cli.ctl.command_table import COMMANDS, COMMON, OPTIONS, help_of
from flintmq.cli.ctl.health import CHECKS
from flintmq.cli.ctl.lists import LISTS
from flintmq.cli.ctl.node import OF_NODE


def test_each_command_is_in_the_table_and_is_done_in_one_place() -> None:
    done = [*ctl.HANDLERS, *CHECKS, *OF_NODE, *LISTS]
    assert sorted(done) == sorted(COMMANDS)
    assert not ctl.REFUSED.keys() & COMMANDS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command(name: str) -> None:
    command = COMMANDS[name]
    assert set(command.options.split()) <= OPTIONS.keys()
    told = help_of(name)
    assert told.startswith(f"Usage\n\nflintmq ctl {name}")
    assert f"{command.does[1:]}.\n" in told
    for option in (*command.options.split(), "--quiet", "--formatter"):
        assert f"{option} " in told
    given = ctl.Ctl(shlex.split(command.example.partition(" < ")[0].partition(" > ")[0]))
    assert given.command == name
    given.check_words()


def test_each_option_belongs_to_a_command() -> None:
    assert OPTIONS.keys() == COMMON.union(*(each.options.split() for each in COMMANDS.values()))


@pytest.mark.parametrize(
    ("words", "least", "most"),
    [("", 0, 0), ("<user> [<password>]", 1, 2), ("[<column> ...]", 0, 1024), ("<a>|all", 1, 1)],
)
def test_as_many_words_as_a_command_takes(words: str, least: int, most: int) -> None:
    command = COMMANDS["status"]._replace(words=words)
    assert (command.least(), command.most()) == (least, most)


@pytest.mark.parametrize(
    "line", ["help list_queues", "list_queues --help", "-h list_queues", "list_queues -p shop -h"]
)
def test_help_asks_no_broker(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ctl", "--url", "amqp://localhost:1", *line.split()]) == 0
    told = capsys.readouterr().out
    assert told.startswith("Usage\n\nflintmq ctl list_queues [--vhost <vhost>]")
    assert "-p, --vhost <vhost> " in told
    assert "messages_unacknowledged" in told
    assert "flintmq ctl list_queues -p / name messages consumers --formatter json" in told


@pytest.mark.parametrize("line", ["ctl help", "ctl --help", "ctl -h"])
def test_the_help_of_all(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = {line.split()[0] for line in lines if line.startswith("   ")}
    assert shown == set(COMMANDS)


def test_help_of_what_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ctl", "help", "lst_queues"]) == 64
    assert "Did you mean 'list_queues'?" in capsys.readouterr().err
    assert main(["ctl", "eval", "--help"]) == 0
    assert capsys.readouterr().out.startswith("eval: there is no Erlang")


def test_words_that_a_command_does_not_take(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ctl", "status", "now"]) == 64
    assert "too many arguments" in capsys.readouterr().err
    assert main(["ctl", "set_permissions", "shop"]) == 64
    assert capsys.readouterr().err.endswith(
        "flintmq ctl set_permissions [--vhost <vhost>] [--force] <username> <configure> <write> <read>\n"
    )
