"""A web server as RabbitMQ's HTTP back end asks one; it can be slow, lie, trickle, or break off."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

Question = dict[str, str]


class PermissionServer(ThreadingHTTPServer):
    """Answers by `decide(path, question)`; `asked` has all questions so far."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, Question]] = []
        self.decide: Callable[[str, Question], str] = lambda path, question: "deny"
        self.mode = ""
        self.released = threading.Event()  # what a slow answer waits for

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def count(self, path: str, **those: str) -> int:
        return sum(
            asked_path == path and those.items() <= question.items() for asked_path, question in self.asked
        )


class Handler(BaseHTTPRequestHandler):
    server: PermissionServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.answer(parts.path, dict(parse_qsl(parts.query, keep_blank_values=True)))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(self.path, dict(parse_qsl(body.decode(), keep_blank_values=True)))

    def answer(self, path: str, question: Question) -> None:
        server = self.server
        server.asked.append((path, question))
        with contextlib.suppress(OSError):  # the broker does not wait for ever
            if server.mode == "slow":
                server.released.wait(30)
            if server.mode == "trickle":
                self.trickle()
            elif server.mode == "redirect":
                self.send_response(302)
                self.send_header("Location", f"{server.url}/elsewhere")
                self.end_headers()
            elif server.mode == "huge":
                self.say(b"allow " + b"x" * 100_000)
            elif server.mode == "garbage":
                self.wfile.write(b"\x00\xff" * 100)
            elif server.mode == "maybe":
                self.say(b"allowed, I guess")
            else:
                self.say(server.decide(path, question).encode())

    def say(self, octets: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(octets)))
        self.end_headers()
        self.wfile.write(octets)

    def trickle(self) -> None:
        """An octet now and then: no single wait is long."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while not self.server.released.wait(0.05):
            self.wfile.write(b"x")
            self.wfile.flush()

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing is written down."""


@contextlib.contextmanager
def permission_server() -> Iterator[PermissionServer]:
    server = PermissionServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
