"""The operator's settings: their names, defaults and limits, and how a TOML file becomes them.

    defaults in this file  <  the TOML file  <  the command line

Owns what a setting is called and which values it takes. Whatever is wrong with a value ends in one
ConfigFault of one line: the file, the setting, what was expected and what to do. It must never know
how a setting is used: every layer reads it, so it imports none of them.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeVar

from flintmq.errors import ConfigFault
from flintmq.name_pattern import NamePattern, PatternFault

SyncPolicy = Literal["always", "interval", "never"]
LogLevel = Literal["debug", "info", "warning", "error"]

SYNC_POLICIES = ("always", "interval", "never")
LOG_LEVELS = ("debug", "info", "warning", "error")
POLICY_TARGETS = ("all", "queues", "classic_queues", "quorum_queues", "streams", "exchanges")
USER_TAGS = ("administrator", "monitoring", "management", "policymaker", "impersonator")

# A name of a user or virtual host travels as an AMQP short string: one octet of length.
NAME_OCTETS_MAX = 255
PASSWORD_OCTETS_MAX = 1024
CONFIG_FILE_BYTES_MAX = 16 * 1024 * 1024

Parse = Callable[[object, str], Any]
Settings = TypeVar("Settings")


# -- what a value may be ---------------------------------------------------------------------------


def _shown(value: object) -> str:
    """A value as the operator wrote it, cut to what fits on a line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a table"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    text = text.encode("unicode_escape").decode("ascii")
    return text if len(text) <= 60 else text[:57] + "..."


def _wrong(where: str, value: object, expected: str) -> ConfigFault:
    return ConfigFault(f"{where} = {_shown(value)}: expected {expected}")


def _suggest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f", did you mean '{near[0]}'?" if near else ""


def _whole(least: int, most: int) -> Parse:
    def parse(value: object, where: str) -> int:
        if type(value) is not int or not least <= value <= most:
            raise _wrong(where, value, f"a whole number from {least} to {most}")
        return value

    return parse


def _number(least: float, most: float) -> Parse:
    def parse(value: object, where: str) -> float:
        is_number = type(value) in (int, float)
        if not is_number or not math.isfinite(value) or not least <= value <= most:  # type: ignore[arg-type,operator]
            raise _wrong(where, value, f"a number from {least:g} to {most:g}")
        return float(value)  # type: ignore[arg-type]

    return parse


