"""What each operation takes, in one table: who has exactly that may do it, who lacks any of it gets 403.

The table is RabbitMQ's, with two differences. A passive declare takes any permission on what it names, where
RabbitMQ asks for none: whether a name exists is not for everybody to know. Services are ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from playbook import branches
from playbook.dialogue import Carried, Client, carrying
from playbook.hourglass import TimedPlaybook
from playbook.test_administration import ask, done, listening, refused

from flintmq.auth.passwords import hash_password_quickly
from flintmq.auth.user import Tag
from flintmq.config import ALL_PERMISSIONS, PermissionSettings
from flintmq.storage.disk import Disk
from flintmq.storage.options import JournalOptions
from flintmq.storage.streams.store import StreamStore
from flintmq.wire import amqp, methods
from flintmq.wire.methods import BasicPublish, ChannelClose, Method
from flintmq.wire.tables import FieldTable

Act = Callable[[Client], object]
HASH = hash_password_quickly(b"ann")
VERSIONS = {"0-8": amqp.VERSION_0_8, "0-9": amqp.VERSION_0_9, "0-9-1": amqp.VERSION_0_9_1}


@dataclass(frozen=True)
class Row:
    """One operation: what is said, and the names that it takes each permission on."""

    name: str
    act: Act
    configure: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    versions: tuple[str, ...] = field(default=("0-9-1",))

    def needs(self) -> list[tuple[str, str]]:
        kinds = ("configure", "write", "read")
        return [(kind, name) for kind in kinds for name in getattr(self, kind)]


def says(*spoken: Method | Carried) -> Act:
    def act(client: Client) -> None:
        for each in spoken:
            client >> each

    return act


def asks(service: str, **arguments: Any) -> Act:
    """A request; its answer comes to a queue of the asker's own, which takes no permission."""
    headers = {name.replace("_", "-"): value for name, value in arguments.items()}

    def act(client: Client) -> None:
        asked = BasicPublish(exchange="amq.system", routing_key=service)
        client >> carrying(asked, b"", headers=headers, reply_to=f"mine{client.session.number}")

    return act


def served(service: str, **arguments: Any) -> Row:
    """A service that reads a queue or a stream."""
    name = str(arguments.get("queue") or arguments.get("stream"))
    return Row(service, asks(service, **arguments), write=("amq.system",), read=(name,))


EVERY = ("0-8", "0-9", "0-9-1")
LATER = ("0-9", "0-9-1")
DIRECT: dict[str, Any] = {"type": "direct"}
HELD: dict[str, Any] = {"queue": "q", "consumer": "c", "epoch": 1}
PUBLISH = carrying(BasicPublish(exchange="ex", routing_key="k"), b"x")

