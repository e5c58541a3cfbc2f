"""Playbook: proxies, queues and Jms content of AMQP/Fast 0.9, octet by octet, as section 3.17 has them."""

from __future__ import annotations

import pytest
from fast09.conversation import Peer, framed, octets, short_text, table
from playbook.dialogue import Playbook, carrying

from flintmq.config import Access, Config, RealmSettings
from flintmq.wire import methods
from flintmq.wire.methods import BasicDeliver, BasicPublish, QueueDeclare


def registers(peer: Peer, queue: str, proxy: str, *arguments: str) -> None:
    peer >> f"01 01 | 05 03 00 0011 | 0000 00 {short_text(queue)} {short_text(proxy)} {table(*arguments)}"
    peer << "01 01 | 05 04 00 0011"


def asserts_proxy(peer: Peer, name: str, class_name: str, flags: int = 0) -> None:
    peer >> f"01 01 | 04 01 00 0010 | 0000 {short_text(name)} {short_text(class_name)} {flags:02x}"
    peer << "01 01 | 04 02 00 0010"


def named(key: str) -> str:
    """The argument of a registration with a destination."""
    return f"0b 'destination' 'S' {short_text(key)}"


def browsed(peer: Peer, queue: str) -> str:
    """The body of the next message of a queue; nothing where it is empty."""
    peer >> f"01 01 | 06 07 00 0012 | 0000 00 {short_text(queue)} 02"
    heard = peer.hears()
    if heard[4:6] == octets("06 09"):
        return ""
    assert heard[4:6] == octets("06 08")
    at, parts = 0, []
    while at < len(heard):
        size = int.from_bytes(heard[at + 2 : at + 4], "big")
        if heard[at] == 3:
            parts.append(heard[at + 4 : at + 4 + size])
        at += 4 + size
    return b"".join(parts).decode()


def closed_with(peer: Peer, code: int, ids: str, channel: int = 1) -> None:
    """The channel is closed with this code, by the class, method and synctag."""
    heard = peer.hears()
    assert heard[:2] == bytes((1, channel)), heard
    assert heard[4:11] == octets(f"02 04 00 0000 | {code:04x}"), heard
    assert heard.endswith(octets(ids)), heard
    peer >> f"01 {channel:02x} | 02 05 00 0000"


# -- proxies and queues ----------------------------------------------------------------------------


def test_a_proxy_and_a_queue_come_and_go(peer: Peer) -> None:
    peer >> "01 01 | 04 01 00 0001 | 0000 06 'prices' 09 'dest-name' 00"  # Proxy.Assert
    peer << "01 01 | 04 02 00 0001"
    peer >> "01 01 | 05 01 00 0002 | 0000 00 03 'ibm' 00 00"  # Queue.Assert
    peer << "01 01 | 05 02 00 0002 | 03 'ibm' 00 00000000 00000000"
    peer >> "01 01 | 05 03 00 0003 | 0000 00 03 'ibm' 06 'prices' 00000000"  # Queue.Register
    peer << "01 01 | 05 04 00 0003"
    peer >> "01 01 | 05 01 00 0004 | 0000 00 03 'ibm' 00 01"  # Assert, if_exists: now it has a proxy
    peer << "01 01 | 05 02 00 0004 | 03 'ibm' 06 'prices' 00000000 00000000"
    peer.publishes("up", "ibm", "prices")
    peer >> "01 01 | 05 05 00 0005 | 0000 00 03 'ibm'"  # Purge
    peer << "01 01 | 05 06 00 0005 | 00000001"
    peer.publishes("down", "ibm", "prices")
    peer >> "01 01 | 05 07 00 0006 | 0000 00 03 'ibm' 00"  # Delete
    peer << "01 01 | 05 08 00 0006 | 00000001"
    peer >> "01 01 | 04 03 00 0007 | 0000 06 'prices' 00"  # Proxy.Delete
    peer << "01 01 | 04 04 00 0007"


def test_a_queue_without_a_name_is_given_one_in_its_namespace(peer: Peer) -> None:
    peer >> "01 01 | 05 01 00 0002 | 0000 07 'replies' 00 00 04"  # private
    heard = peer.hears()
    assert heard[4:9] == octets("05 02 00 0002")
    name = heard[10 : 10 + heard[9]].decode()
    assert name.startswith("amq.gen-")
    assert f"replies:{name}" in peer.session.broker.virtual_hosts["/"].queues


def test_namespaces_keep_queues_apart(peer: Peer) -> None:
    peer >> "01 01 | 05 01 00 0002 | 0000 01 'a' 01 'q' 00 00"
    peer << "01 01 | 05 02 00 0002 | 01 'q' 00 00000000 00000000"
    registers_in = "01 01 | 05 03 00 0003 | 0000 01 'a' 01 'q' 0a 'amq.direct' 00000000"
    peer >> registers_in
    peer << "01 01 | 05 04 00 0003"
    peer >> "01 01 | 06 01 00 0004 | 0000 01 'a' 01 'q' 0000 0000 02"  # Consume, auto_ack
    peer << "01 01 | 06 02 00 0004 | 0001"
    peer.publishes("x", "q", "amq.direct")
    peer << (
        "01 01 | 06 06 00 0000 | 0000000000000001 00 0a 'amq.direct' 01 'a' 01 'q'\n"
        "02 01 | 06 00 0000000000000001 0200 01 'q'\n"
        "03 01 | 'x'"
    )


def test_a_queue_of_others_is_the_same_queue(playbook: Playbook, peer: Peer) -> None:
    """Queues that AMQP/Fast makes have priorities; those that are there keep what they have."""
    other = playbook.client()
    other >> QueueDeclare(queue="theirs")
    other << methods.QueueDeclareOk(queue="theirs")
    peer >> "01 01 | 05 01 00 0002 | 0000 00 06 'theirs' 00 00"
    peer << "01 01 | 05 02 00 0002 | 06 'theirs' 00 00000000 00000000"
    peer.has_queue("ours")
    assert peer.session.broker.virtual_hosts["/"].queues["ours"].arguments == {"x-max-priority": 9}
    peer.has_queue("ours")


