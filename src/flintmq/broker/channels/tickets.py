"""Tickets of AMQP 0-8 and 0-9: what access.request grants to a channel, and what a ticket is good for.

    access.request realm, rights --> Tickets.grant --> a ticket of the channel, or 403
    a method with a ticket       --> check_ticket  --> nothing, or 403 or 530, where tickets are enforced

A realm is a named set of three patterns, as the permissions of a user are. A ticket never gives a right: the
permissions of the user are checked at each use, whatever the ticket says. It ends with its channel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.auth import Permissions
from flintmq.config import PermissionSettings
from flintmq.errors import ChannelFault, ConnectionFault
from flintmq.field_tuple import FieldTuple
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.broker.channels.channel import Channel
    from flintmq.config import Access, RealmSettings
    from flintmq.wire.methods import AccessRequest, Method

# Tickets that a channel may hold: a client needs one for each realm, or a few. 300 octets each.
TICKETS_MAX = 64
TICKET_NUMBER_MAX = 65_535

ACTIVE, PASSIVE, READ, WRITE = "active", "passive", "read", "write"
# The right that a method takes, and the field with the name that it is about.
NEEDED = {
    "exchange.declare": (ACTIVE, "exchange"),
    "exchange.delete": (ACTIVE, "exchange"),
    "queue.declare": (ACTIVE, "queue"),
    "queue.bind": (ACTIVE, "queue"),
    "queue.unbind": (ACTIVE, "queue"),
    "queue.purge": (READ, "queue"),
    "queue.delete": (ACTIVE, "queue"),
    "basic.consume": (READ, "queue"),
    "basic.get": (READ, "queue"),
    "basic.publish": (WRITE, "exchange"),
    "file.consume": (READ, "queue"),
    "file.publish": (WRITE, "exchange"),
    "message.consume": (READ, "queue"),
    "message.get": (READ, "queue"),
    "message.transfer": (WRITE, "destination"),
    "stream.consume": (READ, "queue"),
    "stream.publish": (WRITE, "exchange"),
}


class Realm:
    """One realm, with its patterns compiled."""

    __slots__ = ("name", "permissions", "users")

    def __init__(self, name: str, settings: RealmSettings) -> None:
        self.name = name
        self.permissions = Permissions(
            PermissionSettings(configure=settings.configure, write=settings.write, read=settings.read)
        )
        self.users = settings.users

    def admits(self, user: str) -> bool:
        return self.users is None or user in self.users

    def holds(self, right: str, name: str) -> bool:
        """Whether the name is one that the right in this realm is about; the nameless exchange is in all."""
        permissions = self.permissions
        if not name:
            return True
        if right == READ:
            return permissions.may_read(name)
        if right == WRITE:
            return permissions.may_write(name)
        if right == ACTIVE:
            return permissions.may_configure(name)
        return permissions.may_read(name) or permissions.may_write(name) or permissions.may_configure(name)


class Ticket(FieldTuple):
    """What one access.request was granted."""

    number: int
    realm: Realm
    rights: frozenset[str]
    exclusive: bool


class ChannelTickets:
    """The tickets of one channel."""

    __slots__ = ("channel", "held", "office")

    def __init__(self, office: Tickets, channel: Channel) -> None:
        self.office = office
        self.channel = channel
        self.held: dict[int, Ticket] = {}

    def release(self) -> None:
        """The channel is closed."""
        for ticket in self.held.values():
            self.office.forget(self, ticket)
        self.held.clear()


class Tickets:
    """The realms of a broker, and which channels hold tickets to them, in each virtual host."""

    __slots__ = ("holders", "last_number", "realms")

    def __init__(self, access: Access) -> None:
        self.realms = {name: Realm(name, settings) for name, settings in access.realms.items()}
        # By virtual host and realm: the channels with tickets, and how many of these each has.
        self.holders: dict[tuple[str, str], dict[ChannelTickets, int]] = {}
        self.last_number = 0

    def grant(self, channel: Channel, method: AccessRequest) -> int:
        """The number of a ticket; raises 403 for a realm that is unknown or closed to the user alike."""
        realm = self.realms.get(method.realm)
        if realm is None or not realm.admits(channel.user.name):
            raise ChannelFault(
                amqp.ACCESS_REFUSED,
                f"access to realm '{method.realm}' refused for user '{channel.user.name}'",
            )
        wanted = {ACTIVE: method.active, PASSIVE: method.passive, READ: method.read, WRITE: method.write}
        rights = frozenset(right for right, is_wanted in wanted.items() if is_wanted)
        own = channel.tickets
        if own is None:
            own = channel.tickets = ChannelTickets(self, channel)
        self.check_exclusive(own, realm, method.exclusive)
        for ticket in own.held.values():
            if (ticket.realm, ticket.rights, ticket.exclusive) == (realm, rights, method.exclusive):
                return ticket.number
        if len(own.held) >= TICKETS_MAX:
            text = f"a channel holds no more than {TICKETS_MAX} tickets: open another, or ask for fewer"
            raise ChannelFault(amqp.RESOURCE_ERROR, text)
        ticket = Ticket(self.next_number(own), realm, rights, method.exclusive)
        own.held[ticket.number] = ticket
        among = self.holders.setdefault((channel.virtual_host.name, realm.name), {})
        among[own] = among.get(own, 0) + 1
        return ticket.number

    def check_exclusive(self, own: ChannelTickets, realm: Realm, exclusive: bool) -> None:
        """0-9, access.request, exclusive: nobody has a realm alone that others have tickets to."""
        among = self.holders.get((own.channel.virtual_host.name, realm.name))
        if not among or (len(among) == 1 and own in among):
            return
        other = next(each for each in among if each is not own)
        is_taken = any(ticket.exclusive for ticket in other.held.values() if ticket.realm is realm)
        if exclusive or is_taken:
            held = "holds it exclusively" if is_taken else "holds a ticket to it"
            raise ChannelFault(
                amqp.ACCESS_REFUSED, f"access to realm '{realm.name}' refused: another channel {held}"
            )

    def next_number(self, own: ChannelTickets) -> int:
        """Numbers go round, so that a ticket of one channel is seldom one of another too."""
        while True:
            self.last_number = self.last_number % TICKET_NUMBER_MAX + 1
            if self.last_number not in own.held:
                return self.last_number

    def forget(self, own: ChannelTickets, ticket: Ticket) -> None:
        place = (own.channel.virtual_host.name, ticket.realm.name)
        among = self.holders[place]
        among[own] -= 1
        if not among[own]:
            del among[own]
        if not among:
            del self.holders[place]


def check_ticket(channel: Channel, method: Method) -> None:
    """Raises unless the channel has got the ticket of the method, which is one of NEEDED, and it is good."""
    right, field = NEEDED[method.NAME]
    if right == ACTIVE and getattr(method, "passive", False):
        right = PASSIVE
    number: int = method.ticket  # type: ignore[attr-defined]
    ticket = None if channel.tickets is None else channel.tickets.held.get(number)
    if ticket is None:
        if number:  # 0-9, access.request-ok, per-channel
            raise ConnectionFault(
                amqp.NOT_ALLOWED,
                f"{method.NAME}: ticket {number} was not granted on channel {channel.number}",
            )
        raise ChannelFault(amqp.ACCESS_REFUSED, f"{method.NAME} takes a ticket: ask by access.request")
    name: str = getattr(method, field) or (channel.last_queue if field == "queue" else "")
    if method.NAME == "queue.declare" and not method.queue and not method.passive:  # type: ignore[attr-defined]
        name = ""  # the broker finds one
    has_right = right in ticket.rights or (right == PASSIVE and ACTIVE in ticket.rights)
    if not has_right or not ticket.realm.holds(right, name):
        raise ChannelFault(
            amqp.ACCESS_REFUSED,
            f"{method.NAME}: ticket {number} to realm '{ticket.realm.name}' does not give {right} access to "
            f"'{name}'",
        )