ROWS = [
    Row(
        "exchange.declare", says(methods.ExchangeDeclare(exchange="new", **DIRECT)), ("new",), versions=EVERY
    ),
    Row("exchange.declare again", says(methods.ExchangeDeclare(exchange="ex", **DIRECT)), ("ex",)),
    Row(
        "exchange.declare with an alternate exchange",
        says(
            methods.ExchangeDeclare(exchange="new", **DIRECT, arguments={"alternate-exchange": "ex"}),
        ),
        ("new",),
        ("ex",),
        ("new",),
    ),
    Row("exchange.delete", says(methods.ExchangeDelete(exchange="ex")), ("ex",), versions=EVERY),
    Row(
        "exchange.bind",
        says(methods.ExchangeBind(destination="ex2", source="ex", routing_key="k")),
        write=("ex2",),
        read=("ex",),
    ),
    Row(
        "exchange.unbind",
        says(methods.ExchangeUnbind(destination="ex2", source="ex", routing_key="k")),
        write=("ex2",),
        read=("ex",),
    ),
    Row("queue.declare", says(methods.QueueDeclare(queue="new")), ("new",), versions=EVERY),
    Row("queue.declare again", says(methods.QueueDeclare(queue="q")), ("q",)),
    Row(
        "queue.declare with a dead letter exchange",
        says(methods.QueueDeclare(queue="new", arguments={"x-dead-letter-exchange": "ex"})),
        ("new",),
        ("ex",),
        ("new",),
    ),
    Row(
        "queue.declare with the default exchange for dead letters",
        says(methods.QueueDeclare(queue="new", arguments={"x-dead-letter-exchange": ""})),
        ("new",),
        ("amq.default",),
        ("new",),
    ),
    Row("queue.delete", says(methods.QueueDelete(queue="q")), ("q",), versions=EVERY),
    Row("queue.purge", says(methods.QueuePurge(queue="q")), read=("q",), versions=EVERY),
    Row(
        "queue.bind",
        says(methods.QueueBind(queue="q", exchange="ex", routing_key="k")),
        write=("q",),
        read=("ex",),
        versions=EVERY,
    ),
    Row(
        "queue.bind by a chain",
        says(methods.QueueBind(queue="q", exchange="ex", routing_key="k", arguments={"x-via": ["ex2"]})),
        write=("q",),
        read=("ex", "ex2"),
    ),
    Row(
        "queue.unbind",
        says(methods.QueueUnbind(queue="q", exchange="ex", routing_key="k")),
        write=("q",),
        read=("ex",),
        versions=LATER,
    ),
    Row("basic.publish", says(PUBLISH), write=("ex",), versions=EVERY),
    Row(
        "basic.publish to a queue",
        says(carrying(BasicPublish(routing_key="q"), b"x")),
        write=("amq.default",),
        versions=EVERY,
    ),
    Row("basic.publish in a transaction", says(methods.TxSelect(), PUBLISH), write=("ex",), versions=EVERY),
    Row(
        "basic.publish in a branch",
        says(methods.DtxDemarcationSelect(), branches.start(), PUBLISH),
        write=("ex",),
    ),
    Row("basic.get", says(methods.BasicGet(queue="q", no_ack=True)), read=("q",), versions=EVERY),
    Row(
        "basic.consume", says(methods.BasicConsume(queue="q", consumer_tag="t")), read=("q",), versions=EVERY
    ),
    Row(
        "basic.consume with a priority",
        says(methods.BasicConsume(queue="q", consumer_tag="t", arguments={"x-priority": 9})),
        read=("q",),
    ),
    Row(
        "basic.consume of a stream",
        says(
            methods.BasicQos(prefetch_count=1),
            methods.BasicConsume(queue="log", consumer_tag="t", arguments={"x-stream-offset": "first"}),
        ),
        read=("log",),
    ),
    served("queue.peek", queue="q"),
    served("get.filter", queue="q", selector="n = 1"),
    served("queue.lease", queue="q", consumer="new", claim=True),
    served("lease.read", **HELD),
    served("lease.ack", **HELD, through=0),
    served("lease.renew", **HELD),
    served("lease.release", **HELD),
    served("lease.list", queue="q"),
    served("stream.offsets", stream="log"),
    served("stream.offset-for-time", stream="log", time_ms=0),
    served("stream.bytes", stream="log"),
    served("stream.fetch", stream="log"),
    Row("queue.move", asks("queue.move", queue="q", to="q2"), write=("amq.system", "q2"), read=("q",)),
    Row("queue.copy", asks("queue.copy", queue="q", to="q2"), write=("amq.system", "q2"), read=("q",)),
]


@pytest.fixture
def playbook() -> TimedPlaybook:
    """A broker with a user `ann`, and with something for her to do it to."""
    playbook = TimedPlaybook()
    broker = playbook.broker
    broker.attach_streams(StreamStore(None, Disk(), JournalOptions(), playbook.clock, lambda: None))
    broker.administration.accounts.add("ann", HASH, [])
    permit(playbook, ALL_PERMISSIONS)
    boss = playbook.client()
    for name in ("ex", "ex2"):
        boss >> methods.ExchangeDeclare(exchange=name, type="direct")
        boss << methods.ExchangeDeclareOk()
    for name in ("q", "q2"):
        boss.declares(name)
    boss.declares("log", durable=True, arguments={"x-queue-type": "stream"})
    boss.publishes("q", b"1", b"2")
    return playbook


