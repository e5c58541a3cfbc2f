"""What comes again and again in AMQP/Fast 0.9 is taken in one go: it has to be what the long way makes of it.

A publish takes the short way if its content is all there and it is like the one before on its channel. Frames
that come one at a time never do: so the same frames, in one piece and one at a time, have to be heard alike.
"""

from __future__ import annotations

from random import Random

import pytest
from fast09.conversation import Peer, framed, octets, short_text
from playbook.dialogue import Playbook

KEYS = ("q", "q", "q", "other", "nobody")
# Flags of a header and what stands behind its destination: nothing, a message id, a priority, a type.
PROPERTIES = ("0200 {key}", "0280 {key} 02 'id'", "1200 05 {key}", "0220 {key} 01 't'")


def publish(
    body: bytes,
    key: str = "q",
    proxy: str = "",
    synctag: int = 0,
    flags: int = 0,
    immediate: int = 0,
    properties: str = PROPERTIES[0],
    class_id: int = 6,
    channel: int = 1,
) -> str:
    """The frames of a publish, one on a line."""
    said = f"01 {channel:02x} | {class_id:02x} 05 {flags:02x} {synctag:04x} | "
    said += f"0000 {short_text(proxy)} {immediate:02x}"
    header = properties.format(key=short_text(key))
    said += f"\n02 {channel:02x} | {class_id:02x} 00 {len(body):016x} {header}"
    return said + (f"\n03 {channel:02x} | {body.hex()}" if body else "")


def some_publish(chance: Random, kind: str, has_synchpoints: bool) -> str:
    if chance.random() < (0.8 if kind == "08" else 0.1):
        return publish(b"s", chance.choice(("q", "q", "q", "other")), class_id=8, properties="1000 {key}")
    return publish(
        bytes(chance.choices(b"abcde", k=chance.choice((0, 1, 3, 3, 40)))),
        chance.choice(KEYS),
        chance.choice(("", "", "", "amq.direct")),
        chance.choice((0, 0, 0, 7)),
        chance.choice((0, 0, 0, 0, 0x20, 0x80 if has_synchpoints else 0)),
        properties=chance.choice(PROPERTIES * 2 + PROPERTIES[:1] * 8),
        channel=chance.choice((1, 1, 2)),
    )


def breaking(chance: Random) -> str:
    """Frames that break a rule, or something like that."""
    publish_ = "01 01 | 06 05 00 0009 | 0000 00 00\n"
    header = "02 01 | 06 00 0000000000000001 0200 01 'q'\n"
    return chance.choice(
        (
            "01 01 | 06 05 00 0009 | 0000 04 'gone' 00\n" + header + "03 01 | 'x'",
            publish_ + "02 01 | 06 01 0000000000000001 0200 01 'q'\n03 01 | 'x'",
            publish_ + "02 01 | 08 00 0000000000000001 0200 01 'q'\n03 01 | 'x'",
            publish_ + "02 02 | 06 00 0000000000000001 0200 01 'q'\n03 01 | 'x'",
            publish_ + "02 01 | 06 00 0000000000000002 0200 01 'q'\n03 01 | 'xxx'",
            publish_ + "02 01 | 06 00 0000000000000001 0200 05 'q'\n03 01 | 'x'",
            publish_ + header + "03 02 | 'x'",
            publish_ + publish_,
            "01 01 | 06 05 0f 0009 | 0000 00 00",
            "01 01 | 06 05 00 0009 | 0000 00",
            "01 01 | 06 0a 00 000a | 00000000000000ff 00",
            "01 01 | 06 0a 00 000a | 00000000000000ff",
            header,
            "03 01 | 'x'",
            "01 03 | 06 0a 00 000a | 0000000000000001 00",
        )
    ).strip()


def listening(playbook: Playbook, kind: str = "06") -> Peer:
    """Two channels with a consumer each, of queues without priorities, which would change the order."""
    peer = Peer(playbook)
    peer.open()
    other = playbook.client()
    for channel, queue in ((1, "q"), (2, "other")):
        other.declares(queue)
        peer.opens_channel(channel)
        said = f"01 {channel:02x} | {kind} 01 00 0004 | 0000 00 {short_text(queue)} 0000 0000"
        peer >> (f"{said} 00000000 00" if kind == "08" else f"{said} 02")
        peer.hears()
    peer >> "01 01 | 05 03 00 0003 | 0000 00 05 'other' 0a 'amq.direct' 00000000"
    peer.hears()
    return peer


def heard_of(said: str, at_once: bool, kind: str) -> tuple[list[bytes], list[bytes]]:
    """What the publisher hears, and what a consumer does."""
    playbook = Playbook()
    try:
        consumer, peer = listening(playbook, kind), Peer(playbook)
        peer.open()
        for channel in (1, 2):
            peer.opens_channel(channel)
        for part in [said] if at_once else said.splitlines():
            peer >> part
        return frames_of(peer.hears()), frames_of(consumer.hears())
    finally:
        playbook.end()


