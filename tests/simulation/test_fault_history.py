"""Some histories in which the broker's own functions raise, in a process of their own with the pure build.

`python -m tests.simulation.run --faults` is for long runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
SEEDS = "0..59"

# Stops at the first history that fails; its words are the output.
HUNT = """
from tests.simulation.fault_history import run_seed
for seed in range(100):
    run_seed(seed, 40)
"""


def run_pure(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


def test_no_promise_is_broken_whatever_raises() -> None:
    done = run_pure("-m", "tests.simulation.run", "--faults", "--seeds", SEEDS, "--steps", "40")
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith("60 histories on the pure build")
    faults = int(last.split(", ")[1].removesuffix(" faults"))
    assert faults > 100, "hardly anything raised"


# Histories that have failed once: what they hold, their seeds and steps.
BROKEN_ONCE = (
    ("a message that is taken is kept when looking behind it raises", "1075..1078", 80),
    ("messages that come a second time after a flipped bit have a new place", "10242..10242", 16),
    ("what a branch has sent is not sent again when its settling raises", "803473..803473", 80),
    ("what a branch had locked is back when reading it raises", "806164..806164", 80),
    ("what a branch had locked is back when the disk gives it again", "312..312", 80),
    ("an exchange without messages may be gone when its deletion raises", "807583..807583", 80),
    ("a branch has what the journal has when its rollback raises", "811618..811618", 80),
    ("a message comes back once when counting that raises", "816932..816932", 80),
    ("messages of a deleted queue that damage brings back are in no new queue", "818523..818523", 80),
    ("the power does not fail before a bug is looked into", "819059..819059", 80),
    ("delayed messages that cannot be read wait on when putting one off raises", "830140..830140", 80),
    ("a message that a bug kept out of its queue may come by a flipped bit", "845034..845034", 80),
    ("a move from a transient queue that cannot be read may end with it", "848342..848342", 80),
    ("the last delayed message waits on when putting it off raises", "835777..835777", 80),
    ("what a deleted queue is still letting go of keeps its shares", "2002353..2002353", 80),
    ("what is behind a message that was got expires while the disk cannot be read", "1313478..1313478", 80),
    ("a message that is recovered is back when handing it out raises", "1511919..1511919", 80),
)


@pytest.mark.parametrize(
    ("seeds", "steps"), [each[1:] for each in BROKEN_ONCE], ids=[each[0] for each in BROKEN_ONCE]
)
def test_a_history_that_has_failed_once(seeds: str, steps: int) -> None:
    done = run_pure("-m", "tests.simulation.run", "--faults", "--seeds", seeds, "--steps", str(steps))
    assert done.returncode == 0, done.stdout + done.stderr


SHARED = """
from tests.simulation.shared_bodies import run_all
print(run_all())
"""


def test_queues_share_a_body_whatever_raises() -> None:
    done = run_pure("-c", SHARED)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) > 300, "hardly anything raised"


def test_a_share_that_is_given_up_twice_is_found() -> None:
    sabotage = """
from flintmq.broker.streams.stream_queue import StreamQueue
write = StreamQueue.write_spooled
def settling(self, message):
    try:
        return write(self, message)
    except Exception:
        self.store.settle(0, message.entry)
        raise
StreamQueue.write_spooled = settling
"""
    done = run_pure("-c", sabotage + SHARED)
    assert "shares that are kept" in done.stderr


def test_a_group_that_is_left_open_is_found() -> None:
    sabotage = """
from flintmq.storage.journal.appender import Group
close = Group.__exit__
Group.__exit__ = lambda self, kind, error, trace: None if error else close(self, kind, error, trace)
"""
    done = run_pure("-c", sabotage + HUNT)
    assert "a group of the journal is open" in done.stderr


def test_a_message_that_is_kept_for_a_queue_which_has_not_taken_it_is_found() -> None:
    sabotage = """
from flintmq.broker.exchanges.router import Router
Router.disown = lambda self, queue, message: None
"""
    done = run_pure("-c", sabotage + HUNT)
    assert "which does not hold them" in done.stderr


def test_a_dead_letter_that_a_bug_drops_is_found() -> None:
    sabotage = """
from flintmq.broker.exchanges.dead_letter import DeadLetters
DeadLetters.try_again = lambda self, failed: [queue.settle(message) for queue, message, _, _ in failed]
"""
    done = run_pure("-c", sabotage + HUNT.replace("range(100)", "range(374, 500)"))
    assert "is lost" in done.stderr
