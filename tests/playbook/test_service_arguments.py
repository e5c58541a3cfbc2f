"""What services take, what is told of requests that change something, and to whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playbook.dialogue import Carried, Client, carrying
from playbook.hourglass import TimedPlaybook
from playbook.test_administration import ask, done, listening, new_user, refused

from flintmq.broker.administration.changes import LINE_LETTERS_MAX, Change
from flintmq.broker.services.arguments import KINDS, table_of
from flintmq.broker.services.request import ARGUMENTS, SERVICES
from flintmq.errors import ProtocolMisuse
from flintmq.wire.methods import BasicPublish


@pytest.fixture
def playbook() -> Iterator[TimedPlaybook]:
    playbook = TimedPlaybook()
    yield playbook
    playbook.end()


@pytest.fixture
def boss(playbook: TimedPlaybook) -> Client:
    return listening(playbook.client())


def test_each_service_says_what_it_takes() -> None:
    assert [name for name in SERVICES if name not in ARGUMENTS] == []


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_no_service_takes_an_argument_that_it_does_not_know(boss: Client, name: str) -> None:
    code, text = refused(boss, name, virtual_hosst="/", no_such_thing=1)
    assert code == 406
    assert f"{name}: argument 'virtual-hosst': no such argument" in text


@pytest.mark.parametrize(
    ("service", "given", "advice"),
    [
        ("permission.clear", "vhost", "did you mean 'virtual-host'?"),
        ("permission.clear", "virtual_host", "did you mean 'virtual-host'?"),
        ("permission.clear", "username", "did you mean 'user'?"),
        ("user.add", "pasword", "did you mean 'password'?"),
        ("queue.info", "quue", "did you mean 'queue'?"),
        ("vhost.add", "xyz", "known are default-queue-type, description, tags, virtual-host"),
        ("broker.info", "xyz", "the service takes none"),
    ],
)
def test_what_is_probably_meant_is_told(boss: Client, service: str, given: str, advice: str) -> None:
    asked = BasicPublish(exchange="amq.system", routing_key=service)
    boss >> carrying(asked, b"", headers={given: "x"}, reply_to=f"mine{boss.session.number}")
    heard = boss.next(1)
    assert isinstance(heard, Carried)
    assert heard.properties.headers is not None
    assert heard.properties.headers["error-code"] == 406
    assert advice in str(heard.properties.headers["error-text"])


def test_headers_of_tracing_are_no_arguments(boss: Client) -> None:
    assert "error-code" not in ask(boss, "broker.info", traceparent="00-1-2-01", tracestate="", baggage="")


def test_a_repeat_without_an_id_is_not_done(boss: Client) -> None:
    code, text = refused(boss, "vhost.add", virtual_host="v", x_repeat=True)
    assert code == 406
    assert "needs the message-id" in text
    assert "v" not in boss.session.broker.virtual_hosts


@pytest.mark.parametrize("signature", ["user", "user txet", "user text, x"])
def test_a_signature_that_means_nothing_is_a_bug(signature: str) -> None:
    with pytest.raises(ProtocolMisuse, match="of no kind"):
        table_of(signature)
    assert "text" in KINDS


# Who changed what


@pytest.fixture
def told(boss: Client) -> list[Change]:
    found: list[Change] = []
    boss.session.broker.administration.changes.observers.append(found.append)
    return found


def test_each_change_is_told_with_who_and_from_where(
    boss: Client, told: list[Change], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "flintmq.administration")
    done(boss, "user.add", user="ann", password="se-cret", tags=["monitoring"])
    done(boss, "parameter.set", component="c", name="n", value="amqp://x:se-cret@there")
    expected: dict[str, Any] = {"user": "ann", "tags": ["monitoring"]}
    assert told[0] == Change(
        "user.add", "guest", boss.session.peer_address, boss.session.number, "/", expected
    )
    assert dict(told[1].arguments) == {"component": "c", "name": "n"}
    lines = [record.getMessage() for record in caplog.records if record.name == "flintmq.administration"]
    assert lines[0] == f"user 'guest' at {boss.session.peer_address}: user.add user='ann' tags=['monitoring']"
    assert len(lines) == 2
    assert "se-cret" not in caplog.text + str(told)


def test_each_refusal_is_told_to_observers(
    playbook: TimedPlaybook, boss: Client, told: list[Change], caplog: pytest.LogCaptureFixture
) -> None:
    new_user(boss)
    ann = listening(playbook.client(user="ann", password="ann"))
    done(boss, "permission.set", user="ann", configure=".*", write=".*", read="^mine")
    told.clear()
    caplog.set_level("INFO", "flintmq.administration")
    assert refused(ann, "user.list")[0] == 403
    assert refused(ann, "user.add", user="eve", pasword="se-cret")[0] == 406
    assert refused(ann, "queue.peek", queue="theirs")[0] == 403
    assert refused(ann, "queue.info", queue="mine")[0] == 404  # of no interest
    assert [(change.what, change.user, change.code) for change in told] == [
        ("user.list", "ann", 403),
        ("user.add", "ann", 406),
        ("queue.peek", "ann", 403),
    ]
    assert "has not the tag administrator" in told[0].text
    assert "se-cret" not in str(told)
    assert caplog.text == ""


def test_a_repeat_is_told_once(boss: Client, told: list[Change]) -> None:
    for _ in range(2):
        asked = BasicPublish(exchange="amq.system", routing_key="vhost.add")
        reply_to = f"mine{boss.session.number}"
        headers = {"virtual-host": "v"}
        boss >> carrying(asked, b"", headers=headers, message_id="m1", reply_to=reply_to)
        boss.next(1)
    assert [change.what for change in told] == ["vhost.add"]


def test_an_observer_that_fails_keeps_nobody_from_anything(
    boss: Client, told: list[Change], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(change: Change) -> None:
        raise OSError("the disk is full")

    boss.session.broker.administration.changes.observers.insert(0, fail)
    done(boss, "vhost.add", virtual_host="v")
    assert [change.what for change in told] == ["vhost.add"]
    assert "a bug keeps an observer from hearing of vhost.add" in caplog.text


def test_no_line_of_the_log_is_endless_or_has_control_codes() -> None:
    arguments = {"name": "a\nb\x1b[1m", "pattern": "x" * 5000}
    line = Change("policy.set", "eve\n", "::1", 1, "/", arguments).line()
    assert line.isprintable()
    assert len(line) == LINE_LETTERS_MAX + 3
