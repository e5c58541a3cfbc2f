"""Users, permissions and virtual hosts that change while the broker runs, and what their clients notice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playbook.dialogue import Carried, Client, carrying
from playbook.hourglass import TimedPlaybook

from flintmq.auth import Refused
from flintmq.auth.passwords import hash_password_quickly
from flintmq.auth.permissions import TopicPermissions
from flintmq.broker.administration.administration import CLOSED_AT_ONCE
from flintmq.broker.administration.parameters import VALUE_OCTETS_MAX
from flintmq.broker.administration.records import VIRTUAL_HOST
from flintmq.broker.channels.channel import WRITABLE_MAX
from flintmq.broker.services import browsing, queue_services
from flintmq.config import PermissionSettings, parse
from flintmq.errors import ServiceFault
from flintmq.wire import methods
from flintmq.wire.methods import BasicPublish, ChannelClose, ConnectionClose
from flintmq.wire.tables import FieldTable

ALL = {"configure": ".*", "write": ".*", "read": ".*"}
TOPIC = {"user": "guest", "exchange": "amq.topic", "write": "", "read": ""}
SETTINGS = """
virtual_hosts = ["/", "orders"]
[users.root]
password = "root"
tags = ["administrator"]
permissions."/" = {configure = ".*", write = ".*", read = ".*"}
[users.clerk]
password = "clerk"
tags = ["monitoring", "policymaker"]
permissions."/" = {configure = ".*", write = ".*", read = ".*"}
"""


@pytest.fixture
def playbook() -> Iterator[TimedPlaybook]:
    playbook = TimedPlaybook()
    yield playbook
    playbook.end()


@pytest.fixture
def settled() -> Iterator[TimedPlaybook]:
    """A broker whose settings name users and virtual hosts."""
    playbook = TimedPlaybook(parse(SETTINGS))
    yield playbook
    playbook.end()


@pytest.fixture
def boss(playbook: TimedPlaybook) -> Client:
    return listening(playbook.client())


def listening(client: Client) -> Client:
    client.declares(f"mine{client.session.number}", exclusive=True)
    client.consumes(f"mine{client.session.number}", "replies", no_ack=True)
    return client


def ask(client: Client, name: str, /, **arguments: Any) -> FieldTable:
    headers = {argument.replace("_", "-"): value for argument, value in arguments.items()}
    asked = BasicPublish(exchange="amq.system", routing_key=name)
    client >> carrying(asked, b"", headers=headers, reply_to=f"mine{client.session.number}")
    heard = client.next(1)
    assert isinstance(heard, Carried), heard
    assert heard.properties.headers is not None
    return heard.properties.headers


def done(client: Client, name: str, /, **arguments: Any) -> None:
    told = ask(client, name, **arguments)
    assert "error-code" not in told, told


def refused(client: Client, name: str, /, **arguments: Any) -> tuple[object, str]:
    told = ask(client, name, **arguments)
    return told.get("error-code"), str(told.get("error-text"))


def rows(client: Client, name: str, /, **arguments: Any) -> list[Any]:
    """All rows of a list, asked for in pages of two."""
    found: list[Any] = []
    after = ""
    while True:
        told = ask(client, name, limit=2, after=after, **arguments)
        assert isinstance(told["rows"], list)
        found += told["rows"]
        if "next" not in told:
            return found
        after = str(told["next"])


def new_user(boss: Client, name: str = "ann", virtual_host: str = "/", **settings: Any) -> None:
    done(boss, "user.add", user=name, password=name, **settings)
    done(boss, "permission.set", user=name, virtual_host=virtual_host, **ALL)


# Users


def test_a_user_is_added_and_logs_in(playbook: TimedPlaybook, boss: Client) -> None:
    done(boss, "user.add", user="ann", password="secret", tags=["monitoring"])
    stranger = playbook.stranger()
    stranger.greet()
    stranger.log_in(user="ann", password="wrong")
    assert "refuse_login" in stranger.link.notes
    done(boss, "permission.set", user="ann", virtual_host="/", **ALL)
    ann = playbook.client(user="ann", password="secret")
    ann.declares("q")
    assert [row["user"] for row in rows(boss, "user.list")] == ["ann", "guest"]
    assert rows(boss, "user.list")[0] == {"user": "ann", "tags": ["monitoring"], "fixed": False}


def test_nothing_of_a_password_is_listed_or_logged(boss: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    done(boss, "user.add", user="ann", password="se-cret")
    user = boss.session.broker.users.get("ann")
    assert user is not None
    assert user.password_hash is not None
    written = user.password_hash.text()
    assert written.startswith("$scrypt$")
    done(boss, "user.add", user="bob", password_hash=written)
    done(boss, "user.set-password", user="bob", password="se-cret")
    wrong = refused(boss, "user.add", user="eve", password_hash="se-cret")
    assert wrong[0] == 406
    listed = str(rows(boss, "user.list")) + str(wrong) + str(user) + caplog.text
    assert "se-cret" not in listed
    assert written not in listed
    assert "scrypt$ln" not in listed


def test_a_password_changes_and_the_connection_stays(playbook: TimedPlaybook, boss: Client) -> None:
    new_user(boss)
    ann = playbook.client(user="ann", password="ann")
    done(boss, "user.set-password", user="ann", password="other")
    ann.declares("q")
    stranger = playbook.stranger()
    stranger.greet()
    stranger.log_in(user="ann", password="ann")
    assert "refuse_login" in stranger.link.notes
    playbook.client(user="ann", password="other")


def test_a_tag_holds_with_the_next_request(playbook: TimedPlaybook, boss: Client) -> None:
    new_user(boss)
    ann = playbook.client(user="ann", password="ann")
    ann.declares("hers", exclusive=True)
    ann.consumes("hers", no_ack=True)

    def answer() -> object:
        asked = BasicPublish(exchange="amq.system", routing_key="user.list")
        ann >> carrying(asked, b"", reply_to="hers")
        heard = ann.next(1)
        assert isinstance(heard, Carried)
        return (heard.properties.headers or {}).get("error-code")

    assert answer() == 403
    done(boss, "user.set-tags", user="ann", tags=["administrator"])
    assert answer() is None
    done(boss, "user.set-tags", user="ann", tags=[])
    assert answer() == 403


def test_the_connections_of_a_deleted_user_are_closed(playbook: TimedPlaybook, boss: Client) -> None:
    new_user(boss)
    many = [playbook.client(user="ann", password="ann") for _ in range(2 * CLOSED_AT_ONCE + 1)]
    done(boss, "user.delete", user="ann")
    for ann in many:
        close = ann.hears(ConnectionClose)
        assert (close.reply_code, close.reply_text) == (320, "CONNECTION_FORCED - user 'ann' was deleted")
    assert len(playbook.broker.connections) == 1
    assert list(playbook.broker.clients.by_user) == ["guest"]
    stranger = playbook.stranger()
    stranger.greet()
    stranger.log_in(user="ann", password="ann")
    assert "refuse_login" in stranger.link.notes
    assert [row["user"] for row in rows(boss, "permission.list")] == ["guest"]


def test_a_user_deleted_between_login_and_open_does_not_get_in(playbook: TimedPlaybook, boss: Client) -> None:
    new_user(boss)
    ann = playbook.stranger()
    ann.greet()
    ann.log_in(user="ann", password="ann")
    ann.hears(methods.ConnectionTune)
    ann >> methods.ConnectionTuneOk(channel_max=0, frame_max=0, heartbeat=0)
    done(boss, "user.delete", user="ann")
    new_user(boss)
    ann >> methods.ConnectionOpen(virtual_host="/")
    assert ann.hears(ConnectionClose).reply_code == 530


def test_who_deletes_oneself_hears_the_answer_first(playbook: TimedPlaybook, boss: Client) -> None:
    new_user(boss, tags=["administrator"])
    ann = playbook.client(user="ann", password="ann")
    ann.declares("hers", exclusive=True)
    ann.consumes("hers", no_ack=True)
    asked = BasicPublish(exchange="amq.system", routing_key="user.delete")
    ann >> carrying(asked, b"", reply_to="hers", headers={"user": "ann"})
    heard = ann.next(1)
    assert isinstance(heard, Carried)
    assert heard.properties.headers == {}
    playbook.passes(10)
    assert ann.hears(ConnectionClose).reply_code == 320


LAST_WAYS = [
    ("user.delete", {"user": "guest"}),
    ("user.set-tags", {"user": "guest", "tags": ["policymaker"]}),
    ("permission.clear", {"user": "guest"}),
    ("permission.set", {"user": "guest", "configure": ".*", "write": "^orders", "read": ".*"}),
    ("limit.set", {"name": "max-connections", "value": 0}),
    ("limit.set", {"user": "guest", "name": "max-channels", "value": 0}),
]


@pytest.mark.parametrize(("service", "arguments"), LAST_WAYS)
def test_nobody_is_locked_out_by_a_slip(
    playbook: TimedPlaybook, boss: Client, service: str, arguments: dict[str, Any]
) -> None:
    new_user(boss, "clerk", tags=["monitoring"])
    done(boss, "user.add", user="lost", password="x", tags=["administrator"])  # enters nothing
    code, text = refused(boss, service, **arguments)
    assert code == 406
    assert "would leave no administrator who can get in: give force to do it anyway" in text
    done(boss, service, **arguments, force=True)


@pytest.mark.parametrize(("service", "arguments"), LAST_WAYS)
def test_what_leaves_a_way_in_takes_no_force(
    playbook: TimedPlaybook, boss: Client, service: str, arguments: dict[str, Any]
) -> None:
    done(boss, "vhost.add", virtual_host="v")
    new_user(boss, "root", "v", tags=["administrator"])
    done(boss, service, **arguments)


def test_what_is_said_of_a_virtual_host_goes_with_it(playbook: TimedPlaybook, boss: Client) -> None:
    said = {"description": "all orders", "tags": ["shop", "eu"], "default_queue_type": "quorum"}
    done(boss, "vhost.add", virtual_host="v", **said)
    row = next(row for row in rows(boss, "vhost.list") if row["virtual-host"] == "v")
    assert (row["description"], row["tags"]) == ("all orders", ["shop", "eu"])
    assert row["default-queue-type"] == "quorum"
    done(boss, "vhost.delete", virtual_host="v")
    playbook.passes(10)
    done(boss, "vhost.add", virtual_host="v")
    row = next(row for row in rows(boss, "vhost.list") if row["virtual-host"] == "v")
    assert (row["description"], row["tags"], row["default-queue-type"]) == ("", [], "undefined")


def test_what_is_said_of_a_virtual_host_changes_where_it_is_given(boss: Client) -> None:
    def row() -> tuple[Any, ...]:
        found = next(row for row in rows(boss, "vhost.list") if row["virtual-host"] == "v")
        return found["description"], found["tags"], found["default-queue-type"]

    said = {"description": "all orders", "tags": ["shop", "eu"], "default_queue_type": "quorum"}
    done(boss, "vhost.add", virtual_host="v", **said)
    done(boss, "vhost.describe", virtual_host="v")
    assert row() == ("all orders", ["shop", "eu"], "quorum")
    done(boss, "vhost.describe", virtual_host="v", tags=["us"])
    assert row() == ("all orders", ["us"], "quorum")
    done(boss, "vhost.describe", virtual_host="v", description="", tags=[], default_queue_type="undefined")
    assert row() == ("", [], "undefined")
    assert refused(boss, "vhost.describe", virtual_host="none", description="x")[0] == 404
    # With what is kept beside it, it is too long: nothing is done.
    long = "x" * (VALUE_OCTETS_MAX - 30)
    assert refused(boss, "vhost.add", virtual_host="w", description=long)[0] == 406
    assert [row["virtual-host"] for row in rows(boss, "vhost.list")] == ["/", "v"]


def test_the_only_virtual_host_of_the_administrators_is_kept(playbook: TimedPlaybook, boss: Client) -> None:
    done(boss, "vhost.add", virtual_host="v")
    new_user(boss, "root", "v", tags=["administrator"])
    root = listening(playbook.client(user="root", password="root", virtual_host="v"))
    done(root, "user.delete", user="guest")
    boss.hears(ConnectionClose)
    assert refused(root, "vhost.delete", virtual_host="v")[0] == 406
    done(root, "vhost.delete", virtual_host="v", force=True)
    playbook.passes(10)
    root.hears(ConnectionClose)


def test_guest_without_settings_can_be_taken_away(playbook: TimedPlaybook, boss: Client) -> None:
    new_user(boss, tags=["administrator"])
    done(boss, "user.delete", user="guest")
    playbook.passes(10)
    assert boss.hears(ConnectionClose).reply_code == 320
    stranger = playbook.stranger()
    stranger.greet()
    stranger.log_in()
    assert "refuse_login" in stranger.link.notes


@pytest.mark.parametrize(
    ("service", "arguments", "code", "text"),
    [
        ("user.add", {"user": "guest", "password": "x"}, 406, "user 'guest' is there already"),
        ("user.add", {"user": "", "password": "x"}, 406, "1 to 255 octets"),
        ("user.add", {"user": "x" * 256, "password": "x"}, 406, "1 to 255 octets"),
        ("user.add", {"user": "a\nb", "password": "x"}, 406, "printable"),
        ("user.add", {"user": "ann"}, 406, "give either password or password-hash"),
        ("user.add", {"user": "ann", "password": ""}, 406, "expected text of 1 to 1024 octets"),
        ("user.add", {"user": "ann", "password": "x" * 1025}, 406, "expected text of 1 to 1024 octets"),
        ("user.add", {"user": "ann", "password": 5}, 406, "expected text of 1 to 1024 octets"),
        ("user.add", {"user": "ann", "password_hash": "x"}, 406, "not a hash"),
        ("user.add", {"user": "ann", "password": "x", "tags": ["king"]}, 406, "there is no tag 'king'"),
        ("user.add", {"user": "ann", "password": "x", "tags": "administrator"}, 406, "expected an array of"),
        ("user.set-password", {"user": "bob", "password": "x"}, 404, "no user 'bob'"),
        ("user.set-tags", {"user": "bob", "tags": []}, 404, "no user 'bob'"),
        ("user.set-tags", {"user": "guest"}, 406, "expected an array of"),
        ("user.delete", {"user": "bob"}, 404, "no user 'bob'"),
        ("vhost.add", {"virtual_host": "/"}, 406, "virtual host '/' is there already"),
        ("vhost.add", {"virtual_host": ""}, 406, "1 to 255 octets"),
        ("vhost.add", {"virtual_host": "x" * 256}, 406, "1 to 255 octets"),
        ("vhost.add", {"virtual_host": "a\x1bb"}, 406, "printable"),
        ("vhost.add", {}, 406, "argument 'virtual-host'"),
        ("vhost.add", {"virtual_host": "v", "tags": "a,b"}, 406, "expected an array of texts"),
        ("vhost.add", {"virtual_host": "v", "tags": [1]}, 406, "expected an array of texts"),
        ("vhost.add", {"virtual_host": "v", "default_queue_type": "fast"}, 406, "expected one of undefined"),
        ("vhost.add", {"virtual_host": "v", "description": "x" * 65_536}, 406, "at most 65536 octets"),
        ("vhost.delete", {"virtual_host": "v"}, 404, "no virtual host 'v'"),
        ("vhost.delete", {"virtual_host": "/"}, 406, "virtual host '/' is set by the broker's settings"),
        (
            "topic-permission.set",
            {"user": "guest", "exchange": "x", "write": "(", "read": ""},
            406,
            "expected a regular expression",
        ),
        ("topic-permission.set", {"user": "guest", "exchange": "", "write": "", "read": ""}, 406, "exchange"),
        ("topic-permission.set", {"user": "bob", "exchange": "x", "write": "", "read": ""}, 404, "no user"),
        ("topic-permission.clear", {"user": "guest", "exchange": "x"}, 404, "for exchange 'x'"),
        ("limit.set", {"name": "max-nonsense", "value": 1}, 406, "expected one of max-connections"),
        ("limit.set", {"user": "guest", "name": "max-age", "value": 1}, 406, "expected one of"),
        ("limit.set", {"user": "bob", "name": "max-channels", "value": 1}, 404, "no user 'bob'"),
        ("limit.set", {"virtual_host": "v", "name": "max-queues", "value": 1}, 404, "no virtual host 'v'"),
        ("limit.set", {"name": "max-queues", "value": -2}, 406, "argument 'value'"),
        ("limit.set", {"name": "max-queues", "value": 2**31}, 406, "from 0 to 2147483647"),
        ("limit.clear", {"name": "max-queues"}, 404, "'max-queues'"),
        ("policy.set", {"name": "p", "pattern": "("}, 406, "argument 'definition': expected a table"),
        ("policy.set", {"name": "p", "pattern": "(", "definition": {"max-length": 1}}, 406, "pattern"),
        ("policy.set", {"name": "p", "pattern": "", "definition": {"zz": 1}}, 406, "no such key; known are"),
        (
            "policy.set",
            {"name": "p", "pattern": "", "definition": {"max-lenght": 1}},
            406,
            "no such key; did you mean 'max-length'?",
        ),
        ("policy.set", {"name": "p", "pattern": "", "definition": {}}, 406, "at least one key"),
        ("policy.set", {"name": "p", "pattern": "", "definition": {}, "virtual_host": "v"}, 404, "'v'"),
        ("policy.clear", {"name": "p"}, 404, "no policy 'p'"),
        ("operator-policy.set", {"name": "p", "pattern": "", "definition": {"expires": "x"}}, 406, "expires"),
        ("parameter.set", {"component": "c", "name": "n"}, 406, "argument 'value': is missing"),
        ("parameter.set", {"component": "", "name": "n", "value": 1}, 406, "component: expected"),
        ("parameter.set", {"component": "c", "name": "n", "value": "x" * 65_536}, 406, "65536 octets"),
        ("parameter.clear", {"component": "c", "name": "n"}, 404, "no parameter 'c/n'"),
        ("permission.set", {"user": "bob", **ALL}, 404, "no user 'bob'"),
        ("permission.set", {"user": "guest", "virtual_host": "v", **ALL}, 404, "no virtual host 'v'"),
        ("permission.set", {"user": "guest", **ALL, "read": "("}, 406, "read: expected a regular expression"),
        ("permission.set", {"user": "guest", **ALL, "write": "("}, 406, "write: expected a regular"),
        ("topic-permission.set", {**TOPIC, "write": "("}, 406, "write: expected a regular expression"),
        ("topic-permission.set", {**TOPIC, "read": "("}, 406, "read: expected a regular expression"),
        ("permission.set", {"user": "guest", "write": "", "read": ""}, 406, "argument 'configure'"),
        ("permission.clear", {"user": "guest", "virtual_host": "v"}, 404, "no virtual host 'v'"),
        ("permission.clear", {"user": "bob"}, 404, "no user 'bob'"),
    ],
)
def test_what_is_wrong_is_told(
    boss: Client, service: str, arguments: dict[str, Any], code: int, text: str
) -> None:
    told = refused(boss, service, **arguments)
    assert told[0] == code
    assert text in told[1]


ADMINISTRATORS = [
    ("user.add", {"user": "ann", "password": "x"}),
    ("user.set-password", {"user": "clerk", "password": "x"}),
    ("user.set-tags", {"user": "clerk", "tags": ["administrator"]}),
    ("user.delete", {"user": "clerk"}),
    ("user.list", {}),
    ("vhost.add", {"virtual_host": "v"}),
    ("vhost.describe", {"virtual_host": "orders", "description": "x"}),
    ("vhost.delete", {"virtual_host": "orders"}),
    ("permission.set", {"user": "clerk", "virtual_host": "orders", **ALL}),
    ("permission.clear", {"user": "clerk", "virtual_host": "/"}),
    ("permission.list", {}),
    ("topic-permission.set", {"user": "clerk", "exchange": "amq.topic", "write": "", "read": ""}),
    ("topic-permission.clear", {"user": "clerk", "exchange": "amq.topic"}),
    ("topic-permission.list", {}),
    ("limit.set", {"name": "max-queues", "value": 1}),
    ("limit.clear", {"name": "max-queues"}),
    ("limit.list", {}),
    ("operator-policy.set", {"name": "p", "pattern": "", "definition": {"max-length": 1}}),
    ("operator-policy.clear", {"name": "p"}),
    ("operator-policy.list", {}),
    ("parameter.set", {"virtual_host": "", "component": "c", "name": "n", "value": 1}),
    ("parameter.clear", {"virtual_host": "", "component": "c", "name": "n"}),
    ("parameter.list", {"virtual_host": ""}),
]


@pytest.mark.parametrize(("service", "arguments"), ADMINISTRATORS)
def test_only_administrators_may(settled: TimedPlaybook, service: str, arguments: dict[str, Any]) -> None:
    clerk = listening(settled.client(user="clerk", password="clerk"))
    code, text = refused(clerk, service, **arguments)
    assert code == 403
    assert "has not the tag administrator" in text


@pytest.mark.parametrize(
    ("service", "arguments"),
    [
        ("user.set-password", {"user": "clerk", "password": "x"}),
        ("user.set-tags", {"user": "clerk", "tags": []}),
        ("user.delete", {"user": "clerk"}),
        ("vhost.delete", {"virtual_host": "orders"}),
        ("permission.set", {"user": "clerk", "virtual_host": "/", **ALL}),
        ("permission.clear", {"user": "clerk", "virtual_host": "/"}),
    ],
)
def test_what_the_settings_say_is_fixed(
    settled: TimedPlaybook, service: str, arguments: dict[str, Any]
) -> None:
    root = listening(settled.client(user="root", password="root"))
    code, text = refused(root, service, **arguments)
    assert code == 406
    assert "is set by the broker's settings: change it there" in text
    settled.client(user="clerk", password="clerk").declares("q")


def test_a_user_of_the_settings_may_be_given_more(settled: TimedPlaybook) -> None:
    root = listening(settled.client(user="root", password="root"))
    done(root, "permission.set", user="clerk", virtual_host="orders", **ALL)
    settled.client(user="clerk", password="clerk", virtual_host="orders").declares("q")
    fixed = {(row["user"], row["virtual-host"]): row["fixed"] for row in rows(root, "permission.list")}
    assert fixed == {("clerk", "/"): True, ("clerk", "orders"): False, ("root", "/"): True}
    done(root, "permission.clear", user="clerk", virtual_host="orders")
    assert len(rows(root, "permission.list")) == 2


def test_nothing_is_administered_inside_a_transaction(playbook: TimedPlaybook, boss: Client) -> None:
    """Without a store there is no group; tests/recovery has the other case."""
    boss[2] >> methods.ChannelOpen()
    boss[2] << methods.ChannelOpenOk()
    boss[2] >> methods.TxSelect()
    boss[2] << methods.TxSelectOk()
    asked = BasicPublish(exchange="amq.system", routing_key="user.add")
    boss[2] >> carrying(asked, b"", headers={"user": "ann", "password": "x"})
    assert playbook.broker.users.get("ann") is None
    boss[2] >> methods.TxRollback()
    boss[2] << methods.TxRollbackOk()
    assert playbook.broker.users.get("ann") is None


# Permissions


def test_a_permission_taken_away_refuses_the_next_publish(playbook: TimedPlaybook, boss: Client) -> None:
    new_user(boss)
    ann = playbook.client(user="ann", password="ann")
    ann.declares("q")
    ann.publishes("q", b"one")
    done(boss, "permission.set", user="ann", virtual_host="/", configure=".*", write="^amq", read=".*")
    ann.publishes("q", b"two")
    done(boss, "permission.set", user="ann", virtual_host="/", configure=".*", write="", read=".*")
    ann.publishes("q", b"three")
    close = ann.hears(ChannelClose)
    assert close.reply_code == 403
    assert "may not write to exchange 'amq.default'" in close.reply_text
    assert boss.gets_all("q") == [b"one", b"two"]


@pytest.mark.parametrize(
    "method",
    [
        methods.QueueDeclare(queue="other"),
        methods.QueueDeclare(queue="q", passive=True),
        methods.QueueBind(queue="q", exchange="amq.topic"),
        methods.QueuePurge(queue="q"),
        methods.QueueDelete(queue="q"),
        methods.BasicConsume(queue="q"),
        methods.BasicGet(queue="q"),
        methods.ExchangeDeclare(exchange="x", type="fanout"),
        methods.ExchangeDelete(exchange="x"),
    ],
    ids=lambda method: f"{method.NAME}{' passive' if getattr(method, 'passive', False) else ''}",
)
def test_a_permission_that_is_cleared_refuses_the_next_operation(
    playbook: TimedPlaybook, boss: Client, method: methods.Method
) -> None:
    new_user(boss)
    ann = playbook.client(user="ann", password="ann")
    ann.declares("q")
    done(boss, "permission.clear", user="ann", virtual_host="/")
    ann >> method
    assert ann.hears(ChannelClose).reply_code == 403
    other = playbook.stranger()
    other.greet()
    other.log_in(user="ann", password="ann")
    other.hears(methods.ConnectionTune)
    other >> methods.ConnectionTuneOk(channel_max=0, frame_max=0, heartbeat=0)
    other >> methods.ConnectionOpen(virtual_host="/")
    assert other.hears(ConnectionClose).reply_code == 530


def test_a_permission_that_is_given_holds_for_open_connections(playbook: TimedPlaybook, boss: Client) -> None:
    done(boss, "user.add", user="ann", password="ann")
    done(boss, "permission.set", user="ann", virtual_host="/", configure="", write="", read="")
    ann = playbook.client(user="ann", password="ann")
    ann.publishes("q", b"one")
    assert ann.hears(ChannelClose).reply_code == 403
    ann >> methods.ChannelCloseOk()
    done(boss, "permission.set", user="ann", virtual_host="/", **ALL)
    ann >> methods.ChannelOpen()
    ann << methods.ChannelOpenOk()
    ann.declares("q")
    ann.publishes("q", b"two")
    assert boss.gets_all("q") == [b"two"]


# Virtual hosts


def new_host(boss: Client, name: str = "v") -> None:
    done(boss, "vhost.add", virtual_host=name)
    done(boss, "permission.set", user="guest", virtual_host=name, **ALL)


def states(boss: Client) -> dict[str, str]:
    return {row["virtual-host"]: row["state"] for row in rows(boss, "vhost.list")}


def test_a_virtual_host_is_added_and_used(playbook: TimedPlaybook, boss: Client) -> None:
    done(boss, "vhost.add", virtual_host="v")
    stranger = playbook.stranger()
    stranger.greet()
    stranger.log_in()
    stranger.hears(methods.ConnectionTune)
    stranger >> methods.ConnectionTuneOk(channel_max=0, frame_max=0, heartbeat=0)
    stranger >> methods.ConnectionOpen(virtual_host="v")
    assert stranger.hears(ConnectionClose).reply_code == 530
    done(boss, "permission.set", user="guest", virtual_host="v", **ALL)
    client = playbook.client(virtual_host="v")
    client.declares("q")
    client.binds("q", "amq.topic", "a.#")
    client.publishes("a.b", b"x", exchange="amq.topic")
    assert client.gets_all("q") == [b"x"]
    running = {"state": "running", "tracing": False, "queues": 1, "connections": 1}
    running |= {"description": "", "tags": [], "default-queue-type": "undefined"}
    assert rows(boss, "vhost.list") == [
        {"virtual-host": "/", "fixed": True, **running},
        {"virtual-host": "v", "fixed": False, **running},
    ]


def test_who_only_monitors_sees_virtual_hosts(settled: TimedPlaybook) -> None:
    clerk = listening(settled.client(user="clerk", password="clerk"))
    assert states(clerk) == {"/": "running", "orders": "running"}


def test_a_virtual_host_goes_with_all_that_is_in_it(playbook: TimedPlaybook, boss: Client) -> None:
    new_host(boss)
    clients = [playbook.client(virtual_host="v") for _ in range(2 * CLOSED_AT_ONCE + 1)]
    first = clients[0]
    for number in range(30):
        first.declares(f"q{number}", durable=True)
        first.binds(f"q{number}", "amq.fanout")
    first.publishes("", b"one", b"two", exchange="amq.fanout")
    first >> methods.BasicGet(queue="q0")
    first.next(1)
    playbook.broker.policies.put("v", "p", ".*", {"max-length": 5})
    done(boss, "vhost.delete", virtual_host="v")
    for client in clients:
        close = client.hears(ConnectionClose)
        assert (close.reply_code, close.reply_text) == (
            320,
            "CONNECTION_FORCED - virtual host 'v' was deleted",
        )
    playbook.passes(1000)
    assert states(boss) == {"/": "running"}
    assert playbook.broker.policies.of("v") == []
    assert [row["virtual-host"] for row in rows(boss, "permission.list")] == ["/"]
    new_host(boss)
    client = playbook.client(virtual_host="v")
    client >> methods.QueueDeclare(queue="q0", passive=True)
    assert client.hears(ChannelClose).reply_code == 404


def test_a_name_is_taken_while_the_virtual_host_is_taken_down(playbook: TimedPlaybook, boss: Client) -> None:
    new_host(boss)
    playbook.client(virtual_host="v").declares("q")
    chores = playbook.broker.pass_work.chores
    with playbook.one_pass():
        chores.credit, chores.pass_number = 0, playbook.broker.pass_work.passes
        playbook.broker.administration.virtual_hosts.delete("v")
        with pytest.raises(ServiceFault, match="is being deleted: add it when it is gone"):
            playbook.broker.administration.virtual_hosts.add("v")
        with pytest.raises(ServiceFault, match="no virtual host 'v'"):
            playbook.broker.administration.virtual_hosts.delete("v")
        assert list(playbook.broker.administration.virtual_hosts.ending) == ["v"]
    playbook.clients[-1].hears(ConnectionClose)
    playbook.passes(1000)
    new_host(boss)


def test_who_deletes_the_own_virtual_host_hears_the_answer_first(
    playbook: TimedPlaybook, boss: Client
) -> None:
    new_host(boss)
    own = listening(playbook.client(virtual_host="v"))
    done(own, "vhost.delete", virtual_host="v")
    playbook.passes(10)
    assert own.hears(ConnectionClose).reply_code == 320
    playbook.passes(1000)
    assert states(boss) == {"/": "running"}


@pytest.mark.parametrize("is_last", [False, True])
def test_a_bug_does_not_end_the_end_of_a_virtual_host(
    playbook: TimedPlaybook,
    boss: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_last: bool,
) -> None:
    """Nor does one at its last step, which kept its name from being used until a restart."""
    new_host(boss)

    delete = playbook.broker.administration.records.delete

    def fails(host: object) -> Iterator[None]:
        raise RuntimeError("out of nowhere")

    def fails_at_the_end(kind: bytes, identity: FieldTable) -> None:
        delete(kind, identity)
        if kind == VIRTUAL_HOST:
            raise RuntimeError("out of nowhere")

    if is_last:
        monkeypatch.setattr(playbook.broker.administration.records, "delete", fails_at_the_end)
    else:
        monkeypatch.setattr(playbook.broker.policies, "forget_host", fails)
    done(boss, "vhost.delete", virtual_host="v")
    playbook.passes(100)
    assert states(boss) == {"/": "running", "v": "deleting"}
    monkeypatch.undo()
    playbook.passes(2000)
    assert states(boss) == {"/": "running"}
    assert "a bug holds up the end of virtual host 'v'" in caplog.text
    caplog.clear()


# Policies and parameters


def test_a_policy_holds_at_once_for_what_is_there(playbook: TimedPlaybook, boss: Client) -> None:
    for number in range(100):
        boss >> methods.QueueDeclare(queue=f"q{number}", no_wait=True)
    boss.publishes("q99", *[b"%d" % number for number in range(5)])
    definition = {"max-length": 3}
    done(boss, "policy.set", name="short", pattern="^q", definition=definition, priority=2)
    done(boss, "operator-policy.set", name="cap", pattern="^q99", definition={"max-length": 2})
    assert boss.gets_all("q99") == [b"3", b"4"]
    [row] = rows(boss, "policy.list")
    assert row == {
        "name": "short",
        "virtual-host": "/",
        "pattern": "^q",
        "definition": definition,
        "priority": 2,
        "apply-to": "all",
        "fixed": False,
    }
    assert [row["name"] for row in rows(boss, "operator-policy.list")] == ["cap"]
    done(boss, "policy.clear", name="short")
    done(boss, "operator-policy.clear", name="cap")
    boss.publishes("q99", *[b"%d" % number for number in range(5)])
    assert len(boss.gets_all("q99")) == 5
    assert rows(boss, "policy.list") == []


def test_a_policymaker_sets_policies_where_permitted(settled: TimedPlaybook) -> None:
    clerk = listening(settled.client(user="clerk", password="clerk"))
    policy: dict[str, Any] = {"name": "p", "pattern": "", "definition": {"max-length": 1}}
    done(clerk, "policy.set", **policy)
    done(clerk, "parameter.set", component="c", name="n", value={"a": [1, "two"]})
    code, text = refused(clerk, "policy.set", virtual_host="orders", **policy)
    assert (code, "may not use virtual host 'orders'" in text) == (403, True)
    assert refused(clerk, "policy.list", virtual_host="none")[0] == 403
    root = listening(settled.client(user="root", password="root"))
    done(root, "policy.set", virtual_host="orders", **policy)
    assert rows(root, "parameter.list")[0]["value"] == {"a": [1, "two"]}
    done(clerk, "policy.clear", name="p")


@pytest.mark.parametrize(
    ("service", "arguments"),
    [
        ("policy.set", {"name": "p", "pattern": "", "definition": {"max-length": 1}}),
        ("policy.clear", {"name": "p"}),
        ("policy.list", {}),
        ("parameter.list", {}),
    ],
)
def test_who_is_no_policymaker_sets_no_policies(
    boss: Client, service: str, arguments: dict[str, Any]
) -> None:
    done(boss, "user.set-tags", user="guest", tags=["monitoring"], force=True)
    code, text = refused(boss, service, **arguments)
    assert (code, "has not the tag policymaker" in text) == (403, True)


def test_a_policy_of_the_settings_is_fixed() -> None:
    settings = '[[policies]]\nname = "p"\npattern = "^q"\n[policies.definition]\nmax-length = 2\n'
    playbook = TimedPlaybook(parse(settings))
    boss = listening(playbook.client())
    policy: dict[str, Any] = {"name": "p", "pattern": "", "definition": {"max-length": 1}}
    for name, given in (("policy.set", policy), ("policy.clear", {"name": "p"})):
        code, text = refused(boss, name, **given)
        assert (code, "is set by the broker's settings: change it there" in text) == (406, True)
    assert rows(boss, "policy.list")[0]["fixed"] is True


def test_parameters_come_and_go(boss: Client) -> None:
    done(boss, "parameter.set", component="shovel", name="b", value=5)
    done(boss, "parameter.set", component="shovel", name="a", value="x")
    done(boss, "parameter.set", component="other", name="a", value=True)
    done(boss, "parameter.set", component="shovel", name="a", value="y")
    done(boss, "parameter.set", component="all", name="a", value=1, virtual_host="")
    assert [
        (row["component"], row["name"], row["value"])
        for row in rows(boss, "parameter.list", virtual_host="/")
    ] == [
        ("other", "a", True),
        ("shovel", "a", "y"),
        ("shovel", "b", 5),
    ]
    assert len(rows(boss, "parameter.list", component="shovel")) == 2
    assert [row["component"] for row in rows(boss, "parameter.list", virtual_host="")] == ["all"]
    done(boss, "parameter.clear", component="shovel", name="a")
    assert len(rows(boss, "parameter.list", component="shovel")) == 1


# Topic permissions


def topics(boss: Client, write: str = "", read: str = "", user: str = "ann") -> None:
    done(boss, "topic-permission.set", user=user, exchange="amq.topic", write=write, read=read)


def is_refused(client: Client, said: Any, number: int = 1) -> bool:
    """Whether the channel is closed with 403; another one is open afterwards."""
    client >> said
    found = [each for _, each in client.heard()]
    client.inbox.clear()
    closes = [each for each in found if isinstance(each, ChannelClose)]
    if closes:
        assert [each.reply_code for each in closes] == [403]
        client >> methods.ChannelCloseOk()
        client >> methods.ChannelOpen()
        client << methods.ChannelOpenOk()
    return bool(closes)


def to_topic(key: str, **properties: Any) -> Carried:
    return carrying(BasicPublish(exchange="amq.topic", routing_key=key), b"x", **properties)


def test_routing_keys_of_publishes(playbook: TimedPlaybook, boss: Client) -> None:
    new_user(boss)
    ann = playbook.client(user="ann", password="ann")
    boss.declares("all")
    boss.binds("all", "amq.topic", "#")
    assert not is_refused(ann, to_topic("b.x"))
    topics(boss, write="^{username}\\.")
    for _ in range(2):
        assert not is_refused(ann, to_topic("ann.x"))
        assert not is_refused(ann, to_topic("ann.y"))
        assert is_refused(ann, to_topic("b.x"))
    for number in range(WRITABLE_MAX + 2):
        assert not is_refused(ann, to_topic(f"ann.{number}"))
    assert not is_refused(ann, carrying(BasicPublish(exchange="amq.direct", routing_key="b.x"), b"x"))
    topics(boss, write="^b")
    assert is_refused(ann, to_topic("ann.x"))
    assert not is_refused(ann, to_topic("b.x"))
    done(boss, "topic-permission.clear", user="ann", exchange="amq.topic")
    assert not is_refused(ann, to_topic("ann.x"))
    assert len(boss.gets_all("all")) == 1 + 4 + WRITABLE_MAX + 2 + 2


def test_further_routing_keys_are_checked_too(playbook: TimedPlaybook, boss: Client) -> None:
    new_user(boss)
    topics(boss, write="^mine")
    ann = playbook.client(user="ann", password="ann")
    boss.declares("all")
    boss.binds("all", "amq.topic", "#")
    assert not is_refused(ann, to_topic("mine", headers={"CC": ["mine.too"]}))
    for name in ("CC", "BCC"):
        assert is_refused(ann, to_topic("mine", headers={name: ["mine.too", "theirs"]}))
    ann >> methods.TxSelect()
    ann << methods.TxSelectOk()
    assert is_refused(ann, to_topic("mine", headers={"CC": ["theirs"]}))
    assert boss.gets_all("all") == [b"x"]


@pytest.mark.parametrize("kind", ["queue", "exchange"])
@pytest.mark.parametrize("verb", ["bind", "unbind"])
def test_routing_keys_of_bindings(playbook: TimedPlaybook, boss: Client, kind: str, verb: str) -> None:
    new_user(boss)
    topics(boss, read="^{vhost}{username}$")
    ann = playbook.client(user="ann", password="ann")
    ann.declares("q")

    def binding(key: str) -> methods.Method:
        if kind == "queue":
            make = methods.QueueBind if verb == "bind" else methods.QueueUnbind
            return make(queue="q", exchange="amq.topic", routing_key=key)
        join = methods.ExchangeBind if verb == "bind" else methods.ExchangeUnbind
        return join(destination="amq.fanout", source="amq.topic", routing_key=key)

    assert not is_refused(ann, binding("/ann"))
    assert is_refused(ann, binding("#"))


def test_names_in_patterns_are_letters(playbook: TimedPlaybook, boss: Client) -> None:
    new_user(boss, ".*")
    topics(boss, write="^{username}$", user=".*")
    client = playbook.client(user=".*", password=".*")
    assert not is_refused(client, to_topic(".*"))
    assert is_refused(client, to_topic("anything"))


def test_the_id_of_a_client(playbook: TimedPlaybook, boss: Client) -> None:
    new_user(boss)
    topics(boss, write="^c.{client_id}$")
    known = playbook.client(user="ann", password="ann", client_id="77")
    assert not is_refused(known, to_topic("c.77"))
    assert is_refused(known, to_topic("c.78"))
    for unknown in (
        playbook.client(user="ann", password="ann"),
        playbook.client(user="ann", password="ann", client_id=5),
    ):
        assert is_refused(unknown, to_topic("c."))
        assert is_refused(unknown, to_topic("c.{client_id}"))


def test_a_routing_key_is_asked_about_once(
    playbook: TimedPlaybook, boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many keys there are, and on whichever channel of the user."""
    new_user(boss)
    topics(boss, write="^{username}\\.")
    asked: list[str] = []
    may_write = TopicPermissions.may_write

    def counted(self: TopicPermissions, key: str, client_id: str | None) -> bool:
        asked.append(key)
        return may_write(self, key, client_id)

    monkeypatch.setattr(TopicPermissions, "may_write", counted)
    keys = [f"ann.{number}" for number in range(4 * WRITABLE_MAX)]
    for ann in (playbook.client(user="ann", password="ann"), playbook.client(user="ann", password="ann")):
        for _ in range(2):
            for key in keys:
                assert not is_refused(ann, to_topic(key))
    assert asked == keys
    topics(boss, write="^{username}\\.1")
    assert is_refused(ann, to_topic("ann.2"))


