"""Bearer tokens of OAuth 2: a JWT in the place of the password, signed by an identity provider.

    token -> signature by a key of the provider -> issuer, audience, times -> scopes -> permissions, tags

The name in the login says nothing: the token has the user's. A token ends; connection.update-secret brings
the next one, else the connection is closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flintmq.auth.backend import BackendFault, Identity, Login, LoginBackend, WrongLogin
from flintmq.auth.backends.scopes import ScopeHosts, Scopes, ScopeTopics
from flintmq.auth.backends.signing_keys import SigningKeys, jwt_library

if TYPE_CHECKING:
    from flintmq.clock import Clock
    from flintmq.config import OauthAuth

TOKEN_OCTETS_MAX = 65_536
# Seconds since 1970 that no token has: the year 9999.
TIME_MAX = 253_402_300_799


class OauthBackend(LoginBackend):
    """Knows whom a token names and what it allows."""

    can_renew = True

    def __init__(self, settings: OauthAuth, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._jwt = jwt_library()
        self._keys = SigningKeys(settings, clock)
        self.timeout_s = settings.timeout_s + 1  # the keys may have to be fetched
        self.cache_s = 1.0
        prefix = settings.scope_prefix
        self._prefix = f"{settings.resource_server_id}." if prefix is None else prefix
        self._audience = set(settings.audience) or {settings.resource_server_id}

    def authenticate(self, login: Login) -> Identity | None:
        token = login.password
        if token is None or token.count(b".") != 2:
            return None  # a password, for another back end
        if len(token) > TOKEN_OCTETS_MAX:
            raise WrongLogin(f"a token of {len(token)} octets, {TOKEN_OCTETS_MAX} allowed")
        claims = self._verified(token)
        expires_s = self._check(claims)
        scopes = Scopes(self._scopes_in(claims), self._prefix)
        return Identity(
            self._user_in(claims),
            frozenset(scopes.tags),
            ScopeHosts(scopes),
            ScopeTopics(scopes),
            int((expires_s + self._settings.leeway_s) * 1000),
        )

    def _verified(self, token: bytes) -> dict[str, Any]:
        """The claims of a token whose signature is right; WrongLogin says what is wrong with it."""
        jwt = self._jwt
        try:
            header = jwt.get_unverified_header(token)
            algorithm, kid = header.get("alg"), header.get("kid")
            if algorithm not in self._settings.algorithms:
                raise WrongLogin(f"the token is signed by {str(algorithm)[:32]!r}, which is not allowed")
            key = self._keys.find(kid if isinstance(kid, str) else None)
            if key is None:
                # A provider that is away may have a key that is not known here.
                kind = BackendFault if self._keys.is_away else WrongLogin
                raise kind(f"no key {str(kid)[:64]!r} is known")
            if not key.fits(algorithm):
                raise WrongLogin(f"the key {str(kid)[:64]!r} is not for signatures by {algorithm}")
            claims = jwt.decode(token, key.key, algorithms=[algorithm], options=UNCHECKED)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise WrongLogin(f"the token is not valid: {error}") from None
        if not isinstance(claims, dict):
            raise WrongLogin("the token has no claims")
        return claims

    def _check(self, claims: dict[str, Any]) -> float:
        """Raises unless the token is for this broker and good now; when it ends, in seconds since 1970."""
        settings, now_s = self._settings, self._clock.wall_ms() / 1000
        if settings.issuer is not None and claims.get("iss") != settings.issuer:
            raise WrongLogin(f"the token is by the issuer {str(claims.get('iss'))[:80]!r}")
        audience = claims.get("aud")
        named = audience if isinstance(audience, list) else [audience]
        if not any(isinstance(each, str) and each in self._audience for each in named):
            raise WrongLogin(f"the token is for the audience {str(audience)[:80]!r}")
        expires_s, begins_s = seconds(claims, "exp"), seconds(claims, "nbf")
        if expires_s is None:
            raise WrongLogin("the token has no time of expiry")
        if now_s >= expires_s + settings.leeway_s:
            raise WrongLogin(f"the token has expired {now_s - expires_s:.0f} s ago")
        if begins_s is not None and now_s < begins_s - settings.leeway_s:
            raise WrongLogin(f"the token is good in {begins_s - now_s:.0f} s only")
        return expires_s

    def _user_in(self, claims: dict[str, Any]) -> str:
        for claim in self._settings.username_claims:
            name = claims.get(claim)
            if isinstance(name, str) and name and name.isprintable():
                return name
        raise WrongLogin(f"the token has none of the claims {', '.join(self._settings.username_claims)}")

    def _scopes_in(self, claims: dict[str, Any]) -> list[str]:
        """Those of `scope`, of the claim that the settings add, and of Keycloak's `authorization`."""
        found = texts(claims.get("scope"))
        if self._settings.additional_scopes_key is not None:
            found += nested(
                claims.get(self._settings.additional_scopes_key), self._settings.resource_server_id
            )
        authorization = claims.get("authorization")
        permissions = authorization.get("permissions") if isinstance(authorization, dict) else None
        for each in permissions if isinstance(permissions, list) else ():
            if isinstance(each, dict):
                found += texts(each.get("scopes"))
        return found


# The claims are looked at here, by the broker's clock.
UNCHECKED = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}


def seconds(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= TIME_MAX:
        raise WrongLogin(f"the claim {name} of the token is no time")
    return float(value)


def texts(value: object) -> list[str]:
    """Scopes: a text with spaces between them, or a list."""
    if isinstance(value, str):
        return value.split()
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def nested(value: object, resource_server_id: str) -> list[str]:
    """The same, or a table by resource server."""
    if isinstance(value, dict):
        inside = value.get(resource_server_id)
        return nested(inside.get("roles"), "") if isinstance(inside, dict) else texts(inside)
    return texts(value)
