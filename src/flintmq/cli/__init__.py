"""The `flintmq` command: its words and options, and which function each leads to.

Each command imports what it needs when it runs, so that `flintmq --help` costs no more than argparse.
A fault of the operator ends in one line on standard error and a status, never in a traceback:

    0  done                                     4  the login or a permission was refused
    1  refused or failed: port, disk, damage    5  there is no such thing
    2  the settings or options are wrong        6  doctor, alarms: something is wrong with the broker
    3  the broker cannot be reached             130  interrupted
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from flintmq import __version__
from flintmq.errors import NO_MEMORY, ConfigFault, FlintError

EXIT_MACHINE = 1
EXIT_SETTINGS = 2
EXIT_INTERRUPTED = 130
# Of help that goes to no terminal.
COLUMNS = 80
# Of the words that an option or a task may be, as many as are named where another was given.
CHOICES_SHOWN_MAX = 12
# What a file may answer to a write.
OUTPUT_FAULTS = (errno.ENOSPC, errno.EFBIG, errno.EIO, getattr(errno, "EDQUOT", errno.ENOSPC))

# Commands against a running broker: the module of each, and what it does. A module is imported when its
# command is given.
RUNNING: dict[str, tuple[str, str]] = {
    "status": ("operating.status", "how the broker is: counts, memory, disk, alarms"),
    "alarms": ("operating.status", "what blocks publishers, and why"),
    "queues": ("operating.queues", "list queues with what is in them"),
    "exchanges": ("operating.topology", "list exchanges"),
    "bindings": ("operating.topology", "list bindings"),
    "connections": ("operating.connections", "list connections"),
    "channels": ("operating.connections", "list channels with what they hold"),
    "consumers": ("operating.connections", "list consumers"),
    "users": ("operating.users", "list users; add, password, tags, delete"),
    "permissions": ("operating.users", "list permissions; set, clear, set-topic, clear-topic"),
    "vhosts": ("operating.virtual_hosts", "list virtual hosts; add, delete"),
    "limits": ("operating.virtual_hosts", "list limits of users and virtual hosts; set, clear"),
    "bans": ("operating.virtual_hosts", "list banned addresses; clear"),
    "policies": ("operating.policies", "list policies; set, clear"),
    "parameters": ("operating.policies", "list parameters; set, clear"),
    "declare": ("operating.topology", "declare a queue or an exchange"),
    "delete": ("operating.topology", "delete a queue or an exchange"),
    "bind": ("operating.topology", "bind a queue or an exchange to an exchange"),
    "unbind": ("operating.topology", "take a binding away"),
    "purge": ("operating.queues", "drop the messages that wait in a queue"),
    "move": ("operating.queues", "move messages from a queue to another"),
    "requeue": ("operating.requeue", "send dead letters back to the queues that they died in"),
    "publish": ("operating.messages", "publish messages"),
    "get": ("operating.messages", "take messages from a queue"),
    "consume": ("operating.messages", "show messages as they come"),
    "peek": ("operating.messages", "look at messages without taking them"),
    "search": ("operating.messages", "find messages in a queue without taking them"),
    "close": ("operating.connections", "close connections"),
    "top": ("operating.top", "queues, rates and alarms, live"),
    "doctor": ("operating.doctor", "find out what is wrong, and what to do about it"),
    "file": ("files.files", "send files through queues, and receive them"),
    "backup": ("operating.backup", "copy the data of a running broker"),
    "restore": ("operating.backup", "make a data directory of a backup"),
    "audit": ("local.audit", "the audit log as a table"),
    "bench": ("operating.bench", "put load on a broker and measure it"),
    "ctl": ("ctl.ctl", "the commands of rabbitmqctl that scripts use"),
    "completion": ("completion", "completion for bash, zsh or fish"),
}


ALL = "*"


class HelpText(argparse.HelpFormatter):
    """As wide as the terminal, without shutil, which takes two milliseconds to load.

    argparse makes such an object for each option that a parser gets.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=terminal_columns() - 2)