def test_a_routing_key_of_one_user_is_none_of_another(playbook: TimedPlaybook, boss: Client) -> None:
    for name in ("ann", "bob"):
        new_user(boss, name)
        topics(boss, write="^(common$|{username}\\.)", user=name)
    ann, bob = (playbook.client(user=name, password=name) for name in ("ann", "bob"))
    for _ in range(2):
        for client, own, other in ((ann, "ann.x", "bob.x"), (bob, "bob.x", "ann.x")):
            assert not is_refused(client, to_topic("common"))
            assert not is_refused(client, to_topic(own))
            assert is_refused(client, to_topic(other))


def test_a_routing_key_of_one_client_is_none_of_another(playbook: TimedPlaybook, boss: Client) -> None:
    new_user(boss)
    topics(boss, write="^c.{client_id}$")
    first, second = (playbook.client(user="ann", password="ann", client_id=each) for each in ("1", "2"))
    for _ in range(2):
        for client, own, other in ((first, "c.1", "c.2"), (second, "c.2", "c.1")):
            assert not is_refused(client, to_topic(own))
            assert is_refused(client, to_topic(other))


def test_an_exchange_that_delays_topics(playbook: TimedPlaybook, boss: Client) -> None:
    new_user(boss)
    for name, kind in (("later", "topic"), ("direct", "direct")):
        arguments = {"x-delayed-type": kind}
        boss >> methods.ExchangeDeclare(exchange=name, type="x-delayed-message", arguments=arguments)
        boss << methods.ExchangeDeclareOk()
        done(boss, "topic-permission.set", user="ann", exchange=name, write="^a", read="")
    ann = playbook.client(user="ann", password="ann")
    assert is_refused(ann, carrying(BasicPublish(exchange="later", routing_key="b"), b"x"))
    assert not is_refused(ann, carrying(BasicPublish(exchange="direct", routing_key="b"), b"x"))


