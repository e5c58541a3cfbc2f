"""Services on addresses that are banned after failed logins.

ban.list     who is banned, and for how long
ban.clear    ends a ban, or all of them, and forgets the failures that led there
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from flintmq.auth import Tag
from flintmq.broker.services.administration_services import administration
from flintmq.broker.services.arguments import PAGE
from flintmq.broker.services.request import Request, service

if TYPE_CHECKING:
    from flintmq.broker.services.request import Row
    from flintmq.wire.tables import FieldTable


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