def terminal_columns() -> int:
    """COLUMNS, or the width of the terminal, if there is either."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(1).columns or COLUMNS
    except OSError:
        return COLUMNS


class CommandParser(argparse.ArgumentParser):
    """Takes options before, between and behind the other words of a command."""

    is_parsing = False

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=HelpText, **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = self._get_positional_actions()
        is_mixed = any(action.nargs in (argparse.PARSER, argparse.REMAINDER) for action in words)
        # What argparse does for mixed words forgets a "--", behind which a name may begin with a dash. Where
        # there are options alone it would take a millisecond or two for nothing.
        if self.is_parsing or is_mixed or not words or "--" in (args or ()):
            return super().parse_known_args(args, namespace)
        self.is_parsing = True  # what follows calls this method for its parts
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self.is_parsing = False

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, left = self.parse_known_args(args, namespace)
        if left:
            self.chosen(found).refuse(left)
        return found

    def chosen(self, found: argparse.Namespace) -> CommandParser:
        """The parser of the command, or of its task, that was given."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                task: CommandParser | None = action.choices.get(str(getattr(found, action.dest, "")))
                return self if task is None else task.chosen(found)
        return self

    def refuse(self, words: list[str]) -> None:
        """Ends with the words that mean nothing to this command, an option with the one it is like."""
        from flintmq.checks import suggestion

        unknown = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
        if unknown is None:
            self.error(f"more words than the command takes: {' '.join(words)}")
        near = suggestion(unknown, self._option_string_actions)
        self.error(f"there is no option '{unknown}'{near or f'; `{self.prog} --help` lists the options'}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As argparse, which names all choices; of many the one that is meant says more."""
        if action.choices is None or value in action.choices:
            return
        from flintmq.checks import suggestion

        metavar = str(action.metavar or "")
        kind = metavar.lower() if metavar.isalpha() else "choice"
        known = [str(choice) for choice in action.choices]
        near = (of_ctl(value) if kind == "command" else "") or suggestion(str(value), known)
        if len(known) <= CHOICES_SHOWN_MAX:
            listed = f"; expected one of {', '.join(known)}"
        else:
            listed = "" if near else f"; `{self.prog} --help` lists all"
        text = f"there is no {kind} '{value}'{listed}{near}"
        raise argparse.ArgumentError(action if action.option_strings else None, text)


def of_ctl(word: str) -> str:
    """The end of a sentence that tells of an unknown command, where it is one of rabbitmqctl."""
    from flintmq.cli.ctl.command_table import COMMANDS

    return f"; did you mean 'flintmq ctl {word}'?" if word in COMMANDS else ""


@cache
def parser(command: str = "") -> argparse.ArgumentParser:
    """That of `serve` or of one command against a running broker; else of all, in words alone unless ALL."""
    top = CommandParser(
        prog="flintmq", description="An AMQP message broker in Python whose traffic is a Spark stream."
    )
    top.add_argument("--version", action="version", version=f"flintmq {__version__}")
    commands: Any = top.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=CommandParser
    )
    if command in RUNNING:
        _add_running(commands, command)
        return top
    _add_serve(commands)
    if command == "serve":
        return top  # what others take is loaded by nobody who starts a broker
    _add_offline(commands)
    _add_journal(commands)
    _add_others(commands)
    for name in RUNNING:
        _add_running(commands, name, in_full=command == ALL)
    return top


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    serve = commands.add_parser("serve", help="run the broker", description="Run the broker.")
    serve.add_argument("--host", action="append", metavar="H", help="listen here; may be repeated")
    serve.add_argument("--port", type=int, metavar="N", help="AMQP port, 0 for any free one (5672)")
    serve.add_argument("--data", metavar="DIR", help="keep durable messages here (none: memory only)")
    serve.add_argument("--config", metavar="FILE", help="settings in TOML, see docs/configuration.md")
    serve.add_argument("--definitions", metavar="FILE", help="load this file in RabbitMQ's JSON at the start")
    serve.add_argument(
        "--management-port",
        type=int,
        metavar="N",
        help="HTTP API, 0 for any free port; see docs/management.md",
    )
    serve.add_argument(
        "--fast09-port", type=int, metavar="N", help="AMQP/Fast 0.9, 0 for any free port; see docs/fast09.md"
    )
    serve.add_argument("--log-level", metavar="L", help="debug, info, warning or error (info)")
    serve.add_argument(
        "--until-input-ends", action="store_true", help="end with standard input, for a parent that starts it"
    )
    # For flintmq.testing alone: with --until-input-ends, which brings the commands.
    serve.add_argument("--rehearsal", type=float, metavar="S", help=argparse.SUPPRESS)
    serve.set_defaults(run=_serve)


