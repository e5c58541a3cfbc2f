"""AMQP over TLS against a real process: pika as a client, and bare sockets for what no client does."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from broker_process import BrokerProcess
from live.certificates import Authority, Signed
from live.serving import Serving, serving, write

SCHEMES = ("amqp", "amqps")
HEADER = b"AMQP\x00\x00\x09\x01"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "authority")


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[Serving]:
    file = configuration(authority, "broker", "")
    with serving("--config", str(file), schemes=SCHEMES) as server:
        yield server


def configuration(authority: Authority, name: str, more: str) -> Path:
    signed = authority.sign(name)
    text = f'[tls]\ncertificate = "{signed.certificate}"\nkey = "{signed.key}"\nport = 0\n{more}'
    return write(authority.directory / f"{name}.toml", text)


def client_context(authority: Authority, shown: Signed | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if shown is not None:
        context.load_cert_chain(shown.certificate, shown.key)
    return context


def parameters(port: int, context: ssl.SSLContext) -> pika.ConnectionParameters:
    options = pika.SSLOptions(context, "127.0.0.1")
    return pika.ConnectionParameters(
        "127.0.0.1", port, ssl_options=options, blocked_connection_timeout=60, connection_attempts=1
    )


def raw(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port), timeout=30)
    return context.wrap_socket(plain, server_hostname="127.0.0.1")


def is_turned_away(port: int, context: ssl.SSLContext) -> bool:
    """With TLS 1.3 a client learns of it only when it reads."""
    try:
        with raw(port, context) as client:
            client.sendall(HEADER)
            return client.recv(1) == b""
    except (ssl.SSLError, ConnectionError):
        return True


def test_the_start_lines_tell_both_urls(broker: Serving) -> None:
    assert f"listening on amqp://127.0.0.1:{broker.port}" in broker.lines[0]
    assert f"listening on amqps://127.0.0.1:{broker.ports['amqps']}" in broker.lines[1]


def shown(port: int, context: ssl.SSLContext) -> bytes | None:
    """The broker's certificate, as a new connection gets it."""
    with raw(port, context) as client:
        return client.getpeercert(binary_form=True)


def test_certificates_are_read_again_at_sighup(authority: Authority) -> None:
    file = configuration(authority, "renewed", "")
    certificate = authority.directory / "renewed.pem"
    context = client_context(authority)
    with BrokerProcess("--host", "127.0.0.1", "--config", str(file)) as broker:
        port = int(broker.wait_for(re.compile(r"listening on amqps://127\.0\.0\.1:(\d+)"))[1])
        with pika.BlockingConnection(parameters(port, context)) as connection:
            before = shown(port, context)
            authority.sign("renewed")
            broker.process.send_signal(signal.SIGHUP)
            broker.wait_for(re.compile("INFO SIGHUP: new connections get the certificates as they are now"))
            renewed = shown(port, context)
            assert renewed != before
            certificate.write_text("no certificate")
            broker.process.send_signal(signal.SIGHUP)
            broker.wait_for(re.compile("ERROR the certificates stay as they were: tls.certificate = "))
            assert shown(port, context) == renewed
            certificate.unlink()
            os.mkfifo(certificate)
            broker.process.send_signal(signal.SIGHUP)
            broker.wait_for(re.compile("ERROR the certificates stay as they were: .*: not a regular file"))
            assert shown(port, context) == renewed
            connection.channel().queue_declare("q")  # who was connected before stays so


