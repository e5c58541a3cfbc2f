"""Messages and queues that live for a time."""

from __future__ import annotations

from itertools import pairwise

import pytest
from playbook.dialogue import Carried, Client, carrying
from playbook.hourglass import TimedPlaybook, letter, with_morgue

from flintmq.wire.methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    QueueDeclare,
    QueueDelete,
    QueueDeleteOk,
)

EXPIRED_MAX = 1024  # of broker/queues/queue.py, in one pass; the compiled module does not show it


def test_a_plain_queue_has_no_rules() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", arguments={"x-queue-mode": "lazy", "x-unheard-of": 1, "x-queue-type": "classic"})
    client.publishes("q", b"1")
    assert playbook.queue("q").rules is None
    assert not playbook.broker.timetable.alarms


def test_messages_expire_at_the_head_by_the_shorter_of_two_times() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", arguments={"x-message-ttl": 1000})
    client.publishes("q", b"long", expiration="5000")
    client.publishes("q", b"short", expiration="200")
    playbook.passes(500)
    assert playbook.depth("q") == 2, "the short one is behind the head"
    playbook.passes(499)
    assert playbook.depth("q") == 2
    playbook.passes(1)
    assert playbook.depth("q") == 0


def test_one_alarm_for_a_queue_of_many() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", arguments={"x-message-ttl": 1000, "x-expires": 100_000})
    client.publishes("q", *(b"%d" % number for number in range(100)))
    assert len([alarm for alarm in playbook.broker.timetable.alarms if alarm.callback is not None]) == 1


def test_an_expired_message_is_never_handed_out() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q")
    client.publishes("q", b"1", expiration="100")
    client.publishes("q", b"2")
    playbook.clock.now_s += 0.1  # and the alarm has not rung yet
    assert client.gets("q") == b"2"
    client.publishes("q", b"3", expiration="100")
    client.publishes("q", b"4")
    playbook.clock.now_s += 0.1
    client.consumes("q", no_ack=True)
    assert client.bodies() == [b"4"]


def behind_many_expired(playbook: TimedPlaybook, client: Client) -> None:
    """A queue `q` whose one living message lies behind more than one pass lets expire, and no pass has."""
    client.declares("q")
    client.publishes("q", *[b""] * (3 * EXPIRED_MAX), expiration="100")
    client.publishes("q", b"living")
    playbook.clock.now_s += 0.1
    chores = playbook.broker.pass_work.chores
    chores.pass_number, chores.credit = playbook.broker.pass_work.passes, 0


def test_a_get_waits_until_many_expired_messages_are_gone() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    behind_many_expired(playbook, client)
    with playbook.one_pass():
        client >> BasicGet(queue="q", no_ack=True)
        client.hears_nothing()
        assert playbook.depth("q") == 2 * EXPIRED_MAX + 1
    found = client.next(1)
    assert isinstance(found, Carried)
    assert found.body == b"living"
    assert client.gets("q") is None


@pytest.mark.parametrize("how", ["channel", "connection"])
def test_a_get_that_waits_takes_nothing_for_a_client_that_is_gone(how: str) -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    behind_many_expired(playbook, client)
    other = playbook.client()
    with playbook.one_pass():
        client >> BasicGet(queue="q", no_ack=True)
        if how == "connection":
            client.session.release()
        else:
            client >> BasicAck(delivery_tag=7)
    if how == "channel":
        assert client.hears(ChannelClose).reply_code == 406
    client.hears_nothing()
    assert other.gets("q") == b"living"


def test_a_get_that_waits_is_told_that_its_queue_is_gone() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    behind_many_expired(playbook, client)
    other = playbook.client()
    with playbook.one_pass():
        client >> BasicGet(queue="q")
        other >> QueueDelete(queue="q")
        other.hears(QueueDeleteOk)
    assert client.hears(ChannelClose).reply_code == 404


def test_what_comes_back_keeps_its_time() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", arguments={"x-message-ttl": 100})
    client.publishes("q", b"1")
    client >> BasicGet(queue="q")
    client.next(1)
    playbook.passes(1000)
    client >> BasicNack(delivery_tag=1, requeue=True)
    playbook.passes(1)
    assert playbook.depth("q") == 0


@pytest.mark.parametrize("by", ["queue", "message"])
def test_no_time_at_all_means_at_once_or_never(by: str) -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", arguments={"x-message-ttl": 0} if by == "queue" else {})
    properties = {"expiration": "0"} if by == "message" else {}
    client.publishes("q", b"1", **properties)
    assert playbook.depth("q") == 0
    client.consumes("q", no_ack=True)
    client.publishes("q", b"2", **properties)
    assert client.bodies() == [b"2"]


