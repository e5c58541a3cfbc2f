"""staging.open to staging.publish: contents that come in parts, resumed, published once, limited."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playbook.dialogue import Carried, Client, Playbook, carrying
from playbook.paged import PagedPlaybook
from playbook.test_administration import listening

from flintmq.broker.store.staging import Staging
from flintmq.broker.streams import stream_arguments
from flintmq.cli.local.journal import show
from flintmq.config import Staging as Limits
from flintmq.errors import ServiceFault, StorageFault
from flintmq.storage.inspection.journal_inspection import check
from flintmq.storage.spool import SpoolReader
from flintmq.wire import amqp, methods
from flintmq.wire.methods import BasicPublish
from flintmq.wire.tables import FieldTable

LARGE = bytes(range(256)) * 1024


@pytest.fixture
def playbook(tmp_path: Path) -> Iterator[PagedPlaybook]:
    playbook = PagedPlaybook(tmp_path / "data")
    yield playbook
    playbook.end()
    playbook.close()


def staging(playbook: PagedPlaybook) -> Staging:
    found = playbook.broker.staging
    assert found is not None
    return found


def settle(playbook: PagedPlaybook) -> None:
    """The threads are done, and what they did is known."""
    store = playbook.broker.store
    assert store is not None
    worker = staging(playbook).files.worker
    while worker is not None and worker.pending:
        worker.collect(wait=True)
    playbook.finish_pass()
    if playbook.broker.streams is not None:  # on a slow disk the journal waits for them
        playbook.broker.streams.storage.commit_now()
    store.journal.commit_now()
    playbook.finish_pass()


def answer(client: Client, name: str, body: bytes = b"", **arguments: Any) -> Carried:
    playbook = client.playbook
    assert isinstance(playbook, PagedPlaybook)
    headers = {argument.replace("_", "-"): value for argument, value in arguments.items()}
    asked = BasicPublish(exchange="amq.system", routing_key=name)
    client >> carrying(asked, body, headers=headers, reply_to=f"mine{client.session.number}")
    settle(playbook)
    heard = client.next(1)
    assert isinstance(heard, Carried), heard
    return heard


def ask(client: Client, name: str, body: bytes = b"", **arguments: Any) -> FieldTable:
    headers = answer(client, name, body, **arguments).properties.headers
    assert headers is not None
    return headers


def refused(client: Client, name: str, body: bytes = b"", **arguments: Any) -> tuple[object, str]:
    told = ask(client, name, body, **arguments)
    return told.get("error-code"), str(told.get("error-text"))


def asker(playbook: PagedPlaybook, **options: Any) -> Client:
    return listening(playbook.client(**options))


def durable(client: Client, name: str, **arguments: Any) -> None:
    client >> methods.QueueDeclare(queue=name, durable=True, arguments=arguments)
    assert isinstance(client.playbook, PagedPlaybook)
    settle(client.playbook)
    client.hears(methods.QueueDeclareOk)


def got(client: Client, name: str) -> Carried:
    client >> methods.BasicGet(queue=name, no_ack=True)
    assert isinstance(client.playbook, PagedPlaybook)
    settle(client.playbook)
    heard = client.next(1)
    assert isinstance(heard, Carried), heard
    return heard


def stage(client: Client, identifier: str, body: bytes) -> None:
    ask(client, "staging.open", identifier=identifier, size=len(body))
    assert ask(client, "staging.append", body, identifier=identifier, offset=0)["staged"] == len(body)


def spools(playbook: PagedPlaybook) -> list[Path]:
    return sorted(playbook.directory.glob("*.spool"))


@pytest.mark.parametrize("body", [LARGE, b"small", b""])
def test_a_content_that_comes_in_parts_is_published_whole(playbook: PagedPlaybook, body: bytes) -> None:
    client = asker(playbook)
    durable(client, "q")
    opened = ask(client, "staging.open", identifier="one", size=len(body))
    assert (opened["staged"], opened["published"]) == (0, False)
    half = len(body) // 2
    if body:
        ask(client, "staging.append", body[:half], identifier="one", offset=0)
        told = ask(client, "staging.append", body[half:], identifier="one", offset=half)
        assert told["staged"] == len(body)
    properties = {"content-type": "text/plain", "headers": {"name": "a"}, "priority": 3}
    told = ask(client, "staging.publish", identifier="one", routing_key="q", properties=properties)
    assert told["published"] is True
    heard = got(client, "q")
    assert heard.body == body
    assert heard.properties.headers == {"name": "a"}
    assert (heard.properties.content_type, heard.properties.delivery_mode) == ("text/plain", 2)
    settle(playbook)
    assert spools(playbook) == []


def test_a_content_whose_body_a_stream_does_not_get_stays_staged(
    playbook: PagedPlaybook, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = asker(playbook)
    durable(client, "s", **{"x-queue-type": "stream"})
    stage(client, "one", LARGE)

    def fails(reader: SpoolReader, at: int, count: int) -> bytes:
        raise StorageFault("for once")

    with monkeypatch.context() as patched:
        patched.setattr(SpoolReader, "read", fails)
        assert refused(client, "staging.publish", identifier="one", routing_key="s")[0] == amqp.RESOURCE_ERROR
    assert ask(client, "staging.publish", identifier="one", routing_key="s")["published"] is True
    assert playbook.broker.streams is not None
    playbook.broker.streams.storage.commit_now()
    assert playbook.queue("s").message_count() == 1


def test_a_restart_finds_what_was_told_as_staged(playbook: PagedPlaybook) -> None:
    client = asker(playbook)
    durable(client, "q")
    ask(client, "staging.open", identifier="one", size=len(LARGE))
    ask(client, "staging.append", LARGE[:100_000], identifier="one", offset=0)
    playbook.restart()
    client = asker(playbook)
    assert ask(client, "staging.open", identifier="one", size=len(LARGE))["staged"] == 100_000
    ask(client, "staging.append", LARGE[100_000:], identifier="one", offset=100_000)
    ask(client, "staging.publish", identifier="one", routing_key="q")
    playbook.restart()
    client = asker(playbook)
    assert ask(client, "staging.open", identifier="one", size=len(LARGE))["published"] is True
    assert got(client, "q").body == LARGE
    assert staging(playbook).claimed == {}


def test_octets_that_were_written_and_never_told_are_written_again(playbook: PagedPlaybook) -> None:
    client = asker(playbook)
    durable(client, "q")
    ask(client, "staging.open", identifier="one", size=len(LARGE))
    ask(client, "staging.append", LARGE[:1000], identifier="one", offset=0)
    playbook.restart()
    with spools(playbook)[0].open("ab") as file:
        file.write(b"torn" * 1000)
    client = asker(playbook)
    ask(client, "staging.append", LARGE[1000:], identifier="one", offset=1000)
    ask(client, "staging.publish", identifier="one", routing_key="q")
    assert got(client, "q").body == LARGE


def test_a_content_is_published_once(playbook: PagedPlaybook) -> None:
    client = asker(playbook)
    durable(client, "q")
    stage(client, "one", LARGE)
    ask(client, "staging.publish", identifier="one", routing_key="q")
    code, text = refused(client, "staging.publish", identifier="one", routing_key="q")
    assert (code, text) == (406, "PRECONDITION_FAILED - content 'one' is published already")
    assert playbook.queue("q").message_count() == 1
    code, text = refused(client, "staging.append", b"more", identifier="one", offset=len(LARGE))
    assert code == 406
    assert "takes no more" in text


def test_what_does_not_fit_is_refused_and_costs_nothing(playbook: PagedPlaybook) -> None:
    client = asker(playbook)
    durable(client, "q")
    ask(client, "staging.open", identifier="one", size=10)
    ask(client, "staging.append", b"12345", identifier="one", offset=0)
    for offset in (0, 4, 6, 1 << 40):
        code, text = refused(client, "staging.append", b"x", identifier="one", offset=offset)
        assert (code, "has 5 octets: go on there" in text) == (406, True)
    code, text = refused(client, "staging.append", b"123456", identifier="one", offset=5)
    assert (code, "11 are too many" in text) == (406, True)
    code, text = refused(client, "staging.publish", identifier="one", routing_key="q")
    assert (code, "5 of 10 octets are staged" in text) == (406, True)
    code, text = refused(client, "staging.open", identifier="one", size=11)
    assert (code, "has 10 octets, not 11" in text) == (406, True)
    assert refused(client, "staging.append", b"x", identifier="two", offset=0)[0] == 404
    assert refused(client, "staging.open", identifier="", size=1)[0] == 406
    assert refused(client, "staging.open", identifier="x" * 256, size=1)[0] == 406
    assert refused(client, "staging.open", identifier="two", size=-2)[0] == 406
    ask(client, "staging.append", b"67890", identifier="one", offset=5)
    code, text = refused(client, "staging.publish", identifier="one", routing_key="q", crc32c=1)
    assert (code, "checksum" in text) == (406, True)
    for properties in ({"priority": 256}, {"colour": "red"}, {"type": "x" * 256}, {"headers": 1}):
        code, text = refused(
            client, "staging.publish", identifier="one", routing_key="q", properties=properties
        )
        assert (code, "'properties'" in text) == (406, True)
    code, text = refused(client, "staging.publish", identifier="one", exchange="x" * 256, routing_key="q")
    assert (code, "'exchange'" in text) == (406, True)
    ask(client, "staging.publish", identifier="one", routing_key="q")
    assert got(client, "q").body == b"1234567890"


def test_what_no_queue_takes_stays_staged(playbook: PagedPlaybook) -> None:
    client = asker(playbook)
    durable(client, "full", **{"x-max-length": 1, "x-overflow": "reject-publish"})
    stage(client, "one", LARGE)
    stage(client, "two", LARGE)
    assert refused(client, "staging.publish", identifier="one", routing_key="nowhere")[0] == 312
    assert refused(client, "staging.publish", identifier="one", exchange="none")[0] == 404
    ask(client, "staging.publish", identifier="one", routing_key="full")
    code, text = refused(client, "staging.publish", identifier="two", routing_key="full")
    assert (code, "stays staged" in text) == (506, True)
    got(client, "full")
    ask(client, "staging.publish", identifier="two", routing_key="full")
    assert got(client, "full").body == LARGE


def test_limits_hold_for_each_user_and_virtual_host(playbook: PagedPlaybook) -> None:
    client = asker(playbook)
    staging(playbook).limits = Limits(
        contents_per_user_max=2, content_bytes_max=100, user_bytes_max=150, virtual_host_bytes_max=1000
    )
    assert "content_bytes_max" in refused(client, "staging.open", identifier="one", size=101)[1]
    ask(client, "staging.open", identifier="one", size=100)
    assert "user_bytes_max" in refused(client, "staging.open", identifier="two", size=51)[1]
    ask(client, "staging.open", identifier="two")
    assert "contents_per_user_max" in refused(client, "staging.open", identifier="three", size=1)[1]
    ask(client, "staging.append", bytes(50), identifier="two", offset=0)
    assert "user_bytes_max" in refused(client, "staging.append", b"x", identifier="two", offset=50)[1]
    ask(client, "staging.delete", identifier="one")
    ask(client, "staging.append", b"x", identifier="two", offset=50)
    assert staging(playbook).claimed == {("/", "guest"): 51}
    assert staging(playbook).claimed_of_host == {"/": 51}
    staging(playbook).limits = Limits(virtual_host_bytes_max=60)
    assert "virtual_host_bytes_max" in refused(client, "staging.open", identifier="one", size=10)[1]


def test_notes_of_what_was_published_are_limited_too(playbook: PagedPlaybook) -> None:
    client = asker(playbook)
    durable(client, "q")
    staging(playbook).limits = Limits(published_per_user_max=2)
    for name in ("a", "b", "c"):
        stage(client, name, b"x")
        ask(client, "staging.publish", identifier=name, routing_key="q")
    assert [row["identifier"] for row in rows(client)] == ["b", "c"]


def rows(client: Client, **arguments: Any) -> list[Any]:
    found = ask(client, "staging.list", **arguments)["rows"]
    assert isinstance(found, list)
    return found


def test_contents_are_listed_and_expire(playbook: PagedPlaybook) -> None:
    client = asker(playbook)
    staging(playbook).limits = Limits(expiry_s=100)
    stage(client, "one", LARGE)
    playbook.passes(60_000)
    stage(client, "two", b"2")
    found = rows(client)
    assert [(row["identifier"], row["staged"], row["expires-s"]) for row in found] == [
        ("one", len(LARGE), 40),
        ("two", 1, 100),
    ]
    playbook.passes(50_000)
    playbook.broker.timetable.run()
    settle(playbook)
    assert [row["identifier"] for row in rows(client)] == ["two"]
    assert len(spools(playbook)) == 1
    playbook.passes(110_000)
    playbook.broker.timetable.run()
    settle(playbook)
    assert rows(client) == []
    assert spools(playbook) == []
    playbook.restart()
    assert rows(asker(playbook)) == []


def test_others_neither_see_nor_touch_a_content(playbook: PagedPlaybook) -> None:
    boss = asker(playbook)
    ask(boss, "user.add", user="clerk", password="clerk-has-a-password")
    ask(boss, "permission.set", user="clerk", configure=".*", write=".*", read=".*")
    stage(boss, "one", b"mine")
    clerk = asker(playbook, user="clerk", password="clerk-has-a-password")
    assert rows(clerk) == []
    assert refused(clerk, "staging.publish", identifier="one", routing_key="q")[0] == 404
    assert refused(clerk, "staging.delete", identifier="one", user="guest")[0] == 403
    assert refused(clerk, "staging.list", user="guest")[0] == 403
    stage(clerk, "one", b"another")
    assert [row["staged"] for row in rows(boss, user="clerk")] == [7]
    ask(boss, "user.delete", user="clerk")
    clerk.hears(methods.ConnectionClose, 0)
    assert rows(boss, user="clerk") == []
    assert [row["staged"] for row in rows(boss)] == [4]


def test_a_full_disk_loses_nothing_that_was_told(
    playbook: PagedPlaybook, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = asker(playbook)
    durable(client, "q")
    ask(client, "staging.open", identifier="one", size=len(LARGE))
    ask(client, "staging.append", LARGE[:1000], identifier="one", offset=0)
    disk = staging(playbook).files.journal.disk
    for method in ("write", "sync"):
        whole = getattr(disk, method)

        def broken(handle: int, *rest: Any, whole: Any = whole) -> None:
            if str(disk.path_of(handle)).endswith(".spool"):
                raise OSError(28, "No space left on device")
            whole(handle, *rest)

        with monkeypatch.context() as patch:
            patch.setattr(disk, method, broken)
            code, text = refused(client, "staging.append", LARGE[1000:], identifier="one", offset=1000)
        assert (code, "No space left" in text, "what came before it is kept" in text) == (506, True, True)
        assert spools(playbook)[0].stat().st_size == 1000
        assert staging(playbook).claimed == {("/", "guest"): len(LARGE)}
    ask(client, "staging.append", LARGE[1000:], identifier="one", offset=1000)
    ask(client, "staging.publish", identifier="one", routing_key="q")
    assert got(client, "q").body == LARGE


def test_a_content_that_is_deleted_while_a_part_is_written_goes(playbook: PagedPlaybook) -> None:
    client = asker(playbook)
    store = staging(playbook)
    ask(client, "staging.open", identifier="one", size=10)
    content = store.need("/", "guest", "one")
    store.append(content, 0, b"12345")
    store.forget(content)
    settle(playbook)
    playbook.passes(1000)
    assert store.claimed == {}
    settle(playbook)
    assert spools(playbook) == []


def test_a_content_whose_file_is_lost_is_given_up(playbook: PagedPlaybook) -> None:
    client = asker(playbook)
    stage(client, "one", LARGE)
    stage(client, "two", LARGE)
    playbook.end()
    playbook.close()
    spools(playbook)[0].unlink()
    playbook.clients.clear()
    playbook.broker = playbook.open()
    client = asker(playbook)
    assert [row["identifier"] for row in rows(client)] == ["two"]


def test_without_a_disk_nothing_can_be_staged() -> None:
    playbook = Playbook()
    client = listening(playbook.client())
    asked = BasicPublish(exchange="amq.system", routing_key="staging.open")
    client >> carrying(asked, headers={"identifier": "one"}, reply_to=f"mine{client.session.number}")
    heard = client.next(1)
    assert isinstance(heard, Carried)
    assert heard.properties.headers is not None
    assert heard.properties.headers["error-code"] == amqp.PRECONDITION_FAILED
    assert "--data" in str(heard.properties.headers["error-text"])


def test_a_lease_gives_a_message_in_parts(playbook: PagedPlaybook) -> None:
    client = asker(playbook)
    durable(client, "q")
    stage(client, "one", LARGE)
    ask(client, "staging.publish", identifier="one", routing_key="q", properties={"type": "t"})
    leased = ask(client, "queue.lease", queue="q", consumer="me", claim=True, max_rows=1)
    which = {"queue": "q", "consumer": "me", "epoch": leased["epoch"]}
    first = answer(client, "lease.content", **which, number=1, max_bytes=100_000)
    assert first.properties.headers is not None
    assert first.properties.headers["size"] == len(LARGE)
    assert first.properties.headers["properties"] == {"type": "t", "delivery-mode": 2}
    rest = answer(client, "lease.content", **which, number=1, offset=100_000)
    assert first.body + rest.body == LARGE
    assert answer(client, "lease.content", **which, number=1, offset=len(LARGE)).body == b""
    code, text = refused(client, "lease.content", **which, number=1, offset=len(LARGE) + 1)
    assert (code, "262144 octets" in text) == (406, True)
    assert refused(client, "lease.content", **which, number=2)[0] == 406
    assert refused(client, "lease.content", **{**which, "epoch": 77}, number=1)[0] == 403
    ask(client, "lease.ack", **which, through=1)
    assert refused(client, "lease.content", **which, number=1)[0] == 406


def test_a_backup_has_what_is_staged(playbook: PagedPlaybook) -> None:
    client = asker(playbook)
    ask(client, "staging.open", identifier="one", size=len(LARGE))
    ask(client, "staging.append", LARGE[:1000], identifier="one", offset=0)
    ask(client, "backup.begin")
    found = ask(client, "backup.files")["rows"]
    assert {"name": spools(playbook)[0].name, "octets": 1000} in found  # type: ignore[operator]
    # Nothing of it goes while the files are copied.
    ask(client, "staging.delete", identifier="one")
    settle(playbook)
    assert len(spools(playbook)) == 1
    ask(client, "backup.end")
    store = playbook.broker.store
    assert store is not None
    store.tick()
    assert spools(playbook) == []


def test_the_check_of_a_journal_looks_at_what_is_staged(playbook: PagedPlaybook) -> None:
    client = asker(playbook)
    stage(client, "one", LARGE)
    assert check(str(playbook.directory)).sound
    with spools(playbook)[0].open("r+b") as file:
        file.write(b"other")
    assert check(str(playbook.directory)).spools_bad == [spools(playbook)[0].name]
    text = "\n".join(show(str(playbook.directory)))
    assert f"content 'one' of user 'guest': {len(LARGE)} octets" in text


@pytest.mark.parametrize("policy", ["interval", "never"])
def test_where_the_disk_is_not_waited_for(tmp_path: Path, policy: str) -> None:
    playbook = PagedPlaybook(tmp_path / policy, sync=policy)
    client = asker(playbook)
    durable(client, "q")
    ask(client, "staging.open", identifier="one", size=len(LARGE))
    ask(client, "staging.append", LARGE[:1000], identifier="one", offset=0)
    playbook.restart()
    client = asker(playbook)
    ask(client, "staging.append", LARGE[1000:], identifier="one", offset=1000)
    assert refused(client, "staging.publish", identifier="one", routing_key="nowhere")[0] == 312
    ask(client, "staging.publish", identifier="one", routing_key="q")
    playbook.restart()
    client = asker(playbook)
    assert got(client, "q").body == LARGE
    playbook.end()
    playbook.close()


@pytest.mark.parametrize("left", [None, 3])
@pytest.mark.parametrize("policy", ["always", "never"])
@pytest.mark.parametrize("body", [b"small", LARGE])
def test_a_content_whose_file_is_gone_is_not_published(
    tmp_path: Path, left: int | None, policy: str, body: bytes
) -> None:
    playbook = PagedPlaybook(tmp_path / "data", policy)
    client = asker(playbook)
    durable(client, "q")
    stage(client, "one", body)
    if left is None:
        spools(playbook)[0].unlink()
    else:
        os.truncate(spools(playbook)[0], left)
    code, text = refused(client, "staging.publish", identifier="one", routing_key="q")
    assert (code, "delete it, and begin anew" in text) == (506, True), text
    ask(client, "staging.delete", identifier="one")
    stage(client, "one", body)
    ask(client, "staging.publish", identifier="one", routing_key="q")
    assert got(client, "q").body == body
    playbook.end()
    playbook.close()


def test_those_of_a_user_who_was_deleted_do_not_come_back(playbook: PagedPlaybook) -> None:
    """The broker is killed before all of them are forgotten."""
    client = asker(playbook)
    stage(client, "one", LARGE)
    store = playbook.broker.store
    assert store is not None
    staging(playbook).open("/", "gone", "two", 5)
    store.journal.commit_now()
    playbook.restart()
    assert list(staging(playbook).contents) == [("/", "guest", "one")]
    assert staging(playbook).claimed == {("/", "guest"): len(LARGE)}


def test_a_content_that_is_refused_again_and_again_holds_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else contents that a stream does not take would use up the descriptors of the broker."""
    monkeypatch.setattr(stream_arguments, "MESSAGE_OCTETS_MAX", len(LARGE) - 1)
    playbook = PagedPlaybook(tmp_path / "data", sync="never")
    client = asker(playbook)
    durable(client, "s", **{"x-queue-type": "stream"})
    stage(client, "one", LARGE)
    for _ in range(2):
        code, text = refused(client, "staging.publish", identifier="one", routing_key="s")
        assert code == amqp.CONTENT_TOO_LARGE, text
    content = staging(playbook).need("/", "guest", "one")
    assert content.spool is not None
    assert content.spool.handle == -1
    durable(client, "q")
    ask(client, "staging.publish", identifier="one", routing_key="q")
    assert got(client, "q").body == LARGE
    playbook.end()
    playbook.close()


def test_a_size_that_is_told_while_a_part_is_on_its_way_is_counted_once(playbook: PagedPlaybook) -> None:
    """A content that was deleted is opened and written anew by one connection, and opened by another."""
    store = staging(playbook)
    content = store.open("/", "guest", "one", -1)
    store.append(content, 0, b"0123456789")
    store.open("/", "guest", "one", 100)
    assert store.claimed == {("/", "guest"): 100}
    settle(playbook)
    assert store.claimed == {("/", "guest"): 100}
    store.append(content, 10, b"0123456789")
    store.forget(content)
    settle(playbook)
    assert (store.claimed, store.claimed_of_host) == ({}, {})
    content = store.open("/", "guest", "two", -1)
    store.append(content, 0, b"0123456789")
    with pytest.raises(ServiceFault, match="10 or more octets, not 5"):
        store.open("/", "guest", "two", 5)