@pytest.mark.parametrize(
    ("class_name", "type_name"),
    [
        ("fanout", "fanout"),
        ("dest-name", "direct"),
        ("dest-wild", "topic"),
        ("prop-test", "headers"),
        ("prop-wild", "x-prop-wild"),
        ("selector", "x-selector"),
        ("lossy", "x-lossy"),
        ("x-random", "x-random"),
    ],
)
def test_proxy_classes_are_exchange_types(
    playbook: Playbook, peer: Peer, class_name: str, type_name: str
) -> None:
    asserts_proxy(peer, "p", class_name)
    asserts_proxy(peer, "p", class_name)
    assert playbook.broker.virtual_hosts["/"].exchanges["p"].type == type_name
    other = playbook.client()
    other >> methods.ExchangeDeclare(
        exchange="p", type=class_name, arguments={"x-drop-rate": 0.5} if class_name == "lossy" else {}
    )
    other << methods.ExchangeDeclareOk()


def test_a_class_that_is_not_known_closes_the_channel(peer: Peer) -> None:
    peer >> "01 01 | 04 01 00 0009 | 0000 01 'p' 06 'no-one' 00"
    closed_with(peer, 503, "04 01 0009")


def test_something_durable_does_not_depend_on_something_transient(peer: Peer) -> None:
    asserts_proxy(peer, "p", "fanout")
    peer.has_queue("q", flags=2)
    peer >> "01 01 | 05 03 00 0008 | 0000 00 01 'q' 01 'p' 00000000"
    closed_with(peer, 530, "05 03 0008")


def test_what_is_not_there_closes_the_channel(peer: Peer) -> None:
    peer >> "01 01 | 05 05 00 0008 | 0000 00 04 'none'"
    closed_with(peer, 404, "05 05 0008")
    peer.opens_channel()
    peer >> "01 01 | 05 03 00 0009 | 0000 00 04 'none' 04 'none' 00000000"
    closed_with(peer, 404, "05 03 0009")


# -- registrations ---------------------------------------------------------------------------------


def test_each_class_of_proxy_routes(peer: Peer) -> None:
    for proxy in ("dest-name", "dest-wild", "prop-test", "prop-wild", "selector", "fanout"):
        asserts_proxy(peer, proxy, proxy)
        peer.has_queue(f"q-{proxy}")
    registers(peer, "q-dest-name", "dest-name", named("a.b"))
    registers(peer, "q-dest-wild", "dest-wild", named("a.*"))
    registers(peer, "q-prop-test", "prop-test", "05 'color' 'S' 03 'red'")
    registers(peer, "q-prop-wild", "prop-wild", "05 'color' 'S' 02 'r*'")
    registers(peer, "q-selector", "selector", "08 'selector' 'S' 09 'n = 2 + 5'")
    registers(peer, "q-fanout", "fanout")
    headers = table("05 'color' 'S' 03 'red'", "01 'n' 'I' 00000007")
    for proxy in ("dest-name", "dest-wild", "prop-test", "prop-wild", "selector", "fanout"):
        for destination, body in (("a.b", "yes"), ("b.b", "no")):
            others = headers if body == "yes" else table()
            peer >> (
                f"01 01 | 06 05 00 0000 | 0000 {short_text(proxy)} 00\n"
                f"02 01 | 06 00 {len(body):016x} 0204 {short_text(destination)} {others}\n"
                f"03 01 | '{body}'"
            )
        assert browsed(peer, f"q-{proxy}") == "yes"
        assert browsed(peer, f"q-{proxy}") == ("no" if proxy == "fanout" else "")


def test_registrations_with_one_proxy_add_up_and_with_several_narrow(peer: Peer) -> None:
    """Section 3.15.3.3: X or Y, and a property."""
    asserts_proxy(peer, "names", "dest-name")
    asserts_proxy(peer, "properties", "prop-test")
    peer.has_queue("q")
    registers(peer, "q", "names", named("X"))
    registers(peer, "q", "names", named("Y"))
    registers(peer, "q", "properties", "03 'ABC' 'I' 00000001")

    def sends(destination: str, headers: str, proxy: str = "names") -> str:
        peer >> (
            f"01 01 | 06 05 00 0000 | 0000 {short_text(proxy)} 00\n"
            f"02 01 | 06 00 0000000000000001 0204 {short_text(destination)} {headers}\n"
            "03 01 | 'm'"
        )
        return browsed(peer, "q")

    has, has_not = table("03 'ABC' 'I' 00000001"), table()
    assert sends("X", has) == "m"
    assert sends("Y", has) == "m"
    assert sends("Z", has) == ""
    assert sends("X", has_not) == ""
    assert sends("X", has, "properties") == ""  # it steps in between, and leads nowhere by itself
    peer >> f"01 01 | 05 09 00 0013 | 0000 00 01 'q' 0a 'properties' {has}"
    peer << "01 01 | 05 0a 00 0013"
    assert sends("X", has_not) == "m"
    peer >> f"01 01 | 05 09 00 0014 | 0000 00 01 'q' 05 'names' {table(named('X'))}"
    peer << "01 01 | 05 0a 00 0014"
    assert sends("X", has_not) == ""
    assert sends("Y", has_not) == "m"


def test_a_lossy_proxy_steps_in_between(peer: Peer) -> None:
    asserts_proxy(peer, "names", "dest-name")
    asserts_proxy(peer, "loss", "lossy")
    peer.has_queue("q")
    registers(peer, "q", "names", named("X"))
    registers(peer, "q", "loss")
    for _ in range(200):
        peer.publishes("m", "X", "names")
    peer >> "01 01 | 05 05 00 0005 | 0000 00 01 'q'"
    count = int.from_bytes(peer.hears()[9:13], "big")
    assert 40 < count < 160  # of 200: one in 10**17 runs is outside


