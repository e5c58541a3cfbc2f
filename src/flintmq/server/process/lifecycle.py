"""From a configuration to a running broker, and from a signal to its orderly end.

    SIGTERM, SIGINT    an orderly end
    SIGHUP             opens the log file again, reads the certificates and the settings again
    SIGUSR1, SIGUSR2   a line in the log that tells how the broker is

A system that lacks some of these signals does without them.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from flintmq import __version__
from flintmq.build import build, event_loop
from flintmq.clock import Clock, MovableClock
from flintmq.errors import NO_THREAD, ConfigFault, NotRegularFile
from flintmq.server import descriptors
from flintmq.server.event_loop.loop_faults import LoopFaults
from flintmq.server.logs import log_floods
from flintmq.server.logs.log_lines import LogLines, LogOutput, leave_out_unused
from flintmq.server.logs.rotated_file import RotatedFile
from flintmq.server.process.management_process import ManagementProcess
from flintmq.server.process.settings_change import STAY, change_settings
from flintmq.server.server import STOP_TIMEOUT_S, Server

if TYPE_CHECKING:
    from flintmq.config import Config

log = logging.getLogger("flintmq.server")

# Messages are not tracked by the collector, deliveries are: with its default of 700 new objects it
# would run thousands of times a second and find nothing. A round looks at the objects that have come and
# stayed, which takes a millisecond for so many. Those that have stayed are looked at once more, so many at a
# time: some 5 ms, in which nobody is served. All objects are looked at after hundreds of millions.
GC_NEW_OBJECTS = 10_000
# The same where somebody sends little, who must not wait for the garbage of strangers and hoarders.
GC_NEW_OBJECTS_FEW = 1000
GC_STAYED_OBJECTS = 200_000
GC_ALL_ROUNDS = 1000
# Clients of a broker that ends with its input have this long to answer connection.close: those that
# read answer within a millisecond, and those that do not would hold up the tests it was started for.
INPUT_STOP_TIMEOUT_S = 0.1
# Of a broker that ends with something that is not on disk; the log says what.
EXIT_UNSAFE = 1


def run(
    config: Config,
    ends_with_input: bool = False,
    read_settings: Callable[[], Config] | None = None,
    rehearsal_s: float | None = None,
) -> int:
    """Serves until SIGTERM or SIGINT, and if `ends_with_input` until standard input ends; the exit status.

    `read_settings` reads the file again that the settings are from, if there is one. `rehearsal_s` is given
    for tests: standard input brings commands, and the broker's clock is ahead by so much.
    """
    gc.freeze()
    gc.enable()
    collect_in_rounds(True)
    output = LogOutput(config.log)
    leave_out_unused()
    logging.basicConfig(level=config.log.level.upper(), handlers=[output.handler], force=True)
    log_floods.STRANGERS.addFilter(log_floods.floods)
    descriptors.raise_limit(config.limits.connections_max)
    heed_sigterm_from_the_start()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        is_safe = runner.run(serve(config, output, ends_with_input, read_settings, rehearsal_s))
    return 0 if is_safe else EXIT_UNSAFE


def heed_sigterm_from_the_start() -> None:
    """A SIGTERM ends the start of a broker that is process 1 of a container, as it does elsewhere.

    To process 1 the kernel gives only signals that it has asked for, and `serve` asks when all is recovered.
    A start that is cut short costs nothing: the next one begins anew.
    """
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))


def collect_in_rounds(little_waits: bool) -> None:
    """Sets how many new objects a round of the collector looks at, by who waits for it."""
    objects = GC_NEW_OBJECTS_FEW if little_waits else GC_NEW_OBJECTS
    gc.set_threshold(objects, GC_STAYED_OBJECTS // objects, GC_ALL_ROUNDS)


async def serve(
    config: Config,
    output: LogOutput,
    ends_with_input: bool,
    read_settings: Callable[[], Config] | None,
    rehearsal_s: float | None,
) -> bool:
    """Until the end; whether all is well then, and everything on disk."""
    loop = asyncio.get_running_loop()
    end = End(loop)
    faults = LoopFaults(end.come, loop.time)
    loop.set_exception_handler(faults.heed)
    gc.disable()
    try:
        server, follow_input = new_server(config, loop, rehearsal_s)
    finally:
        # What recovery has made stays as long as the process does: else the first collection looks at all of
        # it, which takes seconds, and so does the last.
        gc.freeze()
        gc.enable()
    server.scheduler.waiting_changed = collect_in_rounds
    urls = server.listen()
    management = None if config.management is None else ManagementProcess(server, config.management)
    pages = [] if management is None else management.start()
    server.strangers.leave_files()
    for name in ("SIGTERM", "SIGINT", "SIGBREAK"):
        on_signal(loop, name, end.come)
    on_signal(loop, "SIGHUP", lambda: read_again(server, output, read_settings))
    for name in ("SIGUSR1", "SIGUSR2"):
        on_signal(loop, name, lambda: log.info("%s", server.summary()))
    if ends_with_input:
        try:
            threading.Thread(target=end.come_after, args=(follow_input,), name="input", daemon=True).start()
        except RuntimeError:
            raise OSError(errno.EAGAIN, NO_THREAD) from None
    for url in urls:
        say(f"flintmq {__version__} ({build()} build) listening on {url}")
    for url in pages:
        say(f"management on {url}")
    say_where_data_is(config)
    await end.event.wait()
    faults.stopping()
    say("flintmq is stopping")
    if management is not None:
        management.stop()
    return await server.stop(end.timeout_s) and not faults.has_ended_broker


def say_where_data_is(config: Config) -> None:
    if config.storage.directory is None:
        log.info("without a data directory all ends with the broker; flintmq serve --data DIR keeps it")
    else:
        log.info("the data is in %s", os.path.abspath(config.storage.directory))


def new_server(
    config: Config, loop: asyncio.AbstractEventLoop, rehearsal_s: float | None
) -> tuple[Server, Callable[[], None]]:
    """The server, and what reads standard input to its end."""
    if rehearsal_s is None:
        return Server(config, Clock(), loop), read_input
    from flintmq.server.process.rehearsal import RehearsalServer

    server = RehearsalServer(config, MovableClock(rehearsal_s), loop)
    return server, server.follow_input


def read_input() -> None:
    """Whatever it brings means nothing."""
    while os.read(0, 4096):
        pass


class End:
    """When the broker is to stop, and how long its clients have to answer then."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.event = asyncio.Event()
        self.timeout_s = STOP_TIMEOUT_S

    def come(self) -> None:
        self.event.set()

    def come_soon(self) -> None:
        self.timeout_s = INPUT_STOP_TIMEOUT_S
        self.event.set()

    def come_after(self, follow_input: Callable[[], None]) -> None:
        """In a thread: not every system has an event loop that can wait for a pipe."""
        with contextlib.suppress(OSError):
            follow_input()
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            self.loop.call_soon_threadsafe(self.come_soon)


