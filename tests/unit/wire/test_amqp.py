"""The numbers of AMQP, and that compiled code sees the same ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flintmq import reply_codes
from flintmq.wire import amqp, methods


def numbers_of_pxd() -> dict[str, int]:
    text = Path(amqp.__file__).with_suffix(".pxd").read_text(encoding="utf-8")
    numbers: dict[str, int] = {}
    for name, left, shift, right, plain in re.findall(
        r"^    (\w+) = (?:\((\d+) << (\d+)\) \| (\d+)|(\w+))$", text, re.MULTILINE
    ):
        numbers[name] = int(plain, 0) if plain else (int(left) << int(shift)) | int(right)
    return numbers


def test_the_pxd_has_the_same_names_and_numbers() -> None:
    numbers = {name: value for name, value in vars(amqp).items() if isinstance(value, int)}
    assert len(numbers) > 200
    assert numbers_of_pxd() == numbers


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("VERSION_0_8", 8),
        ("VERSION_0_9", 9),
        ("VERSION_0_9_1", 91),
        ("FRAME_METHOD", 1),
        ("FRAME_HEARTBEAT", 8),
        ("FRAME_END", 0xCE),
        ("FRAME_BYTES_MIN", 4096),
        ("NOT_FOUND", 404),
        ("SYNTAX_ERROR", 502),
        ("NOT_IMPLEMENTED", 540),
        ("CLASS_BASIC", 60),
        ("CLASS_DTX_COORDINATION", 105),
        ("BASIC_PUBLISH", 60 << 16 | 40),
        ("EXCHANGE_UNBIND_OK", 40 << 16 | 51),
        ("CONNECTION_CLOSE", 10 << 16 | 50),
        ("CONNECTION_CLOSE_0_8", 10 << 16 | 60),
        ("CONNECTION_CLOSE_OK_0_8", 10 << 16 | 61),
        ("CONNECTION_REDIRECT", 10 << 16 | 42),
        ("CONNECTION_REDIRECT_0_8", 10 << 16 | 50),
        ("FLAG_CONTENT_TYPE", 0x8000),
        ("FLAG_HEADERS", 0x2000),
        ("FLAG_DELIVERY_MODE", 0x1000),
        ("FLAG_CLUSTER_ID", 0x0004),
    ],
)
def test_number(name: str, number: int) -> None:
    assert getattr(amqp, name) == number


def test_reply_codes_close_what_the_standard_says() -> None:
    assert reply_codes.REPLY_NAMES[404] == "NOT_FOUND"
    soft = set(reply_codes.REPLY_NAMES) - reply_codes.HARD_REPLY_CODES
    assert soft == {200, 310, 311, 312, 313, 403, 404, 405, 406}


def test_every_method_has_its_code() -> None:
    for method in methods.METHODS:
        name = method.NAME.replace(".", "_").replace("-", "_").upper()
        assert getattr(amqp, name) == method.CLASS_ID << 16 | method.METHOD_ID
