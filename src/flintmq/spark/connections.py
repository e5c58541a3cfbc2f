"""Connections of this process, kept from task to task: Spark reuses its Python workers.

A broker that restarts is waited for, up to the option `retryTimeout`, as a task of `local[n]` is not tried
again by Spark. A refused login is told at once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from flintmq.client import Connection, connect
from flintmq.client.core.errors import (
    AccessRefused,
    ClientError,
    ConnectFailed,
    LoginRefused,
    NotFound,
    ServiceError,
)
from flintmq.client.core.settings import Recovery, Settings
from flintmq.clock import Clock
from flintmq.spark.errors import AmqpError, AmqpRefused
from flintmq.wire import amqp

log = logging.getLogger("flintmq.spark")

DELAY_S = 0.25
DELAY_S_MAX = 2.0

_attempts = [0]  # that have failed, in this process


def retries() -> int:
    """How often this process has had to try again to reach its broker."""
    return _attempts[0]


_pool: dict[tuple[int, Settings], Connection] = {}


def open_connection(
    settings: Settings, retry_timeout_s: float, recovery_timeout_s: float | None = None
) -> Connection:
    """A connection of one's own, tried again and again for so long; when it is lost later, the same."""
    clock = Clock()
    recovery_timeout_s = retry_timeout_s if recovery_timeout_s is None else recovery_timeout_s
    attempts = max(3, int(recovery_timeout_s / DELAY_S_MAX) + 3)
    recovery = Recovery(attempts_max=attempts, delay_s_min=DELAY_S, delay_s_max=DELAY_S_MAX)
    chosen = replace(settings, recovery=recovery) if settings.recovery is not None else settings
    deadline_s = clock.monotonic_s() + retry_timeout_s
    delay_s = DELAY_S
    while True:
        try:
            return connect(chosen)
        except LoginRefused:
            raise
        except ConnectFailed as failure:
            if clock.monotonic_s() + delay_s > deadline_s:
                raise
            _attempts[0] += 1
            log.warning("trying again to connect: %s", failure)
        clock.sleep(delay_s)
        delay_s = min(2 * delay_s, DELAY_S_MAX)


def pooled(settings: Settings, retry_timeout_s: float) -> Connection:
    """The connection that this process has to this broker; opened if there is none."""
    key = (os.getpid(), settings)
    connection = _pool.get(key)
    if connection is None or connection.is_closed:
        for other in [each for each in _pool if each[0] != key[0]]:
            del _pool[other]  # of the process that this one was forked from
        connection = _pool[key] = open_connection(settings, retry_timeout_s)
    return connection


def forget(settings: Settings) -> None:
    """Does not use the pooled connection again: its state is not known."""
    connection = _pool.pop((os.getpid(), settings), None)
    if connection is not None:
        close_quietly(connection)


def close_quietly(connection: Connection) -> None:
    try:
        connection.close()
    except ClientError as error:
        log.debug("closing: %s", error)


@contextmanager
def told_plainly(what: str, settings: Settings) -> Iterator[None]:
    """Makes of a client's error one sentence that says what was tried, and where."""
    try:
        yield
    except ClientError as error:
        raise fault(what, settings, error) from None


def fault(what: str, settings: Settings, error: ClientError) -> AmqpError:
    """The connector's error for one of the client's."""
    refused = isinstance(error, LoginRefused | NotFound | AccessRefused) or (
        isinstance(error, ServiceError) and error.code in _ADVICE
    )
    return (AmqpRefused if refused else AmqpError)(sentence(what, settings, error))


def sentence(what: str, settings: Settings, error: ClientError) -> str:
    where = settings.address
    if isinstance(error, LoginRefused) and error.code == amqp.NOT_ALLOWED:
        return (
            f"{what}: {where} refused virtual host {settings.virtual_host!r} to user {settings.user!r}: "
            f"{shortened(error.text)}; correct the end of the URI, or give the user the permission."
        )
    if isinstance(error, LoginRefused):
        return (
            f"{what}: {where} refused user {settings.user!r}; check user and password in the URI, in the "
            "options 'username' and 'password', in the password file or in the environment."
        )
    if isinstance(error, ConnectFailed):
        return f"{what}: no connection to {where}: {ended(error)}"
    code = getattr(error, "code", 0)
    if isinstance(error, ServiceError | NotFound | AccessRefused) and code in _ADVICE:
        return f"{what}: {shortened(getattr(error, 'text', str(error)))}; {_ADVICE[code]} ({where})."
    if type(error) is ClientError and "cannot be done" in str(error):
        return f"{what}: {str(error).rstrip('.')}; correct such rows, or filter them out."
    return f"{what}: {ended(error)}"


_ADVICE = {
    amqp.NOT_FOUND: "declare it first, or correct its name",
    amqp.ACCESS_REFUSED: "give the user the permission",
}


def shortened(text: str) -> str:
    """Without the name of the reply code before it."""
    return text.partition(" - ")[2] or text


def ended(error: Exception) -> str:
    """The text of an error as the end of a sentence."""
    text = str(error).rstrip(".")
    return text if text.endswith("?") else text + "."