@pytest.mark.parametrize("text", ["soon", "-1", "1.5", "", " 1", "315360000001", "99999999999999", "\u0664"])
def test_an_expiration_that_is_no_number(text: str) -> None:
    client = TimedPlaybook().client()
    client >> carrying(BasicPublish(routing_key="nowhere"), b"x", expiration=text)
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 60, 40)
    assert "expiration" in close.reply_text


@pytest.mark.parametrize("by", ["queue", "message"])
def test_a_message_may_live_for_ten_years(by: str) -> None:
    ten_years_ms = 315_360_000_000
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", arguments={"x-message-ttl": ten_years_ms} if by == "queue" else {})
    client.publishes("q", b"1", expiration=str(ten_years_ms) if by == "message" else None)
    for ms in (2**32, ten_years_ms - 2**32 - 1):
        playbook.passes(ms)
        assert playbook.depth("q") == 1
    playbook.passes(1)
    assert playbook.depth("q") == 0


def test_a_queue_that_nobody_uses_goes() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", arguments={"x-expires": 1000})
    client.publishes("q", b"1")
    for use in (
        lambda: client.declares("q", arguments={"x-expires": 1000}),
        lambda: client.declares("q", passive=True),
        lambda: client.gets("q"),
        lambda: client.publishes("q", b"2"),
    ):
        playbook.passes(600)
        use()
    playbook.passes(399)
    assert "q" in playbook.broker.virtual_hosts["/"].queues, "publishing to it is no use"
    playbook.passes(1)
    assert "q" not in playbook.broker.virtual_hosts["/"].queues


def test_a_queue_with_a_consumer_stays() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", arguments={"x-expires": 1000})
    client >> BasicConsume(queue="q", consumer_tag="c")
    client.next(1)
    playbook.passes(5000)
    client >> BasicCancel(consumer_tag="c")
    client << BasicCancelOk(consumer_tag="c")
    playbook.passes(999)
    assert playbook.depth("q") == 0
    playbook.passes(1)
    assert "q" not in playbook.broker.virtual_hosts["/"].queues


def test_a_setting_of_the_clock_changes_nothing() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", arguments={"x-message-ttl": 1000})
    client.publishes("q", b"1")
    playbook.clock.wall_ms = lambda: 0  # type: ignore[method-assign]
    playbook.passes(999)
    assert playbook.depth("q") == 1
    playbook.passes(1)
    assert playbook.depth("q") == 0


def test_a_long_backlog_expires_in_portions() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    with_morgue(client, message_ttl=10)
    with playbook.one_pass():
        client.publishes("q", *(b"%d" % number for number in range(3000)))
    playbook.passes(10)
    depths = [playbook.depth("q")]
    for _ in range(20):
        playbook.passes(1)
        depths.append(playbook.depth("q"))
    assert depths[-1] == 0
    assert max(before - after for before, after in pairwise(depths)) <= 256  # dead letters, some 20 us each
    assert client.gets_all("morgue") == [b"%d" % number for number in range(3000)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("x-message-ttl", -1),
        ("x-message-ttl", "100"),
        ("x-message-ttl", 315_360_000_001),
        ("x-message-ttl", True),
        ("x-message-ttl", 1.5),
        ("x-expires", 0),
        ("x-max-length", -1),
        ("x-max-length-bytes", "1k"),
        ("x-overflow", "explode"),
        ("x-dead-letter-exchange", 7),
        ("x-dead-letter-routing-key", "without an exchange"),
        ("x-max-priority", 256),
        ("x-max-priority", -1),
        ("x-single-active-consumer", "yes"),
        ("x-delivery-limit", -2),
        ("x-queue-type", "express"),
        ("x-queue-mode", "eager"),
        ("x-delayed-retry-type", "some"),
        ("x-consumer-timeout", 0),
    ],
)
def test_a_bad_argument_is_named(name: str, value: object) -> None:
    client = TimedPlaybook().client()
    client >> QueueDeclare(queue="q", arguments={name: value})  # type: ignore[dict-item]
    close = client.hears(ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 50, 10)
    assert name in close.reply_text


def test_quorum_queues_last_and_are_shared() -> None:
    for settings in ({}, {"durable": True, "exclusive": True}):
        client = TimedPlaybook().client()
        client >> QueueDeclare(queue="q", arguments={"x-queue-type": "quorum"}, **settings)
        assert client.hears(ChannelClose).reply_code == 406


