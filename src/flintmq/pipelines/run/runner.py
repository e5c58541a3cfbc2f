"""Runs pipelines: each flow a streaming query, watched, started again when it fails, ended when asked.

                    +--- failure: wait up to 1 s, 2 s, 4 s ... 60 s -------+
                    v                                                      |
    starting --> running --> finished (all was read)                    waiting --> failed (restarts_max)
                    +------> stopped  (SIGTERM, Ctrl-C)

A flow that fails for a reason that no second try mends, such as an SQL error, is not started again. A run of
what is there (--available-now) also counts a refused login and a missing queue among these reasons.

Each flow is started in a thread of its own: a transform may be Python of the user's, which may raise, exit or
hang, and that concerns its flow alone.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flintmq.client.core.errors import AccessRefused, LoginRefused, NotFound
from flintmq.clock import Clock
from flintmq.errors import FlintError
from flintmq.pipelines.errors import PipelineFailed
from flintmq.pipelines.file.model import Flow, Pipeline
from flintmq.pipelines.queries import brokers, fingerprint, frames, lake, parquet_directory, sinks
from flintmq.pipelines.queries.fingerprint import FlowRecord
from flintmq.pipelines.queries.parquet_directory import DirectoryTaken, ParquetDirectory
from flintmq.pipelines.queries.spark_files import SparkFiles
from flintmq.pipelines.run import reasons, status
from flintmq.pipelines.run.sessions import open_session, session_of_flow
from flintmq.pipelines.run.status import FlowStatus, PipelineStatus, StatusFile
from flintmq.spark.write import figures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

log = logging.getLogger("flintmq.pipelines")

POLL_S = 0.5
# A start that takes longer is told; one that takes this long is given up. The first start of a session
# compiles much of Spark, which takes a minute on a busy machine.
SLOW_START_S = 60.0
START_S_MAX = 600.0
BACKOFF_S_MIN = 1.0
BACKOFF_S_MAX = 60.0
RESTARTS_MAX_OF_A_BOUNDED_RUN = 10
# What the command ends with: 1 needs a person, 75 (EX_TEMPFAIL of sysexits) may go well the next time.
EXIT_FAILED = 1
EXIT_PASSING = 75
TAKEN_OVER = (
    "another run of a pipeline of this name reads its queue now, with another --state; end one of the two, "
    "or give one another name"
)
# A look at a Parquet directory that takes longer than this does not keep a run from its end.
LAST_LOOK_S_MAX = 10.0
# When no batch came for so long, what the last one told is history.
PROGRESS_STALE_MS = 5_000


@dataclass(frozen=True)
class RunOptions:
    state: Path
    available_now: bool = False
    reset: bool = False
    backoff_s_min: float = BACKOFF_S_MIN
    start_s_max: float = START_S_MAX


class Start:
    """The start of a flow's query, in a thread."""

    def __init__(self, run: FlowRun, spark: SparkSession, available_now: bool, now_s: float) -> None:
        self.since_s = now_s
        self.is_told = False
        self.is_given_up = False
        self.doing = "asking the broker"
        self.told = ""  # what a person has to know of it
        self.query: StreamingQuery | None = None
        self.error: BaseException | None = None
        self.done = threading.Event()
        self._lock = threading.Lock()  # of `query` and `is_given_up`: one of the two sides ends a query
        self._thread = threading.Thread(
            target=self._run, args=(run, spark, available_now), name=f"start {run.name}", daemon=True
        )
        self._thread.start()

    def _run(self, run: FlowRun, spark: SparkSession, available_now: bool) -> None:
        try:
            brokers.prepare(run.pipeline, run.flow)
            session = session_of_flow(spark, run.pipeline.spark)
            frame = frames.build(session, run.pipeline, run.flow, self._step)
            self._step("starting its query")
            self._look_at_files(run, SparkFiles(session))
            if run.directory is not None:
                run.directory.begin()
                self._step("starting its query")
            query = sinks.start(frame, run.pipeline, run.flow, run.record, available_now)
            if run.directory is not None:
                run.directory.began()
            with self._lock:
                self.query = query
                is_given_up = self.is_given_up
            if is_given_up:
                _stop_query(run.name, query)
        except BaseException as error:  # also SystemExit: this thread is all that may end of it
            self.error = error
            if run.directory is not None:
                run.directory.undo()
        finally:
            self.done.set()

    def give_up(self) -> StreamingQuery | None:
        """A query that has begun is the caller's; one that begins later is ended where it began."""
        with self._lock:
            self.is_given_up = True
            return self.query

    def _look_at_files(self, run: FlowRun, files: SparkFiles) -> None:
        """What only Spark can tell of the flow's directories."""
        run.hold_directory(files)
        checkpoint = run.record.checkpoint
        if run.record.is_begun and fingerprint.is_remote(checkpoint) and not files.names(checkpoint):
            self.told = fingerprint.told_gone(checkpoint)

    def _step(self, doing: str) -> None:
        if self.is_given_up:
            raise PipelineFailed("the start was given up")
        self.doing = doing


