"""`flintmq tls dev-cert`: files that broker and clients take, and clear words when they cannot be made."""

from __future__ import annotations

import os
import shutil
import ssl
from pathlib import Path

import pytest

from flintmq import cli


@pytest.mark.skipif(
    shutil.which("openssl") is None and os.environ.get("CI") != "true",
    reason="the command openssl is not installed: apt-get install openssl",
)
def test_a_broker_and_a_client_with_these_files_trust_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "certs"
    command = ["tls", "dev-cert", str(place), "--host", "mq.example.com", "--host", "127.0.0.1"]
    assert cli.main([*command, "--client", "alice"]) == 0
    said = capsys.readouterr().out
    assert f'certificate = "{place / "server.pem"}"' in said
    assert 'verify = "optional"' in said
    authority = (place / "ca.pem").read_bytes()
    assert [(file.name, file.stat().st_mode & 0o777) for file in sorted(place.glob("*.key"))] == [
        ("alice.key", 0o600),
        ("ca.key", 0o600),
        ("server.key", 0o600),
    ]
    assert sorted(file.name for file in place.iterdir()) == sorted(
        f"{name}.{kind}" for name in ("alice", "ca", "server") for kind in ("key", "pem")
    )
    for name in ("mq.example.com", "127.0.0.1"):
        assert subject(place, name) == "alice"
    with pytest.raises(ssl.SSLCertVerificationError):
        subject(place, "other.example.com")
    server = (place / "server.pem").read_bytes()
    assert cli.main(["tls", "dev-cert", str(place)]) == 0
    said = capsys.readouterr().out
    assert "is used again" in said
    assert "server.pem and its key, for mq.example.com, 127.0.0.1" in said  # the names that it had
    assert (place / "ca.pem").read_bytes() == authority
    assert (place / "server.pem").read_bytes() != server
    assert subject(place, "mq.example.com") == "alice"
    assert cli.main(["tls", "dev-cert", str(place), "--host", "localhost"]) == 0
    assert subject(place, "localhost") == "alice"


def subject(place: Path, name: str) -> str:
    """The common name that a server learns of the client, who asks for `name`; both check the other."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(place / "server.pem", place / "server.key")
    server.load_verify_locations(place / "ca.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=str(place / "ca.pem"))
    client.load_cert_chain(place / "alice.pem", place / "alice.key")
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname=name),
        server.wrap_bio(there, back, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    shown = ends[1].getpeercert()
    assert shown
    return dict(part[0] for part in shown["subject"])["commonName"]  # type: ignore[index, misc]


def test_without_openssl_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert cli.main(["tls", "dev-cert", str(tmp_path / "certs")]) == 1
    assert "the command openssl was not found; install it" in capsys.readouterr().err
    assert not (tmp_path / "certs").exists()


@pytest.mark.parametrize(
    "options", [["--host", "a b"], ["--host", "a\nb"], ["--client", "../x"], ["--client", "ca"]]
)
def test_names_that_are_none_are_refused(
    tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["tls", "dev-cert", str(tmp_path / "certs"), *options]) == 2
    assert "expected" in capsys.readouterr().err
    assert not (tmp_path / "certs").exists()


def test_half_an_authority_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ca.pem").write_text("mine")
    assert cli.main(["tls", "dev-cert", str(tmp_path)]) == 1
    assert "one is missing" in capsys.readouterr().err
    assert (tmp_path / "ca.pem").read_text() == "mine"
