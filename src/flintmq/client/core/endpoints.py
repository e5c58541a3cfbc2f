"""What both clients know of sockets: their options, and the words for one that cannot be had."""

from __future__ import annotations

import math
import socket
import ssl

from flintmq.client.core.deadline import Deadline
from flintmq.client.core.errors import ConnectFailed
from flintmq.client.core.settings import Endpoint, Settings
from flintmq.clock import Clock

KEEPALIVE_IDLE_S = 30
# How OpenSSL calls an answer that is not of TLS.
NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
# What helps where a certificate is refused for another reason than its authority, by OpenSSL's X509_V_ERR
# codes: expired, and a host name or an address that the certificate does not have.
_OTHER_NAME = "connect by a name that its certificate has, or have the certificate made for this name"
CERTIFICATE_WAYS = {10: "have the certificate of the broker renewed", 62: _OTHER_NAME, 64: _OTHER_NAME}


def prepare_socket(made: socket.socket | None, settings: Settings) -> None:
    """Small frames leave at once; a peer that is gone is noticed by the system too."""
    if made is None:
        return
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_IDLE_S // 3)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # What was sent and is not acknowledged for so long ends the connection, heartbeats or not.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, math.ceil(settings.timeout_s * 1000))


def silent(settings: Settings, endpoint: Endpoint, deadline: Deadline) -> ConnectFailed:
    waited = f"{deadline.timeout_s:g} seconds"
    return ConnectFailed(f"{_address(settings, endpoint)} cannot be reached: no answer in {waited}")


def connect_failed(settings: Settings, endpoint: Endpoint, error: OSError | UnicodeError) -> ConnectFailed:
    """The error of a socket that was not to be had, by its cause."""
    address = _address(settings, endpoint)
    if isinstance(error, ssl.SSLCertVerificationError):
        way = CERTIFICATE_WAYS.get(error.verify_code, "name its authority: ?cacertfile=FILE in the URL")
        return ConnectFailed(f"{address} is not trusted: {error.verify_message.rstrip('.')}; {way}")
    if isinstance(error, ssl.SSLError):
        reason = error.reason or error.strerror or type(error).__name__
        way = "; a port without TLS, such as 5672, takes amqp://" if reason in NO_TLS else ""
        return ConnectFailed(f"{address} does not speak TLS with us: {reason}{way}")
    if isinstance(error, UnicodeError):
        return ConnectFailed(f"{address} cannot be reached: no host can have that name")
    reason = error.strerror or str(error) or type(error).__name__
    return ConnectFailed(f"{address} cannot be reached: {reason}; is the broker running there?")


def _address(settings: Settings, endpoint: Endpoint) -> str:
    host = settings.virtual_host
    return f"{'amqps' if settings.is_secure else 'amqp'}://{endpoint}/{'' if host == '/' else host}"


def in_order(settings: Settings, clock: Clock, turn: int) -> list[Endpoint]:
    """The endpoints as the next attempt tries them: shuffled, or beginning with another one each time."""
    endpoints = settings.endpoints
    if settings.shuffle:
        clock.random.shuffle(endpoints)
        return endpoints
    first = turn % len(endpoints)
    return endpoints[first:] + endpoints[:first]
