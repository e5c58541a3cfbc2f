"""The way to a broker that runs: its address and credentials, the connection, and lists asked page by page.

Credentials come, the first that is there: of --url, of the environment, of the credentials file. The password
of a user is told for no other user. A password on the command line can be read by every user of the machine
in the list of processes: it is refused unless --password-in-url says that it is meant.
"""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flintmq.cli.output import statuses, tables
from flintmq.cli.output.statuses import CommandFault
from flintmq.wire.amqp import ACCESS_REFUSED

if TYPE_CHECKING:
    from flintmq.client import Connection, Settings

URL = "FLINTMQ_URL"
USER = "FLINTMQ_USER"
PASSWORD = "FLINTMQ_PASSWORD"
CREDENTIALS = "FLINTMQ_CREDENTIALS"
CREDENTIALS_FILE = "~/.config/flintmq/credentials.toml"
DEFAULT_URL = "amqp://localhost"
# What every broker has until somebody changes it: no secret.
WELL_KNOWN = "guest"
OTHER_USER = (
    f"commands log in as {WELL_KNOWN} unless {USER} and {PASSWORD}, or {CREDENTIALS_FILE}, name another user"
)
CREDENTIAL_KEYS = frozenset(("url", "user", "password"))
PAGE_ROWS = 1000

Options = argparse.Namespace


def add_options(parser: argparse.ArgumentParser, virtual_host: str = "instead of that of the URL") -> None:
    """The options that say which broker is meant, and who asks."""
    group = parser.add_argument_group("the broker")
    group.add_argument("--url", metavar="URL", help=f"amqp[s]://user@host:port/virtual-host ({DEFAULT_URL})")
    group.add_argument("-V", "--virtual-host", metavar="V", help=virtual_host)
    group.add_argument(
        "--credentials",
        metavar="FILE",
        help=f"url, user, password in TOML ({CREDENTIALS_FILE})",
    )
    group.add_argument("--profile", metavar="NAME", help="this section of the credentials file")
    group.add_argument(
        "--password-in-url", action="store_true", help="take a password in --url, which others can see"
    )
    group.add_argument("--timeout", type=tables.amount, metavar="S", help="seconds for each answer (60)")


def settings_of(options: Options, environment: Mapping[str, str] = os.environ) -> Settings:
    """Where the broker is and who asks, of options, environment and file."""
    from flintmq.client import Settings
    from flintmq.client.core.settings import parse_uri

    found = credentials_of(options, environment)
    given = options.url or environment.get(URL)
    url = given or found.get("url") or DEFAULT_URL
    settings = parse_uri(url)
    if given and "url" in found and parse_uri(found["url"]).endpoints != settings.endpoints:
        found = {}  # the credentials of one broker are not told to another
    user_given, password_given = named_in(url)
    is_secret = password_given and settings.password.reveal() != WELL_KNOWN
    if options.url and is_secret and not options.password_in_url:
        raise CommandFault(
            f"a password in --url can be seen by all users of this machine: use {PASSWORD}, the credentials "
            "file or the prompt; --password-in-url takes it all the same",
            statuses.USAGE,
        )
    changed: dict[str, Any] = {"recovery": None, "name": "flintmq command"}
    if options.virtual_host is not None:
        changed["virtual_host"] = options.virtual_host
    if options.timeout is not None:
        changed["timeout_s"] = options.timeout
        changed["connection_timeout_s"] = min(options.timeout, settings.connection_timeout_s)
    logins = [
        (environment.get(USER, ""), environment.get(PASSWORD) or None),
        (found.get("user", ""), found.get("password") or None),
    ]
    in_url = (settings.user if user_given else "", settings.password.reveal() if password_given else None)
    logins.insert(0 if options.url else 1, in_url)
    changed["user"], changed["password"] = login_of(logins)
    return Settings.of(settings, **changed)


