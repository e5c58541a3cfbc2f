"""Dead letters: where they go, what they tell, and when they end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playbook.dialogue import Carried, Client, carrying
from playbook.hourglass import TimedPlaybook, letter, with_morgue

from flintmq.broker.exchanges import dead_letter
from flintmq.broker.exchanges.dead_letter import (
    FOLLOWING_COPIES,
    LETTER_OCTETS,
    PAUSED_COPIES,
    WAITING_FULL,
    WAITING_MAX,
    DeadLetters,
)
from flintmq.broker.messages.header_changes import with_delivery_count
from flintmq.broker.messages.message import Message, new_message
from flintmq.broker.queues.queue import Queue
from flintmq.broker.queues.queue_rules import check_arguments, combine
from flintmq.broker.transactions import dtx_completion, transaction
from flintmq.broker.transactions.dtx_branch import Branch
from flintmq.errors import UnreadableFault
from flintmq.wire import traits
from flintmq.wire.methods import (
    BasicGet,
    BasicNack,
    BasicPublish,
    BasicReject,
    ChannelClose,
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueDeclare,
    QueueDelete,
    QueueDeleteOk,
    TxCommit,
    TxCommitOk,
    TxSelect,
    TxSelectOk,
)
from flintmq.wire.properties import encode_properties


def rejects(client: Client, queue: str) -> None:
    client >> BasicGet(queue=queue)
    found: Any = client.next(1)
    client >> BasicReject(delivery_tag=found.method.delivery_tag, requeue=False)


def test_rejected_through_an_exchange_with_the_key_it_had() -> None:
    client = TimedPlaybook().client()
    client >> ExchangeDeclare(exchange="dlx", type="topic")
    client << ExchangeDeclareOk()
    client.declares("morgue")
    client.binds("morgue", "dlx", "orders.*")
    client.declares("q", arguments={"x-dead-letter-exchange": "dlx"})
    client.binds("q", "amq.topic", "#")
    client.publishes("orders.new", b"1", exchange="amq.topic")
    rejects(client, "q")
    found: Any = letter(client, "morgue")
    assert (found.method.exchange, found.method.routing_key) == ("dlx", "orders.new")
    [death] = found.properties.headers["x-death"]
    assert (death["exchange"], death["routing-keys"]) == ("amq.topic", ["orders.new"])


def test_large_messages_over_a_limit_die_in_portions() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    with_morgue(client, max_length_bytes=40 * 262_144)
    client.publishes("q", *[bytes(262_144)] * 40)
    client.publishes("q", bytes(30 * 262_144))
    assert 0 < playbook.depth("morgue") <= 5, "a mebibyte of bodies at a time"
    assert playbook.depth("q") + playbook.depth("morgue") == 41
    for _ in range(10):
        playbook.passes(1)
    assert (playbook.depth("q"), playbook.depth("morgue")) == (11, 30)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queues whose dead were buried."""
    queues: list[str] = []
    bury_one = DeadLetters.bury_one

    def note(letters: DeadLetters, queue: Queue, message: Message, reason: str) -> None:
        queues.append(queue.name)
        bury_one(letters, queue, message, reason)

    monkeypatch.setattr(DeadLetters, "bury_one", note)
    return queues


def test_letters_that_make_full_queues_drop_others_are_sent_in_portions(sent: list[str]) -> None:
    """Each letter comes into four full queues, which drop a message each for it, and so on."""
    playbook = TimedPlaybook()
    client = playbook.client()
    letters = playbook.broker.virtual_hosts["/"].router.dead_letters
    names = ["q0", "q1", "q2", "q3", "q4"]
    for name in names:
        client.declares(name, arguments={"x-dead-letter-exchange": "amq.fanout", "x-max-length": 5})
        client.binds(name, "amq.fanout", "")
    most = 0
    for number in range(60):
        sent.clear()
        client.publishes(names[number % 5], b"%d" % number)
        most = max(most, len(sent))
    assert 10 < most <= FOLLOWING_COPIES // LETTER_OCTETS
    assert letters.waiting_bytes == sum(len(message.content) for _, message, _, _ in letters.waiting)
    while letters.waiting:
        playbook.passes(10)
        assert len(letters.waiting) <= 2 * WAITING_MAX
    playbook.passes(10)
    assert [playbook.depth(name) for name in names] == [5] * 5
    assert not letters.waiting_bytes


