"""Compiles the modules of the hot path; everything else about the package is in pyproject.toml.

FLINTMQ_PURE=1 asks for the pure Python build. Otherwise a failed compile is a failed build:
a package with some modules compiled and others not does not import. On Windows the build is always pure:
the compiled modules call the sockets of Unix.
FLINTMQ_CHECKED=1 builds with bounds and None checks on, for tests.
"""

import os
import shlex
import shutil
import sys
import sysconfig
import threading
import time
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HOT_MODULES = (
    "broker.broker",
    "broker.channels.channel",
    "broker.channels.client_connection",
    "broker.channels.confirms",
    "broker.channels.unacked",
    "broker.exchanges.binding",
    "broker.exchanges.exchange",
    "broker.exchanges.route",
    "broker.exchanges.router",
    "broker.exchanges.selector_exchange",
    "broker.matching.condition",
    "broker.matching.counted_set",
    "broker.matching.field_equality",
    "broker.matching.headers_condition",
    "broker.matching.intervals",
    "broker.matching.lookup",
    "broker.matching.match_index",
    "broker.matching.prop_wild",
    "broker.matching.regexp_condition",
    "broker.matching.selector",
    "broker.matching.topic_trie",
    "broker.matching.wildcard",
    "broker.messages.message",
    "broker.queues.consumer",
    "broker.queues.delivery",
    "broker.queues.paged_tail",
    "broker.queues.priority_queue",
    "broker.queues.queue",
    "broker.queues.queue_survey",
    "broker.queues.active_rules",
    "broker.queues.consumer_choice",
    "broker.queues.expiry",
    "broker.queues.limits",
    "broker.queues.retries",
    "broker.queues.service_goals",
    "broker.queues.ring",
    "broker.queues.stream_backlog",
    "broker.queues.stream_terms",
    "broker.queues.consumer_selector",
    "broker.queues.consumer_terms",
    "broker.scheduling.pass_work",
    "broker.store.store",
    "broker.store.topology_records",
    "broker.streams.stream_queue",
    "broker.streams.stream_reader",
    "broker.tail_recovery",
    "broker.virtual_host",
    "client.core.batch",
    "client.core.inbox",
    "client.core.message",
    "histogram",
    "patterns.regexp",
    "protocol.channel",
    "protocol.client",
    "protocol.client_events",
    "protocol.connection",
    "protocol.events",
    "protocol.fast.connection",
    "protocol.fast.handle",
    "protocol.fast.outbox",
    "protocol.fast09.connection",
    "protocol.fast09.outbox",
    "protocol.outbox",
    "server.logins.strangers",
    "server.network.link",
    "server.network.listener",
    "server.event_loop.pass_scheduler",
    "server.event_loop.read_coalescing",
    "server.network.readiness",
    "server.sessions.handshake",
    "server.sessions.parting",
    "server.sessions.session",
    "storage.disk",
    "storage.journal.appender",
    "storage.journal.batch",
    "storage.journal.index",
    "storage.journal.journal",
    "storage.journal.reader",
    "storage.journal.record",
    "storage.journal.replay",
    "storage.journal.segment",
    "storage.streams.chunk",
    "storage.streams.columns",
    "wire.content",
    "wire.fast09.jms_header",
    "wire.headers",
    "wire.tables",
)


# Without -g: what a debugger would read of Python compiled to C is a quarter of the compiler's time.
COMPILE_FLAGS = ["-O2", "-g0"]
# Code and constants in one piece of the file, as lld has it: a start loads 70 files, and each piece takes a
# system call and page faults.
LINK_FLAGS = ["-Wl,-z,noseparate-code"] if sys.platform == "linux" else []
PROCESSORS = os.cpu_count() or 1


class TellingBuild(build_ext):
    """Tells each module that it has compiled, and how many there are: the whole takes minutes.

    Whether there is a compiler is asked before these minutes, and Cython runs here alone: what pip asks of a
    package before it builds one (its requirements, the Python that it needs) is answered at once.
    """

    told = 0
    lock = threading.Lock()  # several are compiled at a time

    def run(self) -> None:
        if self.extensions:
            lack = missing()
            if lack is not None:
                raise SystemExit(f"{lack} FLINTMQ_PURE=1 builds FlintMQ without a compiler: it is slower.")
            translated = {each.name: each for each in in_c(self.extensions)}
            for ext in self.extensions:
                ext.sources, ext.depends = translated[ext.name].sources, translated[ext.name].depends
        super().run()

    def build_extension(self, ext: Extension) -> None:
        began_s = time.monotonic()
        super().build_extension(ext)
        took_s = time.monotonic() - began_s
        with self.lock:
            TellingBuild.told += 1
            print(f"[{self.told:2}/{len(self.extensions)}] Compiled {ext.name} in {took_s:.1f} s", flush=True)


def missing() -> str | None:
    """What there is to install before C can be compiled against this Python; None if nothing."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    include = Path(sysconfig.get_path("include"))
    if shutil.which(compiler) is None:
        return f"No C compiler here ('{compiler}' is not found); on Debian: apt-get install gcc libc6-dev."
    if not (include / "Python.h").is_file():
        return f"Python's C headers are missing ({include}/Python.h); on Debian: apt-get install python3-dev."
    return None


def extensions() -> list[Extension]:
    if os.environ.get("FLINTMQ_PURE") or sys.platform == "win32":
        return []
    return [
        Extension(
            f"flintmq.{name}",
            [f"src/flintmq/{name.replace('.', '/')}.py"],
            extra_compile_args=COMPILE_FLAGS,
            extra_link_args=LINK_FLAGS,
        )
        for name in HOT_MODULES
    ]


def in_c(modules: list[Extension]) -> list[Extension]:
    """The same modules, whose sources are the C that Cython makes of them."""
    from Cython.Build import cythonize

    checked = bool(os.environ.get("FLINTMQ_CHECKED"))
    return cythonize(
        modules,
        include_path=["src"],
        build_dir="build/cython",
        nthreads=PROCESSORS,
        compiler_directives={
            "language_level": 3,
            "annotation_typing": False,
            "auto_pickle": False,
            "boundscheck": checked,
            "wraparound": True,
            "nonecheck": checked,
            "cdivision": True,
        },
    )


if __name__ == "__main__":
    setup(
        ext_modules=extensions(),
        cmdclass={"build_ext": TellingBuild},
        options={"build_ext": {"parallel": PROCESSORS}},
    )
