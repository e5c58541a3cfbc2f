"""A short walk of tools/client_faults.py, and that the walk finds what it is to find."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import client_calls
import client_faults
import pytest
from client_calls import CALLS, CLIENTS, Options, Visit
from client_faults import Broker, Place, Plan, Walk
from network_proxy import TO_BROKER, TO_CLIENT

SEED = 15
ROUNDS = 48
KINDS = "fin,rst,half,delay"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Broker]]:
    places: list[Path] = [tmp_path_factory.mktemp("broker") for _ in range(2)]
    made = [Broker(place / "data") for place in places]
    yield made
    for broker in made:
        broker.stop()


def walk_of(brokers: list[Broker], **chosen: object) -> Walk:
    calls, clients = ",".join(CALLS), ",".join(CLIENTS)
    given = {"calls": calls, "clients": clients, "kinds": KINDS, "seed": SEED, "rounds": 0, "quick": True}
    return Walk(brokers, argparse.Namespace(**{**given, **chosen}))


@pytest.mark.timeout(180)
def test_every_message_is_accounted_for(brokers: list[Broker]) -> None:
    walk = walk_of(brokers, rounds=ROUNDS)
    walk.walk()
    for key in [each for each in walk.groups if each[0] in ("late", "silent")]:
        # On a busy machine anything may be late once.
        again = walk.run(walk.groups[key][0][1].plan)
        if not any(finding.kind == key[0] for finding in again.findings):
            del walk.groups[key]
    assert not walk.groups, "\n".join(walk.report())
    assert sum(walk.kinds.values()) > ROUNDS / 2, "most faults strike"


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("kind", ["hole", "kill"])
def test_a_black_hole_and_a_broker_that_is_killed(brokers: list[Broker], client: str, kind: str) -> None:
    plan = Plan("publish_many", Options(client), Place(kind, TO_CLIENT, 1, "before"))
    result = walk_of(brokers).run(plan)
    assert result.is_reached
    assert not [finding for finding in result.findings if finding.kind in ("lost", "twice", "wrong")]


def test_a_plan_is_drawn_from_the_seed_and_can_be_said(brokers: list[Broker]) -> None:
    walks = [walk_of(brokers, rounds=50, calls="publish,get", seed=seed) for seed in (1, 1, 2)]
    for walk in walks:
        walk.frames = {(client, "publish"): {TO_BROKER: 3, TO_CLIENT: 1} for client in CLIENTS}
    first, same, other = (list(walk.plans()) for walk in walks)
    assert first == same
    assert first != other
    assert [Plan.parse(str(plan)) for plan in first] == first


async def loses(visit: Visit) -> None:
    """Says that a message is safe which was only sent."""
    queue = visit.queue()
    channel = await visit.channel()
    visit.strike()
    outcome = await visit.do("publish", lambda: channel.publish(b"one", routing_key=queue))
    visit.claim_rows(queue, [b"one"], outcome)


async def doubles(visit: Visit) -> None:
    queue = visit.queue("", b"one", b"one", b"strange")
    visit.claim(queue, b"one", 1, 1, "it was published once")


async def is_late(visit: Visit) -> None:
    await visit.do("sleeping", lambda: time.sleep(0.3), deadline_s=0.1)


async def hangs(visit: Visit) -> None:
    """Waits for what no server says; the end of the connection releases it."""
    connection = await visit.connect()

    def wait() -> None:
        while connection.is_open:
            connection.process_events(0.05)

    await visit.do("waiting", wait)


@pytest.mark.parametrize(
    ("call", "kinds"),
    [(loses, {"lost"}), (doubles, {"twice", "wrong"}), (is_late, {"late"})],
)
def test_what_goes_wrong_is_found(
    brokers: list[Broker],
    call: client_calls.CallFunction,
    kinds: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_calls, "LATE_S", 0.1)
    monkeypatch.setitem(CALLS, "broken", call)
    plan = Plan("broken", Options("sync", recovers=False), Place("rst", TO_BROKER, 1, "before"))
    result = walk_of(brokers).run(plan)
    assert {finding.kind for finding in result.findings} == kinds
    assert result.is_reached == (call is loses)


def test_a_call_that_hangs_is_found_and_released(
    brokers: list[Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_faults, "HANG_S", 0.3)
    monkeypatch.setitem(CALLS, "broken", hangs)
    result = walk_of(brokers).run(Plan("broken", Options("sync", recovers=False)))
    assert "hang" in {finding.kind for finding in result.findings}
