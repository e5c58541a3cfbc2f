"""One seed, one history: streams on a faulty disk, a model beside them, crashes in between.

After each crash what the logs hold is compared with what was appended and promised:

    promised message        must be there, with its offset, unless retention has dropped its segment
    anything not promised   may be there or not, but none without all those before it
    what is there           is what was appended, in order
    offsets                 none is given twice for promised messages

With a flipped bit at most the messages of one chunk may be missing. Under policies that promise less than
ALWAYS a loss of power may cost the end of a log, but not a start and not the truth.
"""

from __future__ import annotations

import random

from flintmq.storage.inspection.stream_inspection import check_streams
from flintmq.storage.options import JournalOptions, SyncPolicy
from flintmq.storage.streams.cursor import StreamCursor, offset_of_time
from flintmq.storage.streams.log import StreamLog, StreamOptions
from flintmq.storage.streams.store import StreamStore
from flintmq.storage.streams.stream_octets import MESSAGE_HEAD

from .journal_history import SimulatedClock
from .simulated_disk import SimulatedDisk

DIRECTORY = "/data/streams"
NOTES = "/data/streams.promised"
ROUTE = b"\x00\x01q"
HEADER = bytes(14)


class StreamModel:
    """What was appended to one stream."""

    def __init__(self, options: StreamOptions) -> None:
        self.options = options
        self.bodies: dict[int, bytes] = {}
        self.times: dict[int, int] = {}
        self.next_offset = 0
        self.promised = 0
        self.has_holes = False  # something was lost that may be lost, and recovery says so ever after
        self.sound_from = 0  # what lies before may have lost what vouched for it


