"""Definitions in RabbitMQ's JSON: imported, exported, and what becomes of what cannot be done."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playbook.dialogue import Carried, Client, carrying
from playbook.hourglass import TimedPlaybook
from playbook.test_administration import SETTINGS, listening

from flintmq.auth.passwords import PasswordHash, PasswordPolicy, hash_password_quickly, plain_hash
from flintmq.broker import policies
from flintmq.broker.administration import parameters
from flintmq.broker.definitions.definitions import GATHERING_MS_MAX, LOOK_MS, PART_OCTETS_MAX, definitions_of
from flintmq.broker.definitions.importing import SECTIONS
from flintmq.broker.virtual_host import PREDECLARED
from flintmq.config import parse
from flintmq.definition_parts import join, split
from flintmq.errors import ServiceFault, StorageFault
from flintmq.wire.methods import BasicPublish
from flintmq.wire.tables import FieldTable

HASH = hash_password_quickly(b"old secret").text()
SHA256 = "rabbit_password_hashing_sha256"
# What RabbitMQ 3.10 writes of a broker with one of each.
DOCUMENT: dict[str, Any] = {
    "rabbit_version": "3.10.8",
    "rabbitmq_version": "3.10.8",
    "product_name": "RabbitMQ",
    "product_version": "3.10.8",
    "users": [
        {
            "name": "ann",
            "password_hash": HASH,
            "hashing_algorithm": SHA256,
            "tags": ["monitoring", "policymaker"],
            "limits": {"max-connections": 5},
        },
    ],
    "vhosts": [
        {"name": "/", "limits": [], "metadata": {"description": "Default virtual host", "tags": []}},
        {"name": "shop", "limits": [["max-queues", 10]], "metadata": {"description": "", "tags": ["a"]}},
    ],
    "permissions": [{"user": "ann", "vhost": "shop", "configure": "^a", "write": ".*", "read": ".*"}],
    "topic_permissions": [
        {"user": "ann", "vhost": "shop", "exchange": "events", "write": "^{username}", "read": ".*"}
    ],
    "parameters": [
        {
            "vhost": "shop",
            "component": "operator_policy",
            "name": "cap",
            "value": {
                "pattern": ".*",
                "apply-to": "queues",
                "priority": 1,
                "definition": {"max-length": 1000},
            },
        },
        {"vhost": "shop", "component": "shovel", "name": "s", "value": {"src-uri": "amqp://", "x": 1.5}},
        {"vhost": "shop", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 10}},
    ],
    "global_parameters": [{"name": "cluster_name", "value": "rabbit@old"}, {"name": "tags", "value": []}],
    "policies": [
        {
            "vhost": "shop",
            "name": "ttl",
            "pattern": "^a\\.",
            "apply-to": "queues",
            "priority": 3,
            "definition": {"message-ttl": 60000, "ha-mode": "all"},
        }
    ],
    "exchanges": [
        {
            "vhost": "shop",
            "name": "events",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {"alternate-exchange": "amq.fanout"},
        }
    ],
    "queues": [
        {
            "vhost": "shop",
            "name": "a.q",
            "type": "classic",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-max-length": 5, "x-dead-letter-exchange": ""},
        },
        {
            "vhost": "shop",
            "name": "b.q",
            "type": "quorum",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-queue-type": "quorum"},
        },
    ],
    "bindings": [
        {
            "vhost": "shop",
            "source": "events",
            "destination": "a.q",
            "destination_type": "queue",
            "routing_key": "a.#",
            "arguments": {},
        },
        {
            "vhost": "shop",
            "source": "amq.headers",
            "destination": "events",
            "destination_type": "exchange",
            "routing_key": "",
            "arguments": {"x-match": "all", "n": 1},
        },
    ],
}


@pytest.fixture
def playbook() -> Iterator[TimedPlaybook]:
    playbook = TimedPlaybook()
    yield playbook
    playbook.end()


@pytest.fixture
def boss(playbook: TimedPlaybook) -> Client:
    return listening(playbook.client())


def ask(client: Client, name: str, body: bytes = b"", /, **arguments: Any) -> tuple[FieldTable, bytes]:
    headers = {argument.replace("_", "-"): value for argument, value in arguments.items()}
    asked = BasicPublish(exchange="amq.system", routing_key=name)
    client >> carrying(asked, body, headers=headers, reply_to=f"mine{client.session.number}")
    heard = client.next(1)
    assert isinstance(heard, Carried), heard
    assert heard.properties.headers is not None
    return heard.properties.headers, heard.body


def refused(client: Client, name: str, body: bytes = b"", /, **arguments: Any) -> tuple[object, str]:
    told, _ = ask(client, name, body, **arguments)
    return told.get("error-code"), str(told.get("error-text"))


def imported(client: Client, document: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    told, body = ask(client, "definitions.import", json.dumps(document).encode(), **arguments)
    assert "error-code" not in told, told
    report: dict[str, Any] = json.loads(body)
    counts = {"refused": report["refused_count"], "noted": report["noted_count"]}
    assert {name: told[name] for name in counts} == counts
    assert told["changed"] == sum(report["changed"].values())
    return report


def exported(client: Client, **arguments: Any) -> dict[str, Any]:
    document: dict[str, Any] = {}
    after = ""
    while True:
        told, body = ask(client, "definitions.export", after=after, **arguments)
        assert "error-code" not in told, told
        join(document, json.loads(body))
        if "next" not in told:
            return document
        after = str(told["next"])


def reasons(report: dict[str, Any], kind: str = "refused") -> str:
    return "\n".join(f"{each['section']} {each['item']}: {each['reason']}" for each in report[kind])


def only(**sections: Any) -> dict[str, Any]:
    return {"vhosts": [{"name": "shop"}], **sections}


# The way there and back


def test_all_of_a_file_is_there_after_it_and_goes_out_again(playbook: TimedPlaybook, boss: Client) -> None:
    report = imported(boss, DOCUMENT)
    assert report["applied"]
    assert not report["refused"]
    found = exported(boss)
    for section in SECTIONS:
        for item in DOCUMENT[section]:
            assert item in found[section]
        others = [item for item in found[section] if item not in DOCUMENT[section]]
        assert [each.get("name", each.get("user")) for each in others] == (
            ["guest"] if section in ("users", "permissions") else []
        )
    shop = boss.session.broker.virtual_hosts["shop"]
    assert shop.queues["a.q"].rules.settings.message_ttl_ms == 60000
    ann = playbook.client(user="ann", password="old secret", virtual_host="shop")
    ann.declares("a.mine", exclusive=True)


NOTHING = {"configure": "", "write": "", "read": ""}
GUEST = {"name": "guest", "password_hash": HASH, "tags": []}


@pytest.mark.parametrize(
    "document",
    [
        {"users": [GUEST]},
        {"users": [{**GUEST, "tags": ["administrator"], "limits": {"max-connections": 0}}]},
        {"permissions": [{"user": "guest", "vhost": "/", **NOTHING}]},
        {"vhosts": [{"name": "/", "limits": {"max-connections": 0}}]},
        {"users": [GUEST, {"name": "ann", "password_hash": HASH, "tags": ["administrator"]}]},
    ],
)
def test_the_last_administrator_is_not_locked_out(boss: Client, document: dict[str, Any]) -> None:
    """As the services have it that change one thing at a time."""
    before = exported(boss)
    for is_dry in (True, False):
        report = imported(boss, document, dry_run=is_dry)
        assert not report["applied"]
        assert "administrators: would leave no administrator who can get in" in reasons(report)
    assert exported(boss) == before
    assert imported(boss, document, partial=True)["applied"]


def test_an_administrator_may_take_over_from_another(boss: Client) -> None:
    ann = {"name": "ann", "password_hash": HASH, "tags": ["administrator"]}
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    document = {"users": [GUEST, ann], "permissions": [{"user": "ann", "vhost": "/", **everything}]}
    assert imported(boss, document)["applied"]


def test_an_operator_policy_comes_as_rabbitmqctl_writes_it(boss: Client) -> None:
    """`rabbitmqctl export_definitions` writes what `set_operator_policy` has set as an array of pairs."""
    rules = {"pattern": ".*", "definition": [["max-length", 1000]], "priority": 0, "apply-to": "all"}
    cap = {"vhost": "/", "component": "operator_policy", "name": "cap", "value": rules}
    report = imported(boss, {"parameters": [cap]})
    assert not report["refused"]
    found = exported(boss)["parameters"]
    assert [each["value"]["definition"] for each in found] == [{"max-length": 1000}]
    assert imported(boss, {"parameters": [cap]})["changed"] == {}


@pytest.mark.parametrize("definition", [[["max-length"]], [[1, 2]], ["max-length", 1], "max-length"])
def test_pairs_that_are_none_are_refused(boss: Client, definition: Any) -> None:
    cap = {"vhost": "/", "component": "operator_policy", "name": "cap"}
    rules = {"pattern": ".*", "definition": definition}
    assert "definition: expected an object" in reasons(
        imported(boss, {"parameters": [{**cap, "value": rules}]})
    )


def test_an_import_twice_changes_nothing(boss: Client) -> None:
    imported(boss, DOCUMENT)
    before = exported(boss)
    report = imported(boss, DOCUMENT)
    assert report["changed"] == {}
    assert sum(report["unchanged"].values()) == 17
    assert exported(boss) == before


def test_what_was_exported_can_be_imported(boss: Client) -> None:
    imported(boss, DOCUMENT)
    report = imported(boss, exported(boss))
    assert not report["refused"]
    assert not report["changed"]


def test_a_plain_password_is_hashed(playbook: TimedPlaybook, boss: Client) -> None:
    user = {"name": "bob", "password": "in plain", "tags": "administrator, "}
    host = {"user": "bob", "vhost": "/", "configure": "", "write": "", "read": ".*"}
    assert not imported(boss, {"users": [user], "permissions": [host]})["refused"]
    playbook.client(user="bob", password="in plain")
    assert "in plain" not in json.dumps(exported(boss))


def test_keys_of_scram_go_along(boss: Client) -> None:
    users = boss.session.broker.users
    keyed = PasswordPolicy(has_scram=True).hash(b"secret")
    boss.session.broker.administration.accounts.add("ann", keyed, [])
    row = next(user for user in exported(boss)["users"] if user["name"] == "ann")
    assert row["flintmq_password_hash"] == keyed.text()
    assert row["password_hash"] == plain_hash(keyed).text()
    plain = {key: value for key, value in row.items() if key != "flintmq_password_hash"}
    assert imported(boss, {"users": [plain]})["changed"] == {}  # what RabbitMQ knows of it is the same
    users.change_password("ann", plain_hash(keyed))
    assert imported(boss, {"users": [row]})["changed"] == {"users": 1}
    user = users.get("ann")
    assert user is not None
    assert text_of_all(user.password_hash) == keyed.text()
    wrong = {**row, "password_hash": HASH}
    assert "another password" in reasons(imported(boss, {"users": [wrong]}))


def text_of_all(kept: PasswordHash | None) -> str:
    return "" if kept is None else kept.text()


def test_one_virtual_host_goes_out_and_comes_in_under_another_name(boss: Client) -> None:
    imported(boss, DOCUMENT)
    file = exported(boss, virtual_host="shop")
    assert "users" not in file
    assert "vhost" not in json.dumps(file["queues"])
    imported(boss, {"vhosts": [{"name": "copy"}]})
    report = imported(boss, file, virtual_host="copy")
    assert not report["refused"]
    again = exported(boss, virtual_host="copy")
    for section in ("parameters", "policies", "exchanges", "queues", "bindings", "metadata"):
        assert again[section] == file[section]


def test_of_a_whole_file_one_virtual_host_can_be_taken(boss: Client) -> None:
    imported(boss, only())
    document = only(
        users=DOCUMENT["users"],
        queues=[{"vhost": "shop", "name": "q"}, {"vhost": "other", "name": "q"}],
    )
    report = imported(boss, document, virtual_host="shop")
    assert "q" in boss.session.broker.virtual_hosts["shop"].queues
    assert boss.session.broker.users.get("ann") is None
    assert "users users: 1 of them are left out" in reasons(report, "noted")
    assert "queues queues: 1 of them are left out" in reasons(report, "noted")


# What cannot be done


def test_a_refusal_leaves_all_as_it_was_unless_a_part_is_wanted(boss: Client) -> None:
    wrong = {"vhost": "shop", "name": "x", "type": "x-random-thing", "durable": True}
    document = {**DOCUMENT, "exchanges": [*DOCUMENT["exchanges"], wrong]}
    before = exported(boss)
    report = imported(boss, document)
    assert not report["applied"]
    assert "exchange 'x' in virtual host 'shop': no exchange type 'x-random-thing'" in reasons(report)
    assert exported(boss) == before
    report = imported(boss, document, partial=True)
    assert report["applied"]
    assert report["refused_count"] == 1
    assert "a.q" in boss.session.broker.virtual_hosts["shop"].queues


def test_a_check_changes_nothing(boss: Client) -> None:
    before = exported(boss)
    report = imported(boss, DOCUMENT, dry_run=True)
    assert not report["applied"]
    assert not report["refused"]
    assert "ha-mode" in reasons(report, "noted")
    assert exported(boss) == before


@pytest.mark.parametrize(
    ("section", "item", "why"),
    [
        ("users", {"name": "u", "password_hash": "AAAA"}, "password_hash"),
        ("users", {"name": "u", "password_hash": HASH, "hashing_algorithm": "md6"}, "hashing_algorithm"),
        ("users", {"name": "u", "password_hash": HASH, "password": "p"}, "either"),
        ("users", {"name": "u\n"}, "printable"),
        ("users", {"name": "u", "tags": 5}, "tags"),
        ("users", "u", "expected an object"),
        ("vhosts", {"name": ""}, "name"),
        ("permissions", {"user": "nobody", "vhost": "/", "configure": "", "write": "", "read": ""}, "nobody"),
        (
            "permissions",
            {"user": "guest", "vhost": "/", "configure": "(", "write": "", "read": ""},
            "regular",
        ),
        ("permissions", {"user": "guest", "vhost": "/", "configure": ""}, "write is missing"),
        (
            "topic_permissions",
            {"user": "guest", "vhost": "/", "exchange": "e", "write": "(", "read": ""},
            "regular",
        ),
        ("policies", {"vhost": "/", "name": "p", "pattern": "", "definition": {"no-key": 1}}, "no-key"),
        ("policies", {"vhost": "gone", "name": "p", "pattern": "", "definition": {"expires": 1}}, "gone"),
        ("parameters", {"vhost": "/", "component": "c", "name": "n", "value": "x" * 70000}, "octets"),
        (
            "parameters",
            {"vhost": "/", "component": "vhost-limits", "name": "l", "value": {"a": "b"}},
            "limit",
        ),
        ("global_parameters", {"value": 1}, "name is missing"),
        ("exchanges", {"vhost": "/", "name": "amq.mine", "type": "direct"}, "reserved"),
        ("exchanges", {"vhost": "/", "name": "amq.direct", "type": "fanout"}, "inequivalent"),
        ("queues", {"vhost": "/", "name": "q", "arguments": {"x-max-length": "many"}}, "x-max-length"),
        ("queues", {"vhost": "/", "name": "q", "arguments": {"x-queue-type": "odd"}}, "x-queue-type"),
        ("queues", {"vhost": "/", "name": "q", "type": "quorum"}, "durable"),
        ("queues", {"vhost": "/", "name": "q", "arguments": {"x": 2**70}}, "64 bits"),
        ("queues", {"vhost": "/", "name": "q", "exclusive": True}, "exclusive"),
        ("queues", {"vhost": "/", "name": "\ud800"}, "no text"),
        ("bindings", {"vhost": "/", "source": "no", "destination": "q", "destination_type": "queue"}, "'no'"),
        (
            "bindings",
            {"vhost": "/", "source": "amq.topic", "destination": "q", "destination_type": "tap"},
            "one of",
        ),
    ],
)
def test_each_item_that_cannot_be_done_is_named_with_the_reason(
    boss: Client, section: str, item: Any, why: str
) -> None:
    report = imported(boss, {section: [item]})
    assert report["refused_count"] == 1
    assert why in reasons(report)
    assert report["refused"][0]["section"] == section
    assert HASH not in json.dumps(report)


def test_a_queue_that_is_there_otherwise_is_told(boss: Client) -> None:
    boss.declares("q", durable=True)
    report = imported(boss, {"queues": [{"vhost": "/", "name": "q", "durable": False}]})
    assert "inequivalent arg 'durable'" in reasons(report)


def test_what_the_settings_say_stays() -> None:
    playbook = TimedPlaybook(parse(SETTINGS))
    root = listening(playbook.client(user="root", password="root"))
    same = exported(root)
    assert not imported(root, same)["refused"]
    user = {"name": "clerk", "password_hash": HASH, "tags": []}
    permission = {"user": "clerk", "vhost": "/", "configure": "", "write": "", "read": ""}
    report = imported(root, {"users": [user], "permissions": [permission]})
    assert reasons(report).count("is set by the broker's settings") == 2
    playbook.end()


def test_there_are_not_more_queues_than_allowed() -> None:
    playbook = TimedPlaybook(parse("[limits]\nqueues_per_virtual_host_max = 3"))
    boss = listening(playbook.client())
    report = imported(boss, {"queues": [{"vhost": "/", "name": name} for name in "abc"]})
    assert "may have 3 queues" in reasons(report)
    assert report["refused_count"] == 1
    playbook.end()


LARGE = "x" * 70_000
PARAMETER = {"vhost": "/", "component": "c", "value": 1}
OVER_LIMITS: dict[str, tuple[dict[str, Any], str]] = {
    "a limit of a user": (
        {"users": [{"name": "u", "limits": {"max-publish-rate": 0}}]},
        "max-publish-rate: expected a whole number from 1",
    ),
    "a limit of a virtual host": (
        {"vhosts": [{"name": "v", "limits": {"max-queues": 5, "max-publish-rate": 0}}]},
        "max-publish-rate: expected a whole number from 1",
    ),
    "metadata": ({"vhosts": [{"name": "v", "description": LARGE}]}, "expected at most 65536 octets"),
    "parameters": (
        {"parameters": [{**PARAMETER, "name": str(n)} for n in range(4)]},
        "there are 3 parameters already",
    ),
    "metadata and parameters": (
        {
            "vhosts": [{"name": "v", "description": "d"}],
            "parameters": [{**PARAMETER, "name": str(n)} for n in range(3)],
        },
        "there are 3 parameters already",
    ),
    "topic permissions": (
        {
            "topic_permissions": [
                {"user": "guest", "vhost": "/", "exchange": "e" * 256, "write": "", "read": ""}
            ]
        },
        "exchange: expected the name",
    ),
    "policies": (
        {
            "policies": [
                {"vhost": "v", "name": str(n), "pattern": "", "definition": {"expires": 9}} for n in range(4)
            ]
        },
        "may have 3 policies",
    ),
    "exchanges": (
        {"exchanges": [{"vhost": "v", "name": str(n), "type": "topic"} for n in range(4)]},
        "exchanges at most",
    ),
    "bindings": (
        {
            "bindings": [
                {
                    "vhost": "/",
                    "source": "amq.topic",
                    "destination": "amq.fanout",
                    "destination_type": "exchange",
                    "routing_key": str(n),
                }
                for n in (0, 1, 1, 2, 3)
            ]
        },
        "may have 3 bindings at most",
    ),
}


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """An administrator of a broker that may have three of each."""
    monkeypatch.setattr(parameters, "PARAMETERS_MAX", 3)
    monkeypatch.setattr(policies, "POLICIES_MAX", 3)
    most = f"exchanges_per_virtual_host_max = {len(PREDECLARED) + 3}\nbindings_per_virtual_host_max = 3"
    playbook = TimedPlaybook(parse(f"[limits]\n{most}"))
    boss = listening(playbook.client())
    yield boss
    playbook.end()


@pytest.mark.parametrize("name", OVER_LIMITS)
def test_what_is_over_a_limit_is_found_before_anything_is_done(limited: Client, name: str) -> None:
    document, why = OVER_LIMITS[name]
    before = exported(limited)
    report = imported(limited, {"vhosts": [{"name": "v"}], **document})
    assert why in reasons(report)
    assert not report["applied"]
    assert report["refused_count"] == 1
    assert exported(limited) == before


def test_what_is_at_a_limit_can_be_imported_twice(limited: Client) -> None:
    document = {"vhosts": [{"name": "v", "description": "d"}]}
    for section in ("parameters", "policies", "exchanges", "bindings"):
        document[section] = OVER_LIMITS[section][0][section][:-1]
    document["parameters"].pop()
    for _ in range(2):
        assert not imported(limited, document)["refused"]


def test_an_item_of_which_a_part_is_done_is_told(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when others set parameters between the check and the end."""
    model = boss.session.broker.administration

    def refuse(*_: object) -> None:
        raise ServiceFault(406, "no room")

    monkeypatch.setattr(model.parameters, "set", refuse)
    monkeypatch.setattr(model.limits, "set", refuse)
    document = {
        "users": [{"name": "ann", "limits": {"max-queues": 5}}],
        "vhosts": [{"name": "shop", "description": "d", "limits": {"max-queues": 5}}],
    }
    report = imported(boss, document)
    assert report["applied"]
    assert report["changed"] == {"users": 1, "vhosts": 1}
    told = {each["item"]: each["reason"] for each in report["refused"]}
    assert told == {
        "user 'ann'": "a part of it is done, the rest is not: no room",
        "virtual host 'shop'": "a part of it is done, the rest is not: no room",
        "limits of virtual host 'shop'": "no room",
    }


