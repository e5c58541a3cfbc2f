"""`flintmq tls dev-cert DIR`: a certificate authority of one's own, and certificates that it has signed.

    DIR/ca.pem, ca.key            the authority: clients trust ca.pem; made once, then used again
    DIR/server.pem, server.key    for the broker, with the names and addresses it is reached by
    DIR/NAME.pem, NAME.key        for a client, with --client NAME

For development and for networks of one's own. Made by the command `openssl`, which most machines have.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from flintmq.errors import ConfigFault, FlintError

CA_DAYS = 3650
DAYS = 825  # the most that some clients accept
CLIENT_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")

CA_SETTINGS = """
[req]
distinguished_name = name
x509_extensions = extensions
prompt = no
[name]
CN = FlintMQ development authority
[extensions]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
"""
LEAF_SETTINGS = """
[req]
distinguished_name = name
prompt = no
[name]
CN = {name}
[extensions]
basicConstraints = critical, CA:false
keyUsage = critical, digitalSignature
extendedKeyUsage = {usage}
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {others}
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    tls = commands.add_parser("tls", help="make certificates for TLS", description="See docs/tls.md.")
    tasks = tls.add_subparsers(dest="task", metavar="TASK", required=True)
    words = "make a local authority and a certificate that it has signed"
    made = tasks.add_parser("dev-cert", help=words, description=words[0].upper() + words[1:] + ".")
    made.add_argument("directory", metavar="DIR", help="where the files go; an authority there is used again")
    made.add_argument(
        "--host",
        action="append",
        metavar="H",
        help="how clients reach the broker; may be repeated (as before, or localhost, 127.0.0.1, ::1)",
    )
    made.add_argument(
        "--client", action="append", metavar="NAME", help="a certificate for a client too; may be repeated"
    )
    made.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    for line in dev_cert(Path(options.directory), options.host or [], options.client or []):
        print(line)
    return 0


def dev_cert(directory: Path, hosts: list[str], clients: list[str]) -> list[str]:
    """Makes the files; what to tell whoever asked."""
    command = shutil.which("openssl")
    if command is None:
        raise FlintError(
            "the command openssl was not found; install it (apt install openssl, brew install openssl)"
        )
    for client in clients:
        if not CLIENT_NAME.fullmatch(client) or client in ("ca", "server"):
            raise ConfigFault(
                f"--client {client}: expected letters, digits, '.', '_' and '-'; not ca, server"
            )
    hosts = hosts or hosts_of(directory / "server.pem") or ["localhost", "127.0.0.1", "::1"]
    names = [alternative(host) for host in hosts]
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    maker = Maker(command, directory)
    lines = []
    if maker.has_authority():
        lines.append(f"the authority {maker.authority} is used again")
    else:
        maker.make_authority()
        lines.append(f"made the authority {maker.authority}")
    maker.make("server", "FlintMQ broker", "serverAuth", names)
    for client in clients:
        maker.make(client, client, "clientAuth", [f"DNS:{client}"])
    told = [name.partition(":")[2] for name in names]
    lines.append(f"made {directory / 'server'}.pem and its key, for {', '.join(told)}")
    lines += [f"made {directory / each}.pem and its key" for each in clients]
    lines += ["", "for the broker:", "", "[tls]"]
    lines += [
        f'certificate = "{directory.resolve() / "server.pem"}"',
        f'key = "{directory.resolve() / "server.key"}"',
    ]
    if clients:
        lines += [f'authority = "{maker.authority.resolve()}"', 'verify = "optional"']
    lines += ["", f"for clients: amqps://...?cacertfile={maker.authority.resolve()}"]
    return lines


def hosts_of(certificate: Path) -> list[str]:
    """The names and addresses of a certificate that is there already: to renew it keeps them."""
    from flintmq.server.network.certificates import decoded

    if not certificate.exists():
        return []
    return [value for kind, value in decoded(certificate).get("subjectAltName", ())]


def alternative(host: str) -> str:
    """A name or an address, as a certificate has it."""
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        pass
    if not re.fullmatch(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", host):
        raise ConfigFault(f"--host {host}: expected a name or an address")
    return f"DNS:{host}"


class Maker:
    """Calls openssl. A file is there whole or not at all, and keys are their owner's alone."""

    def __init__(self, command: str, directory: Path) -> None:
        self.command = command
        self.directory = directory
        self.authority = directory / "ca.pem"
        self.authority_key = directory / "ca.key"

    def has_authority(self) -> bool:
        there = [file.exists() for file in (self.authority, self.authority_key)]
        if any(there) and not all(there):
            raise FlintError(f"of {self.authority} and {self.authority_key} one is missing; remove the other")
        return all(there)

    def make_authority(self) -> None:
        with tempfile.TemporaryDirectory(dir=self.directory) as place:
            work = Path(place)
            self.key(work / "key")
            settings = self.settings(work, CA_SETTINGS)
            self.call(
                "req", "-x509", "-new", "-sha256", "-days", CA_DAYS, "-config", settings,
                "-key", work / "key", "-out", work / "pem",
            )  # fmt: skip
            os.replace(work / "key", self.authority_key)
            os.replace(work / "pem", self.authority)

    def make(self, file: str, name: str, usage: str, others: list[str]) -> None:
        with tempfile.TemporaryDirectory(dir=self.directory) as place:
            work = Path(place)
            self.key(work / "key")
            text = LEAF_SETTINGS.format(name=name, usage=usage, others=", ".join(others))
            settings = self.settings(work, text)
            request, signed = work / "request", work / "pem"
            self.call("req", "-new", "-config", settings, "-key", work / "key", "-out", request)
            serial = f"0x{os.urandom(16).hex()}"
            self.call(
                "x509", "-req", "-sha256", "-days", DAYS, "-in", request, "-out", signed,
                "-CA", self.authority, "-CAkey", self.authority_key, "-set_serial", serial,
                "-extfile", settings, "-extensions", "extensions",
            )  # fmt: skip
            os.replace(work / "key", self.directory / f"{file}.key")
            os.replace(signed, self.directory / f"{file}.pem")

    def key(self, file: Path) -> None:
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
        self.call("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", file)
        file.chmod(0o600)

    def settings(self, work: Path, text: str) -> Path:
        file = work / "settings"
        file.write_text(text)
        return file

    def call(self, *arguments: object) -> None:
        command = [self.command, *(str(each) for each in arguments)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if ended.returncode:
            said = ended.stderr.strip().splitlines()
            raise FlintError(f"openssl {command[1]} failed: {said[-1] if said else ended.returncode}")
