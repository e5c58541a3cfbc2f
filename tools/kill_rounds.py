"""Kills a broker with SIGKILL under load, starts it again on what it left, and compares; round after round.

    python tools/kill_rounds.py --rounds 1000 --seed 7

    start -> clean? -> load (publishers, transactions, consumers, topology) -> kill -9
      ^                                                                        |
      +--- drain, compare with what was promised <--- start again <------------+

What must hold after each kill, for every queue:

    a confirmed message whose ack was never sent       there, once, with its own content
    an ack that is on disk for certain                 its message does not come back
    a message that reached a consumer                  says `redelivered` if it comes back
    messages of one publisher                          in the order in which they were published
    a message for several queues                       in all of them or in none
    a transaction                                      messages and acks together, or nothing of it
    durable topology that was promised                   there; deleted topology is not
    transient messages, queues that are not durable    gone
    what lay there untouched since the first round     still there

and what `kill_kinds.py` says of expiry and dead letters, delays, priorities, streams and leases.

Ends at the first thing that is not so, with status 1; the data directory is then left for a look.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from kill_kinds import (
    DEAD,
    DELAYED,
    DELAYS_MS,
    HOMES,
    LATER,
    LEASED,
    RANKED,
    STREAM,
    TTL,
    BriefReader,
    KindPublisher,
    LeaseReader,
    SteadyReader,
    StreamFollower,
    check_lease,
    declare_kinds,
    fetched,
    name_of,
    open_services,
    tagged,
)
from kill_load import (
    BINDINGS,
    FANOUT,
    MARKS,
    QUEUES,
    TOPIC,
    Bodies,
    Client,
    Consumer,
    Decorator,
    Publisher,
    Sent,
    Taken,
    Transaction,
    Transactor,
    starts,
)
from peer import Peer

from flintmq.wire import amqp, methods
from flintmq.wire.tables import FieldTable

KEEPSAKES = "rounds.keepsakes"
KEEPSAKES_COUNT = 25
EXPIRY_TIMEOUT_S = 10.0
BEGIN_TIMEOUT_S = 5.0  # on a machine that has other things to do


class Broken(Exception):
    """A promise was not kept."""


class Broker:
    """`flintmq serve` on a data directory; ends by SIGKILL."""

    def __init__(self, python: str, data: Path) -> None:
        command = [python, "-m", "flintmq", "serve", "--host", "127.0.0.1", "--port", "0"]
        self.log = (data.parent / "broker.log").open("ab")
        self.process = subprocess.Popen(
            [*command, "--data", str(data)], stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        if "listening on" not in self.line:
            raise Broken(f"the broker did not start: {self.line!r}, status {self.process.wait()}")
        self.port = int(self.line.rsplit(":", 1)[1])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.log.close()


@dataclass(frozen=True, slots=True)
class Found:
    """A message as it came out of a queue after the kill."""

    name: str
    redelivered: bool


class Ledger:
    """What one round's clients were promised, against what was found."""

    def __init__(self, clients: list[Client], figures: Counter[str]) -> None:
        self.figures = figures
        self.publishers = [each for each in clients if isinstance(each, Publisher)]
        self.transactions = [
            work for each in clients if isinstance(each, Transactor) for work in each.transactions
        ]
        self.sent: dict[str, Sent] = {sent.name: sent for each in self.publishers for sent in each.sent}
        for work in self.transactions:
            self.sent.update((sent.name, sent) for sent in work.sent)
        self.transient = {name for each in self.publishers for name in each.transient}
        self.taken: dict[tuple[str, str], list[Taken]] = {}
        for client in clients:
            for taken in client.taken if isinstance(client, (Consumer, LeaseReader)) else ():
                self.taken.setdefault((taken.queue, taken.name), []).append(taken)
        self.tx_acked = {
            (taken.queue, taken.name): work for work in self.transactions for taken in work.acked
        }

    def compare(self, found: dict[str, list[Found]]) -> None:
        there = {queue: {each.name: each for each in messages} for queue, messages in found.items()}
        for queue, messages in found.items():
            self.compare_queue(queue, messages)
        for publisher in self.publishers:
            for sent in publisher.sent:
                self.compare_sent(sent, there, sent.promised)
                self.figures["confirmed" if sent.promised else "unconfirmed"] += 1
        for work in self.transactions:
            self.compare_transaction(work, there)

    def compare_queue(self, queue: str, messages: list[Found]) -> None:
        """Nothing twice, nothing invented, nothing transient, nothing settled, and in order."""
        last: dict[str, str] = {}
        for found in messages:
            group = self.sent[found.name].group if found.name in self.sent else ""
            source = f"{found.name.rpartition('-')[0]}/{group}"
            if found.name <= last.get(source, ""):
                raise Broken(f"{queue}: {found.name} comes behind {last[source]}")
            last[source] = found.name
            if found.name in self.transient:
                raise Broken(f"{queue}: {found.name} is transient and came back")
            sent = self.sent.get(found.name)
            if sent is None or queue not in sent.queues:
                raise Broken(f"{queue}: {found.name} was never published to it")
            taken = self.taken.get((queue, found.name), [])
            if any(each.settled for each in taken):
                raise Broken(f"{queue}: {found.name} was acked, the ack was on disk, and it came back")
            if taken:
                if not found.redelivered:
                    raise Broken(f"{queue}: {found.name} was handed out before, and does not say so")
                kind = "acked, not yet settled" if any(each.acked for each in taken) else "unacked"
                self.figures[f"came back {kind}"] += 1

    def compare_sent(self, sent: Sent, there: dict[str, dict[str, Found]], promised: bool) -> None:
        """In all of its queues or in none; in all, if that was promised."""
        missing, present = [], []
        for queue in sent.queues:
            if sent.name in there[queue]:
                present.append(queue)
            elif not self.may_be_settled(queue, sent.name):
                missing.append(queue)
        if missing and promised:
            raise Broken(f"{sent.name} was promised and is not in {missing}")
        if missing and present and sent.is_whole:
            raise Broken(f"{sent.name} is in {present} and not in {missing}")

    def may_be_settled(self, queue: str, name: str) -> bool:
        acked = any(each.acked for each in self.taken.get((queue, name), ()))
        return acked or (queue, name) in self.tx_acked

    def compare_transaction(self, work: Transaction, there: dict[str, dict[str, Found]]) -> None:
        self.figures["transactions committed" if work.promised else "transactions under way"] += 1
        seen: dict[bool, str] = {}  # in force or not, and the witness
        for sent in work.sent:
            self.compare_sent(sent, there, work.promised)
            for queue in sent.queues:
                if sent.name in there[queue]:
                    seen[True] = f"{sent.name} is in {queue}"
                elif not self.may_be_settled(queue, sent.name):
                    seen[False] = f"{sent.name} is not in {queue}"
        for taken in work.acked:
            if taken.name in there[taken.queue]:
                seen[False] = f"{taken.name} is in {taken.queue} again"
            elif taken.name in self.sent and self.sent[taken.name].promised:
                seen[True] = f"{taken.name} is gone from {taken.queue}"
        if len(seen) == 2 or (work.promised and False in seen):
            raise Broken(f"half a transaction: {seen[False]}, {seen.get(True, 'and it was committed')}")