def test_letters_into_a_queue_far_over_its_limit_have_it_drop_no_more_than_a_portion(sent: list[str]) -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    host = playbook.broker.virtual_hosts["/"]
    for name in ("a", "b"):
        client.declares(name)
        client.publishes(name, *[b"x"] * 3000)
    for name, other in (("a", "b"), ("b", "a")):
        arguments = {"x-max-length": 5, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": other}
        rules = combine(check_arguments(arguments, name))
        assert rules is not None
        sent.clear()
        playbook.queue(name).apply(rules, host)
        assert len(sent) <= 300 + FOLLOWING_COPIES // LETTER_OCTETS
    for _ in range(1000):
        playbook.passes(10)
    assert (playbook.depth("a"), playbook.depth("b")) == (5, 5)
    assert not host.router.dead_letters.waiting


@pytest.fixture
def one_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Letters that follow from letters are sent one by one."""
    monkeypatch.setattr(dead_letter, "FOLLOWING_COPIES", 1)


def overflows(playbook: TimedPlaybook, client: Client, count: int) -> None:
    """So much dies at once in queue `source` and goes to `q`, which drops each of them for the next."""
    with_morgue(client, max_length=1)
    client.publishes("q", b"x")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    client.declares("source", arguments=arguments)
    client.publishes("source", *[b"x"] * count)
    taken: list[Any] = [playbook.queue("source").take() for _ in range(count)]
    playbook.queue("source").bury_all([each.message for each in taken], "rejected")


@pytest.mark.usefixtures("one_at_once")
def test_letters_that_wait_leave_their_turn_to_what_else_is_due() -> None:
    playbook = TimedPlaybook()
    overflows(playbook, playbook.client(), 20)
    letters = playbook.broker.virtual_hosts["/"].router.dead_letters
    assert len(letters.waiting) > 10
    timetable = playbook.broker.timetable
    left: list[int] = []
    before = len(letters.waiting)
    playbook.clock.now_s += 0.01
    timetable.at(timetable.now_ms(), lambda: left.append(len(letters.waiting)))
    timetable.run()
    assert left[0] >= before - 1
    assert letters.waiting, "one run does not send all of them, however long the clock stands still"


def test_letters_are_few_while_memory_is_full_and_are_sent_though_their_queue_is_deleted() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    with_morgue(client, max_length=5)
    client.publishes("q", *[b"x"] * 5)
    pass_work = playbook.broker.pass_work
    pass_work.is_critical, pass_work.is_memory_full = True, lambda: True
    client.publishes("q", *[b"x"] * 500)
    assert (playbook.depth("q"), playbook.depth("morgue")) == (5, 0)
    client >> QueueDelete(queue="q")
    client.hears(QueueDeleteOk)
    for _ in range(20):
        playbook.passes(10)
    assert 0 < playbook.depth("morgue") <= 3 * PAUSED_COPIES // LETTER_OCTETS
    pass_work.is_critical, pass_work.is_memory_full = False, lambda: False
    for _ in range(20):
        playbook.passes(10)
    assert playbook.depth("morgue") == 500


def test_what_dies_in_a_deleted_queue_is_no_letter() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    with_morgue(client)
    client.publishes("q", b"1")
    client >> BasicGet(queue="q")
    found: Any = client.next(1)
    client >> QueueDelete(queue="q")
    client.hears(QueueDeleteOk)
    client >> BasicReject(delivery_tag=found.method.delivery_tag, requeue=False)
    playbook.passes(10)
    assert playbook.depth("morgue") == 0


def full_queues(client: Client, count: int, **arguments: Any) -> list[str]:
    """Queues that send their dead letters to all of them, and have one message each."""
    names = [f"q{number}" for number in range(count)]
    for name in names:
        client.declares(name, arguments={"x-dead-letter-exchange": "amq.fanout", **arguments})
        client.binds(name, "amq.fanout", "")
        client.publishes(name, b"first")
    return names


def publishes_held(playbook: TimedPlaybook, client: Client, name: str, body: bytes) -> None:
    """One message; then its publisher is not read from while too many letters wait."""
    client.publishes(name, body)
    pass_work = playbook.broker.pass_work
    letters, pass_work.crowded = pass_work.crowded, None
    if letters is not None:
        went_on: list[bool] = []
        letters.when_room(lambda: went_on.append(True))
        while not went_on:
            playbook.passes(10)


@pytest.mark.parametrize(
    ("overflow", "strategy", "queues"),
    [
        ("drop-head", "at-most-once", 20),
        ("drop-head", "at-least-once", 12),
        ("reject-publish-dlx", "at-most-once", 20),
    ],
)
def test_a_storm_of_letters_is_bounded_and_ends(
    overflow: str, strategy: str, queues: int, sent: list[str]
) -> None:
    """A message would die on n! ways, each time in another queue, before all of these were cycles."""
    playbook = TimedPlaybook()
    client = playbook.client()
    arguments = {"x-max-length": 5, "x-overflow": overflow, "x-dead-letter-strategy": strategy}
    names = full_queues(client, queues, **arguments)
    letters = playbook.broker.virtual_hosts["/"].router.dead_letters
    was_thinning = False
    for number in range(20 * queues):
        publishes_held(playbook, client, names[number % queues], b"x")
        assert playbook.depth(names[number % queues]) <= 5 + WAITING_MAX
        was_thinning = was_thinning or letters.is_thinning
    assert was_thinning
    for _ in range(10_000):
        playbook.passes(10)
        assert len(letters.waiting) <= WAITING_FULL * WAITING_MAX
        if not letters.waiting and all(playbook.depth(name) <= 5 for name in names):
            break
    assert not letters.waiting
    assert [playbook.depth(name) for name in names] == [5] * queues
    assert not letters.waiting_bytes
    assert not letters.is_thinning
    assert len(sent) < 100_000


def test_a_storm_of_letters_leaves_queues_alone_whose_letters_only_lead_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Queue `a` is bound to its own exchange: its letters meet a cycle, and branch only once."""
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("archive")
    client >> ExchangeDeclare(exchange="others", type="fanout")
    client << ExchangeDeclareOk()
    for name, exchange, key in (("a", "others", ""), ("b", "", "archive"), ("b2", "", "archive")):
        arguments = {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": key, "x-max-length": 5}
        client.declares(name, arguments=arguments)
        client.binds(name, "others", "")
    monkeypatch.setattr(DeadLetters, "is_crowded", lambda letters: True)
    client.publishes("a", *[b"x"] * 25)
    for _ in range(100):
        playbook.passes(10)
    monkeypatch.undo()
    for _ in range(100):
        playbook.passes(10)
    assert [playbook.depth(name) for name in ("a", "b", "b2", "archive")] == [5, 5, 5, 30]


def test_a_full_queue_that_refuses_makes_no_letters() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    with_morgue(client, max_length=1, overflow="reject-publish")
    client.publishes("q", b"1")
    message = playbook.queue("q").head()
    assert message is not None
    assert not playbook.queue("q").gives_on(message)
    client.declares("r", arguments={"x-max-length": 1, "x-dead-letter-exchange": ""})
    client.publishes("r", b"1")
    assert playbook.queue("r").gives_on(message)


def test_letters_of_a_fanout_into_full_queues_keep_these_within_their_limits() -> None:
    """No cycle: each message makes a hundred letters, and each of these another one. None is lost."""
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("sink")
    client.declares("source", arguments={"x-max-length": 5, "x-dead-letter-exchange": "amq.fanout"})
    leaves = [f"leaf{number}" for number in range(100)]
    routing = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "sink"}
    for name in leaves:
        client.declares(name, arguments={"x-max-length": 5, **routing})
        client.binds(name, "amq.fanout", "")
    letters = playbook.broker.virtual_hosts["/"].router.dead_letters
    most = 0
    for _ in range(205):
        publishes_held(playbook, client, "source", b"x")
        most = max(most, len(letters.waiting))
        assert max(playbook.depth(name) for name in leaves) <= 5 + WAITING_MAX // 100
    assert most <= 2 * WAITING_MAX
    while letters.waiting:
        playbook.passes(10)
    for _ in range(100):
        playbook.passes(10)
    assert [playbook.depth(name) for name in ("source", *leaves)] == [5] * 101
    assert playbook.depth("sink") == 195 * 100


def test_letters_that_cannot_leave_have_one_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    with_morgue(client, message_ttl=100)

    def fail(letters: DeadLetters, queue: Queue, message: Message, reason: str) -> None:
        raise UnreadableFault("the disk does not answer")

    monkeypatch.setattr(DeadLetters, "bury_one", fail)
    client.publishes("q", *[b"m"] * 50)
    before = playbook.broker.timetable.made
    playbook.passes(100)
    assert playbook.broker.timetable.made - before < 10
    monkeypatch.undo()
    playbook.passes(dead_letter.AGAIN_MS)
    assert playbook.depth("morgue") == 50


def test_letters_that_wait_are_bounded_whatever_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without anybody who waits, queues are over their limits instead, and drop the rest later."""
    monkeypatch.setattr(dead_letter, "WAITING_MAX", 16)
    playbook = TimedPlaybook()
    client = playbook.client()
    names = full_queues(client, 20, **{"x-max-length": 5})
    letters = playbook.broker.virtual_hosts["/"].router.dead_letters
    for number in range(400):
        client.publishes(names[number % 20], b"x")
        assert len(letters.waiting) <= (WAITING_FULL + 4) * 16
    for _ in range(2000):
        playbook.passes(10)
    assert [playbook.depth(name) for name in names] == [5] * 20


def test_rejections_wait_while_too_many_letters_do(sent: list[str]) -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    full_queues(client, 20, **{"x-max-length": 5})
    client.declares("source", arguments={"x-dead-letter-exchange": "amq.fanout"})
    client.publishes("source", *[b"x"] * 1500)
    for _ in range(1500):
        client >> BasicGet(queue="source")
        client.next(1)
    letters = playbook.broker.virtual_hosts["/"].router.dead_letters
    client >> BasicNack(delivery_tag=0, multiple=True, requeue=False)
    for _ in range(20):
        playbook.passes(10)
    assert playbook.queue("source").unacked > 500
    most = 0
    while playbook.queue("source").unacked or letters.waiting:
        playbook.passes(10)
        most = max(most, len(letters.waiting))
    assert WAITING_MAX <= most <= WAITING_FULL * WAITING_MAX
    assert sent.count("source") == 1500


def test_a_large_commit_to_full_queues_goes_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while too many letters wait, for which whoever publishes has the turn of his client end."""
    monkeypatch.setattr(transaction, "COPIES_MAX", 1000)
    monkeypatch.setattr(dtx_completion, "GROUP_COPIES_MAX", 1000)
    monkeypatch.setattr(dtx_completion, "PORTION_COPIES", 100)
    monkeypatch.setattr(dead_letter, "WAITING_MAX", 64)
    monkeypatch.setattr(dead_letter, "FOLLOWING_COPIES", 1000)  # so that they stay too many
    portions: list[int] = []
    hand_over = dtx_completion.BranchCompletion.hand_over

    def noted(self: dtx_completion.BranchCompletion, branch: Branch, *most: Any) -> None:
        before = branch.published()
        hand_over(self, branch, *most)
        portions.append(before - branch.published())

    monkeypatch.setattr(dtx_completion.BranchCompletion, "hand_over", noted)
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("morgue")
    for number in range(50):
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "morgue"}
        client.declares(f"q{number}", arguments={"x-max-length": 1, **letters})
        client.binds(f"q{number}", "amq.fanout")
    client >> TxSelect()
    client.hears(TxSelectOk)
    client.publishes("", *[b"x"] * 100, exchange="amq.fanout")
    client >> TxCommit()
    while sum(portions) < 100:
        playbook.passes(1)
    client.hears(TxCommitOk)
    assert max(portions) <= 3, "portions of 100 copies are of two messages, and those of one more"


