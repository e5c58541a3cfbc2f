"""Certificates for tests: an authority of our own, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass
class Signed:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates for 127.0.0.1; its own is in `certificate`."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory = directory
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        made = self._builder(self.name, self.key).add_extension(constraints, critical=True)
        self.certificate = directory / f"{name}.pem"
        self.certificate.write_bytes(self._pem(made))

    def sign(
        self, name: str, passphrase: bytes | None = None, hosts: tuple[str, ...] = (), days: float = 1
    ) -> Signed:
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts]
        address = x509.SubjectAlternativeName([*names, x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._builder(subject, key, days).add_extension(address, critical=False)
        signed = Signed(self.directory / f"{name}.pem", self.directory / f"{name}.key")
        signed.certificate.write_bytes(self._pem(made))
        encryption = (
            serialization.NoEncryption()
            if passphrase is None
            else serialization.BestAvailableEncryption(passphrase)
        )
        signed.key.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        )
        return signed

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: float = 1
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=10))
            .not_valid_after(now + datetime.timedelta(days=days))
        )

    def _pem(self, builder: x509.CertificateBuilder) -> bytes:
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