# -- Jms content -----------------------------------------------------------------------------------


def test_messages_are_delivered_acked_and_rejected(peer: Peer) -> None:
    peer.has_queue("q")
    peer >> "01 01 | 06 01 00 0004 | 0000 00 01 'q' 0000 0002 00"  # Consume, two at a time
    peer << "01 01 | 06 02 00 0004 | 0001"
    for body in "abc":
        peer.publishes(body, "q")
    for tag, body in ((1, "a"), (2, "b")):
        peer << (
            f"01 01 | 06 06 00 0000 | {tag:016x} 00 00 00 01 'q'\n"
            f"02 01 | 06 00 0000000000000001 0200 01 'q'\n"
            f"03 01 | '{body}'"
        )
    peer.hears_nothing()
    peer >> "01 01 | 06 0a 00 0000 | 0000000000000001 00"  # Ack
    peer << (
        "01 01 | 06 06 00 0000 | 0000000000000003 00 00 00 01 'q'\n"
        "02 01 | 06 00 0000000000000001 0200 01 'q'\n"
        "03 01 | 'c'"
    )
    peer >> "01 01 | 06 0b 00 0000 | 0000000000000002 01"  # Reject, requeue
    peer << (
        "01 01 | 06 06 00 0000 | 0000000000000004 01 00 00 01 'q'\n"
        "02 01 | 06 00 0000000000000001 0200 01 'q'\n"
        "03 01 | 'b'"
    )
    peer >> "01 01 | 06 0a 80 0007 | 0000000000000004 01"  # Ack of all, with a synchpoint
    peer << "01 01 | 02 06 00 0007"
    peer >> "01 01 | 06 03 00 0008 | 0001"  # Cancel
    peer << "01 01 | 06 04 00 0008"
    peer.publishes("d", "q")
    peer.hears_nothing()
    assert browsed(peer, "q") == "d"


def test_a_consumer_is_cancelled_by_its_own_class(peer: Peer) -> None:
    peer.has_queue("q")
    peer >> "01 01 | 06 01 00 0004 | 0000 00 01 'q' 0000 0000 02"
    peer.hears()
    peer >> "01 01 | 08 03 00 0005 | 0001"  # Stream.Cancel
    peer << "01 01 | 08 04 00 0005"
    peer.publishes("a", "q")
    assert peer.hears().endswith(b"a")


def test_a_message_keeps_all_that_it_says(peer: Peer) -> None:
    peer.has_queue("q")
    properties = (
        "fffc 0a 'text/plain' 05 'utf-8' 02 05 01 'c' 01 'r' 01 'q' 05 '60000' 01 'm' 0a '1112313600' 01 't'"
        " 05 'guest' 01 'a' "
        + table(
            "01 's' 'S' 03 'abc'",
            f"01 'l' 'L' 0100 {'61' * 256}",
            "01 'i' 'I' ffffffff",
            "01 'd' 'D' 02 00000096",
            "01 't' 'T' 00000000425f9a80",
            "01 'f' 'F' " + table("01 'x' 'I' 00000001"),
        )
    )
    peer >> f"01 01 | 06 05 00 0000 | 0000 00 00\n02 01 | 06 00 0000000000000000 {properties}"
    peer >> "01 01 | 06 07 00 0012 | 0000 00 01 'q' 02"
    peer << (
        f"01 01 | 06 08 00 0012 | 0000000000000001 00 00000000\n02 01 | 06 00 0000000000000000 {properties}"
    )


def test_a_message_crosses_to_0_9_1_and_back(playbook: Playbook, peer: Peer) -> None:
    peer.has_queue("q")
    other = playbook.client()
    other >> methods.BasicConsume(queue="q", consumer_tag="c", no_ack=True)
    other << methods.BasicConsumeOk(consumer_tag="c")
    peer >> (
        "01 01 | 06 05 00 0000 | 0000 00 00\n"
        "02 01 | 06 00 0000000000000002 9244 0a 'text/plain' 05 01 'q' 02 '77' "
        + table("01 'n' 'I' 00000001")
        + "\n03 01 | 'hi'"
    )
    other << carrying(
        BasicDeliver(consumer_tag="c", delivery_tag=1, routing_key="q"),
        b"hi",
        content_type="text/plain",
        priority=5,
        timestamp=77,
        headers={"n": 1},
    )
    other >> methods.BasicCancel(consumer_tag="c")
    other << methods.BasicCancelOk(consumer_tag="c")
    other >> carrying(
        BasicPublish(routing_key="q"),
        b"back",
        cluster_id="k",
        headers={"big": 2**40, "yes": True, "list": [1, "a"], "none": None, "1bad": 1},
    )
    peer >> "01 01 | 06 07 00 0012 | 0000 00 01 'q' 02"
    peer << (
        "01 01 | 06 08 00 0012 | 0000000000000001 00 00000000\n"
        "02 01 | 06 00 0000000000000004 0204 01 'q' "
        + table(
            f"03 'big' 'S' {short_text(str(2**40))}",
            "03 'yes' 'I' 00000001",
            "04 'list' 'S' 08 '[1, ' 22 'a' 22 ']'",
            "04 'none' 'S' 00",
            "0b '$CLUSTER_ID' 'S' 01 'k'",
        )
        + "\n03 01 | 'back'"
    )


def test_what_a_short_string_cannot_hold_is_left_out(playbook: Playbook, peer: Peer) -> None:
    peer.has_queue("q")
    other = playbook.client()
    other >> carrying(BasicPublish(routing_key="q"), b"x", correlation_id="a\0b", timestamp=5)
    peer >> "01 01 | 06 07 00 0012 | 0000 00 01 'q' 02"
    peer << (
        "01 01 | 06 08 00 0012 | 0000000000000001 00 00000000\n"
        "02 01 | 06 00 0000000000000001 0240 01 'q' 01 '5'\n03 01 | 'x'"
    )


