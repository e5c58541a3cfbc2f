"""Which build of FlintMQ runs: its hot modules compiled, or all of it as plain Python."""

from __future__ import annotations

from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

Build = Literal["compiled", "pure"]


def compiled_modules(package: Path | None = None) -> list[str]:
    """The modules that lie beside their source as machine code. All of the hot ones, or none."""
    import pathlib  # for `flintmq info`: the start of a broker does without

    package = package or pathlib.Path(__file__).parent
    names: set[str] = set()
    for path in package.rglob("*"):
        suffix = next((known for known in EXTENSION_SUFFIXES if path.name.endswith(known)), None)
        if suffix is not None:
            place = path.relative_to(package.parent).as_posix()
            names.add(place.removesuffix(suffix).replace("/", "."))
    return sorted(names)


@cache
def build() -> Build:
    """By one of the hot modules, as all of them are compiled, or none: to look for files takes longer."""
    spec = find_spec("flintmq.wire.content")
    origin = "" if spec is None or spec.origin is None else spec.origin
    return "compiled" if origin.endswith(tuple(EXTENSION_SUFFIXES)) else "pure"


def event_loop() -> Literal["uvloop", "asyncio"]:
    """The event loop that `flintmq serve` takes: uvloop where it is installed."""
    return "uvloop" if find_spec("uvloop") is not None else "asyncio"
