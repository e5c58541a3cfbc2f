"""Users, permissions and virtual hosts that come and go in a history, and clients whom that concerns.

    ("user", name)            its tags
    ("vhost", name)           True
    ("grant", user, vhost)    the pattern that all three permissions are
    ("inside", vhost)         how many messages its one durable queue holds

An administrator asks by services; what the answer promises is on disk when it leaves. Visitors are logged in
as users that were added, in virtual hosts that were added: each can do what the model says, or is closed.
"""

from __future__ import annotations

import random

from flintmq.auth.passwords import hash_password_quickly
from flintmq.broker.channels.client_connection import ClientConnection
from flintmq.broker.messages.composing import composed
from flintmq.protocol import phases
from flintmq.protocol.outbox import Output
from flintmq.wire import amqp, methods
from flintmq.wire.properties import BasicProperties

from .broker_client import Client
from .broker_model import Key
from .stream_actions import StreamActions

USERS = ("ann", "bob")
HOSTS = ("v1", "v2")
INSIDE = "inside"
PATTERNS = ("", ".*", "^amq")
TAGS = ("administrator", "monitoring", "policymaker")
HASH = hash_password_quickly(b"secret").text()
VISITORS_MAX = 3


class Visitor(Client):
    """One who was let in as a user of the history, into a virtual host of it."""

    name = ""
    host_name = ""

    def let_in(self, name: str, host_name: str) -> None:
        self.name, self.host_name = name, host_name
        session = self.session
        user = session.user = self.broker.users.get(name)
        host = session.virtual_host = self.broker.virtual_hosts[host_name]
        assert user is not None
        client = ClientConnection(session.number, user, host, "simulated", amqp.VERSION_0_9_1, {}, 0, session)
        self.broker.clients.enter(client)
        self.say(1, methods.ChannelOpen())

    def is_open(self) -> bool:
        return not self.gone and self.session.connection.state == phases.CONNECTION_OPEN

    def was_refused(self) -> bool:
        """Whether the channel was closed with 403; it is open again afterwards."""
        codes = [event.method.reply_code for event in self.written() if isinstance(event.method, CLOSES)]
        if codes:
            assert codes == [403], f"{self.name} is refused with {codes}"
            self.say(1, methods.ChannelCloseOk())
            self.say(1, methods.ChannelOpen())
        self.forget_written()
        return bool(codes)

    def forget_written(self) -> None:
        self.written()
        self.output.sent(self.output.pending())
        self.scanned = 0


CLOSES = (methods.ChannelClose, methods.ConnectionClose)