def permit(playbook: TimedPlaybook, settings: PermissionSettings) -> None:
    playbook.broker.administration.permissions.set("ann", "/", settings)


def visitor(playbook: TimedPlaybook, version: str = "0-9-1") -> Client:
    """The user, with all permissions so far: what the rows are done to is there when they are taken away."""
    ann = playbook.client(VERSIONS[version], user="ann", password="ann")
    if version == "0-9-1":
        listening(ann)
        assert ask(ann, "queue.lease", queue="q", consumer="c", claim=True, max_rows=1)["epoch"] == 1
    return ann


def outcome(client: Client) -> int:
    """The code that the operation was refused with, 0 if it was done; the channel is as it was before."""
    client >> methods.ChannelFlow(active=True)
    code = 0
    while True:
        heard = client.next(1)
        if isinstance(heard, Carried) and "error-code" in (heard.properties.headers or {}):
            assert heard.properties.headers is not None
            code = int(str(heard.properties.headers["error-code"]))
        elif isinstance(heard, ChannelClose):
            client >> methods.ChannelCloseOk()
            client >> methods.ChannelOpen()
            client.hears(methods.ChannelOpenOk)
            return int(heard.reply_code)
        elif isinstance(heard, methods.ChannelFlowOk):
            return code


EVERYTHING = dict.fromkeys(("configure", "write", "read"), ".*")
CASES = [(row, version) for row in ROWS for version in row.versions]


@pytest.mark.parametrize(("row", "version"), CASES, ids=lambda each: getattr(each, "name", each))
def test_what_an_operation_takes(playbook: TimedPlaybook, row: Row, version: str) -> None:
    ann = visitor(playbook, version)
    everything = dict.fromkeys(("configure", "write", "read"), ".*")
    before = picture(playbook)
    for kind, name in row.needs():
        permit(playbook, PermissionSettings(**{**everything, kind: f"^(?!{name}$)"}))
        row.act(ann)
        assert outcome(ann) == 403, f"without {kind} on {name}"
        assert picture(playbook) == before
        permit(playbook, ALL_PERMISSIONS)
        reply = f"mine{ann.session.number}"
        if reply in playbook.broker.virtual_hosts["/"].queues and not playbook.queue(reply).consumers:
            ann.consumes(reply, "replies", no_ack=True)
    patterns = {kind: f"^({'|'.join(getattr(row, kind)) or '$'})$" for kind in everything}
    permit(playbook, PermissionSettings(**patterns))
    row.act(ann)
    assert outcome(ann) == 0


REMOVABLE = {"ex": methods.ExchangeDelete(exchange="ex"), "ex2": methods.ExchangeDelete(exchange="ex2")} | {
    name: methods.QueueDelete(queue=name) for name in ("q", "q2", "log")
}
MISSING = [
    (row, version, kind, name) for row, version in CASES for kind, name in row.needs() if name in REMOVABLE
]


@pytest.mark.parametrize(
    ("row", "version", "kind", "name"), MISSING, ids=lambda each: getattr(each, "name", each)
)
def test_what_is_not_there_is_refused_alike(
    playbook: TimedPlaybook, row: Row, version: str, kind: str, name: str
) -> None:
    """Whoever lacks the permission does not hear whether there is something of that name."""
    ann = visitor(playbook, version)
    permit(playbook, PermissionSettings(**{**EVERYTHING, kind: f"^(?!{name}$)"}))
    boss = playbook.clients[0]
    boss >> REMOVABLE[name]
    assert isinstance(boss.next(1), methods.ExchangeDeleteOk | methods.QueueDeleteOk)
    row.act(ann)
    assert outcome(ann) == 403


