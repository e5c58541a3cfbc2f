"""`flintmq doctor` in staged troubles: each is named, with its cause and what to do next."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from command_line.conftest import Command
from live.certificates import Authority

from flintmq.cli.operating import doctor
from flintmq.client import Connection, connect
from flintmq.clock import Clock
from flintmq.diagnosis import checks
from flintmq.wire.properties import BasicProperties

Found = dict[str, Any]
USERS = """
[users.root]
password = "root"
tags = ["administrator"]
permissions."/" = {configure = ".*", write = ".*", read = ".*"}
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Without guest, so that nothing is wrong with it until a test sees to that."""
    directory = tmp_path_factory.mktemp("doctor")
    settings = directory / "flintmq.toml"
    settings.write_text(USERS)
    with BrokerProcess("--data", str(directory / "data"), "--config", str(settings)) as process:
        yield process


@pytest.fixture
def findings(flintmq: Command, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Found]]:
    """What the doctor finds, by kind; `line` has further options."""
    monkeypatch.setenv("FLINTMQ_USER", "root")
    monkeypatch.setenv("FLINTMQ_PASSWORD", "root")

    def look(line: str = "") -> dict[str, Found]:
        said = flintmq(f"doctor --seconds 0.05 --json {line}")
        found = {each["kind"]: each for each in said.document}
        assert said.status == (6 if found else 0)
        assert all(each["cause"] and each["next_step"] for each in found.values())
        return found

    return look


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[Connection]:
    with connect(f"amqp://root:root@localhost:{broker.port}", name="program") as made:
        yield made


Look = Callable[..., dict[str, Found]]


def between_looks(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Has something happen while the doctor waits for the second look."""
    monkeypatch.setattr(Clock, "sleep", lambda clock, seconds: happens())


def test_nothing_is_wrong(flintmq: Command, findings: Look) -> None:
    assert findings() == {}
    said = flintmq("doctor --seconds 0")
    assert said.status == 0
    assert said.out == f"nothing is wrong: {len(doctor.CHECKS)} checks over 0 s\n"


