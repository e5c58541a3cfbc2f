"""Playbook: channels and handles of AMQP/Fast, octet by octet."""

from __future__ import annotations

import pytest
from fast.conversation import HEAD, FastClient, framed, octets, table
from playbook.dialogue import Client, Playbook

from flintmq.config import Config, Limits, PermissionSettings, UserSettings
from flintmq.wire import methods


@pytest.fixture
def client(playbook: Playbook) -> Client:
    """One who speaks 0-9-1."""
    client = playbook.client()
    client.declares("q")
    return client


def message(body: str, head: str = HEAD) -> bytes:
    block = octets(body)
    return len(block).to_bytes(4, "big") + octets(head) + block


def test_a_channel_is_opened_and_closed(fast: FastClient) -> None:
    fast >> "14 0005 0001 00 0000 00"
    fast << "1c 0005 0001 00c8 02 'Ok'"
    fast >> "1d 0005 00c8 00"
    fast << "1d 0005 00c8 02 'Ok'"
    fast >> "14 0005 0000 00 0000 00"
    fast.hears_nothing()


def test_a_channel_that_is_open_is_closed_by_a_second_open(fast: FastClient) -> None:
    fast >> "14 0005 0000 00 0000 00"
    fast >> "14 0005 0000 00 0000 00"
    heard = fast.hears()
    assert heard[2:7] == octets("1d 0005 01f8")
    fast >> "14 0005 0001 00 0000 00"
    assert fast.hears() == heard  # said again, once
    fast >> "14 0005 0001 00 0000 00"
    fast.hears_nothing()
    fast >> "1d 0005 00c8 00"
    fast >> "1d 0005 00c8 00"  # the answer to the repetition
    fast >> "14 0005 0001 00 0000 00"
    fast << "1c 0005 0001 00c8 02 'Ok'"


@pytest.mark.parametrize("number", ["0000", "0009"])
def test_a_channel_that_was_never_opened_ends_the_connection(fast: FastClient, number: str) -> None:
    fast >> f"16 {number} 0000 0000"
    assert fast.hears()[2:5] == octets("13 01f8")


def test_out_of_band_is_not_implemented(fast: FastClient) -> None:
    fast >> "14 0001 0000 00 0000 03 'shm'"
    assert fast.hears()[2:7] == octets("1d 0001 021c")


