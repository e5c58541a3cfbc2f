"""Requests to the exchange `amq.system`: what is asked, what is answered, and who may ask."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from playbook.dialogue import Carried, Client, Playbook, carrying
from playbook.hourglass import TimedPlaybook

from flintmq.broker.channels.host_tally import QueueCounts
from flintmq.broker.messages.message import Message
from flintmq.broker.services import request as requests
from flintmq.broker.services import system_services
from flintmq.broker.services.request import (
    PATIENT_MAX,
    REQUESTS_WAITING_MAX,
    SERVICES,
    STEP_ROWS,
    Request,
    service,
)
from flintmq.broker.store import topology_records
from flintmq.broker.virtual_host import VirtualHost
from flintmq.clock import Clock
from flintmq.config import Config, parse
from flintmq.server.data_directory import recovered_broker
from flintmq.storage.disk import Disk
from flintmq.storage.options import JournalOptions
from flintmq.wire import methods
from flintmq.wire.methods import (
    BasicConsume,
    BasicPublish,
    ChannelClose,
    ExchangeDeclare,
    ExchangeDelete,
    QueueBind,
)
from flintmq.wire.tables import FieldTable

SETTINGS = """
[users.boss]
password = "boss"
tags = ["monitoring"]
permissions."/" = {configure = ".*", write = ".*", read = ".*"}
[users.clerk]
password = "clerk"
permissions."/" = {configure = "^mine", write = "^(mine.*|amq.system|amq.default)$", read = "^mine"}
[users.mute]
password = "mute"
permissions."/" = {configure = "^mine", write = "^(mine.*|amq.system)$", read = "^mine"}
"""


def reply_queue(client: Client, name: str = "mine") -> str:
    client.declares(name, exclusive=True)
    client.consumes(name, "replies", no_ack=True)
    return name


def request(client: Client, name: str, body: bytes = b"", reply_to: str = "mine", **arguments: Any) -> None:
    headers = {argument.replace("_", "-"): value for argument, value in arguments.items()}
    client >> carrying(
        BasicPublish(exchange="amq.system", routing_key=name),
        body,
        headers=headers,
        reply_to=reply_to,
        correlation_id="c1",
    )


def answer(client: Client) -> FieldTable:
    heard = client.next(1)
    assert isinstance(heard, Carried), heard
    assert isinstance(heard.method, methods.BasicDeliver), heard
    assert heard.properties.correlation_id == "c1"
    assert heard.properties.headers is not None
    return heard.properties.headers


def ask(client: Client, name: str, **arguments: Any) -> FieldTable:
    request(client, name, **arguments)
    return answer(client)


def names(results: FieldTable) -> list[Any]:
    rows = results["rows"]
    assert isinstance(rows, list)
    return [row["name"] for row in rows if isinstance(row, dict)]


def test_broker_info(client: Client) -> None:
    reply_queue(client)
    told = ask(client, "broker.info")
    assert told["product"] == "FlintMQ"
    assert told["protocols"] == ["0-8", "0-9", "0-9-1", "Fast 0.8", "Fast 0.9"]
    assert (told["queues"], told["consumers"], told["connections"], told["channels"]) == (1, 1, 1, 1)
    assert isinstance(told["uptime-ms"], int)
    assert told["uptime-ms"] >= 0


def test_broker_info_counts_many_queues_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    count = system_services.count

    def noted(host: VirtualHost, counts: QueueCounts, now_ms: int) -> Iterator[None]:
        counted.append(now_ms)
        return count(host, counts, now_ms)

    monkeypatch.setattr(system_services, "COUNTED", 4)
    monkeypatch.setattr(system_services, "count", noted)
    playbook = TimedPlaybook()
    first, second = playbook.client(), playbook.client()
    reply_queue(first, "mine")
    first.declares("q")
    for _ in range(2):
        first.publishes("q", b"few queues are counted at each request")
        told = ask(first, "broker.info")
    assert (told["messages-ready"], told["counted-ms"], counted) == (2, told["now-ms"], [])
    reply_queue(second, "yours")
    for number in range(10):
        first.declares(f"q{number}")
    with playbook.one_pass():
        for _ in range(20):
            request(first, "broker.info")
        request(second, "broker.info", reply_to="yours")
    for client in [first] * 20 + [second]:
        told = answer(client)
        assert (told["queues"], told["messages-ready"], told["consumers"]) == (13, 2, 2)
    assert len(counted) == 1
    first.publishes("q0", b"not counted yet")
    playbook.passes(999)
    assert ask(first, "broker.info")["messages-ready"] == 2
    playbook.passes(1)
    told = ask(first, "broker.info")
    assert (told["messages-ready"], told["counted-ms"], len(counted)) == (3, told["now-ms"], 2)


@pytest.mark.parametrize("waits", [False, True], ids=["who counts", "who waits for another's count"])
def test_broker_info_of_a_count_that_takes_more_than_a_second(
    monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """As where passes are long, or have many chores: it is old when it ends, and what there is to tell."""
    playbook = TimedPlaybook()
    clients = [playbook.client() for _ in range(1 + waits)]
    for index, client in enumerate(clients):
        reply_queue(client, f"mine{index}")
    for number in range(10):
        clients[0].declares(f"q{number}")
    counted: list[int] = []
    count = system_services.count

    def slow(host: VirtualHost, counts: QueueCounts, now_ms: int) -> Iterator[None]:
        for _ in count(host, counts, now_ms):
            counted.append(now_ms)
            assert len(counted) < 10, "it begins again and again"
            playbook.clock.now_s += 1
            yield

    monkeypatch.setattr(system_services, "COUNTED", 4)
    monkeypatch.setattr(system_services, "count", slow)
    began_ms = playbook.broker.timetable.now_ms()
    with playbook.one_pass():
        for index, client in enumerate(clients):
            request(client, "broker.info", reply_to=f"mine{index}")
    for client in clients:
        told = answer(client)
        assert (told["consumers"], told["counted-ms"]) == (len(clients), began_ms)


class LongestCondition:
    """A process of which there is as much to tell as there can be."""

    def condition(self) -> FieldTable:
        number, path = 2**62, "/" + 15 * ("directory" * 28 + "/")
        disk = f"{path} has {number} octets free, less than the {number} of disk_free_bytes_min"
        memory = f"low on memory: {number} MiB used of {number} MiB allowed"
        counts = (
            "handshakes", "handshakes-late", "handshakes-displaced", "refused-address", "refused-banned",
            "refused-full", "connections", "connections-max", "refused-busy", "logins-waiting",
            "failed-logins", "bans",
        )  # fmt: skip
        return {
            "alarms": [{"resource": "memory", "reason": memory}, {"resource": "disk", "reason": disk}],
            "memory-bytes": number,
            "memory-bytes-high": number,
            "connections-blocked": number,
            "strangers": dict.fromkeys(counts, number),
            "certificates": [
                {"certificate": f"{path}{day}.pem", "ends-ms": number - day, "days-left": number}
                for day in range(50)
            ],
            "unreadable-count": number,
            "log-fault": "x" * 100,
            "unreadable": ["x" * 120] * 7,  # 8 without a log-fault
            "disk-bytes": number,
            "disk-bytes-free-min": number,
            "disk-bytes-free": number,
        }


def test_broker_info_fits_in_the_smallest_frame() -> None:
    user, host = "u" * 255, "h" * 255
    settings = (
        f'virtual_hosts = ["{host}"]\n[users.{user}]\npassword = "p"\n'
        f'permissions."{host}" = {{configure = ".*", write = ".*", read = ".*"}}\n'
    )
    playbook = Playbook(parse(settings))
    playbook.broker.process = LongestCondition()  # type: ignore[assignment]
    playbook.broker.administration.parameters.set("", "global", "cluster_name", "n" * 60_000)
    client = playbook.client(virtual_host=host, frame_max=4096, user=user, password="p")
    reply_queue(client)
    client >> carrying(
        BasicPublish(exchange="amq.system", routing_key="broker.info"),
        b"",
        reply_to="mine",
        correlation_id="c" * 255,
    )
    heard = client.next(1)
    assert isinstance(heard, Carried)
    told: Any = heard.properties.headers
    assert told.get("error-text") is None
    ends = [row["certificate"][-6:] for row in told["certificates"]]
    assert ends == ["49.pem", "48.pem", "47.pem", "46.pem"]  # those that end first
    assert told["alarms"][1]["reason"].startswith("/directory")
    assert told["alarms"][1]["reason"].endswith("disk_free_bytes_min")


def test_every_service_has_a_line_of_help(client: Client) -> None:
    reply_queue(client)
    rows = ask(client, "broker.services")["rows"]
    assert isinstance(rows, list)
    assert {"broker.info", "queue.list", "connection.list"} <= {row["name"] for row in rows}  # type: ignore[index,call-overload]
    assert all(row["help"] for row in rows)  # type: ignore[index,call-overload]


def test_lists_come_in_pages(client: Client) -> None:
    reply_queue(client)
    for number in range(5):
        client >> methods.QueueDeclare(queue=f"q{number}", no_wait=True)
    first = ask(client, "queue.list", limit=2)
    assert names(first) == ["mine", "q0"]
    assert first["next"] == "q0"
    second = ask(client, "queue.list", limit=4, after="q0")
    assert names(second) == ["q1", "q2", "q3", "q4"]
    assert "next" not in second


def test_readers_with_leases_are_counted(client: Client) -> None:
    reply_queue(client)
    client.declares("q")
    assert "leases" not in ask(client, "queue.info", queue="q")
    ask(client, "queue.lease", queue="q", consumer="nightly", claim=True, max_rows=1)
    assert ask(client, "queue.info", queue="q")["leases"] == 1


@pytest.mark.parametrize("name", ["queue.lease", "lease.renew"])
def test_so_many_readers_of_one_connection_wait_for_messages(name: str) -> None:
    playbook = TimedPlaybook()
    client, other = playbook.client(), playbook.client()
    reply_queue(client)
    client.declares("q")
    epoch = ask(client, "queue.lease", queue="q", consumer="c", claim=True)["epoch"]
    for _ in range(PATIENT_MAX):
        request(client, name, queue="q", consumer="c", epoch=epoch, wait_ms=10_000)
    refused = ask(client, name, queue="q", consumer="c", epoch=epoch, wait_ms=10_000)
    assert refused["error-code"] == 506
    assert "256 requests of this connection wait" in str(refused["error-text"])
    assert "error-code" not in ask(client, name, queue="q", consumer="c", epoch=epoch)
    patient = playbook.broker.clients.patient
    assert [len(each) for each in patient.values()] == [PATIENT_MAX]
    other.publishes("q", b"1")
    for _ in range(PATIENT_MAX):
        playbook.passes(20)
    for _ in range(PATIENT_MAX):
        assert "error-code" not in answer(client)
    assert not patient
    playbook.end()


def test_readers_of_a_connection_that_ends_wait_no_longer() -> None:
    playbook = TimedPlaybook()
    client = playbook.client()
    reply_queue(client)
    client.declares("q")
    epoch = ask(client, "queue.lease", queue="q", consumer="c", claim=True)["epoch"]
    for _ in range(10):
        request(client, "lease.renew", queue="q", consumer="c", epoch=epoch, wait_ms=10_000)
    client.session.release()
    assert not playbook.broker.clients.patient
    playbook.passes(20)
    playbook.passes(20)
    assert len(playbook.broker.timetable.alarms) <= 1, "the end of the lease"
    playbook.end()


def test_a_page_fits_in_a_frame(playbook: Playbook) -> None:
    client = playbook.client(frame_max=4096)
    reply_queue(client)
    for number in range(60):
        client >> methods.QueueDeclare(queue=f"{number:03}" + "q" * 200, no_wait=True)
    found: list[Any] = []
    after = ""
    while True:
        told = ask(client, "queue.list", after=after)
        found += names(told)
        if "next" not in told:
            break
        after = str(told["next"])
    assert len(found) == 61
    assert found == sorted(found)


def test_arguments_that_fit_in_no_frame_are_left_out(playbook: Playbook) -> None:
    client, other = playbook.client(frame_max=4096), playbook.client()
    reply_queue(client)
    other >> methods.ExchangeDeclare(
        exchange="big", type="fanout", arguments={"x-note": "n" * 10_000}, no_wait=True
    )
    rows = ask(client, "exchange.list", after="amq.topic", limit=1)["rows"]
    assert isinstance(rows, list)
    assert isinstance(rows[0], dict)
    assert rows[0]["name"] == "big"
    assert rows[0]["arguments-left-out"] is True
    assert "arguments" not in rows[0]


def test_queue_info(client: Client) -> None:
    reply_queue(client)
    told = ask(client, "queue.info", queue="mine")
    assert (told["exclusive"], told["consumers"], told["messages-ready"]) == (True, 1, 0)
    assert ask(client, "queue.info", queue="none")["error-code"] == 404


def test_exchanges_and_bindings(client: Client) -> None:
    reply_queue(client)
    client >> QueueBind(queue="mine", exchange="amq.direct", routing_key="k", no_wait=True)
    assert "amq.system" in names(ask(client, "exchange.list"))
    rows = ask(client, "binding.list", source="amq.direct")["rows"]
    expected = {
        "source": "amq.direct",
        "destination": "mine",
        "destination-type": "queue",
        "routing-key": "k",
        "arguments": {},
    }
    assert rows == [expected]
    assert ask(client, "binding.list", source="none")["error-code"] == 404


def test_tags_of_a_channel_are_sorted_once_for_a_list(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many portions the list takes: few of the channel's consumers may be of the queue."""
    reply_queue(client)
    client.declares("other")
    for number in range(10 * STEP_ROWS):
        client >> BasicConsume(queue="other", consumer_tag=f"c{number}", no_wait=True)
    lengths = []

    def counted(items: Iterable[Any], **how: Any) -> list[Any]:
        ordered = sorted(items, **how)
        lengths.append(len(ordered))
        return ordered

    monkeypatch.setattr(system_services, "sorted", counted, raising=False)
    rows = ask(client, "consumer.list", queue="mine")["rows"]
    assert isinstance(rows, list)
    assert len(rows) == 1
    assert lengths.count(10 * STEP_ROWS + 1) == 1


