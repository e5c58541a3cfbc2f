"""All settings of one broker together, from the file and the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType

from flintmq import checks
from flintmq.config.access import Access, read_access
from flintmq.config.auth import Auth, read_auth
from flintmq.config.files import Audit, Log, Storage, path
from flintmq.config.limits import Dtx, Limits, Staging
from flintmq.config.listeners import Bans, Listen, Management, Tls, read_management, read_tls
from flintmq.config.policies import PolicySettings, read_policies
from flintmq.config.tables import Document, checked, listed, option, refuse_unknown, section
from flintmq.config.topology import (
    BindingSettings,
    ExchangeSettings,
    Plugins,
    QueueSettings,
    QueueTemplate,
    read_bindings,
    read_templates,
)
from flintmq.config.users import UserSettings, guest_alone, read_users
from flintmq.errors import ConfigFault

CONFIG_FILE_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of one broker. A file that names users has these alone, else there is guest."""

    listen: Listen = field(default_factory=Listen)
    limits: Limits = field(default_factory=Limits)
    storage: Storage = field(default_factory=Storage)
    dtx: Dtx = field(default_factory=Dtx)
    staging: Staging = field(default_factory=Staging)
    log: Log = field(default_factory=Log)
    audit: Audit = field(default_factory=Audit)
    tls: Tls | None = None
    bans: Bans = field(default_factory=Bans)
    management: Management | None = None
    virtual_hosts: tuple[str, ...] = ("/",)
    users: Mapping[str, UserSettings] = field(default_factory=lambda: guest_alone(("/",)))
    auth: Auth = field(default_factory=Auth)
    access: Access = field(default_factory=Access)
    queue_templates: Mapping[str, QueueTemplate] = field(default_factory=lambda: MappingProxyType({}))
    exchanges: tuple[ExchangeSettings, ...] = ()
    queues: tuple[QueueSettings, ...] = ()
    bindings: tuple[BindingSettings, ...] = ()
    plugins: Plugins = field(default_factory=Plugins)
    policies: tuple[PolicySettings, ...] = ()
    operator_policies: tuple[PolicySettings, ...] = ()
    load_definitions: Path | None = None  # a file in RabbitMQ's JSON, put into force at each start


def load(
    file: Path | None = None,
    *,
    hosts: Sequence[str] | None = None,
    port: int | None = None,
    directory: str | None = None,
    log_level: str | None = None,
    definitions: str | None = None,
    management_port: int | None = None,
    fast09_port: int | None = None,
    text: str | None = None,
) -> Config:
    """The settings of `file`, or of `text`, over the defaults, and the given options over both."""
    config = Config() if text is None else parse(text)
    if file is not None:
        config = parse(_read(file), str(file))
    if hosts:
        chosen = option(Listen, "hosts", list(hosts), "--host")
        config = replace(config, listen=replace(config.listen, hosts=chosen))
    if port is not None:
        chosen = option(Listen, "port", port, "--port")
        config = replace(config, listen=replace(config.listen, port=chosen))
    if fast09_port is not None:
        chosen = option(Listen, "fast09_port", fast09_port, "--fast09-port")
        config = replace(config, listen=replace(config.listen, fast09_port=chosen))
    if directory is not None:
        chosen = option(Storage, "directory", directory, "--data")
        config = replace(config, storage=replace(config.storage, directory=chosen))
    if log_level is not None:
        level = option(Log, "level", log_level, "--log-level")
        config = replace(config, log=replace(config.log, level=level))
    if definitions is not None:
        config = replace(config, load_definitions=checked(definitions, "--definitions", path))
    if management_port is not None:
        chosen = option(Management, "port", management_port, "--management-port")
        config = replace(config, management=replace(config.management or Management(), port=chosen))
    return config


def parse(text: str, source: str = "configuration") -> Config:
    """The settings that a TOML text holds; `source` names it in faults."""
    import tomllib  # by whoever has a file

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


def _config(document: Document) -> Config:
    refuse_unknown(document, [each.name for each in fields(Config)], "")
    virtual_hosts = checked(
        document.get("virtual_hosts", ["/"]), "virtual_hosts", checks.texts(checks.text(), 1)
    )
    users = (
        read_users(document["users"], virtual_hosts) if "users" in document else guest_alone(virtual_hosts)
    )
    return Config(
        listen=section(Listen, document.get("listen", {}), "listen"),
        limits=section(Limits, document.get("limits", {}), "limits"),
        storage=section(Storage, document.get("storage", {}), "storage"),
        dtx=section(Dtx, document.get("dtx", {}), "dtx"),
        staging=section(Staging, document.get("staging", {}), "staging"),
        log=section(Log, document.get("log", {}), "log"),
        audit=section(Audit, document.get("audit", {}), "audit"),
        tls=read_tls(document["tls"]) if "tls" in document else None,
        bans=section(Bans, document.get("bans", {}), "bans"),
        management=read_management(document["management"]) if "management" in document else None,
        virtual_hosts=virtual_hosts,
        users=users,
        auth=read_auth(document.get("auth", {})),
        access=read_access(document.get("access", {})),
        queue_templates=read_templates(document.get("queue_templates", {})),
        exchanges=listed(ExchangeSettings, document, "exchanges", ("name", "type"), virtual_hosts),
        queues=listed(QueueSettings, document, "queues", ("name",), virtual_hosts),
        bindings=read_bindings(document, virtual_hosts),
        plugins=section(Plugins, document.get("plugins", {}), "plugins"),
        policies=read_policies(document, "policies", virtual_hosts),
        operator_policies=read_policies(document, "operator_policies", virtual_hosts),
        load_definitions=_definitions(document),
    )


def _definitions(document: Document) -> Path | None:
    given = document.get("load_definitions")
    return None if given is None else checked(given, "load_definitions", path)
