"""Contents that come in parts, until they are published: the staging store.

    open ----> staged: 0 ----> append ----> staged: n ----> ... ----> publish ----> published
                  ^                           |  ^                                     |
                  |  a part is on disk, then noted in the journal, then told           v
                  +-------- the peer or the broker dies: `open` says how far it came   forgotten after a while

A content belongs to a user of a virtual host, who names it by an identifier. Whoever comes back after a
break asks how much is there and goes on behind it, so that no octet is sent twice but those of a part that
was under way. Publishing is one group of the journal: the message is in its queues and the content is noted
as published, or neither is so. That note stays for as long as a content would, so that a peer whose
connection broke while it published can ask what has become of it.

In the journal a content is a value:

    key      f | field table: virtual host, user, identifier
    value    reference to its spool, 24 octets (storage/spool.py) | field table: the rest

What a peer may ask of the store is limited: contents and octets of each user, octets of each virtual host. An
octet counts from the moment it is announced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from flintmq.errors import PeerFault, ServiceFault
from flintmq.storage.spool import REFERENCE_OCTETS, STAGED
from flintmq.wire import amqp
from flintmq.wire.tables import FieldTable, decode_table, encode_table

if TYPE_CHECKING:
    from flintmq.broker.scheduling.timetable import Alarm, Timetable
    from flintmq.broker.store.store import Store
    from flintmq.config import Staging as Limits
    from flintmq.storage.spool import Spool
    from flintmq.storage.staging_files import StagingFiles

log = logging.getLogger("flintmq.staging")

IDENTIFIER_OCTETS_MAX = 255
# What the identifier begins with of a content that has none yet.
UNNAMED = "amq.reference-"
# Contents that one step forgets: some 10 microseconds each.
FORGOTTEN = 64
# Until more of those that are overdue go.
AGAIN_MS = 20
# The reference of a content that has no file any more.
NO_SPOOL = bytes(REFERENCE_OCTETS)

Owner = tuple[str, str]  # virtual host and user
Key = tuple[str, str, str]  # the same, and the identifier
Go = Callable[[], None]
T = TypeVar("T")


class StagedContent:
    """One content, staged or published."""

    __slots__ = (
        "deleted",
        "error",
        "identifier",
        "owner",
        "size",
        "spool",
        "touched_ms",
        "under_way",
        "waiting",
        "writer",
        "writing",
    )

    def __init__(
        self, owner: Owner, identifier: str, size: int, spool: Spool | None, touched_ms: int
    ) -> None:
        self.owner = owner
        self.identifier = identifier
        self.size = size  # of the whole; -1: nobody has said
        self.spool = spool  # None: it is published
        self.touched_ms = touched_ms
        self.deleted = False
        self.writing = False  # a part is on its way to the disk
        self.under_way = 0  # its octets
        self.error: OSError | None = None  # of the last part
        self.waiting: list[Go] = []  # who goes on when the part is there
        self.writer: object = None  # whose parts it takes, where several might come to its end at once

    @property
    def key(self) -> Key:
        return (*self.owner, self.identifier)

    @property
    def is_published(self) -> bool:
        return self.spool is None

    @property
    def staged(self) -> int:
        """Octets that are there for good."""
        return self.size if self.spool is None else self.spool.octets

    def claimed(self) -> int:
        """Octets that count against the limits: others may not claim the room of a part on its way."""
        return 0 if self.spool is None else max(self.size, self.spool.octets + self.under_way)

    def when_idle(self, go_on: Go) -> None:
        """Calls back when no part is on its way; at once if none is."""
        if self.writing:
            self.waiting.append(go_on)
        else:
            go_on()


class Staging:
    """The staged contents of one broker."""

    def __init__(self, store: Store, files: StagingFiles, timetable: Timetable, limits: Limits) -> None:
        self.store = store
        self.files = files
        self.timetable = timetable
        self.limits = limits
        self.contents: dict[Key, StagedContent] = {}  # the one that was not touched for longest comes first
        self.of_owner: dict[Owner, dict[str, StagedContent]] = {}
        self.published: dict[Owner, dict[str, None]] = {}  # in the order in which they were
        self.claimed: dict[Owner, int] = {}
        self.claimed_of_host: dict[str, int] = {}
        self.alarm: Alarm | None = None

    # What a peer asks for

    def find(self, virtual_host: str, user: str, identifier: str) -> StagedContent | None:
        return self.contents.get((virtual_host, user, identifier))

    def need(self, virtual_host: str, user: str, identifier: str) -> StagedContent:
        content = self.find(virtual_host, user, identifier)
        if content is None:
            raise ServiceFault(
                amqp.NOT_FOUND, f"no content '{identifier}' is staged: it was not opened, or it has expired"
            )
        return content

    def open(self, virtual_host: str, user: str, identifier: str, size: int) -> StagedContent:
        """The content of this identifier, as far as it is there; a new one if there is none."""
        self.check_identifier(identifier)
        owner = (virtual_host, user)
        content = self.contents.get((*owner, identifier))
        if content is not None:
            self.check_size(content, size)
            content.writer = None  # whoever sent it before has lost its connection, or should
            return content
        if len(self.of_owner.get(owner, ())) - len(self.published.get(owner, ())) >= (
            self.limits.contents_per_user_max
        ):
            raise self.reached(
                "contents_per_user_max", self.limits.contents_per_user_max, "publish or delete some"
            )
        self.check_room(owner, max(size, 0), max(size, 0))
        content = StagedContent(owner, identifier, size, self.files.create(), self.timetable.now_ms())
        self.add(content)
        self.note(content)
        return content

    def open_unnamed(self, virtual_host: str, user: str, name: str) -> StagedContent:
        """A content that nobody can come back for until it is renamed; a restart forgets it."""
        return self.open(virtual_host, user, UNNAMED + name, -1)

    def rename(self, content: StagedContent, identifier: str) -> None:
        """The content is found by another identifier from now on, which no other content has.

        Not one that is published: whoever published it asks for it by the identifier that it had.
        """
        self.check_identifier(identifier)
        owner = content.owner
        if content.is_published:
            raise ServiceFault(
                amqp.PRECONDITION_FAILED, f"content '{content.identifier}' is published: it takes no more"
            )
        if (*owner, identifier) in self.contents:
            raise ServiceFault(
                amqp.PRECONDITION_FAILED, f"content '{identifier}' is there already, and is another one"
            )
        with self.store.journal.group():
            self.store.journal.delete_value(journal_key(content))
            del self.contents[content.key]
            del self.of_owner[owner][content.identifier]
            content.identifier = identifier
            self.contents[content.key] = content
            self.of_owner[owner][identifier] = content
            self.note(content)

    def check_identifier(self, identifier: str) -> None:
        if not 0 < len(identifier.encode("utf-8", "surrogateescape")) <= IDENTIFIER_OCTETS_MAX:
            raise ServiceFault(
                amqp.PRECONDITION_FAILED,
                f"the identifier of a content has 1 to {IDENTIFIER_OCTETS_MAX} octets",
            )

    def check_size(self, content: StagedContent, size: int) -> None:
        """Raises if the content is known to be another one; takes the size if nobody has said it before."""
        if content.size == size or size < 0:
            return
        if content.size >= 0 or content.staged + content.under_way > size:
            known = content.size if content.size >= 0 else f"{content.staged + content.under_way} or more"
            raise ServiceFault(
                amqp.PRECONDITION_FAILED,
                f"content '{content.identifier}' has {known} octets, not {size}: it is another one; delete "
                "it, or give this one an identifier of its own",
            )
        self.check_room(content.owner, size, size - content.claimed())
        self.claim(content.owner, size - content.claimed())
        content.size = size
        self.note(content)

    def check_room(self, owner: Owner, size: int, more: int) -> None:
        """Raises unless a content may have this size, which is so much more than it has claimed before."""
        limits = self.limits
        if size > limits.content_bytes_max:
            raise self.reached("content_bytes_max", limits.content_bytes_max, "send it in several contents")
        if self.claimed.get(owner, 0) + more > limits.user_bytes_max:
            raise self.reached("user_bytes_max", limits.user_bytes_max, "publish or delete some")
        if self.claimed_of_host.get(owner[0], 0) + more > limits.virtual_host_bytes_max:
            raise self.reached(
                "virtual_host_bytes_max", limits.virtual_host_bytes_max, "publish or delete some"
            )

    def reached(self, setting: str, limit: int, advice: str) -> ServiceFault:
        return ServiceFault(
            amqp.RESOURCE_ERROR,
            f"the limit of what may be staged ({limit}, staging.{setting}) is reached: {advice}",
        )

    def check_part(self, content: StagedContent, at: int, octets: int) -> None:
        """Raises unless a part of so many octets may follow at this place."""
        identifier = content.identifier
        if content.deleted:
            raise ServiceFault(amqp.NOT_FOUND, f"content '{identifier}' is gone")
        if content.is_published:
            raise ServiceFault(
                amqp.PRECONDITION_FAILED, f"content '{identifier}' is published: it takes no more"
            )
        if at != content.staged:
            raise ServiceFault(
                amqp.PRECONDITION_FAILED,
                f"content '{identifier}' has {content.staged} octets: go on there, not at {at}",
            )
        end = at + octets
        if 0 <= content.size < end:
            raise ServiceFault(
                amqp.PRECONDITION_FAILED,
                f"content '{identifier}' was opened for {content.size} octets: {end} are too many",
            )
        self.check_room(content.owner, end, max(0, end - content.claimed()))
        if self.store.alarm:
            raise ServiceFault(amqp.RESOURCE_ERROR, f"nothing more can be staged: {self.store.alarm}")

    def append(self, content: StagedContent, at: int, part: bytes) -> None:
        """Adds a part, unless it does not fit; `content.when_idle` tells when it is noted, or has failed."""
        self.check_part(content, at, len(part))
        if content.spool is None or content.writing:
            raise AssertionError("one part at a time, of a content that is staged")
        content.writing = True
        content.error = None
        before = content.claimed()
        content.under_way = len(part)
        self.claim(content.owner, content.claimed() - before)
        self.files.extend(content.spool, part, partial(self.appended, content, at + len(part)))

    def appended(self, content: StagedContent, end: int, error: OSError | None) -> None:
        """The part is on disk, or the disk did not take it; the content ends at `end` with it."""
        content.writing = False
        content.under_way = 0
        content.error = error
        if error is not None:
            log.warning("a part of a staged content was not written: %s", error)
            if not content.deleted:
                self.claim(content.owner, content.claimed() - max(content.size, end))
        if content.deleted:
            self.let_go(content)
        elif error is None:
            self.touch(content)
            self.note(content)
        waiting, content.waiting = content.waiting, []
        for go_on in waiting:
            go_on()

    def check_whole(self, content: StagedContent) -> Spool:
        """The spool of a content that can be published."""
        identifier, spool = content.identifier, content.spool
        if spool is None:
            raise ServiceFault(amqp.PRECONDITION_FAILED, f"content '{identifier}' is published already")
        if content.writing:
            raise ServiceFault(amqp.PRECONDITION_FAILED, f"a part of content '{identifier}' is under way")
        if 0 <= content.size != spool.octets:
            raise ServiceFault(
                amqp.PRECONDITION_FAILED,
                f"content '{identifier}' is not whole: {spool.octets} of {content.size} octets are staged",
            )
        return spool

    def finish(self, content: StagedContent) -> None:
        """The content is in its queues: in the same group of the journal, this is noted."""
        owner, spool = content.owner, content.spool
        if spool is None:
            raise AssertionError("a content is published once")
        self.claim(owner, -content.claimed())
        content.size = spool.octets
        content.spool = None
        self.touch(content)
        published = self.published.setdefault(owner, {})
        published[content.identifier] = None
        self.note(content)
        self.files.let_go(spool)
        if len(published) > self.limits.published_per_user_max:
            self.forget(self.contents[(*owner, next(iter(published)))])

    def forget(self, content: StagedContent) -> None:
        """Deletes it, with what was staged of it, or the note that it was published."""
        if content.deleted:
            return
        content.deleted = True
        owner, identifier = content.owner, content.identifier
        del self.contents[content.key]
        of_owner = self.of_owner[owner]
        del of_owner[identifier]
        if not of_owner:
            del self.of_owner[owner]
        published = self.published.get(owner)
        if published is not None:
            published.pop(identifier, None)
            if not published:
                del self.published[owner]
        self.claim(owner, -content.claimed())
        self.store.journal.delete_value(journal_key(content))
        if not content.writing:
            self.let_go(content)

    def let_go(self, content: StagedContent) -> None:
        """The file of a content that is gone goes when that is safe."""
        if content.spool is not None:
            self.files.let_go(content.spool)

    # What there is

    def owned(self, virtual_host: str, user: str) -> dict[str, StagedContent]:
        """The contents of one user, by identifier."""
        return self.of_owner.get((virtual_host, user), {})

    def forget_all(self, virtual_host: str | None, user: str | None = None) -> Iterator[None]:
        """The contents that a virtual host, or a user everywhere, has now; some in each step."""
        found = [
            content
            for owner, contents in self.of_owner.items()
            if virtual_host in (None, owner[0]) and user in (None, owner[1])
            for content in contents.values()
        ]
        for at, content in enumerate(found, 1):
            self.forget(content)
            if at % FORGOTTEN == 0:
                yield

    def claim(self, owner: Owner, octets: int) -> None:
        counted(self.claimed, owner, octets)
        counted(self.claimed_of_host, owner[0], octets)

    def add(self, content: StagedContent) -> None:
        self.contents[content.key] = content
        self.of_owner.setdefault(content.owner, {})[content.identifier] = content
        self.claim(content.owner, content.claimed())
        if content.is_published:
            self.published.setdefault(content.owner, {})[content.identifier] = None
        self.watch()

    def touch(self, content: StagedContent) -> None:
        """Something was done to it: it expires so much later."""
        content.touched_ms = self.timetable.now_ms()
        self.contents[content.key] = self.contents.pop(content.key)

    # Expiry

    def watch(self) -> None:
        """Has an alarm for the content that expires first."""
        if self.alarm is None and self.contents:
            first = next(iter(self.contents.values()))
            self.alarm = self.timetable.at(first.touched_ms + self.limits.expiry_s * 1000, self.expire)

    def expire(self) -> None:
        """Forgets contents that nobody has touched for too long, some at a time."""
        self.alarm = None
        due_ms = self.timetable.now_ms() - self.limits.expiry_s * 1000
        for content in list(islice(self.contents.values(), FORGOTTEN)):
            if content.touched_ms > due_ms:
                break
            if content.writing:
                self.touch(content)
            else:
                self.forget(content)
        else:
            if self.contents:
                self.alarm = self.timetable.at(self.timetable.now_ms() + AGAIN_MS, self.expire)
        self.watch()

    # The journal

    def note(self, content: StagedContent) -> None:
        reference = NO_SPOOL if content.spool is None else content.spool.staged_reference()
        rest: FieldTable = {"size": content.size, "touched-ms": content.touched_ms}
        self.store.journal.put_value(journal_key(content), reference + encode_table(rest))

    def restore(self, found: list[tuple[bytes, bytes]], is_user: Callable[[str], bool]) -> None:
        """What the journal holds, after recovery; not what is left of deleted users, or of nobody."""
        restored = []
        for key, value in found:
            try:
                restored.append(self.restored(key, value))
            except (ValueError, KeyError, PeerFault) as error:
                log.error("a staged content is lost: %s", error)
                self.store.journal.delete_value(key)
        for content in sorted(restored, key=lambda each: each.touched_ms):
            self.add(content)
            if not is_user(content.owner[1]) or content.identifier.startswith(UNNAMED):
                self.forget(content)

    def restored(self, key: bytes, value: bytes) -> StagedContent:
        identity = decode_table(key, len(STAGED), len(key))[0]
        rest = decode_table(value, REFERENCE_OCTETS, len(value))[0]
        host, user, identifier = (str(identity[name]) for name in ("virtual-host", "user", "identifier"))
        number = int.from_bytes(value[:8], "little")
        spool = self.files.find(number) if number else None
        if number and spool is None:
            raise ValueError(f"the file of content {identifier!r} of user {user!r} is missing or cut short")
        size, touched_ms = rest["size"], rest["touched-ms"]
        if not isinstance(size, int) or not isinstance(touched_ms, int):
            raise ValueError(f"the record of content {identifier!r} is malformed")
        return StagedContent((host, user), identifier, size, spool, touched_ms)

    # The disk

    def collect(self) -> None:
        self.files.collect()

    def close(self) -> None:
        self.files.close()


def counted(counts: dict[T, int], key: T, more: int) -> None:
    count = counts.get(key, 0) + more
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)


def journal_key(content: StagedContent) -> bytes:
    virtual_host, user = content.owner
    return STAGED + encode_table(
        {"virtual-host": virtual_host, "user": user, "identifier": content.identifier}
    )