def test_topic_permissions_are_listed_and_go_with_their_user(boss: Client) -> None:
    new_user(boss)
    topics(boss, write="a", read="b")
    topics(boss, write="c", read="d", user="guest")
    done(boss, "topic-permission.set", user="ann", exchange="x", write="", read="")
    found = rows(boss, "topic-permission.list")
    assert [(row["user"], row["exchange"], row["write"], row["read"]) for row in found] == [
        ("ann", "amq.topic", "a", "b"),
        ("ann", "x", "", ""),
        ("guest", "amq.topic", "c", "d"),
    ]
    assert len(rows(boss, "topic-permission.list", user="guest")) == 1
    done(boss, "user.delete", user="ann")
    new_user(boss)
    assert [row["user"] for row in rows(boss, "topic-permission.list")] == ["guest"]


# Limits


def knocks(playbook: TimedPlaybook, virtual_host: str = "/") -> Client:
    """ann has said connection.open."""
    ann = playbook.stranger()
    ann.greet()
    ann.log_in(user="ann", password="ann")
    ann.hears(methods.ConnectionTune)
    ann >> methods.ConnectionTuneOk(channel_max=0, frame_max=0, heartbeat=0)
    ann >> methods.ConnectionOpen(virtual_host=virtual_host)
    return ann