def on_signal(loop: asyncio.AbstractEventLoop, name: str, act: Callable[[], None]) -> None:
    """Has the loop act on a signal, where the system knows it."""
    number = getattr(signal, name, None)
    if number is None:
        return
    try:
        loop.add_signal_handler(number, act)
    except NotImplementedError:  # as on Windows; the loop wakes up for its next tick at the latest
        signal.signal(number, lambda _number, _frame: loop.call_soon_threadsafe(act))


def read_again(server: Server, output: LogOutput, read_settings: Callable[[], Config] | None) -> None:
    """What can change while the broker runs: the log file, if it was moved away, certificates, settings."""
    done = []
    if log_again(server, output):
        done.append("the log file is open again")
    if server.audit is not None:
        server.audit.reopen()
        done.append("the audit log is opened again")
    try:
        if server.read_certificates():
            done.append("new connections get the certificates as they are now")
    except ConfigFault as fault:
        log.error("the certificates stay as they were: %s", fault)
    if read_settings is not None:
        try:
            if change_settings(server, read_settings()):
                done.append("the settings were read")
        except NotRegularFile as fault:
            log.error("SIGHUP: the settings that were in force before stay in force: %s", fault)
        except ConfigFault as fault:
            log.error(STAY, fault)
        except Exception:
            log.exception("a bug in reading the settings again")
    log.info("SIGHUP: %s", ", ".join(done) or "nothing was read again")


def log_again(server: Server, output: LogOutput) -> bool:
    """Opens the log file again; where that fails it is told outside of a log that nobody may ever find."""
    try:
        is_open = output.reopen()
    except OSError as error:
        server.log_fault = f"the log file cannot be opened again: {error.strerror or error}"
        text = f"the log goes on in the file that is open, which may be moved away or deleted: {error}"
        say(text, logging.ERROR, sys.stderr)
        return False
    server.log_fault = ""
    return is_open


def say(text: str, level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """For whoever started it: in the log file, then on standard output, at once, whatever the level."""
    record = log.makeRecord(log.name, level, __file__, 0, text, (), None)
    line = ""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and isinstance(handler.stream, RotatedFile):
            handler.handle(record)
        line = handler.format(record)
    with contextlib.suppress(OSError):  # nobody reads it any more
        stream = stream or sys.stdout
        stream.write((line or LogLines().format(record)) + "\n")
        stream.flush()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    if event_loop() == "uvloop":
        import uvloop

        factory: type[asyncio.AbstractEventLoop] = uvloop.Loop
        return factory
    # Not what Windows takes by default, which cannot watch sockets.
    return asyncio.SelectorEventLoop
