"""From a configuration to a running broker, and from a signal to its orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import sys
from typing import TYPE_CHECKING

from flintmq import __version__
from flintmq.build import build, event_loop
from flintmq.clock import Clock
from flintmq.server.log_lines import LogLines
from flintmq.server.server import Server

if TYPE_CHECKING:
    from flintmq.config import Config

log = logging.getLogger("flintmq.server")

# Messages are not tracked by the collector, deliveries are: with its default of 700 new objects it
# would run thousands of times a second and find nothing.
GC_NEW_OBJECTS = 100_000


def run(config: Config) -> int:
    """Serves until SIGTERM or SIGINT; the exit status."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogLines())
    logging.basicConfig(level=config.log.level.upper(), handlers=[handler])
    raise_descriptor_limit(config.limits.connections_max + 64)
    gc.freeze()
    gc.set_threshold(GC_NEW_OBJECTS, 20, 100)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(serve(config))
    return 0


async def serve(config: Config) -> None:
    loop = asyncio.get_running_loop()
    server = Server(config, Clock(), loop)
    urls = server.listen()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    for url in urls:
        say(f"flintmq {__version__} ({build()} build) listening on {url}")
    if config.storage.directory is None:
        log.info("without a data directory all ends with the broker; flintmq serve --data DIR keeps it")
    await stop.wait()
    say("flintmq is stopping")
    await server.stop()


def say(line: str) -> None:
    """For whoever started it: on standard output, at once."""
    sys.stdout.write(line + "\n")
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()


def loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    if event_loop() == "uvloop":
        import uvloop

        factory: type[asyncio.AbstractEventLoop] = uvloop.Loop
        return factory
    return None


def raise_descriptor_limit(wanted: int) -> None:
    """As many descriptors as the connections need, if the system lets us have them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft < possible:
        resource.setrlimit(resource.RLIMIT_NOFILE, (possible, hard))
