"""Requests to the broker, over plain AMQP: published to the exchange `amq.system`, answered by a message.

    client --- basic.publish exchange=amq.system, routing key=service, headers=arguments, reply-to ---> ask()
                                                                                                         |
    client <-- message in the queue that reply-to names, headers=results, correlation-id --- Request.reply()

A service is a function of a Request. It answers at once or later, but once; what it may tell is for it to
check, as the like AMQP method would. Arguments are the message's headers, bulk input is its body.
A failure is an answer too: `error-code`, an AMQP reply code, and `error-text`.

Requests of one connection are answered one after the other, and the connection is not read from meanwhile
(scheduling/errands.py). A service whose work grows with what there is returns an iterator: each step of it
is a portion.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from io import BytesIO
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from flintmq import checks
from flintmq.auth import AnswerPending, Operation, require
from flintmq.broker.administration.changes import Change
from flintmq.broker.channels.channel import Channel
from flintmq.broker.messages.composing import composed, header_of, message_of
from flintmq.broker.scheduling.errands import attend
from flintmq.broker.services import acting, arguments
from flintmq.errors import PeerFault, ProtocolMisuse, ServiceFault, StorageFault, reply_text
from flintmq.wire import amqp, traits
from flintmq.wire.columns import Octets
from flintmq.wire.properties import BasicProperties, decode_basic_properties, encode_properties
from flintmq.wire.tables import FieldTable, FieldValue, encode_value

if TYPE_CHECKING:
    from flintmq.auth import User
    from flintmq.broker.exchanges.route import RoutingContext
    from flintmq.broker.messages.message import Message
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.broker.services.answers import Answer
    from flintmq.broker.store.publisher import Publisher

log = logging.getLogger("flintmq.services")

Service = Callable[["Request"], "Chore | None"]
Row = tuple[str, Callable[[], FieldTable] | None]

SERVICES: dict[str, Service] = {}
# The modules that have them and are not loaded yet: a start does not wait for them.
LATER = [
    "flintmq.broker.services.administration_services",
    "flintmq.broker.services.backup_services",
    "flintmq.broker.services.ban_services",
    "flintmq.broker.services.dtx_services",
    "flintmq.broker.services.management_services",
    "flintmq.broker.services.node_services",
    "flintmq.broker.services.queue_services",
    "flintmq.broker.services.staging_services",
    "flintmq.broker.services.stream_services",
    "flintmq.broker.services.system_services",
]
# The arguments that each of them takes.
ARGUMENTS: dict[str, arguments.Table] = {}
# Those whose answers are kept for a repeat under the same message-id: see answers.py.
CHANGING: set[str] = set()
# Those whose answers may be large, with what they ask for by default: see answer_room.py.
LARGE: dict[str, int] = {}
# Those that administer: each request to them is told to whoever keeps a log of changes.
ADMINISTERING: set[str] = set()

# An answer's results travel in one content header, which is one frame: so much of a frame is for others
# than the rows of a page. Correlation-id 256, names and counts 200, the frame itself 22.
PAGE_BYTES_APART = 512
PAGE_ROWS = 100
PAGE_ROWS_MAX = 1000
# Rows looked at in one step: 10 microseconds each.
STEP_ROWS = 32
# Of one connection, which may have sent them together in a transaction.
REQUESTS_WAITING_MAX = 1024
# Of one connection that wait for something to come, each for as long as it has asked for: some KiB each.
PATIENT_MAX = 256

# A header that marks a request as asked again, see answers.py.
REPEAT = "x-repeat"

# Of a body that is put together, in one step.
PIECES_BYTES = 1_048_576

_REQUIRED: Any = object()


class Request:
    """One question to the broker, and the way to its answer."""

    until_ms = 0  # how long it waits for something to come

    def __init__(self, channel: Channel, name: str, properties: BasicProperties, body: bytes) -> None:
        broker = channel.virtual_host.broker
        if broker is None:
            raise ProtocolMisuse("a virtual host without a broker has no services")
        self.broker = broker
        self.channel = channel  # of the asker: its user, its virtual host, its connection (origin)
        self.road = channel.router  # of the answer
        self.name = name
        self.arguments: FieldTable = properties.headers or {}
        self.body = body
        self.function: Service = unknown
        self.reply_to = properties.reply_to or ""
        self.correlation_id = properties.correlation_id
        self.message_id = properties.message_id or ""
        self.kept: Answer | None = None  # where the answer is kept, if this is the first to ask for it
        self.peer_address = ""  # of a user in whose name the management process asks
        self.made_bytes = 0  # that the answer may take while it is made
        self.is_answered = False
        self.is_repeat = False  # the answer is that of another request

    @property
    def user(self) -> User:
        """Who asks: what the user may do and see is what is done and told."""
        return self.channel.user

    # Arguments

    def text(self, name: str, default: str = _REQUIRED) -> str:
        found: str = self.checked(name, checks.any_text, default)
        return found

    def number(
        self, name: str, default: int = _REQUIRED, minimum: int = 0, maximum: int = checks.NUMBER_MAX
    ) -> int:
        found: int = self.checked(name, checks.whole(minimum, maximum), default)
        return found

    def flag(self, name: str, default: bool = _REQUIRED) -> bool:
        found: bool = self.checked(name, checks.switch, default)
        return found

    def checked(self, name: str, check: checks.Check, default: FieldValue = _REQUIRED) -> Any:
        """What an argument means; without a default it must be there."""
        if self.name in ARGUMENTS and name not in ARGUMENTS[self.name]:
            raise ProtocolMisuse(f"the signature of {self.name} has no argument {name!r}")
        value = self.arguments.get(name, default)
        if value is _REQUIRED:
            raise self.wrong(name, "is missing")
        try:
            return check(value)
        except checks.Unfit as unfit:
            raise self.wrong(name, str(unfit)) from None

    def wrong(self, name: str, why: str) -> ServiceFault:
        """The fault of an argument."""
        return ServiceFault(amqp.PRECONDITION_FAILED, f"{self.name}: argument '{name}': {why}")

    def require(self, operation: Operation, kind: str, name: str) -> None:
        """Raises unless the asker may do this to the exchange or queue; answered by 403 if it escapes."""
        require(self.user, self.channel.virtual_host.name, operation, kind, name)

    # The answer

    def reply(self, results: FieldTable, body: bytes = b"") -> None:
        """Answers the request. Whoever asked for no answer, or has gone, gets none."""
        self.end(results, body)
        if self.reply_to:
            properties = self.properties_of(results)
            fits = properties.headers is results
            self.send(composed("", self.reply_to, properties, body if fits else b""))

    def reply_in_pieces(self, results: FieldTable, pieces: list[Octets]) -> Iterator[None]:
        """The same with a body that may be large, which is put together some at a time.

        For services that change nothing: the body is not kept for those who ask again. Takes each piece out
        of the list, so that it is in memory only once.
        """
        properties = self.properties_of(results)
        if not self.reply_to or properties.headers is not results:
            self.reply(results)
            return
        header = header_of(properties, sum(map(len, pieces)))
        content = BytesIO()
        octets = content.write(header)
        pieces.reverse()
        while pieces:
            octets += content.write(pieces.pop())
            if octets > PIECES_BYTES:
                octets = 0
                yield
        self.end(results, b"")
        self.send(message_of("", self.reply_to, header, content.getvalue()))

    def end(self, results: FieldTable, body: bytes) -> None:
        """It is answered: whoever is to know of that is told."""
        if self.is_answered:
            raise ProtocolMisuse(f"{self.name} answers a request twice")
        self.is_answered = True
        self.end_wait()
        self.tell_of_change(results)
        if self.kept is not None:
            self.broker.answers.give(self, results, body)

    def properties_of(self, results: FieldTable) -> BasicProperties:
        """Those of the answer, with the results as headers, or a failure where they do not fit in a frame."""
        properties = BasicProperties(headers=results, correlation_id=self.correlation_id)
        header_bytes_max = self.channel.output.frame_bytes_max - 20
        if len(encode_properties(properties)) > header_bytes_max:
            why = f"{self.name}: the results do not fit in a frame: ask for less of them"
            properties.headers = failure(amqp.RESOURCE_ERROR, why)
        return properties

    def send(self, answer: Message) -> None:
        answer.traits |= traits.ANSWER
        self.broker.answer_room.note(self, answer)
        try:
            if not self.road.post(answer):
                log.debug("%s: the queue for the reply is gone", self.name)
        except PeerFault as fault:
            log.info("%s: the queue does not take the reply: %s", self.name, fault.reply_text)

    def tell_of_change(self, results: FieldTable) -> None:
        """Tells the log and the audit log of each request that administers, and of each refusal."""
        code = results.get("error-code", 0)
        if self.is_repeat or not (self.name in ADMINISTERING or code == amqp.ACCESS_REFUSED):
            return
        known = ARGUMENTS.get(self.name, {})
        told = {name: value for name, value in self.arguments.items() if is_told(known, name)}
        text = results.get("error-text", "")
        client = self.broker.connections.get(self.channel.origin)
        change = Change(
            self.name,
            self.user.name,
            self.peer_address if client is None else client.peer_address,
            self.channel.origin,
            self.channel.virtual_host.name,
            told,
            code if isinstance(code, int) else 0,
            str(text),
        )
        self.broker.administration.changes.tell(change)

    def wait(self, give_up: Callable[[], None] | None = None) -> None:
        """It waits for something to come, up to `until_ms`. Raises if too many of its connection do.

        `give_up` is called if the connection ends meanwhile; without it the time to wait is over then.
        """
        origin = self.channel.origin
        patient = self.broker.clients.patient
        waiting = patient.get(origin, {})
        if self in waiting:
            return
        if len(waiting) >= PATIENT_MAX:
            raise ServiceFault(
                amqp.RESOURCE_ERROR,
                f"{self.name}: {PATIENT_MAX} requests of this connection wait for something to come",
            )
        waiting[self] = give_up or self.wait_no_longer
        patient[origin] = waiting

    def wait_no_longer(self) -> None:
        self.until_ms = 0

    def end_wait(self) -> None:
        """It is answered."""
        patient = self.broker.clients.patient
        waiting = patient.get(self.channel.origin)
        if waiting is not None and waiting.pop(self, None) is not None and not waiting:
            del patient[self.channel.origin]

    def fail(self, code: int, why: str) -> None:
        """Answers that it cannot be done."""
        self.reply(failure(code, why))

    def page(self, rows: Iterable[tuple[str, Callable[[], FieldTable]]]) -> Iterator[None]:
        """Answers with a page of rows, of which there are few, in any order; see `listing`."""
        ordered = sorted(rows, key=itemgetter(0))
        return self.listing(lambda after: (row for row in ordered if not after or row[0] > after))

    def listing(self, rows: Callable[[str], Iterable[Row]]) -> Iterator[None]:
        """Answers with the first of the rows past `after`, as many as `limit` and a frame allow.

        `rows` has them in their order, from behind a place on; it is called again for each portion, as
        anything may come and go between two. A row is its place, which no other has, and what makes its
        table: None if the asker is not shown it.
        Results: `rows`, and `next`, the `after` of the following page, unless this is the last one.
        """
        limit = self.number("limit", PAGE_ROWS, 1, PAGE_ROWS_MAX)
        seen = self.text("after", "")
        room = self.channel.output.frame_bytes_max - PAGE_BYTES_APART
        shown: list[FieldValue] = []
        last = ""
        while True:
            for looked_at, (place, make) in enumerate(rows(seen), 1):
                seen = place
                if make is not None:
                    table = make() if len(shown) < limit else {}
                    size = len(encode_value(table)) + len(place.encode("utf-8", "surrogateescape"))
                    room -= size - len(last)
                    if shown and (room < 0 or len(shown) == limit):
                        self.reply({"rows": shown, "next": last})
                        return
                    if room < 0 and table.pop("arguments", None):
                        table["arguments-left-out"] = True  # else no page could go past it
                    shown.append(table)
                    last = place
                if looked_at == STEP_ROWS:
                    break
            else:
                self.reply({"rows": shown})
                return
            yield

    def check_arguments(self) -> None:
        """Raises if the service takes no such argument, or if nobody can tell what is to be repeated."""
        known = ARGUMENTS.get(self.name)
        if known is None:
            return
        unknown = arguments.unknown_among(self.arguments, known)
        if unknown is not None:
            raise self.wrong(unknown, f"no such argument: {arguments.advice(unknown, known)}")
        if self.name in CHANGING and not self.message_id and self.arguments.get(REPEAT, False) is not False:
            raise self.wrong(REPEAT, "a repeat needs the message-id of the request that it repeats")

    def work(self) -> Chore:
        """Calls the service; again, if its first step needs a back end to say what the asker may do."""
        while True:
            try:
                work = self.function(self)
                first = None if work is None else next(work)
            except StopIteration:
                return
            except AnswerPending as pending:
                yield pending.question.tell
            else:
                break
        if work is not None:
            yield first
            yield from work

    def serve(self) -> Chore:
        """Calls the service, unless the answer is known; what it raises is the answer."""
        room = self.broker.answer_room
        try:
            yield from room.until_read(self)
            if self.name in LARGE:
                yield from room.until_room(self, self.asked_bytes())
            if self.kept is None:
                self.check_arguments()
                is_kept = bool(self.message_id) and self.name in CHANGING
                if is_kept and not self.broker.answers.begin(self):
                    return
            yield from self.work()
        except (ServiceFault, PeerFault) as fault:
            if not self.is_answered:
                self.fail(fault.code, fault.text)
        except StorageFault as fault:
            log.error("a request to %s is refused: %s", self.name, fault)
            if not self.is_answered:
                self.fail(amqp.INTERNAL_ERROR, f"{self.name}: the disk does not give a message: {fault}")
        except Exception:
            log.exception("a bug ends a request to %s", self.name)
            if not self.is_answered:
                self.fail(amqp.INTERNAL_ERROR, f"{self.name} failed; see the broker's log")
        finally:
            room.release(self)

    def asked_bytes(self) -> int:
        """How much of an answer is asked for; what is wrong with the argument is told later."""
        asked = self.arguments.get("max-bytes")
        return asked if isinstance(asked, int) and asked > 0 else LARGE[self.name]

    def bytes_max(self, maximum: int, minimum: int = 1) -> int:
        """What is asked for as `max-bytes`, or what there is room for if that is less."""
        asked = self.number("max-bytes", LARGE[self.name], minimum, maximum)
        return min(asked, self.broker.answer_room.answer_bytes_max())


def is_told(known: arguments.Table, name: str) -> bool:
    """Whether others may hear the value: nobody knows what is in an argument that is misspelt."""
    return name in known and known[name].kind != "secret"


def failure(code: int, why: str) -> FieldTable:
    return {"error-code": code, "error-text": reply_text(code, why)}


def service(
    name: str,
    signature: str | None = None,
    changes: bool = False,
    administers: bool = False,
    large_bytes: int = 0,
) -> Callable[[Service], Service]:
    """Registers a function(request: Request) as the service of this name; its docstring is the help.

    `signature` has its arguments, see arguments.py. One that `changes` something is done once for each
    message-id, however often it is asked. One that `administers` is told to those who keep a log. One whose
    answers may be large makes them of `large_bytes` unless `max-bytes` is asked for.
    """

    def register(function: Service) -> Service:
        if name in SERVICES:
            raise ProtocolMisuse(f"there are two services called {name}")
        SERVICES[name] = function
        if signature is not None:
            ARGUMENTS[name] = arguments.table_of(signature)
        if changes:
            CHANGING.add(name)
        if administers:
            ADMINISTERING.add(name)
        if large_bytes:
            LARGE[name] = large_bytes
        return function

    return register


def load_services() -> None:
    """Makes all services known: soon after the start, or when somebody asks before."""
    for _ in range(len(LATER)):
        if not LATER:  # a module has asked for the others while it was loaded
            break
        name = LATER.pop(0)
        before = set(SERVICES)
        try:
            import_module(name)
        except (OSError, MemoryError) as fault:
            LATER.append(name)  # the system has no descriptor or memory now, and may have one later
            for each in SERVICES.keys() - before:
                if SERVICES[each].__module__ not in sys.modules:
                    del SERVICES[each]  # of a module that has come half way, and registers it once more
            log.error("the services of %s cannot be loaded now: %s", name, fault)
        except Exception:  # the services of other modules are there
            log.exception("the services of %s are missing: it cannot be loaded", name)


def check(message: Message, channel: Publisher) -> None:
    """Raises unless the sender may have an answer sent to where the request wants it."""
    assert isinstance(channel, Channel)
    require_reply(
        Request(channel, "", decode_basic_properties(message.content, 12, message.header_size), b"")
    )


def ask(context: RoutingContext) -> bool:
    """Serves what was published to the exchange `amq.system`; False if nobody can be told it is not known."""
    channel = context.channel
    if not isinstance(channel, Channel):
        return False  # the broker itself has sent it
    message = context.message
    properties = decode_basic_properties(message.content, 12, message.header_size)
    body = b"" if message.traits & traits.SPOOLED else message.content[message.header_size :]
    request = Request(channel, context.key, properties, body)
    try:
        require_reply(request)
    except PeerFault as fault:
        if channel.transaction is None:
            raise
        # Over another exchange, so that nobody asked before the commit began: too late to refuse.
        log.warning("a request to %s is not served: %s", request.name[:80], fault.reply_text)
        return False
    load_services()
    function = SERVICES.get(request.name)
    if function is None and not request.reply_to:
        log.info("no service %r, and no reply-to in the request", request.name[:80])
        return False
    if message.traits & traits.SPOOLED:
        request.function = too_large
    elif function is not None:
        request.function = function
    if acting.FOR_USER in request.arguments:
        acting.assume(request)
    admit(request)
    return True


def unknown(request: Request) -> None:
    raise ServiceFault(amqp.NOT_FOUND, f"no service '{request.name}': see broker.services")


def too_large(request: Request) -> None:
    raise ServiceFault(amqp.CONTENT_TOO_LARGE, f"{request.name}: body is too large")


def admit(request: Request) -> None:
    """Serves the request at once if there is time for it in this pass, else when its turn has come."""
    origin, pass_work = request.channel.origin, request.channel.virtual_host.pass_work
    if len(pass_work.asking.get(origin, ())) < REQUESTS_WAITING_MAX:
        attend(pass_work, origin, request)
        return
    request.fail(
        amqp.RESOURCE_ERROR,
        f"{request.name}: {REQUESTS_WAITING_MAX} requests of this connection wait",
    )
    pass_work.load()


def require_reply(request: Request) -> None:
    """The answer is a message to a queue: whoever may not send one there may not have us do it."""
    channel = request.channel
    if not request.reply_to:
        return
    queue = channel.virtual_host.queues.get(request.reply_to)
    if queue is None or not queue.exclusive or queue.owner != channel.origin:
        require(request.user, channel.virtual_host.name, Operation.WRITE, "exchange", "")


def shortened(text: str, octets_max: int) -> str:
    """A text without its middle if it has too many octets: it begins with what, and ends with why."""
    octets = text.encode("utf-8", "replace")
    if len(octets) <= octets_max:
        return text
    half = (octets_max - 3) // 2
    return octets[:half].decode("utf-8", "ignore") + "..." + octets[-half:].decode("utf-8", "ignore")
