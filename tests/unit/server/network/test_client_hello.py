"""The first word of a TLS client: when it is whole, and what is none."""

from __future__ import annotations

import ssl

import pytest

from flintmq.server.network.client_hello import NoHello, octets_wanted


def hello(version: ssl.TLSVersion | None = None, name: str | None = "broker.example") -> bytes:
    """What OpenSSL says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if version is not None:
        context.maximum_version = version
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(coming, going, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return going.read()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_real_hello_is_wanted_until_it_is_whole(version: ssl.TLSVersion) -> None:
    octets = hello(version)
    assert octets_wanted(octets[:1]) == octets_wanted(octets[:4]) == 5
    for size in range(5, len(octets)):
        assert octets_wanted(octets[:size]) == len(octets)
    assert octets_wanted(octets) == octets_wanted(octets + b"more") == len(octets)


def test_a_hello_in_several_records_is_left_to_tls() -> None:
    octets = hello()
    first = octets[:3] + (100).to_bytes(2, "big") + octets[5:105]
    assert octets_wanted(first) == len(first)


def test_a_hello_without_extensions_is_one() -> None:
    body = b"\x03\x03" + bytes(32) + b"\x00" + b"\x00\x02\x00\x2f" + b"\x01\x00"
    handshake = b"\x01" + len(body).to_bytes(3, "big") + body
    octets = b"\x16\x03\x01" + len(handshake).to_bytes(2, "big") + handshake
    assert octets_wanted(octets) == len(octets)


@pytest.mark.parametrize(
    ("octets", "why"),
    [
        (b"AMQP\x00\x00\x09\x01", "its first octets are not those of TLS"),
        (b"GET / HTTP/1.1\r\n", "its first octets are not those of TLS"),
        (b"\x16\x02", "its first octets are not those of TLS"),
        (b"\x16\x03\x01\x00\x02\x01\x00", "its first record is of 2 octets"),
        (b"\x16\x03\x01\xff\xff", "its first record is of 65535 octets"),
        (b"\x16\x03\x01\x02\x00\x02", "its first word is not a hello"),
    ],
)
def test_what_is_no_hello_is_told_with_the_reason(octets: bytes, why: str) -> None:
    with pytest.raises(NoHello, match=why):
        octets_wanted(octets)


def test_a_hello_whose_parts_do_not_fit_is_none() -> None:
    octets = hello()
    long_session = octets[:43] + b"\xff" + octets[44:]
    with pytest.raises(NoHello, match="longer than the whole"):
        octets_wanted(long_session)
    at = 44 + octets[43]
    at += 2 + int.from_bytes(octets[at : at + 2], "big")
    at += 1 + octets[at]
    with pytest.raises(NoHello, match="do not end with it"):
        octets_wanted(octets[:at] + b"\x00\x01" + octets[at + 2 :])
