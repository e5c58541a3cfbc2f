"""Which policies hold for a queue: the order, the caps of operators, and patterns that are asked once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from flintmq.management.broker_state import queue_policies
from flintmq.management.broker_state.queue_policies import PolicyRow, QueuePolicies
from flintmq.management.requests.context import Context, Listening
from flintmq.snapshot_rows import QueueRow

PLAIN = QueueRow("orders", True, False, False, False, b"", 0, 1, 0, 0, *([0] * 20), 0, False, 0)


def row_of(name: str, pattern: str, apply_to: str = "queues", **definition: Any) -> dict[str, Any]:
    return {
        "name": name,
        "pattern": pattern,
        "apply-to": apply_to,
        "priority": 0,
        "definition": {key.replace("_", "-"): value for key, value in definition.items()},
    }


def test_an_operator_caps_what_a_policy_allows() -> None:
    policies = [PolicyRow(row_of("own", "^ord", max_length=100, message_ttl=5))]
    caps = [PolicyRow(row_of("cap", ".*", max_length=10, expires=7))]
    found = QueuePolicies(policies, caps).of(PLAIN)
    assert (found.policy, found.operator_policy) == ("own", "cap")
    assert found.definition == {"max-length": 10, "message-ttl": 5, "expires": 7}


def test_a_policy_of_another_type_of_queue_does_not_hold() -> None:
    policies = QueuePolicies([PolicyRow(row_of("kept", ".*", "streams", max_age="1D"))], [])
    assert policies.of(PLAIN) is policies.of(PLAIN._replace(name="other"))
    assert (policies.of(PLAIN).policy, policies.of(PLAIN).definition) == (None, {})
    assert policies.of(PLAIN._replace(is_stream=True)).policy == "kept"


def test_a_name_is_matched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    matches = PolicyRow.matches

    def counted(policy: PolicyRow, name: str, kinds: tuple[str, ...]) -> bool:
        asked.append(name)
        return matches(policy, name, kinds)

    monkeypatch.setattr(PolicyRow, "matches", counted)
    policies = QueuePolicies([PolicyRow(row_of("own", "x")), PolicyRow(row_of("other", "ord"))], [])
    assert [policies.of(PLAIN).policy for _ in range(3)] == ["other"] * 3
    assert asked == ["orders", "orders"]
    monkeypatch.setattr(queue_policies, "REMEMBERED_MAX", 2)
    for number in range(10):
        policies.of(PLAIN._replace(name=f"q{number}"))
    assert len(policies.known) <= 2


def test_what_was_found_is_forgotten_when_a_policy_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"policy.list": [row_of("own", "ord", max_length=1)], "operator-policy.list": []}

    async def ask(service: str, given: dict[str, Any], **_: Any) -> Any:
        return SimpleNamespace(results={"rows": [dict(row) for row in told[service]]})

    async def looks() -> None:
        link: Any = SimpleNamespace(ask=ask)
        context = Context(link, Listening([], []))
        now_s = 0.0
        monkeypatch.setattr(context.clock, "monotonic_s", lambda: now_s)
        first = await context.queue_policies("/")
        assert first.of(PLAIN).definition == {"max-length": 1}
        now_s += 2
        assert await context.queue_policies("/") is first
        told["policy.list"] = [row_of("own", "ord", max_length=2)]
        now_s += 2
        assert (await context.queue_policies("/")).of(PLAIN).definition == {"max-length": 2}
        told["operator-policy.list"] = [row_of("cap", ".*", max_length=1)]
        now_s += 2
        assert (await context.queue_policies("/")).of(PLAIN).definition == {"max-length": 1}

    asyncio.run(looks())


def test_what_was_found_holds_after_a_change_of_something_else() -> None:
    """To match 100,000 names takes a second, and each message that is published over HTTP is a change."""
    told = {"policy.list": [row_of("own", "ord", max_length=1)], "operator-policy.list": []}

    async def ask(service: str, given: dict[str, Any], **_: Any) -> Any:
        return SimpleNamespace(results={"rows": [dict(row) for row in told[service]]})

    async def looks() -> None:
        link: Any = SimpleNamespace(ask=ask)
        context = Context(link, Listening([], []))
        first = await context.queue_policies("/")
        context.changed()
        assert await context.queue_policies("/") is first
        told["policy.list"] = [row_of("own", "ord", max_length=2)]
        context.changed()
        assert (await context.queue_policies("/")).of(PLAIN).definition == {"max-length": 2}

    asyncio.run(looks())


def test_policies_of_before_a_change_are_not_told_after_it() -> None:
    """A list of policies was on its way when a policy was set."""
    told = {"policy.list": [row_of("own", "ord", max_length=1)], "operator-policy.list": []}

    async def looks() -> None:
        may_answer = asyncio.Event()

        async def ask(service: str, given: dict[str, Any], **_: Any) -> Any:
            rows = [dict(row) for row in told[service]]
            await may_answer.wait()
            return SimpleNamespace(results={"rows": rows})

        link: Any = SimpleNamespace(ask=ask)
        context = Context(link, Listening([], []))
        slow = asyncio.create_task(context.policies("/", False))
        await asyncio.sleep(0)
        told["policy.list"] = [row_of("own", "ord", max_length=2)]
        context.changed()
        may_answer.set()
        await slow
        (policy,) = await context.policies("/", False)
        assert policy.row["definition"] == {"max-length": 2}

    asyncio.run(looks())
