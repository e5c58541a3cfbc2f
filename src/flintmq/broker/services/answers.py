"""What was answered to requests that change something, so that a request asked twice is done once.

    client --- queue.move, message-id=m1 -----------> done, and the answer kept under m1
           x-- the answer is lost with its connection
    client --- queue.move, message-id=m1, x-repeat -> the same answer, nothing done

An id is one of a user in a virtual host. Answers are kept for ANSWER_S, as many as SCOPE_ANSWERS_MAX and
SCOPE_BYTES_MAX allow for each of these scopes, and not over a restart. A repeat (header `x-repeat`) of what
is not known here is not done either, as it may have been done and forgotten: its answer says
`request-unknown`. One exception: the repeat proves that nothing can have been forgotten. It names the
memory that the first attempt was made to (`x-memory`, as connection.start tells it), and `x-repeat` is how
many milliseconds ago that was. Then the first attempt never came, and the repeat is done.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING

from flintmq.broker.services.request import REPEAT
from flintmq.errors import ServiceFault, reply_text
from flintmq.wire import amqp
from flintmq.wire.tables import FieldTable, encode_table

if TYPE_CHECKING:
    from flintmq.broker.scheduling.timetable import Timetable
    from flintmq.broker.services.request import Request

MEMORY = "x-memory"
# Of each user in each virtual host.
SCOPE_ANSWERS_MAX = 1024
SCOPE_BYTES_MAX = 1_048_576
ANSWER_S = 600
# How long a repeat may be on its way, as what it says of its age is as old as that.
TRANSIT_S = 60
# Askers of one id who wait for the answer to the first of them.
WAITING_MAX = 16
# What an answer takes besides its octets: some 600 octets of objects, an id and a key of up to 255 each.
ANSWER_BYTES = 1024

Scope = tuple[str, str]


class Answer:
    """The answer to one request, or those who wait for it."""

    __slots__ = ("body", "came_ms", "digest", "given_ms", "name", "results", "size", "waiting")

    def __init__(self, name: str, digest: bytes, came_ms: int) -> None:
        self.name = name
        self.digest = digest
        self.came_ms = came_ms
        self.given_ms = 0
        self.size = ANSWER_BYTES
        self.results: FieldTable | None = None  # None: it is being worked on
        self.body = b""
        self.waiting: list[Request] = []


class ScopeAnswers:
    """The answers of one scope, oldest first; those that are being worked on are apart."""

    __slots__ = ("forgotten_ms", "given", "octets", "open")

    def __init__(self) -> None:
        self.open: dict[str, Answer] = {}
        self.given: OrderedDict[str, Answer] = OrderedDict()
        self.octets = 0
        # When the latest came of those that had to go before their time.
        self.forgotten_ms = 0

    def forget(self, now_ms: int) -> None:
        """Lets go of what is too old or too much."""
        old_ms = now_ms - ANSWER_S * 1000
        while self.given:
            key, answer = next(iter(self.given.items()))
            is_old = answer.given_ms < old_ms
            if not is_old and len(self.given) <= SCOPE_ANSWERS_MAX and self.octets <= SCOPE_BYTES_MAX:
                return
            del self.given[key]
            self.octets -= answer.size
            if not is_old:
                self.forgotten_ms = max(self.forgotten_ms, answer.came_ms)


class Answers:
    """The answers since the broker was started. `memory` names that start."""

    __slots__ = ("_memory", "scopes", "timetable")

    def __init__(self, timetable: Timetable) -> None:
        self.timetable = timetable
        self._memory = ""
        self.scopes: dict[Scope, ScopeAnswers] = {}

    @property
    def memory(self) -> str:
        """Drawn when the first client is told."""
        if not self._memory:
            self._memory = self.timetable.clock.random.getrandbits(128).to_bytes(16, "big").hex()
        return self._memory

    def begin(self, request: Request) -> bool:
        """Whether the request is to be done; if not, it has its answer, or will have it with the first."""
        channel = request.channel
        scope = (request.user.name, channel.virtual_host.name)
        now_ms = self.timetable.now_ms()
        kept = self.scopes.get(scope) or self.new_scope(scope, now_ms)
        kept.forget(now_ms)
        key = request.message_id
        known = kept.open.get(key) or kept.given.get(key)
        if known is not None:
            repeat(request, known)
            return False
        if not never_came(request, kept, self.memory, now_ms):
            request.reply(
                {
                    "error-code": amqp.NOT_FOUND,
                    "error-text": reply_text(
                        amqp.NOT_FOUND,
                        f"{request.name}: a repeat of request '{key}', which is not known here: whether it "
                        "was done is not known either",
                    ),
                    "request-unknown": True,
                }
            )
            return False
        if len(kept.open) >= SCOPE_ANSWERS_MAX:
            raise ServiceFault(
                amqp.RESOURCE_ERROR,
                f"{request.name}: {SCOPE_ANSWERS_MAX} requests with an id are under way",
            )
        kept.open[key] = request.kept = Answer(request.name, digest_of(request), now_ms)
        return True

    def new_scope(self, scope: Scope, now_ms: int) -> ScopeAnswers:
        """Takes the place of scopes that keep nothing any more."""
        for each in self.scopes.values():
            each.forget(now_ms)
        self.scopes = {name: each for name, each in self.scopes.items() if each.open or each.given}
        self.scopes[scope] = made = ScopeAnswers()
        return made

    def give(self, request: Request, results: FieldTable, body: bytes) -> None:
        """The request was answered: so are those who asked the same, and all who will."""
        answer = request.kept
        channel = request.channel
        kept = self.scopes[request.user.name, channel.virtual_host.name]
        assert answer is not None
        answer.results, answer.body = dict(results), body
        answer.given_ms = self.timetable.now_ms()
        answer.size += len(encode_table(results)) + len(body)
        del kept.open[request.message_id]
        kept.given[request.message_id] = answer
        kept.octets += answer.size
        waiting, answer.waiting = answer.waiting, []
        for each in waiting:
            tell(each, answer)
        kept.forget(answer.given_ms)


def repeat(request: Request, known: Answer) -> None:
    """Answers with what is known, as soon as it is."""
    if known.digest != digest_of(request):
        raise ServiceFault(
            amqp.PRECONDITION_FAILED,
            f"{request.name}: the id '{request.message_id}' was used for another "
            f"request to {known.name}: give each request an id of its own",
        )
    if known.results is not None:
        tell(request, known)
    elif len(known.waiting) < WAITING_MAX:
        known.waiting.append(request)
    else:
        raise ServiceFault(
            amqp.RESOURCE_ERROR,
            f"{request.name}: request '{request.message_id}' is being worked on, and "
            f"{WAITING_MAX} wait for its answer",
        )


def tell(request: Request, answer: Answer) -> None:
    """The same answer, not before what it says is on disk: that held back the first asker alone."""
    store = request.channel.store
    if store is not None:
        store.hold_back(request.channel.output, store.last())
    assert answer.results is not None
    request.is_repeat = True
    request.reply(dict(answer.results), answer.body)


def never_came(request: Request, kept: ScopeAnswers, memory: str, now_ms: int) -> bool:
    """Whether it is certain that the request, which is not known, was not done before."""
    age_ms = request.arguments.get(REPEAT, False)
    if age_ms is False:
        return True  # the first attempt
    if age_ms is True or not isinstance(age_ms, int) or age_ms < 0:
        return False
    age_ms += TRANSIT_S * 1000
    is_forgotten = age_ms >= ANSWER_S * 1000 or now_ms - age_ms <= kept.forgotten_ms
    return request.arguments.get(MEMORY) == memory and not is_forgotten


def digest_of(request: Request) -> bytes:
    """Of what is asked: a repeat has the same, in whatever order its arguments come."""
    given = sorted(request.arguments.items())
    arguments = {name: value for name, value in given if name not in (REPEAT, MEMORY)}
    name = request.name.encode("utf-8", "surrogateescape")
    octets = len(name).to_bytes(2, "big") + name + encode_table(arguments) + request.body
    return blake2b(octets, digest_size=16).digest()