@pytest.mark.parametrize("kind", ["06", "08"])
@pytest.mark.parametrize("seed", range(30))
def test_frames_in_one_piece_are_heard_as_those_that_come_one_at_a_time(seed: int, kind: str) -> None:
    chance = Random(seed)
    # What is confirmed at the end of a pass is not confirmed any more once the channel is closed in it.
    is_broken = seed % 3 == 0
    said = [some_publish(chance, kind, not is_broken) for _ in range(40)]
    if is_broken:
        said.insert(chance.randrange(20, 40), breaking(chance))
    whole = "\n".join(said)
    answers, deliveries = heard_of(whole, True, kind)
    assert len(deliveries) > 20
    other_answers, other_deliveries = heard_of(whole, False, kind)
    for channel in (0, 1, 2):  # of two channels one or the other may have its turn first
        assert on_channel(answers, channel) == on_channel(other_answers, channel)
        assert on_channel(deliveries, channel) == on_channel(other_deliveries, channel)


def on_channel(found: list[bytes], channel: int) -> list[bytes]:
    return [frame for frame in found if frame[1] == channel]


def frames_of(heard: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(heard):
        end = at + 4 + int.from_bytes(heard[at + 2 : at + 4], "big")
        found.append(heard[at:end])
        at = end
    return found


def test_publishes_may_be_cut_anywhere(playbook: Playbook) -> None:
    peer = listening(playbook)
    whole = framed("\n".join(publish(body) for body in (b"one", b"two", b"three")))
    for cut in range(len(whole)):
        peer >> whole[:cut] >> whole[cut:]
        bodies = [frame[4:] for frame in frames_of(peer.hears()) if frame[0] == 3]
        assert bodies == [b"one", b"two", b"three"], cut


def test_a_publish_that_fails_is_named_with_its_own_synctag(playbook: Playbook) -> None:
    peer = listening(playbook)
    peer >> "01 01 | 04 01 00 0010 | 0000 01 'p' 06 'fanout' 00"
    peer.hears()
    peer >> "\n".join((publish(b"x", proxy="p", synctag=1), publish(b"x", proxy="p", synctag=2)))
    peer >> "01 02 | 04 03 00 0007 | 0000 01 'p' 00"  # Proxy.Delete
    peer.hears()
    peer >> publish(b"x", proxy="p", synctag=3)
    heard = peer.hears()
    assert heard[4:11] == octets("02 04 00 0000 | 0194"), heard
    assert heard.endswith(octets("06 05 0003")), heard


def test_a_channel_that_is_opened_again_has_forgotten_what_was_published(playbook: Playbook) -> None:
    peer = listening(playbook)
    peer >> publish(b"x", channel=2) >> publish(b"y", channel=2)
    peer.hears()
    peer >> "01 02 | 02 04 00 0009 | 0000 00 00 00 0000"
    peer.hears()
    peer >> publish(b"x", channel=2)
    assert peer.hears()[4:6] == octets("01 0a")  # Connection.Close: the channel is not open


@pytest.mark.parametrize("class_id", ["06", "07"])
def test_acks_are_taken_one_by_one_and_many_at_a_time(playbook: Playbook, class_id: str) -> None:
    peer = Peer(playbook)
    peer.open()
    peer.opens_channel()
    peer.has_queue("q")
    peer >> "01 01 | 06 01 00 0004 | 0000 00 01 'q' 0000 0000 00"
    peer >> "\n".join(publish(b"x") for _ in range(5))
    peer.hears()
    queue = playbook.broker.virtual_hosts["/"].queues["q"]
    peer >> f"01 01 | {class_id} 0a 00 0000 | 0000000000000002 00"
    assert queue.unacked == 4
    peer >> f"01 01 | {class_id} 0a 00 0000 | 0000000000000004 01"
    assert queue.unacked == 1
    peer >> f"01 01 | {class_id} 0a 00 0008 | 0000000000000009 00"
    heard = peer.hears()
    assert heard[4:11] == octets("02 04 00 0000 | 0196"), heard
    assert heard.endswith(octets(f"{class_id} 0a 0008")), heard


def test_deliveries_have_the_headers_of_their_own_messages(playbook: Playbook) -> None:
    peer = listening(playbook)
    kinds = [(size, each) for size in (1, 300) for each in (*PROPERTIES, PROPERTIES[1])]
    peer >> "\n".join(publish(b"x" * size, properties=each) for size, each in kinds)
    headers = [frame[4:] for frame in frames_of(peer.hears()) if frame[0] == 2]
    key = short_text("q")
    assert headers == [octets(f"06 00 {size:016x} " + each.format(key=key)) for size, each in kinds]


def test_a_channel_above_255_has_extended_frames(playbook: Playbook) -> None:
    peer = Peer(playbook)
    peer.open()
    extended = "09 00 0000 {kind:02x} 00 012c {size:016x}"

    def sends(kind: int, text: str) -> None:
        body = octets(text)
        peer.receive(octets(extended.format(kind=kind, size=len(body))) + body)

    sends(1, "02 01 00 0005 00000000 00 00")
    sends(1, "05 01 00 0006 0000 00 01 'q' 00 00")
    sends(1, "06 01 00 0007 0000 00 01 'q' 0000 0000 02")
    peer.hears()
    for body in ("one", "two"):
        sends(1, "06 05 00 0000 0000 00 00")
        sends(2, f"06 00 {len(body):016x} 0200 01 'q'")
        sends(3, f"'{body}'")
        tag = 1 if body == "one" else 2
        deliver = octets(f"06 06 00 0000 {tag:016x} 00 00 00 01 'q'")
        header = octets(f"06 00 {len(body):016x} 0200 01 'q'")
        wanted = b"".join(
            octets(extended.format(kind=kind, size=len(part))) + part
            for kind, part in ((1, deliver), (2, header), (3, body.encode()))
        )
        peer << wanted
