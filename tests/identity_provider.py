"""An identity provider like Keycloak: keys, a JWKS, and tokens signed by them."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

RESOURCE = "flintmq"
ISSUER = "https://keycloak.example/realms/test"


class Provider:
    """Signs tokens by keys of its own; `keys` are RSA, EC and Ed25519 by the name of an algorithm."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {
            "RS256": rsa.generate_private_key(65537, 2048),
            "ES256": ec.generate_private_key(ec.SECP256R1()),
            "EdDSA": ed25519.Ed25519PrivateKey.generate(),
        }

    def jwks(self) -> dict[str, Any]:
        listed = []
        for name, key in self.keys.items():
            algorithm = jwt.get_algorithm_by_name(name)
            public = algorithm.to_jwk(key.public_key())  # type: ignore[attr-defined]
            listed.append({**json.loads(public), "kid": name, "use": "sig", "alg": name})
        return {"keys": listed}

    def claims(self, *scopes: str, seconds: float = 300, **others: Any) -> dict[str, Any]:
        now_s = time.time()
        claims = {
            "iss": ISSUER,
            "aud": ["account", RESOURCE],
            "sub": "service-account-orders",
            "iat": now_s,
            "exp": now_s + seconds,
            "scope": " ".join(("openid", "profile", *scopes)),
            **others,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, *scopes: str, algorithm: str = "RS256", seconds: float = 300, **others: Any) -> str:
        claims = self.claims(*scopes, seconds=seconds, **others)
        return jwt.encode(claims, self.keys[algorithm], algorithm, headers={"kid": algorithm})
