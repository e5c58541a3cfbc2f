"""What is kept of passwords, and how those that are set from now on are to be kept.

    $scrypt$ln=14,r=8,p=1$<salt>$<key>               base64 without padding; the cost travels with the hash
    $argon2id$v=19$m=19456,t=2,p=1$<salt>$<key>      as argon2-cffi writes it
    <base64 of: salt, 4 octets | digest>             RabbitMQ's: SHA-256, SHA-512 or MD5 of salt + password
    <any of these>;$scram-sha-256$<iterations>$...   with the keys of SCRAM: see scram.py

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
from importlib import import_module
from typing import Any, Protocol

from flintmq.config import PasswordHashing
from flintmq.errors import ConfigFault
from flintmq.field_tuple import FieldTuple
from flintmq.scram import LateKeys, ScramKeys, derived_keys, parse_keys

SALT_OCTETS = 16
KEY_OCTETS = 32
RABBIT_SALT_OCTETS = 4
# RabbitMQ's hashes do not say what they are; their lengths do.
RABBIT_DIGESTS = {16: "md5", 32: "sha256", 64: "sha512"}

# What a hash from outside may ask for: 128 * r * 2**ln octets, so at most 128 MiB, p times over.
SCRYPT_LN_MAX = 17
SCRYPT_MEMORY_BYTES_MAX = 128 * 2**20
SCRYPT_P_MAX = 8
ARGON2_MEMORY_KIB_MAX = 131_072
ARGON2_PASSES_MAX = 16
ARGON2_LANES_MAX = 8

# What the libraries say where the system gives no memory, in errors of any kind.
OPENSSL_NO_MEMORY = "malloc failure"
ARGON2_NO_MEMORY = "Memory allocation error"

# Patterns that few brokers need: Python compiles each for its first use, and keeps it.
_SCRYPT = r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2})\$([A-Za-z0-9+/]{11,86})\$([A-Za-z0-9+/]{22,86})"
_ARGON2 = r"\$argon2id\$v=19\$m=(\d{1,7}),t=(\d{1,3}),p=(\d{1,2})\$[A-Za-z0-9+/]{11,86}\$[A-Za-z0-9+/]{16,86}"


class PasswordHash(Protocol):
    """What is kept of a password."""

    def matches(self, password: bytes) -> bool:
        """Whether `password` is the one, in time that does not depend on how near it is."""

    def text(self) -> str:
        """The hash as it is written down."""


class ScryptHash(FieldTuple):
    salt: bytes
    key: bytes
    ln: int = 14
    r: int = 8
    p: int = 1

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"<{type(self).__name__}>"

    def matches(self, password: bytes) -> bool:
        key = _scrypt(password, self.salt, len(self.key), self.ln, self.r, self.p)
        return hmac.compare_digest(key, self.key)

    def text(self) -> str:
        return f"$scrypt$ln={self.ln},r={self.r},p={self.p}${_unpadded(self.salt)}${_unpadded(self.key)}"


class Argon2Hash(FieldTuple):
    """argon2id, by argon2-cffi."""

    encoded: str
    memory_kib: int
    passes: int
    lanes: int

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"<{type(self).__name__}>"

    def matches(self, password: bytes) -> bool:
        argon2 = _argon2()
        try:
            return bool(argon2.verify_secret(self.encoded.encode(), password, argon2.Type.ID))
        except argon2.Argon2Error as error:
            if ARGON2_NO_MEMORY in str(error):
                raise MemoryError(str(error)) from None
            return False

    def text(self) -> str:
        return self.encoded


class RabbitHash(FieldTuple):
    """Quick to guess: whoever checks a password against it spends the time of a slow hash besides."""

    algorithm: str
    salt: bytes
    digest: bytes

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"<{type(self).__name__}>"

    def matches(self, password: bytes) -> bool:
        return hmac.compare_digest(_salted(self.algorithm, self.salt, password), self.digest)

    def text(self) -> str:
        return base64.b64encode(self.salt + self.digest).decode()


class KeyedHash(FieldTuple):
    """A hash together with the keys of SCRAM for the same password."""

    hash: PasswordHash
    scram: ScramKeys | LateKeys

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"<{type(self).__name__}>"

    def matches(self, password: bytes) -> bool:
        return self.hash.matches(password)

    def text(self) -> str:
        return f"{self.hash.text()};{self.scram.keys().text()}"


class QuickHash(RabbitHash):
    """Of a password that the settings have in plain: there is nothing to make better."""

    __slots__ = ()


def plain_hash(kept: PasswordHash) -> PasswordHash:
    """The hash without keys of SCRAM."""
    return kept.hash if isinstance(kept, KeyedHash) else kept


class PasswordPolicy:
    """How a password is kept that is set now, and which of the older ones are kept anew."""

    def __init__(self, settings: PasswordHashing | None = None, has_scram: bool = False) -> None:
        self.settings = settings or PasswordHashing()
        self.has_scram = has_scram
        # The hash of no password, at the cost of others: whoever does not exist is refused as slowly.
        self.nobody = self._nobody()

    def _nobody(self) -> PasswordHash:
        settings = self.settings
        if settings.algorithm == "argon2id":
            return self._slow_hash(secrets.token_bytes(KEY_OCTETS))
        cost = (settings.scrypt_ln, settings.scrypt_r, settings.scrypt_p)
        return ScryptHash(secrets.token_bytes(SALT_OCTETS), secrets.token_bytes(KEY_OCTETS), *cost)

    def hash(self, password: bytes) -> PasswordHash:
        """A new hash of `password`, under a salt of its own. Slow on purpose."""
        made = self._slow_hash(password)
        return KeyedHash(made, self._keys(password)) if self.has_scram else made

    def _slow_hash(self, password: bytes) -> PasswordHash:
        settings = self.settings
        salt = secrets.token_bytes(SALT_OCTETS)
        if settings.algorithm == "argon2id":
            cost = (settings.argon2_memory_kib, settings.argon2_passes, settings.argon2_lanes)
            return _argon2_hash(password, salt, *cost)
        ln, r, p = settings.scrypt_ln, settings.scrypt_r, settings.scrypt_p
        return ScryptHash(salt, _scrypt(password, salt, KEY_OCTETS, ln, r, p), ln, r, p)

    def hash_quickly(self, password: bytes) -> PasswordHash:
        """For a password that the settings have in plain: start-up must not wait for scrypt."""
        made = hash_password_quickly(password)
        iterations = self.settings.scram_iterations
        return KeyedHash(made, LateKeys(password, iterations)) if self.has_scram else made

    def _keys(self, password: bytes) -> ScramKeys:
        salt = secrets.token_bytes(SALT_OCTETS)
        return derived_keys(password, salt, self.settings.scram_iterations)

    def renewed(self, kept: PasswordHash, password: bytes) -> PasswordHash | None:
        """What to keep of the right password instead of `kept`; None if that is good. Slow on purpose."""
        if self.settings.rehash == "never":
            return None
        found = plain_hash(kept)
        made = found if self._is_current(found) else self._slow_hash(password)
        scram = kept.scram if isinstance(kept, KeyedHash) else None
        if self.has_scram and (scram is None or scram.iterations != self.settings.scram_iterations):
            scram = self._keys(password)
        renewed = made if scram is None else KeyedHash(made, scram)
        return None if renewed == kept else renewed

    def _is_current(self, kept: PasswordHash) -> bool:
        settings = self.settings
        if isinstance(kept, QuickHash):
            return True
        if isinstance(kept, RabbitHash):
            return settings.rehash != "all"  # else it could not go back to RabbitMQ
        if isinstance(kept, ScryptHash):
            cost = (settings.scrypt_ln, settings.scrypt_r, settings.scrypt_p)
            return settings.algorithm == "scrypt" and (kept.ln, kept.r, kept.p) == cost
        if isinstance(kept, Argon2Hash):
            cost = (settings.argon2_memory_kib, settings.argon2_passes, settings.argon2_lanes)
            return settings.algorithm == "argon2id" and (kept.memory_kib, kept.passes, kept.lanes) == cost
        return True


def hash_password_quickly(password: bytes) -> QuickHash:
    salt = secrets.token_bytes(RABBIT_SALT_OCTETS)
    return QuickHash("sha256", salt, _salted("sha256", salt, password))


def parse_hash(text: str) -> PasswordHash:
    """The hash that `text` writes down, or ValueError; no fault repeats the text."""
    written, is_keyed, keys = text.partition(";")
    kept = _parse_one(written)
    return KeyedHash(kept, parse_keys(keys)) if is_keyed else kept


def _parse_one(text: str) -> PasswordHash:
    if text.startswith("$argon2id$"):
        return _parse_argon2(text)
    if text.startswith("$"):
        return _parse_scrypt(text)
    try:
        octets = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        octets = b""
    algorithm = RABBIT_DIGESTS.get(len(octets) - RABBIT_SALT_OCTETS)
    if algorithm is None:
        raise ValueError(
            "not a hash of `flintmq hash-password`, nor RabbitMQ's salted SHA-256, SHA-512 or MD5"
        )
    return RabbitHash(algorithm, octets[:RABBIT_SALT_OCTETS], octets[RABBIT_SALT_OCTETS:])


def _parse_scrypt(text: str) -> ScryptHash:
    match = re.fullmatch(_SCRYPT, text)
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


def _parse_argon2(text: str) -> Argon2Hash:
    match = re.fullmatch(_ARGON2, text)
    if match is None:
        raise ValueError("not of the form $argon2id$v=19$m=19456,t=2,p=1$salt$key")
    memory_kib, passes, lanes = int(match[1]), int(match[2]), int(match[3])
    fits = 1 <= passes <= ARGON2_PASSES_MAX and 1 <= lanes <= ARGON2_LANES_MAX
    if not fits or not 8 * lanes <= memory_kib <= ARGON2_MEMORY_KIB_MAX:
        most = f"m={ARGON2_MEMORY_KIB_MAX}, t={ARGON2_PASSES_MAX}, p={ARGON2_LANES_MAX}"
        raise ValueError(f"m={memory_kib},t={passes},p={lanes} is beyond what is allowed ({most})")
    try:
        _argon2()
    except ConfigFault as fault:
        raise ValueError(str(fault)) from None
    return Argon2Hash(text, memory_kib, passes, lanes)


def _argon2_hash(password: bytes, salt: bytes, memory_kib: int, passes: int, lanes: int) -> Argon2Hash:
    argon2 = _argon2()
    octets = argon2.hash_secret(password, salt, passes, memory_kib, lanes, KEY_OCTETS, argon2.Type.ID)
    return Argon2Hash(octets.decode(), memory_kib, passes, lanes)


def _argon2() -> Any:
    """argon2-cffi's functions, loaded where they are needed alone."""
    try:
        errors = import_module("argon2.exceptions")
        found = import_module("argon2.low_level")
    except ImportError:
        raise ConfigFault("argon2id needs argon2-cffi: pip install 'flintmq[argon2]'") from None
    found.Argon2Error = errors.Argon2Error  # type: ignore[attr-defined]
    return found


def _scrypt(password: bytes, salt: bytes, key_octets: int, ln: int, r: int, p: int) -> bytes:
    # OpenSSL counts a little more than 128 * r * (n + p + 2) octets: twice that is always enough.
    memory_bytes_max = 2 * 128 * r * (2**ln + p + 2)
    try:
        return hashlib.scrypt(
            password, salt=salt, n=2**ln, r=r, p=p, maxmem=memory_bytes_max, dklen=key_octets
        )
    except ValueError as error:
        if OPENSSL_NO_MEMORY in str(error):
            raise MemoryError(str(error)) from None
        raise


def _salted(algorithm: str, salt: bytes, password: bytes) -> bytes:
    return hashlib.new(algorithm, salt + password, usedforsecurity=False).digest()


def _unpadded(octets: bytes) -> str:
    return base64.b64encode(octets).decode().rstrip("=")


def _padded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
