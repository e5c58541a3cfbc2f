"""docs/celery.md as it stands: its files, its workers and its tasks, with the real Celery."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from interop_live import Broker, eventually

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "celery.md").read_text()
FILES = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", PAGE, re.S | re.M))
WAIT_S_MAX = 30.0


@pytest.fixture
def project(broker: Broker, tmp_path: Path) -> Path:
    for name, text in FILES.items():
        assert "localhost" in text or "from tasks import" in text, name
        (tmp_path / name).write_text(text.replace("guest:guest@localhost//", broker.url.partition("//")[2]))
    return tmp_path


def run(project: Path, code: str) -> list[str]:
    """The lines that a program of the project prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@contextmanager
def worker(project: Path, module: str, *options: str) -> Iterator[None]:
    command = [sys.executable, "-m", "celery", "-A", module, "worker", "-c", "1", "--loglevel", "INFO"]
    command += ["-n", f"{module}@{project.name}", *options]
    log = project / "worker.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=project, stdout=output, stderr=output, env=os.environ)
    try:
        eventually(
            lambda: " ready." in log.read_text() or process.poll() is not None,
            "the worker starts",
            WAIT_S_MAX,
        )
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.terminate()
        process.wait(WAIT_S_MAX)


def test_a_first_task(project: Path) -> None:
    with worker(project, "tasks"):
        assert run(project, FILES["first.py"]) == ["5"]


def test_priorities(project: Path) -> None:
    """Tasks wait until the worker comes, and are done by their priorities."""
    ask = """
from urgent import app
from tasks import add
for number, priority in ((1, 0), (2, 9), (3, None)):
    options = {} if priority is None else {"priority": priority}
    add.apply_async((number, 0), **options)
"""
    run(project, ask)
    log = project / "worker.log"
    with worker(project, "urgent"):
        done = re.compile(r"succeeded in [\d.]+s: (\d)")
        eventually(lambda: len(done.findall(log.read_text())) == 3, "three tasks are done", WAIT_S_MAX)
        assert done.findall(log.read_text()) == ["2", "3", "1"]


@pytest.mark.parametrize(
    ("module", "ask"),
    [
        (
            "later",
            "from later import app; from tasks import add; later = add.apply_async((1, 2), countdown=3)",
        ),
        ("delayed", "from delayed import add_after; later = add_after(3000, 1, 2)"),
    ],
)
def test_a_task_of_the_future_waits_in_the_broker(
    project: Path, broker: Broker, module: str, ask: str
) -> None:
    """No worker holds the task meanwhile: its queue has nothing unacked, and nothing that waits."""
    look = f"""
import time
begun = time.monotonic()
{ask}
from flintmq.client import connect
with connect({broker.url!r}) as connection:
    info = connection.request("queue.info", {{"queue": {module!r}}}).results
print(info["messages-ready"], info["messages-unacked"])
print(later.get(timeout=30), time.monotonic() - begun >= 2)
"""
    with worker(project, module):
        assert run(project, look) == ["0 0", "3 True"]


def test_tasks_that_a_worker_holds_keep_none_waiting_in_a_quorum_queue(project: Path) -> None:
    (project / "held.py").write_text(
        FILES["later.py"].replace('"later"', '"held"').replace('"topic"', '"direct"')
        + "app.conf.worker_prefetch_multiplier = 1\n"
    )
    ask = """
from held import app
from tasks import add
for number in range(3):
    add.apply_async((number, 0), countdown=60)
print(add.delay(1, 2).get(timeout=40))
"""
    with worker(project, "held", "--purge"):
        assert run(project, ask) == ["3"]


def test_kombu(project: Path) -> None:
    assert run(project, (project / "with_kombu.py").read_text()) == ["hello"]


def test_every_file_of_the_page_is_run() -> None:
    assert set(FILES) == {"tasks.py", "first.py", "urgent.py", "later.py", "delayed.py", "with_kombu.py"}
    assert PAGE.count("```python") == len(FILES)
