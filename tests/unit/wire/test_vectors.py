"""The golden vectors: octets written out by hand against what they mean."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from flintmq.wire import amqp, methods, properties
from flintmq.wire.fields import Content

VECTORS = Path(__file__).resolve().parents[2] / "vectors"
CLASS_IDS = {
    "basic": amqp.CLASS_BASIC,
    "file": amqp.CLASS_FILE,
    "stream": amqp.CLASS_STREAM,
    "tunnel": amqp.CLASS_TUNNEL,
    "test": amqp.CLASS_TEST,
}


def read_octets(text: str) -> bytes:
    pieces = re.findall(r'"([^"]*)"|([0-9a-f]+)', text)
    return b"".join(quoted.encode() if quoted else bytes.fromhex(digits) for quoted, digits in pieces)


def read_meaning(text: str) -> tuple[list[str], dict[str, Any]]:
    """The words before the fields, and the fields by name."""
    words, *fields = re.split(r" (?=\w+=)", text)
    values = {name: ast.literal_eval(value) for name, _, value in (field.partition("=") for field in fields)}
    if "body" in values:
        values["body"] = Content(*values["body"])
    return words.split(), values


def read_vectors(name: str) -> list[tuple[str, bytes]]:
    """(meaning, octets) of each vector in the file."""
    vectors: list[tuple[str, str]] = []
    for line in (VECTORS / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            meaning, octets = vectors.pop()
            vectors.append((meaning, octets + line))
        elif line and not line.startswith("#"):
            vectors.append((line, ""))
    return [(meaning, read_octets(octets)) for meaning, octets in vectors]


@pytest.mark.parametrize(("meaning", "octets"), read_vectors("methods.txt"))
def test_method(meaning: str, octets: bytes) -> None:
    words, fields = read_meaning(meaning)
    version, name = words[-2:]
    method = methods.NAMES[name](**fields)
    assert methods.decode_method(int(version), octets) == method
    if words[0] != "decode":
        assert methods.encode_method(int(version), method).hex() == octets.hex()


@pytest.mark.parametrize(("meaning", "octets"), read_vectors("properties.txt"))
def test_properties(meaning: str, octets: bytes) -> None:
    words, fields = read_meaning(meaning)
    kind = getattr(properties, f"{words[-1].capitalize()}Properties")
    expected = kind(**fields)
    found = properties.decode_properties(CLASS_IDS[words[-1]], b"??" + octets + b"??", 2, 2 + len(octets))
    assert found == expected
    if words[0] != "decode":
        assert properties.encode_properties(expected).hex() == octets.hex()


def test_the_vectors_cover_every_class() -> None:
    covered = {read_meaning(meaning)[0][-1].partition(".")[0] for meaning, _ in read_vectors("methods.txt")}
    assert covered == {name.partition(".")[0] for name in methods.NAMES}
    covered = {read_meaning(meaning)[0][-1] for meaning, _ in read_vectors("properties.txt")}
    assert covered == set(CLASS_IDS)
