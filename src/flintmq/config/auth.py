"""How clients prove who they are: [auth], and a table in it for each back end that has settings."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from flintmq import checks
from flintmq.config.files import path
from flintmq.config.tables import NO_TABLE, Document, Section, refuse_unknown, section, table
from flintmq.config.users import USER_TAGS, PermissionSettings
from flintmq.errors import ConfigFault

if TYPE_CHECKING:
    from pathlib import Path

MECHANISMS = ("PLAIN", "AMQPLAIN", "EXTERNAL", "SCRAM-SHA-256", "ANONYMOUS")
INTERNAL = "internal"
SOME_MECHANISMS = checks.texts(checks.one_of(*MECHANISMS, quote='"'), 1)
CertificateField = Literal["common_name", "distinguished_name", "san_dns", "san_uri", "san_email"]
CERTIFICATE_FIELDS: tuple[CertificateField, ...] = get_args(CertificateField)
Hashing = Literal["scrypt", "argon2id"]
Rehash = Literal["own", "all", "never"]
# Signatures that a public key proves. HS256 and the like are not here: whoever may verify could sign.
ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
SOME_ALGORITHMS = checks.texts(checks.one_of(*ALGORITHMS, quote='"'), 1)
SECONDS = checks.number(0.1, 60)
CACHE_SECONDS = checks.number(1, 86_400)
NAME = checks.text()


def url_of(*schemes: str) -> checks.Check:
    def check(value: object) -> str:
        from urllib.parse import urlsplit  # by whoever has a back end: it takes a millisecond to load

        try:
            parts = urlsplit(value) if isinstance(value, str) else None
            fits = parts is not None and parts.scheme in schemes and bool(parts.hostname)
            if parts is None or not fits or parts.username is not None or (parts.port or 1) < 1:
                raise ValueError
        except ValueError:
            raise checks.expected(
                f"a URL that begins with {' or '.join(f'{each}://' for each in schemes)}"
            ) from None
        return str(value)

    return check


WEB = url_of("http", "https")


class HttpAuth(Section):
    """[auth.http]: a web server that says who may do what, asked in the words of RabbitMQ."""

    user_path: Annotated[str, WEB] = ""
    vhost_path: Annotated[str, WEB] = ""
    resource_path: Annotated[str, WEB] = ""
    topic_path: Annotated[str, WEB] = ""
    method: Annotated[Literal["get", "post"], checks.one_of("get", "post", quote='"')] = "post"
    authority: Annotated[Path | None, path] = None
    timeout_s: Annotated[float, SECONDS] = 5.0
    cache_s: Annotated[float, CACHE_SECONDS] = 15.0


class OauthAuth(Section):
    """[auth.oauth]: bearer tokens, signed by an identity provider."""

    resource_server_id: Annotated[str, NAME] = ""
    issuer: Annotated[str | None, checks.text(1024)] = None
    audience: Annotated[tuple[str, ...], checks.texts(NAME)] = ()
    jwks_file: Annotated[Path | None, path] = None
    jwks_url: Annotated[str | None, WEB] = None
    authority: Annotated[Path | None, path] = None
    algorithms: Annotated[tuple[str, ...], SOME_ALGORITHMS] = ("RS256", "ES256", "EdDSA")
    leeway_s: Annotated[float, checks.number(0, 300)] = 10.0
    scope_prefix: Annotated[str | None, checks.key] = None
    additional_scopes_key: Annotated[str | None, NAME] = None
    username_claims: Annotated[tuple[str, ...], checks.texts(NAME, 1)] = ("sub", "client_id")
    timeout_s: Annotated[float, SECONDS] = 5.0
    refresh_s: Annotated[float, checks.number(1, 86_400)] = 30.0


class LdapGroup(Section):
    """[[auth.ldap.groups]]: what the members of a group may do."""

    dn: Annotated[str, checks.text(1024)] = ""
    tags: Annotated[tuple[str, ...], checks.texts(checks.one_of(*USER_TAGS, quote='"'))] = ()
    permissions: Mapping[str, PermissionSettings] = NO_TABLE


class LdapAuth(Section):
    """[auth.ldap]: a directory that knows passwords and groups."""

    url: Annotated[str, url_of("ldap", "ldaps")] = ""
    user_dn: Annotated[str, checks.text(1024)] = ""
    start_tls: Annotated[bool, checks.switch] = False
    authority: Annotated[Path | None, path] = None
    group_base: Annotated[str | None, checks.text(1024)] = None
    group_filter: Annotated[str, checks.text(1024)] = "(member={user_dn})"
    groups: tuple[LdapGroup, ...] = ()
    timeout_s: Annotated[float, SECONDS] = 5.0
    cache_s: Annotated[float, CACHE_SECONDS] = 15.0


class PasswordHashing(Section):
    """[auth.passwords]: how passwords that are set from now on are kept."""

    algorithm: Annotated[Hashing, checks.one_of("scrypt", "argon2id", quote='"')] = "scrypt"
    scrypt_ln: Annotated[int, checks.whole(10, 17)] = 14
    scrypt_r: Annotated[int, checks.whole(1, 8)] = 8
    scrypt_p: Annotated[int, checks.whole(1, 8)] = 1
    argon2_memory_kib: Annotated[int, checks.whole(64, 131_072)] = 19_456
    argon2_passes: Annotated[int, checks.whole(1, 16)] = 2
    argon2_lanes: Annotated[int, checks.whole(1, 8)] = 1
    scram_iterations: Annotated[int, checks.whole(4096, 10_000_000)] = 65_536
    rehash: Annotated[Rehash, checks.one_of("own", "all", "never", quote='"')] = "own"


class Auth(Section):
    """[auth]: the ways to log in that are offered, and who is asked about a login, in this order."""

    mechanisms: Annotated[tuple[str, ...], SOME_MECHANISMS] = ("PLAIN", "AMQPLAIN")
    backends: Annotated[tuple[str, ...], checks.texts(NAME, 1)] = (INTERNAL,)
    certificate_user: Annotated[CertificateField, checks.one_of(*CERTIFICATE_FIELDS, quote='"')] = (
        "common_name"
    )
    anonymous_user: Annotated[str | None, NAME] = None
    passwords: PasswordHashing = PasswordHashing()
    http: HttpAuth | None = None
    oauth: OauthAuth | None = None
    ldap: LdapAuth | None = None
    # Of back ends that are plug-ins: the table [auth.NAME] as it stands in the file.
    others: Mapping[str, Mapping[str, Any]] = NO_TABLE

    def backend_names(self) -> tuple[str, ...]:
        """Each back end once, in the order of the chain; "ldap/internal" names two."""
        return tuple(dict.fromkeys(name for each in self.backends for name in each.split("/")))


_TABLES = ("passwords", "http", "oauth", "ldap", "others")


def read_auth(value: object) -> Auth:
    given = table(value, "auth")
    known = [name for name in Auth._fields if name != "others"]
    auth = section(Auth, {name: each for name, each in given.items() if name in known}, "auth", apart=_TABLES)
    others = {name: each for name, each in given.items() if name not in known}
    refuse_unknown(others, [*known, *auth.backend_names()], "auth")
    others = {name: MappingProxyType(table(each, f"auth.{name}")) for name, each in others.items()}
    auth = auth._replace(
        passwords=section(PasswordHashing, given.get("passwords", {}), "auth.passwords"),
        http=_http(given["http"]) if "http" in given else None,
        oauth=_oauth(given["oauth"]) if "oauth" in given else None,
        ldap=_ldap(given["ldap"]) if "ldap" in given else None,
        others=MappingProxyType(others),
    )
    _check(auth)
    return auth


def _check(auth: Auth) -> None:
    for chain in auth.backends:
        if chain.count("/") > 1 or not all(chain.split("/")):
            raise ConfigFault(
                f'auth.backends: "{chain}": expected a name, or two as in "ldap/{INTERNAL}": '
                "who checks the password, and who knows the permissions"
            )
        if chain.endswith("/ldap") and chain != "ldap/ldap":
            raise ConfigFault(
                f'auth.backends: "{chain}": ldap knows nobody without a password; '
                f'put it first, as in "ldap/{INTERNAL}"'
            )
    for name in ("http", "oauth", "ldap"):
        if name in auth.backend_names() and getattr(auth, name) is None:
            raise ConfigFault(f"auth.backends: {name} has no settings; add [auth.{name}]")
    if "SCRAM-SHA-256" in auth.mechanisms and not any(
        each.partition("/")[0] == INTERNAL for each in auth.backends
    ):
        raise ConfigFault(
            f'auth.mechanisms: "SCRAM-SHA-256" needs the back end "{INTERNAL}", which alone has its keys; '
            "add it to auth.backends, or leave the mechanism out"
        )
    if "ANONYMOUS" in auth.mechanisms and auth.anonymous_user is None:
        raise ConfigFault("auth.anonymous_user is missing; name the user that ANONYMOUS logs in as")
    if auth.anonymous_user is not None and "ANONYMOUS" not in auth.mechanisms:
        raise ConfigFault(
            'auth.anonymous_user: "ANONYMOUS" is not in auth.mechanisms; add it, or leave this out'
        )


def _http(value: object) -> HttpAuth:
    http = section(HttpAuth, value, "auth.http")
    for name in ("user_path", "vhost_path", "resource_path"):
        if not getattr(http, name):
            raise ConfigFault(f"auth.http.{name} is missing")
    return http


def _oauth(value: object) -> OauthAuth:
    oauth = section(OauthAuth, value, "auth.oauth")
    if not oauth.resource_server_id:
        raise ConfigFault("auth.oauth.resource_server_id is missing; tokens name the broker by it")
    if (oauth.jwks_file is None) == (oauth.jwks_url is None):
        raise ConfigFault("auth.oauth: give either jwks_file or jwks_url, and only one of them")
    return oauth


def _ldap(value: object) -> LdapAuth:
    given = dict(table(value, "auth.ldap"))
    ldap = section(LdapAuth, given, "auth.ldap", apart=("groups",))
    for name in ("url", "user_dn"):
        if not getattr(ldap, name):
            raise ConfigFault(f"auth.ldap.{name} is missing")
    if "{username}" not in ldap.user_dn:
        raise ConfigFault("auth.ldap.user_dn: expected {username} in it, in place of the name")
    groups = given.get("groups", [])
    if not isinstance(groups, list):
        raise ConfigFault("auth.ldap.groups: expected a list of tables, each written as [[auth.ldap.groups]]")
    if groups and ldap.group_base is None:
        raise ConfigFault("auth.ldap.group_base is missing; say where groups are looked for")
    return ldap._replace(
        groups=tuple(_group(each, f"auth.ldap.groups[{at}]") for at, each in enumerate(groups))
    )


def _group(value: object, where: str) -> LdapGroup:
    given: Document = table(value, where)
    group = section(LdapGroup, given, where, apart=("permissions",))
    if not group.dn:
        raise ConfigFault(f"{where}.dn is missing")
    permissions = {
        host: section(PermissionSettings, each, f'{where}.permissions."{host}"')
        for host, each in table(given.get("permissions", {}), f"{where}.permissions").items()
    }
    return group._replace(permissions=MappingProxyType(permissions))
