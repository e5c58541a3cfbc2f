"""Flows that fail: what a user's function does, what no second try mends, a disk without room."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from running import Told, of_text, run, run_until

from flintmq.pipelines.run import reasons, status

FUNCTIONS = """
import sys, threading

def raises(frames, arguments):
    return frames["rows"].no_such_method()

def wrong(frames, arguments):
    return "rows"

def leaves(frames, arguments):
    sys.exit(3)

def hangs(frames, arguments):
    threading.Event().wait()
"""

HEAD = """
[pipeline]
name = "test"
trigger = "100 ms"
[[source]]
name = "rows"
rate = 10
"""


def two_flows(tmp_path: Path, function: str) -> str:
    (tmp_path / "functions_of_test.py").write_text(FUNCTIONS)
    sys.modules.pop("functions_of_test", None)
    return f"""{HEAD}
[[transform]]
name = "bad"
python = "functions_of_test:{function}"
inputs = ["rows"]
[[sink]]
name = "bad"
from = "bad"
parquet = "{tmp_path}/bad"
[[sink]]
name = "good"
from = "rows"
parquet = "{tmp_path}/good"
"""


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("raises", "transform 'bad' (functions_of_test:raises) raised "),
        ("wrong", "transform 'bad' (functions_of_test:wrong) returned str, expected a DataFrame of Spark"),
        ("leaves", "transform 'bad' (functions_of_test:leaves) ended the process at functions_of_test.py"),
        ("hangs", "s of transform 'bad'"),
    ],
)
def test_a_bad_function_ends_its_flow_alone(
    spark: Any, state: Path, tmp_path: Path, function: str, said: str
) -> None:
    from flintmq.pipelines.run.runner import Runner, RunOptions

    told = Told()
    pipeline = of_text(two_flows(tmp_path, function), tmp_path)
    options = RunOptions(state, backoff_s_min=0.01, start_s_max=3.0 if function == "hangs" else 600.0)
    runner = Runner([pipeline], options, told)
    outcome: list[bool] = []
    thread = threading.Thread(target=lambda: outcome.append(runner.run(lambda: spark)))
    thread.start()
    try:
        for _ in range(1000):
            known = status.read(state, "test")
            assert known is not None
            if known.flows["bad"].state == status.FAILED and known.flows["good"].rows:
                break
            thread.join(0.1)
    finally:
        runner.end()
        thread.join(120)
    assert outcome == [False]
    known = status.read(state, "test")
    assert known is not None
    assert known.state == status.FAILED
    assert known.flows["good"].rows > 0, told
    assert said in (known.flows["bad"].last_error or ""), known
    assert any(said in line for line in told), told
    assert not runner.is_worth_another_run


def test_a_bounded_run_does_not_try_again_what_needs_a_person(
    spark: Any, uri: str, connection: Any, state: Path, tmp_path: Path
) -> None:
    text = """
