"""The console's files: read once, served from memory, under a path that changes when one of them does.

    /                        index.html, asked for anew each time (ETag)
    /console/<digest>/...    all else, which browsers may keep for ever

Only files that were there at the start can be asked for: a path is a key of a dictionary, never a file name.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response

CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain; charset=utf-8",
    "VERSIONS": "text/plain; charset=utf-8",
}
FOREVER = "public, max-age=31536000, immutable"
ASK_AGAIN = "no-cache"
# Where index.html says it, the digest of this version goes.
DIGEST_PLACE = b"@digest@"
# Shorter ones do not get shorter.
GZIP_BYTES_MIN = 512


@dataclass(frozen=True)
class StaticFile:
    octets: bytes
    zipped: bytes
    content_type: str
    etag: str
    cache_control: str


class StaticFiles:
    """All files of the console, by the path they are asked for."""

    def __init__(self) -> None:
        found = dict(sorted(walk(files("flintmq.management") / "console", "")))
        digest = hashlib.sha256()
        for name, octets in found.items():
            digest.update(b"%d %s %d " % (len(name), name.encode(), len(octets)) + octets)
        self.digest = digest.hexdigest()[:16]
        page = found.pop("index.html").replace(DIGEST_PLACE, self.digest.encode())
        self.by_path = {"/": made(page, "index.html", ASK_AGAIN)}
        for name, octets in found.items():
            self.by_path[f"/console/{self.digest}/{name}"] = made(octets, name, FOREVER)

    def answer(self, request: Request) -> Response | None:
        """None if this is no path of the console."""
        file = self.by_path.get(request.scope["path"])
        if file is None or request.method not in ("GET", "HEAD"):
            return None
        headers = {"etag": file.etag, "cache-control": file.cache_control}
        if file.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        octets = file.octets
        if file.zipped and "gzip" in request.headers.get("accept-encoding", ""):
            octets = file.zipped
            headers["content-encoding"] = "gzip"
        return Response(octets, headers=headers, media_type=file.content_type)


def walk(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for each in folder.iterdir():
        if each.is_dir():
            found += walk(each, f"{prefix}{each.name}/")
        elif type_of(each.name):
            found.append((prefix + each.name, each.read_bytes()))
    return found


def type_of(name: str) -> str:
    return next((kind for end, kind in CONTENT_TYPES.items() if name.endswith(end)), "")


def made(octets: bytes, name: str, cache_control: str) -> StaticFile:
    etag = f'"{hashlib.sha256(octets).hexdigest()[:32]}"'
    zipped = gzip.compress(octets, mtime=0) if len(octets) >= GZIP_BYTES_MIN else b""
    return StaticFile(octets, zipped, type_of(name), etag, cache_control)
