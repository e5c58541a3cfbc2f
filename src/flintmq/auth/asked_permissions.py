"""Permissions of users whom a back end answers for: each thing is asked once, and the answer is kept.

    may(...) --known--------------------> True | False
             --not known----------------> AnswerPending: the session waits for the answer and tries again
             --known, and getting old---> what is known, while the back end is asked again

A back end takes milliseconds, or does not answer at all. The broker's thread never waits for it: the one
connection that needs the answer is not read from meanwhile. An answer that does not come is a refusal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, cast

from flintmq.auth.permissions import NAMELESS_EXCHANGE, Permissions, TopicPermissions
from flintmq.config import PermissionSettings
from flintmq.errors import ChannelFault
from flintmq.reply_codes import ACCESS_REFUSED

if TYPE_CHECKING:
    from flintmq.auth.backend import Backend, Identity

log = logging.getLogger("flintmq.auth")

# Answers kept: some 600 octets each, with their names.
ANSWERS_MAX = 50_000
# Questions on their way; more are refused at once.
QUESTIONS_MAX = 1000
# Of one user: one for each connection that waits, and one for each answer that gets old.
QUESTIONS_PER_USER_MAX = 500
# After a fault the back end is left alone for so long.
FAULT_S = 1.0

Key = tuple[str, ...]


class Pending(Protocol):
    """Something that is being found out."""

    what: str

    def tell(self, callback: Callable[[], None]) -> None:
        """Calls back when it is known."""


class AnswerPending(ChannelFault):
    """Something is being found out first. For whoever cannot wait this is a refusal like others."""

    def __init__(self, question: Pending) -> None:
        super().__init__(ACCESS_REFUSED, f"{question.what} is being asked, try again")
        self.question = question


class Question:
    """One thing that a back end is asked: `run` is safe on any thread, `finish` belongs to the loop's."""

    __slots__ = ("_answers", "_ask", "_told", "asked_s", "backend", "cache_s", "key", "timeout_s", "what")

    def __init__(
        self, answers: Answers, key: Key, backend: Backend, ask: Callable[[], bool], asked_s: float
    ) -> None:
        self._answers = answers
        self._ask = ask
        self.asked_s = asked_s
        self._told: list[Callable[[], None]] = []
        self.key = key
        name, user, operation, *rest = key
        self.backend = name
        self.what = f"user '{user}' may {operation} {' '.join(rest)} (back end {name})"
        self.timeout_s = backend.timeout_s
        self.cache_s = backend.cache_s

    def run(self) -> bool:
        return self._ask() is True

    def tell(self, callback: Callable[[], None]) -> None:
        """Calls back when the answer is there."""
        self._told.append(callback)

    def finish(self, allowed: bool) -> None:
        """The answer is kept for as long as it took at the least.

        Else a method that needs two answers would find one of them too old with each, and never be done.
        """
        waited_s = self._answers.waited_s(self)
        self._answers.keep(self, allowed, max(self.cache_s, FAULT_S, waited_s))
        self._tell_all()

    def fail(self, why: str) -> None:
        """There is no answer: for a moment that is a refusal."""
        log.warning("the back end does not say whether %s: %s", self.what, why)
        self._answers.keep(self, False, FAULT_S)
        self._tell_all()

    def _tell_all(self) -> None:
        told, self._told = self._told, []
        for callback in told:
            callback()


def ask_at_once(question: Question) -> None:
    """Where there is no other thread."""
    try:
        found = question.run()
    except Exception as error:
        question.fail(str(error))
    else:
        question.finish(found)


