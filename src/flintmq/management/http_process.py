"""The management process: an HTTP server on the sockets that `flintmq serve` hands to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn import Server as UvicornServer

from flintmq.management import pipeline_watch, priority
from flintmq.management.app import App
from flintmq.management.broker_state.broker_link import BrokerLink
from flintmq.management.requests.context import Context, Listening
from flintmq.management.requests.http_connection import HttpConnection

log = logging.getLogger("flintmq.management")

CONNECTIONS_MAX = 1000
# For the TLS handshake, before any limit of ours counts the connection.
HANDSHAKE_S = 5.0


class HttpServer(UvicornServer):
    """Ends when the broker does, not by the signals of a terminal, which both get."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listening_on(sockets: list[socket.socket], scheme: str) -> list[dict[str, Any]]:
    found = []
    for each in sockets:
        address, port = each.getsockname()[:2]
        found.append({"protocol": scheme, "ip_address": address, "port": port})
    return found


def config_of(app: ASGIApp, certificate: str | None, key: str | None) -> Config:
    return Config(
        app,
        http=HttpConnection,
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        interface="asgi3",
        ssl_certfile=certificate,
        ssl_keyfile=key,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=1,
    )


async def tell_alive(control: socket.socket, ping_s: float) -> None:
    """An octet over `control` now and then: the broker ends a process that says nothing."""
    while True:
        # A full socket has octets that the broker is yet to read. When the broker is gone, the reader of
        # `control` ends this process.
        with contextlib.suppress(OSError):
            control.send(b"p", socket.MSG_DONTWAIT)
        await asyncio.sleep(ping_s)


async def serve(settings: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    control = socket.socket(fileno=settings["control"])
    sockets = [socket.socket(fileno=descriptor) for descriptor in settings["sockets"]]
    scheme = "http" if settings["certificate"] is None else "https"
    link = BrokerLink(control)
    state = settings["pipelines"]
    listening = Listening(settings["amqp"], listening_on(sockets, scheme))
    context = Context(link, listening, None if state is None else Path(state))
    context.log_file, context.audit_file = settings["log_file"], settings["audit_file"]
    server = HttpServer(config_of(App(context), settings["certificate"], settings["key"]))

    def end() -> None:
        server.should_exit = True

    # The broker says nothing over `control`: it is readable when the broker is gone.
    loop.add_reader(control.fileno(), end)
    loop.add_signal_handler(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tasks = [
        loop.create_task(context.samples.watch()),
        loop.create_task(context.queue_history.watch()),
        loop.create_task(context.client_watch.watch()),
        loop.create_task(context.doctor.watch()),
        loop.create_task(pipeline_watch.follow(context)),
        loop.create_task(tell_alive(control, settings["ping_s"])),
    ]
    try:
        await server.serve(sockets=sockets)
    finally:
        for task in tasks:
            task.cancel()


def run(settings: dict[str, Any]) -> None:
    logging.basicConfig(
        level=settings["log_level"].upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    priority.give_way()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(settings))


def loop_factory() -> Any:
    from flintmq.build import event_loop

    kind: Any = asyncio.SelectorEventLoop
    if event_loop() == "uvloop":
        import uvloop

        kind = uvloop.Loop

    class Loop(kind):  # type: ignore[misc]
        """uvicorn leaves it to the loop how long a TLS handshake may take: 60 s."""

        async def create_server(self, *arguments: Any, **options: Any) -> Any:
            if options.get("ssl") is not None:
                options["ssl_handshake_timeout"] = HANDSHAKE_S
                options["ssl_shutdown_timeout"] = HANDSHAKE_S
            return await super().create_server(*arguments, **options)

    return Loop
