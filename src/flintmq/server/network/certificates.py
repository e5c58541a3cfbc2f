"""The certificates that the broker shows: one for everybody, others by the name that a client asks for.

files --> Certificates --context--> listeners, for connections that come from now on
  |            |
  |            +-- how long each is valid: warned of in the log, told by broker.info
  +-- looked at each minute, and at SIGHUP: changed files are read again, broken ones keep the old
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
from typing import TYPE_CHECKING, Any

from flintmq.config.files import opened_at_once
from flintmq.errors import ConfigFault

if TYPE_CHECKING:
    import asyncio
    from pathlib import Path

    from flintmq.config import Tls
    from flintmq.server.server import Server
    from flintmq.wire.tables import FieldTable

log = logging.getLogger("flintmq.tls")

# How often files are looked at.
LOOK_S = 60.0
DAY_S = 86_400
# How long ahead the end of a certificate is warned of, each day.
WARNED_S = 30 * DAY_S
# Permissions of a key file that let others than its owner and group in.
OTHERS = 0o007

# Whether a client must show a certificate, may, or is not asked.
VERIFY_MODES = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class Certificate:
    """One certificate with its key: the context that shows it, its names, and when it ends."""

    def __init__(self, tls: Tls, certificate: Path, key: Path, names: tuple[str, ...], where: str) -> None:
        self.file = certificate
        self.context = server_context(tls, certificate, key, where)
        told = decoded(certificate)
        found = tuple(value for kind, value in told.get("subjectAltName", ()) if kind == "DNS")
        self.names = tuple(name.lower() for name in names or found)
        ends = told.get("notAfter")
        self.ends_s = None if ends is None else ssl.cert_time_to_seconds(ends)


def decoded(certificate: Path) -> dict[str, Any]:
    """What a certificate says, as ssl tells it of a peer's; nothing where ssl cannot read files so."""
    decode: Any = getattr(getattr(ssl, "_ssl", None), "_test_decode_cert", None)
    if decode is None:
        return {}
    try:
        found: dict[str, Any] = decode(str(certificate))
    except OSError as error:
        log.warning("%s does not tell when it ends: %s", certificate, said(error))
        return {}
    return found


def server_context(tls: Tls, certificate: Path, key: Path, where: str = "tls") -> ssl.SSLContext:
    """What the broker shows to its clients, and what it asks of them."""
    for file in (certificate, key, tls.authority):
        if file is not None:
            check_regular(file)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= (
        ssl.OP_NO_RENEGOTIATION
    )  # nobody needs it, and it costs the server more than the client
    try:
        # A key with a passphrase is refused: OpenSSL would ask the terminal for it.
        context.load_cert_chain(certificate, key, password="")
    except OSError as error:
        raise ConfigFault(
            f'{where}.certificate = "{certificate}" and {where}.key = "{key}" are not usable together: '
            f"{said_of_pair(error)}; give a certificate chain and its key, without a passphrase, in PEM"
        ) from None
    if tls.authority is not None:
        try:
            context.load_verify_locations(tls.authority)
        except OSError as error:
            raise ConfigFault(
                f'tls.authority = "{tls.authority}" is not usable: {said(error)}; give certificates in PEM'
            ) from None
        context.verify_mode = VERIFY_MODES[tls.verify or "required"]
    return context


def check_regular(file: Path) -> None:
    """OpenSSL would wait for somebody who writes to a FIFO. Of a file that cannot be read it says more."""
    with contextlib.suppress(OSError):
        os.close(opened_at_once(file))


# OpenSSL's reasons for a key of another certificate. Of a key of another kind (EC and RSA) it says that there
# is no certificate: none of the key's kind.
OTHER_KEY = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")


def said_of_pair(error: OSError) -> str:
    """What is wrong with a certificate and its key, in words of the operator."""
    if isinstance(error, ssl.SSLError) and error.reason in OTHER_KEY:
        return "the key is not that of the certificate"
    if isinstance(error, ssl.SSLError) and not error.reason:
        return "what is needed is not in the file, or is encrypted"
    return said(error)


