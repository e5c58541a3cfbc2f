"""Policies: which one holds, what it asks for, and that it holds at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from playbook.hourglass import TimedPlaybook, letter

from flintmq.broker import policy_enforcement
from flintmq.broker.policies import LOOKS_MAX, POLICIES_MAX, Policies, Policy
from flintmq.broker.policy_enforcement import enforce_all
from flintmq.broker.queues.queue_rules import QueueRules
from flintmq.checks import Unfit
from flintmq.config import parse
from flintmq.errors import ConfigFault
from flintmq.patterns.name_pattern import NamePattern
from flintmq.wire.methods import (
    BasicNack,
    BasicQos,
    BasicQosOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueDeclare,
    QueueDeclareOk,
)


def rules_of(playbook: TimedPlaybook, queue: str) -> QueueRules | None:
    rules = playbook.queue(queue).rules
    return None if rules is None else rules.settings


def test_the_highest_priority_that_matches_holds() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    policies = playbook.broker.policies
    policies.put("/", "all", "", {"max-length": 5})
    policies.put("/", "orders", "^orders\\.", {"max-length": 7, "message-ttl": 100}, priority=3)
    policies.put("/", "quorum", ".*", {"max-length": 9}, priority=9, apply_to="quorum_queues")
    policies.put("/", "exchanges", ".*", {"alternate-exchange": "x"}, priority=10, apply_to="exchanges")
    client.declares("orders.new")
    client.declares("other")
    client.declares("q", durable=True, arguments={"x-queue-type": "quorum"})
    assert rules_of(playbook, "orders.new") == QueueRules(length_max=7, message_ttl_ms=100)
    assert rules_of(playbook, "other") == QueueRules(length_max=5)
    assert rules_of(playbook, "q") == QueueRules(length_max=9, delivery_limit=20)
    holds = policies.of_queue("/", "orders.new", "classic")
    assert holds is not None
    assert holds.name == "orders"


def test_numbers_are_the_least_of_all_and_words_the_queues_own() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    policies = playbook.broker.policies
    policies.put("/", "p", "", {"max-length": 5, "message-ttl": 50, "overflow": "reject-publish"})
    policies.put("/", "o", "", {"max-length": 3, "expires": 9000}, is_operator=True)
    client.declares("q", arguments={"x-max-length": 4, "x-message-ttl": 70, "x-overflow": "drop-head"})
    assert rules_of(playbook, "q") == QueueRules(
        length_max=3, message_ttl_ms=50, overflow="drop-head", expires_ms=9000
    )


def test_a_limit_that_does_not_limit_gives_way() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": -1})
    assert rules_of(playbook, "q") is None
    playbook.broker.policies.put("/", "p", "", {"delivery-limit": 3}, is_operator=True)
    assert rules_of(playbook, "q") == QueueRules(delivery_limit=3)


def test_a_change_holds_at_once_for_a_queue_in_use() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("morgue")
    client.declares("q")
    client.publishes("q", b"1", b"2", b"3")
    policies = playbook.broker.policies
    dead = {"dead-letter-exchange": "", "dead-letter-routing-key": "morgue"}
    policies.put("/", "p", "^q$", {"max-length": 2, **dead})
    assert letter(client, "morgue").body == b"1"
    client.publishes("q", b"4")
    assert letter(client, "morgue").body == b"2"
    policies.put("/", "p", "^q$", {"message-ttl": 100, **dead})
    client.publishes("q", b"5")
    playbook.passes(100)
    assert client.gets_all("morgue") == [b"3", b"4", b"5"], "old ones live from the time of the policy"
    policies.put("/", "p", "^q$", {"max-length": 1, "overflow": "reject-publish"})
    client >> ConfirmSelect()
    client << ConfirmSelectOk()
    client.publishes("q", b"6")
    client.next(1)
    client.publishes("q", b"7")
    client << BasicNack(delivery_tag=2, requeue=False)
    assert policies.delete("/", "p")
    assert not policies.delete("/", "p")
    client.publishes("q", b"8")
    client.next(1)
    assert client.gets_all("q") == [b"6", b"8"]


def test_octets_of_a_queue_that_has_some() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q")
    client.publishes("q", b"aaaa", b"bbbb", b"cccc")
    playbook.broker.policies.put("/", "p", "", {"max-length-bytes": 9})
    assert client.gets_all("q") == [b"bbbb", b"cccc"]


def test_an_alternate_exchange() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client >> ExchangeDeclare(exchange="x", type="direct")
    client << ExchangeDeclareOk()
    client.declares("unrouted")
    client.binds("unrouted", "amq.fanout")
    client.publishes("nowhere", b"1", exchange="x")
    policies = playbook.broker.policies
    policies.put("/", "p", "^x$", {"alternate-exchange": "amq.fanout"}, apply_to="exchanges")
    client.publishes("nowhere", b"2", exchange="x")
    policies.delete("/", "p")
    client.publishes("nowhere", b"3", exchange="x")
    assert client.gets_all("unrouted") == [b"2"]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"pattern": "("}, "pattern"),
        ({"pattern": "x" * 2000}, "pattern"),
        ({"name": ""}, "name"),
        ({"name": "n" * 256}, "name"),
        ({"apply_to": "everything"}, "apply-to"),
        ({"apply_to": "exchanges", "is_operator": True}, "apply-to"),
        ({"priority": 1 << 40}, "priority"),
        ({"priority": True}, "priority"),
        ({"definition": {}}, "definition"),
        ({"definition": {"max-lenght": 1}}, "max-lenght"),
        ({"definition": {"max-priority": 1}}, "max-priority"),
        ({"definition": {"max-length": "1"}}, "max-length"),
        ({"definition": {"alternate-exchange": 1}}, "alternate-exchange"),
        ({"definition": {"dead-letter-exchange": ""}, "is_operator": True}, "dead-letter-exchange"),
        ({"virtual_host": "nowhere"}, "nowhere"),
    ],
)
def test_what_is_wrong_is_named(settings: dict[str, Any], named: str) -> None:
    policies = TimedPlaybook().broker.policies
    chosen = {"virtual_host": "/", "name": "p", "pattern": "", "definition": {"max-length": 1}} | settings
    with pytest.raises(Unfit, match=named):
        policies.put(**chosen)
    assert policies.of("/") == policies.of("/", is_operator=True) == []


CONFIG = """
[[policies]]
name = "limits"
pattern = "^q"
priority = 2
apply_to = "queues"
[policies.definition]
max-length = 2
[[operator_policies]]
name = "limits"
pattern = ""
[operator_policies.definition]
max-length = 1
"""


def test_policies_of_the_configuration_stand() -> None:
    playbook = TimedPlaybook(parse(CONFIG))
    client = playbook.client()
    client.declares("q")
    assert rules_of(playbook, "q") == QueueRules(length_max=1)
    policies = playbook.broker.policies
    for change in (
        lambda: policies.put("/", "limits", "", {"max-length": 9}),
        lambda: policies.delete("/", "limits", is_operator=True),
    ):
        with pytest.raises(Unfit, match="settings"):
            change()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("policies = 1", "list of tables"),
        ('[[policies]]\nname = "p"\npattern = ""', "definition is missing"),
        ('[[policies]]\npattern = ""\ndefinition = {max-length = 1}', "name is missing"),
        ('[[policies]]\nname = "p"\npattern = "("\ndefinition = {max-length = 1}', "regular expression"),
        ('[[policies]]\nname = "p"\npattern = ""\ndefinition = {max-length = [1]}', "max-length"),
        ('[[policies]]\nname = "p"\npattern = ""\nvirtual_host = "v"\ndefinition = {max-length = 1}', "'v'"),
        ('[[policies]]\nname = "p"\npattern = ""\napply_to = "x"\ndefinition = {max-length = 1}', "apply_to"),
        (2 * '[[policies]]\nname = "p"\npattern = ""\ndefinition = {max-length = 1}\n', "already"),
    ],
)
def test_a_bad_section_of_the_configuration(text: str, said: str) -> None:
    with pytest.raises(ConfigFault, match=said):
        parse(text)


def test_a_bad_key_of_the_configuration() -> None:
    config = parse('[[policies]]\nname = "p"\npattern = ""\ndefinition = {max-lenght = 1}')
    with pytest.raises(ConfigFault, match=r"policies\[0\].*max-lenght"):
        Policies({}, None).configure(config)


def test_a_policy_compares_by_what_it_says() -> None:
    one = Policy("/", "p", "a", {"max-length": 1})
    assert one == Policy("/", "p", "a", {"max-length": 1})
    assert one != Policy("/", "p", "b", {"max-length": 1})


def test_a_virtual_host_has_so_many_policies_at_most() -> None:
    """Each queue that is declared is compared with all of them."""
    playbook = TimedPlaybook()
    policies = playbook.broker.policies
    for number in range(POLICIES_MAX - 1):
        policies.insert(Policy("/", f"p{number}", "", {"max-length": 5}))
    policies.put("/", "operator", "", {"max-length": 5}, is_operator=True)
    for is_operator in (False, True):
        with pytest.raises(Unfit, match=f"may have {POLICIES_MAX} policies"):
            policies.put("/", "more", "", {"max-length": 5}, is_operator=is_operator)
        assert policies.find("/", "more", is_operator) is None
    policies.put("/", "p7", "", {"max-length": 7})  # in place of the one that is there
    policies.delete("/", "p8")
    policies.put("/", "more", "", {"max-length": 5})


def test_a_step_puts_many_policies_into_force_for_few_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    for number in range(64):
        client.declares(f"q{number}")
    policies, host = playbook.broker.policies, playbook.broker.virtual_hosts["/"]
    for number in range(500):
        policies.insert(Policy("/", f"p{number}", f"^{number}$", {"max-length": 5}))
    compared: list[str] = []
    monkeypatch.setattr(NamePattern, "may_match", lambda self, name: compared.append(name))
    steps = []
    for _ in policy_enforcement.enforce_all(host):
        steps.append(len(compared))
        compared.clear()
    assert sum(steps) >= 64 * 500
    assert max(steps) <= 1024


def test_policies_that_change_again_and_again_reach_every_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change takes the place of the round of the one before, and begins where that was."""
    playbook = TimedPlaybook()
    client = playbook.client()
    names = [f"q{number:03}" for number in range(200)]
    for name in names:
        client.declares(name)
    policies = playbook.broker.policies
    rounds: deque[Iterator[None]] = deque()
    monkeypatch.setattr(policy_enforcement, "reapply", lambda host: rounds.append(enforce_all(host)))
    enforced: list[str] = []
    monkeypatch.setattr(policy_enforcement, "enforce", lambda host, queue, given: enforced.append(queue.name))
    for number in range(50):
        policies.put("/", "p", "", {"max-length": 5 + number})
        for each in list(rounds):  # in turns, as chores are
            if next(each, "over") == "over":
                rounds.remove(each)
    assert set(enforced) == set(names)
    assert len(rounds) <= 2, "those that were replaced are over"
    enforced.clear()
    policies.put("/", "p", "", {"max-length": 1})
    for each in reversed(rounds):
        for _ in each:
            pass
    assert sorted(enforced) == names
    assert policies.rounds == {}


