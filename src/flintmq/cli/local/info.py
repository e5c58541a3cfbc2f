"""`flintmq info`: what is installed and how it was built."""

from __future__ import annotations

import platform

from flintmq import __version__
from flintmq.build import build, compiled_modules, event_loop

PROTOCOLS = ("AMQP 0-9-1", "AMQP 0-9", "AMQP 0-8", "AMQP/Fast 0.9", "AMQP/Fast 0.8")


def info() -> str:
    compiled = len(compiled_modules())
    lines = {
        "version": __version__,
        "build": build() + (f" ({compiled} modules)" if compiled else ""),
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "event loop": event_loop(),
        "protocols": ", ".join(PROTOCOLS),
    }
    return "\n".join(f"{name:<12}{value}" for name, value in lines.items())