class DirectoryWatch:
    """Ends a query when a later run has begun to write to its Parquet directory.

    It has a thread: a store may take long to answer, and other flows do not wait for it.
    """

    def __init__(self, name: str, query: StreamingQuery, directory: ParquetDirectory) -> None:
        self.name = name
        self.query = query  # this one is ended, not one that the flow has started since
        self.directory = directory
        self.error: DirectoryTaken | None = None
        self.done = threading.Event()
        self._ending_s: float | None = None  # since when the last look is waited for
        self._ending = threading.Event()
        self._is_told = False
        threading.Thread(target=self._run, name=f"watch {name}", daemon=True).start()

    def end(self, now_s: float) -> float:
        """The query has ended: one more look, and `done` is set. How long that has taken so far."""
        if self._ending_s is None:
            self._ending_s = now_s
            self._ending.set()
        return now_s - self._ending_s

    def _run(self) -> None:
        try:
            is_last = False
            while self.error is None and not is_last:
                is_last = self._ending.wait(parquet_directory.LOOK_S)
                self._look()
            if self.error is not None:
                _stop_query(self.name, self.query)
        finally:
            self.done.set()

    def _look(self) -> None:
        """A store that does not answer is no reason to end a flow, which may do without it for a while."""
        try:
            self.directory.look()
        except DirectoryTaken as error:
            self.error = error
        except Exception as error:  # whatever it is: the next look may work
            if not self._is_told:
                self._is_told = True
                log.warning(
                    "%s: other runs into %s are not found out: %s",
                    self.name, self.directory.place, reasons.plain(error),
                )  # fmt: skip
        else:
            self._is_told = False


class FlowRun:
    """One flow while it runs."""

    def __init__(self, pipeline: Pipeline, flow: Flow, record: FlowRecord) -> None:
        self.pipeline = pipeline
        self.flow = flow
        self.record = record
        self.status = FlowStatus()
        self.start: Start | None = None
        self.query: StreamingQuery | None = None
        self.directory: ParquetDirectory | None = None  # that this flow alone writes to
        self.watch: DirectoryWatch | None = None
        self.is_gone_told = False
        self.is_passing = False  # the flow failed for a reason that may be gone at the next run
        self.is_unrouted_told = False
        self.failures = 0
        self.due_s = 0.0
        # The progress that was taken last: run, batch and time. Times alone may go back with the clock.
        self._seen: tuple[str, int, str] | None = None

    @property
    def name(self) -> str:
        return f"{self.pipeline.name}.{self.flow.name}"

    @property
    def is_over(self) -> bool:
        return self.status.state in (status.STOPPED, status.FINISHED, status.FAILED)

    def observe(self, now_ms: int) -> None:
        """Takes over what Spark tells of the batches since the last look."""
        recent = [] if self.query is None else list(self.query.recentProgress)
        seen = [(told["runId"], told["batchId"], told["timestamp"]) for told in recent]
        for told in recent[seen.index(self._seen) + 1 if self._seen in seen else 0 :]:
            self._take(told)
        self._seen = seen[-1] if seen else self._seen
        if self.record.figures:
            self.status.unrouted = figures.read(Path(self.record.figures)).unrouted
        if now_ms - self.status.updated_ms > PROGRESS_STALE_MS:
            self.status.rows_per_s = 0.0

    def _take(self, told: dict[str, Any]) -> None:
        known = self.status
        known.batch_ms = int(told["durationMs"].get("triggerExecution", 0))
        known.updated_ms = _milliseconds(told["timestamp"]) + known.batch_ms
        known.batch = told["batchId"]
        known.rows += told["numInputRows"]
        known.rows_per_s = _rate(told)
        known.lag_rows = _lag_rows(told)
        if told["numInputRows"]:
            self.failures = 0
        latest = told.get("eventTime", {}).get("max")
        if latest is not None:
            known.lag_s = max(0.0, (known.updated_ms - _milliseconds(latest)) / 1000)

    def hold_directory(self, files: SparkFiles) -> None:
        if self.flow.sink.kind != "parquet":
            return
        if self.directory is None:
            self.directory = ParquetDirectory(self.flow.sink, self.record, files)
        self.directory.hold()

    def release_directory(self) -> None:
        if self.directory is not None:
            self.directory.release()

    def began(self, query: StreamingQuery) -> None:
        self.status.state = status.RUNNING
        self._take_over(query)

    def _take_over(self, query: StreamingQuery) -> None:
        self.query = query
        if self.directory is not None:
            self.watch = DirectoryWatch(self.name, query, self.directory)

    def is_exhausted(self) -> bool:
        """Whether every source has come to its end, and the last batch of it is written."""
        progress = None if self.query is None else self.query.lastProgress
        return progress is not None and lake.done([source["endOffset"] for source in progress["sources"]])

    def stop(self) -> None:
        """The run is over."""
        begun = None if self.start is None else self.start.give_up()
        if begun is not None:  # since the last look at the start
            self._take_over(begun)
        if not self.is_over:
            self.status.state = status.STOPPED
        self.stop_query()
        if self.watch is not None:
            self.watch.end(0.0)
            self.watch.done.wait(LAST_LOOK_S_MAX)

    def stop_query(self) -> None:
        if self.query is not None:
            _stop_query(self.name, self.query)


