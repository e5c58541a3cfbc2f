"""TLS as the server has it: what is asked of clients, and what is known of them afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from live.certificates import Authority, Signed

from flintmq.auth.failed_logins import FailedLogins
from flintmq.clock import Clock
from flintmq.config import Config, Listen, NamedCertificate, Tls
from flintmq.server.network import certificates
from flintmq.server.network.tls import TlsLink
from flintmq.server.server import Server

HEADER = b"AMQP\x00\x00\x09\x01"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "authority")


@pytest.fixture(scope="module")
def server_files(authority: Authority) -> Signed:
    return authority.sign("broker")


@asynccontextmanager
async def serving(tls: Tls) -> AsyncIterator[tuple[Server, int]]:
    """A server in this process, and its port for TLS."""
    config = Config()._replace(listen=Listen(("127.0.0.1",), 0), tls=tls._replace(port=0))
    server = Server(config, Clock(), asyncio.get_running_loop())
    port = int(server.listen()[1].rsplit(":", 1)[1])
    try:
        yield server, port
    finally:
        await server.stop(0.1)


def client_context(authority: Authority, shown: Signed | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if shown is not None:
        context.load_cert_chain(shown.certificate, shown.key)
    return context


async def certificate_of_client(tls: Tls, context: ssl.SSLContext) -> dict[str, Any] | None:
    """What the session of a client finds that has sent the protocol header; ConnectionError if refused."""
    async with serving(tls) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        try:
            writer.write(HEADER)
            assert (await reader.readexactly(1)) == b"\x01"  # connection.start
            (link,) = server.links
            found: dict[str, Any] | None = link.peer_certificate()
            return found
        except (ssl.SSLError, asyncio.IncompleteReadError) as error:
            raise ConnectionError from error
        finally:
            writer.transport.abort()


def test_an_optional_certificate_is_known_if_it_is_shown(authority: Authority, server_files: Signed) -> None:
    tls = Tls(server_files.certificate, server_files.key, authority.certificate, "optional")
    shown = asyncio.run(certificate_of_client(tls, client_context(authority, authority.sign("alice"))))
    assert shown is not None
    assert shown["subject"] == ((("commonName", "alice"),),)
    assert shown["subjectAltName"] == (("IP Address", "127.0.0.1"),)
    assert asyncio.run(certificate_of_client(tls, client_context(authority))) is None


@pytest.mark.parametrize("verify", ["optional", "required"])
def test_a_certificate_of_another_authority_is_refused(
    authority: Authority, server_files: Signed, tmp_path: Path, verify: Any
) -> None:
    tls = Tls(server_files.certificate, server_files.key, authority.certificate, verify)
    stranger = Authority(tmp_path, "stranger").sign("mallory")
    with pytest.raises(ConnectionError):
        asyncio.run(certificate_of_client(tls, client_context(authority, stranger)))


def test_with_an_authority_alone_a_certificate_is_required(
    authority: Authority, server_files: Signed
) -> None:
    tls = Tls(server_files.certificate, server_files.key, authority.certificate)
    with pytest.raises(ConnectionError):
        asyncio.run(certificate_of_client(tls, client_context(authority)))


def test_nobody_is_asked_with_verify_none(authority: Authority, server_files: Signed) -> None:
    tls = Tls(server_files.certificate, server_files.key, authority.certificate, "none")
    context = client_context(authority, authority.sign("alice"))
    assert asyncio.run(certificate_of_client(tls, context)) is None


async def subject_shown(port: int, context: ssl.SSLContext, name: str) -> object:
    """The common name of the certificate that a client gets who asks for a name."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    try:
        return dict(part[0] for part in writer.get_extra_info("peercert")["subject"])["commonName"]
    finally:
        writer.transport.abort()


def test_the_certificate_is_chosen_by_the_name_that_a_client_asks_for(
    authority: Authority, server_files: Signed
) -> None:
    orders = authority.sign("orders", hosts=("orders.example.com",))
    wild = authority.sign("wild", hosts=("unused.example.net", "*.example.org"))
    renamed = authority.sign("renamed", hosts=("told.example.com",))
    others = (
        NamedCertificate(orders.certificate, orders.key),
        NamedCertificate(wild.certificate, wild.key),
        NamedCertificate(renamed.certificate, renamed.key, ("other.example.com",)),
    )
    tls = Tls(server_files.certificate, server_files.key, others=others)

    async def main() -> list[object]:
        context = client_context(authority)
        context.check_hostname = False
        async with serving(tls) as (_, port):
            asked = ("orders.example.com", "ORDERS.example.com", "a.example.org", "a.b.example.org",
                     "other.example.com", "told.example.com", "127.0.0.1")  # fmt: skip
            return [await subject_shown(port, context, name) for name in asked]

    assert asyncio.run(main()) == ["orders", "orders", "wild", "broker", "renamed", "broker", "broker"]