def test_a_body_may_come_in_any_pieces(peer: Peer) -> None:
    peer.has_queue("q")
    peer >> (
        "01 01 | 06 05 00 0000 | 0000 00 00\n"
        "02 01 | 06 00 0000000000000003 0200 01 'q'\n"
        "03 01 |\n03 01 | 'a'\n03 01 |\n03 01 | 'bc'"
    )
    assert browsed(peer, "q") == "abc"


def test_an_empty_body_frame_behind_a_body_means_nothing(peer: Peer) -> None:
    peer.has_queue("q")
    peer >> (
        "01 01 | 06 05 00 0000 | 0000 00 00\n"
        "02 01 | 06 00 0000000000000003 0200 01 'q'\n"
        "03 01 | 'abc'\n03 01 |\n03 01 |\n"
        "01 01 | 06 05 00 0000 | 0000 00 00\n"
        "02 01 | 06 00 0000000000000000 0200 01 'q'\n"
        "03 01 |"
    )
    assert browsed(peer, "q") == "abc"
    assert browsed(peer, "q") == ""
    peer >> "03 05 |"  # on a channel that was never opened it is a fault still
    assert peer.hears()[4:11] == octets("01 0a 00 0000 | 01f8")


def test_a_large_body_has_extended_frames(peer: Peer) -> None:
    peer.has_queue("q")
    body = bytes(range(256)) * 600  # 153,600 octets: 131,072 and the rest
    peer >> framed(f"01 01 | 06 05 00 0000 | 0000 00 00\n02 01 | 06 00 {len(body):016x} 0200 01 'q'")
    peer >> octets("09 00 0000 | 03 00 0001 0000000000020000") + body[:0x20000]
    peer >> octets("03 01 5800") + body[0x20000:]
    peer >> "01 01 | 06 07 00 0012 | 0000 00 01 'q' 02"
    peer << f"01 01 | 06 08 00 0012 | {1:016x} 00 00000000\n02 01 | 06 00 {len(body):016x} 0200 01 'q'"
    peer << octets("09 00 0000 | 03 00 0001 0000000000020000") + body[:0x20000]
    peer << octets("03 01 5800") + body[0x20000:]


def test_frames_are_no_larger_than_the_client_takes(playbook: Playbook) -> None:
    peer = Peer(playbook)
    peer.open(frame_max=4096)
    peer.opens_channel()
    peer.has_queue("q")
    body = bytes(5000)
    peer >> framed(f"01 01 | 06 05 00 0000 | 0000 00 00\n02 01 | 06 00 {len(body):016x} 0200 01 'q'")
    peer >> octets("03 01 1000") + body[:4096]
    peer >> octets("03 01 0388") + body[4096:]
    peer >> "01 01 | 06 07 00 0012 | 0000 00 01 'q' 02"
    heard = peer.hears()
    assert heard.endswith(octets("03 01 0388") + body[4096:])
    peer >> octets("03 01 1001")
    assert peer.hears()[4:11] == octets("01 0a 00 0000 | 01f5")


def test_flow_stops_and_starts_deliveries(peer: Peer) -> None:
    peer.has_queue("q")
    peer >> "01 01 | 06 01 00 0004 | 0000 00 01 'q' 0000 0000 02"
    peer.hears()
    peer >> "01 01 | 02 03 00 0005 | 01"
    peer.publishes("a", "q")
    peer.hears_nothing()
    peer >> "01 01 | 02 03 00 0005 | 00"
    assert b"a" in peer.hears()[-1:]


def test_the_broker_pauses_publishers_by_channel_flow(peer: Peer) -> None:
    peer.session.tell_blocked("memory")
    peer << "01 01 | 02 03 00 0000 | 01"
    peer.session.tell_unblocked()
    peer << "01 01 | 02 03 00 0000 | 00"


def test_an_empty_browse(peer: Peer) -> None:
    peer.has_queue("q")
    peer >> "01 01 | 06 07 00 0012 | 0000 00 01 'q' 02"
    peer << "01 01 | 06 09 00 0012"


def test_browse_knows_no_senders(peer: Peer) -> None:
    peer.has_queue("q")
    peer >> "01 01 | 06 07 00 0012 | 0000 00 01 'q' 01"
    closed_with(peer, 540, "06 07 0012")


def test_immediate_asserts_a_consumer(peer: Peer) -> None:
    peer.has_queue("q")
    peer.publishes("a", "q", immediate=1, flags="80", synctag=9)
    closed_with(peer, 313, "06 05 0009")
    peer.opens_channel()
    peer >> "01 01 | 06 01 00 0004 | 0000 00 01 'q' 0000 0000 02"
    peer.hears()
    peer.publishes("b", "q", immediate=1)
    assert peer.hears().endswith(b"b")


@pytest.mark.parametrize("tx_mode", [1, 2])
@pytest.mark.parametrize("class_id", ["06", "08"])
def test_immediate_is_no_part_of_a_transaction(
    playbook: Playbook, peer: Peer, tx_mode: int, class_id: str
) -> None:
    peer.has_queue("q")
    peer.opens_channel(2, tx_mode=tx_mode)
    destination = f"{'0200' if class_id == '06' else '1000'} 01 'q'"
    peer >> (
        f"01 02 | {class_id} 05 80 0009 | 0000 00 01\n"
        f"02 02 | {class_id} 00 0000000000000001 {destination}\n"
        "03 02 | 'a'"
    )
    closed_with(peer, 540, f"{class_id} 05 0009", channel=2)
    peer.opens_channel(2, tx_mode=tx_mode)
    peer >> "01 01 | 06 07 00 0012 | 0000 00 01 'q' 02"
    peer << "01 01 | 06 09 00 0012"