def said(error: OSError) -> str:
    """The reason alone: OpenSSL adds the line of its own source."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return error.strerror or type(error).__name__


class Certificates:
    """All of them as the files hold them now; raises a ConfigFault if one is not usable."""

    def __init__(self, tls: Tls) -> None:
        self.tls = tls
        self.stamp = stamp(tls)
        own = Certificate(tls, tls.certificate, tls.key, (), "tls")
        self.all = [own]
        self.named: dict[str, ssl.SSLContext] = {}
        for index, other in enumerate(tls.others):
            where = f"tls.others[{index}]"
            more = Certificate(tls, other.certificate, other.key, other.names, where)
            if not more.names:
                raise ConfigFault(f"{where}.names is missing, and the certificate has none")
            self.all.append(more)
            for name in more.names:
                self.named.setdefault(name, more.context)
        self.context = own.context
        if self.named:
            self.context.sni_callback = self.choose

    def choose(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        """Shows the certificate of the name that the client asks for; TLS calls it."""
        found = self.of(name)
        if found is not None:
            connection.context = found

    def of(self, name: str | None) -> ssl.SSLContext | None:
        """The context of a name, or of a pattern such as *.example.com that stands for it."""
        if not name:
            return None
        name = name.lower()
        return self.named.get(name) or self.named.get("*." + name.partition(".")[2])

    def told(self, now_s: float) -> list[FieldTable]:
        """For health checks: when each of them ends."""
        return [
            {
                "certificate": str(each.file),
                "ends-ms": int(each.ends_s * 1000),
                "days-left": int((each.ends_s - now_s) // DAY_S),
            }
            for each in self.all
            if each.ends_s is not None
        ]

    def warn(self, now_s: float) -> None:
        """Tells in the log of those that end soon or have ended, and of keys that others can read."""
        for each in self.all:
            if each.ends_s is None or each.ends_s - now_s > WARNED_S:
                continue
            days = int((each.ends_s - now_s) // DAY_S)
            if days < 0:
                log.error("the certificate %s has ended: clients refuse it; renew it", each.file)
            else:
                log.warning("the certificate %s ends in %d days; renew it", each.file, days)
        for key in (self.tls.key, *(other.key for other in self.tls.others)):
            try:
                mode = key.stat().st_mode
            except OSError:
                continue  # it was read a moment ago, and is looked at again
            if mode & OTHERS:
                log.warning("the key %s can be read by everybody on this machine; chmod 600 it", key)


def stamp(tls: Tls) -> tuple[object, ...]:
    """Changes when one of the files does."""
    files = [tls.certificate, tls.key, *([tls.authority] if tls.authority is not None else [])]
    for other in tls.others:
        files += [other.certificate, other.key]
    found: list[object] = []
    for file in files:
        try:
            told = file.stat()
        except OSError as error:
            found.append((str(file), error.errno))
        else:
            found.append((str(file), told.st_mtime_ns, told.st_size, told.st_ino))
    return tuple(found)


class CertificateWatch:
    """Has changed files read, and warns each day of certificates that end soon."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.seen: tuple[object, ...] = ()
        self.warned_s = 0.0
        self.timer: asyncio.TimerHandle | None = None

    def shown(self, certificates: Certificates) -> None:
        """These are the ones that hold from now on."""
        if certificates.stamp != self.seen:
            self.seen = certificates.stamp
            self.warned_s = self.now_s()
            certificates.warn(self.warned_s)
        if self.timer is None:
            self.timer = self.server.loop.call_later(LOOK_S, self.look)

    def now_s(self) -> float:
        return self.server.broker.clock.wall_ms() / 1000

    def look(self) -> None:
        self.timer = self.server.loop.call_later(LOOK_S, self.look)
        certificates = self.server.certificates
        if certificates is None:
            return
        now = stamp(certificates.tls)
        if now != self.seen:
            try:
                self.server.read_certificates()
                log.info("new connections get the certificates of the files, which have changed")
            except ConfigFault as fault:
                self.seen = now  # told once, and read again when the files change
                log.error("the certificates stay as they were: %s", fault)
        elif self.now_s() - self.warned_s >= DAY_S:
            self.warned_s = self.now_s()
            certificates.warn(self.warned_s)

    def stop(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
