"""Playbook: handles of AMQP/Fast, and messages by way of them, where the document obliges a server."""

from __future__ import annotations

import pytest
from fast.conversation import HEAD, FastClient, framed, octets, table
from playbook.dialogue import Carried, Client, Playbook
from playbook.hourglass import TimedPlaybook

from flintmq.protocol.fast.connection import HANDLES_MAX
from flintmq.wire import methods
from flintmq.wire.fields import encode_shortstr


@pytest.fixture
def client(playbook: Playbook) -> Client:
    """One who speaks 0-9-1."""
    client = playbook.client()
    client.declares("q")
    return client


def message(body: str, head: str = HEAD) -> bytes:
    block = octets(body)
    return len(block).to_bytes(4, "big") + octets(head) + block


def connected(playbook: Playbook) -> FastClient:
    fast = FastClient(playbook)
    fast.open()
    return fast


def bodies(heard: bytes, *, size: int) -> list[bytes]:
    """The bodies of NOTIFY commands that carry `size` octets each and come from the queue q."""
    head = len(framed("29 0001 00000001 00000010 08 01 'q'")) + len(message(""))
    whole = head + size
    assert len(heard) % whole == 0, heard.hex(" ")
    return [heard[at + head : at + whole] for at in range(0, len(heard), whole)]


# Opening and closing