def test_changed_files_are_read_and_broken_ones_keep_the_old(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(certificates, "LOOK_S", 0.05)
    caplog.set_level("INFO")
    files = authority.sign("watched")

    async def until_told(text: str) -> None:
        for _ in range(400):
            if text in caplog.text:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(caplog.text)

    async def serial(port: int) -> object:
        context = client_context(authority)
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        found = writer.get_extra_info("peercert")["serialNumber"]
        writer.transport.abort()
        return found

    async def main() -> None:
        async with serving(Tls(files.certificate, files.key)) as (server, port):
            before = await serial(port)
            authority.sign("watched")
            await until_told("new connections get the certificates of the files, which have changed")
            renewed = await serial(port)
            assert renewed != before
            files.certificate.write_text("broken")
            await until_told("the certificates stay as they were: tls.certificate = ")
            assert await serial(port) == renewed
            for _ in range(3):
                server.certificate_watch.look()
            assert caplog.text.count("stay as they were") == 1, "it is told once"
            files.certificate.unlink()
            server.certificate_watch.look()
            assert await serial(port) == renewed

    asyncio.run(main())


@pytest.mark.parametrize(
    ("days", "told"),
    [
        (31, None),
        (29.5, "WARNING the certificate {} ends in 29 days; renew it"),
        (-1, "ERROR the certificate {} has ended: clients refuse it; renew it"),
    ],
)
def test_the_end_of_a_certificate_is_warned_of_each_day(
    authority: Authority, caplog: pytest.LogCaptureFixture, days: float, told: str | None
) -> None:
    files = authority.sign("ending", days=days)
    files.key.chmod(0o600)

    def lines() -> list[str]:
        found = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
        return [line for line in found if "the certificate " in line]

    async def main() -> None:
        async with serving(Tls(files.certificate, files.key)) as (server, _):
            expected = [] if told is None else [told.format(files.certificate)]
            assert lines() == expected
            server.certificate_watch.look()
            assert lines() == expected
            server.certificate_watch.warned_s -= 86_400
            server.certificate_watch.look()
            assert lines() == 2 * expected
            (row,) = server.condition()["certificates"]  # type: ignore[union-attr, misc]
            assert isinstance(row, dict)
            assert row["days-left"] == math.floor(days - 0.01)

    asyncio.run(main())


def test_a_key_that_everybody_can_read_is_warned_of(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    files = authority.sign("open")
    for mode, warnings in ((0o600, 0), (0o640, 0), (0o644, 1)):
        files.key.chmod(mode)
        certificates.Certificates(Tls(files.certificate, files.key)).warn(0)
        assert caplog.text.count("can be read by everybody") == warnings


async def come_and_gone(server: Server) -> None:
    """Until the server has seen somebody come and leave."""
    for _ in range(4000):
        if server.broker.connections_made and not server.links:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("nobody has come, or nobody has left")


@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
def test_who_connects_and_leaves_without_a_word_is_no_failure(server_files: Signed, is_reset: bool) -> None:
    """So do health checks of load balancers, on this port as on the plain one."""

    async def main() -> int:
        async with serving(Tls(server_files.certificate, server_files.key)) as (server, port):
            with socket.create_connection(("127.0.0.1", port)) as client:
                if is_reset:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await come_and_gone(server)
            return server.broker.failed_logins.total

    assert asyncio.run(main()) == 0


def test_what_is_no_tls_is_a_failure(server_files: Signed) -> None:
    async def main() -> int:
        async with serving(Tls(server_files.certificate, server_files.key)) as (server, port):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(HEADER)
                await come_and_gone(server)
            return server.broker.failed_logins.total

    assert asyncio.run(main()) == 1


HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


@pytest.mark.parametrize("octets", [HEADER, HELLO + bytes(506)], ids=["no TLS", "no hello"])
def test_what_is_no_tls_never_comes_to_it_and_pauses(
    server_files: Signed, octets: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FailedLogins, "note", lambda *_: 60.0)

    async def main() -> None:
        async with serving(Tls(server_files.certificate, server_files.key)) as (server, port):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(octets)
                await until(lambda: bool(server.strangers.pausing))
                (link,) = server.links
                assert isinstance(link, TlsLink)
                assert link.handshake is None
                client.setblocking(False)
                with pytest.raises(BlockingIOError):  # neither an answer nor the end
                    client.recv(1)
                server.strangers.pausing[0][2]()
                assert not server.links

    asyncio.run(main())


def test_a_handshake_that_fails_later_pauses_too(
    authority: Authority, server_files: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FailedLogins, "note", lambda *_: 60.0)

    async def main() -> None:
        tls = Tls(server_files.certificate, server_files.key, authority.certificate, "required")
        async with serving(tls) as (server, port):
            loop = asyncio.get_running_loop()
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.setblocking(False)
                coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
                speaker = client_context(authority).wrap_bio(coming, going, server_hostname="127.0.0.1")
                with pytest.raises(ssl.SSLWantReadError):
                    speaker.do_handshake()
                hello = going.read()
                await loop.sock_sendall(client, hello[:100])
                await until(lambda: [link.wanted_octets for link in server.links] == [len(hello)])
                await loop.sock_sendall(client, hello[100:])
                await loop.sock_recv(client, 65536)
                await loop.sock_sendall(client, b"\x17\x03\x03\x00\x20" + bytes(32))
                await until(lambda: bool(server.strangers.pausing))
                assert len(server.links) == 1
                with contextlib.suppress(BlockingIOError):
                    assert client.recv(65536) != b"", "the pause keeps it open"

    asyncio.run(main())


def test_a_hello_that_never_ends_is_cut_off(server_files: Signed) -> None:
    async def main() -> int:
        async with serving(Tls(server_files.certificate, server_files.key)) as (server, port):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(HELLO)
                await until(lambda: [link.wanted_octets for link in server.links] == [517])
            await come_and_gone(server)
            return server.broker.failed_logins.total

    assert asyncio.run(main()) == 1


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(4000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come to that")


def test_nobody_negotiates_anew(authority: Authority, server_files: Signed) -> None:
    """A client of TLS 1.2 could make the server do so again and again."""
    context = certificates.Certificates(Tls(server_files.certificate, server_files.key)).context
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