@pytest.mark.parametrize("owner", [{"user": "ann"}, {"virtual_host": "v"}])
def test_a_limit_of_connections(playbook: TimedPlaybook, boss: Client, owner: dict[str, str]) -> None:
    new_host(boss)
    new_user(boss, virtual_host="v")
    done(boss, "limit.set", name="max-connections", value=1, **owner)
    first = knocks(playbook, "v")
    first.hears(methods.ConnectionOpenOk)
    close = knocks(playbook, "v").hears(ConnectionClose)
    [name] = owner.values()
    assert close.reply_code == 530
    assert f"limit of connections (1) of {next(iter(owner)).replace('_', '-')} '{name}'" in close.reply_text
    first >> methods.ConnectionClose(reply_code=200)
    first.hears(methods.ConnectionCloseOk)
    knocks(playbook, "v").hears(methods.ConnectionOpenOk)
    done(boss, "limit.clear", name="max-connections", **owner)
    knocks(playbook, "v").hears(methods.ConnectionOpenOk)
    assert rows(boss, "limit.list") == []


@pytest.mark.parametrize("owner", [{"user": "ann"}, {"virtual_host": "v"}])
def test_a_limit_of_channels(playbook: TimedPlaybook, boss: Client, owner: dict[str, str]) -> None:
    new_host(boss)
    new_user(boss, virtual_host="v")
    done(boss, "limit.set", name="max-channels", value=2, **owner)
    first = playbook.client(user="ann", password="ann", virtual_host="v")
    second = playbook.client(user="ann", password="ann", virtual_host="v")
    second[2] >> methods.ChannelOpen()
    assert second.hears(ConnectionClose).reply_code == 530
    first[2] >> methods.ChannelOpen()
    first[2] << methods.ChannelOpenOk()


