"""One seed, one history: contents that come in parts, on a faulty disk, with a model that watches.

    open ---> parts ---> publish ---> consumed          at each arrow the power may fail, the process end, the
      |         |           |                           disk fill up or refuse; what was told as staged, as
      +---------+-----------+---> deleted, expired      published or as gone is so afterwards

The model keeps for each content the states that it was asked to have, each with the record of the journal
that says so. After a crash a content is in the last state that was safe, or in a later one. A message is in
its queues if and only if its content is noted as published.
"""

from __future__ import annotations

import logging
import os
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flintmq.broker.channels import staged_publish
from flintmq.broker.channels.staged_publish import Outcome, publish_staged
from flintmq.broker.store.staging import UNNAMED, StagedContent, Staging
from flintmq.config import Config
from flintmq.config import Staging as Limits
from flintmq.errors import ServiceFault
from flintmq.protocol.outbox import Output
from flintmq.server.data_directory import recovered_broker
from flintmq.storage.options import JournalOptions
from flintmq.wire import methods, traits
from flintmq.wire.fields import encode_shortstr
from flintmq.wire.properties import BasicProperties, encode_properties

from .broker_client import Client
from .journal_history import DIRECTORY, SimulatedClock
from .simulated_disk import PowerLost, SimulatedDisk

if TYPE_CHECKING:
    from flintmq.broker.channels.channel import Channel
    from flintmq.broker.messages.message import Message
    from flintmq.wire.stream import Body

CAPACITY = 1 << 40
EXPIRY_S = 100
# Contents from here on keep their file when they are published.
SPOOLED_BYTES = 3000
IDENTIFIERS = tuple(f"c{number}" for number in range(6))
QUEUES = ("q1", "q2")
OWNER = ("/", "guest")
NUMBER_OCTETS = 8

# States of a content; from 0 on so many octets are staged.
PUBLISHED, GONE = -1, -2
NEVER = 1 << 62  # the record of what is being asked for is not written yet


@dataclass(eq=False)
class Upload:
    """What the model knows of one content, from its open to its end."""

    number: int
    identifier: str
    size: int
    sent: bytes = b""
    # Records of the journal and the state that each leads to, oldest first.
    states: list[tuple[int, int]] = field(default_factory=lambda: [(0, GONE)])
    touched_ms: int = 0

    def asks(self, state: int) -> None:
        self.states.append((NEVER, state))

    def is_done(self, sequence: int) -> None:
        self.states[-1] = (sequence, self.states[-1][1])

    def is_refused(self) -> None:
        self.states.pop()

    @property
    def state(self) -> int:
        return self.states[-1][1]

    def possible(self, safe: int) -> set[int]:
        """The states that it may have after a crash, if all records up to `safe` are on disk."""
        before = [state for sequence, state in self.states if sequence <= safe]
        return {before[-1]} | {state for sequence, state in self.states if sequence > safe}

    def is_over(self, safe: int) -> bool:
        return self.possible(safe) == {GONE}


@dataclass(eq=False)
class Copy:
    """A message in one queue."""

    upload: Upload
    published: int = NEVER  # the record
    settled: int | None = None  # the same of its end, None while nobody has asked for that


class Fetched:
    """Takes the message of a get."""

    def __init__(self) -> None:
        self.octets: bytes | None = None

    def tell(self, message: Message, tag: int, redelivered: bool, content: bytes, body: Body | None) -> None:
        self.octets = content[message.header_size :]
        if body is not None:
            self.octets = body.read(0, body.octets)
            body.close()