class AdministrationActions(StreamActions):
    """What an administrator does, and what others notice."""

    clerk: random.Random  # a chance of its own: the rest of a history is what it is without administration
    visitors: list[Visitor]
    outbox_of_visitors: list[Output]

    def value_of(self, key: Key) -> object:
        return self.model.history[key][-1][1] if key in self.model.history else None

    def administer(self) -> None:
        """One change, by the first client that there is."""
        client = next((each for each in self.clients if not each.gone), None)
        if client is None or self.broker.users.get("guest") is None:
            return
        way = self.clerk.choice(
            (self.change_user, self.change_host, self.change_grant, self.change_grant, self.fill, self.visit)
        )
        way(client)
        self.check_visitors()

    def asked(self, client: Client, service: str, code: int, **arguments: object) -> bool:
        """Asks; whether it was done, which must be so unless a code is expected."""
        self.request(client, service, **arguments)
        results, _ = self.answer(client)
        assert results.get("error-code", 0) == code, f"{service} of {arguments}: {results}, not {code}"
        return not code

    def noted(self, client: Client, key: Key, value: object, *others: Key) -> None:
        """The change is in the model; what goes with it is gone."""
        sequence = self.store.last()
        self.model.note(key, value, sequence)
        for other in others:
            if self.value_of(other) is not None:
                self.model.note(other, None, sequence)
        self.tell(client, f"{key} is {value}", key)

    def change_user(self, client: Client) -> None:
        name = self.clerk.choice(USERS)
        key = ("user", name)
        tags = self.clerk.sample(TAGS, self.clerk.randrange(3))
        is_there = self.value_of(key) is not None
        if self.clerk.random() < 0.3:
            if self.asked(client, "user.delete", 0 if is_there else 404, user=name):
                self.noted(client, key, None, *[("grant", name, host) for host in ("/", *HOSTS)])
                self.settle_chores()
                assert not any(each.is_open() for each in self.visitors if each.name == name)
        elif is_there and self.clerk.random() < 0.5:
            self.asked(client, "user.set-tags", 0, user=name, tags=tags)
            self.noted(client, key, frozenset(tags))
        elif self.asked(client, "user.add", 406 if is_there else 0, user=name, password_hash=HASH, tags=tags):
            self.noted(client, key, frozenset(tags))

    def change_host(self, client: Client) -> None:
        name = self.clerk.choice(HOSTS)
        key = ("vhost", name)
        is_there = self.value_of(key) is not None
        hosts = self.broker.administration.virtual_hosts
        if self.clerk.random() < 0.4:
            if self.asked(client, "vhost.delete", 0 if is_there else 404, virtual_host=name):
                grants = [("grant", user, name) for user in USERS]
                self.noted(client, key, None, ("inside", name), *grants)
                self.settle_chores()
                assert not any(each.is_open() for each in self.visitors if each.host_name == name)
        else:
            is_taken = is_there or name in hosts.ending or name in hosts.unserved
            if self.asked(client, "vhost.add", 406 if is_taken else 0, virtual_host=name):
                self.noted(client, key, True)

    def change_grant(self, client: Client) -> None:
        user, host = self.clerk.choice(USERS), self.clerk.choice(("/", *HOSTS))
        key = ("grant", user, host)
        are_there = self.value_of(("user", user)) is not None and (
            host == "/" or self.value_of(("vhost", host)) is not None
        )
        if self.clerk.random() < 0.3:
            is_set = self.value_of(key) is not None
            if self.asked(client, "permission.clear", 0 if is_set else 404, user=user, virtual_host=host):
                self.noted(client, key, None)
            return
        pattern = self.clerk.choice(PATTERNS)
        patterns = {"configure": pattern, "write": pattern, "read": pattern}
        code = 0 if are_there else 404
        if self.asked(client, "permission.set", code, user=user, virtual_host=host, **patterns):
            self.noted(client, key, pattern)

    def settle_chores(self) -> None:
        """Connections are closed in portions: all of those that are due."""
        chores = self.broker.pass_work.chores
        for _ in range(100):
            if not chores.waiting:
                return
            chores.run()
            self.listen(exact=False)

    # What is in virtual hosts that were added

    def fill(self, client: Client) -> None:
        """A durable queue in a virtual host, and messages in it."""
        names = [name for name in HOSTS if self.value_of(("vhost", name)) is not None]
        if not names:
            return
        name = self.clerk.choice(names)
        host = self.broker.virtual_hosts[name]
        key = ("inside", name)
        if INSIDE not in host.queues:
            queue = host.declare_queue(INSIDE, True, False, False, {}, 0)
            host.bind(host.exchanges["amq.fanout"], queue, "", {})
            host.bind(host.exchanges["amq.topic"], host.exchanges["amq.fanout"], "a", {})
            self.ever[queue.number] = {}
            self.model.note(key, 0, self.store.last())
        for _ in range(self.clerk.randrange(4)):
            self.put_inside(name)

    def put_inside(self, name: str) -> None:
        key = ("inside", name)
        number = self.new_inside(name)
        properties = BasicProperties(delivery_mode=2)
        assert self.broker.virtual_hosts[name].router.post(
            composed("", INSIDE, properties, self.body(number))
        )
        held = self.value_of(key)
        assert isinstance(held, int)
        self.model.note(key, held + 1, self.store.last())

    def new_inside(self, name: str) -> int:
        """The number of a new message for the queue of a virtual host."""
        self.numbers += 1
        self.sizes[self.numbers] = 1
        self.persistent[self.numbers] = True
        self.model.places += 1
        self.ever[self.broker.virtual_hosts[name].queues[INSIDE].number][self.numbers] = self.model.places
        return self.numbers

    # Visitors

    def visit(self, client: Client) -> None:
        self.visitors = [each for each in self.visitors if each.is_open()]
        granted = [
            (user, host)
            for user in USERS
            for host in HOSTS
            if self.value_of(("grant", user, host)) is not None
        ]
        if granted and len(self.visitors) < VISITORS_MAX:
            visitor = Visitor(self.broker, self.outbox_of_visitors)
            visitor.let_in(*self.clerk.choice(granted))
            assert not visitor.was_refused()
            self.visitors.append(visitor)

    def check_visitors(self) -> None:
        """Each may do what the model says, now."""
        for visitor in self.visitors:
            if not visitor.is_open():
                continue
            pattern = self.value_of(("grant", visitor.name, visitor.host_name))
            self.publish_as(visitor, bool(pattern))
            visitor.say(2, methods.ChannelOpen())
            visitor.say(2, methods.QueueDeclare(queue="none", passive=True))
            code = getattr(visitor.written()[-1].method, "reply_code", 0)
            # "^amq" is no pattern of that name, and a queue that may be seen is not there.
            assert code == (404 if pattern == ".*" else 403), f"{visitor.name} by {pattern!r}: {code}"
            visitor.say(2, methods.ChannelCloseOk())
            visitor.forget_written()

    def publish_as(self, visitor: Visitor, may_write: bool) -> None:
        """On the channel that the visitor has published on before, if nobody has closed it."""
        key = ("inside", visitor.host_name)
        held = self.value_of(key)
        if not isinstance(held, int):
            return
        number = self.new_inside(visitor.host_name)
        visitor.publish(1, "", INSIDE, self.body(number), True)
        assert visitor.was_refused() != may_write, f"{visitor.name} writes, allowed is {may_write}"
        if may_write:
            self.model.note(key, held + 1, self.store.last())

    def leave_visitors(self) -> None:
        """The broker is gone, and they with it."""
        for visitor in self.visitors:
            visitor.output.release()
        self.visitors = []
