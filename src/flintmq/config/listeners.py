"""Where clients connect, and what those get who fail to log in: [listen], [tls] and [bans]."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Literal

from flintmq import checks
from flintmq.config.files import opened_at_once, path, unreadable
from flintmq.config.tables import MISSING, Section, section, wrong
from flintmq.errors import ConfigFault, NotRegularFile

if TYPE_CHECKING:
    from pathlib import Path

Verify = Literal["none", "optional", "required"]

PORT = checks.whole(0, 65535)  # 0: any free port


def network(value: object) -> str:
    import ipaddress  # by whoever has settings for networks: it takes a millisecond to load

    try:
        if not isinstance(value, str):
            raise ValueError
        return str(ipaddress.ip_network(value))
    except ValueError:
        raise checks.expected('an address or a network, such as "10.0.0.0/8" or "2001:db8::/32"') from None


NETWORKS = checks.texts(network)


class Listen(Section):
    """[listen]: where clients connect. Loopback alone until the operator opens it up."""

    hosts: Annotated[tuple[str, ...], checks.texts(checks.text(), 1)] = ("127.0.0.1", "::1")
    port: Annotated[int, PORT] = 5672
    proxy_protocol_from: Annotated[tuple[str, ...], NETWORKS] = ()
    # For AMQP/Fast 0.9, which no other port can tell from 0-9.
    fast09_port: Annotated[int | None, PORT] = None


class NamedCertificate(Section):
    """[[tls.others]]: what clients are shown that ask for one of its names."""

    certificate: Annotated[Path, path] = MISSING
    key: Annotated[Path, path] = MISSING
    names: Annotated[tuple[str, ...], checks.texts(checks.text())] = ()  # none: those in the certificate


class Tls(Section):
    """[tls]: a second listener, for encrypted connections, on the same hosts."""

    certificate: Annotated[Path, path] = MISSING
    key: Annotated[Path, path] = MISSING
    authority: Annotated[Path | None, path] = None
    verify: Annotated[Verify | None, checks.one_of("none", "optional", "required", quote='"')] = None
    port: Annotated[int, PORT] = 5671
    others: tuple[NamedCertificate, ...] = ()


class Bans(Section):
    """[bans]: what a failed login or handshake costs, and how many of them end in a ban of the address."""

    failures_max: Annotated[int, checks.whole(1, 1_000_000)] = 20
    window_s: Annotated[int, checks.whole(1, 86_400)] = 300
    ban_s: Annotated[int, checks.whole(0, 86_400)] = 60  # the first one, then twice as long; 0: none
    ban_s_max: Annotated[int, checks.whole(1, 604_800)] = 3600
    pause_s: Annotated[float, checks.number(0, 60)] = 1.0  # before a refusal, then twice as long
    pause_s_max: Annotated[float, checks.number(0, 60)] = 5.0
    exempt: Annotated[tuple[str, ...], NETWORKS] = ()  # whom a ban would take for many at once


class Management(Section):
    """[management]: where the HTTP API listens. With a certificate it speaks HTTPS."""

    hosts: Annotated[tuple[str, ...], checks.texts(checks.text(), 1)] = ("127.0.0.1", "::1")
    port: Annotated[int, PORT] = 15672
    certificate: Annotated[Path | None, path] = None
    key: Annotated[Path | None, path] = None
    pipelines: Annotated[Path | None, path] = None  # the state directory of pipelines, for their metrics


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
    return tls._replace(others=tuple(others))


def check_files(settings: object, where: str, names: tuple[str, ...]) -> None:
    """Raises unless the files are there and can be read."""
    for name in names:
        file: Path | None = getattr(settings, name)
        if file is None:
            raise ConfigFault(f"{where}.{name} is missing; give the path of a PEM file")
        try:
            os.close(opened_at_once(file))
        except NotRegularFile:
            raise ConfigFault(
                f'{where}.{name} = "{file}": not a regular file; the broker reads it again and again'
            ) from None
        except OSError as error:
            raise ConfigFault(f'{where}.{name} = "{file}": {unreadable(error, "the path")}') from None