[pipeline]
name = "test"
[[source]]
name = "rows"
uri = "{uri}"
{key} = "{queue}"
declare = {declare}
[[sink]]
name = "out"
from = "rows"
parquet = "{out}"
"""
    connection.channel().queue("there", durable=True)
    for number, (place, key, queue, said) in enumerate(
        (
            (uri, "queue", "not-there", "no queue 'not-there'"),
            (uri.replace("guest:guest", "guest:wrong"), "queue", "there", "refused user 'guest'"),
            (uri, "stream", "there", "Queue 'there' is a classic queue, and a stream is wanted"),
        )
    ):
        declare = "true" if key == "stream" else "false"
        known_text = text.format(uri=place, key=key, queue=queue, declare=declare, out=tmp_path / "out")
        done, told = run(spark, of_text(known_text), state / str(number))
        assert not done
        assert len(told) in (1, 2), told
        assert said in told[-1], told
        assert "failed: " in told[-1]
        known = status.read(state / str(number), "test")
        assert known is not None
        assert known.flows["out"].restarts == 0


def test_flows_that_fail_together_do_not_come_back_together(state: Path, tmp_path: Path) -> None:
    from flintmq.pipelines.run.runner import Runner, RunOptions

    told = Told()
    sinks = "".join(
        f'[[sink]]\nname = "out{number}"\nfrom = "rows"\nparquet = "{tmp_path}/{number}"\n'
        for number in range(20)
    )
    pipeline = of_text(f'[pipeline]\nname = "test"\n[[source]]\nname = "rows"\nrate = 1\n{sinks}')
    runner = Runner([pipeline], RunOptions(state), told)
    try:
        for failures in range(8):
            now_s = runner.clock.monotonic_s()
            for run in runner.runs:
                runner._failed(run, OSError("the broker is away"), is_lasting=False)
            longest_s = min(60.0, 2.0**failures)
            delays_s = [run.due_s - now_s for run in runner.runs]
            assert max(delays_s) - min(delays_s) > 0.1 * longest_s
            assert min(delays_s) >= 0.5 * longest_s
            assert min(delays_s) <= longest_s
    finally:
        runner._close()


@pytest.mark.parametrize("poll_s", [0.01, 600.0])
def test_a_run_ends_while_a_sink_hangs(
    spark: Any,
    state: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    poll_s: float,
) -> None:
    """As a table in a store that does not answer. The run may not have seen yet that the query has begun."""
    import deltalake

    from flintmq.pipelines.run import runner

    monkeypatch.setattr(runner, "POLL_S", poll_s)
    begun, released = threading.Event(), threading.Event()

    def hang(*_: object, **__: object) -> None:
        begun.set()
        released.wait()

    monkeypatch.setattr(deltalake, "write_deltalake", hang)
    settings = 'spark = { "spark.sql.streaming.stopTimeout" = "1s" }'
    text = HEAD.replace('name = "test"', f'name = "test"\n{settings}')
    pipeline = of_text(f'{text}[[sink]]\nname = "out"\nfrom = "rows"\ndelta = "{tmp_path}/table"\n')
    try:
        run_until(spark, pipeline, state, begun.is_set)
    finally:
        released.set()
    known = status.read(state, "test")
    assert known is not None
    assert known.state == status.STOPPED
    assert "test.out: the query was not ended: " in caplog.text


class Stubborn:
    """A query that does not end."""

    isActive = True

    def __init__(self) -> None:
        self.stops = 0

    def stop(self) -> None:
        self.stops += 1
        raise OSError("it goes on")


def test_a_query_that_begins_while_its_run_ends_is_ended(
    state: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from flintmq.pipelines.run import runner

    starting, may_begin = threading.Event(), threading.Event()
    query = Stubborn()

    def start(*_: object) -> Stubborn:
        starting.set()
        assert may_begin.wait(60)
        return query

    for module, name in ((runner, "session_of_flow"), (runner, "SparkFiles"), (runner.frames, "build")):
        monkeypatch.setattr(module, name, lambda *_: None)
    monkeypatch.setattr(runner.sinks, "start", start)
    pipeline = of_text(f'{HEAD}[[sink]]\nname = "out"\nfrom = "rows"\ndelta = "table"\n')
    flows = runner.Runner([pipeline], runner.RunOptions(state), Told())
    thread = threading.Thread(target=flows.run, args=(lambda: None,))
    thread.start()
    assert starting.wait(60)
    flows.end()
    thread.join(60)
    assert query.stops == 0
    may_begin.set()
    (flow,) = flows.runs
    assert flow.start is not None
    assert flow.start.done.wait(60)
    assert (query.stops, flow.status.state) == (1, status.STOPPED)
    assert "test.out: the query was not ended: it goes on" in caplog.text


def test_a_start_that_is_given_up_as_it_ends_has_begun(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flintmq.pipelines.run import runner

    pipeline = of_text(f'{HEAD}[[sink]]\nname = "out"\nfrom = "rows"\ndelta = "table"\n')
    told = Told()
    flows = runner.Runner([pipeline], runner.RunOptions(state, start_s_max=1.0), told)
    (flow,) = flows.runs
    query = cast(Any, Stubborn())
    monkeypatch.setattr(runner.Start, "_run", lambda start, *_: None)
    flow.start = start = runner.Start(flow, cast(Any, None), False, 0.0)
    start.query = query
    flows._look_at_start(flow, start, 2.0)
    assert flow.start is start, told
    start.done.set()
    flows._look_at_start(flow, start, 2.0)
    flows._close()
    assert (flow.query, flow.status.state) == (query, status.RUNNING), told


def test_flows_are_stopped_at_the_same_time(state: Path, tmp_path: Path) -> None:
    """Each may wait for its batch as long as Spark waits: one after the other an init system ends them."""
    from flintmq.pipelines.run.runner import Runner, RunOptions

    flows = 5
    sinks = "".join(
        f'[[sink]]\nname = "out{number}"\nfrom = "rows"\nparquet = "{tmp_path}/{number}"\n'
        for number in range(flows)
    )
    all_wait = threading.Barrier(flows)
    stopped: list[int] = []

    def stop() -> None:
        stopped.append(all_wait.wait(30))

    runner = Runner([of_text(f"{HEAD}{sinks}")], RunOptions(state), Told())
    for flow in runner.runs:
        flow.query = SimpleNamespace(isActive=True, stop=stop)  # type: ignore[assignment]
    runner.end()
    assert runner.run(lambda: cast(Any, None))
    assert sorted(stopped) == list(range(flows))
    assert {flow.status.state for flow in runner.runs} == {status.STOPPED}


def test_every_run_has_a_limit_for_the_end_of_a_query() -> None:
    from flintmq.pipelines.run.sessions import settings_for

    assert settings_for("local[2]", {})["spark.sql.streaming.stopTimeout"] == "20s"


def test_pipelines_that_run_together_do_not_share_a_directory(state: Path, tmp_path: Path) -> None:
    from flintmq.pipelines.errors import PipelineFailed
    from flintmq.pipelines.run.runner import Runner, RunOptions

    text = f'{HEAD}[[sink]]\nname = "out"\nfrom = "rows"\nparquet = "{tmp_path}/out"\n'
    pipelines = [of_text(text), of_text(text.replace('name = "test"', 'name = "other"'))]
    with pytest.raises(PipelineFailed, match=r"test.out and other.out both write to .*name another"):
        Runner(pipelines, RunOptions(state), Told())
    Runner(pipelines[:1], RunOptions(state), Told())._close()  # the name was let go


def checkpoint_of(state: Path, pipeline: str) -> Path:
    """A healthy checkpoint of the flow out, with its record."""
    made = state / "checkpoints" / pipeline / "out"
    (made / "offsets").mkdir(parents=True)
    (made / "offsets" / "0").write_text("v1")
    return made


def test_a_reset_that_is_refused_leaves_every_checkpoint_where_it_is(state: Path, tmp_path: Path) -> None:
    """The directory has batches: Spark would leave out those of a new checkpoint."""
    from flintmq.pipelines.errors import CheckpointUnfit
    from flintmq.pipelines.run.runner import Runner, RunOptions

    text = f'{HEAD}[[sink]]\nname = "out"\nfrom = "rows"\nparquet = "{tmp_path}/out"\n'
    first = of_text(text.replace('name = "test"', 'name = "first"').replace(f"{tmp_path}/out", "elsewhere"))
    pipelines = [first, of_text(text)]
    Runner(pipelines, RunOptions(state), Told())._close()
    healthy = [checkpoint_of(state, pipeline.name) for pipeline in pipelines]
    (tmp_path / "out" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "out" / "_spark_metadata" / "0").write_text("v1")
    with pytest.raises(
        CheckpointUnfit, match=r"--reset was refused and set nothing aside: .*has batches up to 0"
    ):
        Runner(pipelines, RunOptions(state, reset=True), Told())
    assert [path.name for path in state.glob("checkpoints/*/*.old")] == []
    assert all(path.is_dir() for path in healthy)
    Runner(pipelines, RunOptions(state), Told())._close()  # goes on
    shutil.rmtree(tmp_path / "out")
    Runner(pipelines, RunOptions(state, reset=True), Told())._close()
    assert not any(path.exists() for path in healthy)


@pytest.mark.parametrize("obstacle", ["shared directory", "remote checkpoint", "name in use"])
def test_a_run_that_is_refused_sets_nothing_aside(state: Path, tmp_path: Path, obstacle: str) -> None:
    from flintmq.errors import FlintError
    from flintmq.pipelines.run.runner import Runner, RunOptions

    text = f'{HEAD}[[sink]]\nname = "out"\nfrom = "rows"\nparquet = "{tmp_path}/out"\n'
    other = text.replace('name = "test"', 'name = "other"')
    if obstacle != "shared directory":
        other = other.replace(f"{tmp_path}/out", f"{tmp_path}/other")
    if obstacle == "remote checkpoint":
        other = other.replace('name = "other"', 'name = "other"\ncheckpoint = "s3a://bucket/c"')
    pipelines = [of_text(text), of_text(other)]
    Runner(pipelines[:1], RunOptions(state), Told())._close()
    healthy = checkpoint_of(state, "test")
    running = Runner(pipelines[1:], RunOptions(state), Told()) if obstacle == "name in use" else None
    try:
        with pytest.raises(FlintError):
            Runner(pipelines, RunOptions(state, reset=True), Told())
    finally:
        if running is not None:
            running._close()
    assert healthy.is_dir()


def progress_of(batch: int, time: str, run_id: str = "first") -> dict[str, Any]:
    return {
        "runId": run_id, "batchId": batch, "timestamp": f"2026-01-01T{time}.000Z", "numInputRows": 5,
        "durationMs": {}, "sources": [],
    }  # fmt: skip


def test_batches_count_while_the_clock_goes_back(tmp_path: Path) -> None:
    """Else the failures of a flow that does well again are not forgotten."""
    from flintmq.pipelines.queries.fingerprint import FlowRecord
    from flintmq.pipelines.run.runner import FlowRun

    pipeline = of_text(f'{HEAD}[[sink]]\nname = "out"\nfrom = "rows"\nparquet = "{tmp_path}/out"\n')
    run = FlowRun(pipeline, pipeline.flows()[0], FlowRecord("", "id"))
    told = [progress_of(0, "12:00:00"), progress_of(1, "12:00:01"), progress_of(2, "11:00:02")]
    for seen, rows in ((told[:2], 10), (told, 15), (told[1:], 15), ([progress_of(3, "11:00:03")], 20)):
        run.query = SimpleNamespace(recentProgress=seen)  # type: ignore[assignment]
        run.failures = 3
        run.observe(0)
        run.observe(0)
        assert run.status.rows == rows
        assert run.failures == (3 if seen == told[1:] else 0)
    run.query = SimpleNamespace(recentProgress=[progress_of(3, "11:00:03", "second")])  # type: ignore[assignment]
    run.observe(0)
    assert run.status.rows == 25, "a query that was started again runs its batch again"


def test_a_second_run_with_another_state_takes_over_and_the_first_ends(
    spark: Any, uri: str, connection: Any, state: Path, tmp_path: Path
) -> None:
    """Two runs that both came back would take the queue from each other for ever."""
    from flintmq.pipelines.run.runner import Runner, RunOptions

    with connection.channel(confirm=True) as channel:
        channel.queue("contested", durable=True)
        channel.publish(b"first", routing_key="contested", persistent=True)
    text = """