def _add_offline(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    info = commands.add_parser("info", help="version and build", description="Say what is installed.")
    info.set_defaults(run=_info)

    password = commands.add_parser(
        "hash-password",
        help="hash a password for the configuration",
        description="Read a password from the terminal, or one line from standard input, print its hash.",
    )
    password.add_argument(
        "--algorithm", choices=("scrypt", "argon2id"), default="scrypt", help="how it is hashed (scrypt)"
    )
    password.add_argument("--scram", action="store_true", help="add the keys that SCRAM-SHA-256 needs")
    password.set_defaults(run=_hash_password)


def _add_running(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, in_full: bool = True
) -> None:
    module, words = RUNNING[name]
    description = f"{words[0].upper()}{words[1:]}; see docs/command-line.md."
    added = commands.add_parser(name, help=words, description=description)
    if in_full:
        importlib.import_module(f"flintmq.cli.{module}").add(name, added)


def _add_others(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from flintmq.cli.local import tls
    from flintmq.cli.operating import definitions
    from flintmq.cli.pipelines import demo, pipeline

    definitions.add(commands)
    tls.add(commands)
    pipeline.add(commands)
    demo.add(commands)


def _add_journal(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    journal = commands.add_parser(
        "journal",
        help="look into a data directory, check and repair it",
        description="Look into a data directory, check and repair it; see docs/durability.md.",
    )
    tasks = journal.add_subparsers(dest="task", metavar="TASK", required=True)
    for task, words in (
        ("inspect", "show every record, topology in words; changes nothing"),
        ("check", "verify every checksum; status 1 if something is damaged; changes nothing"),
        ("repair", "set damaged parts aside, as a start of the broker would; says what and where"),
    ):
        chosen = tasks.add_parser(task, help=words, description=words[0].upper() + words[1:] + ".")
        chosen.add_argument("directory", metavar="DIR", help="what --data names")
        chosen.set_defaults(run=_journal)


def with_command_first(words: list[str]) -> list[str]:
    """Options that say which broker is meant may stand before the command: they go behind all other words."""
    if not words or not words[0].startswith("-"):
        return words
    from flintmq.cli.operating import running_broker
    from flintmq.cli.output import tables

    known = argparse.ArgumentParser(add_help=False)
    running_broker.add_options(known)
    tables.add_options(known, is_list=True)
    actions = known._option_string_actions
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, has_value, _ = words[at].partition("=")
        if name not in actions and name[:2] == "-V":
            name, has_value = "-V", "="  # as in -Vshop
        if name not in actions:
            return words
        at += 1 if has_value or actions[name].nargs == 0 else 2
    options, command = words[:at], words[at:]
    end = command.index("--") if "--" in command else len(command)
    return [*command[:end], *options, *command[end:]]


def command_of(words: list[str]) -> str:
    """The command of a line; an option before it that nobody takes is told with those of the command."""
    if words and words[0].startswith("-") and words[0] not in ("-h", "--help", "--version"):
        return next((word for word in words if word in RUNNING), "")
    return words[0] if words else ""


def open_standard_descriptors() -> None:
    """Has descriptors 0, 1 and 2 open, on the null device where whoever started the process has closed them.

    Else the next socket or file takes such a number: what is written to standard error ends up in a file of
    the journal, and uvloop aborts the process when it closes one of the three.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one, as those below it are open.
            os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)
            # Else processes that this one starts, as that of management, have it closed again.
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def escape_unsayable() -> None:
    """Has standard output and standard error escape the letters that their charset lacks, as in \\u20ac."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and stream.errors != "backslashreplace":
            # It asks for the place in the file, last of all. A process may have made a pipe of the file.
            with suppress(OSError):
                reconfigure(errors="backslashreplace")


def main(argv: Sequence[str] | None = None) -> int:
    open_standard_descriptors()
    escape_unsayable()
    words = with_command_first(sys.argv[1:] if argv is None else list(argv))
    if not words:
        parser().print_help(sys.stderr)
        return EXIT_SETTINGS
    if words[:1] == ["ctl"]:
        # Options of rabbitmqctl come before its commands as well as behind them: ctl takes them apart itself.
        options = argparse.Namespace(run=_ctl, words=words[1:])
    else:
        options = parser(command_of(words)).parse_args(words)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except ConfigFault as fault:
        return _fail(fault, EXIT_SETTINGS)
    except FlintError as fault:
        from flintmq.cli.output.statuses import status_of

        return _fail(fault, status_of(fault))
    except BrokenPipeError:
        # Who reads has seen enough, as `head` has.
        _leave_output()
        return EXIT_MACHINE
    except OSError as error:
        if error.errno in OUTPUT_FAULTS and error.filename is None and not _takes_output(options):
            _leave_output()
            return _fail(f"the output could not be written: {error.strerror or error}", EXIT_MACHINE)
        return _fail(_said(error), EXIT_MACHINE)
    except MemoryError:
        return _fail(NO_MEMORY, EXIT_MACHINE)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _takes_output(options: argparse.Namespace) -> bool:
    """Whether standard output can be written to. The error that ended the command does not say which file it
    is about; a broker has others."""
    if options.run is _serve:
        return True
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        return False
    return True


def _leave_output() -> None:
    """What is left in the buffer of standard output must not be tried again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(fault: object, status: int) -> int:
    from flintmq.cli.output.statuses import with_options
    from flintmq.cli.output.tables import printable

    for said in getattr(fault, "lines", (str(fault),)):
        print(f"flintmq: {printable(with_options(said))}", file=sys.stderr)
    return status


def _said(error: OSError) -> str:
    from flintmq.cli.output.machine_faults import explain

    return explain(error)


def _serve(options: argparse.Namespace) -> int:
    from flintmq.cli.local.serve import serve

    return serve(options)


def _ctl(options: argparse.Namespace) -> int:
    from flintmq.cli.ctl import ctl

    return ctl.run(options)


def _info(_: argparse.Namespace) -> int:
    from flintmq.cli.local.info import info

    print(info())
    return 0


def _hash_password(options: argparse.Namespace) -> int:
    from flintmq.cli.local.password import hash_from

    print(hash_from(sys.stdin, options.algorithm, has_scram=options.scram))
    return 0


def _journal(options: argparse.Namespace) -> int:
    from flintmq.cli.local import journal

    status = 0
    if options.task == "inspect":
        for line in journal.show(options.directory):
            print(line)
        return status
    if options.task == "check":
        status, lines = journal.verify(options.directory)
    else:
        lines = journal.mend(options.directory)
    print("\n".join(lines))
    return status