def test_a_disk_that_fails_during_an_import_is_told_in_the_report(
    boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StorageFault("the disk is full")

    monkeypatch.setattr(boss.session.broker.administration.parameters, "set", fail)
    document = {
        "users": [{"name": "ann", "password_hash": HASH, "hashing_algorithm": SHA256}],
        "global_parameters": [{"name": "color", "value": "red"}],
        "queues": [{"name": "q", "vhost": "/", "durable": True}],
    }
    report = imported(boss, document)
    assert report["applied"]
    assert report["changed"] == {"users": 1, "queues": 1}
    assert [each["reason"] for each in report["refused"]] == ["the disk is full"]


# What is otherwise than in RabbitMQ, and newer files


def test_what_means_something_else_here_is_told(boss: Client) -> None:
    report = imported(boss, DOCUMENT)
    told = reasons(report, "noted")
    assert "quorum queue of one node" in told
    assert "key 'ha-mode' is kept and changes nothing" in told
    assert "shovel/s' in virtual host 'shop': is kept, and nothing here acts on it" in told


def test_guest_who_comes_back_is_told() -> None:
    guest = {"users": [{"name": "guest", "password": "guest", "tags": "administrator"}]}
    playbook = TimedPlaybook(parse(SETTINGS))
    root = listening(playbook.client(user="root", password="root"))
    assert "user 'guest': is added: delete it again" in reasons(imported(root, guest), "noted")
    assert imported(root, guest)["noted_count"] == 0


def test_another_password_of_a_user_is_told(boss: Client) -> None:
    """It may be that of the user who imports."""
    imported(boss, {"users": [{"name": "u", "password": "first", "tags": ""}]})
    of_second = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
    hashed = {"name": "u", "password_hash": of_second, "hashing_algorithm": "rabbit_password_hashing_sha256"}
    report = imported(boss, {"users": [{**hashed, "tags": "monitoring"}]})
    assert "user 'u': is there already: the file changes its password and its tags" in reasons(
        report, "noted"
    )
    assert imported(boss, {"users": [{**hashed, "tags": "monitoring"}]})["noted_count"] == 0


def test_keys_that_nobody_knows_are_told(boss: Client) -> None:
    queue = {"vhost": "/", "name": "q", "durable": True, "color": "red", "messages": 5}
    report = imported(boss, {"queues": [queue], "galaxies": []})
    told = reasons(report, "noted")
    assert "means nothing here and is left out: color, messages" in told
    assert "galaxies" in told
    tags = imported(boss, {"users": [{"name": "u", "password": "p", "tags": ["dev"]}]})
    assert "'dev'" in reasons(tags, "noted")


def test_a_file_of_a_newer_rabbitmq(boss: Client) -> None:
    metadata = {"description": "d", "tags": [], "default_queue_type": "classic"}
    document = {
        "rabbitmq_version": "4.1.0",
        "rabbitmq_definition_format": "cluster",
        "original_cluster_name": "rabbit@x",
        "explanation": "Definitions of cluster 'rabbit@x'",
        "vhosts": [
            {
                "name": "new",
                "description": "d",
                "metadata": {**metadata, "protected_from_deletion": True},
                "tags": [],
                "default_queue_type": "classic",
            }
        ],
        "global_parameters": [{"name": "cluster_tags", "value": []}],
        "queues": [{"vhost": "new", "name": "q", "durable": True, "type": "rabbit_quorum_queue"}],
        "policies": [
            {
                "vhost": "new",
                "name": "p",
                "pattern": ".*",
                "apply-to": "quorum_queues",
                "definition": {"delivery-limit": 5, "target-group-size": 3},
            }
        ],
    }
    report = imported(boss, document)
    assert not report["refused"]
    told = reasons(report, "noted")
    assert "protected_from_deletion" in told
    assert "target-group-size" in told
    assert boss.session.broker.virtual_hosts["new"].queues["q"].arguments == {"x-queue-type": "quorum"}
    found = exported(boss)["vhosts"]
    assert found[1]["metadata"]["default_queue_type"] == "classic"


# Parts, and who may ask


def test_a_file_in_many_parts_is_checked_as_a_whole(boss: Client) -> None:
    queues = [{"vhost": "shop", "name": f"q{number}"} for number in range(100)]
    bindings = [
        {"vhost": "shop", "source": "e", "destination": f"q{number}", "destination_type": "queue"}
        for number in range(100)
    ]
    exchange = {"vhost": "shop", "name": "e", "type": "fanout"}
    document = only(bindings=bindings, queues=queues, exchanges=[exchange])
    parts = list(split(document, 2000))
    assert len(parts) > 5
    for number, part in enumerate(parts[:-1]):
        told, _ = ask(boss, "definitions.import", part, part=number, more=True)
        assert told == {"parts": number + 1}
    assert "shop" not in boss.session.broker.virtual_hosts
    told, _ = ask(boss, "definitions.import", parts[-1], part=len(parts) - 1)
    assert told["changed"] == 202
    assert told["refused"] == 0
    assert len(exported(boss)["bindings"]) == 100


def test_parts_come_one_after_the_other(boss: Client) -> None:
    assert refused(boss, "definitions.import", b"{}", part=1)[0] == 406
    ask(boss, "definitions.import", b"{}", more=True)
    assert refused(boss, "definitions.import", b"{}", part=2)[0] == 406
    assert refused(boss, "definitions.import", b"{}", part=1)[0] == 406  # the one before has ended it


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"\xff", b'{"users": 5}', b'{"a": NaN}', b'{"users": [], "users": []}']
)
def test_what_is_no_definitions_file_is_refused(boss: Client, body: bytes) -> None:
    assert refused(boss, "definitions.import", body)[0] == 406


