"""`flintmq hash-password`: the hash that belongs in the configuration as `password_hash`."""

from __future__ import annotations

from getpass import getpass
from typing import TextIO

from flintmq.auth.passwords import hash_password
from flintmq.config import PASSWORD_OCTETS_MAX
from flintmq.errors import ConfigFault


def hash_from(stream: TextIO) -> str:
    """Ask twice at a terminal, else take the first line of `stream`."""
    if stream.isatty():
        password = getpass("Password: ")
        if getpass("Again: ") != password:
            raise ConfigFault("the two passwords differ; try again")
    else:
        # One more than allowed, plus the end of the line, so that too long is seen as such.
        password = stream.readline(PASSWORD_OCTETS_MAX + 2).rstrip("\r\n")
    octets = password.encode("utf-8", "surrogateescape")
    if not 0 < len(octets) <= PASSWORD_OCTETS_MAX:
        raise ConfigFault(f"a password has 1 to {PASSWORD_OCTETS_MAX} octets, this one {len(octets)}")
    return hash_password(octets).text()
