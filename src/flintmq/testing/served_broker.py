"""A broker in a process of its own, and its virtual hosts, as a test sees and steers them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from flintmq.clock import Clock
from flintmq.testing.messages import SeenMessage
from flintmq.testing.sources import BrokerGone, Source

CLOCK = Clock()
HOST = "127.0.0.1"
WAIT_S = 10.0
# How often a broker is asked whether it is so far: each question takes less than a millisecond of it.
LOOK_S = 0.005
ALARM = "a test has raised an alarm"


class VirtualHost:
    """One virtual host of a broker: what happened there, and what is to fail there."""

    def __init__(self, broker: ServedBroker, name: str) -> None:
        self.broker = broker
        self._name: str | None = name

    @property
    def name(self) -> str:
        assert self._name is not None
        return self._name

    @property
    def uri(self) -> str:
        """An address with user and password."""
        return self.broker.uri_of(self.broker.user, virtual_host=self.name)

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        return self.broker.tell(command, virtual_host=self.name, **arguments)

    # What happened

    def published(self, count: int = 0, *, timeout_s: float = WAIT_S) -> list[SeenMessage]:
        """What clients have published, the oldest first, once there are `count` messages or more.

        A publish without confirms is on its way when the client goes on: so say how many there will be.
        """
        found: dict[str, Any] = {}

        def are_there() -> bool:
            found.update(self.ask("published"))
            if found["forgotten"]:
                raise OverflowError(
                    f"{found['forgotten']} messages are no longer kept: forget() them in time, or peek()"
                )
            return len(found["messages"]) >= count

        if not self.wait(are_there, timeout_s):
            raise TimeoutError(f"{len(found['messages'])} of {count} messages came within {timeout_s:g} s")
        return [SeenMessage(each) for each in found["messages"]]

    def peek(self, queue: str, limit: int = 100) -> list[SeenMessage]:
        """The messages that wait in a queue, the next first; they stay there."""
        return [SeenMessage(each) for each in self.ask("peek", queue=queue, limit=limit)["messages"]]

    def wait_until_empty(self, *queues: str, timeout_s: float = WAIT_S) -> None:
        """Until nothing waits in these queues, not for a retry either, and consumers have acked all; without
        names in all queues."""
        filled: dict[str, str] = {}

        def are_empty() -> bool:
            rows = {row["name"]: row for row in self.ask("queues")["queues"]}
            missing = [name for name in queues if name not in rows]
            if missing:
                raise LookupError(
                    f"no queue {missing[0]!r}: there are {', '.join(map(repr, rows)) or 'none'}"
                )
            filled.clear()
            for name in queues or rows:
                counts = {kind: rows[name][kind] for kind in ("ready", "unacked", "delayed")}
                if any(counts.values()):
                    told = ", ".join(f"{count} {kind}" for kind, count in counts.items())
                    filled[name] = f"{name!r} ({told})"
            return not filled

        if not self.wait(are_empty, timeout_s):
            raise TimeoutError(f"not empty after {timeout_s:g} s: {', '.join(filled.values())}")

    def unroutable(self) -> dict[tuple[str, str], int]:
        """How many messages came to no queue, by exchange and routing key."""
        rows = self.ask("left")["unroutable"]
        return {(row["exchange"], row["routing_key"]): row["count"] for row in rows}

    def unacked(self) -> dict[str, int]:
        """By queue: deliveries that nobody has acked, with those that have come back and wait there."""
        found: dict[str, int] = self.ask("left")["unacked"]
        return found

    def forget(self) -> None:
        """What was published until now is of no interest any more."""
        self.ask("forget")

    def leftovers(self) -> list[str]:
        """What a test may not have meant, in words: messages that came to no queue, and unacked ones."""
        lost = [
            f"{count} published to exchange {exchange!r} with key {key!r} came to no queue"
            for (exchange, key), count in self.unroutable().items()
        ]
        return lost + [f"{count} of queue {name!r} not acked" for name, count in self.unacked().items()]

    @staticmethod
    def wait(condition: Callable[[], bool], timeout_s: float) -> bool:
        until_s = CLOCK.monotonic_s() + timeout_s
        while not condition():
            if CLOCK.monotonic_s() > until_s:
                return False
            CLOCK.sleep(LOOK_S)
        return True

    # What is to fail

    def drop_connections(self, *, user: str | None = None, name: str | None = None) -> int:
        """Ends connections as a failing network does, without a word; how many.

        Those of a `user`, or of clients that gave `name` as their connection_name, alone.
        """
        dropped: int = self.ask("drop_connections", user=user, name=name)["dropped"]
        return dropped

    def nack_publishes(self, count: int | None = None) -> None:
        """The next `count` publishes on channels with confirms get basic.nack; without a count, all."""
        if count is not None and count < 0:
            raise ValueError(f"{count} publishes cannot be refused: give a number from 0 on")
        self.ask("nack_publishes", count=-1 if count is None else count)

    def delay_confirms(self, seconds: float) -> None:
        """Confirms come so much later, by the broker's clock; with 0 at once again."""
        self.ask("delay_confirms", seconds=seconds)


