"""Where clients connect, and what those get who fail to log in: [listen], [tls] and [bans]."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from flintmq import checks
from flintmq.config.files import path
from flintmq.config.tables import section, setting, wrong
from flintmq.errors import ConfigFault

Verify = Literal["none", "optional", "required"]

PORT = checks.whole(0, 65535)  # 0: any free port


def network(value: object) -> str:
    try:
        if not isinstance(value, str):
            raise ValueError
        return str(ipaddress.ip_network(value))
    except ValueError:
        raise checks.expected('an address or a network, such as "10.0.0.0/8" or "2001:db8::/32"') from None


NETWORKS = checks.texts(network)


@dataclass(frozen=True, slots=True)
class Listen:
    """[listen]: where clients connect. Loopback alone until the operator opens it up."""

    hosts: tuple[str, ...] = setting(("127.0.0.1", "::1"), checks.texts(checks.text(), 1))
    port: int = setting(5672, PORT)
    proxy_protocol_from: tuple[str, ...] = setting((), NETWORKS)
    fast09_port: int | None = setting(None, PORT)  # for AMQP/Fast 0.9, which no other port can tell from 0-9


@dataclass(frozen=True, slots=True)
class NamedCertificate:
    """[[tls.others]]: what clients are shown that ask for one of its names."""

    certificate: Path = setting(None, path)
    key: Path = setting(None, path)
    names: tuple[str, ...] = setting((), checks.texts(checks.text()))  # none: those in the certificate


@dataclass(frozen=True, slots=True)
class Tls:
    """[tls]: a second listener, for encrypted connections, on the same hosts."""

    certificate: Path = setting(None, path)
    key: Path = setting(None, path)
    authority: Path | None = setting(None, path)
    verify: Verify | None = setting(None, checks.one_of("none", "optional", "required", quote='"'))
    port: int = setting(5671, PORT)
    others: tuple[NamedCertificate, ...] = ()


@dataclass(frozen=True, slots=True)
class Bans:
    """[bans]: what a failed login or handshake costs, and how many of them end in a ban of the address."""

    failures_max: int = setting(20, checks.whole(1, 1_000_000))
    window_s: int = setting(300, checks.whole(1, 86_400))
    ban_s: int = setting(60, checks.whole(0, 86_400))  # the first one, then twice as long; 0: none
    ban_s_max: int = setting(3600, checks.whole(1, 604_800))
    pause_s: float = setting(1.0, checks.number(0, 60))  # before a refusal, then twice as long
    pause_s_max: float = setting(5.0, checks.number(0, 60))
    exempt: tuple[str, ...] = setting((), NETWORKS)  # whom a ban would take for many at once


@dataclass(frozen=True, slots=True)
class Management:
    """[management]: where the HTTP API listens. With a certificate it speaks HTTPS."""

    hosts: tuple[str, ...] = setting(("127.0.0.1", "::1"), checks.texts(checks.text(), 1))
    port: int = setting(15672, PORT)
    certificate: Path | None = setting(None, path)
    key: Path | None = setting(None, path)
    pipelines: Path | None = setting(None, path)  # the state directory of pipelines, for their metrics


def read_management(value: object) -> Management:
    management = section(Management, value, "management")
    if (management.certificate is None) != (management.key is None):
        missing = "key" if management.key is None else "certificate"
        raise ConfigFault(f"management.{missing} is missing; give the paths of two PEM files, or neither")
    if management.certificate is not None:
        check_files(management, "management", ("certificate", "key"))
    return management


def read_tls(value: object) -> Tls:
    tls = section(Tls, value, "tls", apart=("others",))
    check_files(tls, "tls", ("certificate", "key"))
    if tls.authority is not None:
        check_files(tls, "tls", ("authority",))
    if tls.authority is None and tls.verify not in (None, "none"):
        raise ConfigFault(
            f'tls.verify = "{tls.verify}": tls.authority is missing; '
            "give a PEM file with the roots of clients"
        )
    given = value.get("others", []) if isinstance(value, dict) else []
    if not isinstance(given, list):
        raise wrong("tls.others", given, "expected a list of tables, each written as [[tls.others]]")
    others: list[NamedCertificate] = []
    for index, each in enumerate(given):
        where = f"tls.others[{index}]"
        others.append(section(NamedCertificate, each, where))
        check_files(others[-1], where, ("certificate", "key"))
    return replace(tls, others=tuple(others))


def check_files(settings: object, where: str, names: tuple[str, ...]) -> None:
    """Raises unless the files are there and can be read."""
    for name in names:
        file: Path | None = getattr(settings, name)
        if file is None:
            raise ConfigFault(f"{where}.{name} is missing; give the path of a PEM file")
        try:
            with file.open("rb"):
                pass
        except OSError as error:
            reason = error.strerror or error
            raise ConfigFault(
                f'{where}.{name} = "{file}": cannot be read: {reason}; check the path'
            ) from None
