"""`flintmq hash-password`: the hash that belongs in the configuration as `password_hash`."""

from __future__ import annotations

from getpass import getpass
from typing import Literal, TextIO

from flintmq.auth.passwords import PasswordPolicy
from flintmq.config import PASSWORD_OCTETS_MAX, PasswordHashing
from flintmq.errors import ConfigFault

Algorithm = Literal["scrypt", "argon2id"]


def hash_from(stream: TextIO, algorithm: Algorithm = "scrypt", *, has_scram: bool = False) -> str:
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
    return PasswordPolicy(PasswordHashing(algorithm=algorithm), has_scram).hash(octets).text()
