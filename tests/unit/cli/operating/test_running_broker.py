"""Where the broker is and who asks: options, environment and the credentials file."""

from __future__ import annotations

import argparse
import io
import sys
from pathlib import Path
from typing import Any

import pytest

from flintmq.cli.operating import running_broker
from flintmq.cli.output.statuses import CommandFault
from flintmq.client import Secret, Settings


def settings(environment: dict[str, str] | None = None, **options: Any) -> Settings:
    parser = argparse.ArgumentParser()
    running_broker.add_options(parser)
    given = parser.parse_args([])
    for name, value in options.items():
        setattr(given, name, value)
    return running_broker.settings_of(given, {"HOME": "/nowhere", **(environment or {})})


@pytest.fixture
def credentials(tmp_path: Path) -> Path:
    file = tmp_path / "flintmq" / "credentials.toml"
    file.parent.mkdir()
    file.write_text(
        'user = "file"\npassword = "of file"\n'
        '[production]\nurl = "amqps://far/shop"\nuser = "boss"\npassword = "of boss"\n'
    )
    file.chmod(0o600)
    return file


def test_without_anything_it_is_guest_on_this_machine() -> None:
    found = settings()
    assert (found.host, found.port, found.user, found.virtual_host) == ("localhost", 5672, "guest", "/")
    assert found.password == Secret("guest")
    assert found.recovery is None  # a command fails rather than to wait


def test_the_environment() -> None:
    found = settings(
        {"FLINTMQ_URL": "amqp://far:5673/shop", "FLINTMQ_USER": "bob", "FLINTMQ_PASSWORD": "secret"}
    )
    assert (found.host, found.port, found.user, found.virtual_host) == ("far", 5673, "bob", "shop")
    assert found.password == Secret("secret")
    assert settings({"FLINTMQ_URL": "amqp://bob:secret@far"}).password == Secret("secret")


def test_options_win_over_the_environment() -> None:
    environment = {"FLINTMQ_URL": "amqp://far", "FLINTMQ_PASSWORD": "secret"}
    found = settings(environment, url="amqp://bob@near", virtual_host="other", timeout=3.0)
    assert (found.host, found.user, found.virtual_host) == ("near", "bob", "other")
    assert (found.timeout_s, found.connection_timeout_s) == (3.0, 3.0)
    assert found.password == Secret("secret")


def test_a_password_on_the_command_line_has_to_be_meant() -> None:
    with pytest.raises(CommandFault, match="can be seen by all users") as refused:
        settings(url="amqp://bob:secret@near")
    assert refused.value.status == 2
    assert "secret" not in str(refused.value)
    assert settings(url="amqp://bob:secret@near", password_in_url=True).password == Secret("secret")
    assert settings(url="amqp://guest:guest@near").user == "guest"  # which is no secret


def test_the_environment_does_not_replace_what_the_url_names() -> None:
    environment = {"FLINTMQ_USER": "bob", "FLINTMQ_PASSWORD": "of bob"}
    found = settings(environment, url="amqp://alice:of-alice@other", password_in_url=True)
    assert (found.host, found.user, found.password) == ("other", "alice", Secret("of-alice"))
    found = settings(environment, url="amqp://other")
    assert (found.user, found.password) == ("bob", Secret("of bob"))
    found = settings(environment, url="amqp://bob@other")
    assert (found.user, found.password) == ("bob", Secret("of bob"))


def test_the_password_of_one_user_is_not_told_for_another(
    credentials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    environment = {"FLINTMQ_USER": "bob", "FLINTMQ_PASSWORD": "of bob"}
    with pytest.raises(CommandFault, match="no password for user 'alice'"):
        settings(environment, url="amqp://alice@other")
    with pytest.raises(CommandFault, match="no password for user 'alice'"):
        settings(url="amqp://alice@other", credentials=str(credentials))
    with pytest.raises(CommandFault, match="no password for user 'bob'"):
        settings({"FLINTMQ_URL": "amqp://alice:of-alice@other", "FLINTMQ_USER": "bob"})
    found = settings({"FLINTMQ_URL": "amqp://alice:of-alice@other", "FLINTMQ_USER": "guest"})
    assert found.password == Secret("guest")


def test_a_user_without_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(CommandFault, match="no password for user 'bob'"):
        settings(url="amqp://bob@near")


def test_the_credentials_file(credentials: Path, tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    found = settings(environment)
    assert (found.host, found.user, found.password) == ("localhost", "file", Secret("of file"))
    found = settings(environment, profile="production")
    assert (found.host, found.user, found.virtual_host) == ("far", "boss", "shop")
    assert found.is_secure
    assert settings(environment, url="amqp://guest:guest@near").user == "guest"
    assert settings({**environment, "FLINTMQ_USER": "env", "FLINTMQ_PASSWORD": "x"}).user == "env"
    assert settings(credentials=str(credentials)).user == "file"
    assert settings({"FLINTMQ_CREDENTIALS": str(credentials)}).user == "file"


def test_the_credentials_of_one_broker_are_not_told_to_another(
    credentials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"credentials": str(credentials), "profile": "production"}
    assert settings(**given).password == Secret("of boss")
    assert settings(**given, url="amqps://far/other").password == Secret("of boss")
    found = settings(**given, url="amqp://elsewhere")
    assert (found.user, found.password) == ("guest", Secret("guest"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(CommandFault, match="no password for user 'boss'"):
        settings(**given, url="amqp://boss@elsewhere")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_credentials_file_that_others_may_read_is_refused(credentials: Path, mode: int) -> None:
    credentials.chmod(mode)
    with pytest.raises(CommandFault, match="chmod 600") as refused:
        settings(credentials=str(credentials))
    assert refused.value.status == 2


def test_credentials_files_that_cannot_be_used(credentials: Path, tmp_path: Path) -> None:
    def refused(match: str, **options: Any) -> None:
        with pytest.raises(CommandFault, match=match) as fault:
            settings(credentials=str(credentials), **options)
        assert "of file" not in str(fault.value)

    refused(r"no section \[nowhere\]", profile="nowhere")
    credentials.write_text('pasword = "of file"\n')
    refused("pasword: expected a text under one of password, url, user")
    credentials.write_text("user = \n")
    refused("credentials.toml: ")
    credentials.unlink()
    refused("cannot be read: No such file")
    with pytest.raises(CommandFault, match="no profile 'x'"):
        settings(profile="x")
