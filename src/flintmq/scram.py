"""SCRAM-SHA-256 (RFC 5802 and 7677), both ends, sans-IO: messages in, messages out.

    client                                            server
    n,,n=user,r=nonce                          -->
                                               <--    r=nonce+ours,s=salt,i=iterations
    c=biws,r=nonce+ours,p=proof                -->
                                               <--    v=signature

The server keeps two keys for each password, by which it recognizes a proof and signs its answer, and neither
of which logs anybody in. Both ends prove that they know the password; nobody in between learns it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets

from flintmq.field_tuple import FieldTuple

SHA256_OCTETS = 32
NONCE_OCTETS = 18
NONCE_CHARS_MAX = 256
# What a server may ask a client to compute: some seconds.
ITERATIONS_MIN = 4096
ITERATIONS_MAX = 10_000_000

_KEYS = r"\$scram-sha-256\$(\d{4,8})\$([A-Za-z0-9+/=]{12,88})\$([A-Za-z0-9+/=]{44})\$([A-Za-z0-9+/=]{44})"
# No channel binding, or one that we do not offer although the client could; acting for somebody else is `a=`.
_CLIENT_FIRST = r"([ny]),(?:a=([^,]*))?,(n=([^,]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,.*)?)"
_CLIENT_FINAL = r"(c=([A-Za-z0-9+/=]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,[^p].*)?),p=([A-Za-z0-9+/=]+)"
_SERVER_FIRST = r"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=(\d{1,9})(?:,.*)?"
_SERVER_FINAL = r"v=([A-Za-z0-9+/=]+)(?:,.*)?"


class ScramFault(ValueError):
    """What the other end has said is no SCRAM, or proves nothing."""


class ScramKeys(FieldTuple):
    """What a server keeps of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"<{type(self).__name__}>"

    def text(self) -> str:
        shown = "$".join(_encoded(each) for each in (self.salt, self.stored_key, self.server_key))
        return f"$scram-sha-256${self.iterations}${shown}"

    def keys(self) -> ScramKeys:
        return self


class LateKeys:
    """The keys of a password that is there in plain: derived when somebody logs in by them."""

    __slots__ = ("_made", "_password", "iterations", "salt")

    def __init__(self, password: bytes, iterations: int) -> None:
        self.salt = secrets.token_bytes(16)
        self.iterations = iterations
        self._password = password
        self._made: ScramKeys | None = None

    def keys(self) -> ScramKeys:
        """Slow the first time."""
        if self._made is None:
            self._made = derived_keys(self._password, self.salt, self.iterations)
        return self._made


def derived_keys(password: bytes, salt: bytes, iterations: int) -> ScramKeys:
    """The keys of a password; takes as long as the iterations do."""
    salted = _salted(password, salt, iterations)
    client_key = _hmac(salted, b"Client Key")
    return ScramKeys(salt, iterations, hashlib.sha256(client_key).digest(), _hmac(salted, b"Server Key"))


def parse_keys(text: str) -> ScramKeys:
    """The keys that `text` writes down, or ValueError; no fault repeats the text."""
    match = re.fullmatch(_KEYS, text)
    if match is None or not ITERATIONS_MIN <= int(match[1]) <= ITERATIONS_MAX:
        raise ValueError("not of the form $scram-sha-256$iterations$salt$stored key$server key")
    try:
        salt, stored, server = (base64.b64decode(each, validate=True) for each in match.group(2, 3, 4))
    except binascii.Error:
        raise ValueError("a key of SCRAM is not base64") from None
    return ScramKeys(salt, int(match[1]), stored, server)


class ServerExchange:
    """One login, as the server sees it."""

    __slots__ = ("_auth_message", "_first_bare", "_gs2", "_nonce", "_proof", "name")

    def __init__(self, first: bytes) -> None:
        text = _text(first)
        match = re.fullmatch(_CLIENT_FIRST, text)
        if match is None:
            if text.startswith("p="):
                raise ScramFault("channel binding is not offered")
            raise ScramFault("the first message is not of the form n,,n=user,r=nonce")
        self._gs2 = text[: match.start(3)]
        self._first_bare = match[3]
        self.name = _name(match[4])
        if match[2] is not None and _name(match[2]) != self.name:
            raise ScramFault("the first message asks to act for another user")
        if len(match[5]) > NONCE_CHARS_MAX:
            raise ScramFault(f"a nonce of {len(match[5])} characters, {NONCE_CHARS_MAX} allowed")
        self._nonce = match[5] + _nonce()
        self._auth_message = b""
        self._proof = b""

    def challenge(self, salt: bytes, iterations: int) -> bytes:
        first = f"r={self._nonce},s={_encoded(salt)},i={iterations}"
        self._auth_message = f"{self._first_bare},{first},".encode()
        return first.encode()

    def take(self, final: bytes) -> None:
        """The answer to the challenge."""
        match = re.fullmatch(_CLIENT_FINAL, _text(final))
        if match is None:
            raise ScramFault("the final message is not of the form c=biws,r=nonce,p=proof")
        if _decoded(match[2]) != self._gs2.encode():
            raise ScramFault("the final message has another channel binding than the first")
        if not hmac.compare_digest(match[3].encode(), self._nonce.encode()):
            raise ScramFault("the final message has another nonce")
        self._proof = _decoded(match[4])
        if len(self._proof) != SHA256_OCTETS:
            raise ScramFault("the proof has not 32 octets")
        self._auth_message += match[1].encode()

    def is_proven(self, keys: ScramKeys) -> bool:
        """Whether the peer knows the password that these are the keys of."""
        signature = _hmac(keys.stored_key, self._auth_message)
        client_key = _xor(self._proof, signature)
        return hmac.compare_digest(hashlib.sha256(client_key).digest(), keys.stored_key)

    def signature(self, keys: ScramKeys) -> bytes:
        """The last message, which proves that the server knows the keys."""
        return b"v=" + _encoded(_hmac(keys.server_key, self._auth_message)).encode()


