"""The operator's settings: their names, defaults and limits, and how a TOML file becomes them.

    defaults in these files  <  the TOML file  <  the command line

Each module has the tables of one noun; begin with config.py, which has them all together. Whatever is wrong
with a value ends in one ConfigFault of one line: the file, the setting, what was expected and what to do.
Settings must never know how they are used: every layer reads them, so they import none of the layers.
"""

from flintmq.checks import NAME_OCTETS_MAX
from flintmq.config.access import Access, RealmSettings
from flintmq.config.auth import Auth, HttpAuth, LdapAuth, OauthAuth, PasswordHashing
from flintmq.config.config import CONFIG_FILE_BYTES_MAX, Config, load, parse
from flintmq.config.files import Audit, Log, Storage
from flintmq.config.limits import Dtx, Limits, Staging
from flintmq.config.listeners import Bans, Listen, Management, NamedCertificate, Tls
from flintmq.config.policies import PolicySettings
from flintmq.config.topology import BindingSettings, ExchangeSettings, Plugins, QueueSettings, QueueTemplate
from flintmq.config.users import (
    ALL_PERMISSIONS,
    PASSWORD_OCTETS_MAX,
    USER_TAGS,
    DefaultUser,
    PermissionSettings,
    UserSettings,
    guest_alone,
)

__all__ = [
    "ALL_PERMISSIONS",
    "CONFIG_FILE_BYTES_MAX",
    "NAME_OCTETS_MAX",
    "PASSWORD_OCTETS_MAX",
    "USER_TAGS",
    "Access",
    "Audit",
    "Auth",
    "Bans",
    "BindingSettings",
    "Config",
    "DefaultUser",
    "Dtx",
    "ExchangeSettings",
    "HttpAuth",
    "LdapAuth",
    "Limits",
    "Listen",
    "Log",
    "Management",
    "NamedCertificate",
    "OauthAuth",
    "PasswordHashing",
    "PermissionSettings",
    "Plugins",
    "PolicySettings",
    "QueueSettings",
    "QueueTemplate",
    "RealmSettings",
    "Staging",
    "Storage",
    "Tls",
    "UserSettings",
    "guest_alone",
    "load",
    "parse",
]
