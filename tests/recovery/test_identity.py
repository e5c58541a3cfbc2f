"""The ids of queues outlive the broker; so do markers, which say how far a writer has committed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from flintmq.broker.transactions.dtx_journal import FoundBranches
from flintmq.client import Connection, connect
from flintmq.client.core.dtx import Xid
from flintmq.client.core.errors import ServiceError
from flintmq.wire.tables import encode_table

STREAM: Any = {"x-queue-type": "stream"}


def open_to(life: Any) -> Connection:
    return connect(f"amqp://127.0.0.1:{life.port}")


def identity(connection: Connection, queue: str) -> str:
    return str(connection.request("queue.info", {"queue": queue}).results["creation-id"])


def declare(connection: Connection, name: str, is_stream: bool) -> None:
    with connection.channel(confirm=True) as channel:
        channel.queue(name, durable=True, arguments=STREAM if is_stream else None)
        channel.publish(b"1", routing_key=name, persistent=True)


def delete(connection: Connection, name: str) -> None:
    with connection.channel() as channel:
        channel.queue(name, passive=True).delete()


@pytest.mark.parametrize("is_stream", [True, False], ids=["stream", "queue"])
def test_a_queue_keeps_its_id_until_it_is_made_again(start: Any, is_stream: bool) -> None:
    life = start()
    with open_to(life) as connection:
        declare(connection, "q", is_stream)
        first = identity(connection, "q")
        assert len(first) == 32
        assert identity(connection, "q") == first
    life.kill()
    life = start()
    with open_to(life) as connection:
        assert identity(connection, "q") == first
        delete(connection, "q")
        declare(connection, "q", is_stream)
        assert identity(connection, "q") != first
        delete(connection, "q")
        declare(connection, "q", not is_stream)
        assert identity(connection, "q") != first


def test_a_stream_that_has_lost_its_files_is_another(start: Any, data: Path) -> None:
    life = start()
    with open_to(life) as connection:
        declare(connection, "s", True)
        first = identity(connection, "s")
        assert connection.stream("s").offsets().creation_id == first
    life.kill()
    (lost,) = (data / "streams").glob("0*")
    shutil.rmtree(lost)
    life = start()
    with open_to(life) as connection:
        # What was promised is written down elsewhere: no offset is used again, so it may be the same.
        assert connection.stream("s").offsets().first == 1
        assert identity(connection, "s") == first
    life.kill()
    (data / "streams.promised").unlink()
    with open_to(start()) as connection:
        assert connection.stream("s").offsets().end == 0
        assert identity(connection, "s") != first


def test_requests_for_a_queue_that_was_made_again_are_refused(start: Any) -> None:
    with open_to(start()) as connection:
        for name, is_stream in (("s", True), ("q", False)):
            declare(connection, name, is_stream)
        stream = connection.stream("s")
        known = stream.offsets().creation_id
        assert len(stream.fetch(0, 1, creation_id=known)) == 1
        claim: Any = {"queue": "q", "consumer": "c", "claim": True}
        lease = connection.request("queue.lease", claim).results
        held: Any = {
            "queue": "q",
            "consumer": "c",
            "epoch": lease["epoch"],
            "creation-id": lease["creation-id"],
        }
        assert connection.request("lease.renew", held).results["messages-ready"] == 0
        for name, is_stream in (("s", True), ("q", False)):
            delete(connection, name)
            declare(connection, name, is_stream)
        with pytest.raises(ServiceError, match="was made again"):
            stream.fetch(0, 1, creation_id=known)
        assert connection.request("queue.lease", claim).results["epoch"] == lease["epoch"]
        for service, more in (("lease.ack", {"through": 1}), ("lease.read", {}), ("lease.renew", {})):
            with pytest.raises(ServiceError, match="was made again"):
                connection.request(service, {**held, **more})
        with pytest.raises(ServiceError, match="was made again"):
            connection.request("queue.lease", {**held, "start": 0})
        assert connection.request("queue.info", {"queue": "q"}).results["messages-unacked"] == 1


def test_markers_outlive_the_broker(start: Any) -> None:
    life = start()
    with open_to(life) as connection:
        marker: Any = {"xids": [], "marker": "query", "marker-number": 3, "marker-note": "three"}
        connection.request("dtx.commit", marker)
        connection.request("dtx.commit", {**marker, "marker": "job", "marker-keep-s": 60})
    life.kill()
    with open_to(start()) as connection:
        told = connection.request("dtx.marker", {"marker": "query"}).results
        assert (told["marker-number"], told["marker-note"]) == (3, "three")
        rows: Any = connection.request("dtx.markers").results["rows"]
        assert [(row["marker"], row["keep-s"]) for row in rows] == [("job", 60), ("query", 0)]


def test_markers_of_an_older_version_are_read() -> None:
    class Host:
        def __init__(self) -> None:
            self.branches = self
            self.queues: dict[str, Any] = {}
            self.restored: dict[str, Any] = {}

        def restore_marker(self, name: str, marker: Any) -> None:
            self.restored[name] = marker

    found = FoundBranches()
    key = b"m" + encode_table({"virtual-host": "/", "name": "query"})
    found.marker(key, encode_table({"number": 7, "user": "guest", "used": 12}))
    host: Any = Host()
    store: Any = None
    found.restore({"/": host}, store)
    marker = host.restored["query"]
    assert (marker.number, marker.user, marker.note, marker.keep_s) == (7, "guest", "", 0)


def test_a_large_commit_is_answered_when_all_of_it_is_there(start: Any) -> None:
    """It is handed over in parts: who asked to wait finds them all, and hears how many went nowhere."""
    with open_to(start()) as connection:
        with connection.channel() as channel:
            channel.queue("q", durable=True)
        xids = [Xid(b"large", b"%d" % number, 7) for number in range(2)]
        for number, xid in enumerate(xids):
            with connection.channel() as channel:
                channel.branches.start(xid)
                bodies = [b"%d" % number * 100_000] * 200
                channel.publish_many(bodies, routing_key="q", persistent=True, wait=False)
                channel.publish(b"1", routing_key="nowhere", wait=False)
                channel.branches.end(xid)
                channel.branches.prepare(xid)
        asked: Any = {"xids": [str(xid) for xid in xids], "marker": "m", "marker-number": 0, "wait": True}
        told = connection.request("dtx.commit", asked, timeout_s=60).results
        assert (told["committed"], told["unrouted"], told["refused"]) == (2, 2, 0)
        assert connection.request("queue.info", {"queue": "q"}).results["messages-ready"] == 400
