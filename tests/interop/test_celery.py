"""A real Celery worker in a process of its own: what people do with tasks, through the broker."""
# mypy: disable-error-code="attr-defined,no-untyped-call"

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord, group
from celery.exceptions import TaskRevokedError
from interop_live import HERE, Broker, eventually
from interop_tasks import make_app
from kombu import Queue

Name = Callable[[str], str]
RESULT_S_MAX = 15.0


class Worker:
    """`celery worker` with one pool process, and the application that gives it work."""

    def __init__(self, broker: Broker, folder: Path, backend: str = "rpc://") -> None:
        self.prefix = f"celery-{uuid.uuid4().hex[:8]}"
        self.broker, self.folder, self.backend = broker, folder, backend
        self.app = make_app(broker.url, backend, self.prefix)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.hostname = ""

    def start(self) -> None:
        number = len(self.processes)
        self.hostname = f"{self.prefix}-{number}@test"
        command = [sys.executable, "-m", "celery", "-A", "interop_tasks", "worker", "-c", "1"]
        command += ["-n", self.hostname, "--loglevel", "INFO"]
        env = {
            **os.environ,
            "INTEROP_BROKER": self.broker.url,
            "INTEROP_BACKEND": self.backend,
            "INTEROP_PREFIX": self.prefix,
            "PYTHONPATH": str(HERE),
        }
        self.log = self.folder / f"worker-{number}.log"
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=env, cwd=self.folder, start_new_session=True
            )
        self.processes.append(process)
        eventually(lambda: " ready." in self.said() or process.poll() is not None, "the worker starts", 25)
        assert process.poll() is None, self.said()

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]

    def kill(self) -> None:
        """The worker and its pool die at once, as when the machine is switched off."""
        os.killpg(self.processes[-1].pid, signal.SIGKILL)
        self.processes[-1].wait(10)

    def stop(self) -> None:
        process = self.processes[-1]
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()
                pytest.fail(f"the worker did not stop:\n{self.said()}")

    def task(self, task: str, *arguments: Any, **settings: Any) -> Any:
        return self.app.tasks[task].apply_async(arguments, **settings)

    def result(self, task: str, *arguments: Any, **settings: Any) -> Any:
        return self.task(task, *arguments, **settings).get(timeout=RESULT_S_MAX)


