"""What was administered at run time is there after the broker's end, orderly or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playbook import branches
from playbook.dialogue import Carried, Playbook, carrying

from flintmq.auth.passwords import hash_password_quickly
from flintmq.auth.user import Tag
from flintmq.auth.users import configured_user
from flintmq.broker.administration import records
from flintmq.broker.administration.permissions import identity_of
from flintmq.broker.administration.records import FORGOTTEN_AT_ONCE
from flintmq.broker.broker import Broker
from flintmq.broker.policies import Policy, configured_policies
from flintmq.broker.transactions.dtx_journal import Marker
from flintmq.client import ClientError, ServiceError, connect
from flintmq.clock import Clock
from flintmq.config import ALL_PERMISSIONS, Config, PermissionSettings, parse
from flintmq.errors import ChannelFault, ServiceFault
from flintmq.server.data_directory import recovered_broker
from flintmq.storage.disk import Disk
from flintmq.storage.options import JournalOptions
from flintmq.wire import methods
from flintmq.wire.tables import encode_table

Opened = Callable[..., Any]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    """A broker on the test's data directory, without a server; closed at the end of the block."""

    @contextmanager
    def open_broker(settings: str = "", **options: Any) -> Iterator[Broker]:
        config = parse(settings) if settings else Config()
        chosen = JournalOptions(threaded=False, **options)
        directory = str(tmp_path / "data")
        broker = recovered_broker(config, Clock(), lambda: None, directory, Disk(), chosen)[0]
        try:
            yield broker
        finally:
            broker.pass_work.chores.finish()
            assert broker.streams is not None
            assert broker.store is not None
            broker.streams.close()
            broker.store.close()

    return open_broker


def url(life: Any, user: str, virtual_host: str = "%2F") -> str:
    return f"amqp://{user}:{user}@127.0.0.1:{life.port}/{virtual_host}"


@pytest.mark.parametrize("by", ["SIGTERM", "SIGKILL"])
def test_users_and_permissions_are_back_before_anybody_is_let_in(start: Any, by: str) -> None:
    life = start()
    with connect(url(life, "guest")) as boss:
        boss.request("user.add", {"user": "ann", "password": "ann", "tags": ["administrator"]})
        boss.request("user.add", {"user": "bob", "password": "bob"})
        patterns = {"configure": "^a", "write": ".*", "read": ".*"}
        boss.request("permission.set", {"user": "ann", "virtual-host": "/", **patterns})
        boss.request("permission.set", {"user": "bob", "virtual-host": "/", **patterns})
        boss.request("permission.clear", {"user": "bob", "virtual-host": "/"})
        boss.request("user.delete", {"user": "guest"})
    life.stop() if by == "SIGTERM" else life.kill()
    life = start()
    with connect(url(life, "ann")) as ann:
        listed = ann.request("user.list").results["rows"]
        assert [(row["user"], row["tags"]) for row in listed] == [("ann", ["administrator"]), ("bob", [])]
        [granted] = ann.request("permission.list").results["rows"]
        assert (granted["user"], granted["virtual-host"], granted["configure"]) == ("ann", "/", "^a")
        with pytest.raises(ServiceError, match="no user 'guest'"):
            ann.request("user.delete", {"user": "guest"})
    for name in ("guest", "bob"):
        with pytest.raises(ClientError, match="refused"):
            connect(url(life, name))


def test_a_checkpoint_has_what_is_administered(opened: Opened) -> None:
    small = {"segment_octets": 4096, "spare_segments": 0, "rewrite_delay_ms": 0}
    with opened(**small) as broker:
        model = broker.administration
        model.accounts.add("ann", hash_password_quickly(b"x"), [Tag.MONITORING])
        model.permissions.set("ann", "/", PermissionSettings(read="^a"))
        first = min(broker.store.journal.segments)
        for number in range(200):  # what takes the place of what, until the first segments are given up
            model.permissions.set("guest", "/", PermissionSettings(read=f"^{number}$", write=".*"))
            broker.finish_pass()
            broker.store.tick()
            broker.store.collect()
        assert min(broker.store.journal.segments) > first
    with opened(**small) as broker:
        ann, guest = broker.users.get("ann"), broker.users.get("guest")
        assert ann.tags == {Tag.MONITORING}
        assert ann.permissions["/"].settings == PermissionSettings(read="^a")
        assert guest.permissions["/"].settings == PermissionSettings(read="^199$", write=".*")