def test_a_part_that_is_too_large_is_refused(boss: Client) -> None:
    body = b" " * (PART_OCTETS_MAX + 1)
    assert refused(boss, "definitions.import", body)[0] == 311


def test_parts_of_a_connection_that_is_gone_are_forgotten(playbook: TimedPlaybook, boss: Client) -> None:
    other = listening(playbook.client())
    for client in (boss, other):
        ask(client, "definitions.import", b"{}", more=True)
    gathering = definitions_of(boss.session.broker).gathering
    assert len(gathering) == 2
    other.session.release()
    playbook.passes(LOOK_MS + 1)
    assert list(gathering) == [boss.session.number]
    playbook.passes(GATHERING_MS_MAX + LOOK_MS)
    assert not gathering


def test_parts_of_the_management_process_are_kept_while_it_is_there(
    playbook: TimedPlaybook, boss: Client
) -> None:
    ask(boss, "definitions.import", b"{}", more=True)
    clients, number = boss.session.broker.clients, boss.session.number
    client = clients.by_number[number]
    clients.leave(number)
    clients.internal[number] = client  # no list has it
    playbook.passes(LOOK_MS + 1)
    assert list(definitions_of(boss.session.broker).gathering) == [number]
    clients.leave(number)
    playbook.passes(LOOK_MS + 1)
    assert not definitions_of(boss.session.broker).gathering


def test_definitions_are_for_administrators() -> None:
    playbook = TimedPlaybook(parse(SETTINGS))
    clerk = listening(playbook.client(user="clerk", password="clerk"))
    assert refused(clerk, "definitions.export")[0] == 403
    assert refused(clerk, "definitions.import", b"{}")[0] == 403
    playbook.end()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(sorted({key for section in SECTIONS for item in DOCUMENT[section] for key in item}))
ITEMS = st.sampled_from([item for section in SECTIONS for item in DOCUMENT[section]])


@given(st.lists(st.tuples(st.sampled_from(SECTIONS), ITEMS, st.dictionaries(KEYS, JSON, max_size=3))))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_file_is_more_than_refused(
    boss: Client, changed: list[tuple[str, dict[str, Any], dict[str, Any]]]
) -> None:
    """An import of whatever JSON is answered by a report, never by a bug, and an export follows."""
    document: dict[str, Any] = only()
    for section, item, changes in changed:
        item = {key: value for key, value in item.items() if key not in ("password", "password_hash")}
        document.setdefault(section, []).append({**item, **changes})
    assert imported(boss, document, partial=True)["applied"]
    exported(boss)
