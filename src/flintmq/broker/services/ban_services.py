"""Services on logins: addresses that are banned after failed ones, and the password that everybody knows.

ban.list                 who is banned, and for how long
ban.clear                ends a ban, or all of them, and forgets the failures that led there
user.default-password    whether guest gets in with the password guest
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING

from flintmq.auth import Accepted, Tag
from flintmq.broker.services.acting import require_internal
from flintmq.broker.services.administration_services import administration
from flintmq.broker.services.arguments import PAGE
from flintmq.broker.services.management_services import login_of, settled
from flintmq.broker.services.request import Request, service

if TYPE_CHECKING:
    from flintmq.broker.scheduling.chores import Chore, Wait
    from flintmq.broker.services.request import Row
    from flintmq.wire.tables import FieldTable


# The user that a broker begins with, and its password.
WELL_KNOWN = "guest"


@service("ban.list", PAGE)
def ban_list(request: Request) -> Iterator[None]:
    """The addresses that are banned after failed logins: `address`, `seconds`, `failures`."""
    administration(request, Tag.MONITORING)
    failed_logins = request.broker.failed_logins

    def row(source: str, left_s: float, failures: int) -> FieldTable:
        return {"address": source, "seconds": int(left_s) + 1, "failures": failures}

    def rows(after: str) -> Iterator[Row]:
        for source, left_s, failures in failed_logins.bans_after(after):
            yield source, partial(row, source, left_s, failures)

    return request.listing(rows)


@service("ban.clear", "address? text", changes=True, administers=True)
def ban_clear(request: Request) -> None:
    """Ends the ban of `address` and forgets its failures; without it, of all addresses and users."""
    administration(request)
    address = request.text("address", "")
    request.reply({"cleared": request.broker.failed_logins.clear(address or None)})


@service("user.default-password", "")
def user_default_password(request: Request) -> Chore:
    """Whether user guest would get in with the password guest from where the asker is: `in-force`.

    No login is tried: nothing is logged, and nothing counts towards a ban.
    """
    administration(request, Tag.MONITORING)
    broker = request.broker
    if broker.users.get(WELL_KNOWN) is None:
        request.reply({"in-force": False})
        return
    client = broker.connections.get(request.channel.origin)
    address = request.peer_address if client is None else client.peer_address
    is_in_force = yield from has_default_password(request, address)
    request.reply({"in-force": is_in_force})


@service("management.default-password", "known? text")
def management_default_password(request: Request) -> Chore:
    """Whether user guest would get in with the password guest from this machine: `in-force`.

    `login` is another text after a change of the password, and empty without such a user. While it is the one
    that is `known`, `in-force` is left out: no password is hashed for those who ask again and again.
    `loopback-only` says whether guest gets in from this machine alone.
    """
    require_internal(request)
    user = request.broker.users.get(WELL_KNOWN)
    if user is None:
        request.reply({"login": "", "in-force": False})
        return
    found: FieldTable = {"login": login_of(user), "loopback-only": user.is_loopback_only}
    if request.text("known", "") != found["login"]:
        found["in-force"] = yield from has_default_password(request, "127.0.0.1")
    request.reply(found)


def has_default_password(request: Request, address: str) -> Generator[Wait, None, bool]:
    login = request.broker.users.login(WELL_KNOWN, WELL_KNOWN.encode(), address)
    step = yield from settled(request, login)
    return isinstance(step, Accepted)