def test_a_limit_of_queues(playbook: TimedPlaybook, boss: Client) -> None:
    new_host(boss)
    done(boss, "limit.set", virtual_host="v", name="max-queues", value=1)
    client = playbook.client(virtual_host="v")
    client.declares("one")
    client.declares("one")
    client >> methods.QueueDeclare(queue="two")
    close = client.hears(ChannelClose)
    assert close.reply_code == 406
    assert "queue limit in vhost 'v' (1) is reached (max-queues)" in close.reply_text
    assert rows(boss, "limit.list") == [{"virtual-host": "v", "name": "max-queues", "value": 1}]


def test_limits_go_with_their_user(boss: Client) -> None:
    new_user(boss)
    done(boss, "limit.set", user="ann", name="max-channels", value=2)
    done(boss, "limit.set", user="ann", name="max-connections", value=3)
    assert [(row["user"], row["name"], row["value"]) for row in rows(boss, "limit.list")] == [
        ("ann", "max-channels", 2),
        ("ann", "max-connections", 3),
    ]
    done(boss, "user.delete", user="ann")
    new_user(boss)
    assert rows(boss, "limit.list") == []


@pytest.mark.parametrize("over", ["binding", "alternate exchange"])
def test_what_comes_over_another_exchange_is_no_request(
    playbook: TimedPlaybook, boss: Client, over: str
) -> None:
    new_user(boss, "eve")
    eve = listening(playbook.client(user="eve", password="eve"))
    if over == "binding":
        eve >> methods.ExchangeBind(destination="amq.system", source="amq.topic", routing_key="user.#")
        eve.hears(methods.ExchangeBindOk)
    else:
        definition: FieldTable = {"alternate-exchange": "amq.system"}
        done(boss, "policy.set", name="p", pattern="^amq.topic$", definition=definition, apply_to="exchanges")
    headers: FieldTable = {"user": "eve", "tags": ["administrator"]}
    boss >> carrying(BasicPublish(exchange="amq.topic", routing_key="user.set-tags"), b"", headers=headers)
    assert refused(eve, "user.list")[0] == 403