def test_a_message_that_dies_in_its_queue_closes_no_channel(playbook: Playbook, peer: Peer) -> None:
    """AMQP/Fast has nothing that tells of it."""
    playbook.client().declares("q", arguments={"x-max-length": 1, "x-return-undelivered": True})
    asks = table("14 'x-return-undelivered' 'I' 00000001")
    for body in "ab":
        peer >> (
            f"01 01 | 06 05 80 0007 | 0000 00 00\n02 01 | 06 00 0000000000000001 0204 01 'q' {asks}\n"
            f"03 01 | '{body}'"
        )
        peer << "01 01 | 02 06 00 0007"
    assert browsed(peer, "q") == "b"


def test_a_message_without_a_queue_is_discarded(peer: Peer) -> None:
    peer.publishes("a", "nowhere", "amq.direct", flags="80", synctag=9)
    peer << "01 01 | 02 06 00 0009"


def test_a_queue_that_is_deleted_closes_the_channels_of_its_consumers(playbook: Playbook, peer: Peer) -> None:
    peer.has_queue("q")
    peer >> "01 01 | 06 01 00 0004 | 0000 00 01 'q' 0000 0000 02"
    peer.hears()
    other = playbook.client()
    other >> methods.QueueDelete(queue="q")
    other << methods.QueueDeleteOk()
    closed_with(peer, 404, "00 00 0000")


@pytest.mark.parametrize(
    "said",
    [
        "01 01 | 06 01 00 0007 | 0000 00 01 'r' 0000 0000 02",  # Consume
        "01 01 | 08 01 00 0007 | 0000 00 01 'r' 0000 0000 00000000 00",
        "01 01 | 06 03 00 0007 | 0001",  # Cancel
    ],
)
def test_a_channel_that_lost_its_queue_is_closed_before_its_next_method(
    playbook: Playbook, peer: Peer, said: str
) -> None:
    """The method was done on the channel that it had closed itself: its consumer stayed for ever."""
    peer.has_queue("q")
    peer.has_queue("r")
    peer.opens_channel(2)
    peer >> "01 01 | 06 01 00 0004 | 0000 00 01 'q' 0000 0000 02"
    peer.hears()
    peer >> "01 02 | 05 07 00 0006 | 0000 00 01 'q' 00\n" + said  # Delete, on another channel
    heard = peer.hears()
    deleted = framed("01 02 | 05 08 00 0006 | 00000000")
    assert heard.startswith(deleted), heard
    assert heard[len(deleted) + 4 :].startswith(octets("02 04 00 0000 | 0194")), heard
    assert heard.count(b"the queue 'q' of a consumer was deleted") == 1
    assert heard.endswith(octets("00 00 0000")), heard
    assert not playbook.broker.virtual_hosts["/"].queues["r"].consumers


def test_who_deletes_the_queue_keeps_the_channel(peer: Peer) -> None:
    peer.has_queue("q")
    peer >> "01 01 | 06 01 00 0004 | 0000 00 01 'q' 0000 0000 02"
    peer.hears()
    peer >> "01 01 | 05 07 00 0006 | 0000 00 01 'q' 00"
    peer << "01 01 | 05 08 00 0006 | 00000000"
    peer.hears_nothing()
    peer.has_queue("q")


def test_a_window_in_octets_holds_for_the_channel(playbook: Playbook, peer: Peer) -> None:
    peer >> "01 02 | 02 01 00 0005 | 00000003 00 00"  # prefetch_max 3
    peer << "01 02 | 02 02 00 0005"
    peer.has_queue("q")
    for body in ("ab", "cd"):
        peer.publishes(body, "q")
    peer >> "01 02 | 06 01 00 0004 | 0000 00 01 'q' 0000 0000 00"
    peer << "01 02 | 06 02 00 0004 | 0001"
    assert peer.hears().endswith(b"ab")
    peer >> "01 02 | 06 0a 00 0000 | 0000000000000001 00"
    assert peer.hears().endswith(b"cd")


def test_a_class_that_the_client_does_not_support_is_not_sent(playbook: Playbook) -> None:
    peer = Peer(playbook)
    peer.open(supports=4)  # streams alone
    peer.opens_channel()
    peer.has_queue("q")
    peer >> "01 01 | 06 01 00 0004 | 0000 00 01 'q' 0000 0000 02"
    closed_with(peer, 530, "06 01 0004")


def test_a_stream_octet_by_octet(peer: Peer) -> None:
    """Sections 3.17.10 and 3.21.2."""
    asserts_proxy(peer, "video", "fanout")
    peer.has_queue("q")
    registers(peer, "q", "video")
    peer >> "01 01 | 08 01 00 0004 | 0000 00 01 'q' 0000 0000 00000000 00"  # Consume
    peer << "01 01 | 08 02 00 0004 | 0001"
    header = "f800 01 't' 01 'e' 05 01 'd' 02 '77'"
    peer >> (
        f"01 01 | 08 05 80 0005 | 0000 05 'video' 00\n02 01 | 08 00 0000000000000001 {header}\n03 01 | 'x'"
    )
    heard = peer.hears()
    deliver = framed(
        "01 01 | 08 06 00 0000 | 0000000000000001 00 05 'video' 00 01 'q'\n"
        f"02 01 | 08 00 0000000000000001 {header}\n03 01 | 'x'"
    )
    synch = framed("01 01 | 02 06 00 0005")
    assert heard in (deliver + synch, synch + deliver)
    peer >> "01 01 | 08 03 00 0006 | 0001"  # Cancel
    peer << "01 01 | 08 04 00 0006"
    peer >> f"01 01 | 08 05 00 0007 | 0000 05 'video' 00\n02 01 | 08 00 {0:016x} {header}"
    peer >> "01 01 | 06 07 00 0012 | 0000 00 01 'q' 02"  # as Jms content it is there too
    peer << (
        "01 01 | 06 08 00 0012 | 0000000000000002 00 00000000\n"
        f"02 01 | 06 00 {0:016x} d240 01 't' 01 'e' 05 01 'd' 02 '77'"
    )


