"""The first steps of docs/security.md are taken in order, by a new user on a broker of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from command_line.conftest import run

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "security.md").read_text()
# What a RabbitMQ with one policy of an operator writes, with the user that it begins with.
RABBIT = {
    "users": [
        {
            "name": "guest",
            "password_hash": "s/P24EpF925H/0OAIMyA262evK0UGE0rbg+ZNmqJ4SAbppTy",
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["administrator"],
            "limits": {},
        }
    ],
    "vhosts": [{"name": "/", "limits": [], "metadata": {"description": "Default virtual host", "tags": []}}],
    "parameters": [
        {
            "vhost": "/",
            "component": "operator_policy",
            "name": "cap",
            "value": {"pattern": ".*", "definition": [["max-length", 9]], "priority": 0, "apply-to": "all"},
        }
    ],
}


class Steps:
    """The commands of the page, with what they print; each is run once, in the order of the page."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self.monkeypatch = monkeypatch
        self.directory = directory
        walk = PAGE.partition("## From a fresh broker to a safe one")[2].partition("\n## ")[0]
        self.blocks = re.findall(r"^```(console|toml)\n(.*?)^```", walk, re.S | re.M)

    @contextmanager
    def broker(self, *options: str) -> Iterator[BrokerProcess]:
        with BrokerProcess("--data", str(self.directory / "data"), "--host", "127.0.0.1", *options) as broker:
            yield broker

    def log_in(self, port: int | str) -> None:
        """By the file that the page shows next, which has the port of the broker besides."""
        self.monkeypatch.delenv("FLINTMQ_URL", raising=False)
        file = self.directory / "config" / "flintmq" / "credentials.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.settings().replace("//localhost", f"//localhost:{port}"))
        file.chmod(0o600)

    def settings(self) -> str:
        """The next block, which must be one of settings."""
        kind, text = self.blocks.pop(0)
        assert kind == "toml"
        for place in ("/etc/flintmq/", "/var/log/flintmq/"):
            text = text.replace(place, f"{self.directory}/")
        return text

    def commands(self) -> None:
        """Runs the next block, which must be one of commands."""
        kind, text = self.blocks.pop(0)
        assert kind == "console"
        for part in re.split(r"^\$ flintmq ", text, flags=re.M)[1:]:
            line, _, told = part.partition("\n")
            said = run(line.replace("/var/log/flintmq/", f"{self.directory}/"))
            assert said.status == 0, (line, said)
            pattern = re.escape(re.sub(" +", " ", told)).replace(r"\.\.\.", "(?s:.*)")
            assert re.fullmatch(pattern, re.sub(" +", " ", said.out + said.err)), (line, said)


def test_the_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("FLINTMQ_USER", "FLINTMQ_PASSWORD", "FLINTMQ_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FLINTMQ_NEW_PASSWORD", "a long one")
    steps = Steps(monkeypatch, tmp_path)
    with steps.broker() as broker:
        monkeypatch.setenv("FLINTMQ_URL", f"amqp://localhost:{broker.port}")
        steps.commands()  # an administrator
        steps.log_in(broker.port)
        steps.commands()  # without guest
        steps.commands()  # a team
        steps.commands()  # certificates
    settings = tmp_path / "flintmq.toml"
    settings.write_text(steps.settings().replace("[tls]\n", "[tls]\nport = 0\n"))
    (tmp_path / "rabbit.json").write_text(json.dumps(RABBIT))
    with steps.broker("--config", str(settings)) as broker:
        steps.log_in(broker.wait_for(re.compile(r"listening on amqps://127\.0\.0\.1:(\d+)"))[1])
        for _ in range(4):  # over TLS, renewal, definitions, the audit log and bans
            steps.commands()
    assert steps.blocks == []