def login_of(logins: list[tuple[str, str | None]]) -> tuple[str, str]:
    """User and password, each the first there is: but no password that came with the name of another user."""
    user = next((name for name, _ in logins if name), WELL_KNOWN)
    for name, password in logins:
        if password is not None and name in ("", user):
            return user, password
    return user, WELL_KNOWN if user == WELL_KNOWN else asked_password(user)


def named_in(url: str) -> tuple[bool, bool]:
    """Whether a URL names a user, and a password."""
    login, at, _ = url.partition("//")[2].partition("/")[0].rpartition("@")
    user, colon, _ = login.partition(":")
    return bool(at and user), bool(at and colon)


def asked_password(user: str) -> str:
    if not sys.stdin.isatty():
        raise CommandFault(
            f"there is no password for user {user!r}: set {PASSWORD}, or write it to the credentials file",
            statuses.USAGE,
        )
    from getpass import getpass

    return getpass(f"Password of {user}: ")


def credentials_of(options: Options, environment: Mapping[str, str]) -> dict[str, str]:
    """What the credentials file says, if there is one; a file that was named must be there."""
    named = options.credentials or environment.get(CREDENTIALS)
    home = Path(
        environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME") or "~").expanduser() / ".config"
    )
    path = Path(named) if named else home / "flintmq" / "credentials.toml"
    try:
        if not named and not path.exists():
            if options.profile:
                raise CommandFault(f"{path}: no such file, so no profile {options.profile!r}", statuses.USAGE)
            return {}
        check_mode(path)
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFault(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}", statuses.USAGE
        ) from None
    return read_credentials(path, text, options.profile)


def check_mode(path: Path) -> None:
    """A file with passwords is for its owner alone."""
    if os.name != "posix":
        return  # elsewhere modes do not tell who may read
    found = path.stat()
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise CommandFault(f"{path}: others may read it: chmod 600 {path}", statuses.USAGE)
    if found.st_uid not in (os.geteuid(), 0):
        raise CommandFault(f"{path}: it belongs to another user", statuses.USAGE)


def read_credentials(path: Path, text: str, profile: str | None) -> dict[str, str]:
    import tomllib

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CommandFault(f"{path}: {error}", statuses.USAGE) from None
    if profile is not None:
        section = document.get(profile)
        if not isinstance(section, dict):
            raise CommandFault(f"{path}: there is no section [{profile}]", statuses.USAGE)
        document = section
    found: dict[str, str] = {}
    for key, value in document.items():
        if isinstance(value, dict) and profile is None:
            continue  # a profile that was not asked for
        if key not in CREDENTIAL_KEYS or not isinstance(value, str):
            known = ", ".join(sorted(CREDENTIAL_KEYS))
            raise CommandFault(f"{path}: {key}: expected a text under one of {known}", statuses.USAGE)
        found[key] = value
    return found


def connected(options: Options, **changed: Any) -> Connection:
    """A connection to the broker that the options mean."""
    from flintmq.client import LoginRefused, connect

    settings = settings_of(options)
    try:
        return connect(settings, **changed)
    except LoginRefused as refused:
        if settings.user == WELL_KNOWN and refused.code == ACCESS_REFUSED:
            # Nobody may have been named: rabbitmqctl asks for no user.
            refused.args = (f"{refused}; {OTHER_USER}",)
        raise


def connected_anywhere(options: Options) -> Connection:
    """For requests about a virtual host: from that of the URL, as the asker may not be let into the other."""
    return connected(argparse.Namespace(**{**vars(options), "virtual_host": None}))


def rows_of(connection: Connection, service: str, **arguments: Any) -> Iterator[dict[str, Any]]:
    """All rows of a list, page by page."""
    asked = {name.replace("_", "-"): value for name, value in arguments.items() if value is not None}
    after = None
    while True:
        page = {"limit": PAGE_ROWS, **asked, **({} if after is None else {"after": after})}
        results = connection.request(service, page).results
        rows: Any = results["rows"]
        yield from rows
        after = results.get("next")
        if after is None:
            return


def own_number(connection: Connection) -> int:
    """The number of the connection that asks."""
    found: Any = connection.request("channel.info").results["connection"]
    return int(found)
