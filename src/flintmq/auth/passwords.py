"""Password hashes: scrypt for our own, and the salted SHA-256 that RabbitMQ's definitions carry.

    $scrypt$ln=14,r=8,p=1$<salt>$<key>      base64 without padding; the cost travels with the hash
    <base64 of: salt, 4 octets | SHA-256 of salt + password, 32 octets>

scrypt at ln=14, r=8 needs 128 * 8 * 2**14 octets = 16 MiB and some 40 ms: too slow to guess with, and
too slow for an event loop, so `PasswordHash.matches` is meant for another thread (hashlib lets the
interpreter lock go meanwhile).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Protocol

SALT_OCTETS = 16
KEY_OCTETS = 32
RABBIT_SALT_OCTETS = 4
SHA256_OCTETS = 32

# What a hash from outside may ask for: 128 * r * 2**ln octets, so at most 128 MiB, p times over.
SCRYPT_LN_MAX = 17
SCRYPT_MEMORY_BYTES_MAX = 128 * 2**20
SCRYPT_P_MAX = 8

_SCRYPT = re.compile(
    r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2})\$([A-Za-z0-9+/]{11,86})\$([A-Za-z0-9+/]{22,86})"
)


class PasswordHash(Protocol):
    """What is kept of a password."""

    def matches(self, password: bytes) -> bool:
        """Whether `password` is the one, in time that does not depend on how near it is."""

    def text(self) -> str:
        """The hash as it is written down."""


@dataclass(frozen=True, slots=True, repr=False)
class ScryptHash:
    salt: bytes
    key: bytes
    ln: int = 14
    r: int = 8
    p: int = 1

    def matches(self, password: bytes) -> bool:
        key = _scrypt(password, self.salt, len(self.key), self.ln, self.r, self.p)
        return hmac.compare_digest(key, self.key)

    def text(self) -> str:
        return f"$scrypt$ln={self.ln},r={self.r},p={self.p}${_unpadded(self.salt)}${_unpadded(self.key)}"


@dataclass(frozen=True, slots=True, repr=False)
class RabbitSha256Hash:
    salt: bytes
    digest: bytes

    def matches(self, password: bytes) -> bool:
        # The cost of scrypt first: else a quick refusal would tell which users have which kind of hash.
        NOBODY.matches(password)
        return hmac.compare_digest(hashlib.sha256(self.salt + password).digest(), self.digest)

    def text(self) -> str:
        return base64.b64encode(self.salt + self.digest).decode()


def hash_password(password: bytes) -> ScryptHash:
    """A new hash of `password`, under a salt of its own. Slow on purpose."""
    salt = secrets.token_bytes(SALT_OCTETS)
    return ScryptHash(salt, _scrypt(password, salt, KEY_OCTETS, 14, 8, 1))


def hash_password_quickly(password: bytes) -> RabbitSha256Hash:
    """For a password that lies in the configuration in plain anyway: start-up must not wait for scrypt."""
    salt = secrets.token_bytes(RABBIT_SALT_OCTETS)
    return RabbitSha256Hash(salt, hashlib.sha256(salt + password).digest())


def parse_hash(text: str) -> PasswordHash:
    """The hash that `text` writes down, or ValueError; no fault repeats the text."""
    if text.startswith("$"):
        return _parse_scrypt(text)
    try:
        octets = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        octets = b""
    if len(octets) != RABBIT_SALT_OCTETS + SHA256_OCTETS:
        raise ValueError("not a hash of `flintmq hash-password`, nor RabbitMQ's salted SHA-256")
    return RabbitSha256Hash(octets[:RABBIT_SALT_OCTETS], octets[RABBIT_SALT_OCTETS:])


def _parse_scrypt(text: str) -> ScryptHash:
    match = _SCRYPT.fullmatch(text)
    if match is None:
        raise ValueError("not of the form $scrypt$ln=14,r=8,p=1$salt$key")
    ln, r, p = int(match[1]), int(match[2]), int(match[3])
    affordable = 1 <= ln <= SCRYPT_LN_MAX and r >= 1 and 1 <= p <= SCRYPT_P_MAX
    if not affordable or 128 * r * 2**ln > SCRYPT_MEMORY_BYTES_MAX:
        raise ValueError(f"ln={ln},r={r},p={p} is beyond what is allowed (ln=17, r=8, p={SCRYPT_P_MAX})")
    try:
        return ScryptHash(_padded(match[4]), _padded(match[5]), ln, r, p)
    except binascii.Error:
        raise ValueError("salt or key is not base64") from None


def _scrypt(password: bytes, salt: bytes, key_octets: int, ln: int, r: int, p: int) -> bytes:
    # OpenSSL counts a little more than 128 * r * (n + p + 2) octets: twice that is always enough.
    memory_bytes_max = 2 * 128 * r * (2**ln + p + 2)
    return hashlib.scrypt(password, salt=salt, n=2**ln, r=r, p=p, maxmem=memory_bytes_max, dklen=key_octets)


def _unpadded(octets: bytes) -> str:
    return base64.b64encode(octets).decode().rstrip("=")


def _padded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


# The hash of no password at all, for users that do not exist: refusing them takes as long as the others.
NOBODY = ScryptHash(secrets.token_bytes(SALT_OCTETS), secrets.token_bytes(KEY_OCTETS))
