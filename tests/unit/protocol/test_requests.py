"""The numbers of requests and responses of one channel, as both peers keep them."""

from __future__ import annotations

import struct

import pytest

from flintmq.errors import ConnectionFault, ProtocolMisuse
from flintmq.protocol.requests import HEAD_OCTETS, Requests
from flintmq.wire.methods import MessageEmpty, MessageGet, MessageOk, MessageTransfer


def head(first: int, second: int, third: int = 0) -> bytes:
    return struct.pack(">QQI", first, second, third)


def test_two_peers_agree() -> None:
    near, far = Requests(), Requests()
    for number in range(1, 4):
        payload = near.request(MessageTransfer(), b"method", number)
        assert payload[HEAD_OCTETS:] == b"method"
        assert far.take_request(payload) == number
    answer = far.response(1, b"ok", 1)
    assert answer == head(1, 1, 1) + b"ok"
    assert near.take_response(answer, MessageOk()) == [(1, 1), (2, 2)]
    assert list(near.awaited) == [3]
    assert near.request(MessageTransfer(), b"", None) == head(4, 1)


def test_what_was_not_asked_is_not_answered() -> None:
    with pytest.raises(ProtocolMisuse):
        Requests().response(1, b"")


@pytest.mark.parametrize("payload", [head(0, 0), head(2, 0), head(1, 1), head((1 << 64) - 1, 0)])
def test_a_request_out_of_turn(payload: bytes) -> None:
    requests = Requests()
    with pytest.raises(ConnectionFault):
        requests.take_request(payload)
    assert requests.received == 0


@pytest.mark.parametrize(
    "payload",
    [head(0, 1), head(2, 1), head(1, 0), head(1, 3), head(1, 2, 1), head(1, 1, 2), head(1, 1, (1 << 32) - 1)],
)
def test_a_response_to_what_is_not_open_settles_nothing(payload: bytes) -> None:
    requests = Requests()
    for _ in range(2):
        requests.request(MessageTransfer(), b"", None)
    with pytest.raises(ConnectionFault):
        requests.take_response(payload, MessageOk())
    assert list(requests.awaited) == [1, 2]
    assert requests.heard == 0


def test_a_response_fits_each_of_its_requests() -> None:
    requests = Requests()
    requests.request(MessageGet(), b"", None)
    requests.request(MessageTransfer(), b"", None)
    with pytest.raises(ConnectionFault, match=r"message.empty answers request 2"):
        requests.take_response(head(1, 1, 1), MessageEmpty())
    assert len(requests.take_response(head(1, 1), MessageEmpty())) == 1
