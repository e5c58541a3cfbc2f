"""However much there is of what an administrator changes or deletes: the others are served meanwhile."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from peer import Peer, encode_frame
from stalls.scene import WAIT_MS_MAX, Scene, longest_wait_ms
from stalls.test_bystander import Work, ask, names

from flintmq.auth.passwords import hash_password_quickly
from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method, encode_method

HASH = hash_password_quickly(b"x").text()
EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}
# Requests that are sent together.
TOGETHER = 500
# Logins at a time.
LOGINS = 500


def listening(scene: Scene, **wishes: str) -> Peer:
    peer = scene.connect(**wishes)
    peer.call(1, methods.BasicConsume(queue="amq.rabbitmq.reply-to", no_ack=True))
    return peer


def ask_many(boss: Peer, service: str, requests: Iterable[dict[str, object]]) -> None:
    """Requests without answers, some at a time; they are done when it returns."""
    waiting = list(requests)
    for at in range(0, len(waiting), TOGETHER):
        with boss.together():
            for arguments in waiting[at : at + TOGETHER]:
                boss.publish(1, exchange="amq.system", key=service, headers=arguments)
        ask(boss, "channel.info")


def add_user(boss: Peer, name: str) -> None:
    ask(boss, "user.add", user=name, **{"password-hash": HASH})
    ask(boss, "permission.set", user=name, **{"virtual-host": "/"}, **EVERYTHING)


def user_delete(scene: Scene, count: int) -> Work:
    """With connections, each of which has an exclusive queue, and does not answer connection.close."""
    boss = listening(scene)
    add_user(boss, "ann")
    for start in range(0, count, LOGINS):
        for number in range(start, start + LOGINS):
            scene.sockets.append(quick_connection(scene.broker.port, number))
        while int(str(ask(boss, "broker.info")["queues"])) < start + LOGINS:
            pass

    def work() -> None:
        ask(boss, "user.delete", user="ann")
        while int(str(ask(boss, "broker.info")["queues"])) > 10:
            time.sleep(0.05)

    return work


def quick_connection(port: int, number: int) -> socket.socket:
    """All that a client says until it has a queue, in one go: thousands are there within seconds."""
    said: list[tuple[int, Method]] = [
        (0, methods.ConnectionStartOk(mechanism="ANONYMOUS", response=b"", locale="en_US")),
        (0, methods.ConnectionTuneOk(channel_max=1, frame_max=131_072, heartbeat=0)),
        (0, methods.ConnectionOpen(virtual_host="/")),
        (1, methods.ChannelOpen()),
        (1, methods.QueueDeclare(queue=f"q{number}", exclusive=True)),
    ]
    client = socket.socket()
    client.bind((f"127.1.{number // 250 % 250}.{number % 250 + 1}", 0))
    client.connect(("127.0.0.1", port))
    frames = [
        encode_frame(amqp.FRAME_METHOD, channel, encode_method(amqp.VERSION_0_9_1, method))
        for channel, method in said
    ]
    client.sendall(b"AMQP\x00\x00\x09\x01" + b"".join(frames))
    return client


def vhost_delete(scene: Scene, count: int) -> Work:
    boss = listening(scene)
    ask(boss, "vhost.add", **{"virtual-host": "v"})
    ask(boss, "permission.set", user="guest", **{"virtual-host": "v"}, **EVERYTHING)
    inside = scene.connect(virtual_host="v")
    scene.send(inside, (methods.QueueDeclare(queue=name, no_wait=True) for name in names("q", count)))

    def work() -> None:
        ask(boss, "vhost.delete", **{"virtual-host": "v"})
        while len(rows_of(boss, "vhost.list")) > 1:
            pass

    return work


def rows_of(boss: Peer, service: str) -> list[object]:
    rows = ask(boss, service)["rows"]
    assert isinstance(rows, list)
    return rows


def permissions_of_many(scene: Scene, count: int) -> Work:
    """Changes of permissions, of topic permissions, and all permissions of a virtual host that goes."""
    boss = listening(scene)
    ask(boss, "vhost.add", **{"virtual-host": "v"})
    users = names("u", count)
    ask_many(boss, "user.add", ({"user": name, "password-hash": HASH} for name in users))
    given = {"virtual-host": "v", "configure": "", "write": "^a", "read": ""}
    ask_many(boss, "permission.set", ({"user": name, **given} for name in users))
    assert len(rows_of(boss, "permission.list")) > 50

    def work() -> None:
        for name in users[:50]:
            ask(boss, "permission.set", user=name, **{"virtual-host": "/"}, **EVERYTHING)
            topics = {"virtual-host": "/", "exchange": "amq.topic", "write": "^a", "read": "^a"}
            ask(boss, "topic-permission.set", user=name, **topics)
            ask(boss, "permission.clear", user=name, **{"virtual-host": "/"})
        ask(boss, "vhost.delete", **{"virtual-host": "v"})
        while len(rows_of(boss, "vhost.list")) > 1:
            pass

    return work


@pytest.mark.parametrize(
    ("prepare", "count"),
    [(user_delete, 10_000), (vhost_delete, 100_000), (permissions_of_many, 10_000)],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_others_are_served_meanwhile(
    prepare: Callable[[Scene, int], Work],
    count: int,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    waited_ms = longest_wait_ms(prepare, count, tmp_path)
    record_property("longest wait", f"{waited_ms:.1f} ms beside {count}")
    assert waited_ms < WAIT_MS_MAX, f"{waited_ms:.1f} ms"