# -- synchpoints, unreal methods and traces --------------------------------------------------------


def test_a_synchpoint_confirms_a_publish(peer: Peer) -> None:
    peer.has_queue("q")
    peer.publishes("a", "q")
    peer.publishes("b", "q", flags="80", synctag=0x0102)
    peer << "01 01 | 02 06 00 0102"
    peer.publishes("", "q", flags="80", synctag=0x0103)
    peer << "01 01 | 02 06 00 0103"


def test_a_refused_message_closes_the_channel_in_place_of_its_synchpoint(
    playbook: Playbook, peer: Peer
) -> None:
    other = playbook.client()
    other >> QueueDeclare(queue="q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    other << methods.QueueDeclareOk(queue="q")
    peer.publishes("a", "q", flags="80", synctag=1)
    peer << "01 01 | 02 06 00 0001"
    peer.publishes("b", "q", flags="80", synctag=2)
    closed_with(peer, 506, "06 05 0002")
    peer.opens_channel()
    assert browsed(peer, "q") == "a"


def test_methods_are_done_and_answered_in_their_order(peer: Peer) -> None:
    """Nobody waits for an answer, and each of them has the count of that moment."""
    peer >> (
        "01 01 | 05 01 00 0001 | 0000 00 01 'q' 00 00\n"
        "01 01 | 06 05 80 0002 | 0000 00 00\n02 01 | 06 00 0000000000000001 0200 01 'q'\n03 01 | 'a'\n"
        "01 01 | 05 01 00 0003 | 0000 00 01 'q' 00 01\n"
        "01 01 | 05 05 00 0004 | 0000 00 01 'q'\n"
        "01 01 | 05 01 00 0005 | 0000 00 01 'q' 00 01"
    )
    peer << (
        "01 01 | 05 02 00 0001 | 01 'q' 00 00000000 00000000\n"
        "01 01 | 02 06 00 0002\n"
        "01 01 | 05 02 00 0003 | 01 'q' 00 00000001 00000000\n"
        "01 01 | 05 06 00 0004 | 00000001\n"
        "01 01 | 05 02 00 0005 | 01 'q' 00 00000000 00000000"
    )


def test_what_comes_before_a_failed_method_is_done(peer: Peer) -> None:
    peer >> (
        "01 01 | 05 01 00 0001 | 0000 00 01 'q' 00 00\n"
        "01 01 | 05 05 00 0002 | 0000 00 04 'none'\n"
        "01 01 | 05 01 00 0003 | 0000 00 01 'r' 00 00"
    )
    peer << "01 01 | 05 02 00 0001 | 01 'q' 00 00000000 00000000"
    closed_with(peer, 404, "05 05 0002")
    assert "r" not in peer.session.broker.virtual_hosts["/"].queues


def test_a_synchronous_method_has_no_synchpoint(peer: Peer) -> None:
    peer >> "01 01 | 05 01 80 0002 | 0000 00 01 'q' 00 00"
    peer << "01 01 | 05 02 00 0002 | 01 'q' 00 00000000 00000000"
    peer.hears_nothing()


def test_unreal_methods_are_answered_and_not_done(peer: Peer) -> None:
    peer >> "01 01 | 05 01 40 0002 | 0000 00 01 'q' 00 00"
    peer << "01 01 | 05 02 40 0002 | 00 00 00000000 00000000"
    assert "q" not in peer.session.broker.virtual_hosts["/"].queues
    peer >> "01 07 | 06 05 40 0003 | 0000 00 00"  # Publish, on a channel that is not open; no content follows
    peer << "01 07 | 02 06 40 0003"
    peer >> "01 01 | 06 07 40 0004 | 0000 00 01 'q' 02"  # Browse: the reply that has no content
    peer << "01 01 | 06 09 40 0004"
    peer >> "01 00 | 01 0a 40 0005 | 0000 00 00 00 0000"  # Connection.Close
    peer << "01 00 | 01 0b 40 0005"
    peer >> "01 01 | 06 06 40 0006 |"  # Deliver is none that a server has, well formed or not
    peer << "01 00 | 01 09 00 0006 | 06 06 0006 021c 22 'a server does not have this method'"
    peer >> "01 01 | ff 01 40 0007 |"
    peer << "01 00 | 01 09 00 0007 | ff 01 0007 021c 22 'a server does not have this method'"
    peer >> "01 00 | 01 09 40 0008 | 00 00 0000 0000 00"  # Unknown is not answered
    peer >> "01 00 | 01 09 00 0008 | 00 00 0000 0000 00"
    peer.hears_nothing()


def test_a_stranger_may_ask_what_there_is(stranger: Peer) -> None:
    stranger >> b"AMQP\x01\x01\x00\x09"
    stranger.hears()
    stranger >> "01 01 | 09 01 40 0001"
    stranger << "01 01 | 09 02 40 0001"


def test_an_unreal_method_is_validated(peer: Peer) -> None:
    peer >> "01 01 | 05 01 40 0002 | 0000 00 09 'q' 00 00"
    assert peer.hears()[4:11] == octets("01 0a 00 0000 | 01f6")


@pytest.mark.parametrize(
    "said", ["01 01 | 06 06 00 0006 |", "01 01 | ff 01 00 0007 |", "01 01 | 02 07 00 0007 |"]
)
def test_a_method_that_a_server_has_not_is_fatal(peer: Peer, said: str) -> None:
    peer >> said
    heard = peer.hears()
    assert heard[4:11] == octets("01 0a 00 0000 | 01f7")
    assert heard[-4:] == octets(said.replace("|", ""))[2:4] + octets(said.replace("|", ""))[5:7]


def test_a_trace_follows_what_comes_of_a_method(playbook: Playbook, peer: Peer) -> None:
    other = Peer(playbook)
    other.open()
    other.opens_channel()
    peer >> "01 01 | 05 01 20 0002 | 0000 00 01 'q' 00 00"
    peer << "01 01 | 05 02 20 0002 | 01 'q' 00 00000000 00000000"
    other >> "01 01 | 06 01 00 0004 | 0000 00 01 'q' 0000 0000 02"
    other.hears()
    peer.publishes("a", "q", flags="a0", synctag=5)
    peer << "01 01 | 02 06 20 0005"
    other << (
        "01 01 | 06 06 20 0000 | 0000000000000001 00 00 00 01 'q'\n"
        "02 01 | 06 00 0000000000000001 0200 01 'q'\n03 01 | 'a'"
    )
    peer.publishes("b", "q")
    assert other.hears()[4:9] == octets("06 06 00 0000")


# -- transactions, tickets and tests ---------------------------------------------------------------


def test_a_transaction_is_committed_or_aborted(peer: Peer) -> None:
    peer.has_queue("q")
    peer.opens_channel(2, tx_mode=1)
    peer.publishes("lost", "q", channel=2)
    peer >> "01 02 | 09 03 00 0001"  # Abort
    peer << "01 02 | 09 04 00 0001"
    peer.publishes("kept", "q", channel=2, flags="80", synctag=2)
    peer << "01 02 | 02 06 00 0002"  # accepted
    assert browsed(peer, "q") == ""
    peer >> "01 02 | 09 01 00 0003"  # Commit
    peer << "01 02 | 09 02 00 0003"
    assert browsed(peer, "q") == "kept"


def test_a_channel_without_transactions_has_nothing_to_commit(peer: Peer) -> None:
    peer >> "01 01 | 09 01 00 0003"
    closed_with(peer, 406, "09 01 0003")


def test_a_distributed_transaction_is_begun(peer: Peer) -> None:
    peer.opens_channel(2, tx_mode=2)
    peer >> "01 02 | 0a 01 00 0003 | 02 'x1'"
    peer << "01 02 | 0a 02 00 0003"


def test_another_mode_and_another_way_are_not_served(peer: Peer) -> None:
    peer >> "01 02 | 02 01 00 0005 | 00000000 00 03"
    assert peer.hears()[4:11] == octets("02 04 00 0000 | 021c")
    peer >> "01 03 | 02 01 00 0005 | 00000000 03 'shm' 00"
    assert peer.hears()[4:11] == octets("02 04 00 0000 | 021c")


def test_tickets_are_granted_and_asked_for_where_they_are_enforced() -> None:
    realms = {"/data": RealmSettings(configure=".*", write=".*", read=".*")}
    playbook = Playbook(Config(access=Access(enforced=True, realms=realms)))
    peer = Peer(playbook)
    peer.open()
    peer.opens_channel()
    peer >> "01 01 | 03 01 00 0001 | 05 '/data' 1e"  # passive, active, write, read
    heard = peer.hears()
    assert heard[4:9] == octets("03 02 00 0001")
    ticket = heard[9:11].hex()
    peer >> f"01 01 | 05 01 00 0002 | {ticket} 00 01 'q' 00 00"
    peer << "01 01 | 05 02 00 0002 | 01 'q' 00 00000000 00000000"
    peer >> f"01 01 | 06 05 80 0003 | {ticket} 00 00\n02 01 | 06 00 {1:016x} 0200 01 'q'\n03 01 | 'a'"
    peer << "01 01 | 02 06 00 0003"
    peer >> f"01 01 | 06 07 00 0004 | {ticket} 00 01 'q' 02"
    assert peer.hears().endswith(b"a")
    peer >> "01 01 | 06 05 00 0004 | 0000 00 00\n02 01 | 06 00 0000000000000001 0200 01 'q'\n03 01 | 'b'"
    heard = peer.hears()
    assert heard[4:6] == octets("02 04")
    playbook.end()


def test_the_test_class(peer: Peer) -> None:
    peer >> "01 01 | 0b 01 00 0001 | 01 0002 00000003 0000000000000004 01"  # Integer: add
    peer << "01 01 | 0b 02 00 0001 | 000000000000000a"
    peer >> "01 01 | 0b 03 00 0002 | 02 'ab' 0003 'cde' 03"  # String: the longest
    peer << "01 01 | 0b 04 00 0002 | 0003 'cde'"
    peer >> "01 01 | 0b 05 00 0003 | 00000007 01 'a' 'I' 00000001 01 01"  # Table: add, add
    peer << "01 01 | 0b 06 00 0003 | 0000000000000001 0000"
    peer >> "01 01 | 0b 07 00 0004\n02 01 | 0b 00 0000000000000003 8000 01 'x'\n03 01 | 01 02 ff"
    peer << "01 01 | 0b 08 00 0004 | 00000102\n02 01 | 0b 00 0000000000000003 8000 01 'x'\n03 01 | 01 02 ff"
    peer >> "01 01 | 0b 02 00 0005 | 0000000000000001"  # an answer to nothing
    closed_with(peer, 503, "0b 02 0005")


def test_a_result_that_is_too_long_is_refused(peer: Peer) -> None:
    said = octets("0b 03 00 0009 | 02 'ab' ffff") + bytes(65_535) + b"\x01"
    peer >> octets(f"09 00 0000 | 01 00 0001 {len(said):016x}") + said
    closed_with(peer, 311, "0b 03 0009")


# -- what breaks the rules -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("02 01 | 06 00 0000000000000001 0200 01 'q'", 505),  # a header that nothing has announced
        ("03 01 | 'a'", 505),
        ("01 01 | 06 05 00 0000 | 0000 00 00\n01 01 | 02 03 00 0000 | 00", 505),  # a method in its place
        ("01 01 | 06 05 00 0000 | 0000 00 00\n02 01 | 08 00 0000000000000001 0000", 505),  # another class
        ("01 01 | 06 05 00 0000 | 0000 00 00\n02 01 | 06 01 0000000000000001 0000", 540),  # a child content
        ("01 01 | 06 05 00 0000 | 0000 00 00\n02 01 | 05 00 0000000000000001 0000", 502),  # no content class
        ("01 01 | 06 05 00 0000 | 0000 00 00\n02 01 | 06 00 0000000000000001 0002", 502),  # no such property
        ("01 01 | 06 05 00 0000 | 0000 00 00\n02 01 | 06 00 0000000000000001 0001", 502),
        ("01 01 | 06 05 00 0000 | 0000 00 00\n02 01 | 06 00 0000000000000001 0200 09 'q'", 502),
        (
            "01 01 | 06 05 00 0000 | 0000 00 00\n02 01 | 06 00 0000000000000001 0004 00000005 01 'a' 'Z' 00",
            502,
        ),
        ("01 01 | 06 05 00 0000 | 0000 00 00\n02 01 | 06 00 0000000000000001 0200 01 'q'\n03 01 | 'ab'", 501),
        ("02 00 | 06 00 0000000000000001 0000", 501),  # on channel 0
        ("03 00 | 'a'", 501),
        ("08 01 |", 501),  # a heartbeat on a channel
        ("03 09 | 'a'", 504),  # on a channel that is not open
        ("01 09 | 09 01 00 0000", 504),
        ("01 01 | 02 01 00 0000 | 00000000 00 00", 504),  # opened twice
        ("01 01 | 01 0a 00 0000 | 00c8 00 00 00 0000", 503),  # a method of the connection on a channel
        ("01 00 | 09 01 00 0000", 503),
        ("01 01 | 02 05 00 0000", 503),  # an answer to no close
        ("01 01 | 0b 08 00 0000 | 00000000", 503),
        ("01 01 | 05 03 00 0000 | 0000 00 01 'q' 00 ffffffff", 502),
        ("01 01 | 05 03 00 0000 | 0000 00 01 'q' 00 00000004 01 '1' 'I' 00", 502),  # a name that is none
    ],
)
def test_what_breaks_the_rules_ends_the_connection(peer: Peer, said: str, code: int) -> None:
    peer >> said
    heard = peer.hears()
    assert heard[:2] == b"\x01\x00"
    assert heard[4:11] == octets(f"01 0a 00 0000 | {code:04x}"), heard
    peer >> "01 00 | 01 0b 00 0000"
    assert peer.link.notes[-1] == "finish"


