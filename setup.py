"""Compiles the modules of the hot path; everything else about the package is in pyproject.toml.

FLINTMQ_PURE=1 asks for the pure Python build. Otherwise a failed compile is a failed build:
a package with some modules compiled and others not does not import. On Windows the build is always pure:
the compiled modules call the sockets of Unix.
FLINTMQ_CHECKED=1 builds with bounds and None checks on, for tests.
"""

import os
import sys
import threading
import time

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HOT_MODULES = (
    "broker.agenda",
    "broker.binding",
    "broker.broker",
    "broker.channel",
    "broker.condition",
    "broker.consumer",
    "broker.delivery",
    "broker.exchange",
    "broker.field_equality",
    "broker.headers_condition",
    "broker.intervals",
    "broker.lookup",
    "broker.match_index",
    "broker.message",
    "broker.priority_queue",
    "broker.prop_wild",
    "broker.queue",
    "broker.regexp_condition",
    "broker.regime",
    "broker.ring",
    "broker.route",
    "broker.selection",
    "broker.selector",
    "broker.selector_exchange",
    "broker.shelf",
    "broker.shelving",
    "broker.store",
    "broker.stream_queue",
    "broker.stream_reader",
    "broker.tally",
    "broker.topic_trie",
    "broker.virtual_host",
    "broker.wildcard",
    "client.batch",
    "client.inbox",
    "client.message",
    "protocol.channel",
    "protocol.client",
    "protocol.client_events",
    "protocol.connection",
    "protocol.events",
    "regexp",
    "server.link",
    "server.listener",
    "server.readiness",
    "server.rush",
    "server.session",
    "server.turns",
    "storage.appender",
    "storage.batch",
    "storage.index",
    "storage.journal",
    "storage.reader",
    "storage.record",
    "storage.replay",
    "storage.segment",
    "storage.stream_chunk",
    "storage.stream_columns",
    "wire.content",
    "wire.headers",
    "wire.output",
)


# Without -g: what a debugger would read of Python compiled to C is a quarter of the compiler's time.
COMPILE_FLAGS = ["-O2", "-g0"]
PROCESSORS = os.cpu_count() or 1


class TellingBuild(build_ext):
    """Tells each module that it has compiled, and how many there are: the whole takes minutes."""

    told = 0
    lock = threading.Lock()  # several are compiled at a time

    def build_extension(self, ext: Extension) -> None:
        began_s = time.monotonic()
        super().build_extension(ext)
        took_s = time.monotonic() - began_s
        with self.lock:
            TellingBuild.told += 1
            print(f"[{self.told:2}/{len(self.extensions)}] Compiled {ext.name} in {took_s:.1f} s", flush=True)


def extensions() -> list[Extension]:
    if os.environ.get("FLINTMQ_PURE") or sys.platform == "win32":
        return []
    from Cython.Build import cythonize

    checked = bool(os.environ.get("FLINTMQ_CHECKED"))
    return cythonize(
        [
            Extension(
                f"flintmq.{name}",
                [f"src/flintmq/{name.replace('.', '/')}.py"],
                extra_compile_args=COMPILE_FLAGS,
            )
            for name in HOT_MODULES
        ],
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