@pytest.fixture(scope="session")
def worker(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    running = Worker(broker, tmp_path_factory.mktemp("celery"))
    running.start()
    yield running
    running.stop()


@pytest.fixture
def own_worker(broker: Broker, tmp_path: Path) -> Iterator[Worker]:
    """Not started; a test that kills or sets up its worker has one of its own."""
    (tmp_path / "results").mkdir()
    mine = Worker(broker, tmp_path, f"file://{tmp_path}/results")
    yield mine
    mine.stop()


def test_result(worker: Worker) -> None:
    assert [worker.result("add", n, 1) for n in range(5)] == [1, 2, 3, 4, 5]


def test_failure_is_raised_at_the_caller(worker: Worker) -> None:
    with pytest.raises(ValueError, match="no good"):
        worker.result("fail", "no good")


def test_large_argument_and_result(worker: Worker) -> None:
    numbers = list(range(100_000))
    assert worker.result("tsum", numbers) == sum(numbers)


def test_retries(worker: Worker) -> None:
    assert worker.result("flaky", 3) == 3


def test_countdown_waits(worker: Worker) -> None:
    begin = time.monotonic()
    assert worker.result("add", 1, 1, countdown=1.5) == 2
    assert time.monotonic() - begin >= 1.4


def test_tasks_in_the_future_do_not_keep_others_waiting(worker: Worker) -> None:
    """The worker takes more ETA tasks than its prefetch: it widens its window for each.

    Celery may be seconds late with each step, when the next task comes on the heels of basic.qos-ok;
    a window that does not widen at all holds the other task until the future has come.
    """
    later = [worker.task("add", number, 0, countdown=9) for number in range(3)]
    begin = time.monotonic()
    assert worker.result("add", 2, 2) == 4
    assert time.monotonic() - begin < 8, "it was stuck behind the tasks of the future"
    assert [result.get(timeout=RESULT_S_MAX) for result in later] == list(range(3))
    assert worker.result("add", 3, 3) == 6, "and the window is right again"


def test_group_and_chain(worker: Worker) -> None:
    add, tsum = worker.app.tasks["add"], worker.app.tasks["tsum"]
    many = group(add.s(n, n) for n in range(20))()
    assert many.get(timeout=RESULT_S_MAX) == [2 * n for n in range(20)]
    assert chain(add.s(1, 2), add.s(3), add.s(4))().get(timeout=RESULT_S_MAX) == 10
    assert tsum.delay([1, 2]).get(timeout=RESULT_S_MAX) == 3


def test_chord(own_worker: Worker) -> None:
    """The rpc backend cannot do chords; with another one the chord's own tasks go through the broker."""
    own_worker.start()
    add, tsum = own_worker.app.tasks["add"], own_worker.app.tasks["tsum"]
    own_worker.app.set_current()
    answer = chord((add.s(n, n) for n in range(5)), tsum.s())()
    assert answer.get(timeout=RESULT_S_MAX) == 20


def test_revoke(worker: Worker) -> None:
    waiting = worker.task("add", 1, 1, countdown=3)
    inspect = worker.app.control.inspect(destination=[worker.hostname], timeout=1)

    def scheduled() -> bool:
        known = inspect.scheduled() or {}
        return any(item["request"]["id"] == waiting.id for item in known.get(worker.hostname, []))

    eventually(scheduled, "the worker has taken the task")
    worker.app.control.revoke(waiting.id, destination=[worker.hostname])
    with pytest.raises(TaskRevokedError):
        waiting.get(timeout=RESULT_S_MAX)
    assert worker.result("add", 1, 2) == 3


def test_inspect_and_ping(worker: Worker) -> None:
    control = worker.app.control
    assert control.ping(destination=[worker.hostname], timeout=2) == [{worker.hostname: {"ok": "pong"}}]
    inspect = control.inspect(destination=[worker.hostname], timeout=2)
    assert {"add", "flaky"} <= set(inspect.registered()[worker.hostname])
    [queue] = inspect.active_queues()[worker.hostname]
    assert queue["name"] == f"{worker.prefix}.default"
    assert inspect.stats()[worker.hostname]["broker"]["transport"] == "amqp"


def test_broadcast_reaches_every_worker(worker: Worker) -> None:
    answers = worker.app.control.ping(timeout=1)
    assert {worker.hostname: {"ok": "pong"}} in answers


def test_queue_with_priorities(worker: Worker, tmp_path: Path) -> None:
    """Tasks wait in a queue of priorities; the worker is told to consume from it afterwards."""
    queue = f"{worker.prefix}.priority-{uuid.uuid4().hex[:6]}"
    declared = Queue(queue, routing_key=queue, queue_arguments={"x-max-priority": 10})
    with worker.app.connection_for_write() as connection:
        declared(connection.channel()).declare()
    order = tmp_path / "order"
    results = [
        worker.task("note", str(order), str(priority), queue=declared, priority=priority)
        for priority in (1, 9, 5, 0, 7)
    ]
    options = {"queue_arguments": {"x-max-priority": 10}}
    answer = worker.app.control.add_consumer(
        queue, routing_key=queue, options=options, destination=[worker.hostname], reply=True, timeout=5
    )
    assert "ok" in answer[0][worker.hostname], answer
    for result in results:
        result.get(timeout=RESULT_S_MAX)
    assert order.read_text().split() == ["9", "7", "5", "1", "0"]
    worker.app.control.cancel_consumer(queue, destination=[worker.hostname], reply=True, timeout=5)


def test_routes_go_to_their_queues(own_worker: Worker) -> None:
    """A worker of the default queue leaves the tasks of another queue alone."""
    other = f"{own_worker.prefix}.other"
    left = own_worker.task("add", 1, 1, queue=other)
    own_worker.start()
    assert own_worker.result("add", 2, 2) == 4
    assert left.state == "PENDING"
    own_worker.app.control.add_consumer(other, destination=[own_worker.hostname])
    assert left.get(timeout=RESULT_S_MAX) == 2


def test_task_of_a_killed_worker_is_done_by_the_next(own_worker: Worker, tmp_path: Path) -> None:
    """acks_late: the task that was under way is delivered again, and says so."""
    begun = tmp_path / "begun"
    own_worker.start()
    result = own_worker.task("hold", str(begun))
    eventually(begun.exists, "the task begins")
    own_worker.kill()
    own_worker.start()
    assert result.get(timeout=RESULT_S_MAX) is True
