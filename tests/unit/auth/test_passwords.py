"""Password hashes: both kinds, their text, and hashes that must not be taken."""

from __future__ import annotations

import base64
import hashlib
import hmac
import sys

import pytest

from flintmq.auth.passwords import (
    Argon2Hash,
    KeyedHash,
    PasswordPolicy,
    RabbitHash,
    ScryptHash,
    hash_password_quickly,
    parse_hash,
)
from flintmq.config import PasswordHashing
from flintmq.errors import ConfigFault
from flintmq.scram import derived_keys, prepared


def test_a_hash_matches_its_password_alone() -> None:
    kept = PasswordPolicy().hash(b"secret")
    assert kept.matches(b"secret")
    assert not kept.matches(b"Secret")
    assert not kept.matches(b"")


def test_equal_passwords_have_different_hashes() -> None:
    assert PasswordPolicy().hash(b"secret").text() != PasswordPolicy().hash(b"secret").text()
    assert hash_password_quickly(b"secret").text() != hash_password_quickly(b"secret").text()


def test_the_text_of_a_hash_comes_back_with_its_cost() -> None:
    key = hashlib.scrypt(b"secret", salt=b"0123456789abcdef", n=2**5, r=4, p=2, dklen=32)
    kept = ScryptHash(b"0123456789abcdef", key, ln=5, r=4, p=2)
    assert kept.text().startswith("$scrypt$ln=5,r=4,p=2$MDEyMzQ1Njc4OWFiY2RlZg$")
    again = parse_hash(kept.text())
    assert again == kept
    assert again.matches(b"secret")


def test_a_hash_of_rabbitmq_is_verified() -> None:
    # Salt 908DC60A and the password test12: the example in RabbitMQ's documentation of the algorithm.
    text = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
    kept = parse_hash(text)
    assert isinstance(kept, RabbitHash)
    assert kept.salt == bytes.fromhex("908DC60A")
    assert kept.matches(b"test12")
    assert not kept.matches(b"test13")
    assert kept.text() == text


def test_a_quick_hash_matches() -> None:
    kept = hash_password_quickly(b"guest")
    assert kept.matches(b"guest")
    assert not kept.matches(b"guess")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a hash of `flintmq hash-password`, nor RabbitMQ's salted SHA-256, SHA-512 or MD5"),
        (
            "plain text",
            "not a hash of `flintmq hash-password`, nor RabbitMQ's salted SHA-256, SHA-512 or MD5",
        ),
        (
            base64.b64encode(bytes(35)).decode(),
            "not a hash of `flintmq hash-password`, nor RabbitMQ's salted SHA-256, SHA-512 or MD5",
        ),
        ("$scrypt$", "not of the form $scrypt$ln=14,r=8,p=1$salt$key"),
        ("$argon2i$v=19$x$y", "not of the form $scrypt$ln=14,r=8,p=1$salt$key"),
        ("$argon2id$v=19$x$y", "not of the form $argon2id$v=19$m=19456,t=2,p=1$salt$key"),
        (
            f"$argon2id$v=19$m=999999,t=2,p=1${'A' * 22}${'A' * 43}",
            "m=999999,t=2,p=1 is beyond what is allowed (m=131072, t=16, p=8)",
        ),
        (
            f"$scrypt$ln=14,r=8,p=1${'A' * 22}${'A' * 43};$scram-sha-256$1$x",
            "not of the form $scram-sha-256$iterations$salt$stored key$server key",
        ),
        (
            f"$scrypt$ln=14,r=8,p=1${'A' * 13}${'A' * 43}",
            "salt or key is not base64",
        ),
        (
            f"$scrypt$ln=18,r=8,p=1${'A' * 22}${'A' * 43}",
            "ln=18,r=8,p=1 is beyond what is allowed (ln=17, r=8, p=8)",
        ),
        (
            f"$scrypt$ln=17,r=9,p=1${'A' * 22}${'A' * 43}",
            "ln=17,r=9,p=1 is beyond what is allowed (ln=17, r=8, p=8)",
        ),
        (
            f"$scrypt$ln=14,r=8,p=9${'A' * 22}${'A' * 43}",
            "ln=14,r=8,p=9 is beyond what is allowed (ln=17, r=8, p=8)",
        ),
        (
            f"$scrypt$ln=14,r=0,p=1${'A' * 22}${'A' * 43}",
            "ln=14,r=0,p=1 is beyond what is allowed (ln=17, r=8, p=8)",
        ),
        (
            f"$scrypt$ln=0,r=8,p=1${'A' * 22}${'A' * 43}",
            "ln=0,r=8,p=1 is beyond what is allowed (ln=17, r=8, p=8)",
        ),
    ],
)
def test_what_is_no_hash_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole text is compared below
        parse_hash(text)
    assert str(caught.value) == said


