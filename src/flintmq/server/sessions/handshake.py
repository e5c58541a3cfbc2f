"""The handshake of a connection, as far as connection.open: the greeting, the login, the limits, the host.

    start -> start-ok -> (secure -> secure-ok)* -> tune -> tune-ok -> open -> open-ok

A login takes several steps: while a password is verified or a back end is asked, nothing is read, and
`login_step` goes on with the outcome. A client that is refused waits before it hears so. update-secret, the
second login of an open connection, is here too. What may come when is in protocol/states.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from flintmq import __version__
from flintmq.auth import Accepted, Challenge, Refused, Tag, User, Verification, mechanism
from flintmq.broker.channels.client_connection import ClientConnection
from flintmq.broker.services.acting import internal_login
from flintmq.errors import ConnectionFault
from flintmq.protocol import phases
from flintmq.server.logs.audit_log import LOGIN
from flintmq.wire import amqp, methods
from flintmq.wire.methods import encode_method
from flintmq.wire.tables import number_table

if TYPE_CHECKING:
    from flintmq.server.sessions.session import Session

log = logging.getLogger("flintmq.session")
# What everybody can bring about without a login: see logs/log_floods.py.
strangers_log = logging.getLogger("flintmq.strangers")

SERVER_PROPERTIES: dict[str, Any] = {
    "product": "FlintMQ",
    "version": __version__,
    "platform": "Python",
    "information": "Licensed under Apache-2.0",
    "copyright": "The FlintMQ developers",
    "capabilities": {
        "publisher_confirms": True,
        "exchange_exchange_bindings": True,
        "basic.nack": True,
        "consumer_cancel_notify": True,
        "connection.blocked": True,
        "consumer_priorities": True,
        "per_consumer_qos": True,
        "authentication_failure_close": True,
        "direct_reply_to": True,
        "content.interrupt": True,
        "flintmq.dtx": True,
    },
}

OPEN_OK = methods.ConnectionOpenOk()

# The language of all texts that the broker sends.
LOCALE = "en_US"
# So many connections are let in however short memory is: somebody has to look, and to empty the queues.
CONNECTIONS_CRITICAL = 64
# What a login may take in memory: a table of 8 KiB with thousands of fields is some 200 KiB of objects. Some
# hundred logins between two looks at memory are a tenth of a limit of 200 MiB.
LOGIN_BYTES = 32_768


def greeted(session: Session, version: int) -> None:
    broker, connection, output = session.broker, session.connection, session.output
    session.link.greeted()
    payload = start_payload(version, broker.answers.memory, broker.authentication.mechanisms_offered())
    output.write_method(0, with_numbers(payload) if connection.numeric else payload)


def start_ok(session: Session, method: methods.ConnectionStartOk) -> None:
    if session.login is not None:  # one for each connection: a second guess costs a new one
        raise ConnectionFault(amqp.COMMAND_INVALID, "a login is in progress already")
    broker, connection = session.broker, session.connection
    broker.pass_work.unwatched_bytes -= LOGIN_BYTES
    if len(broker.connections) >= CONNECTIONS_CRITICAL and session.is_critical():
        end_handshake(session, "memory is short")
        return
    if method.locale not in ("", LOCALE) and connection.version != amqp.VERSION_0_9_1:
        # RabbitMQ takes any, so that clients of 0-9-1 may say what they like.
        text = f"locale '{method.locale}' was not offered: use {LOCALE}"
        raise ConnectionFault(amqp.NOT_ALLOWED, text)
    session.client_properties = method.client_properties
    announced = method.client_properties.get("capabilities")
    if isinstance(announced, dict):
        session.capabilities = frozenset([name for name, value in announced.items() if value is True])
    if session.is_internal:
        login_step(session, internal_login(broker.users, method.response))
        return
    try:
        login = mechanism(
            method.mechanism, broker.authentication, session.peer_address, session.link.peer_certificate()
        )
    except ConnectionFault as fault:
        refuse_handshake(session, fault.reply_text, session.link.drop)
        return
    session.login = login
    login_step(session, login.start(method.response))


def secure_ok(session: Session, method: methods.ConnectionSecureOk) -> None:
    if session.login is not None:
        login_step(session, session.login.answer(method.response))


def login_step(session: Session, step: Challenge | Verification | Accepted | Refused) -> None:
    broker, connection = session.broker, session.connection
    if connection.state >= phases.CONNECTION_CLOSING:
        return  # closed while the password was verified
    if connection.state == phases.CONNECTION_OPEN:
        renew_identity(session, step)
    elif isinstance(step, Accepted):
        user = step.user
        session.user = user
        session.login = None
        broker.failed_logins.welcome(session.peer_address)
        if not session.is_internal:
            broker.failed_logins.count(connection.version, True)
            # Whoever logs in over HTTP is noted when the password is checked (management.authenticate).
            session.audit(LOGIN, "login", True)
            if broker.hears_events(None):
                broker.events.logged_in(user.name, session.peer_address, "")
        watch_expiry(session, user)
        tune(session)
    elif isinstance(step, Challenge):
        connection.send(methods.ConnectionSecure(challenge=step.octets))
    elif isinstance(step, Verification):
        session.link.verify(step)
    else:
        strangers_log.warning("login refused for %s: %s", session.peer_address, step.reason)
        broker.failed_logins.count(connection.version, False)
        session.audit(LOGIN, "login", False, reason=step.reason)
        broker.events.logged_in(step.user, session.peer_address, step.reason)
        session.refusal = step.told
        session.link.refuse_login(broker.failed_logins.note(session.peer_address, step.user, step.is_fault))


def login_refused(session: Session) -> None:
    """The pause after a failed login is over."""
    session.is_refused = True
    name = session.login.name if session.login is not None else "SASL"
    if "authentication_failure_close" in session.capabilities:
        why = f": {session.refusal}" if session.refusal else "."
        text = f"Login was refused using authentication mechanism {name}{why}"
        session.close_connection(ConnectionFault(amqp.ACCESS_REFUSED, text))
    else:
        session.link.drop()


def tune(session: Session) -> None:
    limits = session.broker.config.limits
    session.connection.send(
        tune_method(limits.channels_per_connection_max, limits.frame_bytes_max, limits.heartbeat_s)
    )


def tune_ok(session: Session, method: methods.ConnectionTuneOk) -> None:
    limits = session.broker.config.limits
    frame_max = method.frame_max or limits.frame_bytes_max
    channel_max = method.channel_max or limits.channels_per_connection_max
    if not amqp.FRAME_BYTES_MIN <= frame_max <= limits.frame_bytes_max:
        end_handshake(
            session, f"frame_max={frame_max} is not in {amqp.FRAME_BYTES_MIN}..{limits.frame_bytes_max}"
        )
        return
    if channel_max > limits.channels_per_connection_max:
        end_handshake(session, f"channel_max={channel_max} is above {limits.channels_per_connection_max}")
        return
    connection, output = session.connection, session.output
    connection.frame_bytes_max = frame_max
    output.frame_bytes_max = frame_max
    output.header_bytes_max = frame_max - 8
    connection.channel_max = channel_max
    session.heartbeat_s = method.heartbeat
    session.link.start_heartbeats(method.heartbeat)


def end_handshake(session: Session, why: str) -> None:
    """Before connection.open there is no connection.close: start-ok mechanism, tune-ok limits."""
    strangers_log.warning("handshake of %s ended: %s", session, why)
    session.link.drop()


def refuse_handshake(session: Session, why: str, then: Callable[[], None]) -> None:
    """A peer that breaks the rules before it has logged in waits for what follows as after a login."""
    strangers_log.warning("handshake of %s ended: %s", session, why)
    session.is_refused = True
    session.link.refuse(session.broker.failed_logins.note(session.peer_address), then)


def open_connection(session: Session, method: methods.ConnectionOpen) -> None:
    broker, connection, link = session.broker, session.connection, session.link
    name = method.virtual_host
    user = session.user
    virtual_host = broker.virtual_hosts.get(name)
    if session.is_internal and not name:  # any will do
        virtual_host = next(iter(broker.virtual_hosts.values()), None)
    if virtual_host is None and user is not None and user.has_tag(Tag.MONITORING):
        raise ConnectionFault(amqp.NOT_ALLOWED, f"vhost {name} not found")
    # The same words for one that is not there, and no sooner, as a back end is asked about it as well: who
    # may not list virtual hosts need not know which there are.
    if user is None or not user.may_enter(name) or virtual_host is None:
        who = "" if user is None else f" for user '{user.name}'"
        raise ConnectionFault(
            amqp.NOT_ALLOWED,
            f"access to vhost '{name}' refused{who}: there is none of that name, or no permissions in it",
        )
    limits = broker.administration.limits
    if limits.of and not session.is_internal:
        limits.check_connection(user, virtual_host)
    session.virtual_host = virtual_host
    client = ClientConnection(
        session.number,
        user,
        virtual_host,
        session.peer_address,
        connection.version,
        session.client_properties,
        broker.pass_work.now_ms,
        session,
    )
    if session.is_internal:
        broker.clients.internal[session.number] = client
    else:
        broker.clients.enter(client)
        session.audit(LOGIN, "connection.open", True)
        if broker.hears_events(virtual_host):
            broker.events.connection_changed("connection.created", client)
    if limits.of:
        session.limit_messages()
    else:  # the settings may have been read again since the peer came
        connection.message_bytes_max = broker.config.limits.message_bytes_max
    # Whether methods of this connection take tickets: 0-9-1 has none to show.
    connection.by_ticket = broker.config.access.enforced and connection.version != amqp.VERSION_0_9_1
    connection.send(OPEN_OK)
    link.opened()


def update_secret(session: Session, method: methods.ConnectionUpdateSecret) -> None:
    """A new token, most often: what it allows holds from now on."""
    if session.user is None:
        raise ConnectionFault(amqp.CHANNEL_ERROR, "the connection is not open")
    step = session.broker.authentication.renewed(session.user, method.new_secret, session.peer_address)
    if step is None:
        session.connection.send(methods.ConnectionUpdateSecretOk())
    else:
        renew_identity(session, step)


def renew_identity(session: Session, step: Challenge | Verification | Accepted | Refused) -> None:
    user, host = session.user, session.virtual_host
    if isinstance(step, Verification):
        session.link.verify(step)
    elif user is None or host is None or not isinstance(step, Accepted):
        log.warning("the new secret of %s is refused: %s", session, getattr(step, "reason", ""))
        session.close_connection(
            ConnectionFault(amqp.NOT_ALLOWED, "New secret was refused by one of the back ends")
        )
    elif step.user.name != user.name or not step.user.may_enter(host.name):
        log.warning("the new secret of %s is refused: it is that of user %r", session, step.user.name)
        session.close_connection(
            ConnectionFault(amqp.NOT_ALLOWED, "New secret was refused: it belongs to another user, or host")
        )
    else:
        user.renew(step.user)
        host.router.rights_changed()
        watch_expiry(session, user)
        session.audit(LOGIN, "connection.update-secret", True)
        session.connection.send(methods.ConnectionUpdateSecretOk())


def watch_expiry(session: Session, user: User) -> None:
    """A token ends at some time, and the connection with it unless there is a new one by then."""
    if user.expires_ms is not None:
        session.broker.authentication.expiries.add(
            session, user.expires_ms, partial(identity_expired, session)
        )


def identity_expired(session: Session) -> None:
    session.close_connection(ConnectionFault(amqp.ACCESS_REFUSED, "the token of the connection has expired"))


@lru_cache
def start_payload(version: int, memory: str, mechanisms: str) -> bytes:
    """connection.start, the same for every client of a version. `memory`: see broker/services/answers.py."""
    major, minor = (8, 0) if version == amqp.VERSION_0_8 else (0, 9)
    properties = {**SERVER_PROPERTIES, "request_memory": memory}
    if version == amqp.VERSION_0_8:
        # Its field tables have no booleans, and its clients know no capabilities.
        del properties["capabilities"]
    start = methods.ConnectionStart(
        version_major=major,
        version_minor=minor,
        server_properties=properties,
        mechanisms=mechanisms.encode(),
        locales=LOCALE.encode(),
    )
    return encode_method(version, start)


@lru_cache
def tune_method(channel_max: int, frame_max: int, heartbeat: int) -> methods.ConnectionTune:
    """connection.tune, the same for every client."""
    return methods.ConnectionTune(channel_max=channel_max, frame_max=frame_max, heartbeat=heartbeat)


def with_numbers(start: bytes) -> bytes:
    """A connection.start with numeric types in its properties, which 6 octets of ids and version precede."""
    size = 4 + int.from_bytes(start[6:10], "big")
    return start[:6] + number_table(start, 6, 6 + size) + start[6 + size :]
