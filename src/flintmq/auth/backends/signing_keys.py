"""The public keys of an identity provider: a JWKS from a file or from the web.

A token names its key by `kid`. A key that is not known is looked for again, at most once in `refresh_s`: a
token with an invented name costs the provider nothing more than that.
"""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from flintmq.auth.backend import BackendFault
from flintmq.auth.backends.web import web
from flintmq.errors import ConfigFault

if TYPE_CHECKING:
    from flintmq.clock import Clock
    from flintmq.config import OauthAuth

log = logging.getLogger("flintmq.auth")

JWKS_OCTETS_MAX = 1_048_576
KEYS_MAX = 200
# What a key of a JWKS may be: never a secret that both sides share.
KINDS = {"RSA": ("RS", "PS"), "EC": ("ES",), "OKP": ("Ed",)}


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key, and what it is for."""

    key: Any
    kind: str
    algorithm: str | None  # the only one that the provider uses it for, if it says so

    def fits(self, algorithm: str) -> bool:
        return algorithm.startswith(KINDS[self.kind]) and self.algorithm in (None, algorithm)


def jwt_library() -> Any:
    """PyJWT, loaded where tokens are used alone."""
    try:
        import_module("cryptography")
        return import_module("jwt")
    except ImportError:
        raise ConfigFault(
            "auth.oauth: tokens need PyJWT with cryptography: pip install 'flintmq[oauth]'"
        ) from None


class SigningKeys:
    """Public keys by name. Threads share it."""

    def __init__(self, settings: OauthAuth, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._jwt = jwt_library()
        self._web = web(clock, settings.timeout_s, settings.authority, "auth.oauth")
        self._lock = threading.Lock()
        self._keys: dict[str, SigningKey] = {}
        self._looked_s: float | None = None
        self.is_away = False  # whether the last look at the provider's keys has failed
        if settings.jwks_file is not None:
            try:
                self._keys = self._read()
            except BackendFault as fault:
                raise ConfigFault(f'auth.oauth.jwks_file = "{settings.jwks_file}": {fault}') from None
            self._looked_s = clock.monotonic_s()

    def find(self, kid: str | None) -> SigningKey | None:
        """The key of that name, or the only one there is; None if there is no such key."""
        found = self._known(kid)
        if found is None:
            with self._lock:  # one looks, and the others wait for that
                found = self._known(kid)
                if found is None and self._may_look():
                    self._looked_s = self._clock.monotonic_s()
                    self.is_away = True
                    self._keys = self._read()
                    self.is_away = False
                    log.info("%d signing keys were read", len(self._keys))
                    found = self._known(kid)
        return found

    def _known(self, kid: str | None) -> SigningKey | None:
        keys = self._keys
        if kid is None:
            return next(iter(keys.values())) if len(keys) == 1 else None
        return keys.get(kid)

    def _may_look(self) -> bool:
        return (
            self._looked_s is None or self._clock.monotonic_s() - self._looked_s >= self._settings.refresh_s
        )

    def _read(self) -> dict[str, SigningKey]:
        try:
            document = json.loads(self._octets())
        except (ValueError, RecursionError):
            raise BackendFault("the JWKS is no JSON") from None
        listed = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(listed, list):
            raise BackendFault('the JWKS has no list "keys"')
        keys: dict[str, SigningKey] = {}
        for at, each in enumerate(listed[:KEYS_MAX]):
            if not isinstance(each, dict) or each.get("kty") not in KINDS or each.get("use", "sig") != "sig":
                continue
            try:
                made = SigningKey(self._jwt.PyJWK(each).key, each["kty"], each.get("alg"))
            except Exception as error:  # PyJWT and cryptography raise many kinds
                log.warning("a signing key is left out: %s: %s", type(error).__name__, error)
                continue
            kid = each.get("kid")
            keys[kid if isinstance(kid, str) else f"#{at}"] = made
        if not keys:
            raise BackendFault("the JWKS has no public key for signatures")
        return keys

    def _octets(self) -> bytes:
        settings = self._settings
        if settings.jwks_file is not None:
            try:
                with settings.jwks_file.open("rb") as file:
                    octets = file.read(JWKS_OCTETS_MAX + 1)
            except OSError as error:
                raise BackendFault(f"cannot be read: {error.strerror or error}") from None
            if len(octets) > JWKS_OCTETS_MAX:
                raise BackendFault(f"the JWKS has more than {JWKS_OCTETS_MAX} octets")
            return octets
        status, octets = self._web.ask("GET", settings.jwks_url or "", None, JWKS_OCTETS_MAX)
        if status != 200:
            raise BackendFault(f"{settings.jwks_url} answers with status {status}")
        return octets