def test_consumers_and_connections(client: Client) -> None:
    reply_queue(client)
    rows = ask(client, "consumer.list", queue="mine")["rows"]
    assert isinstance(rows, list)
    assert isinstance(rows[0], dict)
    assert (rows[0]["consumer-tag"], rows[0]["queue"], rows[0]["no-ack"]) == ("replies", "mine", True)
    rows = ask(client, "connection.list")["rows"]
    assert isinstance(rows, list)
    assert isinstance(rows[0], dict)
    assert (rows[0]["user"], rows[0]["protocol"], rows[0]["channels"]) == ("guest", "0-9-1", 1)


def test_channels_with_what_they_hold(client: Client) -> None:
    reply_queue(client)
    client.declares("work")
    client >> methods.BasicQos(prefetch_count=7)
    client << methods.BasicQosOk()
    client >> carrying(BasicPublish(exchange="", routing_key="nowhere"), b"a")
    client >> carrying(BasicPublish(exchange="", routing_key="work"), b"a")
    client >> methods.BasicGet(queue="work")
    assert isinstance(client.next(1), Carried)
    rows = ask(client, "channel.list")["rows"]
    assert isinstance(rows, list)
    (row,) = rows
    assert isinstance(row, dict)
    assert (row["channel"], row["unacked"], row["unrouted"], row["prefetch-count"]) == (1, 1, 1, 7)
    assert (row["consumers"], row["user"], row["virtual-host"], row["flow"]) == (1, "guest", "/", True)
    assert "next" not in ask(client, "channel.list", after="0000000001 00001")