@pytest.mark.parametrize("size", [0, 1, 131_064, 5_000_000])
def test_messages_of_all_sizes_come_back_as_they_went(
    broker: Serving, authority: Authority, size: int
) -> None:
    body = bytes(index * 7 % 251 for index in range(251)) * (size // 251 + 1)
    body = body[:size]
    connection = pika.BlockingConnection(parameters(broker.ports["amqps"], client_context(authority)))
    channel = connection.channel()
    channel.confirm_delivery()
    queue = channel.queue_declare("", exclusive=True).method.queue
    for _ in range(3):
        channel.basic_publish("", queue, body, mandatory=True)
    for _, _, received in channel.consume(queue, auto_ack=True):
        assert received == body
        if channel.get_waiting_message_count() == 0:
            break
    connection.close()


def test_a_message_from_a_file_comes_back_as_it_went(authority: Authority, tmp_path: Path) -> None:
    body = bytes(range(251)) * 200_000
    file = configuration(authority, "large", "")
    with serving("--config", str(file), "--data", str(tmp_path), schemes=SCHEMES) as server:
        connection = pika.BlockingConnection(parameters(server.ports["amqps"], client_context(authority)))
        channel = connection.channel()
        channel.confirm_delivery()
        queue = channel.queue_declare("", exclusive=True).method.queue
        for _ in range(2):
            channel.basic_publish("", queue, body, mandatory=True)
        assert len(list(tmp_path.rglob("*.spool"))) == 2
        for number, (method, _, received) in enumerate(channel.consume(queue)):
            assert received == body
            channel.basic_ack(method.delivery_tag)
            if number == 1:
                break
        connection.close()


def test_tls_and_plain_share_a_broker(broker: Serving, authority: Authority) -> None:
    secure = pika.BlockingConnection(parameters(broker.ports["amqps"], client_context(authority)))
    plain = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port))
    queue = secure.channel().queue_declare("shared", auto_delete=True).method.queue
    sender = plain.channel()
    sender.confirm_delivery()
    sender.basic_publish("", queue, b"from the plain side", mandatory=True)
    taker = secure.channel()
    _, _, body = taker.basic_get(queue, auto_ack=True)
    assert body == b"from the plain side"
    taker.queue_delete(queue)
    plain.close()
    secure.close()


def test_a_consumer_that_does_not_read_holds_nothing_up(broker: Serving, authority: Authority) -> None:
    """40 MB for a slow consumer: the broker keeps answering, and in the end all of it arrives in order."""
    count, body = 400, b"x" * 100_000
    slow = pika.BlockingConnection(parameters(broker.ports["amqps"], client_context(authority)))
    consuming = slow.channel()
    consuming.queue_declare("slow")
    seen: list[bytes] = []
    consuming.basic_consume("slow", lambda c, m, p, body: seen.append(body[:4]), auto_ack=True)
    fast = pika.BlockingConnection(parameters(broker.ports["amqps"], client_context(authority)))
    publishing = fast.channel()
    publishing.confirm_delivery()
    for index in range(count):
        publishing.basic_publish("", "slow", index.to_bytes(4, "big") + body)
    waiting = publishing.queue_declare("slow", passive=True).method.message_count
    assert waiting > count // 2, "all of it went into buffers"
    while len(seen) < count:
        slow.process_data_events(time_limit=10)
    assert seen == [index.to_bytes(4, "big") for index in range(count)]
    consuming.queue_delete("slow")
    fast.close()
    slow.close()


def test_what_a_lost_client_held_goes_to_another(broker: Serving, authority: Authority) -> None:
    context = client_context(authority)
    first = pika.BlockingConnection(parameters(broker.ports["amqps"], context))
    channel = first.channel()
    channel.queue_declare("lost")
    channel.basic_publish("", "lost", b"kept")
    method, _, _ = channel.basic_get("lost")
    while method is None:
        method, _, _ = channel.basic_get("lost")
    first._impl._transport._sock.shutdown(socket.SHUT_RDWR)  # no close_notify, no connection.close
    second = pika.BlockingConnection(parameters(broker.ports["amqps"], context))
    taker = second.channel()
    body: list[bytes] = []
    taker.basic_consume("lost", lambda c, m, p, b: body.append(b), auto_ack=True)
    while not body:
        second.process_data_events(time_limit=10)
    assert body == [b"kept"]
    taker.queue_delete("lost")
    second.close()


def test_the_broker_says_close_notify(broker: Serving, authority: Authority) -> None:
    """An unknown protocol is answered with ours, and the end of the stream is a proper one."""
    context = client_context(authority)
    with raw(broker.ports["amqps"], context) as client:
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert client.recv(100) == HEADER
        # Without close_notify this would raise SSLEOFError.
        assert client.recv(100) == b""


def test_a_header_in_pieces_is_put_together(broker: Serving, authority: Authority) -> None:
    with raw(broker.ports["amqps"], client_context(authority)) as client:
        client.sendall(HEADER[:3])
        client.sendall(HEADER[3:])
        frame = client.recv(65536)
        assert frame[:3] == b"\x01\x00\x00"
        assert frame[7:11] == b"\x00\x0a\x00\x0a"  # connection.start