def test_a_message_is_sent_and_another_client_gets_it(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> framed("1f 0001 0000 00000013 00 00") + message("'four'")
    assert client.gets_all("q") == [b"four"]
    fast.hears_nothing()


def test_names_are_put_together(fast: FastClient, client: Client) -> None:
    client.declares("alt.rec.pets")
    fast.opens_handle("alt.rec.")
    fast >> framed("1f 0001 0000 00000013 00 04 'pets'") + message("'four'")
    assert client.gets_all("alt.rec.pets") == [b"four"]
    fast >> framed("1f 0001 0000 00000013 00 03 'alt'") + message("'four'")
    assert fast.hears()[2:7] == octets("31 0001 0194")
    # What is on its way to a handle that is closed is discarded, until the peer has answered.
    fast >> framed("1f 0001 0009 00000013 00 04 'pets'") + message("'five'")
    fast >> "31 0001 00c8 00"
    fast.hears_nothing()
    assert client.gets_all("alt.rec.pets") == []
    fast >> framed("1f 0001 0000 00000013 00 04 'pets'") + message("'four'")
    assert fast.hears()[2:5] == octets("13 01f8")


def test_a_name_that_is_the_beginning_of_several_reaches_all_of_them(
    fast: FastClient, client: Client
) -> None:
    for name in ("alt.pets.cats", "alt.pets.dogs", "other"):
        client.declares(name)
    fast.opens_handle("alt.")
    fast >> framed("1f 0001 0000 00000013 00 00") + message("'four'")
    whole = message("'fragment'")
    fast >> framed("1f 0001 0000 00000013 01 00") + whole[:19]
    fast >> framed("1f 0001 0000 00000004 00 00") + whole[19:]
    fast.opens_handle("", handle=2, channel=2)
    fast >> framed("1f 0002 0000 00000012 00 00") + message("'all'")
    fast.hears_nothing()
    for name in ("alt.pets.cats", "alt.pets.dogs"):
        assert client.gets_all(name) == [b"four", b"fragment", b"all"]
    assert client.gets_all("other") == client.gets_all("q") == [b"all"]
    fast.opens_handle("alt.pets.", handle=3, channel=3)
    fast >> "20 0003 0000 0009 00 00 0000"
    client.publishes("alt.pets.dogs", b"woof")
    fast << framed("29 0003 00000001 00000013 08 0d 'alt.pets.dogs'") + message("'woof'")
    fast.opens_handle("nothing.", handle=4, channel=4)
    fast >> framed("1f 0004 0000 00000010 00 00") + message("'1'")
    assert fast.hears()[2:7] == octets("31 0004 0194")


def test_a_send_is_confirmed_when_it_asks_for_it(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    said = framed("1f 0001 0101 00000010 00 00") + message("'1'")
    said += framed("1f 0001 0000 00000010 00 00") + message("'2'")
    said += framed("1f 0001 0102 00000010 00 00") + message("'3'")
    fast >> said
    fast << "30 0001 0101 00c8 02 'Ok'"
    fast << "30 0001 0102 00c8 02 'Ok'"
    assert client.gets_all("q") == [b"1", b"2", b"3"]


def test_a_message_comes_in_fragments_with_its_name_in_the_last(fast: FastClient, client: Client) -> None:
    fast.opens_handle("")
    whole = message("'abcdefgh'")
    fast >> framed("1f 0001 0007 00000013 01 00") + whole[:19]
    fast >> framed("1f 0001 0007 00000002 01 00") + whole[19:21]
    fast.hears_nothing()
    fast >> framed("1f 0001 0007 00000002 00 01 'q'") + whole[21:]
    fast << "30 0001 0007 00c8 02 'Ok'"
    assert client.gets_all("q") == [b"abcdefgh"]


@pytest.mark.parametrize(
    ("flags", "size"), [("00", "0003"), ("01", "0002"), ("01", "0003"), ("00", "0001"), ("00", "0000")]
)
def test_fragments_have_what_the_header_announced(
    fast: FastClient, client: Client, flags: str, size: str
) -> None:
    fast.opens_handle("q")
    fast >> framed("1f 0001 0000 00000015 01 00") + message("'abcdefgh'")[:21]
    fast >> framed(f"1f 0001 0000 0000{size} {flags} 00") + bytes(int(size, 16))
    assert fast.hears()[2:7] == octets("31 0001 021e")
    assert client.gets_all("q") == []


def test_a_body_of_another_size_than_announced_is_refused(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> framed("1f 0001 0000 00000011 00 00") + message("'abc'")[:17]
    assert fast.hears()[2:7] == octets("31 0001 021e")


def test_a_header_that_is_cut_short_ends_the_connection(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> framed("1f 0001 0000 00000008 00 00") + bytes(8)
    assert fast.hears()[2:5] == octets("13 01f6")


def test_a_handle_for_consumers_does_not_send(fast: FastClient, client: Client) -> None:
    fast >> "14 0001 0000 00 0000 00"
    fast >> "1e 0001 0001 0001 0000 02 01 'q' 00 00 0000"
    fast >> framed("1f 0001 0000 00000010 00 00") + message("'1'")
    assert fast.hears()[2:7] == octets("31 0001 0212")


def test_a_handle_for_producers_does_not_consume(fast: FastClient, client: Client) -> None:
    fast >> "14 0001 0000 00 0000 00"
    fast >> "1e 0001 0001 0001 0000 01 01 'q' 00 00 0000"
    fast >> "20 0001 0000 0001 00 00 0000"
    assert fast.hears()[2:7] == octets("31 0001 0212")


def test_an_unknown_service_is_not_implemented(fast: FastClient) -> None:
    fast.opens_handle("q", service=3)
    assert fast.hears()[2:7] == octets("31 0001 021c")


def test_messages_are_consumed_and_acked_up_to_a_number(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> "20 0001 0001 0002 00 00 0000"  # CONSUME, two at a time
    fast << "30 0001 0001 00c8 02 'Ok'"
    client.publishes("q", b"1", b"2", b"3")
    fast << framed("29 0001 00000001 00000010 08 01 'q'") + message("'1'")
    fast << framed("29 0001 00000002 00000010 08 01 'q'") + message("'2'")
    fast.hears_nothing()
    fast >> "15 0001 0005 00000002"
    assert fast.hears() == (
        framed("1c 0001 0005 00c8 02 'Ok'") + framed("29 0001 00000003 00000010 08 01 'q'") + message("'3'")
    )
    fast >> "15 0001 0006 00000009"  # a number that was never given
    fast << "1c 0001 0006 00c8 02 'Ok'"
    fast >> "15 0001 0007 00000009"  # nothing is left
    fast << "1c 0001 0007 00c8 02 'Ok'"
    client >> methods.QueueDelete(queue="q")
    client << methods.QueueDeleteOk(message_count=0)
    assert fast.hears()[2:7] == octets("31 0001 0194")  # its destination is gone


def test_the_number_0_acks_nothing(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> "20 0001 0000 0002 00 00 0000"
    client.publishes("q", b"1")
    fast.hears()
    fast >> "15 0001 0000 00000000"
    fast >> "1d 0001 00c8 00"
    fast.hears()
    assert client.gets_all("q") == [b"1"]


def test_a_message_is_longer_than_a_fragment(playbook: Playbook, client: Client) -> None:
    fast = FastClient(playbook)
    fast.open(frame_max=1024)
    fast.opens_handle("q")
    fast >> "20 0001 0000 0002 02 00 0000"  # no-ack
    body = bytes(range(256)) * 8
    client.publishes("q", body)
    whole = len(body).to_bytes(4, "big") + octets(HEAD) + body
    fast << framed("29 0001 00000001 00000400 09 00") + whole[:1024]
    fast << framed("29 0001 00000001 00000400 09 00") + whole[1024:2048]
    fast << framed("29 0001 00000001 0000000f 08 01 'q'") + whole[2048:]


def test_unget_comes_before_the_ack(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> "20 0001 0000 0004 00 00 0000"
    client.publishes("q", b"1", b"2", b"3", b"4")
    fast.hears()
    with fast.playbook.one_pass():
        fast >> "22 0001 0001 01"  # FLOW, pause: it would get the message again
        fast >> "23 0001 0002 00000003"
        fast >> "15 0001 0003 00000004"
    fast << "30 0001 0001 00c8 02 'Ok'"
    fast << "30 0001 0002 00c8 02 'Ok'"
    fast << "1c 0001 0003 00c8 02 'Ok'"
    assert client.gets_all("q") == [b"3"]
    fast >> "23 0001 0002 00000003"
    assert fast.hears()[2:7] == octets("31 0001 0136")


def test_flow_stops_and_starts_a_handle(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> "20 0001 0000 0002 00 00 0000"
    fast >> "22 0001 0000 01"
    client.publishes("q", b"1")
    fast.hears_nothing()
    fast >> "22 0001 0001 00"
    assert fast.hears() == (
        framed("30 0001 0001 00c8 02 'Ok'") + framed("29 0001 00000001 00000010 08 01 'q'") + message("'1'")
    )


def test_a_queue_is_made_for_a_consumer_that_asks_for_it(fast: FastClient, client: Client) -> None:
    fast.opens_handle("new")
    fast >> "20 0001 0001 0002 04 00 0000"  # dynamic
    fast << "30 0001 0001 00c8 02 'Ok'"
    client.publishes("new", b"1")
    fast << framed("29 0001 00000001 00000010 08 03 'new'") + message("'1'")
    fast.opens_handle("other", handle=2, channel=2)
    fast >> "20 0002 0001 0002 00 00 0000"
    assert fast.hears()[2:7] == octets("31 0002 0194")


def test_high_priorities_come_first(fast: FastClient) -> None:
    fast.opens_handle("new")
    with fast.playbook.one_pass():
        fast >> "20 0001 0000 0009 04 00 0000"
        fast >> "22 0001 0000 01"
        fast >> framed("1f 0001 0000 00000010 00 00") + message("'1'")
        head = "00 09 00000000 00 00 00 0000"
        fast >> framed("1f 0001 0000 00000010 00 00") + message("'9'", head)
        fast >> "22 0001 0000 00"
    fast << framed("29 0001 00000001 00000010 08 03 'new'") + message("'9'", head)
    fast << framed("29 0001 00000002 00000010 08 03 'new'") + message("'1'")


def test_a_temporary_queue_has_a_name_and_is_emptied_when_opened_again(fast: FastClient) -> None:
    fast >> "14 0001 0000 00 0000 00"
    fast >> "1e 0001 0001 0001 0001 0f 04 'mine' 00 00 0000"
    fast << "28 0001 04 'mine'"
    fast << "30 0001 0001 00c8 02 'Ok'"
    fast >> framed("1f 0001 0000 00000010 00 00") + message("'1'")
    fast >> "1e 0001 0002 0001 0000 0f 04 'mine' 00 00 0000"
    fast << "28 0002 04 'mine'"
    fast >> "20 0002 0001 0001 00 00 0000"
    fast << "30 0002 0001 00c8 02 'Ok'"
    fast.hears_nothing()
    other = FastClient(fast.playbook)
    other.open()
    other >> "14 0001 0000 00 0000 00"
    other >> "1e 0001 0001 0001 0000 0f 04 'mine' 00 00 0000"
    assert other.hears()[2:7] == octets("31 0001 0195")  # of another connection
    fast >> "13 00c8 00"
    fast.hears()
    other >> "31 0001 00c8 00"
    other >> "1e 0001 0001 0001 0000 0f 04 'mine' 00 00 0000"
    other << "28 0001 04 'mine'"


def test_a_selector_wants_all_of_its_fields(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> ("20 0001 0000 0009 00 00 " + table("05 'Fruit' 'S' 0005 'apple'", "04 'Ripe' 'S' 0000"))
    client.publishes("q", b"no", headers={"Fruit": "apple"})
    client.publishes("q", b"no", headers={"Fruit": "pear", "Ripe": 1})
    client.publishes("q", b"yes", headers={"Fruit": "apple", "Ripe": 1})
    head = "00 00 00000000 00 00 00 " + table("05 'Fruit' 'S' 0005 'apple'", "04 'Ripe' 'I' 00000001")
    fast << framed("29 0001 00000001 0000002a 08 01 'q'") + message("'yes'", head)


def test_a_transaction_shows_when_it_is_committed(fast: FastClient, client: Client) -> None:
    fast >> "14 0001 0000 01 0000 00"
    fast >> "1e 0001 0001 0001 0000 07 01 'q' 00 00 0000"
    fast >> framed("1f 0001 0009 00000010 00 00") + message("'1'")
    fast << "30 0001 0009 00c8 02 'Ok'"
    assert client.gets_all("q") == []
    fast >> "17 0001 0001 0000"  # ROLLBACK
    fast << "1c 0001 0001 00c8 02 'Ok'"
    fast >> framed("1f 0001 0000 00000010 00 00") + message("'2'")
    fast >> "16 0001 0002 0000"  # COMMIT
    fast << "1c 0001 0002 00c8 02 'Ok'"
    assert client.gets_all("q") == [b"2"]


def test_a_commit_confirms_all_that_was_notified(fast: FastClient, client: Client) -> None:
    fast >> "14 0001 0000 01 0000 00"
    fast >> "1e 0001 0001 0001 0000 07 01 'q' 00 00 0000"
    fast >> "20 0001 0000 0009 00 00 0000"
    client.publishes("q", b"1")
    fast << framed("29 0001 00000001 00000010 08 01 'q'") + message("'1'")
    fast >> "17 0001 0000 0000"  # ROLLBACK cancels the NOTIFY: it comes again
    fast << framed("29 0001 00000002 00000010 18 01 'q'") + message("'1'")
    fast >> "16 0001 0003 0000"
    fast << "1c 0001 0003 00c8 02 'Ok'"
    fast >> "1d 0001 00c8 00"
    fast.hears()
    assert client.gets_all("q") == []


def test_only_a_transacted_channel_commits(fast: FastClient) -> None:
    fast >> "14 0001 0000 00 0000 00"
    fast >> "16 0001 0000 0000"
    assert fast.hears()[2:7] == octets("1d 0001 0196")


def parts(*bodies: bytes, name: str = "") -> bytes:
    """A message in as many fragments, the last of which has the name."""
    size = sum(len(body) for body in bodies)
    blocks = [size.to_bytes(4, "big") + octets(HEAD) + bodies[0], *bodies[1:]]
    said = [framed(f"1f 0001 0000 {len(block):08x} 01 00") + block for block in blocks[:-1]]
    last = framed(f"1f 0001 0000 {len(blocks[-1]):08x} 00 {len(name):02x} '{name}'") + blocks[-1]
    return b"".join(said) + last


def test_fragments_to_a_queue_that_is_not_there_leave_the_channel_to_others(
    fast: FastClient, client: Client
) -> None:
    fast.opens_handle("")
    fast >> "1e 0001 0002 0001 0000 07 01 'q' 00 00 0000"
    fast >> parts(b"four", b"five", name="none")
    assert fast.hears()[2:7] == octets("31 0001 0194")
    fast.sends(b"six", handle=2)
    fast.hears_nothing()
    assert client.gets_all("q") == [b"six"]


@pytest.mark.parametrize("fault", ["20 0001 0000 0001 00 00 0000", "1f 0001 0000 00000000 00 00"])
def test_a_message_is_confirmed_whatever_its_handle_does_next(
    fast: FastClient, client: Client, fault: str
) -> None:
    fast >> "14 0001 0000 00 0000 00"
    fast >> "1e 0001 0001 0001 0000 01 01 'q' 00 00 0000"  # of a producer alone
    at_fault = (
        framed("1f 0001 0000 0000000f 00 00") + message("'12'")[:15] if "1f" in fault else framed(fault)
    )
    fast >> framed("1f 0001 0005 00000010 00 00") + message("'1'") + at_fault
    fast << "30 0001 0005 00c8 02 'Ok'"
    assert fast.hears()[2:5] == octets("31 0001")
    assert client.gets_all("q") == [b"1"]


def test_only_a_message_that_was_notified_is_pushed_back(fast: FastClient, client: Client) -> None:
    client.publishes("q", b"1")
    fast.opens_handle("q")
    fast >> "20 0001 0000 0009 00 00 0000"
    fast.hears()
    fast >> "23 0001 0000 00000002"
    assert fast.hears()[2:7] == octets("31 0001 0136")
    assert client.gets_all("q") == []


def test_a_name_for_several_queues_stands_for_later_ones_too(fast: FastClient, client: Client) -> None:
    client.declares("a.1")
    fast.opens_handle("a.")
    fast.sends(b"1")
    client.declares("a.2")
    fast.sends(b"2")
    assert client.gets_all("a.1") == [b"1", b"2"]
    assert client.gets_all("a.2") == [b"2"]


def test_a_queue_goes_with_its_last_consumer_though_that_was_paused(
    playbook: Playbook, fast: FastClient, client: Client
) -> None:
    client.declares("brief", auto_delete=True)
    fast.opens_handle("brief")
    fast >> "20 0001 0000 0001 00 00 0000"
    fast >> "22 0001 0000 01"
    fast.hears_nothing()
    fast.session.release()  # the socket is gone
    playbook.finish_pass()
    assert "brief" not in playbook.broker.virtual_hosts["/"].queues


def test_a_handle_that_is_paused_consumes_when_it_goes_on(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> "22 0001 0000 01"
    fast >> "20 0001 0000 0001 00 00 0000"
    client.publishes("q", b"1")
    fast.hears_nothing()
    fast >> "22 0001 0000 00"
    fast << framed("29 0001 00000001 00000010 08 01 'q'") + message("'1'")


def test_a_handle_does_not_go_on_with_a_queue_that_was_deleted(fast: FastClient, client: Client) -> None:
    fast.opens_handle("q")
    fast >> "20 0001 0000 0001 00 00 0000"
    fast >> "22 0001 0000 01"
    client >> methods.QueueDelete(queue="q", no_wait=True)
    fast >> "22 0001 0001 00"
    assert fast.hears()[2:7] == octets("31 0001 0194")


def test_consumers_that_were_paused_count_beside_others() -> None:
    playbook = Playbook(Config(limits=Limits(consumers_per_channel_max=1)))
    playbook.broker.virtual_hosts["/"].declare_queue("q", False, False, False, {}, 0)
    fast = FastClient(playbook)
    fast.open()
    fast.opens_handle("q")
    fast >> "1e 0001 0002 0001 0000 07 01 'q' 00 00 0000"
    fast >> "20 0001 0000 0001 00 00 0000"
    fast >> "22 0001 0000 01"
    fast.hears_nothing()
    fast >> "20 0002 0000 0001 00 00 0000"
    assert fast.hears()[2:5] == octets("13 0212")


def test_a_close_of_the_client_before_ours_is_answered(fast: FastClient, client: Client) -> None:
    """A fault closes the channel when all before it is safe, and the client does not wait for that."""
    fast.opens_handle("q")
    again = framed("14 0001 0000 00 0000 00")
    fast >> framed("1f 0001 0005 00000010 00 00") + message("'1'") + again + framed("1d 0001 00c8 00")
    assert fast.hears().endswith(framed("1d 0001 00c8 02 'Ok'"))
    fast >> "14 0001 0001 00 0000 00"
    fast << "1c 0001 0001 00c8 02 'Ok'"
    assert client.gets_all("q") == [b"1"]


def test_headers_whose_names_are_none_of_fast_are_left_out(fast: FastClient, client: Client) -> None:
    client.publishes("q", b"1", headers={"_id": 1, "n": 7, "0": 2})
    fast.opens_handle("q")
    fast >> "20 0001 0000 0009 00 00 0000"
    head = "00 00 00000000 00 00 00 " + table("01 'n' 'I' 00000007")
    fast << framed("29 0001 00000001 00000017 08 01 'q'") + message("'1'", head)


def test_a_dictionary_has_short_names_for_headers(playbook: Playbook, client: Client) -> None:
    fast = FastClient(playbook)
    fast >> octets("80 01")
    fast >> "0b 05 'PLAIN' 001f 05 'LOGIN' 'S' 0005 'guest' 08 'PASSWORD' 'S' 0005 'guest'"
    fast >> ("0c 0000 " + table("02 'ET' 'S' 000f 'Expiration-Time'"))
    fast >> "0d 0000 01 '/' 00 0000"
    fast.hears()
    fast.opens_handle("q")
    head = "00 00 00000000 00 00 00 " + table("02 'ET' 'I' 00000007")
    fast >> framed("1f 0001 0000 00000018 00 00") + message("'1'", head)
    client >> methods.BasicGet(queue="q", no_ack=False)
    found = client.next(1)
    assert found.properties.headers == {"Expiration-Time": 7}  # type: ignore[attr-defined]
    client >> methods.BasicReject(delivery_tag=1, requeue=True)
    fast >> "20 0001 0000 0009 00 00 0000"
    fast << framed("29 0001 00000001 00000018 18 01 'q'") + message("'1'", head)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (framed("1f 0001 0000 00000010 00 00") + message("'1'"), "0193"),
        (framed("1f 0001 0000 00000010 01 00") + message("'12'")[:16], "0193"),
        (framed("20 0001 0000 0001 00 00 0000"), "0193"),
        (framed("20 0001 0000 0001 04 03 'new' 0000"), "0193"),
    ],
)
def test_a_user_without_permission_is_refused(said: bytes, code: str) -> None:
    users = {"guest": UserSettings(password="guest", permissions={"/": PermissionSettings()})}
    playbook = Playbook(Config()._replace(users=users))
    playbook.broker.virtual_hosts["/"].declare_queue("q", False, False, False, {}, 0)
    fast = FastClient(playbook)
    fast.open()
    fast.opens_handle("q")
    fast >> said
    assert fast.hears()[2:7] == octets("31 0001" + code)