def test_the_most_costly_hash_allowed_works() -> None:
    kept = parse_hash(f"$scrypt$ln=17,r=8,p=1${'A' * 22}${'A' * 43}")
    assert not kept.matches(b"secret")


def test_a_hash_does_not_show_itself() -> None:
    assert "salt" not in repr(hash_password_quickly(b"guest"))
    assert "salt" not in repr(PasswordPolicy().nobody)


@pytest.mark.parametrize("algorithm", ["sha256", "sha512", "md5"])
def test_all_hashes_of_rabbitmq_are_verified(algorithm: str) -> None:
    salt = b"salt"
    digest = hashlib.new(algorithm, salt + b"secret").digest()
    text = base64.b64encode(salt + digest).decode()
    kept = parse_hash(text)
    assert isinstance(kept, RabbitHash)
    assert kept.algorithm == algorithm
    assert kept.matches(b"secret")
    assert not kept.matches(b"Secret")
    assert kept.text() == text


def test_argon2id_by_another_implementation() -> None:
    import argon2

    hashing = PasswordHashing(algorithm="argon2id", argon2_memory_kib=64, argon2_passes=1)
    policy = PasswordPolicy(hashing)
    kept = policy.hash(b"secret")
    assert isinstance(kept, Argon2Hash)
    assert argon2.PasswordHasher().verify(kept.text(), b"secret")
    assert kept.matches(b"secret")
    assert not kept.matches(b"Secret")
    assert parse_hash(kept.text()) == kept
    assert policy.renewed(kept, b"secret") is None
    assert isinstance(policy.nobody, Argon2Hash)
    assert not policy.nobody.matches(b"")
    renewed = PasswordPolicy().renewed(kept, b"secret")
    assert isinstance(renewed, ScryptHash)
    assert renewed.matches(b"secret")


def test_argon2id_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "argon2.low_level", None)
    with pytest.raises(ConfigFault, match=r"argon2id needs argon2-cffi: pip install 'flintmq\[argon2\]'"):
        PasswordPolicy(PasswordHashing(algorithm="argon2id"))
    with pytest.raises(ValueError, match="argon2id needs argon2-cffi"):
        parse_hash(f"$argon2id$v=19$m=64,t=1,p=1${'A' * 22}${'A' * 43}")


def test_the_keys_of_scram_travel_with_the_hash() -> None:
    policy = PasswordPolicy(PasswordHashing(scrypt_ln=10, scram_iterations=4096), has_scram=True)
    kept = policy.hash(b"secret")
    assert isinstance(kept, KeyedHash)
    assert len(kept.text()) < 512, "what the settings take"
    again = parse_hash(kept.text())
    assert again == kept
    assert again.matches(b"secret")
    assert not again.matches(b"wrong")
    assert policy.renewed(again, b"secret") is None
    dearer = PasswordPolicy(PasswordHashing(scrypt_ln=10, scram_iterations=8192), has_scram=True)
    renewed = dearer.renewed(again, b"secret")
    assert isinstance(renewed, KeyedHash)
    assert renewed.hash is again.hash  # type: ignore[attr-defined]
    assert renewed.scram.iterations == 8192


def test_keys_of_scram_are_those_of_the_standard() -> None:
    # RFC 7677, section 3: user "user", password "pencil".
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    keys = derived_keys(b"pencil", salt, 4096)
    message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    signature = base64.b64encode(hmac.digest(keys.server_key, message, "sha256"))
    assert signature == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_passwords_are_prepared() -> None:
    assert prepared("I\u00adX\u00a0\u2168".encode()) == b"IX IX"
    assert prepared(b"\xff") == b"\xff"
    assert prepared("\u0007\u00e9".encode()) == "\u0007\u00e9".encode()
