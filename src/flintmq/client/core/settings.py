"""Where and how to connect: the settings of a connection, from a URI and from options.

    amqp://user:password@host:port/virtual%20host?heartbeat=30&connection_timeout=5&name=orders
    amqp://user:password@one:5672,two:5672,three/
    amqps://...?cacertfile=ca.pem&certfile=me.pem&keyfile=me.key&verify=verify_peer

Settings are plain values: they pickle, compare, and travel to other processes. The password is held so
that no repr, log line or traceback shows it.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from flintmq.client.core.errors import BadSettings
from flintmq.wire import amqp

if TYPE_CHECKING:
    from flintmq.client.core.spans import Spans

PORT = 5672
PORT_TLS = 5671
# 131,072 is what RabbitMQ offers; larger frames gain nothing that could be measured.
FRAME_BYTES_MAX = 131_072
CHANNEL_MAX = 2047
MESSAGE_BYTES_MAX = 536_870_912
# What may wait to be read by the application: beyond it the socket is not read, or the connection ends.
RECEIVED_BYTES_MAX = 268_435_456


class Secret:
    """Text that shows itself only when asked: its repr is of no use to a log."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


MECHANISMS = ("PLAIN", "EXTERNAL", "SCRAM-SHA-256", "ANONYMOUS")


@dataclass(frozen=True)
class Tls:
    """How to encrypt: what to trust, and what to show. `verify=False` is for tests alone."""

    authority: str | None = None
    certificate: str | None = None
    key: str | None = None
    verify: bool = True
    server_name: str | None = None

    def context(self) -> ssl.SSLContext:
        try:
            made = ssl.create_default_context(cafile=self.authority)
            made.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.certificate is not None:
                made.load_cert_chain(self.certificate, self.key, password="")
        except OSError as error:
            files = ", ".join(filter(None, (self.authority, self.certificate, self.key)))
            reason = error.strerror or type(error).__name__
            raise BadSettings(f"the TLS files {files} are not usable: {reason}; give PEM files") from None
        if not self.verify:
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
        return made


@dataclass(frozen=True)
class Recovery:
    """What to do when the connection is lost: try again, later and later, up to `attempts_max` times.

    A delay is drawn between half of it and all of it, and doubles from `delay_s_min` to `delay_s_max`.
    `unconfirmed` says what becomes of messages that were published with confirms and not confirmed yet:
    "resend" publishes them again (they may arrive twice), "report" names them in PublishFailed.
    """

    attempts_max: int = 20
    delay_s_min: float = 0.2
    delay_s_max: float = 15.0
    unconfirmed: Literal["resend", "report"] = "resend"

    def delay_s(self, attempt: int, chance: float) -> float:
        """How long to wait before the attempt (from 0); `chance` is between 0 and 1."""
        longest = min(self.delay_s_max, self.delay_s_min * 2.0 ** min(attempt, 60))
        return longest * (0.5 + 0.5 * chance)