def test_of_a_field_that_stands_twice_the_first_counts(peer: Peer) -> None:
    asserts_proxy(peer, "p", "dest-name")
    peer.has_queue("q")
    registers(peer, "q", "p", named("first"), named("second"))
    peer.publishes("a", "first", "p")
    peer.publishes("b", "second", "p")
    assert browsed(peer, "q") == "a"
    assert browsed(peer, "q") == ""


def test_tables_in_tables_have_an_end(peer: Peer) -> None:
    inner = table()
    for _ in range(17):
        inner = table(f"01 'f' 'F' {inner}")
    peer >> f"01 01 | 0b 05 00 0003 | {inner} 01 01"
    assert peer.hears()[4:11] == octets("01 0a 00 0000 | 01f6")


def test_a_crossing_close_is_answered(peer: Peer) -> None:
    peer >> "01 01 | 09 01 00 0003"
    peer.hears()
    peer >> "01 01 | 05 05 00 0008 | 0000 00 04 'none'"  # discarded
    peer >> "01 01 | 02 04 00 0006 | 00c8 02 'Ok' 00 00 0000"
    peer << "01 01 | 02 05 00 0006"
    peer >> "01 01 | 02 05 00 0000"
    peer.opens_channel()


def test_permissions_are_those_of_every_client(playbook: Playbook, peer: Peer) -> None:
    peer >> "01 01 | 05 01 00 0002 | 0000 00 08 'amq.mine' 00 00"
    closed_with(peer, 403, "05 01 0002")