class Rounds:
    """The broker, its data directory and the figures, over all rounds."""

    def __init__(self, python: str, seed: int, seconds: float, data: Path) -> None:
        self.python = python
        self.seed = seed
        self.seconds = seconds
        self.data = data
        self.chance = random.Random(seed)
        self.bodies = Bodies(seed)
        self.figures: Counter[str] = Counter()
        self.restart_s: list[float] = []
        self.stream_end = 0
        self.broker = self.start()
        self.build = self.broker.line.partition("(")[2].partition(")")[0]
        with Peer.connect(self.broker.port) as peer:
            peer.open(1)
            self.declare(peer)
            declare_kinds(peer)

    def start(self) -> Broker:
        begun = time.monotonic()
        broker = Broker(self.python, self.data)
        self.restart_s.append(time.monotonic() - begun)
        return broker

    def declare(self, peer: Peer) -> None:
        peer.call(1, methods.ExchangeDeclare(exchange=TOPIC, type="topic", durable=True))
        peer.call(1, methods.ExchangeDeclare(exchange=FANOUT, type="fanout", durable=True))
        for queue in (*QUEUES, MARKS, KEEPSAKES):
            peer.call(1, methods.QueueDeclare(queue=queue, durable=True))
        for exchange, key, queue in BINDINGS:
            peer.call(1, methods.QueueBind(queue=queue, exchange=exchange, routing_key=key))
        peer.call(1, methods.ConfirmSelect())
        for number in range(KEEPSAKES_COUNT):
            peer.publish(1, b"keep" * number, key=KEEPSAKES, delivery_mode=2)
            peer.expect(1, methods.BasicAck)

    def round(self, number: int) -> None:
        port = self.broker.port
        names = [(f"{number}.p{each}", f"{self.seed}/{number}/{each}") for each in range(11)]
        clients: list[Client] = [
            Publisher(names[0][0], port, self.bodies, names[0][1]),
            Publisher(names[1][0], port, self.bodies, names[1][1]),
            Transactor(names[2][0], port, self.bodies, names[2][1]),
            Consumer(names[3][0], port, self.bodies, names[3][1], QUEUES[:2]),
            Consumer(names[4][0], port, self.bodies, names[4][1], QUEUES[2:]),
            Decorator(names[5][0], port, self.bodies, names[5][1]),
        ]
        brief = BriefReader(names[6][0], port, self.bodies, names[6][1])
        publisher = KindPublisher(names[8][0], port, self.bodies, names[8][1])
        kinds: list[Client] = [
            brief,
            SteadyReader(names[7][0], port, self.bodies, names[7][1], brief),
            publisher,
            Consumer(names[9][0], port, self.bodies, names[9][1], (RANKED, DELAYED)),
            StreamFollower(names[10][0], port, self.bodies, names[10][1], self.stream_end),
        ]
        with Peer.connect(port) as peer:
            peer.open(1)
            peer.call(1, methods.QueueDeclare(queue="rounds.passing"))
            join = starts([*clients, *kinds])
            publisher.begun.wait(BEGIN_TIMEOUT_S)
            time.sleep(self.seconds * self.chance.uniform(0.2, 1.8))
            self.broker.kill()
        join()
        self.broker = self.start()
        with Peer.connect(self.broker.port) as peer:
            peer.open(1)
            found = {queue: self.drain(peer, queue) for queue in QUEUES}
            Ledger(clients, self.figures).compare(found)
            self.check_kinds(peer, kinds)
            self.check_values(peer, [each for each in clients if isinstance(each, Decorator)])
            self.settle_all(peer)
        self.figures["found after the kill"] += sum(map(len, found.values()))
        self.figures["taken before the kill"] += sum(
            len(each.taken) for each in clients if isinstance(each, Consumer)
        )

    def check_kinds(self, peer: Peer, kinds: list[Client]) -> None:
        open_services(peer)
        readers = [each for each in kinds if isinstance(each, LeaseReader)]
        self.figures["leased rows found again"] += sum(check_lease(peer, each) for each in readers)
        found = {
            STREAM: self.check_stream(peer, [each for each in kinds if isinstance(each, StreamFollower)])
        }
        self.await_expiry(peer)
        found[DELAYED] = self.drain_delayed(peer)
        for queue in (DEAD, RANKED, LEASED):
            found[queue] = self.drain(peer, queue)
        ledger = Ledger(kinds, self.figures)
        self.check_ranks(found[RANKED], ledger.sent)
        ledger.compare(found)
        for queue in HOMES:
            self.figures[f"found in {queue}"] += len(found[queue])

    def check_stream(self, peer: Peer, followers: list[StreamFollower]) -> list[Found]:
        """What was read at an offset is there still; nothing is missing between."""
        rows = fetched(peer, self.bodies, self.stream_end)
        for at, (offset, _) in enumerate(rows, self.stream_end):
            if offset != at:
                raise Broken(f"{STREAM}: offset {offset} comes where {at} was due")
        names = dict(rows)
        for follower in followers:
            for offset, name in follower.names.items():
                if names.get(offset) != name:
                    raise Broken(f"{STREAM}: offset {offset} was {name} and is {names.get(offset)}")
                self.figures["offsets found again"] += 1
        self.stream_end += len(rows)
        return [Found(name, False) for _, name in rows]

    def await_expiry(self, peer: Peer) -> None:
        """What is in a queue for some milliseconds only has left it when this returns."""
        until = time.monotonic() + EXPIRY_TIMEOUT_S
        while peer.call(1, methods.QueueDeclare(queue=TTL, passive=True)).message_count:
            if time.monotonic() > until:
                raise Broken(f"{TTL}: what should have expired is there")

    def drain_delayed(self, peer: Peer) -> list[Found]:
        """All that was due before a message which is sent now, and that is all there was."""
        last = "last-of-all"
        headers = {"x-delay": 2 * max(DELAYS_MS)}
        body = tagged(self.bodies, last, 0)
        peer.publish(1, body, exchange=LATER, key="k", message_id=last, headers=headers)
        peer.call(1, methods.BasicConsume(queue=DELAYED, consumer_tag=DELAYED, no_ack=True))
        found = []
        while True:
            method, content = peer.delivery(1)
            name = name_of(self.bodies, content.body)
            if name == last:
                break
            found.append(Found(name, bool(method.redelivered)))
        peer.call(1, methods.BasicCancel(consumer_tag=DELAYED))
        return found

    def check_ranks(self, found: list[Found], sent: dict[str, Sent]) -> None:
        ranks = [int(sent[each.name].group) for each in found if each.name in sent]
        if ranks != sorted(ranks, reverse=True):
            raise Broken(f"{RANKED}: a lower priority comes before a higher one: {ranks}")

    def drain(self, peer: Peer, queue: str) -> list[Found]:
        """All that is in the queue, contents checked."""
        count = peer.call(1, methods.QueueDeclare(queue=queue, passive=True)).message_count
        peer.call(1, methods.BasicConsume(queue=queue, consumer_tag=queue, no_ack=True))
        found = []
        for _ in range(count):
            method, content = peer.delivery(1)
            name = content.properties.message_id
            if queue in HOMES:
                if name_of(self.bodies, content.body) != name:
                    raise Broken(f"{queue}: {name} has another body than was published")
            elif content.body != self.bodies.of(name, len(content.body)):
                raise Broken(f"{queue}: {name} has another body than was published")
            found.append(Found(name, bool(method.redelivered)))
        peer.call(1, methods.BasicCancel(consumer_tag=queue))
        return found

    def check_values(self, peer: Peer, decorators: list[Decorator]) -> None:
        for exchange, kind in ((TOPIC, "topic"), (FANOUT, "fanout")):
            peer.call(1, methods.ExchangeDeclare(exchange=exchange, type=kind, durable=True))
        kept = peer.call(1, methods.QueueDeclare(queue=KEEPSAKES, passive=True)).message_count
        if kept != KEEPSAKES_COUNT:
            raise Broken(f"{kept} of {KEEPSAKES_COUNT} messages that nobody touched are left")
        self.must_be_gone(peer, "rounds.passing")
        for decorator in decorators:
            for name in decorator.gone:
                self.must_be_gone(peer, name)
            peer.call(1, methods.ConfirmSelect())
            for name in decorator.certain:
                number = int(name.rpartition("-")[2])
                arguments: FieldTable = {"x-text": name, "x-number": number}
                peer.call(1, methods.QueueDeclare(queue=name, durable=True, arguments=arguments))
                peer.publish(1, b"", exchange="amq.direct", key=name, mandatory=True)
                peer.expect(1, methods.BasicAck)  # a basic.return would come first
                peer.call(1, methods.QueueDelete(queue=name))
                self.figures["topology checked"] += 1
            # The one whose answer never came may be there or not.
            peer.call(1, methods.QueueDelete(queue=f"{decorator.name}-{decorator.count}"))

    def must_be_gone(self, peer: Peer, name: str) -> None:
        peer.send(1, methods.QueueDeclare(queue=name, passive=True))
        peer.expect_channel_close(1, amqp.NOT_FOUND)
        peer.open(1)
        self.figures["topology checked"] += 1

    def settle_all(self, peer: Peer) -> None:
        """What was drained never comes back: the confirm of a later message says so."""
        peer.call(1, methods.QueuePurge(queue=MARKS))
        peer.call(1, methods.ConfirmSelect())
        peer.publish(1, b"", key=MARKS, delivery_mode=2)
        peer.expect(1, methods.BasicAck)


