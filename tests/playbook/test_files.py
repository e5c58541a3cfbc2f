"""The file class of 0-8 and 0-9: open, stage and publish, and the same towards the consumer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playbook.dialogue import Carried, Client, frame
from playbook.paged import PagedPlaybook
from playbook.test_asked_permissions import SETTINGS, Back
from playbook.test_large import sent_part, sent_rest
from playbook.test_staging import settle, spools, staging

from flintmq.auth import authentication
from flintmq.auth.asked_permissions import Question, ask_at_once
from flintmq.config import Staging as Limits
from flintmq.config import parse
from flintmq.wire import amqp, methods
from flintmq.wire.methods import (
    BasicDeliver,
    BasicGet,
    ChannelClose,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionTune,
    ConnectionTuneOk,
    FileAck,
    FileCancel,
    FileCancelOk,
    FileConsume,
    FileConsumeOk,
    FileDeliver,
    FileOpen,
    FileOpenOk,
    FilePublish,
    FileQos,
    FileQosOk,
    FileReject,
    FileReturn,
    FileStage,
    QueueDeclare,
    QueueDeclareOk,
)
from flintmq.wire.properties import FileProperties

LARGE = bytes(range(256)) * 20_000  # 5 MB: more than memory holds of one
SMALL = b"a small file"
BLOCK = 1 << 20


@pytest.fixture
def playbook(tmp_path: Path) -> Iterator[PagedPlaybook]:
    playbook = PagedPlaybook(tmp_path / "data")
    yield playbook
    playbook.end()
    playbook.close()


def user(playbook: PagedPlaybook, version: int = amqp.VERSION_0_9) -> Client:
    return playbook.client(version)


def settled(client: Client) -> Client:
    """All that the client has said is done, also by the threads."""
    playbook = client.playbook
    assert isinstance(playbook, PagedPlaybook)
    settle(playbook)
    while (worker := staging(playbook).files.worker) is not None and worker.pending:
        settle(playbook)  # the next part
    return client


def opens(client: Client, identifier: str, size: int) -> int:
    client >> FileOpen(identifier=identifier, content_size=size)
    return settled(client).hears(FileOpenOk).staged_size


def stages(client: Client, rest: bytes, **properties: Any) -> None:
    client >> Carried(FileStage(), rest, FileProperties(**properties))
    settled(client)


def publishes(client: Client, identifier: str, key: str, **options: Any) -> None:
    client >> FilePublish(identifier=identifier, routing_key=key, **options)
    settled(client)


def sends(client: Client, identifier: str, key: str, body: bytes, **properties: Any) -> None:
    assert opens(client, identifier, len(body)) == 0
    stages(client, body, **properties)
    publishes(client, identifier, key)


def declares(client: Client, name: str, **arguments: Any) -> None:
    client >> QueueDeclare(queue=name, durable=True, arguments=arguments)
    settled(client).hears(QueueDeclareOk)


def consumes(client: Client, queue: str, **options: Any) -> None:
    client >> FileConsume(queue=queue, consumer_tag="c", **options)
    client << FileConsumeOk(consumer_tag="c")


def takes_block(client: Client, staged: int = 0) -> Carried:
    client >> FileOpenOk(staged_size=staged)
    stage = settled(client).next(1)
    assert isinstance(stage, Carried)
    assert isinstance(stage.method, FileStage)
    return stage


def receives(client: Client, staged: int = 0) -> tuple[FileOpen, Carried, FileDeliver]:
    """All blocks from there on, as one; behind each but the last, which are full, comes file.open again."""
    opened = settled(client).hears(FileOpen)
    body = b""
    while True:
        stage = takes_block(client, staged + len(body))
        body += stage.body
        if staged + len(body) == opened.content_size:
            return opened, Carried(stage.method, body, stage.properties), client.hears(FileDeliver)
        assert len(stage.body) == BLOCK
        assert client.hears(FileOpen) == opened


@pytest.mark.parametrize("version", [amqp.VERSION_0_8, amqp.VERSION_0_9])
@pytest.mark.parametrize("body", [LARGE, SMALL, b""])
def test_a_file_goes_from_client_to_client(playbook: PagedPlaybook, version: int, body: bytes) -> None:
    client = user(playbook, version)
    declares(client, "q")
    sends(client, "one", "q", body, filename="a.txt", content_type="text/plain", headers={"h": 1}, priority=3)
    reader = user(playbook, version)
    consumes(reader, "q")
    opened, stage, delivered = receives(reader)
    assert opened.content_size == len(body)
    assert stage.body == body
    assert stage.properties == FileProperties(
        filename="a.txt", content_type="text/plain", headers={"h": 1}, priority=3
    )
    assert delivered == FileDeliver(
        consumer_tag="c", delivery_tag=1, routing_key="q", identifier=opened.identifier
    )
    reader >> FileAck(delivery_tag=1)
    settled(reader)
    assert playbook.queue("q").message_count() == 0
    assert spools(playbook) == []


def test_the_octets_of_open_and_open_ok(playbook: PagedPlaybook) -> None:
    client = user(playbook)
    client >> b"\x01\x00\x01\x00\x00\x00\x10\x00\x46\x00\x28\x03one\x00\x00\x00\x00\x00\x00\x01\x00\xce"
    settled(client)
    output = client.output
    sent = bytes(output.buffer[output.start : output.fill])
    assert sent == b"\x01\x00\x01\x00\x00\x00\x0c\x00\x46\x00\x29\x00\x00\x00\x00\x00\x00\x00\x00\xce"
    client << FileOpenOk(staged_size=0)


def test_a_stage_that_breaks_goes_on_where_it_came_to(playbook: PagedPlaybook) -> None:
    client = user(playbook)
    declares(client, "q")
    assert opens(client, "one", len(LARGE)) == 0
    whole = client.frames(1, Carried(FileStage(), LARGE, FileProperties()))
    client >> whole[: 4 << 20]
    settled(client)
    playbook.restart()
    client = user(playbook)
    staged = opens(client, "one", len(LARGE))
    assert 3 << 20 <= staged < 4 << 20
    stages(client, LARGE[staged:], filename="f")
    publishes(client, "one", "q")
    consumes(client, "q")
    opened, stage, _ = receives(client)
    assert (stage.body, stage.properties.filename) == (LARGE, "f")
    playbook.restart()
    # The consumer has lost its connection, too, and has kept a part.
    client = user(playbook)
    consumes(client, "q")
    again, stage, delivered = receives(client, 3_000_000)
    assert again == opened
    assert stage.body == LARGE[3_000_000:]
    assert delivered.redelivered


def test_a_client_stages_block_by_block_and_hears_what_is_there(playbook: PagedPlaybook) -> None:
    client = user(playbook)
    declares(client, "q")
    for start in range(0, len(LARGE), BLOCK):
        assert opens(client, "one", len(LARGE)) == start
        stages(client, LARGE[start : start + BLOCK], filename="f")
    assert opens(client, "one", len(LARGE)) == len(LARGE)
    publishes(client, "one", "q")
    consumes(client, "q")
    _, stage, _ = receives(client)
    assert (stage.body, stage.properties.filename) == (LARGE, "f")


def test_what_open_ok_tells_is_there_after_a_crash(playbook: PagedPlaybook) -> None:
    client = user(playbook)
    assert opens(client, "one", len(LARGE)) == 0
    stages(client, LARGE[: BLOCK // 2])
    assert opens(client, "one", len(LARGE)) == BLOCK // 2
    playbook.restart()
    assert opens(user(playbook), "one", len(LARGE)) == BLOCK // 2


def test_a_file_of_which_blocks_are_missing_is_not_published(playbook: PagedPlaybook) -> None:
    client = user(playbook)
    declares(client, "q")
    assert opens(client, "one", 10) == 0
    stages(client, b"123456789")
    client >> FilePublish(identifier="one", routing_key="q")
    closes(client, 406, "9 of 10 octets")
    assert opens(client, "one", 10) == 9
    client >> Carried(FileStage(), b"01", FileProperties())
    closes(client, 406, "no more than 1 may follow, not 2")
    assert opens(client, "one", 10) == 9
    stages(client, b"0")
    publishes(client, "one", "q")
    consumes(client, "q")
    assert receives(client)[1].body == b"1234567890"


def test_no_block_follows_before_the_client_has_the_one_before(playbook: PagedPlaybook) -> None:
    client = user(playbook)
    declares(client, "q")
    sends(client, "one", "q", LARGE)
    sends(client, "two", "q", SMALL)
    consumes(client, "q")
    opened = settled(client).hears(FileOpen)
    assert takes_block(client).body == LARGE[:BLOCK]
    assert client.hears(FileOpen) == opened
    settled(client).hears_nothing()
    # A client that has kept half of the block gets what is missing, and nothing of the other file.
    assert takes_block(client, BLOCK // 2).body == LARGE[BLOCK // 2 : BLOCK // 2 + BLOCK]
    assert client.hears(FileOpen) == opened
    assert takes_block(client, len(LARGE) - 1).body == LARGE[-1:]
    assert client.hears(FileDeliver).identifier == opened.identifier
    assert receives(client)[1].body == SMALL


def test_an_offset_that_another_connection_was_told_later_holds_alone(playbook: PagedPlaybook) -> None:
    """What a lost connection had on its way would be staged, and then once more by the one that follows."""
    lost, follower = user(playbook), user(playbook)
    declares(follower, "q")
    assert opens(lost, "one", 3000) == 0
    assert opens(follower, "one", 3000) == 0
    lost >> Carried(FileStage(), b"a" * 1000, FileProperties())
    closes(lost, 406, "was opened once more")
    stages(follower, b"a" * 1000 + b"b" * 2000)
    publishes(follower, "one", "q")
    consumes(follower, "q")
    assert receives(follower)[1].body == b"a" * 1000 + b"b" * 2000


def test_no_block_follows_of_a_message_that_is_back_in_its_queue(playbook: PagedPlaybook) -> None:
    client, other = user(playbook), user(playbook)
    declares(client, "q")
    sends(client, "one", "q", LARGE)
    consumes(client, "q")
    settled(client).hears(FileOpen)
    takes_block(client)
    client.hears(FileOpen)
    consumes(other, "q")
    client >> methods.BasicRecover(requeue=True)
    settled(client)
    client >> FileOpenOk(staged_size=BLOCK)
    settled(client)
    assert not [each for _, each in client.heard() if isinstance(each, Carried)]
    client.inbox.clear()
    assert receives(other)[1].body == LARGE


def begins_block(client: Client) -> None:
    """The first frames of a block are on their way to the client."""
    declares(client, "q")
    sends(client, "one", "q", LARGE)
    consumes(client, "q")
    settled(client).hears(FileOpen)
    client >> FileOpenOk(staged_size=0)
    assert BLOCK > len(sent_part(client)) > 100_000
    assert client.output.streaming


def gets_it_whole(playbook: PagedPlaybook, client: Client) -> None:
    consumes(client, "q", no_ack=True)
    assert receives(client)[1].body == LARGE
    playbook.passes(1000)
    settled(client)
    assert spools(playbook) == []  # nobody has it open


def test_a_cancel_while_a_block_is_on_its_way(playbook: PagedPlaybook) -> None:
    client = user(playbook)
    begins_block(client)
    client >> FileCancel(consumer_tag="c")
    *block, opened, cancelled = sent_rest(client)
    assert block[-1][0] == amqp.FRAME_BODY
    assert len(block[-1]) > 8
    assert methods.decode_method(client.version, opened[7:-1]).NAME == "file.open"
    assert methods.decode_method(client.version, cancelled[7:-1]) == FileCancelOk(consumer_tag="c")
    client >> FileOpenOk(staged_size=BLOCK)
    settled(client).hears_nothing()
    gets_it_whole(playbook, client)


def test_a_reject_while_a_block_is_on_its_way_calls_it_off(playbook: PagedPlaybook) -> None:
    client = user(playbook)
    begins_block(client)
    client >> FileReject(delivery_tag=1, requeue=False)
    empty, opened = sent_rest(client)
    assert empty == frame(amqp.FRAME_BODY, 1, b"")
    assert methods.decode_method(client.version, opened[7:-1]).NAME == "file.open"
    client >> FileOpenOk(staged_size=BLOCK)
    settled(client).hears_nothing()
    assert playbook.queue("q").message_count() == 0
    playbook.passes(1000)
    settled(client)
    assert spools(playbook) == []


def test_the_end_of_a_channel_while_a_block_is_on_its_way(playbook: PagedPlaybook) -> None:
    client = user(playbook)
    begins_block(client)
    client >> ChannelClose()
    client.hears(methods.ChannelCloseOk)
    gets_it_whole(playbook, user(playbook))


def test_a_file_that_was_published_before_a_break_is_not_published_again(playbook: PagedPlaybook) -> None:
    client = user(playbook)
    declares(client, "q")
    sends(client, "one", "q", SMALL)
    playbook.restart()
    client = user(playbook)
    assert opens(client, "one", len(SMALL)) == len(SMALL)
    stages(client, b"")
    publishes(client, "one", "q")
    assert playbook.queue("q").message_count() == 1


def test_basic_consumers_get_files_as_basic_messages(playbook: PagedPlaybook) -> None:
    client = user(playbook)
    declares(client, "q")
    sends(client, "one", "q", LARGE, filename="a.txt", reply_to="r")
    reader = playbook.client()
    reader >> BasicGet(queue="q", no_ack=True)
    heard = settled(reader).next(1)
    assert isinstance(heard, Carried)
    assert heard.body == LARGE
    assert heard.properties.headers == {"x-filename": "a.txt"}
    assert (heard.properties.delivery_mode, heard.properties.reply_to) == (2, "r")


def test_file_consumers_get_nothing_else(playbook: PagedPlaybook) -> None:
    client = user(playbook)
    declares(client, "q")
    client.publishes("q", b"basic", delivery_mode=2)
    consumes(client, "q")
    settled(client).hears_nothing()
    client.consumes("q", "basic", no_ack=True)
    heard = settled(client).next(1)
    assert isinstance(heard, Carried)
    assert isinstance(heard.method, BasicDeliver)


def test_one_file_after_the_other_within_the_prefetch(playbook: PagedPlaybook) -> None:
    client = user(playbook)
    declares(client, "q")
    for name in ("one", "two", "three"):
        sends(client, name, "q", name.encode())
    client >> FileQos(prefetch_count=2)
    client << FileQosOk()
    consumes(client, "q")
    assert receives(client)[1].body == b"one"
    assert receives(client)[1].body == b"two"
    settled(client).hears_nothing()
    client >> FileAck(delivery_tag=2, multiple=True)
    assert receives(client)[1].body == b"three"
    client >> FileReject(delivery_tag=3, requeue=True)
    _, stage, delivered = receives(client)
    assert (stage.body, delivered.redelivered) == (b"three", True)
    client >> FileReject(delivery_tag=4, requeue=False)
    settled(client)
    assert playbook.queue("q").message_count() == 0


def test_a_cancel_before_the_answer_gives_the_message_back(playbook: PagedPlaybook) -> None:
    client = user(playbook)
    declares(client, "q")
    sends(client, "one", "q", LARGE)
    consumes(client, "q")
    settled(client).hears(FileOpen)
    client >> FileCancel(consumer_tag="c")
    client << FileCancelOk(consumer_tag="c")
    client >> FileOpenOk(staged_size=0)
    settled(client).hears_nothing()
    assert playbook.queue("q").message_count() == 1
    consumes(client, "q", no_ack=True)
    assert receives(client)[1].body == LARGE
    settled(client)
    assert spools(playbook) == []


def test_an_end_before_the_answer_leaves_no_file_open(playbook: PagedPlaybook) -> None:
    client = user(playbook)
    declares(client, "q")
    sends(client, "one", "q", LARGE)
    consumes(client, "q", no_ack=True)
    settled(client).hears(FileOpen)
    client >> ChannelClose()
    client.hears(methods.ChannelCloseOk)
    settled(client)
    playbook.passes(1000)
    settled(client)
    assert spools(playbook) == []


def test_what_no_queue_gets_comes_back_if_it_is_mandatory(playbook: PagedPlaybook) -> None:
    client = user(playbook)
    assert opens(client, "one", len(LARGE)) == 0
    stages(client, LARGE, filename="f")
    publishes(client, "one", "nowhere", mandatory=True)
    heard = client.next(1)
    assert isinstance(heard, Carried)
    assert heard.method == FileReturn(reply_code=312, reply_text="NO_ROUTE", routing_key="nowhere")
    assert (heard.body, heard.properties.filename) == (LARGE, "f")
    # It is staged yet: another exchange may get it.
    assert opens(client, "one", len(LARGE)) == len(LARGE)
    stages(client, b"")
    publishes(client, "one", "nowhere")
    assert opens(client, "one", len(LARGE)) == len(LARGE)
    assert staging(playbook).need("/", "guest", "one").is_published


def closes(client: Client, code: int, text: str) -> None:
    """The channel ends; another one takes its place."""
    closed = settled(client).hears(ChannelClose)
    assert (closed.reply_code, text in closed.reply_text) == (code, True), closed
    client >> methods.ChannelCloseOk()
    client >> ChannelOpen()
    client.hears(ChannelOpenOk)


def test_what_does_not_fit_closes_the_channel(playbook: PagedPlaybook) -> None:
    client = user(playbook)
    declares(client, "q")
    assert opens(client, "one", 10) == 0
    client >> Carried(FileStage(), b"12345678901", FileProperties())
    closes(client, 406, "no more than 10 may follow, not 11")
    assert opens(client, "one", 10) == 0
    stages(client, b"1234567890")
    client >> FileOpen(identifier="one", content_size=11)
    closes(client, 406, "has 10 octets, not 11")
    client >> FilePublish(identifier="one", routing_key="q")
    closes(client, 404, "was not staged on this channel")
    client >> FilePublish(identifier="two", routing_key="q")
    closes(client, 404, "was not staged on this channel")
    client >> FileOpen(identifier="", content_size=1)
    closes(client, 406, "1 to 255 octets")
    staging(playbook).limits = Limits(content_bytes_max=100)
    client >> FileOpen(identifier="two", content_size=101)
    closes(client, 506, "content_bytes_max")
    sends_to_a_full_queue(client)


def sends_to_a_full_queue(client: Client) -> None:
    declares(client, "full", **{"x-max-length": 0, "x-overflow": "reject-publish"})
    assert opens(client, "three", 1) == 0
    stages(client, b"3")
    client >> FilePublish(identifier="three", routing_key="full")
    closes(client, 506, "stays staged")


def test_a_client_that_claims_more_than_there_is(playbook: PagedPlaybook) -> None:
    client = user(playbook)
    declares(client, "q")
    sends(client, "one", "q", SMALL)
    consumes(client, "q")
    settled(client).hears(FileOpen)
    client >> FileOpenOk(staged_size=len(SMALL) + 1)
    closes(client, 406, "12 octets: 13 cannot be staged")
    settled(client)
    assert playbook.queue("q").message_count() == 1


@pytest.mark.parametrize(
    "said",
    [FileOpenOk(staged_size=0), Carried(FileStage(), b"x", FileProperties())],
    ids=["open-ok", "stage"],
)
def test_what_comes_out_of_turn_closes_the_connection(playbook: PagedPlaybook, said: Any) -> None:
    client = user(playbook)
    client >> said
    assert settled(client).hears(ConnectionClose, 0).reply_code == 503


def test_a_header_that_is_cut_short_closes_the_connection(playbook: PagedPlaybook) -> None:
    client = user(playbook)
    assert opens(client, "one", 1) == 0
    stage = methods.encode_method(client.version, FileStage())
    header = (70).to_bytes(2, "big") + bytes(2) + (1).to_bytes(8, "big") + b"\x80\x00\x05ab"
    client >> frame(amqp.FRAME_METHOD, 1, stage) + frame(amqp.FRAME_HEADER, 1, header) + frame(
        amqp.FRAME_BODY, 1, b"x"
    )
    assert settled(client).hears(ConnectionClose, 0).reply_code in (501, 502)


def test_in_a_transaction_no_file_is_published(playbook: PagedPlaybook) -> None:
    client = user(playbook)
    client >> methods.TxSelect()
    client.hears(methods.TxSelectOk)
    assert opens(client, "one", 1) == 0
    stages(client, b"x")
    client >> FilePublish(identifier="one", routing_key="q")
    assert settled(client).hears(ConnectionClose, 0).reply_code == 540


def test_a_disk_that_fails_keeps_what_came_before(
    playbook: PagedPlaybook, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = user(playbook)
    disk = staging(playbook).files.journal.disk
    whole = disk.write

    def broken(handle: int, at: int, octets: Any) -> None:
        if at >= 2 << 20 and str(disk.path_of(handle)).endswith(".spool"):
            raise OSError(28, "No space left on device")
        whole(handle, at, octets)

    assert opens(client, "one", len(LARGE)) == 0
    with monkeypatch.context() as patch:
        patch.setattr(disk, "write", broken)
        client >> Carried(FileStage(), LARGE, FileProperties())
        closes(client, 506, "No space left")
    assert opens(client, "one", len(LARGE)) == 2 << 20


def test_a_connection_that_lingers_does_not_spoil_what_another_one_sends(playbook: PagedPlaybook) -> None:
    lost, client = user(playbook), user(playbook)
    declares(client, "q")
    assert opens(lost, "one", len(LARGE)) == 0
    whole = lost.frames(1, Carried(FileStage(), LARGE, FileProperties()))
    lost >> whole[: 4 << 20]
    settled(lost)
    staged = opens(client, "one", len(LARGE))
    lost >> whole[4 << 20 :]
    closes(lost, 406, "was opened once more")
    stages(client, LARGE[staged:])
    publishes(client, "one", "q")
    consumes(client, "q")
    assert receives(client)[1].body == LARGE


def test_no_part_follows_one_that_the_disk_did_not_take(
    playbook: PagedPlaybook, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = user(playbook)
    declares(client, "q")
    disk = staging(playbook).files.journal.disk
    whole = disk.write

    def broken(handle: int, at: int, octets: Any) -> None:
        if str(disk.path_of(handle)).endswith(".spool"):
            raise OSError(28, "No space left on device")
        whole(handle, at, octets)

    body = b"".join(bytes([number]) * (1 << 20) for number in range(5))
    frames = client.frames(1, Carried(FileStage(), body, FileProperties()))
    assert opens(client, "one", len(body)) == 0
    with monkeypatch.context() as patch:
        patch.setattr(disk, "write", broken)
        client >> frames[: 3 << 19]
        settled(client)
    client >> frames[3 << 19 :]
    closes(client, 506, "No space left")
    assert opens(client, "one", len(body)) == 0
    stages(client, body)
    publishes(client, "one", "q")
    consumes(client, "q")
    assert receives(client)[1].body == body


def test_a_publish_waits_for_the_answer_of_a_back_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content that was staged is published with its properties when the answer comes."""
    monkeypatch.setattr(authentication, "backend", lambda name, auth, clock: Back())
    playbook = PagedPlaybook(tmp_path / "data", config=parse(SETTINGS))
    asked: list[Question] = []
    playbook.broker.authentication.answers.asking = asked.append
    client = user(playbook)
    declares(client, "q")
    bob = playbook.stranger(amqp.VERSION_0_9)
    bob.greet()
    bob.log_in("bob", "bob")
    bob.hears(ConnectionTune)
    bob >> ConnectionTuneOk(channel_max=0, frame_max=0, heartbeat=0) >> ConnectionOpen(virtual_host="/")
    ask_at_once(asked.pop())
    bob << ConnectionOpenOk()
    bob >> ChannelOpen()
    bob.hears(ChannelOpenOk)
    assert opens(bob, "one", len(SMALL)) == 0
    stages(bob, SMALL, filename="a.txt")
    publishes(bob, "one", "q")
    assert playbook.queue("q").message_count() == 0
    assert len(asked) == 1
    ask_at_once(asked.pop())
    settled(bob).hears_nothing()
    consumes(client, "q")
    _, stage, _ = receives(client)
    assert (stage.body, stage.properties) == (SMALL, FileProperties(filename="a.txt"))
    playbook.end()
    playbook.close()