@dataclass(frozen=True)
class Settings:
    """Everything a connection needs to know. Immutable, and pickles."""

    host: str = "localhost"
    port: int = PORT
    # Further hosts, as "host" or "host:port". Each connect tries all of them, in this order or shuffled.
    hosts: tuple[str, ...] = ()
    shuffle: bool = False
    user: str = "guest"
    password: Secret = field(default_factory=lambda: Secret("guest"))
    virtual_host: str = "/"
    tls: Tls | None = None
    # In the place of `tls`, made by the application; settings with one do not pickle.
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)
    # EXTERNAL: the server knows the user by its certificate. SCRAM-SHA-256: nobody else learns the password.
    mechanism: Literal["PLAIN", "EXTERNAL", "SCRAM-SHA-256", "ANONYMOUS"] = "PLAIN"
    # Asked for the password at each login; a coroutine function in the async client.
    token_provider: Callable[[], Any] | None = field(default=None, repr=False)
    # Told to the server besides ours.
    client_properties: Mapping[str, Any] = field(default_factory=dict, hash=False)
    name: str = ""
    protocol: Literal["0-9-1", "0-9"] = "0-9-1"
    # None: the server's wish. 0: none. TCP keepalive is always on.
    heartbeat_s: int | None = None
    connection_timeout_s: float = 10.0
    timeout_s: float = 60.0  # for the answer to a call, and for confirms
    recovery: Recovery | None = field(default_factory=Recovery)
    prefetch: int = 1000  # of consumers that say nothing else
    frame_bytes_max: int = FRAME_BYTES_MAX
    channel_max: int = CHANNEL_MAX
    message_bytes_max: int = MESSAGE_BYTES_MAX
    received_bytes_max: int = RECEIVED_BYTES_MAX
    # Spans of OpenTelemetry for what is published and handled, see spans.py.
    spans: Spans | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _within("port", self.port, 1, 65_535)
        _within("frame_bytes_max", self.frame_bytes_max, amqp.FRAME_BYTES_MIN, 2**31 - 1)
        _within("channel_max", self.channel_max, 1, amqp.CHANNEL_MAX)
        _within("prefetch", self.prefetch, 0, 65_535)
        if self.heartbeat_s is not None:
            _within("heartbeat", self.heartbeat_s, 0, 65_535)
        for name in ("connection_timeout_s", "timeout_s"):
            if not getattr(self, name) > 0:
                raise BadSettings(f"{name} must be above 0")
        for each in self.hosts:
            endpoint_of(each, self.port)
        if self.mechanism not in MECHANISMS:
            raise BadSettings(f"mechanism {self.mechanism!r}: expected one of {', '.join(MECHANISMS)}")
        if self.tls is not None and self.ssl_context is not None:
            raise BadSettings("give ssl_context, or tls and the TLS options of the URI, not both")
        if self.protocol not in ("0-9-1", "0-9"):
            raise BadSettings(f"protocol {self.protocol!r}: expected 0-9-1 or 0-9")
        for name in ("user", "virtual_host"):
            if len(getattr(self, name).encode()) > amqp.SHORTSTR_BYTES_MAX:
                raise BadSettings(f"{name} is longer than 255 octets")

    @property
    def address(self) -> str:
        """For messages: no credentials."""
        scheme = "amqps" if self.is_secure else "amqp"
        hosts = ",".join(map(str, self.endpoints))
        return f"{scheme}://{hosts}/{'' if self.virtual_host == '/' else self.virtual_host}"

    @property
    def endpoints(self) -> list[Endpoint]:
        """Where the broker may be."""
        return [Endpoint(self.host, self.port), *(endpoint_of(host, self.port) for host in self.hosts)]

    @property
    def is_secure(self) -> bool:
        return self.tls is not None or self.ssl_context is not None

    def context(self) -> ssl.SSLContext | None:
        """What encrypts, if something does."""
        return self.ssl_context if self.tls is None else self.tls.context()

    def server_name(self, host: str) -> str:
        """The name that the certificate of a host has to show."""
        return (self.tls.server_name if self.tls is not None else None) or host

    def __reduce__(self) -> tuple[Any, ...]:
        if self.ssl_context is not None:
            raise TypeError("settings with an ssl context cannot be pickled; use tls, which names files")
        return _restored, (tuple((each.name, getattr(self, each.name)) for each in fields(self)),)

    @property
    def version(self) -> int:
        return amqp.VERSION_0_9_1 if self.protocol == "0-9-1" else amqp.VERSION_0_9

    @classmethod
    def of(cls, source: str | Settings, **options: Any) -> Settings:
        """From a URI or other settings; options win over both. A password may be text."""
        found = source if isinstance(source, Settings) else parse_uri(source)
        if isinstance(options.get("hosts"), list):
            options["hosts"] = tuple(options["hosts"])
        if isinstance(options.get("password"), str):
            options["password"] = Secret(options["password"])
        known = {each.name for each in fields(cls)}
        for name in options:
            if name not in known:
                raise BadSettings(f"there is no option {name!r}; options are {', '.join(sorted(known))}")
        if options.get("ssl_context") is not None and "tls" not in options and found.tls == Tls():
            options["tls"] = None  # amqps:// alone asks for TLS, and the context says how
        return replace(found, **options) if options else found


