"""A directory that speaks as much LDAP as a login needs: bind, search by member, unbind."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Iterator
from typing import Any

from ldap3.protocol import rfc4511
from pyasn1.codec.ber import decoder, encoder
from pyasn1.error import SubstrateUnderrunError

SUCCESS, BUSY, INVALID_CREDENTIALS = 0, 51, 49


class Directory(socketserver.ThreadingTCPServer):
    """`passwords` by distinguished name, `groups` with the names of their members."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.passwords: dict[str, str] = {}
        self.groups: dict[str, list[str]] = {}
        self.binds: list[str] = []
        self.mode = ""

    @property
    def url(self) -> str:
        return f"ldap://127.0.0.1:{self.server_address[1]}"


class Handler(socketserver.BaseRequestHandler):
    server: Directory

    def handle(self) -> None:
        octets = b""
        while found := self.request.recv(65536):
            octets += found
            while octets:
                try:
                    message, octets = decoder.decode(octets, asn1Spec=rfc4511.LDAPMessage())
                except SubstrateUnderrunError:
                    break
                if self.server.mode == "hangs":
                    continue
                if self.server.mode == "garbage":
                    self.request.sendall(b"\x30\x84\xff\xff\xff\xff garbage")
                    return
                self.serve(int(message["messageID"]), message["protocolOp"])

    def serve(self, number: int, operation: Any) -> None:
        kind, asked = operation.getName(), operation.getComponent()
        if kind == "bindRequest":
            name, password = str(asked["name"]), str(asked["authentication"].getComponent())
            self.server.binds.append(name)
            # As servers do: without a password it is an anonymous bind, which succeeds.
            is_right = not password or self.server.passwords.get(name) == password
            code = SUCCESS if is_right else INVALID_CREDENTIALS
            self.say(
                number, "bindResponse", rfc4511.BindResponse(), BUSY if self.server.mode == "busy" else code
            )
        elif kind == "searchRequest":
            member = str(asked["filter"].getComponent()["assertionValue"])
            for group, members in self.server.groups.items():
                if member in members:
                    entry = rfc4511.SearchResultEntry()
                    entry["object"] = group
                    entry["attributes"] = rfc4511.PartialAttributeList()
                    self.send(number, "searchResEntry", entry)
            self.say(number, "searchResDone", rfc4511.SearchResultDone(), SUCCESS)

    def say(self, number: int, kind: str, result: Any, code: int) -> None:
        result["resultCode"] = code
        result["matchedDN"] = ""
        result["diagnosticMessage"] = ""
        self.send(number, kind, result)

    def send(self, number: int, kind: str, content: Any) -> None:
        message = rfc4511.LDAPMessage()
        message["messageID"] = number
        message["protocolOp"] = rfc4511.ProtocolOp().setComponentByName(kind, content)
        self.request.sendall(encoder.encode(message))


@contextlib.contextmanager
def directory() -> Iterator[Directory]:
    server = Directory()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