def test_how_many_messages_came_to_a_queue(client: Client) -> None:
    reply_queue(client)
    client.declares("plain")
    client.declares("ranked", arguments={"x-max-priority": 3})
    for priority in (0, 3, 3):
        for queue in ("plain", "ranked"):
            client >> carrying(BasicPublish(exchange="", routing_key=queue), b"a", priority=priority)
    for queue in ("plain", "ranked"):
        client >> methods.BasicGet(queue=queue, no_ack=True)
        assert isinstance(client.next(1), Carried)
        told = ask(client, "queue.info", queue=queue)
        assert (told["messages-entered"], told["messages-ready"]) == (3, 2)


def test_a_connection_is_closed_by_its_user_or_an_administrator() -> None:
    playbook = TimedPlaybook(
        parse(
            SETTINGS + '[users.root]\npassword = "root"\ntags = ["administrator"]\n'
            'permissions."/" = {configure = ".*", write = ".*", read = ".*"}\n'
        )
    )
    boss, clerk, root = (playbook.client(user=name, password=name) for name in ("boss", "clerk", "root"))
    reply_queue(clerk)
    reply_queue(root, "of-root")
    numbers = {row["user"]: row["number"] for row in ask(root, "connection.list", reply_to="of-root")["rows"]}  # type: ignore[union-attr,index,call-overload]
    refused = ask(clerk, "connection.close", number=numbers["boss"])
    assert refused["error-code"] == 404
    assert ask(root, "connection.close", reply_to="of-root", number=99)["error-code"] == 404
    assert ask(root, "connection.close", reply_to="of-root", number=numbers["boss"], reason="bye") == {}
    closed = boss.next(0)
    assert isinstance(closed, methods.ConnectionClose)
    assert (closed.reply_code, closed.reply_text) == (320, "CONNECTION_FORCED - bye")
    assert ask(clerk, "connection.close", number=numbers["clerk"]) == {}
    playbook.passes(10)
    assert isinstance(clerk.next(0), methods.ConnectionClose)
    playbook.end()