class ClientExchange:
    """One login, as the client sees it."""

    __slots__ = ("_expected", "_first_bare", "_nonce", "_password")

    def __init__(self, user: str, password: str) -> None:
        self._password = password.encode()
        self._nonce = _nonce()
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={self._nonce}"
        self._expected = b""

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def answer(self, challenge: bytes) -> bytes:
        """The answer to a challenge: the first asks for the proof, the second is the server's own."""
        if self._expected:
            match = re.fullmatch(_SERVER_FINAL, _text(challenge))
            if match is None or not hmac.compare_digest(_decoded(match[1]), self._expected):
                raise ScramFault("the server does not prove that it knows the password")
            self._password = b""
            return b""
        match = re.fullmatch(_SERVER_FIRST, _text(challenge))
        if match is None or not match[1].startswith(self._nonce) or match[1] == self._nonce:
            raise ScramFault("the challenge is not of the form r=nonce,s=salt,i=iterations")
        iterations = int(match[3])
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ScramFault(f"{iterations} iterations are not in {ITERATIONS_MIN}..{ITERATIONS_MAX}")
        salted = _salted(self._password, _decoded(match[2]), iterations)
        final = f"c=biws,r={match[1]}"
        auth_message = f"{self._first_bare},{challenge.decode()},{final}".encode()
        client_key = _hmac(salted, b"Client Key")
        signature = _hmac(hashlib.sha256(client_key).digest(), auth_message)
        self._expected = _hmac(_hmac(salted, b"Server Key"), auth_message)
        return f"{final},p={_encoded(_xor(client_key, signature))}".encode()

    @property
    def is_proven(self) -> bool:
        """Whether the server has shown that it knows the password."""
        return not self._password


def prepared(password: bytes) -> bytes:
    """The password by SASLprep (RFC 4013); one that has no such form is taken octet by octet."""
    if password.isascii():
        return password
    try:
        text = password.decode()
    except UnicodeDecodeError:
        return password
    import stringprep  # by the few who have such a password
    import unicodedata

    # Characters that a password may not have, by RFC 4013.
    prohibited = (
        stringprep.in_table_c12,
        stringprep.in_table_c21_c22,
        stringprep.in_table_c3,
        stringprep.in_table_c4,
        stringprep.in_table_c5,
        stringprep.in_table_c6,
        stringprep.in_table_c7,
        stringprep.in_table_c8,
        stringprep.in_table_c9,
    )
    mapped = "".join(
        " " if stringprep.in_table_c12(letter) else letter
        for letter in text
        if not stringprep.in_table_b1(letter)
    )
    normal = unicodedata.normalize("NFKC", mapped)
    if any(prohibits(letter) for prohibits in prohibited for letter in normal):
        return password
    return normal.encode()


def _salted(password: bytes, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", prepared(password), salt, iterations)


def _hmac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _nonce() -> str:
    return _encoded(secrets.token_bytes(NONCE_OCTETS))


def _encoded(octets: bytes) -> str:
    return base64.b64encode(octets).decode()


def _decoded(text: str) -> bytes:
    try:
        octets = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramFault("a value is not base64") from None
    if (
        _encoded(octets) != text
    ):  # the last letter may have bits that mean nothing: then there were two proofs
        raise ScramFault("a value is not base64 as it should be")
    return octets


def _text(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        raise ScramFault("a message is not UTF-8") from None


def _name(text: str) -> str:
    """A user's name, in which a comma is =2C and an equals sign =3D."""
    if re.search(r"=(?!2C|3D)", text) or "\0" in text:
        raise ScramFault("the user's name is not escaped by =2C and =3D")
    return text.replace("=2C", ",").replace("=3D", "=")
