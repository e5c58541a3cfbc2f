"""Where clients connect: [listen] and [tls]."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flintmq import checks
from flintmq.config.files import path
from flintmq.config.tables import section, setting
from flintmq.errors import ConfigFault

PORT = checks.whole(0, 65535)  # 0: any free port


@dataclass(frozen=True, slots=True)
class Listen:
    """[listen]: where clients connect. Loopback alone until the operator opens it up."""

    hosts: tuple[str, ...] = setting(("127.0.0.1", "::1"), checks.texts(checks.text(), 1))
    port: int = setting(5672, PORT)


@dataclass(frozen=True, slots=True)
class Tls:
    """[tls]: a second listener, for encrypted connections, on the same hosts."""

    certificate: Path = setting(None, path)
    key: Path = setting(None, path)
    authority: Path | None = setting(None, path)
    port: int = setting(5671, PORT)


def read_tls(value: object) -> Tls:
    tls = section(Tls, value, "tls")
    for name in ("certificate", "key", "authority"):
        file: Path | None = getattr(tls, name)
        if file is None:
            if name == "authority":
                continue
            raise ConfigFault(f"tls.{name} is missing; give the path of a PEM file")
        try:
            with file.open("rb"):
                pass
        except OSError as error:
            reason = error.strerror or error
            raise ConfigFault(f'tls.{name} = "{file}": cannot be read: {reason}; check the path') from None
    return tls