def test_connections_everywhere() -> None:
    playbook = Playbook(
        parse('virtual_hosts = ["/", "other"]\n' + SETTINGS + 'permissions.other = {read = ".*"}\n')
    )
    mute = playbook.client(user="mute", password="mute", virtual_host="other")
    boss = playbook.client(user="boss", password="boss")
    reply_queue(boss)
    for service_name in ("connection.list", "channel.list"):
        assert len(ask(boss, service_name)["rows"]) == 1  # type: ignore[arg-type]
        found = ask(boss, service_name, everywhere=True)["rows"]
        assert [row["virtual-host"] for row in found] == ["other", "/"]  # type: ignore[union-attr,index,call-overload]
    assert mute
    playbook.end()


def test_a_channel_knows_what_it_published_to_nowhere(client: Client) -> None:
    reply_queue(client)
    client.declares("other")
    for key in ("none", "other", "none"):
        client >> carrying(BasicPublish(exchange="", routing_key=key), b"a")
    client >> carrying(BasicPublish(exchange="", routing_key="none", mandatory=True), b"a")
    client >> carrying(BasicPublish(exchange="", routing_key="none", immediate=True), b"a")
    returned = client.next(1)
    assert isinstance(returned, Carried)
    assert isinstance(returned.method, methods.BasicReturn)
    told = ask(client, "channel.info", channel=1)
    assert (told["channel"], told["unrouted"], told["consumers"]) == (1, 4, 1)
    assert ask(client, "channel.info", channel=2)["error-code"] == 404
    assert ask(client, "channel.info", channel=70_000)["error-code"] == 406