def test_a_plain_client_is_turned_away(broker: Serving) -> None:
    with socket.create_connection(("127.0.0.1", broker.ports["amqps"]), timeout=30) as client:
        client.sendall(HEADER)
        octets = client.recv(100)
        assert not octets.startswith(b"AMQP")
        assert octets[:1] in (b"", b"\x15")  # an alert of TLS, if anything
        while octets:
            octets = client.recv(100)


def test_a_client_with_the_wrong_authority_refuses_the_broker(broker: Serving, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    with pytest.raises(ssl.SSLCertVerificationError):
        raw(broker.ports["amqps"], client_context(other))


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
def test_tls_1_1_is_refused(broker: Serving, authority: Authority) -> None:
    context = client_context(authority)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        raw(broker.ports["amqps"], context)


def test_clients_show_certificates_when_an_authority_is_set(authority: Authority, tmp_path: Path) -> None:
    file = configuration(authority, "strict", f'authority = "{authority.certificate}"\n')
    stranger = Authority(tmp_path, "stranger").sign("mallory")
    with serving("--config", str(file), schemes=SCHEMES) as server:
        known = client_context(authority, authority.sign("alice"))
        pika.BlockingConnection(parameters(server.ports["amqps"], known)).close()
        for shown in (None, stranger):
            assert is_turned_away(server.ports["amqps"], client_context(authority, shown))
    refusals = [line for line in server.errors if "no TLS with 127.0.0.1: " in line]
    assert len(refusals) == 2
    assert "peer did not return a certificate" in refusals[0]
    assert "certificate verify failed" in refusals[1]


def test_a_handshake_that_never_comes_is_ended(authority: Authority) -> None:
    file = configuration(authority, "impatient", "[limits]\nhandshake_timeout_s = 0.3\n")
    with serving("--config", str(file), schemes=SCHEMES) as server:
        with socket.create_connection(("127.0.0.1", server.ports["amqps"]), timeout=30) as silent:
            assert silent.recv(1) == b""
        with raw(server.ports["amqps"], client_context(authority)) as half:
            assert half.recv(1) == b""  # TLS is up, AMQP never starts


def test_sigterm_closes_tls_clients_with_320(authority: Authority) -> None:
    file = configuration(authority, "ending", "")
    with serving("--config", str(file), schemes=SCHEMES) as server:
        connection = pika.BlockingConnection(parameters(server.ports["amqps"], client_context(authority)))
        server.process.terminate()
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            connection.process_data_events(time_limit=30)
        assert closed.value.reply_code == 320
        assert server.wait() == 0


def refused(file: Path) -> str:
    command = [sys.executable, "-m", "flintmq", "serve", "--port", "0", "--config", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.count("\n") == 1
    return ended.stderr


def test_a_bad_certificate_or_key_is_one_line(authority: Authority, tmp_path: Path) -> None:
    good, other = authority.sign("good"), authority.sign("other")
    locked = authority.sign("locked", passphrase=b"secret")
    rubbish = write(tmp_path / "rubbish.pem", "not a certificate\n")
    of_other_kind = tmp_path / "rsa.key"
    made = ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]
    subprocess.run([*made, "-out", str(of_other_kind)], check=True, capture_output=True)
    unreadable = "together: what is needed is not in the file, or is encrypted; give"
    for certificate, key, why in (
        (rubbish, good.key, unreadable),
        (good.certificate, rubbish, unreadable),
        (good.certificate, other.key, "together: the key is not that of the certificate; give"),
        (good.certificate, of_other_kind, "together: the key is not that of the certificate; give"),
        (locked.certificate, locked.key, unreadable),
    ):
        file = write(
            tmp_path / "bad.toml", f'[tls]\ncertificate = "{certificate}"\nkey = "{key}"\nport = 0\n'
        )
        line = refused(file)
        named = f'flintmq: {file}: tls.certificate = "{certificate}" and tls.key = "{key}" are not'
        assert line.startswith(named)
        assert why in line
    text = f'[tls]\ncertificate = "{good.certificate}"\nkey = "{good.key}"\nauthority = "{rubbish}"\n'
    assert 'tls.authority = "' in refused(write(tmp_path / "bad.toml", text))