def test_a_client_id_that_makes_the_pattern_too_long_has_no_right(
    playbook: TimedPlaybook, boss: Client
) -> None:
    new_user(boss)
    done(
        boss,
        "topic-permission.set",
        user="ann",
        virtual_host="/",
        exchange="amq.topic",
        write="^{client_id}$",
        read="",
    )
    ann = playbook.client(user="ann", password="ann")
    known = boss.session.broker.connections[ann.session.number]
    known.client_properties["client_id"] = "x" * 1100
    ann >> carrying(BasicPublish(exchange="amq.topic", routing_key="x"), b"")
    assert ann.hears(ChannelClose).reply_code == 403


def test_a_password_that_was_meant_for_a_deleted_user_is_not_set(boss: Client) -> None:
    new_user(boss)
    broker = boss.session.broker
    waiting: list[Any] = []
    broker.administration.hashing = lambda password, made: waiting.append((password, made))
    headers: FieldTable = {"user": "ann", "password": "old"}
    boss >> carrying(BasicPublish(exchange="amq.system", routing_key="user.set-password"), headers=headers)
    broker.administration.delete_user("ann")
    broker.administration.accounts.add("ann", hash_password_quickly(b"another"), [])
    password, made = waiting[0]
    made(hash_password_quickly(password))
    broker.finish_pass()
    assert isinstance(broker.users.login("ann", b"old", "127.0.0.1").now(), Refused)


