"""The API over HTTPS, with certificates as operators have them."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from live.certificates import Authority

MANAGEMENT = re.compile(r"management on https://127\.0\.0\.1:(\d+)")
LOGIN = {"authorization": f"Basic {b64encode(b'guest:guest').decode()}"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """The port, and the certificate of the authority."""
    directory = tmp_path_factory.mktemp("https")
    authority = Authority(directory, "authority")
    files = authority.sign("broker", hosts=("localhost",))
    settings = directory / "flintmq.toml"
    settings.write_text(f'[management]\nport = 0\ncertificate = "{files.certificate}"\nkey = "{files.key}"\n')
    with BrokerProcess("--config", str(settings)) as broker:
        yield int(broker.wait_for(MANAGEMENT)[1]), authority.certificate


def test_requests(served: tuple[int, Path]) -> None:
    port, authority = served
    context = ssl.create_default_context(cafile=str(authority))
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=20)
    connection.request("GET", "/api/whoami", headers=LOGIN)
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b'{"name":"guest","tags":["administrator"]}')
    body = b'{"username": "guest", "password": "guest"}'
    connection.request("POST", "/api/session", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    assert "; Secure" in (answer.getheader("set-cookie") or "")
    connection.close()


def test_who_does_not_know_the_authority(served: tuple[int, Path]) -> None:
    connection = http.client.HTTPSConnection("localhost", served[0], timeout=20)
    with pytest.raises(ssl.SSLCertVerificationError):
        connection.request("GET", "/api/whoami", headers=LOGIN)


def test_a_handshake_that_never_ends(served: tuple[int, Path]) -> None:
    """The connection is closed well before the 60 s of the loop, and so is one that speaks plain HTTP."""
    began_s = time.monotonic()
    with socket.create_connection(("127.0.0.1", served[0]), timeout=40) as silent:
        with socket.create_connection(("127.0.0.1", served[0]), timeout=40) as plain:
            plain.sendall(b"GET /api/whoami HTTP/1.1\r\nhost: localhost\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert not plain.recv(100).startswith(b"HTTP")
        with contextlib.suppress(ConnectionResetError):
            assert silent.recv(1) == b""
    assert time.monotonic() - began_s < 40
