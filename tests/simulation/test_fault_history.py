"""Some histories in which the broker's own functions raise, in a process of their own with the pure build.

`python -m tests.simulation.run --faults` is for long runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def test_a_message_that_is_taken_is_kept_when_looking_behind_it_raises() -> None:
    done = run_pure("-m", "tests.simulation.run", "--faults", "--seeds", "1075..1078")
    assert done.returncode == 0, done.stdout + done.stderr


def test_messages_that_come_a_second_time_after_a_flipped_bit_have_a_new_place() -> None:
    done = run_pure("-m", "tests.simulation.run", "--faults", "--seeds", "10242..10242", "--steps", "16")
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_a_branch_has_sent_is_not_sent_again_when_its_settling_raises() -> None:
    done = run_pure("-m", "tests.simulation.run", "--faults", "--seeds", "803473..803473")
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_a_branch_had_locked_is_back_when_reading_it_raises() -> None:
    done = run_pure("-m", "tests.simulation.run", "--faults", "--seeds", "806164..806164")
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_a_branch_had_locked_is_back_when_the_disk_gives_it_again() -> None:
    done = run_pure("-m", "tests.simulation.run", "--faults", "--seeds", "312..312")
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_exchange_without_messages_may_be_gone_when_its_deletion_raises() -> None:
    done = run_pure("-m", "tests.simulation.run", "--faults", "--seeds", "807583..807583")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_branch_has_what_the_journal_has_when_its_rollback_raises() -> None:
    done = run_pure("-m", "tests.simulation.run", "--faults", "--seeds", "811618..811618")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_message_comes_back_once_when_counting_that_raises() -> None:
    done = run_pure("-m", "tests.simulation.run", "--faults", "--seeds", "816932..816932")
    assert done.returncode == 0, done.stdout + done.stderr


def test_messages_of_a_deleted_queue_that_damage_brings_back_are_in_no_new_queue() -> None:
    done = run_pure("-m", "tests.simulation.run", "--faults", "--seeds", "818523..818523")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_power_does_not_fail_before_a_bug_is_looked_into() -> None:
    done = run_pure("-m", "tests.simulation.run", "--faults", "--seeds", "819059..819059")
    assert done.returncode == 0, done.stdout + done.stderr


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