# Limits of queues and messages


def test_a_limit_of_queues_of_a_user(playbook: TimedPlaybook, boss: Client) -> None:
    new_user(boss)
    done(boss, "vhost.add", virtual_host="v")
    done(boss, "permission.set", user="ann", virtual_host="v", **ALL)
    done(boss, "limit.set", user="ann", name="max-queues", value=2)
    first = playbook.client(user="ann", password="ann")
    second = playbook.client(user="ann", password="ann", virtual_host="v")
    first.declares("a")
    second.declares("b")
    first.declares("a")  # which is there
    second >> methods.QueueDeclare(queue="c")
    close = second.hears(ChannelClose)
    assert close.reply_code == 406
    assert "queue limit of user 'ann' (2) is reached (max-queues)" in close.reply_text
    boss.declares("c")
    first >> methods.QueueDelete(queue="a")
    first.hears(methods.QueueDeleteOk)
    first.declares("d")
    assert playbook.broker.administration.limits.queues_of == {"guest": 2, "ann": 2}


def test_queues_of_direct_reply_to_do_not_count(playbook: TimedPlaybook, boss: Client) -> None:
    new_user(boss)
    for owner in ({"user": "ann"}, {"virtual_host": "/"}):
        done(boss, "limit.set", name="max-queues", value=2, **owner)  # the boss has one
    ann = playbook.client(user="ann", password="ann")
    ann.consumes("amq.rabbitmq.reply-to", no_ack=True)
    ann.declares("a")
    host = playbook.broker.virtual_hosts["/"]
    assert host.reply_queues == 1
    ann >> methods.BasicCancel(consumer_tag="c")
    ann.hears(methods.BasicCancelOk)
    assert host.reply_queues == 0


