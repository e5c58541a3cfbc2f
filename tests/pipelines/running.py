"""Runs a pipeline in a test: to its end with what is there, or until something is seen."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flintmq.pipelines.file import checking
from flintmq.pipelines.file.document import Document
from flintmq.pipelines.file.model import Pipeline

SEEN_TIMEOUT_S = 150.0


def of_text(text: str, directory: Path | None = None, **settings: str) -> Pipeline:
    return checking.pipeline_of(Document("test.toml", text, settings, directory))


def of_shipped(name: str, **settings: str) -> Pipeline:
    return checking.read(name, settings)


class Told(list[str]):
    """What a run says, line by line."""

    def __call__(self, line: str) -> None:
        self.append(line)


def run(
    spark: Any, pipeline: Pipeline, state: Path, *, available_now: bool = True, **options: Any
) -> tuple[bool, Told]:
    """To the end."""
    from flintmq.pipelines.run.runner import Runner, RunOptions

    told = Told()
    chosen = RunOptions(state, available_now, backoff_s_min=0.01, **options)
    return Runner([pipeline], chosen, told).run(lambda: spark), told


def run_until(spark: Any, pipeline: Pipeline, state: Path, seen: Callable[[], bool], **options: Any) -> Told:
    """Runs it continuously until `seen` holds, then ends it as a signal would."""
    from flintmq.pipelines.run.runner import Runner, RunOptions

    told = Told()
    runner = Runner([pipeline], RunOptions(state, backoff_s_min=0.01, **options), told)
    thread = threading.Thread(target=runner.run, args=(lambda: spark,))
    thread.start()
    try:
        pause = threading.Event()
        for _ in range(int(SEEN_TIMEOUT_S / 0.1)):
            if seen() or not thread.is_alive():
                break
            pause.wait(0.1)
        assert seen(), f"not seen in {SEEN_TIMEOUT_S} s: {told}"
    finally:
        runner.end()
        thread.join(SEEN_TIMEOUT_S)
    assert not thread.is_alive()
    return told


def drain(connection: Any, queue: str) -> list[Any]:
    """Everything in a queue, as messages."""
    found = []
    with connection.channel() as channel:
        while (message := channel.get(queue, no_ack=True)) is not None:
            found.append(message)
    return found


def bodies(messages: list[Any]) -> list[Any]:
    return [json.loads(message.body) for message in messages]