def test_guest_as_changed_at_run_time(opened: Opened) -> None:
    with opened() as broker:
        broker.administration.accounts.set_tags("guest", [])
    with opened() as broker:
        guest = broker.users.get("guest")
        assert (guest.tags, guest.is_loopback_only) == (frozenset(), True)
        assert guest.permissions["/"].settings == ALL_PERMISSIONS
        broker.administration.permissions.clear("guest", "/")
    with opened() as broker:
        assert not broker.users.get("guest").may_enter("/")
        broker.administration.delete_user("guest")
    with opened() as broker:
        assert broker.users.get("guest") is None
        broker.administration.accounts.add("guest", hash_password_quickly(b"x"), [])
    with opened() as broker:
        guest = broker.users.get("guest")
        assert guest.is_loopback_only
        assert not guest.may_enter("/"), "the permissions of the one that was deleted"
        broker.administration.delete_user("guest")
    with opened() as broker:
        assert broker.users.get("guest") is None


def test_permissions_of_a_user_that_was_deleted_do_not_come_back(opened: Opened) -> None:
    """A crash comes between the record of the user's end and those of the permissions."""
    with opened() as broker:
        model = broker.administration
        model.accounts.add("ann", hash_password_quickly(b"x"), [])
        model.permissions.set("ann", "/", ALL_PERMISSIONS)
        model.topic_permissions.set("ann", "/", "amq.topic", "a", "b")
        model.limits.set(("user", "ann"), "max-channels", 1)
        model.accounts.forget("ann")
        broker.users.delete("ann")
        model.accounts.add("ann", hash_password_quickly(b"x"), [])
    with opened() as broker:
        assert not broker.users.get("ann").may_enter("/")
        assert not broker.users.get("ann").topic_permissions
        assert not broker.administration.limits.of
        key = records.PERMISSION + encode_table(identity_of("ann", "/"))
        assert key not in broker.store.journal.values


def test_permissions_are_forgotten_but_for_those_of_a_new_user(opened: Opened) -> None:
    hosts = [f"v{number}" for number in range(2 * FORGOTTEN_AT_ONCE)]
    settings = f"virtual_hosts = {hosts}"
    with opened(settings) as broker:
        model = broker.administration
        model.accounts.add("ann", hash_password_quickly(b"x"), [])
        for host in hosts:
            model.permissions.set("ann", host, ALL_PERMISSIONS)
        broker.pass_work.chores.credit, broker.pass_work.chores.pass_number = 0, broker.pass_work.passes
        model.delete_user("ann")
        model.accounts.add("ann", hash_password_quickly(b"x"), [])
        model.permissions.set("ann", hosts[-1], ALL_PERMISSIONS)
        broker.pass_work.chores.finish()
        kept = [key for key in broker.store.journal.values if key.startswith(records.PERMISSION)]
        assert kept == [records.PERMISSION + encode_table(identity_of("ann", hosts[-1]))]
    with opened(settings) as broker:
        assert list(broker.users.get("ann").permissions) == [hosts[-1]]


SETTINGS = '[users.ann]\npassword = "ann"\npermissions."/" = {read = "^settings"}\n'