class StagingHistory:
    """Runs one seed; any broken promise is an AssertionError."""

    def __init__(self, seed: int) -> None:
        chance = self.chance = random.Random(seed)
        self.disk = SimulatedDisk(chance)
        self.spoiler = random.Random(f"closes of {seed}")
        self.clock = SimulatedClock(chance)
        self.options = JournalOptions(
            threaded=False,
            segment_octets=chance.choice((4096, 8192, 65536)),
            rewrite_step_octets=chance.choice((64, 512, 8192)),
            spare_segments=chance.choice((0, 1, 2)),
            retry_interval_ms=10,
        )
        self.disk.closes_lose = True
        self.published_max = chance.choice((1, 3, 100))
        self.config = Config()._replace(
            staging=Limits(
                contents_per_user_max=chance.choice((2, 5, 100)),
                published_per_user_max=self.published_max,
                user_bytes_max=chance.choice((5000, 20_000, 1 << 30)),
                expiry_s=EXPIRY_S,
            ),
        )
        self.haste = chance.choice((0.2, 0.6, 0.9))
        self.numbers = 0
        self.uploads: dict[str, Upload] = {}
        self.ended: list[Upload] = []  # whose identifier may have another content
        self.copies: dict[str, list[Copy]] = {name: [] for name in QUEUES}
        self.settling: list[Copy] = []  # whose end is written with this pass
        self.lives = 0
        self.start()
        for name in QUEUES:
            self.client.say(1, methods.QueueDeclare(queue=name, durable=True))
            self.client.say(1, methods.QueueBind(queue=name, exchange="amq.fanout"))
        self.calm()

    # Lives

    def start(self) -> None:
        while True:
            try:
                if self.lives and self.chance.random() < 0.15:
                    self.disk.power_left = self.chance.randrange(20)
                self.broker, _ = recovered_broker(
                    self.config, self.clock, _wake, DIRECTORY, self.disk, self.options
                )
                break
            except PowerLost:
                self.disk.crash()
        self.disk.power_left = None
        self.lives += 1
        assert self.broker.store is not None
        assert self.broker.staging is not None
        self.store = self.broker.store
        self.staging: Staging = self.broker.staging
        self.outbox: list[Output] = []
        self.client = Client(self.broker, self.outbox)
        self.client.say(1, methods.ChannelOpen())
        self.channel: Channel = self.client.session.held_channels()[0]

    def run(self, steps: int) -> None:
        for _ in range(steps):
            try:
                self.step()
            except PowerLost:
                self.crash(power=self.chance.random() < 0.7)
        self.calm()
        self.check_files()
        self.crash(power=False)
        self.calm()
        self.check_files()

    def step(self) -> None:
        way = self.chance.random()
        if way < 0.78:
            self.act()
            if self.chance.random() < self.haste:
                self.finish_pass()
        elif way < 0.84:
            self.tick(self.chance.choice((0.01, 1, EXPIRY_S / 3, EXPIRY_S + 1)))
        elif way < 0.88:
            self.fault()
        elif way < 0.92:
            self.calm()
            self.check_files()
        elif way < 0.96:
            self.disk.power_left = self.chance.randrange(15)
        else:
            self.crash(power=self.chance.random() < 0.7)

    def act(self) -> None:
        names = ("open", "append", "append", "append", "publish", "publish", "delete", "rename", "consume")
        getattr(self, self.chance.choice(names))()
        self.follow()

    # What a peer asks for

    def open(self) -> None:
        identifier = self.chance.choice(IDENTIFIERS)
        known = self.uploads.get(identifier)
        is_unnamed = known is None and self.chance.random() < 0.3
        if known is not None and known.state != GONE:
            content = self.staging.open(*OWNER, identifier, -1)
            assert content.staged == (known.state if known.state >= 0 else len(known.sent))
            return
        if known is not None and not known.is_over(self.store.synced):
            return  # a crash could bring the one before back
        self.numbers += 1
        size = self.chance.choice((-1, -1, 100, 4000))
        name = f"{UNNAMED}{self.numbers}" if is_unnamed else identifier
        upload = Upload(self.numbers, name, -1 if is_unnamed else size)
        upload.asks(0)
        try:
            if is_unnamed:
                content = self.staging.open_unnamed(*OWNER, str(self.numbers))
            else:
                self.uploads[name] = upload
                content = self.staging.open(*OWNER, name, size)
        except ServiceFault:
            assert self.is_tight(), "refused for no reason"
            self.uploads.pop(name, None)
            return
        self.uploads[name] = upload
        upload.touched_ms = content.touched_ms
        upload.is_done(self.store.last())

    def is_tight(self) -> bool:
        limits = self.config.staging
        return (
            len(self.staging.contents) >= limits.contents_per_user_max
            or self.staging.claimed.get(OWNER, 0) + 8000 > limits.user_bytes_max
            or bool(self.store.alarm)
        )

    def live_upload(self) -> Upload | None:
        found = [each for each in self.uploads.values() if each.state >= 0]
        return self.chance.choice(found) if found else None

    def content_of(self, upload: Upload) -> StagedContent:
        return self.staging.need(*OWNER, upload.identifier)

    def append(self) -> None:
        upload = self.live_upload()
        if upload is None:
            return
        content = self.content_of(upload)
        part = self.chance.randbytes(self.chance.choice((1, 50, 600, 2500)))
        if not upload.sent:
            part = upload.number.to_bytes(NUMBER_OCTETS, "big") + part
        if upload.size >= 0:
            part = part[: upload.size - len(upload.sent)]
        if not part:
            return
        # A part at another place than the end is refused, whatever else is so.
        try:
            self.staging.append(content, len(upload.sent) + 1, part)
            raise AssertionError("a part was taken at the wrong place")
        except ServiceFault:
            pass
        before = upload.sent
        upload.sent += part
        upload.asks(len(upload.sent))
        try:
            self.staging.append(content, len(before), part)
        except ServiceFault:
            assert self.is_tight(), "refused for no reason"
            upload.sent = before
            upload.is_refused()
            return
        assert not content.writing
        if content.error is not None:
            upload.sent = before
            upload.is_refused()
            assert content.staged == len(before)
            return
        upload.touched_ms = content.touched_ms
        upload.is_done(self.store.last())

    def publish(self) -> None:
        upload = self.live_upload()
        if upload is None or not upload.sent:
            return
        is_whole = upload.size in (-1, len(upload.sent))
        exchange, key = self.chance.choice((("amq.fanout", ""), ("", QUEUES[0]), ("", "nowhere")))
        queues = () if key == "nowhere" else (key,) if key else QUEUES
        upload.asks(PUBLISHED)
        copies = {name: Copy(upload) for name in queues}
        for name, copy in copies.items():
            self.copies[name].append(copy)
        route = encode_shortstr(exchange) + encode_shortstr(key)
        properties = encode_properties(BasicProperties(delivery_mode=2))
        try:
            outcome = publish_staged(self.channel, self.staging, self.content_of(upload), route, properties)
        except ServiceFault:
            assert not is_whole, "refused for no reason"
            outcome = Outcome.UNROUTABLE
        if outcome is not Outcome.PUBLISHED:
            assert not queues or not is_whole
            upload.is_refused()
            for name, copy in copies.items():
                self.copies[name].remove(copy)
            return
        assert is_whole
        sequence = self.store.last()
        upload.is_done(sequence)
        upload.touched_ms = self.broker.timetable.now_ms()
        for copy in copies.values():
            copy.published = sequence

    def delete(self) -> None:
        found = [each for each in self.uploads.values() if each.state != GONE]
        if found:
            upload = self.chance.choice(found)
            upload.asks(GONE)
            self.staging.forget(self.content_of(upload))
            upload.is_done(self.store.last())

    def rename(self) -> None:
        """A content that nobody could come back for gets an identifier."""
        unnamed = [each for each in self.uploads.values() if each.identifier.startswith(UNNAMED)]
        free = [each for each in IDENTIFIERS if each not in self.uploads]
        upload = self.chance.choice(unnamed) if unnamed else None
        if upload is None or upload.state < 0 or not free:
            return
        other = self.chance.choice(free)
        renamed = Upload(upload.number, other, upload.size, upload.sent, touched_ms=upload.touched_ms)
        renamed.asks(upload.state)
        upload.asks(GONE)
        self.uploads[other] = renamed
        self.staging.rename(self.content_of(upload), other)
        renamed.is_done(self.store.last())
        upload.is_done(self.store.last())

    def consume(self) -> None:
        name = self.chance.choice(QUEUES)
        waiting = [copy for copy in self.copies[name] if copy.settled is None]
        if waiting:
            waiting[0].settled = NEVER
        fetched = Fetched()
        is_found = self.channel.get(self.broker.virtual_hosts["/"].queues[name], True, fetched)
        assert is_found == bool(waiting), f"{name} has {len(waiting)} messages"
        if waiting:
            assert fetched.octets == waiting[0].upload.sent, "another body than was staged"
            # The record follows at the end of the pass.
            self.settling.append(waiting[0])

    def follow(self) -> None:
        """Contents that the store has let go of by itself: too old, or too many that were published."""
        for upload in self.uploads.values():
            if upload.state == GONE or self.staging.find(*OWNER, upload.identifier) is not None:
                continue
            is_old = upload.touched_ms + EXPIRY_S * 1000 <= self.broker.timetable.now_ms()
            assert is_old or upload.state == PUBLISHED, f"{upload.identifier} went before its time"
            upload.asks(GONE)
            upload.is_done(self.store.last())
        self.check_counts()

    def check_counts(self) -> None:
        there = {upload.identifier for upload in self.uploads.values() if upload.state != GONE}
        assert {content.identifier for content in self.staging.contents.values()} == there
        claimed = sum(content.claimed() for content in self.staging.contents.values())
        assert self.staging.claimed.get(OWNER, 0) == self.staging.claimed_of_host.get("/", 0) == claimed
        published = sum(content.is_published for content in self.staging.contents.values())
        assert len(self.staging.published.get(OWNER, {})) == published <= self.published_max

    # The server's part, and the disk's

    def finish_pass(self) -> None:
        self.broker.finish_pass()
        for copy in self.settling:
            copy.settled = self.store.last()
        self.settling.clear()
        self.store.collect()
        self.staging.collect()
        self.broker.finish_pass()
        self.client.written()
        self.client.output.sent(self.client.output.pending())
        self.client.scanned = 0

    def tick(self, seconds: float) -> None:
        self.clock.now_s += seconds
        self.store.tick()
        timetable = self.broker.timetable
        while (due_ms := timetable.next_due_ms()) is not None and due_ms <= timetable.now_ms():
            timetable.run()
        self.follow()
        self.finish_pass()

    def fault(self) -> None:
        way = self.chance.randrange(3)
        if way == 0:
            self.disk.sync_failures_left = self.chance.choice((1, 2))
        elif way == 1:
            self.disk.write_failures_left = self.chance.choice((1, 2))
        else:
            self.disk.capacity_octets = self.disk.used_octets() + self.chance.choice((0, 2000, 6000))
        self.disk.close_failures_left = self.spoiler.choice((0, 1, 5))

    def restore_disk(self) -> None:
        self.disk.capacity_octets = CAPACITY
        self.disk.sync_failures_left = self.disk.write_failures_left = self.disk.close_failures_left = 0
        self.disk.power_left = None

    def calm(self) -> None:
        """No more faults: soon all is safe, and what has expired is gone."""
        self.restore_disk()
        for _ in range(60):
            self.tick(0.05)
            if self.store.synced == self.store.last() and not self.store.alarm:
                break
        else:
            raise AssertionError(f"the broker does not come to rest; alarm: {self.store.alarm!r}")
        now_ms = self.broker.timetable.now_ms()
        for content in self.staging.contents.values():
            assert content.touched_ms + EXPIRY_S * 1000 > now_ms - 100, "it has expired and is there"

    def check_files(self) -> None:
        """Each file belongs to a content or to a message, when all is safe."""
        for _ in range(3):
            self.tick(0.05)
        spools = [each.spool for each in self.staging.contents.values() if each.spool is not None]
        staged = sum(1 for spool in spools if spool.octets)
        large = {
            copy.upload.number
            for copies in self.copies.values()
            for copy in copies
            if copy.settled is None and len(copy.upload.sent) >= SPOOLED_BYTES
        }
        files = {name for name in self.disk.list(DIRECTORY) if name.endswith(".spool")}
        # A part that the disk has refused may have left a file without octets.
        files -= {os.path.basename(spool.path) for spool in spools if not spool.octets}
        assert len(files) == staged + len(large), f"{files}: {staged} staged, {len(large)} in queues"

    # After a crash

    def crash(self, power: bool) -> None:
        safe = self.store.synced
        self.settling.clear()
        self.client.gone = True
        self.restore_disk()
        if power:
            self.disk.crash()
        else:
            self.disk.kill()
        self.start()
        for upload in list(self.uploads.values()):
            self.check_recovered(upload, safe)
        identifiers = {content.identifier for content in self.staging.contents.values()}
        assert identifiers <= set(self.uploads), "a content that nobody has opened"
        published = {
            upload.number
            for upload in [*self.uploads.values(), *self.ended]
            if upload.state == PUBLISHED and len(upload.states) == 1
        }
        for name in QUEUES:
            self.check_queue(name, safe, published)
        self.uploads = {name: each for name, each in self.uploads.items() if each.state != GONE}
        self.check_counts()

    def check_recovered(self, upload: Upload, safe: int) -> None:
        """From now on the content is as the broker has found it."""
        content = self.staging.find(*OWNER, upload.identifier)
        state = GONE if content is None else PUBLISHED if content.is_published else content.staged
        possible = upload.possible(safe)
        if upload.identifier.startswith(UNNAMED):
            possible = {GONE}
        assert state in possible, f"{upload.identifier} is {state}, of {possible}"
        if content is not None and content.spool is not None:
            upload.sent = upload.sent[:state]
            octets = content.spool.read(0, state) if state else b""
            assert octets == upload.sent, f"{upload.identifier} has other octets than were staged"
            assert content.spool.verify()
        if content is not None:
            assert content.size == upload.size or state == PUBLISHED
            upload.touched_ms = content.touched_ms
        upload.states = [(0, state)]

    def check_queue(self, name: str, safe: int, published: set[int]) -> None:
        found = self.messages_of(name)
        kept = []
        for copy in self.copies[name]:
            body = found.pop(copy.upload.number, None)
            is_settled = copy.settled is not None
            if body is None:
                is_lost = copy.published <= safe and not is_settled
                assert not is_lost, f"{copy.upload.number} is lost from {name}"
                is_torn = copy.upload.number in published and not is_settled
                assert not is_torn, f"{copy.upload.number} is published, and not in {name}"
                continue
            assert not (is_settled and (copy.settled or 0) <= safe), f"{copy.upload.number} is back in {name}"
            assert copy.upload.state < 0, f"{copy.upload.number} is in {name} and staged still"
            assert body == copy.upload.sent, f"{copy.upload.number} of {name} has another body"
            kept.append(Copy(copy.upload, 0))
        assert not found, f"{name} has what nobody has published: {list(found)}"
        self.copies[name] = kept

    def messages_of(self, name: str) -> dict[int, bytes]:
        """Bodies by the number of their upload."""
        queue = self.broker.virtual_hosts["/"].queues[name]
        found: dict[int, bytes] = {}
        for message in self.store.load(list(queue.tail)):
            assert message is not None, f"a message of {name} cannot be read"
            body = message.content[message.header_size :]
            if message.traits & traits.SPOOLED:
                reader = self.store.body_of(message)
                assert reader is not None
                body = reader.read(0, reader.octets)
                reader.close()
            number = int.from_bytes(body[:NUMBER_OCTETS], "big")
            assert number not in found, f"{number} is twice in {name}"
            found[number] = body
        return found


def _wake() -> None:
    """There are no threads."""


def run_seed(seed: int, steps: int = 80) -> int:
    """Returns how many lives the broker had; an AssertionError tells the seed."""
    logging.disable(logging.CRITICAL)
    held, staged_publish.HELD_BYTES_MAX = staged_publish.HELD_BYTES_MAX, SPOOLED_BYTES
    try:
        history = StagingHistory(seed)
        history.run(steps)
    except Exception as failure:
        again = f"python -m tests.simulation.run --staging --seeds {seed}..{seed} --steps {steps}"
        raise AssertionError(f"seed {seed}: {type(failure).__name__}: {failure}\n    {again}") from failure
    finally:
        staged_publish.HELD_BYTES_MAX = held
        logging.disable(logging.NOTSET)
    return history.lives
