"""What `flintmq file send` does when answers are lost, and when a file changes under its hands."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from flintmq.cli.files.file_sender import PART_BYTES, FileSender, OutgoingFile
from flintmq.cli.files.patient_connection import PatientConnection
from flintmq.cli.output.statuses import CommandFault
from flintmq.client.core.errors import ConnectionLost, ServiceError
from flintmq.client.core.services import Reply


class Broker(PatientConnection):
    """Stages in memory; answers to the requests that are named are lost once, after they were done."""

    def __init__(self, lost: tuple[str, ...] = (), body_bytes_max: int = 1 << 30) -> None:
        super().__init__(argparse.Namespace(), 60.0)
        self.lost = list(lost)
        self.body_bytes_max = body_bytes_max
        self.staged: dict[str, bytes] = {}
        self.published: dict[str, bytes] = {}
        self.on_append: Any = None

    def request(
        self, service: str, arguments: dict[str, Any], body: bytes = b"", wait_s: float = 0.0
    ) -> Reply:
        identifier = arguments["identifier"]
        if service == "staging.open" and identifier not in self.published:
            self.staged.setdefault(identifier, b"")
        elif service == "staging.append":
            if len(body) > self.body_bytes_max:
                raise ServiceError(service, 311, "too large")
            assert arguments["offset"] == len(self.staged[identifier])
            self.staged[identifier] += body
            if self.on_append is not None:
                self.on_append()
        elif service == "staging.publish":
            self.published[identifier] = self.staged.pop(identifier)
        elif service == "staging.delete":
            self.staged.pop(identifier, None)
            self.published.pop(identifier, None)
        if service in self.lost:
            self.lost.remove(service)
            raise ConnectionLost("lost")
        there = self.staged.get(identifier, b"")
        results: dict[str, Any] = {
            "staged": len(there),
            "published": identifier in self.published,
            "crc32c": google_crc32c.value(there),
        }
        return Reply(results, b"")


def sender_to(broker: Broker) -> FileSender:
    return FileSender(broker, "", "q", None)


def outgoing(folder: Path, octets: bytes) -> OutgoingFile:
    (folder / "a").write_bytes(octets)
    return OutgoingFile(folder / "a", "a")


@pytest.mark.parametrize("service", ["staging.open", "staging.append", "staging.publish"])
def test_an_answer_that_is_lost_costs_nothing(tmp_path: Path, service: str) -> None:
    octets = bytes(range(250)) * (PART_BYTES // 100)
    broker = Broker((service,))
    sender = sender_to(broker)
    assert sender.send(outgoing(tmp_path, octets), False, lambda _: None) == len(octets)
    assert list(broker.published.values()) == [octets]
    assert sender.sent_bytes == len(octets)
    assert sender.send(OutgoingFile(tmp_path / "a", "a"), False, lambda _: None) is None


def test_parts_are_smaller_where_the_broker_is_short_of_memory(tmp_path: Path) -> None:
    octets = bytes(3 * PART_BYTES)
    broker = Broker(body_bytes_max=65_536)
    assert sender_to(broker).send(outgoing(tmp_path, octets), False, lambda _: None) == len(octets)
    assert list(broker.published.values()) == [octets]


def test_a_file_that_changes_is_begun_anew(tmp_path: Path) -> None:
    file = outgoing(tmp_path, b"before")
    broker = Broker()

    def change() -> None:
        if file.path.read_bytes() == b"before":
            file.path.write_bytes(b"afterwards")

    broker.on_append = change
    sender = sender_to(broker)
    assert sender.send(file, False, lambda _: None) in (6, 10)
    assert all(each in (b"before", b"afterwards") for each in broker.published.values())


def test_a_file_that_never_rests_is_given_up(tmp_path: Path) -> None:
    file = outgoing(tmp_path, b"0")
    broker = Broker()

    class Growing(FileSender):
        """Between the checksum and the sending somebody always writes."""

        def summary(self, file: OutgoingFile) -> Any:
            found = super().summary(file)
            file.path.write_bytes(file.path.read_bytes() + b"1")
            return found

    with pytest.raises(CommandFault, match="changes while it is sent"):
        Growing(broker, "", "q", None).send(file, False, lambda _: None)
    assert broker.published == {}
    assert broker.staged == {}