def test_each_sees_what_is_theirs() -> None:
    playbook = Playbook(parse(SETTINGS))
    boss, clerk = (
        playbook.client(user="boss", password="boss"),
        playbook.client(user="clerk", password="clerk"),
    )
    reply_queue(boss, "of-boss")
    reply_queue(clerk)
    told = ask(clerk, "connection.list")["rows"]
    assert isinstance(told, list)
    assert len(told) == 1
    assert names(ask(clerk, "queue.list")) == ["mine"]
    assert ask(clerk, "queue.info", queue="of-boss")["error-code"] == 403
    told = ask(boss, "connection.list", reply_to="of-boss")["rows"]
    assert isinstance(told, list)
    assert len(told) == 2
    playbook.end()


def test_a_reply_is_a_message_that_the_asker_may_send() -> None:
    playbook = Playbook(parse(SETTINGS))
    boss, mute = playbook.client(user="boss", password="boss"), playbook.client(user="mute", password="mute")
    reply_queue(boss, "of-boss")
    reply_queue(mute)
    assert ask(mute, "broker.info")["user"] == "mute"  # its own exclusive queue is always fine
    request(mute, "broker.info", reply_to="of-boss")
    assert mute.hears(ChannelClose).reply_code == 403


def test_unknown_service(client: Client) -> None:
    reply_queue(client)
    told = ask(client, "no.such")
    assert told["error-code"] == 404
    assert "no.such" in str(told["error-text"])
    client >> carrying(BasicPublish(exchange="amq.system", routing_key="no.such", mandatory=True), b"?")
    returned = client.next(1)
    assert isinstance(returned, Carried)
    assert isinstance(returned.method, methods.BasicReturn)
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    client >> carrying(BasicPublish(exchange="amq.system", routing_key="no.such"), b"?")


@pytest.mark.parametrize(
    ("name", "arguments", "named"),
    [
        ("queue.list", {"limit": 0}, "limit"),
        ("queue.list", {"limit": "1"}, "limit"),
        ("queue.list", {"limit": True}, "limit"),
        ("queue.list", {"after": 1}, "after"),
        ("queue.info", {}, "queue"),
        ("queue.info", {"queue": b"\xff"}, "queue"),
    ],
)
def test_a_bad_argument_is_named(client: Client, name: str, arguments: FieldTable, named: str) -> None:
    reply_queue(client)
    told = ask(client, name, **arguments)
    assert told["error-code"] == 406
    assert f"'{named}'" in str(told["error-text"])


def test_nobody_need_hear_the_answer(client: Client) -> None:
    request(client, "broker.info", reply_to="")
    request(client, "broker.info", reply_to="gone")