class StreamHistory:
    """Runs one seed; any broken promise is an AssertionError."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = SimulatedDisk(self.chance)
        self.spoiler = random.Random(f"closes of {seed}")
        self.clock = SimulatedClock(self.chance)
        self.options = JournalOptions(
            threaded=False,
            retry_interval_ms=10,
            sync=self.chance.choice((*[SyncPolicy.ALWAYS] * 4, SyncPolicy.INTERVAL, SyncPolicy.NEVER)),
        )
        self.disk.closes_lose = self.options.sync is SyncPolicy.ALWAYS
        self.models = {number: StreamModel(self.stream_options()) for number in (1, 2, 3)}
        self.stamp = 0
        self.crashes = 0
        self.damage: dict[int, list[str]] = {}
        self.checked: list[str] = []
        self.is_noted = True
        self.open()

    def stream_options(self) -> StreamOptions:
        return StreamOptions(
            segment_octets=self.chance.choice((600, 2000, 10_000)),
            octets_max=self.chance.choice((None, None, 5000)),
            age_max_ms=self.chance.choice((None, None, 400)),
            filter_octets=16,
        )

    def run(self, steps: int = 60) -> None:
        for _ in range(steps):
            self.step()
        self.crash()
        self.store.close()

    def open(self) -> None:
        self.store = StreamStore(DIRECTORY, self.disk, self.options, self.clock)
        self.store.on_committed = self.committed
        self.logs: dict[int, StreamLog] = {}
        for number, model in self.models.items():
            self.logs[number], report = self.store.open(number, model.options)
            self.damage[number] = report.damaged

    def committed(self, streams: list[StreamLog]) -> None:
        for stream in streams:
            model = self.models[stream.number]
            assert stream.end >= model.promised, "a promise was taken back"
            model.promised = stream.end

    # What happens

    def step(self) -> None:
        way = self.chance.random()
        if way < 0.5:
            for _ in range(self.chance.randrange(1, 6)):
                self.append()
        elif way < 0.8:
            self.store.end_batch()
            self.store.collect()
        elif way < 0.88:
            self.clock.now_s += 0.02
            self.store.tick()
        elif way < 0.92:
            self.check_reading()
        elif way < 0.97:
            self.fault()
        else:
            self.crash()

    def append(self) -> None:
        number = self.chance.choice((1, 1, 1, 2, 3))
        stream, model = self.logs[number], self.models[number]
        self.stamp += 1
        body = b"%d:" % self.stamp + self.chance.randbytes(self.chance.choice((0, 5, 50, 300, 1500)))
        if not stream.builder.count:
            stream.begin_chunk()
        value = self.chance.choice((None, None, b"red", b"blue"))
        stream.builder.append(self.clock.wall_ms(), ROUTE, HEADER + body, len(HEADER), 0, value)
        model.bodies[model.next_offset] = body
        model.times[model.next_offset] = self.clock.wall_ms()
        model.next_offset += 1
        if stream.builder.fill > self.chance.choice((100, 1000)):
            stream.seal()

    def fault(self) -> None:
        way = self.chance.randrange(3)
        if way == 0 and self.options.sync is not SyncPolicy.NEVER:
            self.disk.sync_failures_left = self.chance.choice((1, 1, 2, 3))
        elif way == 1:
            self.disk.write_failures_left = self.chance.choice((1, 1, 2))
        else:
            self.disk.capacity_octets = self.disk.used_octets() + self.chance.choice((0, 300, 3000))
        self.disk.close_failures_left = self.spoiler.choice((0, 1, 5))

    def heal(self) -> None:
        self.disk.capacity_octets = 1 << 40
        self.disk.sync_failures_left = self.disk.write_failures_left = self.disk.close_failures_left = 0

    def crash(self) -> None:
        self.crashes += 1
        power = self.chance.random() < 0.7
        orderly = self.chance.random() < 0.2 and self.stop()
        lossy = not orderly and (power or (self.disk.pages_dropped and bool(self.store.alarm)))
        if power:
            self.disk.crash()
        else:
            self.disk.kill()
        self.heal()
        rotten = self.chance.random() < 0.1 and self.rot()
        checked = {report.number: report.damaged for report in check_streams("/data", self.disk)}
        self.open()
        # What power took of the notes cannot tell of what rot took of the end.
        self.is_noted = orderly or not power
        for number, model in self.models.items():
            self.checked = checked.get(number, [])
            self.check(number, model, lossy and self.options.sync is not SyncPolicy.ALWAYS, rotten)

    def stop(self) -> bool:
        """An orderly stop: all is promised, and written down."""
        self.heal()
        self.clock.now_s += 1
        self.store.close()
        return not self.store.alarm

    def rot(self) -> bool:
        directories = self.disk.list_directories(DIRECTORY)
        paths = [f"{DIRECTORY}/{d}/{n}" for d in directories for n in self.disk.list(f"{DIRECTORY}/{d}")]
        paths = [path for path in [*paths, NOTES] if self.disk.content(path)]
        if not paths:
            return False
        path = self.chance.choice(paths)
        octets = self.disk.content(path)
        self.disk.flip_bit(path, self.chance.randrange(len(octets)), self.chance.randrange(8))
        return True

    # What must hold

    def check(self, number: int, model: StreamModel, lossy: bool, rotten: bool) -> None:
        stream = self.logs[number]
        assert lossy or stream.end <= model.next_offset, "offsets out of nowhere"
        found = read_all(stream, stream.first)
        self.check_truth(model, found)
        model.has_holes = model.has_holes or lossy or rotten
        if not lossy and not rotten:
            assert stream.end >= model.promised, f"{model.promised - stream.end} promised messages lost"
            first = max(stream.first, model.sound_from)
            missing = [o for o in model.bodies if first <= o < model.promised and o not in found]
            assert not missing, f"missing {missing}"
            if not model.has_holes:
                assert not self.damage[number], f"damage without rot: {self.damage}"
                assert len(found) == stream.end - stream.first, "holes"
                self.check_floor(stream, model)
        elif not lossy:
            lost = [o for o in model.bodies if stream.first <= o < model.promised and o not in found]
            assert lost == list(range(lost[0], lost[-1] + 1)) if lost else True, f"one bit cost {lost}"
            if lost and self.is_noted and self.options.sync is SyncPolicy.ALWAYS:
                assert self.checked, f"{lost} were lost in silence"
                assert stream.end >= model.promised, "the offsets of lost messages are given again"
        for offset in [o for o in model.bodies if o not in found]:
            del model.bodies[offset], model.times[offset]
        model.next_offset = stream.end
        model.promised = 0 if model.has_holes or not found else stream.end
        model.sound_from = stream.end if model.has_holes else 0

    def check_floor(self, stream: StreamLog, model: StreamModel) -> None:
        """Nothing goes but by retention."""
        promised = [offset for offset in model.bodies if offset < model.promised]
        if model.options.octets_max is None and model.options.age_max_ms is None and promised:
            assert stream.first <= min(promised), "the old end is gone"

    def check_truth(self, model: StreamModel, found: dict[int, bytes]) -> None:
        for offset, body in found.items():
            if offset in model.bodies:
                assert model.bodies[offset] == body, f"offset {offset} is another message"

    def check_reading(self) -> None:
        """Any place in the log, by offset and by time, while it is being written."""
        for number, model in self.models.items():
            stream = self.logs[number]
            if stream.first == stream.end:
                continue
            start = self.chance.randrange(stream.first, stream.end)
            found = read_all(stream, start)
            self.check_truth(model, found)
            kept = [o for o in model.bodies if start <= o < stream.end]
            if stream.segments and stream.segments[-1].end_offset == stream.end:
                assert set(kept) <= set(found), "what is safe cannot be read"
            time_ms = model.times.get(start)
            if time_ms is not None:
                at = offset_of_time(stream, time_ms)
                assert at <= start or at not in model.times, "a later message was named for its time"


def read_all(stream: StreamLog, start: int) -> dict[int, bytes]:
    cursor = StreamCursor(stream, start)
    found: dict[int, bytes] = {}
    previous = -1
    while True:
        chunk = cursor.next()
        if chunk is None:
            return found
        assert chunk.first_offset > previous, "chunks out of order"
        at = chunk.messages_at()
        for offset in range(chunk.first_offset, chunk.end_offset):
            previous = offset
            size = int.from_bytes(chunk.octets[at : at + 4], "little")
            filter_size = int.from_bytes(chunk.octets[at + 18 : at + 20], "little")
            skipped = MESSAGE_HEAD + len(ROUTE) + len(HEADER) + (0 if filter_size == 0xFFFF else filter_size)
            if offset >= start:
                found[offset] = chunk.octets[at + skipped : at + size]
            at += size


def run_seed(seed: int, steps: int = 60) -> int:
    """Returns the number of crashes; an AssertionError tells the seed."""
    try:
        history = StreamHistory(seed)
        history.run(steps)
    except Exception as failure:
        raise AssertionError(f"seed {seed}: {type(failure).__name__}: {failure}") from failure
    return history.crashes