def test_an_open_handle_is_closed_by_a_second_open(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> "1e 0001 0001 0001 0005 07 01 'q' 00 00 0000"
    assert fast.hears()[2:7] == octets("31 0001 01f8")
    fast >> "31 0001 00c8 00"
    fast >> "1e 0001 0001 0001 0005 07 01 'q' 00 00 0000"
    fast << "30 0001 0005 00c8 02 'Ok'"


def test_a_close_is_answered_and_ends_what_the_handle_consumed(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> "20 0001 0000 0002 00 00 0000"
    fast >> "31 0001 00c8 03 'Bye'"
    fast << "31 0001 00c8 02 'Ok'"
    client.publishes("q", b"1")
    fast.hears_nothing()
    assert client.gets_all("q") == [b"1"]
    fast >> "22 0001 0000 01"
    assert fast.hears()[2:5] == octets("13 01f8")


@pytest.mark.parametrize("said", ["1d 0001 00c8 00", "13 00c8 00"], ids=["channel", "connection"])
def test_handles_go_with_their_channel_and_connection(fast: FastClient, client: Client, said: str) -> None:
    fast.opens_handle("q")
    fast >> "20 0001 0000 0002 00 00 0000"
    client.publishes("q", b"1")
    fast.hears()
    fast >> said
    fast.hears()
    client.publishes("q", b"2")
    fast.hears_nothing()
    assert client.gets_all("q") == [b"1", b"2"]


def test_a_handle_belongs_to_the_channel_of_its_open(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q", channel=5, handle=20)
    fast >> "14 0006 0000 00 0000 00"
    fast >> "1d 0006 00c8 00"
    fast << "1d 0006 00c8 02 'Ok'"
    fast >> framed("1f 0014 0001 00000010 00 00") + message("'1'")
    fast << "30 0014 0001 00c8 02 'Ok'"
    assert client.gets_all("q") == [b"1"]


def test_there_are_no_more_handles_than_were_told(fast: FastClient) -> None:
    fast >> "14 0001 0000 00 0000 00"
    for number in range(1, HANDLES_MAX + 1):
        fast >> f"1e 0001 {number:04x} 0001 0000 07 00 00 00 0000"
    fast.hears_nothing()
    fast >> f"1e 0001 {HANDLES_MAX + 1:04x} 0001 0000 07 00 00 00 0000"
    assert fast.hears()[2:5] == octets("13 01fa")


@pytest.mark.parametrize("said", ["1e 0001 0001 0001 0000 07 01 ff 00 00 0000", "0d 0000 01 ff 00 0000"])
def test_names_that_are_not_utf_8_close_the_connection(fast: FastClient, said: str) -> None:
    fast >> "14 0001 0000 00 0000 00"
    fast >> said
    assert fast.hears()[2:5] == octets("13 01f6")


# Messages and their fragments


def test_fragments_of_two_channels_are_mixed(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast.opens_handle("q", channel=2, handle=2)
    for handle in (1, 2):
        fast >> framed(f"1f {handle:04x} 0000 00000010 01 00") + message("'ab'")[:16]
    for handle in (2, 1):
        fast >> framed(f"1f {handle:04x} 0000 00000001 00 00") + b"%d" % handle
    fast.hears_nothing()
    assert client.gets_all("q") == [b"a2", b"a1"]


def test_two_messages_are_not_mixed_on_a_channel(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> "1e 0001 0002 0001 0000 07 01 'q' 00 00 0000"
    fast >> framed("1f 0001 0000 00000010 01 00") + message("'ab'")[:16]
    fast >> framed("1f 0002 0000 00000010 00 00") + message("'1'")
    assert fast.hears()[2:5] == octets("13 01f9")
    assert client.gets_all("q") == []


def test_the_name_of_a_partial_send_is_ignored(fast: FastClient, client: Client) -> None:
    fast.opens_handle("")
    fast >> framed("1f 0001 0000 00000010 01 04 'none'") + message("'ab'")[:16]
    fast >> framed("1f 0001 0000 00000001 00 01 'q'") + b"b"
    fast.hears_nothing()
    assert client.gets_all("q") == [b"ab"]


def test_a_message_out_of_band_is_refused(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> "1f 0001 0000 00000000 02 00"
    assert fast.hears()[2:7] == octets("31 0001 021c")


def test_a_message_that_dies_in_its_queue_closes_no_handle(fast: FastClient, client: Client) -> None:
    """AMQP/Fast has nothing that tells of it."""
    client.declares("short", arguments={"x-max-length": 1, "x-return-undelivered": True})
    fast.opens_handle("short")
    head = "00 00 00000000 00 00 00 " + table("14 'x-return-undelivered' 'I' 00000001")
    for tag, body in ((5, b"1"), (6, b"2")):
        fast.sends(body, confirm_tag=tag, head=head)
        fast << f"30 0001 {tag:04x} 00c8 02 'Ok'"
    assert client.gets_all("short") == [b"2"]


def test_an_empty_body(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> "20 0001 0000 0001 00 00 0000"
    fast >> framed("1f 0001 0000 0000000f 00 00") + message("")
    fast << framed("29 0001 00000001 0000000f 08 01 'q'") + message("")


def test_types_of_the_handle_are_those_of_messages_without(fast: FastClient, client: Client) -> None:
    fast >> "14 0001 0000 00 0000 00"
    fast >> "1e 0001 0001 0001 0000 07 01 'q' 08 'text/csv' 04 'gzip' 0000"
    fast >> framed("1f 0001 0000 00000010 00 00") + message("'1'")
    own = "00 00 00000000 09 'text/html' 03 'zip' 00 0000"
    fast >> framed("1f 0001 0000 0000001c 00 00") + message("'2'", own)
    found = []
    for _ in range(2):
        client >> methods.BasicGet(queue="q", no_ack=True)
        each = client.next(1)
        assert isinstance(each, Carried)
        found.append((each.properties.content_type, each.properties.content_encoding))
    assert found == [("text/csv", "gzip"), ("text/html", "zip")]


def test_without_any_type_none_is_made_up(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> framed("1f 0001 0000 00000010 00 00") + message("'1'")
    client >> methods.BasicGet(queue="q", no_ack=True)
    each = client.next(1)
    assert isinstance(each, Carried)
    assert (each.properties.content_type, each.properties.content_encoding) == (None, None)


def test_a_message_expires_at_its_time_and_one_without_does_not() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q")
    fast = connected(playbook)
    fast.opens_handle("q")
    at = playbook.broker.timetable.now_ms() // 1000 + 5
    fast >> framed("1f 0001 0000 00000010 00 00") + message("'1'", f"00 00 {at:08x} 00 00 00 0000")
    fast >> framed("1f 0001 0000 00000010 00 00") + message("'2'")
    playbook.passes(3_000)
    assert playbook.depth("q") == 2
    playbook.passes(3_000)
    assert client.gets_all("q") == [b"2"]


# Temporary destinations


def test_others_send_to_a_temporary_queue_and_do_not_consume_from_it(playbook: Playbook) -> None:
    owner, other = connected(playbook), connected(playbook)
    owner >> "14 0001 0000 00 0000 00"
    owner >> "1e 0001 0001 0001 0000 0f 04 'mine' 00 00 0000"
    owner << "28 0001 04 'mine'"
    owner >> "20 0001 0000 0009 00 00 0000"
    other.opens_handle("mine")
    other >> framed("1f 0001 0000 00000010 00 00") + message("'1'")
    owner << framed("29 0001 00000001 00000010 08 04 'mine'") + message("'1'")
    other >> "20 0001 0000 0009 00 00 0000"
    assert other.hears()[2:7] == octets("31 0001 0195")


def test_the_server_makes_names_for_temporary_queues_that_differ(fast: FastClient) -> None:
    fast >> "14 0001 0000 00 0000 00"
    names = []
    for handle in (1, 2):
        fast >> f"1e 0001 {handle:04x} 0001 0000 0f 00 00 00 0000"
        heard = fast.hears()
        assert heard[2:5] == octets(f"28 {handle:04x}")
        names.append(heard[6 : 6 + heard[5]])
    assert all(names)
    assert names[0] != names[1]


def test_a_temporary_topic_has_a_name_of_its_own(playbook: Playbook) -> None:
    owner, other = connected(playbook), connected(playbook)
    owner >> "14 0001 0000 00 0000 00"
    owner >> "1e 0001 0001 0002 0000 0f 00 00 00 0000"
    heard = owner.hears()
    name = heard[6 : 6 + heard[5]].decode()
    owner >> "20 0001 0000 0009 00 00 0000"
    other.opens_handle(name, service=2)
    other >> "20 0001 0000 0009 00 00 0000"
    other >> framed("1f 0001 0000 00000010 00 00") + message("'1'")
    for each in (owner, other):
        each << framed(f"29 0001 00000001 00000010 08 {len(name):02x} '{name}'") + message("'1'")


# Consuming


def test_a_prefetch_is_at_least_1(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> "20 0001 0000 0000 00 00 0000"
    assert fast.hears()[2:7] == octets("31 0001 0212")


def test_a_prefetch_is_for_all_queues_of_a_name_together(fast: FastClient, client: Client) -> None:
    names = ("a.1", "a.2", "a.3")
    for name in names:
        client.declares(name)
    fast.opens_handle("a.")
    fast >> "20 0001 0000 0002 00 00 0000"
    for name in names:
        client.publishes(name, b"1", b"2")
    heard, numbers = [], 0
    while found := fast.hears():
        notified = found.count(octets("29 0001 0000"))
        assert notified <= 2, "no more than two wait for an ack"
        numbers += notified
        heard.append(found)
        fast >> f"15 0001 0000 {numbers:08x}"
    whole = b"".join(heard)
    assert numbers == 6
    assert [whole.count(encode_shortstr(name)) for name in names] == [2, 2, 2]


def test_a_handle_that_lost_its_queue_is_closed_before_its_next_command(
    playbook: Playbook, fast: FastClient, client: Client
) -> None:
    """The consumer of a command that the handle was closed in the middle of stayed for ever."""
    for name in ("a1", "a2"):
        client.declares(name)
    fast.opens_handle("a")
    fast >> "20 0001 0000 0001 00 01 '1' 0000"
    host = playbook.broker.virtual_hosts["/"]
    host.delete_queue(host.queues["a1"])  # by another connection, which was read from just before
    said = octets("000d 20 0001 0000 0001 00 01 '2' 0000 ce")
    fast.session.connection.receive(bytearray(said), len(said))
    assert not host.queues["a2"].consumers
    assert fast.hears()[2:7] == octets("31 0001 0194")


def consumed_one_by_one(fast: FastClient, client: Client, *, transacted: bool) -> None:
    """Two queues with a message each, of which one at a time comes to the handle."""
    for name in ("a.1", "a.2"):
        client.declares(name)
    fast >> f"14 0001 0000 {transacted:02x} 0000 00"
    fast >> "1e 0001 0001 0001 0000 07 02 'a.' 00 00 0000"
    fast >> "20 0001 0000 0001 00 00 0000"
    for name in ("a.1", "a.2"):
        client.publishes(name, b"1")


@pytest.mark.parametrize(
    ("said", "transacted"),
    [("15 0001 0000 {:08x}", False), ("16 0001 0000 0000", True)],
    ids=["ack", "commit"],
)
def test_what_is_done_with_makes_room_for_another_queue(
    fast: FastClient, client: Client, said: str, transacted: bool
) -> None:
    consumed_one_by_one(fast, client, transacted=transacted)
    for number, name in ((1, "a.1"), (2, "a.2")):
        fast << framed(f"29 0001 {number:08x} 00000010 08 03 '{name}'") + message("'1'")
        fast.hears_nothing()
        fast >> said.format(number)
    fast.hears_nothing()
    assert client.gets_all("a.1") == client.gets_all("a.2") == []


@pytest.mark.parametrize(
    ("said", "transacted"),
    [("23 0001 0000 {:08x}", False), ("17 0001 0000 0000", True)],
    ids=["unget", "rollback"],
)
def test_what_comes_back_makes_room_for_one(
    fast: FastClient, client: Client, said: str, transacted: bool
) -> None:
    consumed_one_by_one(fast, client, transacted=transacted)
    for number in range(1, 6):
        heard = fast.hears()
        assert heard.count(octets(f"29 0001 {number:08x}")) == heard.count(octets("29 0001 0000")) == 1
        fast >> said.format(number)


def test_each_message_of_a_queue_goes_to_one_reader(playbook: Playbook, client: Client) -> None:
    readers = [connected(playbook), connected(playbook)]
    for reader in readers:
        reader.opens_handle("q")
        reader >> "20 0001 0000 0009 00 00 0000"
    client.publishes("q", b"1", b"2", b"3", b"4")
    found = [bodies(reader.hears(), size=1) for reader in readers]
    assert all(found)
    assert sorted(found[0] + found[1]) == [b"1", b"2", b"3", b"4"]


def test_each_message_of_a_topic_goes_to_all_who_want_it(playbook: Playbook) -> None:
    readers = [connected(playbook), connected(playbook)]
    for reader in readers:
        reader.opens_handle("news", service=2)
        reader >> "20 0001 0000 0009 00 00 0000"
    sender = connected(playbook)
    sender.opens_handle("news", service=2)
    sender >> framed("1f 0001 0000 00000010 00 00") + message("'1'")
    for reader in readers:
        reader << framed("29 0001 00000001 00000010 08 04 'news'") + message("'1'")


@pytest.mark.parametrize("said", ["31 0001 00c8 00", "1d 0001 00c8 00", "13 00c8 00"])
def test_a_subscription_lasts_as_long_as_its_handle(playbook: Playbook, said: str) -> None:
    fast = connected(playbook)
    queues = playbook.broker.virtual_hosts["/"].queues
    fast.opens_handle("news", service=2)
    fast >> "20 0001 0000 0009 00 00 0000"
    fast.hears_nothing()
    assert len(queues) == 1
    fast >> said
    fast.hears()
    playbook.finish_pass()
    assert not queues


def test_no_local_is_for_topics_alone(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> "20 0001 0000 0009 01 00 0000"  # no-local, of a queue
    fast >> framed("1f 0001 0000 00000010 00 00") + message("'1'")
    fast << framed("29 0001 00000001 00000010 08 01 'q'") + message("'1'")
    fast.opens_handle("news", service=2, channel=2, handle=2)
    fast >> "20 0002 0000 0009 01 00 0000"
    fast >> framed("1f 0002 0000 00000010 00 00") + message("'2'")
    fast.hears_nothing()
    client.publishes("news", b"3", exchange="amq.topic")
    fast << framed("29 0002 00000001 00000010 08 04 'news'") + message("'3'")


def test_of_a_paused_handle_others_get_the_messages(playbook: Playbook, client: Client) -> None:
    paused, other = connected(playbook), connected(playbook)
    for each in (paused, other):
        each.opens_handle("q")
        each >> "20 0001 0000 0009 00 00 0000"
    paused >> "22 0001 0000 01"
    client.publishes("q", b"1", b"2")
    assert bodies(other.hears(), size=1) == [b"1", b"2"]
    paused.hears_nothing()


def test_flow_is_for_all_destinations_of_a_handle(fast: FastClient, client: Client) -> None:
    for name in ("a.1", "a.2"):
        client.declares(name)
    fast.opens_handle("a.")
    fast >> "20 0001 0000 0009 00 00 0000"
    fast >> "22 0001 0000 01"
    client.publishes("a.1", b"1")
    client.publishes("a.2", b"2")
    fast.hears_nothing()
    fast >> "22 0001 0000 00"
    heard = fast.hears()
    assert b"\x03a.1" in heard
    assert b"\x03a.2" in heard


def test_flow_of_a_topic_holds_messages_back(fast: FastClient, client: Client) -> None:
    fast.opens_handle("news", service=2)
    fast >> "20 0001 0000 0009 00 00 0000"
    fast >> "22 0001 0000 01"
    client.publishes("news", b"1", exchange="amq.topic")
    fast.hears_nothing()
    fast >> "22 0001 0000 00"
    fast << framed("29 0001 00000001 00000010 08 04 'news'") + message("'1'")


def test_what_is_pushed_back_goes_to_another_and_says_so(playbook: Playbook, client: Client) -> None:
    first, second = connected(playbook), connected(playbook)
    first.opens_handle("q")
    first >> "20 0001 0000 0001 00 00 0000"
    client.publishes("q", b"1")
    first.hears()
    second.opens_handle("q")
    second >> "20 0001 0000 0001 00 00 0000"
    first >> "22 0001 0000 01"
    first >> "23 0001 0000 00000001"
    second << framed("29 0001 00000001 00000010 18 01 'q'") + message("'1'")


def test_messages_of_topics_are_not_pushed_back(fast: FastClient, client: Client) -> None:
    fast.opens_handle("news", service=2)
    fast >> "20 0001 0000 0009 00 00 0000"
    client.publishes("news", b"1", exchange="amq.topic")
    fast.hears()
    fast >> "23 0001 0000 00000001"
    assert fast.hears()[2:7] == octets("31 0001 0212")


def test_a_handle_for_consumers_does_not_browse(fast: FastClient, client: Client) -> None:
    fast >> "14 0001 0000 00 0000 00"
    fast >> "1e 0001 0001 0001 0000 03 01 'q' 00 00 0000"
    fast >> "24 0001 00000000 00 0000 00"
    assert fast.hears()[2:7] == octets("31 0001 0212")
