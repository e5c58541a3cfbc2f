"""`flintmq file send` and `flintmq file receive`: files through queues, of any size; see docs/files.md."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flintmq.cli.files import text_conversion
from flintmq.cli.operating import running_broker
from flintmq.cli.operating.topology import done
from flintmq.cli.output import statuses, tables
from flintmq.cli.output.statuses import CommandFault
from flintmq.clock import Clock
from flintmq.errors import FlintError

if TYPE_CHECKING:
    from flintmq.cli.files.file_sender import FileSender, OutgoingFile

PATIENCE_S = 60.0
# How often a watched folder is looked at; a file is sent when it has not changed from one look to the next.
LOOK_S = 1.0


def add(command: str, parser: argparse.ArgumentParser) -> None:
    tasks = parser.add_subparsers(dest="task", metavar="TASK", required=True)
    sender = tasks.add_parser("send", help="send files, or all that is in folders")
    sender.add_argument("paths", nargs="+", metavar="PATH", help="a file or a folder")
    sender.add_argument(
        "--to", required=True, metavar="EXCHANGE/KEY", help="where to; QUEUE alone: to that queue"
    )
    sender.add_argument("--watch", action="store_true", help="go on, and send what comes into the folders")
    after = sender.add_mutually_exclusive_group()
    after.add_argument("--delete", action="store_true", help="delete each file that was sent")
    after.add_argument("--move", metavar="DIR", help="move each file that was sent there")
    sender.add_argument("--again", action="store_true", help="also files that were sent before")
    sender.set_defaults(run=send)
    receiver = tasks.add_parser("receive", help="write the messages of a queue to files")
    receiver.add_argument("queue", metavar="QUEUE")
    receiver.add_argument("folder", metavar="DIR")
    receiver.add_argument("--count", type=tables.whole, metavar="N", help="end after so many files")
    receiver.add_argument("--overwrite", action="store_true", help="replace files of the same name")
    receiver.set_defaults(run=receive)
    for each in (sender, receiver):
        each.add_argument("--idle", type=tables.amount, metavar="S", help="end when nothing came for so long")
        each.add_argument(
            "--patience",
            type=tables.amount,
            default=PATIENCE_S,
            metavar="S",
            help=f"try to reach the broker for so long ({PATIENCE_S:.0f})",
        )
        text_conversion.add_options(each)
        running_broker.add_options(each)
        tables.add_options(each)


def destination_of(text: str) -> tuple[str, str]:
    """Exchange and routing key; a word without a slash is a queue."""
    exchange, slash, key = text.partition("/")
    return (exchange, key) if slash else ("", text)


class Sending:
    """One run of `file send`: what is sent, what becomes of it then, and what is told."""

    def __init__(self, options: argparse.Namespace, sender: FileSender) -> None:
        self.options = options
        self.sender = sender
        self.files = self.octets = self.skipped = self.failed = 0
        self.failing: set[str] = set()  # what goes wrong in this look at the folders
        self.told: set[str] = set()  # and in the look before, of which nobody has to be told again
        self.left: dict[Path, tuple[int, int]] = {}  # files that were sent and could not be deleted or moved

    def send(self, file: OutgoingFile) -> bool:
        """Whether it was sent; why not is told, and the others follow all the same."""
        try:
            before = state_of(file)
            with tables.Progress(file.name, before[0]) as progress:
                sent = self.sender.send(file, self.options.again, progress.tell)
        except FlintError:
            raise  # of the connection, which may be an OSError too
        except FileNotFoundError:
            if not self.options.watch:
                self.fail(f"{file.path}: is gone")
            return False  # somebody has taken it away meanwhile
        except OSError as error:
            self.unreadable(error)
            return False
        self.put_away(file, before)
        if sent is None:
            self.skipped += 1
            self.say(f"{file.name}: was sent before")
            return True
        self.files += 1
        self.octets += sent
        self.say(f"{file.name}: sent, {tables.size(sent)}")
        return True

    def put_away(self, file: OutgoingFile, before: tuple[int, int]) -> None:
        """Deletes or moves a file that was sent, if that was asked for."""
        from flintmq.cli.files.file_sender import set_aside

        if not self.options.delete and self.options.move is None:
            return
        try:
            if state_of(file) != before:
                self.say(f"{file.name}: has changed since it was sent: it stays")
            elif self.options.delete:
                file.path.unlink()
            else:
                set_aside(file, Path(self.options.move))
        except FileNotFoundError:
            return
        except OSError as error:
            self.left[file.path] = before
            self.fail(f"{file.path}: was sent, but stays: {error.strerror or error}")

    def unreadable(self, error: OSError) -> None:
        self.fail(f"{error.filename}: cannot be read: {error.strerror or error}")

    def fail(self, line: str) -> None:
        if line not in self.failing and line not in self.told:
            self.failed += 1
            print(f"flintmq: {tables.printable(line)}", file=sys.stderr, flush=True)
        self.failing.add(line)

    def say(self, line: str) -> None:
        if not self.options.json:
            print(tables.printable(line), flush=True)

    def send_all(self) -> None:
        from flintmq.cli.files.file_sender import files_of

        for file in files_of(self.options.paths, self.unreadable):
            self.send(file)

    def watch(self) -> None:
        """Sends what is in the folders and comes to them, each file when it is at rest."""
        clock = Clock()
        last_s = clock.monotonic_s()
        seen: dict[Path, tuple[int, int]] = {}
        while self.options.idle is None or clock.monotonic_s() - last_s < self.options.idle:
            seen, is_any_sent = self.look(seen)
            if is_any_sent:
                last_s = clock.monotonic_s()
            self.told, self.failing = self.failing, set()
            clock.sleep(LOOK_S)

    def look(self, seen: dict[Path, tuple[int, int]]) -> tuple[dict[Path, tuple[int, int]], bool]:
        """Sends what is as it was seen before: what is seen now, and whether something was sent."""
        from flintmq.cli.files.file_sender import files_of

        found: dict[Path, tuple[int, int]] = {}
        is_any_sent = False
        for file in files_of(self.options.paths, self.unreadable):
            try:
                state = found[file.path] = state_of(file)
            except FileNotFoundError:
                continue  # somebody has taken it away meanwhile
            except OSError as error:
                self.unreadable(error)
                continue
            if seen.get(file.path) == state and self.left.get(file.path) != state:
                is_any_sent |= self.send(file)
        self.left = {path: state for path, state in self.left.items() if path in found}
        return found, is_any_sent


def state_of(file: OutgoingFile) -> tuple[int, int]:
    """What changes when somebody writes to the file."""
    state = file.path.stat()
    return state.st_size, state.st_mtime_ns


def check_folder(given: str, paths: list[str]) -> None:
    """Raises if files that were sent would be moved to where they are sent from."""
    from flintmq.cli.files.file_sender import is_hidden

    folder = Path(given).resolve()
    for path in map(Path, paths):
        source = path.resolve()
        if path.is_dir() and folder.is_relative_to(source) and not is_hidden(folder, source):
            text = f"--move {given}: it is in {path}, from where it would be sent again: choose one beside it"
            raise CommandFault(text, statuses.USAGE)


def send(options: argparse.Namespace) -> int:
    from flintmq.cli.files.file_sender import FileSender
    from flintmq.cli.files.patient_connection import PatientConnection

    if options.watch and not (options.delete or options.move):
        raise CommandFault(
            "--watch needs --delete or --move: else each file is sent for ever", statuses.USAGE
        )
    if options.move is not None:
        check_folder(options.move, options.paths)
    exchange, key = destination_of(options.to)
    conversion = text_conversion.conversion_of(options)
    with PatientConnection(options, options.patience) as broker:
        sending = Sending(options, FileSender(broker, exchange, key, conversion))
        if options.watch:
            sending.watch()
        else:
            sending.send_all()
    facts: dict[str, Any] = {
        "files": sending.files,
        "octets": sending.octets,
        "skipped": sending.skipped,
        "failed": sending.failed,
        "octets_sent": sending.sender.sent_bytes,
    }
    done(options, f"{sending.files:,} files sent, {tables.size(sending.octets)}", facts)
    return statuses.FAILED if sending.failed else 0


def receive(options: argparse.Namespace) -> int:
    from flintmq.cli.files.file_receiver import WAIT_MS, FileReceiver
    from flintmq.cli.files.patient_connection import PatientConnection

    conversion = text_conversion.conversion_of(options)
    clock = Clock()
    files = octets = 0
    has_waited = False
    with PatientConnection(options, options.patience) as broker:
        receiver = FileReceiver(broker, options.queue, Path(options.folder), conversion, options.overwrite)
        last_s = clock.monotonic_s()
        while options.count is None or files < options.count:
            wait_ms = WAIT_MS if has_waited else 0
            if has_waited and options.idle is not None:
                wait_ms = max(0, int((options.idle - (clock.monotonic_s() - last_s)) * 1000))
            with tables.Progress("receiving") as progress:
                found = receiver.receive(wait_ms, partial(told, progress))
            if found is None:
                if options.idle is not None and clock.monotonic_s() - last_s >= options.idle:
                    break
                if not has_waited:
                    has_waited = True
                    waiting = f"waiting for messages of queue {options.queue!r}"
                    print(f"flintmq: {tables.printable(waiting)}", file=sys.stderr, flush=True)
                continue
            last_s = clock.monotonic_s()
            files += 1
            octets += found[1]
            if not options.json:
                print(tables.printable(f"{found[0]}: received, {tables.size(found[1])}"), flush=True)
    facts = {"files": files, "octets": octets, "octets_received": receiver.received_bytes}
    done(options, f"{files:,} files received, {tables.size(octets)}", facts)
    return 0


def told(progress: tables.Progress, at: int, size: int) -> None:
    progress.total = size
    progress.tell(at)