class Answers:
    """What back ends have said, for a while."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._known: dict[Key, tuple[bool, float, float]] = {}
        self._pending: dict[Key, Question] = {}
        self._asking: dict[Key, int] = {}  # how many of the questions are of a back end's user
        self._is_look_due = False
        # A server has other threads ask.
        self.asking: Callable[[Question], None] = ask_at_once
        # What was found out about permissions may be wrong now.
        self.on_changed: Callable[[], None] = lambda: None
        # Calls back in so many seconds.
        self.later: Callable[[float, Callable[[], None]], None] = lambda seconds, callback: None

    def allowed(self, key: Key, backend: Backend, ask: Callable[[], bool]) -> bool:
        """What the back end says to `ask`, or AnswerPending."""
        if not self._is_look_due:
            self._is_look_due = True
            self.later(backend.cache_s, self._look_again)
        known = self._known.get(key)
        now_s = self._now_s()
        if known is not None and now_s < known[1]:
            return known[0]
        is_good = known is not None and known[0] and now_s < known[2]
        question = self._pending.get(key)
        if question is None:
            if not self._has_room(key[:2]):
                if not is_good:
                    log.warning("%d questions wait for back ends: one more is refused", len(self._pending))
                return is_good
            question = self._pending[key] = Question(self, key, backend, ask, now_s)
            self._asking[key[:2]] = self._asking.get(key[:2], 0) + 1
            self.asking(question)
            if key not in self._pending:
                return self._known[key][0]
        if is_good:
            return True
        raise AnswerPending(question)

    def _has_room(self, user: Key) -> bool:
        """Whether one more question of the user is asked."""
        return len(self._pending) < QUESTIONS_MAX and self._asking.get(user, 0) < QUESTIONS_PER_USER_MAX

    def waited_s(self, question: Question) -> float:
        """For how long the back end has been asked."""
        return self._now_s() - question.asked_s

    def keep(self, question: Question, allowed: bool, seconds: float) -> None:
        key, now_s = question.key, self._now_s()
        if self._pending.pop(key, None) is not None:
            left = self._asking[key[:2]] = self._asking[key[:2]] - 1
            if not left:
                del self._asking[key[:2]]
        before = self._known.pop(key, None)
        if len(self._known) >= ANSWERS_MAX:
            del self._known[next(iter(self._known))]
        self._known[key] = (allowed, now_s + seconds, now_s + 2 * seconds)
        if before is not None and before[0] and not allowed:
            self.on_changed()

    def _look_again(self) -> None:
        """Channels keep what they may write to: they are to ask again, as long as somebody publishes."""
        self._is_look_due = False
        self.on_changed()


class AskedPermissions(Permissions):
    """What a user may do in one virtual host, as the back end says."""

    __slots__ = ("_hosts", "_virtual_host")

    def __init__(self, hosts: AskedHosts, virtual_host: str) -> None:
        super().__init__(PermissionSettings())
        self._hosts = hosts
        self._virtual_host = virtual_host

    def may(self, operation: str, kind: str, name: str) -> bool:
        hosts, virtual_host = self._hosts, self._virtual_host
        name = name or NAMELESS_EXCHANGE
        return hosts.allowed(
            (operation, kind, name, virtual_host),
            lambda: hosts.backend.may(hosts.identity, virtual_host, kind, name, operation),
        )


class AskedTopicPermissions(TopicPermissions):
    """Which routing keys of a topic exchange a user may use, as the back end says."""

    __slots__ = ("_exchange", "_hosts", "_virtual_host")

    def __init__(self, hosts: AskedHosts, virtual_host: str, exchange: str) -> None:
        super().__init__("", "", hosts.identity.name, virtual_host)
        self._hosts = hosts
        self._virtual_host = virtual_host
        self._exchange = exchange

    def may_write(self, key: str, client_id: str | None) -> bool:
        return self._ask("write", key)

    def may_read(self, key: str, client_id: str | None) -> bool:
        return self._ask("read", key)

    def _ask(self, operation: str, routing_key: str) -> bool:
        hosts, host, exchange = self._hosts, self._virtual_host, self._exchange
        return hosts.allowed(
            (operation, "topic", exchange, host, routing_key),
            lambda: hosts.backend.may_use_topic(hosts.identity, host, exchange, operation, routing_key),
        )


class AskedHosts(Mapping[str, Permissions]):
    """The permissions of a user by virtual host: which there are, only the back end knows."""

    def __init__(self, answers: Answers, name: str, backend: Backend, identity: Identity, peer: str) -> None:
        self._answers = answers
        self._name = name  # of the back end
        self.backend = backend
        self.identity = identity
        self._peer_address = peer

    def allowed(self, key: Key, ask: Callable[[], bool]) -> bool:
        return self._answers.allowed((self._name, self.identity.name, *key), self.backend, ask)

    def __contains__(self, virtual_host: object) -> bool:
        host, peer = cast(str, virtual_host), self._peer_address
        return self.allowed(("enter", host, peer), lambda: self.backend.may_enter(self.identity, host, peer))

    def __getitem__(self, virtual_host: str) -> AskedPermissions:
        return AskedPermissions(self, virtual_host)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class AskedTopics(Mapping[tuple[str, str], TopicPermissions]):
    """The topic permissions of a user: every exchange may have some."""

    def __init__(self, hosts: AskedHosts) -> None:
        self._hosts = hosts

    def __contains__(self, place: object) -> bool:
        return True

    def __getitem__(self, place: tuple[str, str]) -> AskedTopicPermissions:
        return AskedTopicPermissions(self._hosts, *place)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True
