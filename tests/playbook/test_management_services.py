"""What the management process asks for: each step is bounded, however many channels a connection has."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import pytest
from playbook.dialogue import Client
from playbook.hourglass import TimedPlaybook

from flintmq.broker.broker import Broker
from flintmq.broker.services import management_services, system_services
from flintmq.broker.services.management_services import STEP_ROWS, channel_rows, consumer_rows, totals
from flintmq.wire.methods import BasicCancel, BasicConsume, BasicConsumeOk, ChannelOpen, ChannelOpenOk

CHANNELS = 700
# The most that a step looks at.
STEP_MOST = 256


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A connection with many channels, of which the first and the last have consumers."""
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q")
    for number in range(2, CHANNELS + 1):
        client[number] >> ChannelOpen()
        client.hears(ChannelOpenOk, number)
    client.consumes("q", "first")
    client[CHANNELS] >> BasicConsume(queue="q", consumer_tag="last")
    client.hears(BasicConsumeOk, CHANNELS)
    yield client
    playbook.end()


class Asked:
    """As much of a request as totals need."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def reply(self, results: dict[str, Any], body: bytes) -> None:
        self.found = marshal.loads(body)


def test_totals_of_many_channels_are_added_up_in_steps(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[object] = []
    counts_of = management_services.counts_of
    monkeypatch.setattr(management_services, "require_internal", lambda _: None)
    monkeypatch.setattr(
        management_services, "counts_of", lambda each: counted.append(each) or counts_of(each)
    )
    asked, before, steps = Asked(client.session.broker), 0, []
    for _ in totals(asked):  # type: ignore[arg-type]
        steps.append(len(counted) - before)
        before = len(counted)
    steps.append(len(counted) - before)
    assert max(steps) <= STEP_MOST
    assert len(counted) == CHANNELS
    assert asked.found["hosts"]["/"]["channels"] == CHANNELS
    assert asked.found["hosts"]["/"]["connections"] == 1


class CountedChannels(dict[int, Any]):
    """Channels of a connection, and how many were looked at."""

    looked_at = 0

    def __getitem__(self, number: int) -> Any:
        self.looked_at += 1
        return super().__getitem__(number)


class CountedConnection:
    """A connection with such channels."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.channels = CountedChannels(connection.channels)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


@pytest.mark.parametrize(("make", "count"), [(channel_rows, CHANNELS), (consumer_rows, 2)])
def test_rows_are_found_in_steps_and_each_once(client: Client, make: Callable[..., Any], count: int) -> None:
    number = client.session.number
    connection = CountedConnection(client.session.broker.connections[number])
    channels = connection.channels
    source, place, rows, steps = make({number: connection}), "", [], []
    while True:
        before, is_over = channels.looked_at, True
        for looked_at, (at, row) in enumerate(source(place), 1):
            assert at > place
            place = at
            if row is not None:
                rows.append(row)
            if looked_at == STEP_ROWS:
                is_over = False
                break
        steps.append(channels.looked_at - before)
        if is_over:
            break
    assert len(rows) == len(set(map(repr, rows))) == count
    assert max(steps) <= STEP_ROWS + 1


def test_consumers_of_a_channel_are_listed_by_tag_and_sorted_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, tags = 2, [f"tag {number:03}" for number in range(3 * STEP_ROWS)]
    for tag in reversed(tags):
        client[channel] >> BasicConsume(queue="q", consumer_tag=tag, no_wait=True)
    counted: list[object] = []

    def counting(tags: Iterable[str]) -> list[str]:
        counted.append(tags)
        return sorted(tags)

    monkeypatch.setattr(system_services, "sorted", counting, raising=False)
    connection = client.session.broker.connections[client.session.number]
    consumers = connection.channels[channel].consumers
    source = consumer_rows({connection.number: connection})
    place, found = f"{connection.number:010} {channel:05}", []
    for _ in range(3):
        rows = list(islice(source(place), STEP_ROWS))
        place = rows[-1][0]
        found += [row[4] for _, row in rows if row is not None]
        # The next of the list goes while the rows so far are on their way.
        if gone := [tag for tag in tags if tag > found[-1]][:1]:
            client[channel] >> BasicCancel(consumer_tag=gone[0], no_wait=True)
            tags.remove(gone[0])
    for tag in list(consumers):
        client[channel] >> BasicCancel(consumer_tag=tag, no_wait=True)
    assert found == tags
    assert len([each for each in counted if each is consumers]) == 1


def test_pages_of_channels_and_consumers_begin_where_the_one_before_has_ended(client: Client) -> None:
    connection = client.session.broker.connections[client.session.number]
    start = f"{connection.number:010} "
    found = [channel.number for _, channel in system_services.channels_after(connection, f"{start}00698 tag")]
    assert found == [698, 699, 700]
    assert not list(system_services.channels_after(connection, f"{start}~"))
    for after in ("", f"{connection.number - 1:010} ~", start):
        assert len(list(system_services.channels_after(connection, after))) == CHANNELS