[pipeline]
name = "contest"
trigger = "0 seconds"
[[source]]
name = "rows"
uri = "{uri}"
queue = "contested"
[[sink]]
name = "out"
from = "rows"
parquet = "{out}"
"""
    pipeline = of_text(text.format(uri=uri, out=tmp_path / "out"))
    told, outcome = Told(), []
    first = Runner([pipeline], RunOptions(state / "one", backoff_s_min=0.01), told)
    thread = threading.Thread(target=lambda: outcome.append(first.run(lambda: spark)))
    thread.start()
    try:
        wait_for(lambda: first.runs[0].status.rows == 1, told)
        second = of_text(text.format(uri=uri, out=tmp_path / "other"))  # a directory takes one of the two
        told_second = run_until(spark, second, state / "two", lambda: not thread.is_alive())
    finally:
        first.end()
        thread.join(120)
    assert outcome == [False]
    assert not first.is_worth_another_run
    assert any("with another --state" in line for line in told), told
    assert "consumer 'contest.out.rows'" in told[-1]
    assert first.runs[0].status.restarts == 0
    assert not any("failed" in line or "again in" in line for line in told_second), told_second


def wait_for(holds: Callable[[], bool], told: Told) -> None:
    pause = threading.Event()
    for _ in range(1500):
        if holds():
            return
        pause.wait(0.1)
    raise AssertionError(f"not seen: {told}")


@pytest.mark.parametrize("available_now", [True, False])
def test_a_checkpoint_that_does_not_fit_ends_its_flow_in_every_run(state: Path, available_now: bool) -> None:
    """A batch of the same number comes again at each start, and the table refuses it each time."""
    from flintmq.pipelines.run.runner import Runner, RunOptions

    told = Told()
    pipeline = of_text(f'{HEAD}[[sink]]\nname = "out"\nfrom = "rows"\ndelta = "table"\n')
    runner = Runner([pipeline], RunOptions(state, available_now), told)
    try:
        (run,) = runner.runs
        text = "Traceback ...\nflintmq.pipelines.errors.CheckpointUnfit: batch 1 has the number of another."
        runner._query_failed(run, RuntimeError(text))
        assert run.status.state == status.FAILED
        assert told == ["test.out: failed: batch 1 has the number of another."]
        assert not runner.is_worth_another_run
    finally:
        runner._close()


def test_reasons_that_last() -> None:
    refused = "Traceback ...\nflintmq.spark.errors.AmqpRefused: Reading: no queue 'a'; declare it first."
    assert reasons.is_lasting(RuntimeError(refused))
    assert reasons.plain(RuntimeError(refused)) == "Reading: no queue 'a'; declare it first."
    assert not reasons.is_lasting(RuntimeError("flintmq.spark.errors.AmqpError: no connection"))
    assert not reasons.is_lasting(RuntimeError("a plain one"))
    assert reasons.is_lasting(RuntimeError("[USER_RAISED_EXCEPTION] offset 2 is malformed SQLSTATE: P0001"))


def test_the_reason_has_the_name_of_an_error_that_tells_little_without_it() -> None:
    traceback = "[STREAM_FAILED] Query terminated: Traceback (most recent call last):\n  File x\n"
    assert reasons.plain(RuntimeError(f"{traceback}KeyError: 'price'")) == "KeyError: 'price'"
    assert reasons.plain(RuntimeError(f"{traceback}shop.errors.StockError: none")) == "StockError: none"
    ours = f"{traceback}flintmq.spark.errors.AmqpError: Reading: no connection."
    assert reasons.plain(RuntimeError(ours)) == "Reading: no connection."
    java = (
        "An error occurred while calling o84.start.\n: org.apache.spark.SparkException: Cannot write\n"
        "\tat org.apache.spark.sql.X.start(X.scala:4)\n"
        "Caused by: java.io.IOException: No space left on device\n\tat java.base/sun.nio.ch.Y.write0(Z)\n"
    )
    assert reasons.plain(RuntimeError(java)) == "No space left on device"
    assert reasons.plain(RuntimeError(java.partition("Caused")[0])) == "Cannot write"
    nameless = "An error occurred while calling o8.start.\n: java.lang.NullPointerException\n\tat x.Y(Z)"
    assert reasons.plain(RuntimeError(nameless)) == "NullPointerException"
    sparks = f"{traceback}org.apache.spark.SparkException: Python worker failed to connect back."
    assert reasons.plain(RuntimeError(sparks)) == "Python worker failed to connect back."


def test_a_status_that_cannot_be_written_does_not_end_the_run(
    spark: Any, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk under --state is full: the run goes on, and says so once."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    text = f'{HEAD}\n[[sink]]\nname = "good"\nfrom = "rows"\nparquet = "{tmp_path}/good"\n'
    monkeypatch.setattr(status.StatusFile, "write", full)
    done, told = run(spark, of_text(text), state)
    assert done, told
    assert [line for line in told if "No space left on device; make room there" in line] == told[:1]


SLOW = f'{HEAD}\n[[sink]]\nname = "out"\nfrom = "rows"\nparquet = "{{out}}"\n'


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_process_group_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """As a terminal, systemd and container engines send it: to Spark's own processes as well."""
    (tmp_path / "p.toml").write_text(SLOW.format(out=tmp_path / "out"))
    command = [sys.executable, "-m", "flintmq", "pipeline", "run", str(tmp_path / "p.toml")]
    process = subprocess.Popen(
        [*command, "--state", str(tmp_path / "state"), "--master", "local[1]"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "running, checkpoint" in line:
                break
        os.killpg(process.pid, number)
        rest, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, rest
    assert "Traceback" not in rest
    assert "Error" not in rest
    known = status.read(tmp_path / "state", "test")
    assert known is not None
    assert (known.state, known.flows["out"].last_error) == (status.STOPPED, None)


class NoSpark:
    """In place of Spark: a query that has ended, and files as this process sees them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failures: int = 0) -> None:
        from flintmq.pipelines.run import runner

        self.failures = failures
        self.stopped: Callable[[], None] = lambda: None
        monkeypatch.setattr(runner, "open_session", lambda *_: self)
        monkeypatch.setattr(runner, "session_of_flow", lambda *_: self)
        monkeypatch.setattr(runner, "end_on_signals", lambda *_: None)
        monkeypatch.setattr(runner, "SparkFiles", lambda _: self)
        monkeypatch.setattr(runner, "POLL_S", 0.01)
        monkeypatch.setattr(runner.frames, "build", lambda *_: None)
        monkeypatch.setattr(runner.sinks, "start", self._start)

    def _start(self, *_: object) -> Any:
        if self.failures:
            self.failures -= 1
            raise OSError("the store is away")
        return SimpleNamespace(isActive=False, recentProgress=[], exception=lambda: None)

    def stop(self) -> None:
        self.stopped()

    def names(self, place: str) -> list[str]:
        return os.listdir(place) if Path(place).is_dir() else []

    def make(self, place: str) -> None:
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        Path(place).touch()

    def remove(self, place: str) -> bool:
        Path(place).unlink(missing_ok=True)
        return True

    def local(self, place: str) -> Path:
        return Path(place)


def test_a_directory_is_held_until_spark_has_stopped(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that Spark has not ended yet may still write."""
    from flintmq.pipelines.run import runner
    from flintmq.storage.file_lock import try_lock

    spark = NoSpark(monkeypatch)
    held: list[bool] = []

    def look() -> None:
        with open(tmp_path / "out" / "_flintmq.lock") as lock:
            held.append(not try_lock(lock.fileno()))

    def stop() -> None:
        look()
        raise OSError("Java is gone")

    spark.stopped = stop
    pipeline = of_text(f'{HEAD}[[sink]]\nname = "out"\nfrom = "rows"\nparquet = "{tmp_path}/out"\n')
    told = Told()
    with pytest.raises(OSError, match="Java is gone"):
        runner.run([pipeline], "local[1]", runner.RunOptions(state), told)
    assert told[-1] == "test.out: finished, 0 rows"
    look()
    assert held == [True, False]
    runner.Runner([pipeline], runner.RunOptions(state), told)._close()  # the name was let go


def test_a_checkpoint_that_is_gone_is_told_once(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flintmq.pipelines.run import runner

    NoSpark(monkeypatch, failures=3)
    text = HEAD.replace('name = "test"', 'name = "test"\ncheckpoint = "s3a://bucket/c"')
    pipeline = of_text(f'{text}[[sink]]\nname = "out"\nfrom = "rows"\nconsole = true\n')
    runner.Runner([pipeline], runner.RunOptions(state), Told())._close()
    told = Told()
    assert runner.run([pipeline], "local[1]", runner.RunOptions(state, backoff_s_min=0.01), told) == 0
    assert len([line for line in told if "again in" in line]) == 3, told
    assert len([line for line in told if "is not there" in line]) == 1, told


def test_a_start_that_fails_leaves_no_notes_of_its_run(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flintmq.pipelines.run import runner

    NoSpark(monkeypatch, failures=3)
    pipeline = of_text(f'{HEAD}[[sink]]\nname = "out"\nfrom = "rows"\nparquet = "{tmp_path}/out"\n')
    told = Told()
    assert runner.run([pipeline], "local[1]", runner.RunOptions(state, backoff_s_min=0.01), told) == 0, told
    for place in (tmp_path / "out", state / "checkpoints" / "test" / "out"):
        assert [name[:4] for name in os.listdir(place / "_flintmq_runs")] == ["0.0."], "of the last start"


class Watched:
    """In place of a Parquet directory and of a query: looks end as told, and a query that does not stop."""

    place = "s3a://bucket/out"

    def __init__(self, *looks: Exception | None) -> None:
        self.looks = list(looks)
        self.looked = threading.Event()  # all of them
        self.isActive = True
        self.stops = 0
        self.may_stop = threading.Event()
        self.recentProgress: list[Any] = []
        self.lastProgress = None

    def look(self) -> None:
        found = self.looks.pop(0) if self.looks else None
        if not self.looks:
            self.looked.set()
        if found is not None:
            raise found

    def stop(self) -> None:
        self.stops += 1
        self.may_stop.wait(60)

    def exception(self) -> None:
        return None


def test_a_look_that_fails_is_told_once_and_again_after_one_that_worked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from flintmq.pipelines.run import runner

    monkeypatch.setattr(runner.parquet_directory, "LOOK_S", 0.001)
    directory: Any = Watched(OSError("a"), ValueError("b"), None, KeyError("c"), TypeError("d"), None)
    watch = runner.DirectoryWatch("test.out", directory, directory)
    assert directory.looked.wait(60)
    watch.end(0.0)
    assert watch.done.wait(60)
    told = [line for line in caplog.messages if "are not found out" in line]
    assert told == [
        f"test.out: other runs into s3a://bucket/out are not found out: {said}" for said in ("a", "'c'")
    ]
    assert (watch.error, directory.stops) == (None, 0)


def test_a_flow_whose_directory_is_taken_does_not_finish(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its query ends by itself while the watch still ends it."""
    from flintmq.pipelines.queries.parquet_directory import DirectoryTaken
    from flintmq.pipelines.run import runner

    monkeypatch.setattr(runner.parquet_directory, "LOOK_S", 0.001)
    told = Told()
    pipeline = of_text(f'{HEAD}[[sink]]\nname = "out"\nfrom = "rows"\nparquet = "out"\n')
    flows = runner.Runner([pipeline], runner.RunOptions(state), told)
    watched: Any = Watched(DirectoryTaken("another run writes"))
    later: Any = Watched()
    try:
        (flow,) = flows.runs
        flow.directory = watched
        flow.began(watched)
        watch = flow.watch
        assert watch is not None
        flow.query = later  # a query that is started since is not this watch's
        wait_for(lambda: watched.stops == 1, told)
        assert not watch.done.is_set()
        flows._finish(flow, 0.0)
        flows._finish(flow, runner.LAST_LOOK_S_MAX)
        assert flow.status.state == status.FAILED
        assert told == ["test.out: failed: another run writes"]
        assert not flows.is_worth_another_run
        assert later.stops == 0
    finally:
        watched.may_stop.set()
        flow.directory = None
        flows._close()