def test_a_bug_of_one_who_waits_for_room_keeps_no_letters_and_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    full_queues(client, 20, **{"x-max-length": 5})
    letters = playbook.broker.virtual_hosts["/"].router.dead_letters
    while not letters.is_crowded():
        client.publishes("q0", b"x")
    went_on: list[str] = []

    def fails() -> None:
        went_on.append("one")
        raise RuntimeError("a bug")

    letters.when_room(fails)
    letters.when_room(lambda: went_on.append("other"))
    for _ in range(2000):
        playbook.passes(10)
    assert went_on == ["one", "other"]
    assert not letters.waiting
    assert "a bug in going on with" in caplog.text


def test_letters_go_on_after_a_failed_look_at_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    full_queues(client, 20, **{"x-max-length": 5})
    letters = playbook.broker.virtual_hosts["/"].router.dead_letters
    while not letters.is_crowded():
        client.publishes("q0", b"x")

    def fails() -> bool:
        raise MemoryError

    pass_work = playbook.broker.pass_work
    monkeypatch.setattr(pass_work, "is_memory_full", fails)
    playbook.passes(10)
    monkeypatch.setattr(pass_work, "is_memory_full", lambda: False)
    for _ in range(2000):
        playbook.passes(10)
    assert not letters.waiting


@pytest.mark.parametrize("asked", ["consumer", "basic.get", "queue.move"])
def test_who_waits_for_expired_messages_takes_no_passes_while_too_many_letters_wait(
    asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Letters leave slowly while memory is full: to look in each pass would take all of the processor."""
    monkeypatch.setattr(dead_letter, "WAITING_MAX", 16)
    playbook = TimedPlaybook()
    client = playbook.client()
    full_queues(client, 20, **{"x-max-length": 5})
    client.declares("timed", arguments={"x-dead-letter-exchange": "amq.fanout"})
    client.declares("replies", exclusive=True)
    client.publishes("timed", *[b"expires"] * 100, expiration="1000")
    client.publishes("timed", b"stays")
    letters = playbook.broker.virtual_hosts["/"].router.dead_letters
    playbook.broker.pass_work.is_memory_full = lambda: True
    while letters.room():
        client.publishes("q0", b"x")
    playbook.clock.now_s += 2
    with playbook.one_pass():
        if asked == "consumer":
            client.consumes("timed", no_ack=True)
        elif asked == "basic.get":
            client >> BasicGet(queue="timed", no_ack=True)
        else:
            ask = BasicPublish(exchange="amq.system", routing_key="queue.move")
            client >> carrying(ask, headers={"queue": "timed", "to": "replies"}, reply_to="replies")
        for _ in range(100):
            playbook.broker.finish_pass()
        assert not playbook.broker.has_work()
    playbook.broker.pass_work.is_memory_full = lambda: False
    for _ in range(2000):
        playbook.passes(10)
    assert playbook.depth("timed") == 0
    if asked != "queue.move":
        found = client.next(1)
        assert isinstance(found, Carried)
        assert found.body == b"stays"


def test_no_letter_is_lost_on_a_way_without_branches() -> None:
    """However many wait: each of them makes one other."""
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("d")
    for name, following in (("c", "d"), ("b", "c"), ("a", "b")):
        routing = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": following}
        client.declares(name, arguments={"x-max-length": 1500 if name == "a" else 5, **routing})
    client.publishes("a", *[b"x"] * 1500)
    client >> TxSelect()
    client << TxSelectOk()
    for _ in range(1500):
        client >> BasicGet(queue="a")
        client.next(1)
    client >> BasicNack(delivery_tag=0, multiple=True, requeue=False)
    client >> TxCommit()
    client << TxCommitOk()
    for _ in range(1000):
        playbook.passes(10)
    assert [playbook.depth(name) for name in ("b", "c", "d")] == [5, 5, 1490]


def test_a_large_letter_takes_the_turn_of_its_client() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    with_morgue(client)
    client.publishes("q", bytes(1_048_576))
    delivery: Any = playbook.queue("q").take()
    pass_work = playbook.broker.pass_work
    pass_work.copies = 0
    playbook.queue("q").bury_all([delivery.message], "rejected")
    assert pass_work.copies > 8192, "as much as one read of a client may bring"


def holds(client: Client, count: int) -> None:
    for _ in range(count):
        client >> BasicGet(queue="q")
        client.next(1)


def takes_one_step(playbook: TimedPlaybook) -> None:
    """What goes in portions gets one step in this pass."""
    pass_work = playbook.broker.pass_work
    pass_work.chores.pass_number, pass_work.chores.credit = pass_work.passes, 1


@pytest.mark.parametrize(("octets", "together"), [(10, 8), (30_000, 2), (65_536, 1), (1_000_000, 1)])
def test_rejected_together_by_what_their_letters_cost(octets: int, together: int) -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    with_morgue(client)
    client.publishes("q", *[bytes(octets)] * 8)
    holds(client, 8)
    with playbook.one_pass():
        takes_one_step(playbook)
        client >> BasicNack(delivery_tag=8, multiple=True, requeue=False)
        assert (playbook.depth("morgue"), playbook.queue("q").unacked) == (together, 8 - together)
    assert (playbook.depth("morgue"), playbook.queue("q").unacked) == (8, 0)


def test_many_are_rejected_together_where_they_become_no_letters() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q")
    client.publishes("q", *[b"1"] * 500)
    holds(client, 500)
    with playbook.one_pass():
        takes_one_step(playbook)
        client >> BasicNack(delivery_tag=500, multiple=True, requeue=False)
        assert playbook.queue("q").unacked == 0


@pytest.mark.parametrize("is_lost", [False, True], ids=["basic.nack", "connection lost"])
def test_what_has_come_back_too_often_dies_in_portions(is_lost: bool) -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    with_morgue(client, delivery_limit=1)
    client.publishes("q", *[b"%d" % number for number in range(300)])
    holds(client, 300)
    client >> BasicNack(delivery_tag=300, multiple=True, requeue=True)
    assert playbook.depth("q") == 300
    other = playbook.client()
    holds(other, 299)
    queue = playbook.queue("q")
    client >> BasicGet(queue="q")
    client.next(1)
    with playbook.one_pass():
        takes_one_step(playbook)
        if is_lost:
            other.session.release()
        else:
            other >> BasicNack(delivery_tag=299, multiple=True, requeue=True)
        assert playbook.depth("morgue") < 50
        assert playbook.depth("morgue") + queue.unacked == 300
        assert queue.returning
    assert (playbook.depth("morgue"), queue.unacked, queue.returning) == (299, 1, 0)
    client >> BasicNack(delivery_tag=301, requeue=True)
    found = [playbook.queue("morgue").take().message for _ in range(300)]  # type: ignore[union-attr]
    assert [int(each.content[each.header_size :]) for each in found] == [*range(299), 299]


def test_counts_have_64_bits_like_those_of_rabbitmq() -> None:
    """Clients in Java cast them to Long, which an Integer is not."""
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("morgue")
    client.declares("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "morgue"})
    earlier = [
        {"queue": "elsewhere", "reason": "expired", "count": 7},
        {"queue": "q", "reason": "rejected", "count": 2**63 - 1},  # forged
    ]
    client.publishes("q", b"1", headers={"x-death": earlier})
    rejects(client, "q")
    delivery = playbook.queue("morgue").take()
    assert delivery is not None
    assert delivery.message is not None
    content = delivery.message.content
    assert b"\x05countl" + (7).to_bytes(8, "big") in content
    assert b"\x05countl" + (2**63 - 1).to_bytes(8, "big") in content
    again, _ = with_delivery_count(content, delivery.message.header_size, 3)
    assert b"\x10x-delivery-countl" + (3).to_bytes(8, "big") in again


def test_carbon_copies_go_along_unless_there_is_a_key_for_all() -> None:
    client = TimedPlaybook().client()
    client.declares("other")
    client.declares("q", arguments={"x-dead-letter-exchange": ""})
    client.publishes("q", b"1", headers={"CC": ["other"]})
    client.gets_all("other")
    rejects(client, "q")
    found = letter(client, "other")
    assert found.properties.headers is not None
    assert found.properties.headers["CC"] == ["other"]
    assert found.properties.headers["x-death"][0]["routing-keys"] == ["q", "other"]  # type: ignore[index,call-overload]
    with_morgue(client, "p")
    client.publishes("p", b"2", headers={"CC": ["other"]})
    client.gets_all("other")
    rejects(client, "p")
    found = letter(client, "morgue")
    assert found.properties.headers is not None
    assert "CC" not in found.properties.headers
    assert found.properties.headers["x-death"][0]["routing-keys"] == ["p", "other"]  # type: ignore[index,call-overload]
    assert client.gets("other") is None


def test_without_an_exchange_of_that_name_it_is_gone() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q", arguments={"x-dead-letter-exchange": "nowhere"})
    client.publishes("q", b"1")
    rejects(client, "q")
    assert playbook.depth("q") == 0


def test_the_story_counts_by_queue_and_reason() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("work", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "slow"})
    client.declares(
        "slow",
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work", "x-message-ttl": 100},
    )
    client.publishes("work", b"1")
    for _ in range(3):
        rejects(client, "work")
        playbook.passes(100)
    found: Any = letter(client, "work")
    story = [
        (death["queue"], death["reason"], death["count"]) for death in found.properties.headers["x-death"]
    ]
    assert story == [("slow", "expired", 3), ("work", "rejected", 3)]
    assert found.properties.headers["x-first-death-queue"] == "work"
    assert found.properties.headers["x-last-death-queue"] == "slow"


def test_a_story_told_piece_by_piece_is_summed_up() -> None:
    """Old brokers wrote a table for each death, without a count; some clients copy such headers."""
    client = TimedPlaybook().client()
    client.declares("morgue")
    client.declares("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "morgue"})
    deaths: Any = [
        {"queue": "old", "reason": "expired", "note": "first"},
        {"queue": "q", "reason": "rejected"},
        {"queue": "old", "reason": "rejected", "count": 5},
        {"queue": "old", "reason": "expired", "note": "second"},
        {"queue": "q", "reason": "rejected"},
        {"queue": "old", "reason": "rejected", "count": 2},
        {"queue": "alone", "reason": "maxlen"},
        {"queue": ["no", "name"], "reason": {}},
        {"queue": ["no", "name"], "reason": {}},
    ]
    client.publishes("q", b"1", headers={"x-death": deaths})
    rejects(client, "q")
    found: Any = letter(client, "morgue")
    story = found.properties.headers["x-death"]
    assert [(death["queue"], death["reason"], death.get("count")) for death in story] == [
        ("q", "rejected", 3),
        ("old", "expired", 2),
        ("old", "rejected", 5),
        ("alone", "maxlen", 1),
        (["no", "name"], {}, None),
        (["no", "name"], {}, None),
    ]
    assert story[1]["note"] == "first"


def test_a_cycle_without_a_rejection_ends() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    for here, there in (("a", "b"), ("b", "a")):
        client.declares(
            here,
            arguments={
                "x-message-ttl": 10,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": there,
            },
        )
    client.publishes("a", b"1")
    for _ in range(20):
        playbook.passes(10)
    assert (playbook.depth("a"), playbook.depth("b")) == (0, 0)


def test_queues_that_only_pass_on_do_not_go_round_for_ever() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    names = [f"q{number}" for number in range(200)]
    for here, there in zip(names, [*names[1:], names[0]], strict=True):
        client.declares(
            here,
            arguments={
                "x-max-length": 0,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": there,
            },
        )
    client.publishes("q0", b"1")
    assert all(playbook.depth(name) == 0 for name in names)


def test_a_forged_story_does_not_hide_a_cycle() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    for here, there in (("a", "b"), ("b", "a")):
        client.declares(
            here,
            arguments={
                "x-max-length": 0,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": there,
            },
        )
    forged = [{"queue": name, "reason": "rejected", "count": 7} for name in "ab"]
    client.publishes("a", b"1", headers={"x-death": forged})
    client.publishes("a", b"2", headers={"x-death": "nonsense"})
    assert (playbook.depth("a"), playbook.depth("b")) == (0, 0)


@pytest.mark.parametrize(
    ("limits", "left"), [({"max_length": 2}, [b"2", b"3"]), ({"max_length_bytes": 2}, [b"2", b"3"])]
)
def test_over_the_limit_the_oldest_die(limits: dict[str, int], left: list[bytes]) -> None:
    client = TimedPlaybook().client()
    with_morgue(client, **limits)
    client.publishes("q", b"1", b"2", b"3")
    found: Any = letter(client, "morgue")
    assert (found.body, found.properties.headers["x-death"][0]["reason"]) == (b"1", "maxlen")
    assert client.gets_all("q") == left


def test_a_transaction_of_rejections_shows_at_commit() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    with_morgue(client)
    client.publishes("q", b"1", b"2")
    client >> TxSelect()
    client << TxSelectOk()
    for tag in (1, 2):
        client >> BasicGet(queue="q")
        client.next(1)
        client >> BasicNack(delivery_tag=tag, requeue=False)
    assert playbook.depth("morgue") == 0
    client >> TxCommit()
    client << TxCommitOk()
    assert playbook.depth("morgue") == 2


def test_purge_and_delete_make_no_dead_letters() -> None:
    from flintmq.wire.methods import QueueDelete, QueuePurge

    playbook = TimedPlaybook()
    client = playbook.client()
    with_morgue(client)
    client.publishes("q", b"1")
    client >> QueuePurge(queue="q", no_wait=True)
    client.publishes("q", b"2")
    client >> QueueDelete(queue="q", no_wait=True)
    assert playbook.depth("morgue") == 0


def test_headers_that_cannot_be_read_do_not_stop_a_letter() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    with_morgue(client)
    body = b"1"
    table = b"\x03keyZ"  # a type that there is not
    header = (
        b"\x00\x3c\x00\x00"
        + len(body).to_bytes(8, "big")
        + b"\x20\x00"
        + len(table).to_bytes(4, "big")
        + table
    )
    # No client can publish it, but a store of an earlier version may have it.
    message = new_message(b"\x00\x01q", header + body, len(header), traits.HAS_HEADERS, 0)
    playbook.queue("q").enqueue(message)
    rejects_blind(client, playbook)
    found = letter(client, "morgue")
    assert found.properties.headers is not None
    assert found.properties.headers["x-first-death-queue"] == "q"


def rejects_blind(client: Client, playbook: TimedPlaybook) -> None:
    """The client of these tests would not read such headers either."""
    queue = playbook.queue("q")
    delivery = queue.take()
    assert delivery is not None
    assert delivery.message is not None
    queue.bury(delivery.message, "rejected")


def test_a_queue_may_only_be_given_an_exchange_that_the_user_may_write_to() -> None:
    from flintmq.config import parse

    config = parse(
        '[users.guest]\npassword = "guest"\n[users.guest.permissions."/"]\n'
        'configure = ".*"\nwrite = "^q"\nread = ".*"\n'
    )
    client = TimedPlaybook(config).client()
    client >> QueueDeclare(queue="q", arguments={"x-dead-letter-exchange": "amq.direct"})
    assert client.hears(ChannelClose).reply_code == 403


def test_blind_copies_go_along_and_are_told_to_nobody() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("blind", arguments={"x-dead-letter-exchange": "amq.fanout"})
    client.declares("q", arguments={"x-dead-letter-exchange": ""})
    client.publishes("q", b"1", headers={"BCC": ["blind", "größe" * 100], "mine": 1})
    copy: Any = letter(client, "blind")
    assert (copy.method.routing_key, copy.properties.headers) == ("q", {"mine": 1})
    client >> BasicGet(queue="q")
    found: Any = client.next(1)
    assert (found.method.routing_key, found.properties.headers) == ("q", {"mine": 1})
    client >> BasicReject(delivery_tag=found.method.delivery_tag, requeue=False)
    client >> BasicGet(queue="blind")
    found = client.next(1)
    assert (found.method.routing_key, found.body) == ("q", b"1")
    [death] = found.properties.headers["x-death"]
    assert death["routing-keys"] == ["q"]
    assert "BCC" not in found.properties.headers
    client.declares("end")
    client.binds("end", "amq.fanout")
    client >> BasicReject(delivery_tag=found.method.delivery_tag, requeue=False)
    found = letter(client, "end")
    assert found.properties.headers["x-death"][0]["routing-keys"] == ["q"]


def test_a_key_for_all_replaces_blind_copies_too() -> None:
    client = TimedPlaybook().client()
    client.declares("blind")
    with_morgue(client)
    client.publishes("q", b"1", headers={"BCC": ["blind"]})
    assert client.gets_all("blind") == [b"1"]
    rejects(client, "q")
    assert client.gets_all("morgue") == [b"1"]
    assert client.gets("blind") is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": 0},
        {"x-max-length": 0},
        {"x-max-length": 0, "x-overflow": "reject-publish-dlx"},
    ],
    ids=str,
)
def test_no_letter_overtakes_its_original(arguments: dict[str, Any]) -> None:
    """A message that goes to a queue where it dies and to the one where its letter goes is first."""
    client = TimedPlaybook().client()
    client.declares(
        "q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "both", **arguments}
    )
    client.declares("both")
    for queue in ("q", "both"):
        client.binds(queue, "amq.fanout")
    client.publishes("", b"1", b"2", exchange="amq.fanout")
    found: list[Any] = [letter(client, "both") for _ in range(4)]
    letters = [bool(each.properties.headers) for each in found]
    assert [each.body for each in found] == [b"1", b"1", b"2", b"2"]
    assert letters == [False, True, False, True]


def dies_often(playbook: TimedPlaybook, client: Client, deaths: int, **headers: Any) -> Carried:
    """The letter of a message that has expired in so many queues, one after the other."""
    for number in range(deaths):
        client >> ExchangeDeclare(exchange=f"x{number}", type="fanout")
        client << ExchangeDeclareOk()
        arguments = {"x-message-ttl": 1, "x-dead-letter-exchange": f"x{number}"}
        client.declares(f"{number}" + "q" * 200, arguments=arguments)
        if number:
            client.binds(f"{number}" + "q" * 200, f"x{number - 1}")
    client.declares("end")
    client.binds("end", f"x{deaths - 1}")
    client.publishes("0" + "q" * 200, b"body", headers=headers)
    for _ in range(deaths):
        playbook.passes(2)
    return letter(client, "end")


def test_the_story_of_a_message_with_many_keys_fits_into_a_frame() -> None:
    playbook = TimedPlaybook()
    keys = [f"{number:07}" + "y" * 40 for number in range(1000)]
    found: Any = dies_often(playbook, playbook.client(), 3, CC=keys)
    assert len(encode_properties(found.properties)) < 60_000
    headers = found.properties.headers
    assert headers["CC"] == keys
    assert [(death["count"], death["queue"][0]) for death in headers["x-death"]] == [
        (1, "2"),
        (1, "1"),
        (1, "0"),
    ]
    assert headers["x-death"][0]["routing-keys"] == ["0" + "q" * 200]
    assert headers["x-first-death-queue"][0] == "0"


def test_old_deaths_are_told_in_short_where_there_is_little_room() -> None:
    playbook = TimedPlaybook()
    found: Any = dies_often(playbook, playbook.client(), 5, large="x" * 128_000)
    headers = found.properties.headers
    assert len(encode_properties(found.properties)) < 131_072 - 20
    assert [death["queue"][0] for death in headers["x-death"]] == ["4", "3", "2", "1", "0"]
    assert set(headers["x-death"][-1]) == {"count", "reason", "queue"}
    assert len(headers["large"]) == 128_000


def test_headers_that_leave_no_room_for_a_story_are_left_out() -> None:
    playbook = TimedPlaybook()
    found: Any = dies_often(playbook, playbook.client(), 2, large="x" * 130_900, small="s")
    headers = found.properties.headers
    assert (headers["small"], headers["x-headers-left-out"], "large" in headers) == ("s", 1, False)
    assert [death["queue"][0] for death in headers["x-death"]] == ["1", "0"]


def test_a_client_of_small_frames_gets_what_fits_into_one() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    client.declares("q")
    other = playbook.client(frame_max=4096)
    client.publishes("q", b"1", b"2", headers={"large": "x" * 5_000, "small": "s"}, message_id="m")
    first: Any = letter(other, "q")
    other.consumes("q", no_ack=True)
    second: Any = other.next(1)
    for found in (first, second):
        assert found.properties.headers == {"small": "s", "x-headers-left-out": 1}
        assert found.properties.message_id == "m"
    assert (first.body, second.body) == (b"1", b"2")


@pytest.mark.usefixtures("one_at_once")
def test_who_waits_for_letters_does_not_keep_the_broker_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    overflows(playbook, client, 5)
    monkeypatch.setattr(dead_letter, "WAITING_MAX", 1)
    with_morgue(client, "timed", message_ttl=1)
    client.publishes("timed", b"1", b"2")
    playbook.clock.now_s += 1
    timed = playbook.queue("timed")
    is_swept = False

    def swept() -> Iterator[None]:
        nonlocal is_swept
        until_s = playbook.clock.now_s + 1
        while timed.sweep():
            playbook.clock.now_s += 0.001
            assert playbook.clock.now_s < until_s
            yield
        is_swept = True

    chores = playbook.broker.pass_work.chores
    chores.waiting.append(swept())
    chores.finish()
    assert is_swept
