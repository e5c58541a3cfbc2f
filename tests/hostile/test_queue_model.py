"""A queue against a simple model of one: order, redelivered, counts; nothing lost, nothing twice.

The model is a sorted list of numbers. Clients talk to the broker in octets, as over a socket; after
every step the broker has finished its pass. Two connections share one queue, one of them by two channels,
so that no-local consumers refuse what their own connection published.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import hypothesis.strategies as st
from conversation import House, Peer, method_frame, publish
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flintmq.wire import amqp, methods

CONNECTIONS = (0, 1)
CHANNELS = (1, 2)
PLACES = [(0, 1), (0, 2), (1, 1)]
places = st.sampled_from(PLACES)
Place = tuple[int, int]


class Held:
    """A delivery that is not settled, as the client sees it."""

    def __init__(self, number: int, consumer: str | None) -> None:
        self.number = number
        self.consumer = consumer
        self.is_got = consumer is None  # by basic.get; a consumer that is cancelled leaves None as well


class QueueModel(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.house = self.make_house()
        self.peers = [Peer(self.house).login(*CHANNELS) for _ in CONNECTIONS]
        self.peers[0].ask(1, methods.QueueDeclare(queue="q"))
        self.published = 0
        self.origin: dict[int, int] = {}
        self.ready: set[int] = set()
        self.redelivered: set[int] = set()  # handed out before
        self.unacked: dict[Place, dict[int, Held]] = {place: {} for place in PLACES}
        self.consumers: dict[Place, dict[str, tuple[bool, bool, int]]] = {place: {} for place in PLACES}
        self.prefetch: dict[Place, int] = dict.fromkeys(PLACES, 0)
        self.share: dict[Place, int] = dict.fromkeys(PLACES, 0)
        self.flowing: dict[Place, bool] = dict.fromkeys(PLACES, True)
        self.last_tag: dict[Place, int] = dict.fromkeys(PLACES, 0)
        self.settled: set[int] = set()
        self.getting_no_ack = False
        # What each consumer got in this step, in order: who got what first is known to nobody outside.
        self.batch: dict[tuple[Place, str], list[int]] = {}

    def make_house(self) -> House:
        return House()

    def teardown(self) -> None:
        if hasattr(self, "house"):
            self.house.close()

    # Saying and hearing

    def say(self, place: Place, *spoken: methods.Method) -> list[methods.Method]:
        peer = self.peers[place[0]]
        peer.send(b"".join(method_frame(91, place[1], each) for each in spoken))
        return self.hear(place)

    def hear(self, place: Place) -> list[methods.Method]:
        """Takes in every delivery to anyone; the other methods that came to `place`."""
        others: list[methods.Method] = []
        for connection, peer in enumerate(self.peers):
            frames = peer.replies()
            for index, each in enumerate(frames):
                if each.method is None:
                    continue
                here = (connection, each.channel)
                if isinstance(each.method, methods.BasicDeliver):
                    self.delivered(here, each.method, int(frames[index + 2].payload))
                elif isinstance(each.method, methods.BasicGetOk):
                    self.got(here, each.method, int(frames[index + 2].payload))
                else:
                    assert here == place, f"{each.method!r} at {here}"
                    others.append(each.method)
        self.check_order()
        return others

    def check_order(self) -> None:
        """Nobody is handed a message while one before it waits that it would take as well."""
        for (place, name), numbers in self.batch.items():
            assert numbers == sorted(numbers)
            no_local = self.consumers[place][name][1]
            for other in self.ready:
                if not (no_local and self.origin[other] == place[0]):
                    assert other > numbers[-1], f"{numbers[-1]} was handed out before {other}"
        self.batch.clear()

    def take(self, place: Place, tag: int, redelivered: bool, number: int) -> None:
        assert number in self.ready, f"{number} is not there to be handed out"
        assert redelivered == (number in self.redelivered), number
        self.ready.discard(number)
        self.last_tag[place] += 1
        assert tag == self.last_tag[place]

    def delivered(self, place: Place, method: methods.BasicDeliver, number: int) -> None:
        no_ack, no_local, limit = self.consumers[place][method.consumer_tag]
        self.batch.setdefault((place, method.consumer_tag), []).append(number)
        self.take(place, method.delivery_tag, method.redelivered, number)
        assert not (no_local and self.origin[number] == place[0])
        assert self.flowing[place]
        if no_ack:
            self.settled.add(number)
            return
        self.unacked[place][method.delivery_tag] = Held(number, method.consumer_tag)
        mine = [held for held in self.unacked[place].values() if held.consumer == method.consumer_tag]
        assert not limit or len(mine) <= limit
        assert not self.share[place] or self.shared(place) <= self.share[place]

    def shared(self, place: Place) -> int:
        """What counts for the limit that consumers share: not what basic.get has taken."""
        return sum(not held.is_got for held in self.unacked[place].values())

    def got(self, place: Place, method: methods.BasicGetOk, number: int) -> None:
        assert number == min(self.ready)
        self.take(place, method.delivery_tag, method.redelivered, number)
        assert method.message_count == len(self.ready)
        if self.getting_no_ack:
            self.settled.add(number)
        else:
            self.unacked[place][method.delivery_tag] = Held(number, None)

    def put_back(self, place: Place, tags: list[int]) -> None:
        for tag in tags:
            number = self.unacked[place].pop(tag).number
            self.ready.add(number)
            self.redelivered.add(number)

    # What clients do

    @rule(connections=st.lists(st.sampled_from(CONNECTIONS), min_size=1, max_size=6))
    def publish_some(self, connections: list[int]) -> None:
        for connection in connections:
            self.published += 1
            self.origin[self.published] = connection
            self.ready.add(self.published)
            self.peers[connection].wire.feed(publish(1, "", "q", b"%d" % self.published))
        self.house.finish_pass()
        assert self.hear((0, 1)) == []

    @rule(place=places, no_ack=st.booleans())
    def get(self, place: Place, no_ack: bool) -> None:
        self.getting_no_ack = no_ack
        expected = [] if self.ready else ["basic.get-empty"]
        said = self.say(place, methods.BasicGet(queue="q", no_ack=no_ack))
        assert [each.NAME for each in said] == expected

    # Rarely one that takes everything: holes and limits matter only while something is left.
    @rule(
        place=places,
        no_ack=st.sampled_from([False, False, True]),
        no_local=st.sampled_from([True, True, False]),
        name=st.sampled_from("ab"),
    )
    def consume(self, place: Place, no_ack: bool, no_local: bool, name: str) -> None:
        if name in self.consumers[place]:
            return
        self.consumers[place][name] = (no_ack, no_local, self.prefetch[place])
        method = methods.BasicConsume(queue="q", consumer_tag=name, no_ack=no_ack, no_local=no_local)
        said = self.say(place, method)
        assert [each.NAME for each in said] == ["basic.consume-ok"]

    @rule(place=places, name=st.sampled_from("ab"))
    def cancel(self, place: Place, name: str) -> None:
        said = self.say(place, methods.BasicCancel(consumer_tag=name))
        self.consumers[place].pop(name, None)
        for held in self.unacked[place].values():
            if held.consumer == name:
                held.consumer = None
        assert [each.NAME for each in said] == ["basic.cancel-ok"]

    @rule(place=places, count=st.integers(0, 3))
    def qos(self, place: Place, count: int) -> None:
        """basic.qos without global; it ends the limit that the consumers of the channel share."""
        self.prefetch[place] = count
        self.share[place] = 0
        self.say(place, methods.BasicQos(prefetch_count=count))

    @rule(place=places, count=st.integers(0, 4))
    def share_credit(self, place: Place, count: int) -> None:
        """basic.qos with global; a narrower limit holds for what comes, so the model waits with it."""
        if count and self.shared(place) > count:
            return
        self.share[place] = count
        self.say(place, methods.BasicQos(prefetch_count=count, global_=True))

    @rule(place=places, active=st.booleans())
    def flow(self, place: Place, active: bool) -> None:
        self.flowing[place] = active
        said = self.say(place, methods.ChannelFlow(active=active))
        assert [each.NAME for each in said] == ["channel.flow-ok"]

    @precondition(lambda self: any(self.unacked.values()))
    @rule(data=st.data(), multiple=st.booleans(), way=st.sampled_from(["ack", "nack", "requeue", "reject"]))
    def settle(self, data: st.DataObject, multiple: bool, way: str) -> None:
        place = data.draw(st.sampled_from([each for each in PLACES if self.unacked[each]]))
        tag = data.draw(st.sampled_from(sorted(self.unacked[place])))
        tags = [each for each in self.unacked[place] if each == tag or (multiple and each < tag)]
        if way == "reject":
            tags = [tag]
        method: Any = {
            "ack": methods.BasicAck(delivery_tag=tag, multiple=multiple),
            "nack": methods.BasicNack(delivery_tag=tag, multiple=multiple, requeue=False),
            "requeue": methods.BasicNack(delivery_tag=tag, multiple=multiple, requeue=True),
            "reject": methods.BasicReject(delivery_tag=tag, requeue=True),
        }[way]
        if way in ("requeue", "reject"):
            self.put_back(place, tags)
        else:
            for each in tags:
                self.settled.add(self.unacked[place].pop(each).number)
        assert self.say(place, method) == []

    def settle_wrongly(self, place: Place, kind: str, nack: bool) -> None:
        """A tag the channel does not hold closes it, and what it held comes back."""
        last = self.last_tag[place]
        gone = [tag for tag in range(1, last + 1) if tag not in self.unacked[place]]
        tag = {"zero": 0, "future": last + 1, "huge": 2**64 - 1, "other": last + 5}.get(kind, 0)
        if kind == "twice":
            if not gone:
                return
            tag = gone[-1]
        method: Any = methods.BasicNack(delivery_tag=tag) if nack else methods.BasicAck(delivery_tag=tag)
        self.channel_goes(place)
        said = self.say(place, method)
        assert [each.NAME for each in said] == ["channel.close"]
        assert said[0].reply_code == amqp.PRECONDITION_FAILED  # type: ignore[attr-defined]
        self.say(place, methods.ChannelCloseOk())
        assert [each.NAME for each in self.say(place, methods.ChannelOpen())] == ["channel.open-ok"]

    def channel_goes(self, place: Place) -> None:
        self.consumers[place].clear()
        self.put_back(place, list(self.unacked[place]))
        self.prefetch[place] = self.share[place] = self.last_tag[place] = 0
        self.flowing[place] = True

    def close_channel(self, place: Place) -> None:
        self.channel_goes(place)
        said = self.say(place, methods.ChannelClose(), methods.ChannelOpen())
        assert [each.NAME for each in said] == ["channel.close-ok", "channel.open-ok"]

    def reconnect(self, connection: int, politely: bool) -> None:
        for place in PLACES:
            if place[0] == connection:
                self.channel_goes(place)
        # The old connection's messages are nobody's own now.
        self.origin = {number: -1 if own == connection else own for number, own in self.origin.items()}
        if politely:
            self.peers[connection].send(method_frame(91, 0, methods.ConnectionClose()))
        else:
            self.peers[connection].wire.drop()
            self.house.finish_pass()
        self.peers[connection] = Peer(self.house).login(*CHANNELS)
        assert self.hear((connection, 1)) == []

    @rule(place=places)
    def recover(self, place: Place) -> None:
        self.put_back(place, list(self.unacked[place]))
        said = self.say(place, methods.BasicRecover(requeue=True))
        assert [each.NAME for each in said] == ["basic.recover-ok"]

    @rule(place=places)
    def recover_to_the_same(self, place: Place) -> None:
        """Without requeue: a living consumer gets its own again, whatever its limits are."""
        if not self.flowing[place]:
            return
        again = sorted((held.number, tag) for tag, held in self.unacked[place].items() if held.consumer)
        self.peers[place[0]].wire.feed(method_frame(91, place[1], methods.BasicRecover(requeue=False)))
        self.put_back(place, list(self.unacked[place]))
        self.house.finish_pass()
        said = self.hear_recovered(place, {number for number, _ in again})
        assert [each.NAME for each in said] == ["basic.recover-ok"]

    def hear_recovered(self, place: Place, again: set[int]) -> list[methods.Method]:
        """Recovered messages go out in the order of their old tags, ahead of the ready ones."""
        kept, self.ready = self.ready, set(again)
        consumers = self.consumers[place]
        self.consumers[place] = {name: (no_ack, False, 0) for name, (no_ack, _, _) in consumers.items()}
        peer = self.peers[place[0]]
        share, self.share[place] = self.share[place], 0
        frames = peer.replies()
        others: list[methods.Method] = []
        for index, each in enumerate(frames):
            if isinstance(each.method, methods.BasicDeliver) and (place[0], each.channel) == place:
                number = int(frames[index + 2].payload)
                if number in self.ready:
                    self.take(place, each.method.delivery_tag, each.method.redelivered, number)
                    self.unacked[place][each.method.delivery_tag] = Held(number, each.method.consumer_tag)
                    continue
            if isinstance(each.method, methods.BasicRecoverOk):
                assert not self.ready, f"{self.ready} were not delivered again"
                self.ready = kept - again
                self.consumers[place], self.share[place] = consumers, share
                others.append(each.method)
                rest = frames[index + 1 :]
                self.hear_rest(place[0], rest)
                break
        return others + self.hear(place)

    def hear_rest(self, connection: int, frames: list[Any]) -> None:
        for index, each in enumerate(frames):
            if isinstance(each.method, methods.BasicDeliver):
                place = (connection, each.channel)
                self.delivered(place, each.method, int(frames[index + 2].payload))

    def purge(self, place: Place) -> None:
        count = len(self.ready)
        self.settled |= self.ready
        self.ready.clear()
        said = self.say(place, methods.QueuePurge(queue="q"))
        assert [each.message_count for each in said] == [count]  # type: ignore[attr-defined]

    @rule(data=st.data(), place=places)
    def disturb(self, data: st.DataObject, place: Place) -> None:
        """What clears the board: one rule of them all, so that the board is not always clear."""
        what = data.draw(st.sampled_from(["settle wrongly", "close channel", "reconnect", "purge"]))
        if what == "settle wrongly":
            kind = data.draw(st.sampled_from(["zero", "future", "huge", "twice", "other"]))
            self.settle_wrongly(place, kind, data.draw(st.booleans()))
        elif what == "close channel":
            self.close_channel(place)
        elif what == "reconnect":
            self.reconnect(place[0], data.draw(st.booleans()))
        else:
            self.purge(place)

    # What must hold

    @invariant()
    def the_queue_counts_right(self) -> None:
        queue = self.house.broker.virtual_hosts["/"].queues["q"]
        assert queue.message_count() == len(self.ready)
        held = sum(len(each) for each in self.unacked.values())
        assert queue.unacked == held
        assert len(self.settled) + held + len(self.ready) == self.published
        assert len(queue.consumers) == sum(len(each) for each in self.consumers.values())

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        """A message is ready only while no consumer may take it."""
        for place in PLACES:
            for name, (no_ack, no_local, limit) in self.consumers[place].items():
                mine = [held for held in self.unacked[place].values() if held.consumer == name]
                has_credit = no_ack or (
                    (not limit or len(mine) < limit)
                    and (not self.share[place] or self.shared(place) < self.share[place])
                )
                if self.flowing[place] and has_credit:
                    wanted = [each for each in self.ready if not no_local or self.origin[each] != place[0]]
                    assert not wanted, f"{name} at {place} could take {wanted}"


class StoredQueueModel(QueueModel):
    """The same with a data directory, where most of the queue lies on disk."""

    def make_house(self) -> House:
        self.directory = tempfile.TemporaryDirectory()
        house = House(directory=f"{self.directory.name}/data")
        store = house.broker.store
        assert store is not None
        store.kept_messages = store.loaded_messages = 2
        return house

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "directory"):
            self.directory.cleanup()


QueueModel.TestCase.settings = settings(
    max_examples=int(os.environ.get("FLINTMQ_MODEL_EXAMPLES", "200")), stateful_step_count=50
)
StoredQueueModel.TestCase.settings = settings(
    max_examples=int(os.environ.get("FLINTMQ_MODEL_EXAMPLES", "200")) // 4, stateful_step_count=50
)
TestQueueModel = QueueModel.TestCase
TestStoredQueueModel = StoredQueueModel.TestCase
