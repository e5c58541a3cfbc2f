"""A small company's broker for the console to show: exchanges, queues, users, and a little traffic."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pika
from management_http import Http
from pika.adapters.blocking_connection import BlockingChannel

EXCHANGES = {
    "orders": "topic",
    "payments": "direct",
    "notifications": "fanout",
    "documents": "headers",
    "dead-letters": "fanout",
}
DEAD = {"x-dead-letter-exchange": "dead-letters"}
QUEUES: dict[str, dict[str, Any]] = {
    "orders.europe": DEAD,
    "orders.overseas": DEAD,
    "orders.all": {"x-queue-type": "stream", "x-max-length-bytes": 500_000_000},
    "payments.capture": {**DEAD, "x-max-length": 50_000},
    "payments.refund": DEAD,
    "mail": {"x-message-ttl": 3_600_000},
    "sms": {},
    "invoices.print": {},
    "jobs.nightly": {},
    "dead-letters": {},
}
BINDINGS = [
    ("orders", "orders.europe", "order.eu.#"),
    ("orders", "orders.overseas", "order.us.#"),
    ("orders", "orders.overseas", "order.asia.#"),
    ("orders", "orders.all", "#"),
    ("payments", "payments.capture", "capture"),
    ("payments", "payments.refund", "refund"),
    ("notifications", "mail", ""),
    ("notifications", "sms", ""),
    ("dead-letters", "dead-letters", ""),
]
# Traffic rises and falls by these parts of its rate, in so many seconds, so that charts have a shape.
TIDES = ((0.45, 240.0), (0.15, 37.0), (0.06, 7.0))
REGIONS = ("eu.de", "eu.fr", "us.ny", "asia.jp")
# What is published, how often a second, and with which routing key for the n-th.
PUBLISHED: list[tuple[str, float, Callable[[int], str]]] = [
    ("orders", 60.0, lambda number: f"order.{REGIONS[number % 4]}.{number % 50}"),
    ("payments", 25.0, lambda number: "refund" if number % 9 == 0 else "capture"),
    ("notifications", 12.0, lambda number: ""),
]
# Consumed queues: messages in flight, and seconds for each.
CONSUMED = {
    "orders.europe": (20, 0.0),
    "orders.overseas": (50, 0.05),
    "payments.capture": (10, 0.0),
    "mail": (5, 0.0),
    "sms": (30, 0.2),
}


def declare(api: Http) -> None:
    """Everything but traffic, in the virtual host `/`."""
    for name, kind in EXCHANGES.items():
        api.ok("PUT", f"exchanges/%2F/{name}", {"type": kind, "durable": True})
    for name, arguments in QUEUES.items():
        api.ok("PUT", f"queues/%2F/{name}", {"durable": True, "arguments": arguments})
    for source, queue, key in BINDINGS:
        api.ok("POST", f"bindings/%2F/e/{source}/q/{queue}", {"routing_key": key, "arguments": {}})
    api.ok("POST", "bindings/%2F/e/orders/e/notifications", {"routing_key": "order.eu.de.7"})
    api.ok(
        "POST",
        "bindings/%2F/e/documents/q/invoices.print",
        {"routing_key": "", "arguments": {"x-match": "all", "type": "invoice"}},
    )
    api.ok("PUT", "vhosts/staging")
    api.ok("PUT", "users/alice", {"password": "alice-secret", "tags": "monitoring"})
    api.ok("PUT", "users/shop", {"password": "shop-secret", "tags": ""})
    api.ok("PUT", "permissions/%2F/alice", {"configure": "^$", "write": "^$", "read": ".*"})
    api.ok(
        "PUT", "permissions/%2F/shop", {"configure": "^orders", "write": "^(orders|payments)", "read": ".*"}
    )
    policy = {"pattern": "^(mail|sms)$", "definition": {"max-length": 100_000}, "apply-to": "queues"}
    api.ok("PUT", "policies/%2F/short-messages", {**policy, "priority": 5})
    api.ok(
        "PUT",
        "policies/%2F/lazy-jobs",
        {"pattern": "^jobs", "definition": {"message-ttl": 86_400_000}, "apply-to": "queues"},
    )
    api.ok("PUT", "vhost-limits/staging/max-queues", {"value": 500})


def many_queues(api: Http, count: int) -> None:
    """`count` queues in a virtual host of their own."""
    api.ok("PUT", "vhosts/many")
    connection = pika.BlockingConnection(pika.ConnectionParameters(port=api.amqp_port, virtual_host="many"))
    channel = connection.channel()
    for number in range(count):
        channel.queue_declare(f"device.{number:05d}", durable=True)
    connection.close()


def fill(api: Http, jobs: int = 20_000) -> None:
    """Backlogs, and some dead letters with their reasons."""
    connection = pika.BlockingConnection(pika.ConnectionParameters(port=api.amqp_port))
    channel = connection.channel()
    for number in range(jobs):
        body = json.dumps({"job": number, "report": "turnover", "region": REGIONS[number % 4]})
        properties = pika.BasicProperties(
            content_type="application/json", headers={"region": REGIONS[number % 4], "n": number}, priority=0
        )
        channel.basic_publish("", "jobs.nightly", body, properties)
    for number in range(40):
        body = json.dumps({"order": number, "customer": f"C-{number * 37 % 1000}"})
        properties = pika.BasicProperties(
            content_type="application/json", expiration="1" if number % 4 == 0 else None, delivery_mode=2
        )
        channel.basic_publish("payments", "refund", body, properties)
    # The queue has all of them once it has answered; those that do not expire are refused.
    channel.confirm_delivery()
    for method, _, _ in channel.consume("payments.refund", inactivity_timeout=0.5):
        if method is None:
            break
        channel.basic_reject(method.delivery_tag, requeue=False)
    connection.close()


@contextmanager
def traffic(port: int) -> Iterator[None]:
    """Publishers and consumers, until the end of the block."""
    ended = threading.Event()
    threads = [threading.Thread(target=_publish, args=(port, ended))]
    threads += [
        threading.Thread(target=_consume, args=(port, ended, queue, *how)) for queue, how in CONSUMED.items()
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def _connected(port: int, name: str) -> pika.BlockingConnection:
    parameters = pika.ConnectionParameters(port=port, client_properties={"connection_name": name})
    return pika.BlockingConnection(parameters)


def _publish(port: int, ended: threading.Event) -> None:
    connection = _connected(port, "web shop")
    channel: BlockingChannel = connection.channel()
    step_s, owed, numbers = 0.1, [0.0] * len(PUBLISHED), [0] * len(PUBLISHED)
    began_s = time.monotonic()
    while not ended.is_set():
        level = _tide(time.monotonic() - began_s)
        for place, (exchange, rate, key) in enumerate(PUBLISHED):
            owed[place] += rate * step_s * level
            while owed[place] >= 1:
                owed[place] -= 1
                numbers[place] += 1
                number = numbers[place]
                body = json.dumps({"number": number, "total": number * 7919 % 10_000 / 100}).encode()
                properties = pika.BasicProperties(
                    content_type="application/json", delivery_mode=2, message_id=f"{exchange}-{number}"
                )
                channel.basic_publish(exchange, key(number), body, properties)
        connection.process_data_events(time_limit=0)
        ended.wait(step_s)
    connection.close()


def _tide(elapsed_s: float) -> float:
    """What part of their rates the publishers send now."""
    return 1 + sum(part * math.sin(math.tau * elapsed_s / period_s) for part, period_s in TIDES)


def _consume(port: int, ended: threading.Event, queue: str, prefetch: int, pause_s: float) -> None:
    connection = _connected(port, f"{queue} worker")
    channel = connection.channel()
    channel.basic_qos(prefetch_count=prefetch)
    for method, _, _ in channel.consume(queue, inactivity_timeout=0.1):
        if ended.is_set():
            break
        if method is not None:
            if pause_s:
                connection.sleep(pause_s)
            channel.basic_ack(method.delivery_tag)
    channel.cancel()
    connection.close()