def picture(playbook: TimedPlaybook) -> object:
    """What there is: whoever is refused has changed nothing of it."""
    host = playbook.broker.virtual_hosts["/"]
    queues = {
        name: (queue.message_count(), len(queue.consumers), queue.unacked)
        for name, queue in host.queues.items()
        if not name.startswith("mine")
    }
    return queues, list(host.exchanges), host.binding_count


# Passive declares: any permission on the name will do


@pytest.mark.parametrize("version", EVERY)
@pytest.mark.parametrize(
    ("method", "name"),
    [
        (methods.ExchangeDeclare(exchange="ex", type="direct", passive=True), "ex"),
        (methods.ExchangeDeclare(exchange="none", type="direct", passive=True), "none"),
        (methods.QueueDeclare(queue="q", passive=True), "q"),
        (methods.QueueDeclare(queue="none", passive=True), "none"),
    ],
    ids=["exchange", "exchange that is not there", "queue", "queue that is not there"],
)
def test_a_passive_declare(playbook: TimedPlaybook, version: str, method: Method, name: str) -> None:
    found = 404 if name == "none" else 0
    nothing = dict.fromkeys(("configure", "write", "read"), "^$")
    for kind in ("", *nothing):
        ann = visitor(playbook, version)
        permit(playbook, PermissionSettings(**(nothing if not kind else {**nothing, kind: f"^{name}$"})))
        ann >> method
        assert outcome(ann) == (found if kind else 403)
        permit(playbook, ALL_PERMISSIONS)
        for queue in list(playbook.broker.virtual_hosts["/"].queues.values()):
            queue.leases = None


@pytest.mark.parametrize("version", ["0-8", "0-9"])
def test_a_ticket_gives_no_right(playbook: TimedPlaybook, version: str) -> None:
    ann = playbook.client(VERSIONS[version], user="ann", password="ann")
    permit(playbook, PermissionSettings(read="^mine$"))
    ann >> methods.AccessRequest(realm="/data", exclusive=True, active=True, write=True, read=True)
    assert ann.hears(methods.AccessRequestOk).ticket == 1
    ann >> methods.QueuePurge(queue="q", ticket=1)
    assert outcome(ann) == 403


# What does not go by names


@pytest.mark.parametrize("version", EVERY)
@pytest.mark.parametrize(
    ("tags", "user_id", "code"),
    [
        ((), "ann", 0),
        ((), "guest", 406),
        ((Tag.ADMINISTRATOR,), "guest", 406),
        ((Tag.IMPERSONATOR,), "guest", 0),
    ],
)
def test_sending_in_the_name_of_others(
    playbook: TimedPlaybook, version: str, tags: tuple[Tag, ...], user_id: str, code: int
) -> None:
    playbook.broker.administration.accounts.set_tags("ann", tags)
    ann = playbook.client(VERSIONS[version], user="ann", password="ann")
    ann >> carrying(BasicPublish(exchange="ex", routing_key="k"), b"x", user_id=user_id)
    assert outcome(ann) == code


ON_THEIRS: list[Act] = [
    says(methods.QueueDeclare(queue="theirs", passive=True)),
    says(methods.QueueDeclare(queue="theirs", exclusive=True)),
    says(methods.QueueBind(queue="theirs", exchange="ex", routing_key="k")),
    says(methods.BasicGet(queue="theirs")),
    says(methods.BasicConsume(queue="theirs", consumer_tag="t", arguments={"x-priority": 9})),
    says(methods.QueuePurge(queue="theirs")),
    says(methods.QueueDelete(queue="theirs")),
    asks("queue.peek", queue="theirs"),
    asks("get.filter", queue="theirs", selector="n = 1"),
    asks("queue.info", queue="theirs"),
    asks("queue.move", queue="theirs", to="q2"),
    asks("queue.copy", queue="q", to="theirs"),
    asks("queue.lease", queue="theirs", consumer="c", claim=True),
]


