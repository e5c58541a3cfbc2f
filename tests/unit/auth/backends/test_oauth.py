"""Tokens: what is verified of them, and what their scopes allow."""

from __future__ import annotations

import base64
import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from identity_provider import ISSUER, RESOURCE, Provider

from flintmq.auth import Operation, Tag, User, may, require_topic
from flintmq.auth.backend import BackendFault, Identity, Login, WrongLogin
from flintmq.auth.backends import signing_keys
from flintmq.auth.backends.oauth import OauthBackend
from flintmq.auth.backends.scopes import Scopes, Wildcard
from flintmq.clock import Clock
from flintmq.config import parse
from flintmq.errors import ChannelFault, ConfigFault


@pytest.fixture(scope="module")
def provider() -> Provider:
    return Provider()


@pytest.fixture(scope="module")
def jwks(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("jwks") / "keys.json"
    file.write_text(json.dumps(provider.jwks()))
    return file


def back_end(jwks: Path, more: str = "", clock: Clock | None = None) -> OauthBackend:
    text = f'[auth]\nbackends = ["oauth"]\n[auth.oauth]\nresource_server_id = "{RESOURCE}"\n'
    settings = parse(f'{text}issuer = "{ISSUER}"\njwks_file = "{jwks}"\n{more}').auth.oauth
    assert settings is not None
    return OauthBackend(settings, clock or Clock())


@pytest.fixture(scope="module")
def oauth(jwks: Path) -> OauthBackend:
    return back_end(jwks)


def known(oauth: OauthBackend, token: str | bytes) -> Identity:
    octets = token.encode() if isinstance(token, str) else token
    identity = oauth.authenticate(Login("ignored", octets, "::1"))
    assert identity is not None
    return identity


def user_of(identity: Identity) -> User:
    assert identity.permissions is not None
    return User(
        identity.name,
        tags=identity.tags,
        permissions=identity.permissions,
        topic_permissions=identity.topic_permissions,
    )


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_token_names_the_user_and_what_it_may_do(
    oauth: OauthBackend, provider: Provider, algorithm: str
) -> None:
    scopes = ("flintmq.read:*/orders*", "flintmq.tag:monitoring", "other.write:*/*", "flintmq.tag:nonsense")
    identity = known(oauth, provider.token(*scopes, algorithm=algorithm))
    assert identity.name == "service-account-orders"
    assert identity.tags == {Tag.MONITORING}
    user = user_of(identity)
    assert user.may_enter("/")
    assert may(user, "/", Operation.READ, "orders.new")
    assert not may(user, "/", Operation.READ, "invoices")
    assert not may(user, "/", Operation.WRITE, "orders.new")
    assert identity.expires_ms is not None
    assert 300_000 < identity.expires_ms - time.time() * 1000 <= 310_000, "with the leeway"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"iss": "https://other"}, "the token is by the issuer 'https://other'"),
        ({"iss": None}, "the token is by the issuer 'None'"),
        ({"aud": "account"}, "the token is for the audience 'account'"),
        ({"aud": [1, {}]}, r"the token is for the audience '\[1, \{\}\]'"),
        ({"aud": None}, "the token is for the audience 'None'"),
        ({"exp": None}, "the token has no time of expiry"),
        ({"exp": "soon"}, "the claim exp of the token is no time"),
        ({"exp": True}, "the claim exp of the token is no time"),
        ({"exp": 10**30}, "the claim exp of the token is no time"),
        ({"exp": time.time() - 60}, "the token has expired [0-9]+ s ago"),
        ({"nbf": time.time() + 3600}, "the token is good in [0-9]+ s only"),
        ({"sub": None}, "the token has none of the claims sub, client_id"),
        ({"sub": "a\nb"}, "the token has none of the claims sub, client_id"),
    ],
)
def test_a_token_that_is_not_for_us_is_refused(
    oauth: OauthBackend, provider: Provider, changed: dict[str, Any], why: str
) -> None:
    with pytest.raises(WrongLogin, match=why):
        known(oauth, provider.token("flintmq.read:*/*", **changed))


def unsigned(provider: Provider) -> str:
    return jwt.encode(provider.claims("flintmq.read:*/*"), None, "none", headers={"kid": "RS256"})