def test_letters_of_the_expired_tell_their_expiration() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    with_morgue(client)
    client.publishes("q", b"1", expiration="300", headers={"mine": 1}, content_type="text/plain", priority=3)
    playbook.passes(300)
    found = letter(client, "morgue")
    assert found.body == b"1"
    assert found.properties.expiration is None
    assert (found.properties.content_type, found.properties.priority) == ("text/plain", 3)
    headers = found.properties.headers
    assert headers is not None
    [death] = headers["x-death"]
    assert death.pop("time").timestamp() == pytest.approx(playbook.broker.timetable.now_ms() // 1000)
    assert death == {
        "count": 1,
        "reason": "expired",
        "queue": "q",
        "exchange": "",
        "routing-keys": ["q"],
        "original-expiration": "300",
    }
    assert headers["mine"] == 1
    for which in ("first", "last"):
        told = [headers[f"x-{which}-death-{name}"] for name in ("reason", "queue", "exchange")]
        assert told == ["expired", "q", ""]


@pytest.mark.parametrize("rule", ["expiration", "x-message-ttl"])
@pytest.mark.parametrize("lifetime_ms", [0, 1, 50])
def test_a_consumer_that_waits_gets_a_message_however_short_it_lives(rule: str, lifetime_ms: int) -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", arguments={rule: lifetime_ms} if rule == "x-message-ttl" else {})
    client.consumes("q", no_ack=True)
    properties = {rule: str(lifetime_ms)} if rule == "expiration" else {}
    with playbook.one_pass():
        client.publishes("q", b"1", b"2", **properties)
        playbook.clock.now_s += 0.1  # the pass takes its time
    assert client.bodies() == [b"1", b"2"]


def test_what_expired_before_is_not_handed_out_with_one_that_lives_for_a_moment() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q")
    client >> BasicQos(prefetch_count=1)
    client << BasicQosOk()
    client.consumes("q")
    client.publishes("q", b"held")
    client.publishes("q", b"old", expiration="100")
    assert client.deliveries() == [("c", 1, b"held")]
    with playbook.one_pass():
        playbook.clock.now_s += 0.1
        client >> BasicAck(delivery_tag=1)
        client.publishes("q", b"new", expiration="1")
    assert client.bodies() == [b"new"]


@pytest.mark.parametrize("is_selective", [False, True])
def test_what_expired_behind_the_head_is_not_handed_out_with_one_that_lives_for_a_moment(
    is_selective: bool,
) -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q")
    client.publishes("q", b"lasting")
    client.publishes("q", b"old", expiration="100")
    playbook.passes(200)
    assert playbook.depth("q") == 2  # what has expired is behind one that lives
    other = playbook.client()
    with playbook.one_pass():
        other >> BasicConsume(queue="q", consumer_tag="c", no_ack=True, no_local=is_selective)
        client.publishes("q", b"new", expiration="0")
        playbook.clock.now_s += 0.1
    assert other << BasicConsumeOk(consumer_tag="c")
    assert other.bodies() == [b"lasting", b"new"]


def test_get_does_not_count_what_has_expired_behind_the_message() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q")
    client.publishes("q", b"1", expiration="1000")
    client.publishes("q", b"2", expiration="10")
    client.publishes("q", b"3")
    client.publishes("q", b"4", expiration="10")
    playbook.passes(100)
    found = letter(client, "q")
    assert found.body == b"1"
    assert isinstance(found.method, BasicGetOk)
    assert found.method.message_count == 2  # the last is behind one that lives
    assert playbook.depth("q") == 2


def test_what_consumers_left_at_the_head_expires_when_they_have_had_theirs() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q")
    for body, lifetime in ((b"1", "60000"), (b"unwanted", "100"), (b"3", "60000")):
        client.publishes("q", body, expiration=lifetime, headers={"wanted": int(lifetime) > 100})
    playbook.clock.now_s += 0.2  # and the alarm has not rung yet
    client.consumes("q", arguments={"x-selector": "wanted"})
    assert client.bodies() == [b"1", b"3"]
    client >> QueueDelete(queue="q")
    client << QueueDeleteOk(message_count=0)


def test_a_queue_that_a_bug_has_met_by_the_clock_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    with_morgue(client, message_ttl=1000)
    client.publishes("q", b"1", b"2")

    def fails() -> int:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(playbook.broker.virtual_hosts["/"].router.dead_letters, "room", fails)
        playbook.passes(1100)
        assert playbook.depth("q") == 2
    playbook.passes(1100)
    assert (playbook.depth("q"), playbook.depth("morgue")) == (0, 2)
    assert "a bug in what is due in queue 'q'" in caplog.text
