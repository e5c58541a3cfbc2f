"""All settings of one broker together, from the file and the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flintmq import checks
from flintmq.config.access import Access, read_access
from flintmq.config.auth import Auth, read_auth
from flintmq.config.files import Audit, Log, Storage, opened_at_once, path, unreadable
from flintmq.config.limits import Dtx, Limits, Staging
from flintmq.config.listeners import Bans, Listen, Management, Tls, read_management, read_tls
from flintmq.config.policies import PolicySettings, read_policies
from flintmq.config.tables import (
    NO_TABLE,
    Document,
    Section,
    checked,
    listed,
    option,
    refuse_unknown,
    section,
)
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
from flintmq.errors import ConfigFault, NotRegularFile

if TYPE_CHECKING:
    from pathlib import Path

CONFIG_FILE_BYTES_MAX = 16 * 1024 * 1024


class Config(Section):
    """All settings of one broker. A file that names users has these alone, else there is guest."""

    listen: Listen = Listen()
    limits: Limits = Limits()
    storage: Storage = Storage()
    dtx: Dtx = Dtx()
    staging: Staging = Staging()
    log: Log = Log()
    audit: Audit = Audit()
    tls: Tls | None = None
    bans: Bans = Bans()
    management: Management | None = None
    virtual_hosts: tuple[str, ...] = ("/",)
    users: Mapping[str, UserSettings] = guest_alone(("/",))
    auth: Auth = Auth()
    access: Access = Access()
    queue_templates: Mapping[str, QueueTemplate] = NO_TABLE
    exchanges: tuple[ExchangeSettings, ...] = ()
    queues: tuple[QueueSettings, ...] = ()
    bindings: tuple[BindingSettings, ...] = ()
    plugins: Plugins = Plugins()
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
    while_running: bool = False,
) -> Config:
    """The settings of `file`, or of `text`, over the defaults, and the given options over both.

    `while_running` nobody may wait: the file has to be a regular one, and no pipe.
    """
    config = Config() if text is None else parse(text)
    if file is not None:
        config = parse(_read(file, while_running), str(file))
    if hosts:
        chosen = option(Listen, "hosts", list(hosts), "--host")
        config = config._replace(listen=config.listen._replace(hosts=chosen))
    if port is not None:
        chosen = option(Listen, "port", port, "--port")
        config = config._replace(listen=config.listen._replace(port=chosen))
    if fast09_port is not None:
        chosen = option(Listen, "fast09_port", fast09_port, "--fast09-port")
        config = config._replace(listen=config.listen._replace(fast09_port=chosen))
    if directory is not None:
        chosen = option(Storage, "directory", directory, "--data")
        config = config._replace(storage=config.storage._replace(directory=chosen))
    if log_level is not None:
        level = option(Log, "level", log_level, "--log-level")
        config = config._replace(log=config.log._replace(level=level))
    if definitions is not None:
        config = config._replace(load_definitions=checked(definitions, "--definitions", path))
    if management_port is not None:
        chosen = option(Management, "port", management_port, "--management-port")
        config = config._replace(management=(config.management or Management())._replace(port=chosen))
    return config


def parse(text: str, source: str = "configuration") -> Config:
    """The settings that a TOML text holds; `source` names it in faults."""
    import tomllib  # by whoever has a file

    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigFault(f"{source}: not valid TOML: {error}") from None
    try:
        return _config(document)
    except ConfigFault as fault:
        raise ConfigFault(f"{source}: {fault}") from None


def _read(file: Path, while_running: bool) -> str:
    try:
        with open(opened_at_once(file) if while_running else file, "rb") as stream:
            octets = stream.read(CONFIG_FILE_BYTES_MAX + 1)
    except NotRegularFile as fault:
        raise NotRegularFile(
            f"{fault}, and so read at the start alone; give --config a regular file, and restart the broker"
        ) from None
    except OSError as error:
        reason = unreadable(error, "the path given to --config")
        raise ConfigFault(f"{file}: {reason}") from None
    if len(octets) > CONFIG_FILE_BYTES_MAX:
        raise ConfigFault(f"{file}: larger than {CONFIG_FILE_BYTES_MAX} bytes; is it a configuration?")
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise ConfigFault(f"{file}: not UTF-8 text at octet {error.start}; save it as UTF-8") from None


def refuse_outside(document: Document) -> None:
    """A setting in front of the first section that is one of a section."""
    sections = Config()
    for name in document:
        for place in Config._fields:
            if name not in Config._fields and name in getattr(getattr(sections, place), "_fields", ()):
                raise ConfigFault(f"unknown setting '{name}'; it belongs to the section [{place}]")


def _config(document: Document) -> Config:
    refuse_outside(document)
    refuse_unknown(document, Config._fields, "")
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