def signed_by_public_key(provider: Provider) -> str:
    """The oldest attack: the public key, which everybody has, as the secret of HS256."""
    public = provider.keys["RS256"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head, body = (
        base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode()
        for each in ({"alg": "HS256", "kid": "RS256"}, provider.claims("flintmq.read:*/*"))
    )
    signature = jwt.get_algorithm_by_name("HS256").sign(f"{head}.{body}".encode(), public)
    return f"{head}.{body}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def of_another_key(provider: Provider) -> str:
    other = rsa.generate_private_key(65537, 2048)
    return jwt.encode(provider.claims("flintmq.read:*/*"), other, "RS256", headers={"kid": "RS256"})


def of_another_algorithm(provider: Provider) -> str:
    return jwt.encode(provider.claims(), provider.keys["RS256"], "RS512", headers={"kid": "RS256"})


def of_another_kind(provider: Provider) -> str:
    return jwt.encode(provider.claims(), provider.keys["ES256"], "ES256", headers={"kid": "RS256"})


def changed(provider: Provider) -> str:
    head, _body, signature = provider.token("flintmq.read:*/*").split(".")
    more = base64.urlsafe_b64encode(json.dumps(provider.claims("flintmq.configure:*/*")).encode())
    return f"{head}.{more.rstrip(b'=').decode()}.{signature}"


@pytest.mark.parametrize(
    ("forge", "why"),
    [
        (unsigned, "the token is signed by 'none', which is not allowed"),
        (signed_by_public_key, "the token is signed by 'HS256', which is not allowed"),
        (of_another_key, "the token is not valid: Signature verification failed"),
        (of_another_algorithm, "the token is signed by 'RS512', which is not allowed"),
        (of_another_kind, "the key 'RS256' is not for signatures by ES256"),
        (changed, "the token is not valid: Signature verification failed"),
        (lambda provider: "a.b.c", "the token is not valid"),
        (lambda provider: ".." + "x" * 70_000, "a token of 70002 octets, 65536 allowed"),
    ],
)
def test_a_forged_token_is_refused(oauth: OauthBackend, provider: Provider, forge: Any, why: str) -> None:
    with pytest.raises(WrongLogin, match=why):
        known(oauth, forge(provider))


def test_a_secret_in_the_jwks_is_no_key(provider: Provider, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    secret = {"kty": "oct", "kid": "RS256", "k": "c2VjcmV0", "alg": "HS256"}
    file.write_text(json.dumps({"keys": [secret, *provider.jwks()["keys"][1:]]}))
    with pytest.raises(WrongLogin, match="no key 'RS256' is known"):
        known(back_end(file), provider.token())


def test_a_password_is_for_another_back_end(oauth: OauthBackend) -> None:
    assert oauth.authenticate(Login("alice", b"secret", "::1")) is None
    assert oauth.authenticate(Login("alice", None, "::1")) is None


@given(token=st.binary(max_size=80) | st.text("aZ0-_.=", max_size=60).map(str.encode))
def test_no_octets_do_more_than_fail(oauth: OauthBackend, token: bytes) -> None:
    with contextlib.suppress(BackendFault):
        assert oauth.authenticate(Login("x", token, "::1")) is None


def test_scopes_are_found_where_providers_put_them(jwks: Path, provider: Provider) -> None:
    more = 'additional_scopes_key = "resource_access"\nusername_claims = ["preferred_username", "sub"]\n'
    oauth = back_end(jwks, more + 'scope_prefix = "mq-"\naudience = ["brokers"]\n')
    claims = {
        "scope": ["mq-read:*/a"],
        "aud": "brokers",
        "preferred_username": "ada",
        "resource_access": {RESOURCE: {"roles": ["mq-read:*/b"]}, "other": {"roles": ["mq-read:*/no"]}},
        "authorization": {"permissions": [{"rsname": "x", "scopes": ["mq-read:*/c"]}, "?"]},
    }
    identity = known(oauth, provider.token(**claims))
    assert identity.name == "ada"
    user = user_of(identity)
    assert [name for name in ("a", "b", "c", "no") if may(user, "/", Operation.READ, name)] == ["a", "b", "c"]


# Keys


def test_a_key_that_a_provider_may_have_who_is_away_is_no_wrong_login(
    provider: Provider, tmp_path: Path
) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": provider.jwks()["keys"][:1]}))
    clock = Standing()
    oauth = back_end(file, "refresh_s = 10\n", clock)
    file.unlink()
    clock.now_s += 11
    for why in ("cannot be read", "no key 'ES256' is known"):
        with pytest.raises(BackendFault, match=why) as fault:
            known(oauth, provider.token(algorithm="ES256"))
        assert not isinstance(fault.value, WrongLogin)
    file.write_text(json.dumps({"keys": provider.jwks()["keys"][:1]}))
    clock.now_s += 11
    with pytest.raises(WrongLogin, match="no key 'ES256' is known"):
        known(oauth, provider.token(algorithm="ES256"))


def test_keys_are_looked_for_again_once_in_a_while(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": provider.jwks()["keys"][:1]}))
    clock = Standing()
    oauth = back_end(file, "refresh_s = 10\n", clock)
    reads: list[str] = []
    read = signing_keys.SigningKeys._octets
    monkeypatch.setattr(signing_keys.SigningKeys, "_octets", lambda self: reads.append("") or read(self))
    for _ in range(3):
        with pytest.raises(BackendFault, match="no key 'ES256' is known"):
            known(oauth, provider.token(algorithm="ES256"))
    assert reads == [], "it was read just now"
    clock.now_s += 11
    with pytest.raises(BackendFault, match="no key 'ES256' is known"):
        known(oauth, provider.token(algorithm="ES256"))
    file.write_text(json.dumps(provider.jwks()))
    with pytest.raises(BackendFault, match="no key 'ES256' is known"):
        known(oauth, provider.token(algorithm="ES256"))
    assert len(reads) == 1
    clock.now_s += 11
    assert known(oauth, provider.token(algorithm="ES256")).name
    assert len(reads) == 2


class Standing(Clock):
    """A clock that goes on when the test says so."""

    now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no json", "the JWKS is no JSON"),
        ("[]", 'the JWKS has no list "keys"'),
        (
            '{"keys": [{"kty": "oct", "k": "AAAA"}, 7, {"kty": "RSA"}]}',
            "the JWKS has no public key for signatures",
        ),
        ("[" * 100_000, "the JWKS is no JSON"),
        (" " * 1_100_000, "the JWKS has more than 1048576 octets"),
    ],
)
def test_a_wrong_jwks_is_told_at_the_start(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "keys.json"
    file.write_text(text)
    with pytest.raises(ConfigFault) as caught:
        back_end(file)
    assert str(caught.value) == f'auth.oauth.jwks_file = "{file}": {why}'


def test_without_the_library_the_start_says_what_to_install(
    jwks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(ConfigFault, match=r"pip install 'flintmq\[oauth\]'"):
        back_end(jwks)


# Scopes


@pytest.mark.parametrize(
    ("written", "text", "matches"),
    [
        ("*", "", True),
        ("*", "anything", True),
        ("", "", True),
        ("", "x", False),
        ("a*", "abc", True),
        ("a*c", "abc", True),
        ("a*c", "ac", True),
        ("ab*bc", "abc", False),
        ("*b*", "abc", True),
        ("*b*d*", "abcde", True),
        ("*d*b*", "abcde", False),
        ("a.b", "axb", False),
        ("%2F", "/", True),
        ("a%2A", "a*", True),
        ("a%2A", "abc", False),
    ],
)
def test_wildcards(written: str, text: str, matches: bool) -> None:
    assert Wildcard(written).matches(text) is matches


def test_many_wildcards_take_no_time() -> None:
    began_s = time.process_time()
    assert not Wildcard("*a" * 200 + "b").matches("a" * 255)
    assert time.process_time() - began_s < 0.05


def test_scopes_with_routing_keys() -> None:
    scopes = Scopes(["f.write:%2F/events/orders.*", "f.read:*/*", "f.write:%2F/plain", "f.write:x"], "f.")
    from flintmq.auth.backends.scopes import ScopeHosts, ScopeTopics

    user = User("u", permissions=ScopeHosts(scopes), topic_permissions=ScopeTopics(scopes))
    assert may(user, "/", Operation.WRITE, "events")
    assert not may(user, "other", Operation.WRITE, "events")
    assert user.may_enter("other"), "it may read there"
    assert require_topic(user, "/", Operation.WRITE, "events", "orders.new", None)
    with pytest.raises(ChannelFault, match="may not write to topic 'invoices'"):
        require_topic(user, "/", Operation.WRITE, "events", "invoices", None)
    assert require_topic(user, "/", Operation.WRITE, "plain", "anything", None)
    assert require_topic(user, "/", Operation.READ, "events", "anything", None)


def test_the_nameless_exchange_has_a_name_in_scopes() -> None:
    scopes = Scopes(["f.write:*/amq.default"], "f.")
    from flintmq.auth.backends.scopes import ScopeHosts

    user = User("u", permissions=ScopeHosts(scopes))
    assert may(user, "/", Operation.WRITE, "")
    assert not may(user, "/", Operation.WRITE, "amq.topic")
