"""Runs pipelines: each flow a streaming query, watched, started again when it fails, ended when asked.

                    +--------- failure: wait 1 s, 2 s, 4 s ... 60 s -------+
                    v                                                      |
    starting --> running --> finished (all was read)                    waiting --> failed (restarts_max)
                    +------> stopped  (SIGTERM, Ctrl-C)

A flow that fails for a reason that no second try mends, such as an SQL error, ends the run at once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flintmq.clock import Clock
from flintmq.errors import FlintError
from flintmq.pipelines import brokers, fingerprint, frames, lake, reasons, sinks, status
from flintmq.pipelines.errors import PipelineFailed
from flintmq.pipelines.fingerprint import FlowRecord
from flintmq.pipelines.model import Flow, Pipeline
from flintmq.pipelines.sessions import open_session, session_of_flow
from flintmq.pipelines.status import FlowStatus, PipelineStatus, StatusFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

POLL_S = 0.5
BACKOFF_S_MIN = 1.0
BACKOFF_S_MAX = 60.0
RESTARTS_MAX_OF_A_BOUNDED_RUN = 10
# When no batch came for so long, what the last one told is history.
PROGRESS_STALE_MS = 5_000


@dataclass(frozen=True)
class RunOptions:
    state: Path
    available_now: bool = False
    reset: bool = False
    backoff_s_min: float = BACKOFF_S_MIN


class FlowRun:
    """One flow while it runs."""

    def __init__(self, pipeline: Pipeline, flow: Flow, record: FlowRecord) -> None:
        self.pipeline = pipeline
        self.flow = flow
        self.record = record
        self.status = FlowStatus()
        self.query: StreamingQuery | None = None
        self.failures = 0
        self.due_s = 0.0
        self._seen = ""

    @property
    def is_over(self) -> bool:
        return self.status.state in (status.STOPPED, status.FINISHED, status.FAILED)

    def start(self, spark: SparkSession, available_now: bool) -> None:
        brokers.prepare(self.pipeline, self.flow)
        session = session_of_flow(spark, self.pipeline.spark)
        frame = frames.build(session, self.pipeline, self.flow)
        self.query = sinks.start(frame, self.pipeline, self.flow, self.record, available_now)
        self.status.state = status.RUNNING

    def observe(self, now_ms: int) -> None:
        """Takes over what Spark tells of the batches since the last look."""
        for progress in [] if self.query is None else self.query.recentProgress:
            told: dict[str, Any] = progress if isinstance(progress, dict) else dict(progress)
            if told["timestamp"] > self._seen:
                self._seen = told["timestamp"]
                self._take(told)
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

    def is_exhausted(self) -> bool:
        """Whether every source has come to its end, and the last batch of it is written."""
        progress = None if self.query is None else self.query.lastProgress
        return progress is not None and lake.done([source["endOffset"] for source in progress["sources"]])

    def stop(self) -> None:
        if self.query is not None and self.query.isActive:
            self.query.stop()
        if not self.is_over:
            self.status.state = status.STOPPED


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
        self.runs: list[FlowRun] = []
        try:
            for pipeline in pipelines:
                self._add(pipeline)
            self._write(status.STARTING)
        except BaseException:
            self._close()
            raise

    def _add(self, pipeline: Pipeline) -> None:
        state = self.options.state
        now_ms = self.clock.wall_ms()
        known = PipelineStatus(pipeline.name, pipeline.file, pid=os.getpid(), started_ms=now_ms)
        self.files.append(StatusFile(state, known))
        checkpoint = pipeline.checkpoint or str(state / "checkpoints" / pipeline.name)
        for flow in pipeline.flows():
            record = fingerprint.claim(
                checkpoint, state / "records" / pipeline.name, flow, self.options.reset, self.clock
            )
            run = FlowRun(pipeline, flow, record)
            known.flows[flow.name] = run.status
            self.runs.append(run)

    def run(self, open_spark: Callable[[], SparkSession]) -> bool:
        """Until all has finished or an end is asked for; whether nothing failed for good."""
        try:
            spark = open_spark()
            while not self.ended.is_set() and not all(run.is_over for run in self.runs):
                for run in self.runs:
                    self._step(spark, run)
                self._write(status.RUNNING)
                self.ended.wait(POLL_S)
        finally:
            for run in self.runs:
                run.stop()
            self._write(None)
            self._close()
        return all(run.status.state != status.FAILED for run in self.runs)

    def _step(self, spark: SparkSession, run: FlowRun) -> None:
        if run.is_over:
            return
        now_s = self.clock.monotonic_s()
        query = run.query
        if query is None:
            if now_s >= run.due_s:
                self._start(spark, run)
            return
        run.observe(self.clock.wall_ms())
        if query.isActive:
            if run.is_exhausted():
                query.stop()
                self._finish(run)
            return
        error = query.exception()
        if error is not None:
            run.query = None
            self._failed(run, error, is_lasting=False)
        else:
            self._finish(run)

    def _finish(self, run: FlowRun) -> None:
        run.status.state = status.FINISHED
        self.told(f"{run.pipeline.name}.{run.flow.name}: finished, {run.status.rows} rows")

    def _start(self, spark: SparkSession, run: FlowRun) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import AnalysisException, ParseException, PySparkException

        try:
            run.start(spark, self.options.available_now)
        except (AnalysisException, ParseException) as error:
            self._failed(run, error, is_lasting=True)
        except FlintError as error:
            self._failed(run, error, is_lasting=not isinstance(error.__cause__, FlintError))
        except (PySparkException, Py4JError, OSError) as error:
            self._failed(run, error, is_lasting=False)
        else:
            self.told(f"{run.pipeline.name}.{run.flow.name}: running, checkpoint {run.record.checkpoint}")

    def _failed(self, run: FlowRun, error: BaseException, is_lasting: bool) -> None:
        """Waits before the next try, longer each time; or gives up."""
        run.failures += 1
        reason = reasons.plain(error)
        run.status.last_error = reason
        limit = run.pipeline.restarts_max
        if limit is None and self.options.available_now:
            limit = RESTARTS_MAX_OF_A_BOUNDED_RUN
        name = f"{run.pipeline.name}.{run.flow.name}"
        if is_lasting or (limit is not None and run.failures > limit):
            run.status.state = status.FAILED
            self.told(f"{name}: failed: {reason}")
            return
        delay_s = min(BACKOFF_S_MAX, self.options.backoff_s_min * 2.0 ** (run.failures - 1))
        run.due_s = self.clock.monotonic_s() + delay_s
        run.status.restarts += 1
        run.status.state = status.WAITING
        self.told(f"{name}: {reason} (again in {delay_s:g} s)")

    def _write(self, state: str | None) -> None:
        """The status files; without a state, that which the flows ended in."""
        for file in self.files:
            flows = {flow.state for flow in file.status.flows.values()}
            if state is not None and not flows <= {status.FINISHED, status.FAILED, status.STOPPED}:
                file.status.state = state
            else:
                order = (status.FAILED, status.STOPPED, status.FINISHED)
                file.status.state = next((each for each in order if each in flows), status.STOPPED)
            file.write(self.clock.wall_ms())

    def _close(self) -> None:
        for file in self.files:
            file.close()

    def end(self) -> None:
        self.ended.set()


def end_on_signals(runner: Runner) -> None:
    """SIGTERM and Ctrl-C end the run; what a batch had not finished is read again at the next start."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: runner.end())


def run(pipelines: Sequence[Pipeline], master: str, options: RunOptions, told: Callable[[str], None]) -> bool:
    """Runs the pipelines on a session of their own; whether nothing failed for good."""
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

    try:
        return runner.run(open_spark)
    finally:
        for spark in opened:
            spark.stop()