def test_a_change_in_another_virtual_host_ends_no_round(monkeypatch: pytest.MonkeyPatch) -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("qqq")
    policies, host = playbook.broker.policies, playbook.broker.virtual_hosts["/"]
    unanchored(policies, 1000)
    for _ in enforce_all(host):
        pass
    policies.changed()
    rounds = enforce_all(host)
    next(rounds)  # in the middle of the patterns
    policies.changed()  # of another virtual host
    monkeypatch.setattr(policy_enforcement, "enforce", lambda host, queue, given: enforced.append(queue.name))
    enforced: list[str] = []
    for _ in rounds:
        pass
    assert enforced == ["qqq"]


def unanchored(policies: Policies, count: int, **last: Any) -> None:
    """So many policies that all have to be looked for in a name, of which the last one holds."""
    limit = {"max-length": 1}
    for number in range(count - 1):
        policies.insert(Policy("/", f"p{number}", f"[a-z]*[0-9]{{1,9}}[x-z]{{{number % 9 + 1}}}", limit, 1))
    policies.put("/", "last", "q+$", {"max-length": 7, **last})


def test_a_thousand_patterns_are_looked_for_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever declares the queue waits meanwhile, and nobody else."""
    playbook = TimedPlaybook()
    client, other = playbook.client(), playbook.client()
    policies = playbook.broker.policies
    unanchored(policies, 500)
    name = "q" * 200
    decision = policies.decision("/", name, "classic")
    assert decision is not None
    looks = []
    matches = NamePattern.matches

    def noting(pattern: NamePattern, name: str) -> bool:
        looks[-1] += pattern.places * (1 + len(name))
        return matches(pattern, name)

    monkeypatch.setattr(NamePattern, "matches", noting)
    looks.append(0)
    for _ in decision.make():
        looks.append(0)
    monkeypatch.undo()
    assert len(looks) > 64
    dearest = max(policy.looks(name) for policy in policies.of("/"))
    assert max(looks) <= LOOKS_MAX + dearest
    policies.changed()
    with playbook.one_pass():
        client.say(1, QueueDeclare(queue=name))
        assert "wait_for_answer" in client.link.notes
        client.hears_nothing()
        other.say(1, BasicQos())
        other << BasicQosOk()
    client << QueueDeclareOk(queue=name, message_count=0, consumer_count=0)
    assert rules_of(playbook, name) == QueueRules(length_max=7)
    assert client.link.notes[-1] == "answered"


def test_a_policy_that_changes_while_a_queue_waits_for_it() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    policies = playbook.broker.policies
    unanchored(policies, 500)
    name = "q" * 200
    with playbook.one_pass():
        client.say(1, QueueDeclare(queue=name))
        policies.put("/", "last", "q+$", {"max-length": 8})
    client << QueueDeclareOk(queue=name, message_count=0, consumer_count=0)
    assert rules_of(playbook, name) == QueueRules(length_max=8)
    policies.put("/", "last", "q+$", {"max-length": 9})
    policies.put("/", "last", "q+$", {"max-length": 10})
    playbook.finish_pass()
    assert rules_of(playbook, name) == QueueRules(length_max=10)
    policies.delete("/", "last")
    playbook.finish_pass()
    assert rules_of(playbook, name) == QueueRules()


def test_letters_that_every_match_has_decide_first() -> None:
    """A thousand patterns without ^ of which one is looked for."""
    playbook = TimedPlaybook()
    policies = playbook.broker.policies
    for number in range(POLICIES_MAX):
        policies.insert(Policy("/", f"p{number}", f".*\\.team{number:03}\\.[a-z]+$", {"max-length": 1}))
    assert policies.decision("/", "orders.team007.new", "classic") is None
    holds = policies.of_queue("/", "orders.team007.new", "classic")
    assert holds is not None
    assert holds.name == "p7"
