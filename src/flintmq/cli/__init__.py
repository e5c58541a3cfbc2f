"""The `flintmq` command: its words and options, and which function each leads to.

Each command imports what it needs when it runs, so that `flintmq --help` costs no more than argparse.
A fault of the operator ends in one line on standard error and a status, never in a traceback:

    0  done    1  the machine said no (port taken, disk, damage)    2  the settings or options are wrong
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import cache

from flintmq import __version__
from flintmq.errors import ConfigFault, FlintError

EXIT_MACHINE = 1
EXIT_SETTINGS = 2
EXIT_INTERRUPTED = 130


@cache
def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="flintmq", description="An AMQP message broker in Python whose traffic is a Spark stream."
    )
    top.add_argument("--version", action="version", version=f"flintmq {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    serve = commands.add_parser("serve", help="run the broker", description="Run the broker.")
    serve.add_argument("--host", action="append", metavar="H", help="listen here; may be repeated")
    serve.add_argument("--port", type=int, metavar="N", help="AMQP port, 0 for any free one (5672)")
    serve.add_argument("--data", metavar="DIR", help="keep durable messages here (none: memory only)")
    serve.add_argument("--config", metavar="FILE", help="settings in TOML, see docs/configuration.md")
    serve.add_argument("--log-level", metavar="L", help="debug, info, warning or error (info)")
    serve.add_argument(
        "--until-input-ends", action="store_true", help="end with standard input, for a parent that starts it"
    )
    serve.set_defaults(run=_serve)

    info = commands.add_parser("info", help="version and build", description="Say what is installed.")
    info.set_defaults(run=_info)

    password = commands.add_parser(
        "hash-password",
        help="hash a password for the configuration",
        description="Read a password from the terminal, or one line from standard input, print its hash.",
    )
    password.set_defaults(run=_hash_password)
    _add_journal(commands)
    _add_pipelines(commands)
    return top


def _add_pipelines(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from flintmq.cli import demo, pipeline

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


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    try:
        status: int = options.run(options)
        return status
    except ConfigFault as fault:
        return _fail(fault, EXIT_SETTINGS)
    except FlintError as fault:
        return _fail(fault, EXIT_MACHINE)
    except OSError as error:
        return _fail(_said(error), EXIT_MACHINE)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _fail(fault: object, status: int) -> int:
    print(f"flintmq: {fault}", file=sys.stderr)
    return status


def _said(error: OSError) -> str:
    from flintmq.cli.machine import explain

    return explain(error)


def _serve(options: argparse.Namespace) -> int:
    from flintmq.cli.serve import serve

    return serve(options)


def _info(_: argparse.Namespace) -> int:
    from flintmq.cli.info import info

    print(info())
    return 0


def _hash_password(_: argparse.Namespace) -> int:
    from flintmq.cli.password import hash_from

    print(hash_from(sys.stdin))
    return 0


def _journal(options: argparse.Namespace) -> int:
    from flintmq.cli import journal

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