_SIZE = re.compile(r"(\d{1,18})\s*(B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)?")
_DECIMAL_UNITS = {None: 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE_UNITS = _DECIMAL_UNITS | _BINARY_UNITS


def _size(least: int, most: int) -> Parse:
    """Octets: a whole number, or text such as "512MiB" or "2 GB"."""

    def parse(value: object, where: str) -> int:
        size = value
        if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
            size = int(match[1]) * _SIZE_UNITS[match[2]]
        if type(size) is not int or not least <= size <= most:
            expected = f'a size from {least} to {most} bytes, such as 65536 or "512MiB"'
            raise _wrong(where, value, expected)
        return size

    return parse


def _one_of(choices: Sequence[str]) -> Parse:
    def parse(value: object, where: str) -> str:
        if not isinstance(value, str) or value not in choices:
            raise _wrong(where, value, "one of " + ", ".join(f'"{choice}"' for choice in choices))
        return value

    return parse


def _switch(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(where, value, "true or false")
    return value


def _text(octets_max: int) -> Parse:
    def parse(value: object, where: str) -> str:
        if not isinstance(value, str) or not 0 < len(value.encode()) <= octets_max:
            raise _wrong(where, value, f"text of 1 to {octets_max} octets")
        return value

    return parse


def _secret(octets_max: int) -> Parse:
    """Text that no fault may repeat."""

    def parse(value: object, where: str) -> str:
        if not isinstance(value, str) or not 0 < len(value.encode()) <= octets_max:
            raise ConfigFault(f"{where}: expected text of 1 to {octets_max} octets (not shown here)")
        return value

    return parse


def _texts(each: Parse, least: int) -> Parse:
    def parse(value: object, where: str) -> tuple[str, ...]:
        if not isinstance(value, list) or len(value) < least:
            raise _wrong(where, value, "a list of texts" + (" with at least one in it" if least else ""))
        texts = tuple(each(item, f"{where}[{index}]") for index, item in enumerate(value))
        for index, text in enumerate(texts):
            if text in texts[:index]:
                raise _wrong(f"{where}[{index}]", text, "each value once, this one is there twice")
        return texts

    return parse


def _path(value: object, where: str) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise _wrong(where, value, "a path")
    return Path(value).expanduser()


def _pattern(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(where, value, "a regular expression")
    try:
        NamePattern(value)
    except PatternFault as fault:
        raise _wrong(where, value, f"a regular expression ({fault})") from None
    return value


def _key(value: object, where: str) -> str:
    if not isinstance(value, str) or len(value.encode()) > NAME_OCTETS_MAX:
        raise _wrong(where, value, f"text of at most {NAME_OCTETS_MAX} octets")
    return value


def _arguments(value: object, where: str) -> Mapping[str, Any]:
    """A field table: what TOML can hold it can hold as well, but for times without a date."""
    for name, given in _table(value, where).items():
        _text(NAME_OCTETS_MAX)(name, f"{where}: a name")
        for item in given if isinstance(given, list) else [given]:
            if not isinstance(item, str | bool | int | float | dict | list):
                raise _wrong(f"{where}.{name}", item, "text, a number, true or false, a list or a table")
            if type(item) is int and not -(1 << 63) <= item < 1 << 63:
                raise _wrong(f"{where}.{name}", item, "a number of 64 bits")
    return MappingProxyType(dict(_table(value, where)))


# -- the settings ----------------------------------------------------------------------------------


def _setting(default: object, parse: Parse) -> Any:
    return field(default=default, metadata={"parse": parse})


@dataclass(frozen=True, slots=True)
class Listen:
    """[listen]: where clients connect. Loopback alone until the operator opens it up."""

    hosts: tuple[str, ...] = _setting(("127.0.0.1", "::1"), _texts(_text(NAME_OCTETS_MAX), 1))
    port: int = _setting(5672, _whole(0, 65535))  # 0: any free port


@dataclass(frozen=True, slots=True)
class Limits:
    """[limits]: how much a peer, or all of them together, may ask for."""

    connections_max: int = _setting(65_536, _whole(1, 1_000_000))
    channels_per_connection_max: int = _setting(2047, _whole(1, 65_535))
    consumers_per_channel_max: int = _setting(10_000, _whole(1, 100_000_000))
    consumers_per_connection_max: int = _setting(100_000, _whole(1, 100_000_000))
    queues_per_virtual_host_max: int = _setting(100_000, _whole(1, 100_000_000))
    exchanges_per_virtual_host_max: int = _setting(100_000, _whole(1, 100_000_000))
    bindings_per_virtual_host_max: int = _setting(1_000_000, _whole(1, 100_000_000))
    settlements_per_transaction_max: int = _setting(100_000, _whole(1, 100_000_000))
    # 4096 is the least that every peer must accept (0-9-1, frame-min-size).
    frame_bytes_max: int = _setting(131_072, _size(4096, 128 * 2**20))
    message_bytes_max: int = _setting(512 * 2**20, _size(1, 2**40))
    handshake_timeout_s: float = _setting(10.0, _number(0.1, 3600))
    heartbeat_s: int = _setting(60, _whole(0, 65_535))  # 0: none wanted
    memory_high_share: float = _setting(0.4, _number(0.01, 1.0))
    memory_high_bytes: int | None = _setting(None, _size(2**20, 2**60))
    disk_free_bytes_min: int = _setting(256 * 2**20, _size(0, 2**60))

    def memory_bytes_high(self, machine_bytes: int) -> int:
        """The mark above which publishers wait: the absolute one if set, else a share of the machine."""
        if self.memory_high_bytes is not None:
            return self.memory_high_bytes
        return int(machine_bytes * self.memory_high_share)


@dataclass(frozen=True, slots=True)
class Storage:
    """[storage]: the journal. Without a directory everything lives in memory and ends with the process."""

    directory: Path | None = _setting(None, _path)
    sync: SyncPolicy = _setting("always", _one_of(SYNC_POLICIES))
    sync_interval_ms: int = _setting(100, _whole(1, 60_000))


@dataclass(frozen=True, slots=True)
class Dtx:
    """[dtx]: how much distributed transactions may hold, in each virtual host, and for how long."""

    branches_max: int = _setting(10_000, _whole(1, 1_000_000))
    operations_per_branch_max: int = _setting(1_000_000, _whole(1, 100_000_000))
    branch_bytes_max: int = _setting(2**30, _size(1, 2**40))
    timeout_s: int = _setting(0, _whole(0, 2**31))  # of a branch that is not prepared; 0: none
    heuristic_timeout_s: int = _setting(0, _whole(0, 2**31))  # of one that is; 0: none
    markers_max: int = _setting(10_000, _whole(1, 1_000_000))
    marker_age_s: int = _setting(31_536_000, _whole(60, 1_000_000_000))


@dataclass(frozen=True, slots=True)
class Log:
    """[log]: what is written to standard error, or to a file."""

    level: LogLevel = _setting("info", _one_of(LOG_LEVELS))
    file: Path | None = _setting(None, _path)


@dataclass(frozen=True, slots=True)
class Tls:
    """[tls]: a second listener, for encrypted connections, on the same hosts."""

    certificate: Path = _setting(None, _path)
    key: Path = _setting(None, _path)
    authority: Path | None = _setting(None, _path)
    port: int = _setting(5671, _whole(0, 65535))


@dataclass(frozen=True, slots=True)
class PermissionSettings:
    """[users.NAME.permissions."VHOST"]: regular expressions over names; an empty one grants nothing."""

    configure: str = _setting("", _pattern)
    write: str = _setting("", _pattern)
    read: str = _setting("", _pattern)


ALL_PERMISSIONS = PermissionSettings(configure=".*", write=".*", read=".*")


@dataclass(frozen=True, slots=True)
class UserSettings:
    """[users.NAME]: one who may log in, by a password in plain or hashed by `flintmq hash-password`."""

    password: str | None = field(default=None, repr=False, metadata={"parse": _secret(PASSWORD_OCTETS_MAX)})
    password_hash: str | None = field(default=None, repr=False, metadata={"parse": _secret(512)})
    tags: tuple[str, ...] = _setting((), _texts(_one_of(USER_TAGS), 0))
    # None: true for the user called guest, whose password the whole world knows, false for others.
    loopback_only: bool | None = _setting(None, _switch)
    permissions: Mapping[str, PermissionSettings] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class DefaultUser(UserSettings):
    """The user guest of settings that name no users: no setting, so that it can change at run time."""


def _arguments_setting() -> Any:
    return field(default_factory=lambda: MappingProxyType({}), metadata={"parse": _arguments})


@dataclass(frozen=True, slots=True)
class QueueTemplate:
    """[queue_templates.NAME]: what a queue gets that is declared with the argument x-template."""

    durable: bool | None = _setting(None, _switch)  # None: as the client says
    auto_delete: bool | None = _setting(None, _switch)
    arguments: Mapping[str, Any] = _arguments_setting()


@dataclass(frozen=True, slots=True)
class ExchangeSettings:
    """[[exchanges]]: a durable exchange that is always there."""

    name: str = _setting("", _text(NAME_OCTETS_MAX))
    type: str = _setting("", _text(NAME_OCTETS_MAX))
    virtual_host: str = _setting("", _text(NAME_OCTETS_MAX))  # the first one, if it is not given
    internal: bool = _setting(False, _switch)
    arguments: Mapping[str, Any] = _arguments_setting()


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """[[queues]]: a durable queue that is always there."""

    name: str = _setting("", _text(NAME_OCTETS_MAX))
    virtual_host: str = _setting("", _text(NAME_OCTETS_MAX))
    template: str = _setting("", _text(NAME_OCTETS_MAX))
    arguments: Mapping[str, Any] = _arguments_setting()


@dataclass(frozen=True, slots=True)
class BindingSettings:
    """[[bindings]]: a binding that is always there."""

    source: str = _setting("", _text(NAME_OCTETS_MAX))
    queue: str = _setting("", _text(NAME_OCTETS_MAX))  # either a queue
    exchange: str = _setting("", _text(NAME_OCTETS_MAX))  # or an exchange
    routing_key: str = _setting("", _key)
    virtual_host: str = _setting("", _text(NAME_OCTETS_MAX))
    arguments: Mapping[str, Any] = _arguments_setting()


@dataclass(frozen=True, slots=True)
class Plugins:
    """[plugins]: what other packages add."""

    # Names of entry points in the group flintmq.exchanges; None: all that are installed.
    exchanges: tuple[str, ...] | None = _setting(None, _texts(_text(NAME_OCTETS_MAX), 0))


def _definition(value: object, where: str) -> Mapping[str, Any]:
    """What a policy asks for; which keys there are is known to the broker."""
    if not isinstance(value, dict) or not value:
        raise _wrong(where, value, f"a table with at least one key, written as [{where}]")
    for key, each in value.items():
        if not isinstance(each, (str, int)):
            raise _wrong(f"{where}.{key}", each, "text, a whole number, or true or false")
    return MappingProxyType(value)


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """[[policies]], [[operator_policies]]: rules for queues and exchanges by the pattern of their names."""

    name: str = _setting("", _text(NAME_OCTETS_MAX))
    pattern: str = _setting("", _pattern)
    definition: Mapping[str, Any] = field(
        default_factory=lambda: MappingProxyType({}), metadata={"parse": _definition}
    )
    virtual_host: str = _setting("/", _text(NAME_OCTETS_MAX))
    priority: int = _setting(0, _whole(-(2**31), 2**31 - 1))
    apply_to: str = _setting("all", _one_of(POLICY_TARGETS))


def _guest(virtual_hosts: Iterable[str]) -> Mapping[str, UserSettings]:
    permissions = MappingProxyType(dict.fromkeys(virtual_hosts, ALL_PERMISSIONS))
    guest = DefaultUser(password="guest", tags=("administrator",), permissions=permissions)
    return MappingProxyType({"guest": guest})


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of one broker. A file that names users has these alone, else there is guest."""

    listen: Listen = Listen()
    limits: Limits = Limits()
    storage: Storage = Storage()
    dtx: Dtx = Dtx()
    log: Log = Log()
    tls: Tls | None = None
    virtual_hosts: tuple[str, ...] = ("/",)
    users: Mapping[str, UserSettings] = field(default_factory=lambda: _guest(("/",)))
    queue_templates: Mapping[str, QueueTemplate] = field(default_factory=lambda: MappingProxyType({}))
    exchanges: tuple[ExchangeSettings, ...] = ()
    queues: tuple[QueueSettings, ...] = ()
    bindings: tuple[BindingSettings, ...] = ()
    plugins: Plugins = Plugins()
    policies: tuple[PolicySettings, ...] = ()
    operator_policies: tuple[PolicySettings, ...] = ()


# -- from a file and the command line --------------------------------------------------------------


def load(
    file: Path | None = None,
    *,
    hosts: Sequence[str] | None = None,
    port: int | None = None,
    directory: str | None = None,
    log_level: str | None = None,
) -> Config:
    """The settings of `file` over the defaults, and the given options over both."""
    config = Config() if file is None else parse(_read(file), str(file))
    if hosts:
        chosen = _field_parse(Listen, "hosts")(list(hosts), "--host")
        config = replace(config, listen=replace(config.listen, hosts=chosen))
    if port is not None:
        chosen = _field_parse(Listen, "port")(port, "--port")
        config = replace(config, listen=replace(config.listen, port=chosen))
    if directory is not None:
        chosen = _field_parse(Storage, "directory")(directory, "--data")
        config = replace(config, storage=replace(config.storage, directory=chosen))
    if log_level is not None:
        level = _field_parse(Log, "level")(log_level, "--log-level")
        config = replace(config, log=replace(config.log, level=level))
    return config


def parse(text: str, source: str = "configuration") -> Config:
    """The settings that a TOML text holds; `source` names it in faults."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigFault(f"{source}: not valid TOML: {error}; correct it and start again") from None
    try:
        return _config(document)
    except ConfigFault as fault:
        raise ConfigFault(f"{source}: {fault}") from None


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            octets = stream.read(CONFIG_FILE_BYTES_MAX + 1)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigFault(f"{file}: cannot be read: {reason}; check the path given to --config") from None
    if len(octets) > CONFIG_FILE_BYTES_MAX:
        raise ConfigFault(f"{file}: larger than {CONFIG_FILE_BYTES_MAX} bytes; is it a configuration?")
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise ConfigFault(f"{file}: not UTF-8 text at octet {error.start}; save it as UTF-8") from None


def _field_parse(settings: type, name: str) -> Parse:
    chosen: Parse = settings.__dataclass_fields__[name].metadata["parse"]  # type: ignore[attr-defined]
    return chosen


def _table(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _wrong(where, value, f"a table, written as [{where}]")
    return value


def _refuse_unknown(given: Iterable[str], known: Iterable[str], where: str) -> None:
    known = list(known)
    for name in given:
        if name not in known:
            inside = f" in [{where}]" if where else ""
            hint = _suggest(name, known) or f"; known here: {', '.join(known)}"
            raise ConfigFault(f"unknown setting '{_shown(name)[1:-1]}'{inside}{hint}")


def _section(settings: type[Settings], value: object, where: str, *, apart: tuple[str, ...] = ()) -> Settings:
    """One table of the file as one dataclass; the fields named in `apart` are the caller's to fill in."""
    table = _table(value, where)
    known = fields(settings)  # type: ignore[arg-type]
    parsers: dict[str, Any] = {each.name: each.metadata.get("parse") for each in known}
    _refuse_unknown(table, parsers, where)
    values = {
        name: parsers[name](given, f"{where}.{name}") for name, given in table.items() if name not in apart
    }
    return settings(**values)


def _config(document: dict[str, object]) -> Config:
    _refuse_unknown(document, [each.name for each in fields(Config)], "")
    hosts_of = _texts(_text(NAME_OCTETS_MAX), 1)
    virtual_hosts = hosts_of(document.get("virtual_hosts", ["/"]), "virtual_hosts")
    users = _users(document["users"], virtual_hosts) if "users" in document else _guest(virtual_hosts)
    return Config(
        listen=_section(Listen, document.get("listen", {}), "listen"),
        limits=_section(Limits, document.get("limits", {}), "limits"),
        storage=_section(Storage, document.get("storage", {}), "storage"),
        dtx=_section(Dtx, document.get("dtx", {}), "dtx"),
        log=_section(Log, document.get("log", {}), "log"),
        tls=_tls(document["tls"]) if "tls" in document else None,
        virtual_hosts=virtual_hosts,
        users=users,
        queue_templates=_templates(document.get("queue_templates", {})),
        exchanges=_listed(ExchangeSettings, document, "exchanges", ("name", "type"), virtual_hosts),
        queues=_listed(QueueSettings, document, "queues", ("name",), virtual_hosts),
        bindings=_bindings(document, virtual_hosts),
        plugins=_section(Plugins, document.get("plugins", {}), "plugins"),
        policies=_policies(document, "policies", virtual_hosts),
        operator_policies=_policies(document, "operator_policies", virtual_hosts),
    )


def _templates(value: object) -> Mapping[str, QueueTemplate]:
    named = {
        name: _section(QueueTemplate, given, f"queue_templates.{name}")
        for name, given in _table(value, "queue_templates").items()
    }
    return MappingProxyType(named)


def _listed(
    settings: type[Settings],
    document: dict[str, object],
    name: str,
    required: Sequence[str],
    virtual_hosts: Sequence[str],
) -> tuple[Settings, ...]:
    """An array of tables, each with what is required, in a virtual host that there is."""
    value = document.get(name, [])
    if not isinstance(value, list):
        raise _wrong(name, value, f"a list of tables, each written as [[{name}]]")
    found: list[Settings] = []
    for index, given in enumerate(value):
        where = f"{name}[{index}]"
        each: Any = _section(settings, given, where)
        for setting in required:
            if not getattr(each, setting):
                raise ConfigFault(f"{where}.{setting} is missing")
        if each.virtual_host and each.virtual_host not in virtual_hosts:
            hint = _suggest(each.virtual_host, virtual_hosts) or "; add it to virtual_hosts"
            raise ConfigFault(f"{where}.virtual_host: no such virtual host '{each.virtual_host}'{hint}")
        found.append(replace(each, virtual_host=each.virtual_host or virtual_hosts[0]))
    return tuple(found)


def _bindings(document: dict[str, object], virtual_hosts: Sequence[str]) -> tuple[BindingSettings, ...]:
    bindings = _listed(BindingSettings, document, "bindings", ("source",), virtual_hosts)
    for index, binding in enumerate(bindings):
        if bool(binding.queue) == bool(binding.exchange):
            raise ConfigFault(f"bindings[{index}]: give either queue or exchange, where it leads to")
    return bindings


def _policies(
    document: dict[str, object], section: str, virtual_hosts: Sequence[str]
) -> tuple[PolicySettings, ...]:
    value = document.get(section, [])
    if not isinstance(value, list):
        raise _wrong(section, value, f"a list of tables, each written as [[{section}]]")
    found: list[PolicySettings] = []
    for index, given in enumerate(value):
        where = f"{section}[{index}]"
        policy = _section(PolicySettings, given, where)
        for name in ("name", "pattern", "definition"):
            if name not in _table(given, where):
                raise ConfigFault(f"{where}.{name} is missing")
        if policy.virtual_host not in virtual_hosts:
            hint = _suggest(policy.virtual_host, virtual_hosts) or "; add it to virtual_hosts"
            raise ConfigFault(f"{where}: no such virtual host '{policy.virtual_host}'{hint}")
        if any((each.name, each.virtual_host) == (policy.name, policy.virtual_host) for each in found):
            raise ConfigFault(f"{where}: there is a policy '{policy.name}' already; give each its own name")
        found.append(policy)
    return tuple(found)


def _tls(value: object) -> Tls:
    tls = _section(Tls, value, "tls")
    for name in ("certificate", "key", "authority"):
        path: Path | None = getattr(tls, name)
        if path is None:
            if name == "authority":
                continue
            raise ConfigFault(f"tls.{name} is missing; give the path of a PEM file")
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            reason = error.strerror or error
            raise ConfigFault(f'tls.{name} = "{path}": cannot be read: {reason}; check the path') from None
    return tls


def _users(value: object, virtual_hosts: Sequence[str]) -> Mapping[str, UserSettings]:
    named: dict[str, UserSettings] = {}
    for name, given in _table(value, "users").items():
        where = f"users.{name}"
        _text(NAME_OCTETS_MAX)(name, "users: a name")
        user = _section(UserSettings, given, where, apart=("permissions",))
        if (user.password is None) == (user.password_hash is None):
            raise ConfigFault(f"{where}: give either password or password_hash, and only one of them")
        permissions = _permissions(_table(given, where).get("permissions", {}), where, virtual_hosts)
        named[name] = replace(user, permissions=permissions)
    return MappingProxyType(named)


def _permissions(value: object, user: str, virtual_hosts: Sequence[str]) -> Mapping[str, PermissionSettings]:
    granted: dict[str, PermissionSettings] = {}
    for virtual_host, given in _table(value, f"{user}.permissions").items():
        where = f'{user}.permissions."{virtual_host}"'
        if virtual_host not in virtual_hosts:
            hint = _suggest(virtual_host, virtual_hosts) or "; add it to virtual_hosts"
            raise ConfigFault(f"{where}: no such virtual host{hint}")
        granted[virtual_host] = _section(PermissionSettings, given, where)
    return MappingProxyType(granted)
