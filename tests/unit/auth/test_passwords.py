"""Password hashes: both kinds, their text, and hashes that must not be taken."""

from __future__ import annotations

import base64
import hashlib

import pytest

from flintmq.auth.passwords import (
    NOBODY,
    RabbitSha256Hash,
    ScryptHash,
    hash_password,
    hash_password_quickly,
    parse_hash,
)


def test_a_hash_matches_its_password_alone() -> None:
    kept = hash_password(b"secret")
    assert kept.matches(b"secret")
    assert not kept.matches(b"Secret")
    assert not kept.matches(b"")


def test_equal_passwords_have_different_hashes() -> None:
    assert hash_password(b"secret").text() != hash_password(b"secret").text()
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
    assert isinstance(kept, RabbitSha256Hash)
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
        ("", "not a hash of `flintmq hash-password`, nor RabbitMQ's salted SHA-256"),
        ("plain text", "not a hash of `flintmq hash-password`, nor RabbitMQ's salted SHA-256"),
        (
            base64.b64encode(bytes(35)).decode(),
            "not a hash of `flintmq hash-password`, nor RabbitMQ's salted SHA-256",
        ),
        ("$scrypt$", "not of the form $scrypt$ln=14,r=8,p=1$salt$key"),
        ("$argon2id$v=19$x$y", "not of the form $scrypt$ln=14,r=8,p=1$salt$key"),
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
    assert "salt" not in repr(NOBODY)