def test_the_exchange_is_the_brokers_own(client: Client) -> None:
    client >> ExchangeDeclare(exchange="amq.system", type="system", durable=True)
    client << methods.ExchangeDeclareOk()
    client >> ExchangeDelete(exchange="amq.system")
    assert client.hears(ChannelClose).reply_code == 403
    for method, code in (
        (ExchangeDeclare(exchange="amq.system", type="topic", durable=True), 406),
        (methods.ExchangeBind(source="amq.system", destination="amq.topic"), 403),
    ):
        client >> methods.ChannelCloseOk()
        client >> methods.ChannelOpen()
        client << methods.ChannelOpenOk()
        client >> method
        assert client.hears(ChannelClose).reply_code == code


def test_further_exchanges_answer_requests(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    client = guest_of(broker)
    client >> ExchangeDeclare(exchange="realm", type="system", durable=True)
    client << methods.ExchangeDeclareOk()
    shut(broker)
    broker = opened(tmp_path)
    client = guest_of(broker)
    properties = {"reply_to": "mine", "correlation_id": "c1"}
    client >> carrying(BasicPublish(exchange="realm", routing_key="broker.info"), b"", **properties)
    assert "version" in answer(client)
    client >> methods.ExchangeBind(source="amq.fanout", destination="realm")
    client << methods.ExchangeBindOk()
    over = BasicPublish(exchange="amq.fanout", routing_key="broker.info", mandatory=True)
    client >> carrying(over, b"", **properties)
    returned = client.next(1)
    assert isinstance(returned, Carried)
    assert isinstance(returned.method, methods.BasicReturn), "it is no request to this exchange"
    client >> ExchangeDelete(exchange="realm")
    client << methods.ExchangeDeleteOk()
    shut(broker)


def test_who_may_not_ask_may_not_declare_a_way_to_ask() -> None:
    playbook = Playbook(parse(SETTINGS.replace("^(mine.*|amq.system)$", "^mine")))
    mute = playbook.client(user="mute", password="mute")
    mute >> ExchangeDeclare(exchange="mine", type="system")
    close = mute.hears(ChannelClose)
    assert close.reply_code == 403
    assert "amq.system" in close.reply_text


def test_a_bug_in_a_service_is_an_answer(client: Client, services_of_test: None) -> None:
    @service("test.broken")
    def broken(request: Request) -> None:
        raise KeyError("oops")

    reply_queue(client)
    assert ask(client, "test.broken")["error-code"] == 541


def test_an_answer_may_come_later_but_once(
    client: Client, playbook: Playbook, services_of_test: None
) -> None:
    asked: list[Request] = []

    @service("test.later")
    def later(request: Request) -> None:
        asked.append(request)

    reply_queue(client)
    request(client, "test.later", b"body")
    assert asked[0].body == b"body"
    asked[0].reply({"done": True})
    playbook.finish_pass()
    assert answer(client) == {"done": True}
    with pytest.raises(Exception, match="twice"):
        asked[0].reply({})


def test_the_name_system_is_free_for_applications(client: Client) -> None:
    client >> carrying(BasicPublish(exchange="system", routing_key="broker.info"), b"?")
    assert client.hears(ChannelClose).reply_code == 404
    client >> methods.ChannelCloseOk()
    client >> methods.ChannelOpen()
    client << methods.ChannelOpenOk()
    client >> ExchangeDeclare(exchange="system", type="topic")
    client << methods.ExchangeDeclareOk()
    client >> ExchangeDelete(exchange="system")
    client << methods.ExchangeDeleteOk()


@pytest.fixture
def old_directory(tmp_path: Path) -> Path:
    """A data directory as it was left when requests went to the exchange `system`."""
    broker = opened(tmp_path)
    broker.store.journal.delete_value(topology_records.NAMES)
    broker.virtual_hosts["/"].declare_queue("old", True, False, False, {}, 0)
    shut(broker)
    return tmp_path


def opened(directory: Path) -> Any:
    options = JournalOptions(threaded=False)
    return recovered_broker(Config(), Clock(), lambda: None, str(directory), Disk(), options)[0]


def shut(broker: Any) -> None:
    broker.streams.close()
    broker.store.close()


def guest_of(broker: Any) -> Client:
    playbook = Playbook()
    playbook.broker = broker
    client = playbook.client()
    reply_queue(client)
    return client


def test_an_old_directory_answers_by_the_former_name_too(old_directory: Path) -> None:
    broker = opened(old_directory)
    client = guest_of(broker)
    client >> ExchangeDeclare(exchange="system", passive=True)
    client << methods.ExchangeDeclareOk()
    for exchange in ("system", "amq.system"):
        properties = {"reply_to": "mine", "correlation_id": "c1"}
        client >> carrying(BasicPublish(exchange=exchange, routing_key="broker.info"), b"", **properties)
        assert "version" in answer(client)
    client >> ExchangeDelete(exchange="system")
    assert client.hears(ChannelClose).reply_code == 403
    shut(broker)


def test_an_application_takes_the_former_name_for_good(old_directory: Path) -> None:
    broker = opened(old_directory)
    client = guest_of(broker)
    client >> ExchangeDeclare(exchange="system", type="fanout", durable=True)
    client << methods.ExchangeDeclareOk()
    client >> QueueBind(queue="old", exchange="system")
    client << methods.QueueBindOk()
    shut(broker)
    broker = opened(old_directory)
    client = guest_of(broker)
    client.publishes("broker.info", b"for the application", exchange="system")
    assert client.gets("old") == b"for the application"
    shut(broker)


def test_a_new_directory_has_the_new_name_alone(tmp_path: Path) -> None:
    for _ in range(2):
        broker = opened(tmp_path)
        assert "amq.system" in broker.virtual_hosts["/"].exchanges
        assert "system" not in broker.virtual_hosts["/"].exchanges
        broker.virtual_hosts["/"].declare_queue("q", True, False, False, {}, 0)
        shut(broker)


def test_pages_go_on_from_a_place_while_names_come_and_go() -> None:
    playbook = Playbook(parse(SETTINGS))
    client = playbook.client(user="boss", password="boss")
    reply_queue(client)
    for number in range(0, 200, 2):
        client.declares(f"q{number:03}")
        client >> QueueBind(
            queue=f"q{number:03}", exchange="amq.direct", routing_key=str(number), no_wait=True
        )
    seen: list[str] = []
    after = ""
    while True:
        page = ask(client, "queue.list", limit=7, after=after)
        rows = page["rows"]
        assert isinstance(rows, list)
        seen += [str(row["name"]) for row in rows if isinstance(row, dict)]
        if "next" not in page:
            break
        after = str(page["next"])
        client >> methods.QueueDelete(queue=after, no_wait=True)  # where the next page goes on
        client.declares(f"{after}+")
    assert seen == sorted(set(seen))
    assert {f"q{number:03}" for number in range(0, 200, 2)} <= set(seen)


def test_bindings_go_on_from_a_place_while_they_come_and_go() -> None:
    playbook = Playbook(parse(SETTINGS))
    client = playbook.client(user="boss", password="boss")
    reply_queue(client)
    client.declares("q")
    for number in range(2000):
        client >> QueueBind(queue="q", exchange="amq.direct", routing_key=str(number), no_wait=True)
        client >> QueueBind(queue="mine", exchange="amq.topic", routing_key=str(number), no_wait=True)
    keys: list[str] = []
    after = ""
    while True:
        page = ask(client, "binding.list", limit=300, after=after, destination="q")
        rows = page["rows"]
        assert isinstance(rows, list)
        keys += [str(row["routing-key"]) for row in rows if isinstance(row, dict)]
        if "next" not in page:
            break
        after = str(page["next"])
        client >> methods.QueueUnbind(queue="q", exchange="amq.direct", routing_key=keys[-1])
        client.hears(methods.QueueUnbindOk)
    assert keys == [str(number) for number in range(2000)]
    [row] = ask(client, "binding.list", limit=1, source="amq.topic")["rows"]  # type: ignore[misc]
    assert isinstance(row, dict)
    assert row["source"] == "amq.topic"
    assert ask(client, "binding.list", after="nonsense")["error-code"] == 406


def test_requests_take_turns_and_those_of_a_connection_keep_their_order() -> None:
    served: list[str] = []

    def slow(request: Request) -> Iterator[None]:
        for _ in range(100):
            yield
        served.append(request.text("mark"))
        request.reply({})

    SERVICES["test.slow"] = slow
    try:
        playbook = Playbook(parse(SETTINGS))
        first = playbook.client(user="boss", password="boss")
        second = playbook.client(user="boss", password="boss")
        pass_work = playbook.broker.pass_work
        with playbook.one_pass():
            for number in range(5):
                request(first, "test.slow", reply_to="", mark=f"first {number}")
            request(second, "test.slow", reply_to="", mark="second 0")
            assert served == []
            assert sorted(map(len, pass_work.asking.values())) == [1, 5]
        assert [name for name in served if name.startswith("first")] == [f"first {n}" for n in range(5)]
        assert served.index("second 0") < 3
        assert not pass_work.asking
        with playbook.one_pass():
            for _ in range(REQUESTS_WAITING_MAX + 1):
                request(first, "test.slow", reply_to="", mark="again")
            assert [len(each) for each in pass_work.asking.values()] == [REQUESTS_WAITING_MAX]
    finally:
        del SERVICES["test.slow"]


def test_the_files_of_the_package_are_not_looked_for_at_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked_for(package: object = None) -> list[str]:
        raise AssertionError("it takes milliseconds")

    monkeypatch.setattr("flintmq.build.compiled_modules", looked_for)
    client = Playbook(parse(SETTINGS)).client(user="boss", password="boss")
    reply_queue(client)
    assert ask(client, "broker.info")["build"] in ("pure", "compiled")


def test_a_connection_that_only_asks_does_not_publish() -> None:
    client = Playbook(parse(SETTINGS)).client(user="boss", password="boss")
    reply_queue(client)
    request(client, "broker.info")
    answer(client)
    assert not client.session.is_publisher()
    frames = client.frames(
        1, carrying(BasicPublish(exchange="amq.system", routing_key="broker.info"), b"body")
    )
    client >> frames[:-3]  # in pieces: the content is not all there
    assert client.session.connection.has_content
    assert not client.session.is_publisher()
    client >> frames[-3:]
    assert not client.session.is_publisher()
    frames = client.frames(1, carrying(BasicPublish(exchange="amq.direct", routing_key="k"), b"body"))
    client >> frames[:-3]
    assert client.session.is_publisher()
    client >> frames[-3:]
    assert client.session.is_publisher()


def test_a_module_of_services_that_cannot_be_loaded_leaves_the_others(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "broken_services_of_test.py").write_text("raise RuntimeError('a bug')")
    (tmp_path / "further_services_of_test.py").write_text("IS_LOADED = True")
    monkeypatch.syspath_prepend(tmp_path)
    requests.load_services()
    monkeypatch.setattr(requests, "LATER", ["broken_services_of_test", "further_services_of_test"])
    reply_queue(client)
    for _ in range(2):
        assert "version" in ask(client, "broker.info")
    assert sys.modules.pop("further_services_of_test").IS_LOADED
    assert [record.getMessage() for record in caplog.records] == [
        "the services of broken_services_of_test are missing: it cannot be loaded"
    ]


def test_services_of_a_module_that_memory_ended_half_way_are_all_known_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, services_of_test: None
) -> None:
    (tmp_path / "starved_services_of_test.py").write_text(
        """
from flintmq.broker.services import request

@request.service("starved.first")
def first(asked):
    return second(asked)

if not request.SERVICES["starved.fed"]:
    raise MemoryError

@request.service("starved.second")
def second(asked):
    return "done"
"""
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(requests, "LATER", ["starved_services_of_test"])
    monkeypatch.setitem(requests.SERVICES, "starved.fed", cast("Any", None))
    requests.load_services()
    monkeypatch.setitem(requests.SERVICES, "starved.fed", lambda asked: None)
    requests.load_services()
    assert not requests.LATER
    sys.modules.pop("starved_services_of_test")
    asked: Any = None
    assert requests.SERVICES["starved.second"](asked) == "done"  # type: ignore[comparison-overlap]
    assert requests.SERVICES["starved.first"](asked) == "done"  # type: ignore[comparison-overlap]


def test_a_request_whose_answer_cannot_be_sent_keeps_no_other_from_being_served(
    playbook: Playbook, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those behind it were forgotten."""
    reply_queue(client)
    send = Request.send
    sent: list[str] = []

    def fails_once(asked: Request, answer: Message) -> None:
        sent.append(asked.name)
        if len(sent) == 1:
            raise RuntimeError("a bug")
        send(asked, answer)

    monkeypatch.setattr(Request, "send", fails_once)
    monkeypatch.setattr(playbook.broker.pass_work.chores, "credit_s", -1.0)
    monkeypatch.setattr(playbook.broker.pass_work.chores, "pass_s", -1.0)
    with playbook.one_pass():
        for _ in range(3):
            request(client, "no.such.service")
    for _ in range(2):
        assert answer(client)["error-code"] == 404
    assert not playbook.broker.pass_work.asking