class Endpoint(NamedTuple):
    """One place where the broker may be."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def endpoint_of(text: str, port: int) -> Endpoint:
    """From "host", "host:port" or "[address]:port"."""
    host, _, number = text.rpartition(":")
    if not host or text.endswith("]"):
        host, number = text, ""
    if number and not (number.isascii() and number.isdigit() and 0 < int(number) < 65_536):
        raise BadSettings(f"host {text!r}: expected host or host:port")
    host = host.removeprefix("[").removesuffix("]")
    if not host:
        raise BadSettings("a host is empty: expected host or host:port")
    return Endpoint(host, int(number) if number else port)


def _restored(values: tuple[tuple[str, Any], ...]) -> Settings:
    return Settings(**dict(values))


def _within(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise BadSettings(f"{name} {value} is not in {least}..{most}")


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadSettings(f"{name}={text!r} in the URI is not a whole number") from None


def _seconds(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadSettings(f"{name}={text!r} in the URI is not a number of seconds") from None


# Query options: the field each sets, and how it is read.
_QUERY: dict[str, tuple[str, Any]] = {
    "heartbeat": ("heartbeat_s", _whole),
    "connection_timeout": ("connection_timeout_s", _seconds),
    "timeout": ("timeout_s", _seconds),
    "channel_max": ("channel_max", _whole),
    "frame_max": ("frame_bytes_max", _whole),
    "prefetch": ("prefetch", _whole),
    "name": ("name", lambda name, text: text),
    "protocol": ("protocol", lambda name, text: text),
    "auth_mechanism": ("mechanism", lambda name, text: text.upper()),
    "recovery_attempts": ("recovery", lambda name, text: _recovery(_whole(name, text))),
}
_TLS_QUERY = {
    "cacertfile": "authority",
    "certfile": "certificate",
    "keyfile": "key",
    "server_name_indication": "server_name",
}


def _recovery(attempts_max: int) -> Recovery | None:
    return Recovery(attempts_max=attempts_max) if attempts_max > 0 else None


def _split_hosts(uri: str) -> tuple[str, tuple[str, ...]]:
    """The URI with its first host alone, and the further ones."""
    start = uri.find("//") + 2
    ends = (uri.find(mark, start) for mark in "/?#")
    end = min((place for place in ends if place >= 0), default=len(uri))
    user, at, hosts = uri[start:end].rpartition("@")
    first, *further = hosts.split(",")
    return f"{uri[:start]}{user}{at}{first}{uri[end:]}", tuple(further)


def parse_uri(uri: str) -> Settings:
    """The settings of an amqp or amqps URI. Its errors quote nothing that could be a password."""
    if "#" in uri:
        raise BadSettings("the URI has a '#'; write it as %23, in a password too")
    uri, further = _split_hosts(uri)
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError as error:
        # The reason quotes the text, which may hold the password.
        why = "its port is above 65535" if "range" in str(error) else "it is not one"
        raise BadSettings(
            f"the URI is not taken, {why}: expected amqp://user:password@host:port/virtual-host"
        ) from None
    if parts.scheme not in ("amqp", "amqps"):
        raise BadSettings("the URI must begin with amqp:// or amqps://")
    secure = parts.scheme == "amqps"
    options: dict[str, Any] = {"port": port if port is not None else PORT_TLS if secure else PORT}
    if further:
        options["hosts"] = further
    if parts.hostname:
        options["host"] = unquote(parts.hostname)
    if parts.username is not None:
        options["user"] = unquote(parts.username)
    if parts.password is not None:
        options["password"] = Secret(unquote(parts.password))
    if len(parts.path) > 1:
        if "/" in parts.path[1:]:
            raise BadSettings("the virtual host in the URI has a '/'; write it as %2F")
        options["virtual_host"] = unquote(parts.path[1:])
    tls: dict[str, Any] = {}
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        if name in _QUERY:
            target, read = _QUERY[name]
            options[target] = read(name, text)
        elif name in _TLS_QUERY:
            tls[_TLS_QUERY[name]] = text
        elif name == "verify":
            if text not in ("verify_peer", "verify_none"):
                raise BadSettings(f"verify={text!r} in the URI: expected verify_peer or verify_none")
            tls["verify"] = text == "verify_peer"
        else:
            raise BadSettings(
                f"there is no URI option {name!r}; there are {', '.join([*_QUERY, *_TLS_QUERY])}"
            )
    if secure:
        options["tls"] = Tls(**tls)
    elif tls:
        raise BadSettings("TLS options need amqps:// in the URI")
    return Settings(**options)