def test_an_exclusive_queue_is_for_its_connection_alone(playbook: TimedPlaybook) -> None:
    playbook.clients[0].declares("theirs", exclusive=True)
    ann = visitor(playbook)
    for number, act in enumerate(ON_THEIRS):
        act(ann)
        assert outcome(ann) == 405, number
        if not playbook.queue(f"mine{ann.session.number}").consumers:
            ann.consumes(f"mine{ann.session.number}", "replies", no_ack=True)


def test_lists_leave_out_what_one_may_do_nothing_with(playbook: TimedPlaybook) -> None:
    ann = visitor(playbook)
    permit(playbook, PermissionSettings(write="^(amq.system|ex)$", read="^q2$"))
    for service, key, expected in (
        ("queue.list", "name", ["q2"]),
        ("exchange.list", "name", ["amq.system", "ex"]),
        ("binding.list", "source", []),
        ("consumer.list", "consumer-tag", ["replies"]),
        ("connection.list", "user", ["ann"]),
    ):
        told = ask(ann, service)
        assert isinstance(told["rows"], list)
        assert [row[key] for row in told["rows"] if isinstance(row, dict)] == expected, service
    assert refused(ann, "queue.info", queue="q")[0] == 403
    assert refused(ann, "queue.info", queue="none")[0] == 403


def prepared(playbook: TimedPlaybook) -> None:
    """A branch of the boss, in doubt."""
    boss = playbook.client()
    branches.select(boss)
    boss >> branches.start()
    boss << branches.started()
    boss.publishes("q", b"x")
    boss >> branches.end()
    boss << branches.ended()
    boss >> branches.prepare()
    boss << branches.prepared()


@pytest.mark.parametrize(
    "method",
    [
        methods.DtxCoordinationCommit(xid=branches.X1),
        methods.DtxCoordinationRollback(xid=branches.X1),
        methods.DtxCoordinationForget(xid=branches.X1),
        methods.DtxCoordinationGetTimeout(xid=branches.X1),
    ],
    ids=lambda method: method.NAME,
)
def test_a_branch_of_another_user_is_not_touched(playbook: TimedPlaybook, method: Method) -> None:
    prepared(playbook)
    ann = playbook.client(user="ann", password="ann")
    branches.select(ann)
    ann >> method
    assert outcome(ann) == 403
    assert len(playbook.broker.virtual_hosts["/"].branches.branches) == 1


def test_a_branch_of_another_user_is_not_told_of(playbook: TimedPlaybook) -> None:
    prepared(playbook)
    ann = visitor(playbook)
    assert ask(ann, "dtx.list")["rows"] == []
    xid = str(next(iter(playbook.broker.virtual_hosts["/"].branches.branches)))
    for service in ("dtx.prepare", "dtx.commit", "dtx.rollback"):
        assert refused(ann, service, xids=[xid])[0] == 403
    ann >> methods.DtxCoordinationRecover(startscan=True, endscan=False)
    heard = ann.next(1)
    assert isinstance(heard, methods.DtxCoordinationRecoverOk)
    assert heard.xids == {"xids": [], "states": []}


# Policies send messages elsewhere, too


@pytest.mark.parametrize("key", ["dead-letter-exchange", "alternate-exchange"])
def test_a_policymaker_sends_messages_only_where_permitted(playbook: TimedPlaybook, key: str) -> None:
    playbook.broker.administration.accounts.set_tags("ann", [Tag.POLICYMAKER])
    ann = visitor(playbook)
    definition: FieldTable = {key: "ex"}
    policy = {"name": "p", "pattern": "^q", "definition": definition}
    permit(playbook, PermissionSettings(write="^(?!ex$)", read=".*"))
    code, text = refused(ann, "policy.set", **policy)
    assert code == 403
    assert "may not write to exchange 'ex'" in text
    permit(playbook, PermissionSettings(write="^(amq.system|ex)$"))
    done(ann, "policy.set", **policy)
