"""The Celery application of the tests, imported by the worker process and by the tests alike.

INTEROP_BROKER, INTEROP_BACKEND and INTEROP_PREFIX say where it works and how its queues are called.
"""

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery


def make_app(broker: str, backend: str, prefix: str) -> Any:
    app = Celery("interop", broker=broker, backend=backend)
    app.conf.update(
        task_default_queue=f"{prefix}.default",
        task_create_missing_queues=True,
        task_track_started=True,
        worker_prefetch_multiplier=1,
        worker_send_task_events=False,
        broker_connection_retry_on_startup=True,
        broker_transport_options={"confirm_publish": True},
        result_expires=600,
        timezone="UTC",
        chord_join_timeout=10,
    )
    app.task(name="add")(add)
    app.task(name="tsum")(tsum)
    app.task(name="flaky", bind=True, max_retries=5)(flaky)
    app.task(name="note")(note)
    app.task(name="hold", bind=True, acks_late=True, reject_on_worker_lost=True)(hold)
    app.task(name="fail")(fail)
    return app


def add(left: int, right: int) -> int:
    return left + right


def tsum(numbers: list[int]) -> int:
    return sum(numbers)


def fail(text: str) -> None:
    raise ValueError(text)


def flaky(self: Any, good_at: int) -> int:
    """Fails until its `good_at`-th retry."""
    if self.request.retries < good_at:
        raise self.retry(countdown=0.1)
    return int(self.request.retries)


def note(path: str, text: str) -> str:
    """Append a line, so that the order of the work can be seen."""
    with Path(path).open("a") as file:
        file.write(text + "\n")
    return text


def hold(self: Any, path: str) -> bool:
    """The first delivery says that it has begun and never ends; a later one says if it was redelivered."""
    begun = Path(path)
    if not begun.exists():
        begun.touch()
        time.sleep(60)
    return bool(self.request.delivery_info["redelivered"])


if "INTEROP_BROKER" in os.environ:
    app = make_app(os.environ["INTEROP_BROKER"], os.environ["INTEROP_BACKEND"], os.environ["INTEROP_PREFIX"])