def test_settings_win_over_what_was_administered(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    with opened() as broker:
        model = broker.administration
        model.accounts.add("ann", hash_password_quickly(b"x"), [Tag.ADMINISTRATOR])
        model.permissions.set("ann", "/", ALL_PERMISSIONS)
    with opened(SETTINGS) as broker:
        ann = broker.users.get("ann")
        assert ann.tags == frozenset()
        assert ann.permissions["/"].settings == PermissionSettings(read="^settings")
    assert "user 'ann' is set by the settings: the one added at run time is left out" in caplog.text


def test_what_the_settings_no_longer_name_waits_in_the_journal(opened: Opened) -> None:
    """A slip in the settings does not cost what was administered."""
    both = f'virtual_hosts = ["/", "v"]\n{SETTINGS}'
    with opened(both) as broker:
        broker.administration.permissions.set("ann", "v", ALL_PERMISSIONS)
    with opened('virtual_hosts = ["/", "v"]') as broker:
        assert broker.users.get("ann") is None
    with opened(both) as broker:
        assert broker.users.get("ann").may_enter("v")


def test_records_that_mean_nothing_here_are_told_and_left_out(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    with opened() as broker:
        written = broker.administration.records
        good = {"hash": hash_password_quickly(b"x").text(), "tags": [], "life": 1}
        written.put(records.USER, {"nothing": "x"}, good)
        written.put(records.USER, {"name": "no hash"}, {"tags": [], "life": 1})
        written.put(records.USER, {"name": "bad hash"}, {**good, "hash": "$x"})
        written.put(records.USER, {"name": "bad tag"}, {**good, "tags": ["king"]})
        written.put(records.USER, {"name": "good"}, good)
        written.put(records.PERMISSION, {"user": "good"}, {})
        broken = {"configure": "(", "write": "", "read": "", "life": 1}
        written.put(records.PERMISSION, identity_of("good", "/"), broken)
    with opened() as broker:
        assert [user.name for user in broker.users] == ["guest", "good"]
        assert not broker.users.get("good").permissions
    assert caplog.text.count("left out") == 6


def test_the_journal_never_holds_a_password(opened: Opened, tmp_path: Path) -> None:
    with opened() as broker:
        broker.administration.accounts.add("ann", hash_password_quickly(b"se-cret"), [])
    octets = b"".join(path.read_bytes() for path in (tmp_path / "data").glob("*.segment"))
    assert b"ann" in octets
    assert b"se-cret" not in octets


def test_nothing_is_administered_inside_a_transaction(opened: Opened) -> None:
    """A commit is one group of the journal, which nothing else may become part of."""
    with opened() as broker:
        playbook = Playbook()
        playbook.broker = broker
        client = playbook.client()
        client.declares("mine", exclusive=True)
        client >> methods.TxSelect()
        client << methods.TxSelectOk()
        asked = methods.BasicPublish(exchange="amq.system", routing_key="user.delete")
        client >> carrying(asked, b"", reply_to="mine", headers={"user": "guest"})
        client >> methods.TxCommit()
        client >> methods.BasicGet(queue="mine", no_ack=True)
        heard = [each for _, each in client.heard()]
        client.inbox.clear()
        [answer] = [each for each in heard if isinstance(each, Carried)]
        assert answer.properties.headers is not None
        assert answer.properties.headers["error-code"] == 406
        assert broker.users.get("guest") is not None
        playbook.end()


# Virtual hosts


def furnished(broker: Broker, playbook: Playbook) -> None:
    """A virtual host with something of each kind that lies in the journal."""
    model = broker.administration
    model.virtual_hosts.add("v")
    model.permissions.set("guest", "v", ALL_PERMISSIONS)
    broker.policies.put("v", "p", "^ruled", {"max-length": 100})
    model.parameters.set("v", "c", "n", {"a": [1, "two"]})
    model.limits.set(("virtual-host", "v"), "max-queues", 50)
    model.topic_permissions.set("guest", "v", "amq.topic", "^w", "^[ab]")
    client = playbook.client(virtual_host="v")
    client.declares("plain", durable=True)
    client.declares("ruled", durable=True, arguments={"x-max-priority": 3})
    client.declares("log", durable=True, arguments={"x-queue-type": "stream"})
    client.binds("plain", "amq.topic", "a.#")
    client.binds("log", "amq.fanout")
    delayed = {"x-delayed-type": "fanout"}
    client >> methods.ExchangeDeclare(
        exchange="later", type="x-delayed-message", durable=True, arguments=delayed
    )
    client << methods.ExchangeDeclareOk()
    client >> methods.ExchangeBind(source="amq.topic", destination="amq.fanout", routing_key="b")
    client << methods.ExchangeBindOk()
    for queue in ("plain", "ruled", "log"):
        client.publishes(queue, b"1", b"2", delivery_mode=2)
    client.publishes("", b"3", exchange="later", delivery_mode=2, headers={"x-delay": 3_600_000})
    settle_disk(broker)
    worker = playbook.client(virtual_host="v")
    branches.select(worker)
    worker >> branches.start()
    worker << branches.started()
    worker.publishes("plain", b"4", delivery_mode=2)
    worker >> methods.BasicGet(queue="plain")
    worker.next(1)
    worker >> methods.BasicAck(delivery_tag=1)
    worker >> branches.end()
    worker << branches.ended()
    worker >> branches.prepare()
    settle_disk(broker)
    worker << branches.prepared()
    broker.virtual_hosts["v"].branches.mark("m", Marker(7, "guest", "", 0, 0))
    settle_disk(broker)


def settle_disk(broker: Broker) -> None:
    """Passes, ticks and time until the broker has nothing to do."""
    assert broker.store is not None
    assert broker.streams is not None
    for _ in range(50):
        broker.finish_pass()
        broker.timetable.offset_ms += 10
        broker.timetable.run()
        broker.store.tick()
        broker.streams.tick()
        broker.store.collect()
        broker.streams.collect()


def is_mentioned(broker: Broker, name: str = "v") -> bool:
    """Whether any record of the journal is about the virtual host."""
    assert broker.store is not None
    field = b"S" + len(name).to_bytes(4, "big") + name.encode()
    return any(field in key for key in broker.store.journal.values)


def require_gone(broker: Broker, tmp_path: Path) -> None:
    assert broker.store is not None
    assert "v" not in broker.virtual_hosts
    assert not broker.administration.virtual_hosts.ending
    assert not is_mentioned(broker)
    assert not list(broker.store.journal.index.live())
    assert not [path for path in (tmp_path / "data" / "streams").iterdir() if path.is_dir()]


def test_a_virtual_host_is_back_with_what_is_in_it(opened: Opened) -> None:
    with opened() as broker:
        playbook = Playbook()
        playbook.broker = broker
        furnished(broker, playbook)
    with opened() as broker:
        host = broker.virtual_hosts["v"]
        assert list(host.queues) == ["plain", "ruled", "log"]
        assert host.queues["plain"].message_count() == 1
        assert len(host.branches.branches) == 1
        assert list(host.branches.markers) == ["m"]
        assert broker.users.get("guest").may_enter("v")
        assert [policy.name for policy in broker.policies.of("v")] == ["p"]
        assert broker.administration.parameters.values == {("v", "c", "n"): {"a": [1, "two"]}}
        assert broker.administration.limits.of == {("virtual-host", "v"): {"max-queues": 50}}
        allowed = broker.users.get("guest").topic_permissions["v", "amq.topic"]
        assert (allowed.write, allowed.read) == ("^w", "^[ab]")
        assert is_mentioned(broker)


def test_nothing_is_left_of_a_virtual_host_that_was_deleted(opened: Opened, tmp_path: Path) -> None:
    with opened() as broker:
        playbook = Playbook()
        playbook.broker = broker
        furnished(broker, playbook)
        broker.administration.virtual_hosts.delete("v")
        settle_disk(broker)
        require_gone(broker, tmp_path)
        broker.administration.virtual_hosts.add("v")
    with opened() as broker:
        host = broker.virtual_hosts["v"]
        assert not host.queues
        assert not host.branches.branches
        assert not host.branches.markers
        assert "later" not in host.exchanges
        assert not host.binding_count
        assert not broker.users.get("guest").may_enter("v")
        assert not broker.policies.of("v")
        assert not broker.administration.parameters.values
        assert not broker.users.get("guest").topic_permissions
        assert not broker.administration.limits.of


@pytest.mark.parametrize("steps", range(12))
def test_a_crash_while_a_virtual_host_is_taken_down(opened: Opened, tmp_path: Path, steps: int) -> None:
    """The next start goes on with it, wherever it was."""
    with opened() as broker:
        playbook = Playbook()
        playbook.broker = broker
        furnished(broker, playbook)
        chores = broker.pass_work.chores
        chores.credit, chores.pass_number = 0, broker.pass_work.passes
        broker.administration.virtual_hosts.delete("v")
        for _ in range(steps):
            if chores.waiting:
                chores.step(chores.waiting.popleft())
        chores.waiting.clear()  # the rest is never done in this life
        broker.timetable.alarms.clear()
    with opened() as broker:
        assert "v" not in broker.virtual_hosts
        settle_disk(broker)
        require_gone(broker, tmp_path)


def test_a_virtual_host_of_the_settings_is_not_taken_down_by_a_start(
    opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    with opened() as broker:
        broker.administration.virtual_hosts.add("v")
        broker.virtual_hosts["v"].declare_queue("q", True, False, False, {}, 0)
        broker.administration.records.put(records.VIRTUAL_HOST, {"name": "v"}, {"deleting": True})
    with opened('virtual_hosts = ["/", "v"]') as broker:
        assert "q" in broker.virtual_hosts["v"].queues
    assert "'v', which was being deleted, is in the settings: kept" in caplog.text
    with opened('virtual_hosts = ["/", "v"]') as broker:
        settle_disk(broker)
        assert "q" in broker.virtual_hosts["v"].queues


def test_a_virtual_host_that_only_the_journal_knows_is_not_added_over_it(opened: Opened) -> None:
    both = 'virtual_hosts = ["/", "v"]'
    with opened(both) as broker:
        broker.virtual_hosts["v"].declare_queue("q", True, False, False, {}, 0)
    with opened() as broker:
        with pytest.raises(ServiceFault, match="the data directory holds virtual host 'v'"):
            broker.administration.virtual_hosts.add("v")
        assert not broker.administration.virtual_hosts.can_be_configured("v")
    with opened(both) as broker:
        assert "q" in broker.virtual_hosts["v"].queues


def test_guest_that_was_changed_is_gone_when_the_settings_name_users(opened: Opened) -> None:
    with opened() as broker:
        broker.administration.accounts.set_tags("guest", [])
    with opened(SETTINGS) as broker:
        assert [user.name for user in broker.users] == ["ann"]


def test_a_new_user_has_nothing_of_one_of_the_settings_of_that_name(opened: Opened) -> None:
    hosts = 'virtual_hosts = ["/", "secret"]\n'
    with opened(hosts + '[users.ann]\npassword = "ann"\n') as broker:
        broker.administration.permissions.set("ann", "secret", ALL_PERMISSIONS)
    others = hosts + '[users.root]\npassword = "root"\n'
    with opened(others) as broker:
        broker.administration.accounts.add("ann", hash_password_quickly(b"another"), [])
    with opened(others) as broker:
        assert not broker.users.get("ann").may_enter("secret")


# Settings and what was administered

ROOT = """
[users.root]
password = "root"
tags = ["administrator"]
permissions."/" = {configure = ".*", write = ".*", read = ".*"}
"""
ANN = f"""{ROOT}
[users.ann]
password = "ann"
permissions."/" = {{configure = "", write = "", read = "^a"}}
"""
HOSTS = 'virtual_hosts = ["/", "secret"]\n'


def reread(broker: Broker, old: str, new: str) -> None:
    """As SIGHUP has it."""
    before, after = parse(old), parse(new)
    broker.configure(after)
    users = {name: configured_user(name, given, broker.users.policy) for name, given in after.users.items()}
    broker.administration.reconfigure(before, after, users)
    broker.pass_work.chores.finish()


def narrowed_ann(model: Any) -> None:
    model.accounts.add("ann", hash_password_quickly(b"x"), [Tag.ADMINISTRATOR])
    model.permissions.set("ann", "/", ALL_PERMISSIONS)
    model.topic_permissions.set("ann", "/", "amq.topic", "^ann", "^ann")
    model.limits.set(("user", "ann"), "max-connections", 2)


def expect_narrow(broker: Broker) -> None:
    """The user of the settings, narrowed down as the one was who had the name before."""
    ann = broker.users.get("ann")
    assert ann is not None
    assert ann.tags == frozenset()
    assert ann.permissions["/"].settings == PermissionSettings(read="^a")
    assert [(place, each.write) for place, each in ann.topic_permissions.items()] == [
        (("/", "amq.topic"), "^ann")
    ]
    assert broker.administration.limits.of == {("user", "ann"): {"max-connections": 2}}


@pytest.mark.parametrize("is_live", [True, False])
def test_settings_take_a_user_over(opened: Opened, is_live: bool) -> None:
    """By SIGHUP, or by the next start: permissions are gone for good, what narrows the user down stays."""
    with opened(ROOT) as broker:
        narrowed_ann(broker.administration)
        if is_live:
            reread(broker, ROOT, ANN)
            expect_narrow(broker)
    for _ in range(2):
        with opened(ANN) as broker:
            expect_narrow(broker)
    with opened(ROOT) as broker:
        assert broker.users.get("ann") is None
        assert broker.administration.limits.of == {}
        broker.administration.accounts.add("ann", hash_password_quickly(b"x"), [])
    with opened(ROOT) as broker:
        ann = broker.users.get("ann")
        assert not ann.permissions
        assert not ann.topic_permissions
        assert broker.administration.limits.of == {}


def test_a_user_that_settings_took_over_and_dropped_is_gone(opened: Opened) -> None:
    with opened(ROOT) as broker:
        narrowed_ann(broker.administration)
        reread(broker, ROOT, ANN)
        reread(broker, ANN, ROOT)
        assert broker.users.get("ann") is None
        assert broker.administration.limits.of == {}
    with opened(ROOT) as broker:
        assert broker.users.get("ann") is None


@pytest.mark.parametrize("is_live", [True, False])
def test_a_permission_that_settings_took_over_and_dropped_is_gone(opened: Opened, is_live: bool) -> None:
    without = f'{HOSTS}{ROOT}[users.ann]\npassword = "ann"\n'
    within = f'{without}permissions.secret = {{configure = "", write = "", read = "^a"}}\n'
    with opened(without) as broker:
        broker.administration.permissions.set("ann", "secret", ALL_PERMISSIONS)
        if is_live:
            reread(broker, without, within)
            reread(broker, within, without)
            assert not broker.users.get("ann").may_enter("secret")
    if not is_live:
        with opened(within):
            pass
    with opened(without) as broker:
        assert not broker.users.get("ann").may_enter("secret")


def test_guest_as_changed_at_run_time_outlives_settings_that_name_it(opened: Opened) -> None:
    guest = '[users.guest]\npassword = "x"\npermissions."/" = {configure = ".*", write = ".*", read = ".*"}\n'
    with opened() as broker:
        broker.administration.permissions.set("guest", "/", PermissionSettings(read="^g"))
    with opened(guest) as broker:
        assert broker.users.get("guest").permissions["/"].settings == ALL_PERMISSIONS
    with opened() as broker:
        assert broker.users.get("guest").permissions["/"].settings == PermissionSettings(read="^g")


# A virtual host that only the journal knows


@pytest.mark.parametrize(
    "administer",
    [
        lambda model: model.permissions.set("ann", "secret", ALL_PERMISSIONS),
        lambda model: model.topic_permissions.set("ann", "secret", "amq.topic", "a", "b"),
        lambda model: model.limits.set(("virtual-host", "secret"), "max-queues", 0),
        lambda model: model.parameters.set("secret", "c", "n", "v"),
        lambda model: model.policies.put("secret", "p", ".*", {"max-length": 1}),
    ],
    ids=["permission", "topic permission", "limit", "parameter", "policy"],
)
def test_a_namesake_has_nothing_of_a_former_virtual_host(opened: Opened, administer: Any) -> None:
    with opened(HOSTS + ROOT) as broker:
        broker.administration.accounts.add("ann", hash_password_quickly(b"x"), [])
        administer(broker.administration)
    with opened(ROOT) as broker:
        hosts = broker.administration.virtual_hosts
        assert not hosts.can_be_configured("secret")
        with pytest.raises(ServiceFault, match="the data directory holds virtual host 'secret'"):
            hosts.add("secret")


@pytest.mark.parametrize("what", ["branch", "marker"])
def test_a_namesake_has_no_branches_and_markers_of_a_former_virtual_host(opened: Opened, what: str) -> None:
    with opened(HOSTS) as broker:
        if what == "marker":
            broker.virtual_hosts["secret"].branches.mark("m", Marker(1, "root"))
        else:
            playbook = Playbook()
            playbook.broker = broker
            prepared_branch(broker, playbook.client(virtual_host="secret"))
            broker.virtual_hosts["secret"].delete_queue(broker.virtual_hosts["secret"].queues["plain"])
            settle_disk(broker)
    with opened() as broker:
        assert not broker.administration.virtual_hosts.can_be_configured("secret")
    with opened(HOSTS) as broker:
        kept = broker.virtual_hosts["secret"].branches
        assert len(kept.markers if what == "marker" else kept.branches) == 1


def prepared_branch(broker: Broker, client: Any) -> None:
    client.declares("plain", durable=True)
    settle_disk(broker)
    branches.select(client)
    client >> branches.start()
    client << branches.started()
    client.publishes("plain", b"4", delivery_mode=2)
    client >> branches.end()
    client << branches.ended()
    client >> branches.prepare()
    settle_disk(broker)
    client << branches.prepared()


def test_a_policy_of_the_settings_outlives_its_virtual_host(opened: Opened) -> None:
    settings = """
[[operator_policies]]
name = "cap"
pattern = ".*"
virtual_host = "/"
[operator_policies.definition]
max-length = 1
"""
    with opened() as broker:
        model = broker.administration
        model.virtual_hosts.add("v")
        [cap] = configured_policies(parse(settings))
        given = cap.pattern, cap.definition, cap.priority, cap.apply_to, cap.is_operator, cap.is_configured
        model.policies.insert(Policy("v", cap.name, *given))
        model.policies.put("v", "p", ".*", {"max-length": 2})
        model.virtual_hosts.delete("v")
        broker.pass_work.chores.finish()
        broker.store.end_pass()
        for _ in range(100):
            broker.finish_pass()
            settle_disk(broker)
            if "v" not in model.virtual_hosts.ending:
                break
        model.virtual_hosts.add("v")
        assert [policy.name for policy in model.policies.of("v", is_operator=True)] == ["cap"]
        assert model.policies.of("v") == []


@pytest.mark.parametrize("is_restarted", [False, True])
def test_branches_and_markers_are_not_those_of_a_namesake(opened: Opened, is_restarted: bool) -> None:
    with opened() as broker:
        model = broker.administration
        model.accounts.add("ann", hash_password_quickly(b"ann"), [])
        model.permissions.set("ann", "/", ALL_PERMISSIONS)
        playbook = Playbook()
        playbook.broker = broker
        prepared_branch(broker, playbook.client(user="ann", password="ann"))
        ann = broker.users.get("ann")
        host = broker.virtual_hosts["/"]
        host.branches.mark("m", Marker(1, "ann", life=ann.life))
        if not is_restarted:
            expect_own(broker, is_own=True)
            expect_namesake(broker)
    if is_restarted:
        with opened() as broker:
            expect_own(broker, is_own=True)
            expect_namesake(broker)


def expect_own(broker: Broker, is_own: bool) -> None:
    ann = broker.users.get("ann")
    assert ann is not None
    found = broker.virtual_hosts["/"].branches
    assert len(list(found.visible(ann))) == is_own
    if is_own:
        assert found.marker("m", ann) is not None
    else:
        with pytest.raises(ChannelFault, match="belongs to another user than 'ann'"):
            found.marker("m", ann)


def expect_namesake(broker: Broker) -> None:
    broker.administration.delete_user("ann")
    broker.administration.accounts.add("ann", hash_password_quickly(b"other"), [])
    expect_own(broker, is_own=False)


@pytest.mark.parametrize("name", ["ann", "änn"])
def test_queues_of_a_user_are_counted_over_a_restart(opened: Opened, name: str) -> None:
    with opened() as broker:
        model = broker.administration
        model.accounts.add(name, hash_password_quickly(b"x"), [])
        model.permissions.set(name, "/", ALL_PERMISSIONS)
        model.limits.set(("user", name), "max-publish-rate", 5)
        playbook = Playbook()
        playbook.broker = broker
        client = playbook.client(user=name, password="x")
        client.declares("kept", durable=True)
        client.declares("ruled", durable=True, arguments={"x-max-length": 3})
        client.declares("passing")
        settle_disk(broker)
    with opened() as broker:
        limits = broker.administration.limits
        assert limits.queues_of == {name: 2}
        assert [rate.rate for rate in limits.rates_of(name, "/")] == [5]
        host = broker.virtual_hosts["/"]
        for queue in list(host.queues.values()):
            host.delete_queue(queue)
        assert limits.queues_of == {}


def test_topic_permissions_of_a_virtual_host_are_forgotten_in_small_steps(opened: Opened) -> None:
    with opened() as broker:
        model = broker.administration
        model.virtual_hosts.add("v")
        model.accounts.add("ann", hash_password_quickly(b"x"), [])
        for number in range(3 * FORGOTTEN_AT_ONCE):
            model.topic_permissions.set("ann", "v", f"e{number}", "^a", "^a")
        model.topic_permissions.set("ann", "/", "e", "^a", "^a")
        user = broker.users.get("ann")
        before = user.changes
        steps = list(model.topic_permissions.forget_host("v"))
        assert len(steps) >= 3
        assert user.changes == before + 1  # one copy of the table, not one for each exchange
        assert list(user.topic_permissions) == [("/", "e")]
    with opened() as broker:
        assert list(broker.users.get("ann").topic_permissions) == [("/", "e")]