def test_a_close_names_the_publish_whose_body_is_too_large(peer: Peer) -> None:
    peer.has_queue("q")
    peer.publishes("a", "q", synctag=7)
    peer >> f"01 01 | 06 05 20 0008 | 0000 00 00\n02 01 | 06 00 {1 << 40:016x} 0200 01 'q'"
    heard = peer.hears()
    assert heard[4:11] == octets("02 04 20 0000 | 0196"), heard.hex(" ")
    assert heard.endswith(octets("06 05 0008"))


def test_a_consumer_of_a_queue_that_was_made_again_hears_of_its_end(peer: Peer, playbook: Playbook) -> None:
    peer.has_queue("q")
    peer >> "01 01 | 05 07 00 0012 | 0000 00 01 'q' 00"  # Delete
    peer.hears()
    peer.has_queue("q")
    peer >> "01 01 | 06 01 00 0013 | 0000 00 01 'q' 0000 0000 00"  # Consume
    assert peer.hears()[4:6] == octets("06 02")
    other = playbook.client()
    other >> methods.QueueDelete(queue="q", no_wait=True)
    heard = peer.hears()
    assert heard[4:11] == octets("02 04 00 0000 | 0194"), heard.hex(" ")


def test_a_channel_that_deletes_the_queue_it_asserted_last_goes_on(peer: Peer) -> None:
    peer >> "01 01 | 05 01 00 0006 | 0000 01 'n' 01 'q' 00 00"  # Assert, in a namespace
    peer.hears()
    peer >> "01 01 | 06 01 00 0013 | 0000 01 'n' 01 'q' 0000 0000 00"  # Consume
    assert peer.hears()[4:6] == octets("06 02")
    peer >> "01 01 | 05 07 00 0012 | 0000 00 00 00"  # Delete
    peer << "01 01 | 05 08 00 0012 | 00000000"
    peer.hears_nothing()
