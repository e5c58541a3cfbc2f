"""Both clients over TLS: who is trusted, and what is said when not."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from live.certificates import Authority
from live.serving import serving

from flintmq.client import ConnectFailed, aio, connect
from flintmq.client.core.endpoints import connect_failed
from flintmq.client.core.settings import parse_uri


def test_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    stranger = Authority(tmp_path, "a stranger")
    server = authority.sign("server")
    config = tmp_path / "flintmq.toml"
    config.write_text(f'[tls]\nport = 0\ncertificate = "{server.certificate}"\nkey = "{server.key}"\n')
    with serving("--config", str(config), schemes=("amqp", "amqps")) as broker:
        base = f"amqps://guest:guest@127.0.0.1:{broker.ports['amqps']}"
        uri = f"{base}?cacertfile={authority.certificate}"
        with connect(uri) as connection, connection.channel(confirm=True) as channel:
            queue = channel.queue(exclusive=True)
            channel.publish_many([bytes(1000)] * 5000, routing_key=queue.name)
            with queue.consume(timeout_s=5) as consumer:
                assert (
                    sum(1 for _, message in zip(range(5000), consumer, strict=False) if message.ack()) == 5000
                )

        async def same() -> None:
            async with await aio.connect(uri) as connection, connection.channel(confirm=True) as channel:
                queue = await channel.queue(exclusive=True)
                await channel.publish_many([bytes(1000)] * 5000, routing_key=queue.name)
                consumer = await queue.consume(no_ack=True)
                count = 0
                while count < 5000:
                    count += len(await consumer.take(1000))
            with pytest.raises(ConnectFailed, match="is not trusted"):
                await aio.connect(f"{base}?cacertfile={stranger.certificate}")

        asyncio.run(same())
        with pytest.raises(
            ConnectFailed, match=r"is not trusted: .*; name its authority: \?cacertfile=FILE in the URL"
        ):
            connect(f"{base}?cacertfile={stranger.certificate}")
        with connect(f"{base}?verify=verify_none") as connection:
            assert connection.is_open
        with pytest.raises(ConnectFailed):
            connect(f"amqps://guest:guest@127.0.0.1:{broker.ports['amqp']}?verify=verify_none")


@pytest.mark.parametrize(
    ("code", "message", "told"),
    [
        (
            62,
            "Hostname mismatch, certificate is not valid for 'x'.",
            "'x'; connect by a name that its certificate",
        ),
        (64, "IP address mismatch, certificate is not valid for '::1'.", "'::1'; connect by a name that its"),
        (10, "certificate has expired", "expired; have the certificate of the broker renewed"),
        (18, "self-signed certificate", "self-signed certificate; name its authority: ?cacertfile=FILE"),
    ],
)
def test_a_certificate_that_is_not_trusted_comes_with_what_helps(code: int, message: str, told: str) -> None:
    error = ssl.SSLCertVerificationError()
    error.verify_code, error.verify_message = code, message
    settings = parse_uri("amqps://mq.example.com")
    assert told in str(connect_failed(settings, settings.endpoints[0], error))