def _stop_query(name: str, query: StreamingQuery) -> None:
    """Ends a query. One that hangs, or that Spark, already gone, cannot end is no reason to leave others
    running."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        if query.isActive:
            query.stop()
    except (PySparkException, Py4JError, OSError) as error:
        log.warning("%s: the query was not ended: %s", name, reasons.plain(error))


def _milliseconds(text: str) -> int:
    return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def _rate(told: dict[str, Any]) -> float:
    rate = told.get("inputRowsPerSecond") or told.get("processedRowsPerSecond") or 0.0
    return float(rate) if isinstance(rate, int | float) and rate < 1e12 else 0.0


def _lag_rows(told: dict[str, Any]) -> int | None:
    from flintmq.spark import lag

    found = [lag(source) for source in told["sources"] if "queues" in str(source.get("endOffset"))]
    return sum(sum(each.values()) for each in found) if found else None


class Runner:
    """All flows of some pipelines, on one Spark session."""

    def __init__(
        self,
        pipelines: Sequence[Pipeline],
        options: RunOptions,
        told: Callable[[str], None],
        clock: Clock | None = None,
    ) -> None:
        self.options = options
        self.told = told
        self.clock = clock or Clock()
        self.ended = threading.Event()
        self.files: list[StatusFile] = []
        self.is_status_lost = False
        self.runs: list[FlowRun] = []
        try:
            for pipeline in pipelines:
                known = PipelineStatus(pipeline.name, pipeline.file, pid=os.getpid())
                self.files.append(StatusFile(options.state, known))
            # Before the first checkpoint is set aside: a run that is refused leaves all as it was.
            self._check(pipelines)
            for pipeline, file in zip(pipelines, self.files, strict=True):
                self._add(pipeline, file.status)
            self._write(status.STARTING)
        except BaseException:
            self._close()
            raise

    def _check(self, pipelines: Sequence[Pipeline]) -> None:
        """Raises if two flows share a directory, or if a reset would be in vain."""
        writers: dict[str, str] = {}
        for pipeline in pipelines:
            for flow in pipeline.flows():
                name, directory = f"{pipeline.name}.{flow.name}", flow.sink.directory
                if directory in writers:
                    raise PipelineFailed(
                        f"{writers[directory]} and {name} both write to {flow.sink.target}, and a directory "
                        "of Parquet files takes the batches of one; name another directory"
                    )
                if directory is not None:
                    writers[directory] = name
                if self.options.reset:
                    fingerprint.check_reset(self._checkpoint(pipeline))
                    sinks.check_reset(flow)

    def _checkpoint(self, pipeline: Pipeline) -> str:
        return pipeline.checkpoint or str(self.options.state / "checkpoints" / pipeline.name)

    def _add(self, pipeline: Pipeline, known: PipelineStatus) -> None:
        state = self.options.state
        known.started_ms = self.clock.wall_ms()
        checkpoint = self._checkpoint(pipeline)
        for flow in pipeline.flows():
            record = fingerprint.claim(
                checkpoint, state / "records" / pipeline.name, flow, self.options.reset, self.clock
            )
            if flow.sink.kind == "exchange":
                record = replace(record, figures=self._figures_file(pipeline, flow))
            run = FlowRun(pipeline, flow, record)
            if record.told:
                self.told(f"{run.name}: {record.told}")
            known.flows[flow.name] = run.status
            self.runs.append(run)

    def _figures_file(self, pipeline: Pipeline, flow: Flow) -> str:
        """Where the sink of a flow counts, from this run on; empty if there is no such place."""
        path = self.options.state.absolute() / "figures" / pipeline.name / f"{flow.name}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
        except OSError as error:
            self.told(f"{path}: rows that go to no queue are not counted: {error.strerror}")
            return ""
        return str(path)

    def run(
        self, open_spark: Callable[[], SparkSession], close_spark: Callable[[], None] = lambda: None
    ) -> bool:
        """Until all has finished or an end is asked for; whether nothing failed for good."""
        try:
            spark = open_spark()
            while not self.ended.is_set() and not all(run.is_over for run in self.runs):
                for run in self.runs:
                    self._step(spark, run)
                self._write(status.RUNNING)
                self.ended.wait(POLL_S)
        except BaseException as error:
            if not self.ended.is_set():  # else Spark was ended by the same signal
                for run in self.runs:
                    if not run.is_over:
                        run.status.state, run.status.last_error = status.FAILED, reasons.plain(error)
            raise
        finally:
            try:
                self._stop_all()
                self._write(None)
            finally:
                self._end(close_spark)
        return all(run.status.state != status.FAILED for run in self.runs)

    def _stop_all(self) -> None:
        """At the same time: each flow may wait for its batch as long as spark.sql.streaming.stopTimeout."""
        with ThreadPoolExecutor(max(1, len(self.runs)), "stop") as pool:
            stops = [pool.submit(run.stop) for run in self.runs]
        for stop in stops:
            stop.result()
        for run in self.runs:
            if run.watch is not None and run.watch.error is not None and run.status.state != status.FAILED:
                self._failed(run, run.watch.error, is_lasting=True)

    @property
    def is_worth_another_run(self) -> bool:
        """Whether everything that failed may go well the next time."""
        return all(run.is_passing for run in self.runs if run.status.state == status.FAILED)

    def _step(self, spark: SparkSession, run: FlowRun) -> None:
        if run.is_over:
            return
        now_s = self.clock.monotonic_s()
        if run.start is not None:
            self._look_at_start(run, run.start, now_s)
        query = run.query
        if query is None:
            if run.start is None and not run.is_over and now_s >= run.due_s:
                run.start = Start(run, spark, self.options.available_now, now_s)
            return
        is_active = query.isActive  # before the look: the last batch of a query that has ended is in it
        run.observe(self.clock.wall_ms())
        if run.status.unrouted and not run.is_unrouted_told:
            run.is_unrouted_told = True
            self.told(
                f"{run.name}: {run.status.unrouted} rows went to no queue: none is bound for their exchange "
                "and routing keys; `flintmq pipeline status` counts them"
            )
        if is_active and run.is_exhausted():
            run.stop_query()
            is_active = False
        watch = run.watch
        if watch is not None and watch.error is not None and (watch.done.is_set() or not is_active):
            self._failed(run, watch.error, is_lasting=True)
            return
        error = None if is_active else query.exception()
        if error is not None:
            run.query = None
            if watch is not None:
                watch.end(now_s)
            self._query_failed(run, error)
        elif not is_active:
            self._finish(run, now_s)

    def _query_failed(self, run: FlowRun, error: BaseException) -> None:
        if reasons.is_taken_over(error):
            # Two runs that both tried again would take the queue from each other for ever.
            self.told(f"{run.name}: {TAKEN_OVER}")
            self._failed(run, error, is_lasting=True)
            return
        is_lasting = self.options.available_now and reasons.is_lasting(error)
        self._failed(run, error, is_lasting or reasons.is_unfit(error))

    def _finish(self, run: FlowRun, now_s: float) -> None:
        watch = run.watch
        if watch is not None and not watch.done.is_set() and watch.end(now_s) < LAST_LOOK_S_MAX:
            return  # the next step comes here again
        if watch is not None and watch.error is not None:
            self._failed(run, watch.error, is_lasting=True)
            return
        run.status.state = status.FINISHED
        self.told(f"{run.name}: finished, {run.status.rows} rows")

    def _look_at_start(self, run: FlowRun, start: Start, now_s: float) -> None:
        if not start.done.is_set():
            taken_s = now_s - start.since_s
            if taken_s > self.options.start_s_max:
                if start.give_up() is not None:
                    return  # it has begun after all
                run.start = None
                said = f"the start was given up after {taken_s:.0f} s of {start.doing}"
                self._failed(run, PipelineFailed(said), is_lasting=True)
            elif taken_s > SLOW_START_S and not start.is_told:
                start.is_told = True
                self.told(f"{run.name}: has been starting for {taken_s:.0f} s: {start.doing}")
            return
        run.start = None
        if start.told and not run.is_gone_told:
            run.is_gone_told = True
            self.told(f"{run.name}: {start.told}")
        if start.error is not None:
            self._failed(run, start.error, is_lasting=self._is_lasting(start.error))
            return
        if start.query is not None:
            run.began(start.query)
        self.told(f"{run.name}: running, checkpoint {run.record.checkpoint}")

    def _is_lasting(self, error: BaseException) -> bool:
        """Whether a second try would fail for the same reason."""
        from py4j.protocol import Py4JError
        from pyspark.errors import AnalysisException, ParseException, PySparkException

        if isinstance(error, AnalysisException | ParseException):
            return True
        if isinstance(error, FlintError):
            cause = error.__cause__
            if not isinstance(cause, FlintError):
                return True
            return self.options.available_now and isinstance(cause, LoginRefused | NotFound | AccessRefused)
        return not isinstance(error, PySparkException | Py4JError | OSError)

    def _failed(self, run: FlowRun, error: BaseException, is_lasting: bool) -> None:
        """Waits before the next try, longer each time; or gives up."""
        run.failures += 1
        reason = reasons.plain(error)
        run.status.last_error = reason
        limit = run.pipeline.restarts_max
        if limit is None and self.options.available_now:
            limit = RESTARTS_MAX_OF_A_BOUNDED_RUN
        if is_lasting or (limit is not None and run.failures > limit):
            run.status.state = status.FAILED
            run.is_passing = not is_lasting
            self.told(f"{run.name}: failed: {reason}")
            return
        delay_s = min(BACKOFF_S_MAX, self.options.backoff_s_min * 2.0 ** (run.failures - 1))
        # Flows that failed together, as with their broker, do not all come back at the same moment.
        delay_s *= self.clock.random.uniform(0.5, 1.0)
        run.due_s = self.clock.monotonic_s() + delay_s
        run.status.restarts += 1
        run.status.state = status.WAITING
        self.told(f"{run.name}: {reason} (again in {delay_s:.1f} s)")

    def _write(self, state: str | None) -> None:
        """The status files; without a state, that which the flows ended in."""
        for file in self.files:
            flows = {flow.state for flow in file.status.flows.values()}
            if state is not None and not flows <= {status.FINISHED, status.FAILED, status.STOPPED}:
                file.status.state = state
            else:
                order = (status.FAILED, status.STOPPED, status.FINISHED)
                file.status.state = next((each for each in order if each in flows), status.STOPPED)
            self._write_file(file)

    def _write_file(self, file: StatusFile) -> None:
        """A disk that is full hides how the pipeline does. The flows do not depend on this file."""
        try:
            file.write(self.clock.wall_ms())
        except OSError as error:
            if not self.is_status_lost:
                self.told(f"{file.path}: the status is not written: {error.strerror}; make room there")
            self.is_status_lost = True
        else:
            self.is_status_lost = False

    def _end(self, close_spark: Callable[[], None]) -> None:
        """Names and directories are let go after Spark has stopped: until then a task may still write."""
        try:
            close_spark()
        finally:
            self._close()

    def _close(self) -> None:
        for run in self.runs:
            run.release_directory()
        for file in self.files:
            file.close()

    def end(self) -> None:
        self.ended.set()


def end_on_signals(runner: Runner) -> None:
    """SIGTERM and Ctrl-C end the run; what a batch had not finished is read again at the next start."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: runner.end())


def run(pipelines: Sequence[Pipeline], master: str, options: RunOptions, told: Callable[[str], None]) -> int:
    """Runs the pipelines on a session of their own; the exit status of the command."""
    given: dict[str, str] = {}
    for pipeline in pipelines:
        for name, value in pipeline.spark.items():
            if given.setdefault(name, value) != value and not name.startswith("spark.sql."):
                raise PipelineFailed(
                    f"pipelines that run together need one {name}, not {given[name]} and {value}"
                )
    runner = Runner(pipelines, options, told)
    end_on_signals(runner)
    opened: list[SparkSession] = []

    def open_spark() -> SparkSession:
        opened.append(open_session(master, given))
        end_on_signals(runner)  # again: Spark has taken Ctrl-C for itself
        return opened[0]

    def close_spark() -> None:
        for spark in opened:
            spark.stop()

    if runner.run(open_spark, close_spark):
        return 0
    return EXIT_PASSING if runner.is_worth_another_run else EXIT_FAILED