def run(options: argparse.Namespace) -> int:
    place = Path(tempfile.mkdtemp(prefix="kill-rounds-", dir=options.directory))
    begun = time.monotonic()
    done = 0
    rounds = Rounds(options.python, options.seed, options.seconds_per_round, place / "data")
    try:
        for number in range(1, options.rounds + 1):
            rounds.round(number)
            done = number
            if number % 100 == 0:
                print(f"{number} rounds, {time.monotonic() - begun:.0f} s", flush=True)
    except (Broken, AssertionError) as error:
        print(f"round {done + 1} of seed {options.seed}: {error}\nleft for a look: {place}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"stopped in round {done + 1}")
    finally:
        rounds.broker.kill()
    for name, count in sorted(rounds.figures.items()):
        print(f"{count:>10}  {name}")
    slowest = sorted(rounds.restart_s)
    print(
        f"{done} rounds on the {rounds.build}, seed {options.seed}, in {time.monotonic() - begun:.0f} s: "
        f"nothing lost, nothing out of order; starts took {slowest[len(slowest) // 2] * 1000:.0f} ms, "
        f"{slowest[-1] * 1000:.0f} ms at most"
    )
    shutil.rmtree(place)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10, metavar="N")
    parser.add_argument("--seconds-per-round", type=float, default=0.15, metavar="S", help="of load, about")
    parser.add_argument("--seed", type=int, default=None, metavar="K", help="of the clients' choices")
    parser.add_argument("--python", default=sys.executable, metavar="PY", help="runs the broker")
    parser.add_argument("--directory", default=None, metavar="DIR", help="where the data directory is made")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().getrandbits(32)
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