def test_a_queue_grows_and_nobody_consumes(
    findings: Look, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connection.channel(confirm=True) as channel:
        queue = channel.queue("growing")
        channel.publish(b"x", routing_key="growing")
        assert findings() == {}  # long, but it does not grow
        between_looks(monkeypatch, lambda: channel.publish_many([b"x"] * 4, routing_key="growing"))
        (kind,) = (found := findings())
        assert kind == "queue grows without a consumer"
        assert "'growing' has 5 messages" in found[kind]["seen"]
        assert found[kind]["cause"].startswith("4 came")
        assert "flintmq bindings --destination 'growing'" in found[kind]["next_step"]
        queue.delete()


def test_messages_stuck_unacked(findings: Look, connection: Connection) -> None:
    with connection.channel(confirm=True, prefetch=10) as channel:
        queue = channel.queue("stuck")
        channel.publish_many([b"x"] * 3, routing_key="stuck")
        with queue.consume(timeout_s=5) as consumer:
            assert len(consumer.take(3, timeout_s=5)) == 3
            (kind,) = (found := findings())
            assert kind == "messages stuck unacked"
            assert found[kind]["seen"].startswith("3 messages of queue 'stuck' are held unacked by consumer")
            assert "(program) of user 'root'" in found[kind]["seen"]
            assert "flintmq close " in found[kind]["next_step"]
        queue.delete()


def test_a_message_that_was_forgotten(
    findings: Look, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connection.channel(confirm=True, prefetch=50) as channel:
        queue = channel.queue("forgotten")
        channel.publish_many([b"x"] * 150, routing_key="forgotten")
        with queue.consume(timeout_s=5) as consumer:
            consumer.take(1, timeout_s=5)

            def work_on_others() -> None:
                for _ in range(149):
                    (message,) = consumer.take(1, timeout_s=5)
                    message.ack()
                connection.request("broker.info")

            between_looks(monkeypatch, work_on_others)
            (kind,) = (found := findings())
            assert kind == "message forgotten"
            assert "of queue 'forgotten', delivery tag 1, is held unacked by" in found[kind]["seen"]
            assert found[kind]["cause"].startswith("the channel acked 149 others")
        queue.delete()


def test_messages_that_fail_each_retry(findings: Look, connection: Connection) -> None:
    # What is nacked is ready again at once, what is rejected waits.
    retries = {"x-delayed-retry-type": "failed", "x-delayed-retry-min": 600_000}
    with connection.channel(confirm=True, prefetch=checks.RETRYING) as channel:
        queue = channel.queue("failing", arguments=retries)
        channel.publish_many([b"x"] * checks.RETRYING, routing_key="failing")
        with queue.consume(timeout_s=5) as consumer:
            held = [message for _ in range(checks.RETRYING) for message in consumer.take(1, timeout_s=5)]
            for message in held:
                message.reject(requeue=True)
            connection.request("broker.info")
            assert findings() == {}  # each has failed once
        queue.purge()
        channel.publish_many([b"x"] * checks.RETRYING, routing_key="failing")
        with queue.consume(timeout_s=5) as consumer:
            for _ in range(checks.RETURNS_EACH - 1):
                for _ in range(checks.RETRYING):
                    (message,) = consumer.take(1, timeout_s=5)
                    message.nack(requeue=True)
            for _ in range(checks.RETRYING):
                (message,) = consumer.take(1, timeout_s=5)
                message.reject(requeue=True)
            connection.request("broker.info")
            (kind,) = (found := findings())
            assert kind == "messages fail each retry"
            assert found[kind]["seen"] == f"{checks.RETRYING} messages of queue 'failing' wait for a retry"
            assert (found[kind]["object_type"], found[kind]["object_name"]) == ("queue", "failing")
        queue.delete()


def test_a_message_that_its_consumer_gives_back_again_and_again(
    findings: Look, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connection.channel(confirm=True, prefetch=1) as channel:
        queue = channel.queue("poisoned")
        channel.publish(b"cannot be parsed", routing_key="poisoned")
        with queue.consume(timeout_s=5) as consumer:
            held = consumer.take(1, timeout_s=5)

            def give_back() -> None:
                for _ in range(checks.GIVEN_BACK):
                    held.pop().reject(requeue=True)
                    held.extend(consumer.take(1, timeout_s=5))

            between_looks(monkeypatch, give_back)
            (kind,) = (found := findings())
            assert kind == "messages given back again and again"
            assert found[kind]["seen"].startswith("consumer ")
            assert "gives back what queue 'poisoned' hands to it" in found[kind]["seen"]
            assert found[kind]["cause"].startswith(f"{checks.GIVEN_BACK} deliveries in ")
            assert "flintmq peek 'poisoned'" in found[kind]["next_step"]
            assert "delivery-limit" in found[kind]["next_step"]
        queue.delete()


def test_trouble_in_another_virtual_host(
    flintmq: Command, findings: Look, broker: BrokerProcess, connection: Connection
) -> None:
    permission = {"configure": ".*", "write": ".*", "read": ".*"}
    for name in ("orders", "closed"):
        connection.request("vhost.add", {"virtual-host": name})
    connection.request("permission.set", {"user": "root", "virtual-host": "orders", **permission})
    try:
        with connect(f"amqp://root:root@localhost:{broker.port}/orders") as other, other.channel() as channel:
            channel.queue("kept", durable=True)
            channel.publish(b"x", routing_key="nowhere")
            other.request("broker.info")
            (kind,) = (found := findings())
            assert kind == "unroutable messages"
            assert found[kind]["virtual_host"] == "orders"
            assert found[kind]["seen"].startswith("virtual host 'orders': 1 messages went nowhere")
            assert "flintmq bindings -V 'orders'" in found[kind]["next_step"]
            said = flintmq("doctor --seconds 0")
            assert said.err == (
                "flintmq: 1 virtual hosts were not looked at, such as closed, as user 'root' may not enter "
                "them: flintmq permissions set\n"
            )
            assert findings("-V /") == {}
    finally:
        for name in ("orders", "closed"):
            connection.request("vhost.delete", {"virtual-host": name})


def test_a_user_without_a_tag_looks_at_the_virtual_host_of_the_url(
    flintmq: Command, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    permission = {"configure": ".*", "write": ".*", "read": ".*"}
    connection.request("vhost.add", {"virtual-host": "accounts"})
    connection.request("user.add", {"user": "clerk", "password": "a long one"})
    connection.request("permission.set", {"user": "clerk", "virtual-host": "/", **permission})
    monkeypatch.setenv("FLINTMQ_USER", "clerk")
    monkeypatch.setenv("FLINTMQ_PASSWORD", "a long one")
    said = flintmq("doctor --seconds 0")
    connection.request("user.delete", {"user": "clerk"})
    connection.request("vhost.delete", {"virtual-host": "accounts"})
    assert (said.status, said.err) == (0, ""), said
    assert "virtual hosts" not in said.out


def test_messages_of_basic_get_stuck(findings: Look, connection: Connection) -> None:
    with connection.channel(confirm=True) as channel:
        queue = channel.queue("fetched")
        channel.publish(b"x", routing_key="fetched")
        assert queue.get() is not None
        (kind,) = (found := findings())
        assert kind == "messages stuck unacked"
        assert "basic.get" in found[kind]["cause"]
        queue.delete()


def test_a_consumer_hoards_its_prefetch(findings: Look, connection: Connection) -> None:
    with connection.channel(confirm=True, prefetch=2) as channel:
        queue = channel.queue("hoarded")
        channel.publish_many([b"x"] * 5, routing_key="hoarded")
        with queue.consume(timeout_s=5) as consumer:
            assert len(consumer.take(2, timeout_s=5)) == 2
            (kind,) = (found := findings())
            assert kind == "consumer takes nothing"
            assert found[kind]["seen"].startswith("3 messages wait in queue 'hoarded'")
            assert "prefetch of 2" in found[kind]["cause"]
        queue.delete()


def test_messages_that_go_nowhere(findings: Look, connection: Connection) -> None:
    with connection.channel(confirm=True) as channel:
        channel.publish_many([b"x"] * 3, "amq.topic", "nobody.wants.it")
        (kind,) = (found := findings())
        assert kind == "unroutable messages"
        assert found[kind]["seen"].startswith("3 messages went nowhere, of channel")


def test_dead_letters_pile_up(findings: Look, connection: Connection) -> None:
    with connection.channel(confirm=True) as channel:
        graveyard = channel.queue("graveyard")
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graveyard"}
        queue = channel.queue("jobs", arguments=letters)
        channel.publish(b"bad", routing_key="jobs")
        message = queue.get()
        assert message is not None
        message.reject(requeue=False)
        while not channel.queue("graveyard", passive=True).message_count:
            pass
        (kind,) = (found := findings())
        assert kind == "dead letters pile up"
        assert found[kind]["cause"] == "the first of them died in queue 'jobs': rejected, 1 time(s)"
        assert "flintmq requeue 'graveyard'" in found[kind]["next_step"]
        queue.delete()
        graveyard.delete()


@pytest.mark.parametrize("is_of_the_queue", [True, False])
def test_dead_letters_that_wait_to_be_tried_again_are_no_trouble(
    findings: Look, connection: Connection, monkeypatch: pytest.MonkeyPatch, is_of_the_queue: bool
) -> None:
    """In a queue that sends them on after a time: its own, or that of each message."""
    monkeypatch.setattr(checks, "ABANDONED_MS", 0)
    back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "jobs"}
    lifetime = {"x-message-ttl": 3_600_000} if is_of_the_queue else {}
    properties = BasicProperties(expiration=None if is_of_the_queue else "3600000")
    death = {"queue": "jobs", "reason": "rejected", "count": 1, "exchange": "", "routing-keys": ["jobs"]}
    with connection.channel(confirm=True) as channel:
        retry = channel.queue("retry", arguments={**back, **lifetime})
        channel.publish(b"later", routing_key="retry", headers={"x-death": [death]}, properties=properties)
        assert findings() == {}
        retry.delete()


def test_dead_letters_that_were_sent_back_are_no_trouble(findings: Look, connection: Connection) -> None:
    with connection.channel(confirm=True) as channel:
        queue = channel.queue("again")
        death = {
            "queue": "again",
            "reason": "rejected",
            "count": 1,
            "exchange": "",
            "routing-keys": ["again"],
        }
        channel.publish(b"bad", routing_key="again", headers={"x-death": [death]})
        assert findings() == {}
        queue.delete()


def test_dead_letters_that_go_round(findings: Look, connection: Connection) -> None:
    with connection.channel(confirm=True) as channel, connection.channel() as busy:
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "round"}
        queue = channel.queue("round", arguments=letters)
        channel.publish(b"held", routing_key="round")
        busy.qos(1)
        assert next(iter(busy.consume("round"))).body == b"held"
        channel.publish(b"bad", routing_key="round")
        assert "dead letters go round" not in findings()
        for _ in range(checks.LOOP_DEATHS):
            while (message := queue.get()) is None:
                pass
            message.reject(requeue=False)
        while not channel.queue("round", passive=True).message_count:
            pass
        found = findings()["dead letters go round"]
        assert found["seen"] == f"the first message of queue 'round' has died {checks.LOOP_DEATHS} times"
        assert "(rejected)" in found["cause"]
        queue.delete()


def test_dead_letters_for_an_exchange_that_is_not_there(findings: Look, connection: Connection) -> None:
    with connection.channel() as channel:
        queue = channel.queue("orphan's", arguments={"x-dead-letter-exchange": "grave's"})
        found = findings()["dead letters are lost"]
        assert found["seen"] == """queue "orphan's" would send dead letters to exchange "grave's\""""
        assert found["next_step"].startswith("""flintmq declare exchange 'grave'"'"'s' fanout""")
        channel.exchange("grave's", "fanout")
        assert findings() == {}
        channel.delete_exchange("grave's")
        queue.delete()


def test_clocks_differ(findings: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = Clock.wall_ms
    monkeypatch.setattr(Clock, "wall_ms", lambda clock: now_ms(clock) - 60_000)
    (kind,) = (found := findings())
    assert kind == "clocks differ"
    assert "ahead of" in found[kind]["seen"]


def test_the_default_password_is_looked_for_without_a_login(flintmq: Command, tmp_path: Path) -> None:
    """A guest with another password: a try would be logged each time, and end in a ban."""
    audit = tmp_path / "audit.log"
    settings = tmp_path / "flintmq.toml"
    settings.write_text(f'[audit]\nfile = "{audit}"\n{USERS}[users.guest]\npassword = "another"\n')
    with BrokerProcess("--data", str(tmp_path / "data"), "--config", str(settings)) as other:
        url = f"--url amqp://root:root@localhost:{other.port} --password-in-url"
        for _ in range(3):
            assert flintmq(f"doctor --seconds 0 --json {url}").document == []
        assert flintmq(f"bans --json {url}").document == []
    assert '"refused"' not in audit.read_text()
    assert '"guest"' not in audit.read_text()


def test_the_default_password_a_certificate_that_ends_and_a_disk_almost_full(
    flintmq: Command, tmp_path: Path
) -> None:
    signed = Authority(tmp_path, "authority").sign("broker", days=12.5)
    settings = tmp_path / "flintmq.toml"
    settings.write_text(
        f'[tls]\ncertificate = "{signed.certificate}"\nkey = "{signed.key}"\nport = 0\n'
        f"[limits]\ndisk_free_bytes_min = {shutil.disk_usage(tmp_path).free // 2}\n"
    )
    with BrokerProcess("--data", str(tmp_path / "data"), "--config", str(settings)) as other:
        url = f"--url amqp://localhost:{other.port}"
        found = {each["kind"]: each for each in flintmq(f"doctor --seconds 0 --json {url}").document}
    assert set(found) == {"default password", "certificate ends", "disk almost full"}
    assert "broker.pem ends in 12 day(s)" in found["certificate ends"]["seen"]
    assert "flintmq users delete guest" in found["default password"]["next_step"]
    assert not any(each["is_urgent"] for each in found.values())


def test_almost_no_connections_are_left(flintmq: Command, tmp_path: Path) -> None:
    settings = tmp_path / "flintmq.toml"
    settings.write_text("[limits]\nconnections_max = 20\n" + USERS)
    with BrokerProcess("--config", str(settings)) as other, ExitStack() as stack:
        url = f"amqp://root:root@localhost:{other.port}"
        forgotten = [stack.enter_context(connect(url)) for _ in range(18)]
        line = f"doctor --seconds 0 --json --password-in-url --url {url}"
        found = {each["kind"]: each for each in flintmq(line).document}
        assert "19 of 20 connections are open" in found["almost no connections left"]["seen"]
        assert "root (19)" in found["almost no connections left"]["cause"]
        assert "LimitNOFILE=" in found["almost no connections left"]["next_step"]
        for each in forgotten[:2]:
            each.close()
        assert "almost no connections left" not in flintmq(line).out


def test_alarms_of_memory_and_disk_block_a_publisher(flintmq: Command, tmp_path: Path) -> None:
    settings = tmp_path / "flintmq.toml"
    settings.write_text('[limits]\nmemory_high_bytes = "16MiB"\ndisk_free_bytes_min = "900TiB"\n' + USERS)
    with BrokerProcess("--data", str(tmp_path / "data"), "--config", str(settings)) as other:
        url = f"amqp://root:root@localhost:{other.port}"
        writer = connect(url, name="writer", recovery=None)
        try:
            writer.channel().publish(b"x", routing_key="nowhere")
            line = f"doctor --seconds 0 --json --password-in-url --url {url}"
            while not (said := flintmq(line)).document or "blocked publisher" not in said.out:
                assert said.status == 6
        finally:
            writer.drop()  # nothing that a blocked connection says is heard, a goodbye either
    found = {each["kind"]: each for each in said.document}
    assert {"memory alarm", "disk full", "blocked publisher"} <= set(found)
    assert all(found[kind]["is_urgent"] for kind in ("memory alarm", "disk full", "blocked publisher"))
    assert "(writer) of user 'root'" in found["blocked publisher"]["seen"]
    assert "memory_high_bytes" in found["memory alarm"]["next_step"]
    assert "disk_free_bytes_min" in found["disk full"]["next_step"]


def test_trouble_in_words(flintmq: Command, broker: BrokerProcess, connection: Connection) -> None:
    with connection.channel() as channel:
        channel.publish(b"x", "amq.topic", "nobody.wants.it")
        url = f"amqp://root:root@localhost:{broker.port}"
        said = flintmq(f"doctor --seconds 0 --password-in-url --url {url}")
        while not said.out.startswith("WARNING"):  # without a confirm the message is on its way
            said = flintmq(f"doctor --seconds 0 --password-in-url --url {url}")
    assert said.status == 6
    assert said.lines[0].startswith("WARNING  unroutable messages: 1 messages went nowhere")
    assert said.lines[1].startswith("  why:   no queue is bound")
    assert said.lines[2].startswith("  next:  compare with: flintmq bindings")