class ServedBroker(VirtualHost):
    """A running broker, and the virtual host of its `uri`."""

    def __init__(self, source: Source, options: Sequence[str] = ()) -> None:
        self.source = source
        self.options = list(options)
        self.port = 0
        self.process = 0  # 0: it does not run
        self.ahead_s = 0.0
        self.hosts_made = 0
        self.lock = threading.Lock()
        self._name = None
        self.users: dict[str, dict[str, Any]] = {}  # those of the settings, or guest
        self.broker = self
        self.start()

    def tell(self, command: str, **arguments: Any) -> dict[str, Any]:
        if not self.process:
            raise BrokerGone("the broker does not run: start() starts it again")
        found: dict[str, Any] = json.loads(
            self.source.tell(self.process, json.dumps({"do": command, **arguments}))
        )
        if "error" in found:
            raise ValueError(found["error"])
        return found

    # Users and addresses

    @property
    def user(self) -> str:
        """guest, or else the first user with a password in plain who may do anything."""
        plain = [name for name, user in self.users.items() if user["password"] is not None]
        able = [name for name in plain if self.users[name]["virtual_hosts"]]
        return "guest" if "guest" in plain else (able or plain or list(self.users))[0]

    @property
    def name(self) -> str:
        """The virtual host of the address: "/", or else the first that the user has permissions for."""
        if self._name is None:
            self._name = self.host_of(self.user)
        return self._name

    @property
    def uri(self) -> str:
        """An address for `user`."""
        return self.uri_of(self.user)

    def uri_of(self, user: str, *, password: str | None = None, virtual_host: str | None = None) -> str:
        """An address for a user of the settings, in "/" or else the first virtual host that is permitted."""
        known = self.users.get(user)
        if known is None:
            raise ValueError(f"no user {user!r} in the settings; there are {', '.join(self.users)}")
        if password is None:
            password = known["password"]
        if password is None:
            raise ValueError(f"user {user!r} has a password_hash: give its password to uri_of")
        if virtual_host is None:
            virtual_host = self.host_of(user)
        host = "" if virtual_host == "/" else "/" + quote(virtual_host, safe="")
        return f"amqp://{quote(user, safe='')}:{quote(password, safe='')}@{HOST}:{self.port}{host}"

    def host_of(self, user: str) -> str:
        permitted: list[str] = self.users[user]["virtual_hosts"]
        return permitted[0] if permitted and "/" not in permitted else "/"

    def virtual_host(self, name: str | None = None) -> VirtualHost:
        """One that is there, by its name; without a name a fresh one, where `user` may do anything."""
        if name is not None:
            return VirtualHost(self, name)
        with self.lock:
            self.hosts_made += 1
            name = f"test-{self.hosts_made}"
        self.tell("add_virtual_host", virtual_host=name, user=self.user)
        return VirtualHost(self, name)

    def delete_virtual_host(self, name: str) -> None:
        """With all that is in it; its connections are closed."""
        self.tell("delete_virtual_host", virtual_host=name)

    # The whole broker

    def raise_alarm(self, reason: str = ALARM) -> None:
        """Publishers are blocked, as if memory or disk were short."""
        self.tell("set_alarm", reason=reason or ALARM)

    def clear_alarm(self) -> None:
        self.tell("set_alarm", reason="")

    def move_time(self, seconds: float) -> None:
        """The broker's clock is so much ahead from now on; what is due by then is done at the return.

        Heartbeats go by the machine's clock all the same.
        """
        self.ahead_s = self.tell("move_time", seconds=seconds)["ahead_s"]

    def kill(self) -> None:
        """kill -9."""
        process, self.process = self.process, 0
        if process:
            self.source.kill(process)

    def is_running(self) -> bool:
        """Whether the broker answers."""
        try:
            self.tell("users")
        except BrokerGone:
            return False
        return True

    def start(self) -> None:
        """Starts the broker, again on its port and with what its data directory holds."""
        if self.is_running():
            raise RuntimeError("the broker runs already: stop() or kill() it before")
        self.kill()  # what is left of one that died
        options = ["--host", HOST, "--port", "0", *self.options]
        if self.port:
            options += ["--port", str(self.port)]
        self.process, line = self.source.start([*options, "--rehearsal", str(self.ahead_s)])
        self.port = urlsplit(line.split()[-1]).port or 0
        self.users = self.tell("users")["users"]

    def restart(self) -> None:
        """kill -9, and a new start."""
        self.kill()
        self.start()

    def stop(self) -> None:
        """Closes all connections and waits for the end."""
        process, self.process = self.process, 0
        if process:
            self.source.stop(process)
