"""Requests that change something, asked again: done once, or said to be unknown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playbook.dialogue import Carried, Client, carrying
from playbook.hourglass import TimedPlaybook

from flintmq.broker.services import answers
from flintmq.broker.services.request import CHANGING, SERVICES, Request, service
from flintmq.client.core import services as client_services
from flintmq.config import parse
from flintmq.wire import methods
from flintmq.wire.methods import BasicPublish
from flintmq.wire.tables import FieldTable

SETTINGS = """
virtual_hosts = ["/", "other"]
[users.ann]
password = "ann"
permissions."/" = {configure = ".*", write = ".*", read = ".*"}
permissions."other" = {configure = ".*", write = ".*", read = ".*"}
[users.bob]
password = "bob"
permissions."/" = {configure = ".*", write = ".*", read = ".*"}
"""
MINUTE_MS = 60_000


@pytest.fixture
def playbook() -> Iterator[TimedPlaybook]:
    playbook = TimedPlaybook(parse(SETTINGS))
    yield playbook
    playbook.end()


def joins(playbook: TimedPlaybook, user: str = "ann", host: str = "/") -> Client:
    client = playbook.client(user=user, password=user, virtual_host=host)
    client.declares(f"replies-{len(playbook.clients)}", exclusive=True)
    client.consumes(f"replies-{len(playbook.clients)}", "replies", no_ack=True)
    return client


@pytest.fixture
def client(playbook: TimedPlaybook) -> Client:
    client = joins(playbook)
    client.declares("from")
    client.declares("to")
    for number in range(10):
        client.publishes("from", b"%d" % number)
    return client


def request(client: Client, name: str, key: str | None, body: bytes = b"", **arguments: Any) -> None:
    client >> carrying(
        BasicPublish(exchange="amq.system", routing_key=name),
        body,
        headers={argument.replace("_", "-"): value for argument, value in arguments.items()},
        reply_to=f"replies-{client.playbook.clients.index(client) + 1}",
        message_id=key,
    )


def answer(client: Client) -> FieldTable:
    heard = client.next(1)
    assert isinstance(heard, Carried), heard
    assert isinstance(heard.method, methods.BasicDeliver), heard
    assert heard.properties.headers is not None
    return heard.properties.headers


def ask(client: Client, name: str, key: str | None, **arguments: Any) -> FieldTable:
    request(client, name, key, **arguments)
    return answer(client)


def move(client: Client, key: str | None, limit: int = 3, **more: Any) -> FieldTable:
    return ask(client, "queue.move", key, queue="from", to="to", limit=limit, **more)


def memory_of(client: Client) -> str:
    return str(client.playbook.broker.answers.memory)


def test_a_move_asked_again_is_done_once_and_answered_alike(client: Client, playbook: TimedPlaybook) -> None:
    first = move(client, "m1")
    assert first == {"moved": 3, "left": 7}
    assert move(client, "m1") == first
    assert move(client, "m1", x_repeat=True) == first
    assert move(joins(playbook), "m1", x_repeat=1500) == first
    assert playbook.depth("to") == 3
    assert move(client, "m2") == {"moved": 3, "left": 4}
    assert move(client, None) == {"moved": 3, "left": 1}  # without an id each is a request of its own
    assert move(client, "") == {"moved": 1, "left": 0}


def test_a_copy_and_a_refusal_are_remembered_too(client: Client, playbook: TimedPlaybook) -> None:
    copied = ask(client, "queue.copy", "c1", queue="from", to="to", limit=3)
    assert copied["copied"] == 3
    assert ask(client, "queue.copy", "c1", queue="from", to="to", limit=3) == copied
    assert playbook.depth("to") == 3
    refused = ask(client, "queue.move", "m1", queue="from", to="none")
    assert refused["error-code"] == 404
    assert "request-unknown" not in refused
    client.declares("none")
    assert ask(client, "queue.move", "m1", queue="from", to="none") == refused
    assert playbook.depth("none") == 0


def test_every_service_that_changes_something_keeps_its_answer() -> None:
    """A new service belongs to one of these: it changes nothing, or is as good twice as once."""
    repeatable = {
        "backup.files",
        "backup.notes",
        "backup.renew",
        "get.filter",
        "lease.content",
        "lease.read",
        "lease.renew",
    }
    repeatable |= {"staging.append", "staging.open"}  # a part has its place, and is refused at any other
    telling = (
        ".explain",
        ".export",
        ".list",
        ".info",
        ".peek",
        ".services",
        ".marker",
        ".markers",
        ".offsets",
        ".node",
        ".default-password",
    )
    for name in SERVICES:
        is_telling = name.endswith(telling) or name.startswith(("stream.", "management."))
        assert (name in CHANGING) != (is_telling or name in repeatable), name


def test_an_id_belongs_to_one_request(client: Client) -> None:
    move(client, "m1", limit=3)
    for other in (
        move(client, "m1", limit=4),
        ask(client, "queue.copy", "m1", queue="from", to="to", limit=3),
        ask(client, "queue.move", "m1", queue="from", to="to", limit=3, body=b"x"),
    ):
        assert other["error-code"] == 406
        assert "the id 'm1' was used for another request to queue.move" in str(other["error-text"])
    assert ask(client, "broker.info", "m1")["product"] == "FlintMQ"  # changes nothing: no id is looked at


def test_an_id_is_one_of_a_user_in_a_virtual_host(client: Client, playbook: TimedPlaybook) -> None:
    assert move(client, "m1")["moved"] == 3
    assert move(joins(playbook, "bob"), "m1")["moved"] == 3
    elsewhere = joins(playbook, host="other")
    elsewhere.declares("from")
    elsewhere.declares("to")
    assert move(elsewhere, "m1") == {"moved": 0, "left": 0}


def test_the_second_waits_while_the_first_is_worked_on(
    client: Client, playbook: TimedPlaybook, services_of_test: None
) -> None:
    asked: list[Request] = []

    @service("test.slow", changes=True)
    def slow(request: Request) -> None:
        asked.append(request)

    others = [joins(playbook) for _ in range(answers.WAITING_MAX + 1)]
    for each in (client, *others):
        request(each, "test.slow", "s1", number=7)
    assert len(asked) == 1
    assert "is being worked on" in str(answer(others.pop())["error-text"])
    assert ask(others[0], "test.slow", "s1", number=8)["error-code"] == 406
    asked[0].reply({"done": 1}, b"")
    playbook.finish_pass()
    assert [answer(each) for each in (client, *others)] == [{"done": 1}] * (1 + len(others))
    assert ask(others[0], "test.slow", "s1", number=7) == {"done": 1}
    assert len(asked) == 1


def test_a_lease_that_waits_for_messages_does_not_wait_for_itself(
    client: Client, playbook: TimedPlaybook
) -> None:
    client.declares("empty")
    wanted = {"queue": "empty", "consumer": "reader", "claim": True, "wait_ms": 1000}
    request(client, "queue.lease", "l1", **wanted)
    second = joins(playbook)
    request(second, "queue.lease", "l1", **wanted)
    playbook.passes(100)
    client.publishes("empty", b"come")
    playbook.passes(100)
    told = answer(client)
    assert told["epoch"] == 1
    assert told["last"] == 1
    assert answer(second) == told


def test_a_repeat_that_nobody_knows_is_not_done(client: Client, playbook: TimedPlaybook) -> None:
    for repeat in (
        {"x_repeat": True},
        {"x_repeat": 1000},
        {"x_repeat": 1000, "x_memory": "of another life"},
        {"x_repeat": -1, "x_memory": memory_of(client)},
        {"x_repeat": "text", "x_memory": memory_of(client)},
        {"x_repeat": answers.ANSWER_S * 1000, "x_memory": memory_of(client)},
    ):
        told = move(client, "m1", **repeat)
        assert told["request-unknown"] is True
        assert told["error-code"] == 404
        assert "whether it was done is not known" in str(told["error-text"])
    assert playbook.depth("to") == 0
    assert move(client, "m1")["moved"] == 3


def test_a_repeat_that_proves_that_the_first_never_came_is_done(
    client: Client, playbook: TimedPlaybook
) -> None:
    stranger = playbook.stranger()
    memory = stranger.greet().server_properties["request_memory"]
    assert memory == memory_of(client)
    assert move(client, "m1", x_repeat=5000, x_memory=memory)["moved"] == 3
    assert move(client, "m1", x_repeat=6000, x_memory=memory)["moved"] == 3
    assert playbook.depth("to") == 3


def test_what_is_too_old_is_unknown(client: Client, playbook: TimedPlaybook) -> None:
    move(client, "m1")
    playbook.passes(answers.ANSWER_S * 1000 + 1)
    age_ms = answers.ANSWER_S * 1000 + 1
    told = move(client, "m1", x_repeat=age_ms, x_memory=memory_of(client))
    assert told["request-unknown"] is True
    assert playbook.depth("to") == 3


def test_no_more_is_kept_than_so_many(client: Client, playbook: TimedPlaybook) -> None:
    other = joins(playbook, "bob")
    assert move(other, "theirs")["moved"] == 3
    assert move(client, "first")["moved"] == 3
    playbook.passes(1)
    for number in range(answers.SCOPE_ANSWERS_MAX):
        ask(client, "queue.move", f"n{number}", queue="none", to="to")
    kept = playbook.broker.answers.scopes["ann", "/"]
    assert len(kept.given) <= answers.SCOPE_ANSWERS_MAX
    assert kept.octets <= answers.SCOPE_BYTES_MAX
    told = move(client, "first", x_repeat=1, x_memory=memory_of(client))
    assert told["request-unknown"] is True
    assert move(other, "theirs", x_repeat=1)["moved"] == 3  # nobody forgets for others
    assert playbook.depth("to") == 6
    playbook.passes(2 * MINUTE_MS)
    # What was forgotten came long before this one was first asked.
    assert move(client, "new", x_repeat=1, x_memory=memory_of(client))["moved"] == 3


def test_large_answers_do_not_add_up(client: Client, playbook: TimedPlaybook, services_of_test: None) -> None:
    @service("test.large", changes=True)
    def large(request: Request) -> None:
        request.reply({"large": "x" * 100_000})

    for number in range(30):
        ask(client, "test.large", f"n{number}")
    kept = playbook.broker.answers.scopes["ann", "/"]
    assert 8 <= len(kept.given) <= 10
    assert kept.octets == sum(each.size for each in kept.given.values()) <= answers.SCOPE_BYTES_MAX


def test_requests_under_way_are_bounded(
    client: Client, playbook: TimedPlaybook, services_of_test: None
) -> None:
    asked: list[Request] = []

    @service("test.slow", changes=True)
    def slow(request: Request) -> None:
        asked.append(request)

    for number in range(answers.SCOPE_ANSWERS_MAX):
        request(client, "test.slow", f"s{number}")
    told = ask(client, "test.slow", "one more")
    assert told["error-code"] == 506
    assert "requests with an id are under way" in str(told["error-text"])
    asked[0].reply({"done": 0})
    playbook.finish_pass()
    assert answer(client) == {"done": 0}
    request(client, "test.slow", "one more")
    assert len(asked) == answers.SCOPE_ANSWERS_MAX + 1


def test_scopes_that_are_empty_go(client: Client, playbook: TimedPlaybook) -> None:
    move(client, "m1")
    playbook.passes(answers.ANSWER_S * 1000 + 1)
    move(joins(playbook, "bob"), "m1")
    assert list(playbook.broker.answers.scopes) == [("bob", "/")]


def test_a_bug_in_a_service_is_remembered_as_well(
    client: Client, playbook: TimedPlaybook, services_of_test: None
) -> None:
    tried: list[int] = []

    @service("test.broken", changes=True)
    def broken(request: Request) -> Iterator[None]:
        tried.append(1)
        yield
        raise KeyError("oops")

    assert ask(client, "test.broken", "b1")["error-code"] == 541
    assert ask(client, "test.broken", "b1")["error-code"] == 541
    assert len(tried) == 1


def test_the_client_marks_repeats_of_all_that_changes_something() -> None:
    assert client_services.CHANGING == CHANGING