@pytest.mark.parametrize("owner", [{"user": "ann"}, {"virtual_host": "/"}])
def test_a_limit_of_the_size_of_messages(
    playbook: TimedPlaybook, boss: Client, owner: dict[str, str]
) -> None:
    new_user(boss)
    before = playbook.client(user="ann", password="ann")
    before.declares("q")
    done(boss, "limit.set", name="max-message-size", value=10, **owner)
    after = playbook.client(user="ann", password="ann")
    for client in (before, after):
        client.publishes("q", b"x" * 10)
        client.publishes("q", b"x" * 11)
        close = client.hears(ChannelClose)
        assert close.reply_code == 406
        assert "PRECONDITION_FAILED - message size 11 is above the maximum of 10" in close.reply_text
        client >> methods.ChannelCloseOk()
    assert playbook.depth("q") == 2
    done(boss, "limit.clear", name="max-message-size", **owner)
    before >> methods.ChannelOpen()
    before.hears(methods.ChannelOpenOk)
    before.publishes("q", b"x" * 11)
    assert playbook.depth("q") == 3


@pytest.mark.parametrize("owner", [{"user": "ann"}, {"virtual_host": "/"}])
def test_a_limit_of_the_rate_of_publishes(
    playbook: TimedPlaybook, boss: Client, owner: dict[str, str]
) -> None:
    new_user(boss)
    boss.declares("q")
    pair = [playbook.client(user="ann", password="ann") for _ in range(2)]
    pair[0].publishes("q", *[b"x"] * 100)
    assert not any(note.startswith("wait") for note in pair[0].link.notes)
    done(boss, "limit.set", name="max-publish-rate", value=100, **owner)
    for client in pair:
        client.publishes("q", *[b"x"] * 10)
    waits = [note for client in pair for note in client.link.notes if note.startswith("wait")]
    # Together, 10 are in hand, and each further one is due a hundredth of a second after the one before.
    assert waits == [f"wait {n / 100:.3f}" for n in range(1, 11)]
    playbook.passes(1000)
    pair[1].publishes("q", b"x")
    assert len([note for note in pair[1].link.notes if note.startswith("wait")]) == 10
    done(boss, "limit.clear", name="max-publish-rate", **owner)
    pair[1].publishes("q", *[b"x"] * 100)
    assert len([note for note in pair[1].link.notes if note.startswith("wait")]) == 10
    assert pair[1].session.connection.events is pair[1].session
    assert refused(boss, "limit.set", name="max-publish-rate", value=0, **owner)[0] == 406


def test_nobody_waits_for_more_than_some_seconds_of_what_others_have_published(
    playbook: TimedPlaybook, boss: Client
) -> None:
    new_user(boss)
    boss.declares("q")
    done(boss, "limit.set", name="max-publish-rate", value=1, user="ann")
    pair = [playbook.client(user="ann", password="ann") for _ in range(2)]
    pair[0].publishes("q", *[b"x"] * 100)
    pair[1].publishes("q", b"x")
    assert [note for note in pair[1].link.notes if note.startswith("wait")] == ["wait 10.000"]


def test_channels_are_counted_as_they_come_and_go(playbook: TimedPlaybook, boss: Client) -> None:
    new_user(boss)
    clients = playbook.broker.clients
    ann = playbook.client(user="ann", password="ann")
    ann[2] >> methods.ChannelOpen()
    ann.hears(methods.ChannelOpenOk, 2)
    assert clients.channels_of_user == {"guest": 1, "ann": 2}
    ann[2] >> methods.ChannelClose()
    ann.hears(methods.ChannelCloseOk, 2)
    assert clients.channels_of_user["ann"] == 1
    ann >> methods.ConnectionClose()
    ann.hears(methods.ConnectionCloseOk)
    assert clients.channels_of_user == {"guest": 1}
    assert list(clients.channels_of_host.values()) == [1]


# Rights that are lost while something is under way


@pytest.mark.parametrize("service", ["queue.move", "queue.copy"])
@pytest.mark.parametrize("pattern", ["read", "write"])
def test_a_right_that_is_taken_away_ends_what_is_under_way(
    playbook: TimedPlaybook, boss: Client, monkeypatch: pytest.MonkeyPatch, service: str, pattern: str
) -> None:
    monkeypatch.setattr(queue_services, "MOVED_AT_ONCE", 1)
    new_user(boss)
    ann = listening(playbook.client(user="ann", password="ann"))
    ann.declares("a")
    ann.declares("b")
    ann.publishes("a", *[b"x"] * 10)
    verb = service.partition(".")[2]
    work = getattr(browsing, verb)

    def take_away_and_work(*arguments: Any) -> Any:
        if playbook.depth("b") == 3:
            settings = PermissionSettings(**{**ALL, pattern: "^(mine|amq)"})
            playbook.broker.administration.permissions.set("ann", "/", settings)
        return work(*arguments)

    monkeypatch.setattr(browsing, verb, take_away_and_work)
    told = ask(ann, service, queue="a", to="b", limit=10)
    assert told["error-code"] == 403
    assert told["moved" if verb == "move" else "copied"] == playbook.depth("b") == 4


def test_who_waits_for_a_lease_and_loses_the_right_gets_none(playbook: TimedPlaybook, boss: Client) -> None:
    new_user(boss)
    ann = listening(playbook.client(user="ann", password="ann"))
    boss.declares("q")
    asked = BasicPublish(exchange="amq.system", routing_key="queue.lease")
    headers: FieldTable = {"queue": "q", "consumer": "c", "claim": True, "wait-ms": 30_000}
    ann >> carrying(asked, b"", headers=headers, reply_to=f"mine{ann.session.number}")
    done(boss, "permission.clear", user="ann", virtual_host="/")
    boss.publishes("q", b"secret")
    playbook.passes(100)
    heard = ann.next(1)
    assert isinstance(heard, Carried)
    assert heard.properties.headers is not None
    assert heard.properties.headers["error-code"] == 403
    assert playbook.depth("q") == 1


def test_lists_without_a_virtual_host_are_of_all(playbook: TimedPlaybook, boss: Client) -> None:
    done(boss, "vhost.add", virtual_host="v")
    new_user(boss, tags=["policymaker"])
    for host in ("/", "v"):
        short: FieldTable = {"max-length": 1}
        done(boss, "policy.set", name="p", pattern="", definition=short, virtual_host=host)
        done(boss, "operator-policy.set", name="o", pattern="", definition=short, virtual_host=host)
        done(boss, "parameter.set", component="c", name="n", value=host, virtual_host=host)
    done(boss, "parameter.set", component="c", name="n", value="all", virtual_host="")
    ann = listening(playbook.client(user="ann", password="ann"))
    for asker, service, hosts in (
        (boss, "policy.list", ["/", "v"]),
        (boss, "operator-policy.list", ["/", "v"]),
        (boss, "parameter.list", ["", "/", "v"]),
        (ann, "policy.list", ["/"]),
        (ann, "parameter.list", ["/"]),
    ):
        assert [row["virtual-host"] for row in rows(asker, service)] == hosts
        assert [row["virtual-host"] for row in rows(asker, service, virtual_host="/")] == ["/"]
