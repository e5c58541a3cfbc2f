"""docs/deployment.md: the unit, the image and the manifest, as far as they can be run without an engine."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import yaml
from broker_process import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "deployment.md").read_text()


def block(language: str) -> str:
    [found] = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.S | re.M)
    return str(found)


# Instructions of the image, each with what it says: lines of continuation are not used on the page.
IMAGE = [line.split(" ", 1) for line in block("dockerfile").splitlines() if line and line[0] != "#"]
[MANIFEST] = yaml.safe_load_all(block("yaml"))
[CONTAINER] = MANIFEST["spec"]["template"]["spec"]["containers"]


def said(instruction: str) -> list[str]:
    return [text for name, text in IMAGE if name == instruction]


def words(instruction: str) -> list[str]:
    """What an instruction that has its words as a list runs."""
    [text] = said(instruction)
    return list(yaml.safe_load(text[text.index("[") :]))


def run(*command: str, cwd: Path, **environment: str) -> None:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_the_image(tmp_path: Path) -> None:
    """Its commands in a fresh environment: a wheel of the checkout, the broker with its settings, the check.

    Without a compiler. The packages of others, which come from an index, are those of this environment.
    """
    wheel, install = (text for text in said("RUN") if text.startswith("pip "))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(
        ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    command = wheel.replace("/wheels", str(tmp_path / "wheels")).replace('"/src[management]"', str(tmp_path))
    assert command != wheel
    offline = ["--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    run(sys.executable, "-m", *shlex.split(command), *offline, cwd=tmp_path, FLINTMQ_PURE="1")

    run(sys.executable, "-m", "venv", str(tmp_path / "environment"), cwd=tmp_path)
    programs = tmp_path / "environment" / "bin"
    command = install.partition(" && ")[0].replace("/wheels", str(tmp_path / "wheels"))
    run(str(programs / "pip"), *shlex.split(command)[1:], "--no-deps", cwd=tmp_path)

    [site] = (tmp_path / "environment").glob("lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert not (site / "starlette").exists()
    settings = block("toml").replace("/var/lib/flintmq", str(tmp_path / "data"))
    (tmp_path / "flintmq.toml").write_text(settings)
    entry, *rest = words("ENTRYPOINT")
    assert (entry, rest, words("CMD")) == ("flintmq", [], ["serve", "--config", "/etc/flintmq.toml"])
    given = dict(each.split("=", 1) for each in said("ENV")[0].split())
    with Installed(programs, tmp_path / "flintmq.toml") as broker:
        broker.wait_for(re.compile("management on http://127"))
        given["FLINTMQ_URL"] += f":{broker.port}"
        entry, *rest = words("HEALTHCHECK")
        run(str(programs / entry), *rest, cwd=tmp_path, **given)


class Installed(BrokerProcess):
    """The broker of an environment that was made for it, on all addresses."""

    def __init__(self, programs: Path, settings: Path) -> None:
        self.command = (str(programs / "flintmq"),)
        settings.write_text(settings.read_text().replace("0.0.0.0", "127.0.0.1").replace('"json"', '"text"'))
        super().__init__("--config", str(settings), "--management-port", "0")


def test_the_unit(tmp_path: Path) -> None:
    text = block("ini")
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text)
    program, *options = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "flintmq"
    assert options == ["serve", "--config", "/etc/flintmq.toml"]
    systemd_analyze = shutil.which("systemd-analyze")
    if systemd_analyze is None:
        reason = "systemd-analyze is missing: on Debian, apt-get install systemd"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    file = tmp_path / "flintmq.service"
    file.write_text(text.replace(program, sys.executable))
    done = subprocess.run(
        [systemd_analyze, "verify", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def probes() -> dict[str, dict[str, Any]]:
    return {name: CONTAINER[name] for name in ("startupProbe", "readinessProbe", "livenessProbe")}


def test_the_manifest() -> None:
    ports = {each["name"]: each["containerPort"] for each in CONTAINER["ports"]}
    assert " ".join(str(port) for port in ports.values()) == said("EXPOSE")[0]
    for probe in probes().values():
        assert "exec" in probe or probe["tcpSocket"]["port"] in ports
    assert probes()["livenessProbe"]["exec"]["command"] == words("HEALTHCHECK")
    volumes = {each["name"]: each["mountPath"] for each in CONTAINER["volumeMounts"]}
    assert volumes == {"data": said("VOLUME")[0], "settings": words("CMD")[-1]}
    [user] = [text for text in said("RUN") if text.startswith("useradd")]
    assert f"--uid {MANIFEST['spec']['template']['spec']['securityContext']['runAsUser']} " in user


ALARM = "[limits]\ndisk_free_bytes_min = 1000000000000000\n"


@pytest.mark.parametrize(
    ("settings", "statuses"),
    [
        ("", {"ctl -q ping": 0, "ctl -q check_alarms": 0, "alarms": 0, "doctor --seconds 0.1": 6}),
        (ALARM, {"ctl -q ping": 0, "ctl -q check_alarms": 69, "alarms": 6, "doctor --seconds 0.1": 6}),
    ],
    ids=["well", "alarm"],
)
def test_checks_and_their_statuses(settings: str, statuses: dict[str, int], tmp_path: Path) -> None:
    (tmp_path / "flintmq.toml").write_text(settings)
    options = ("--config", str(tmp_path / "flintmq.toml"), "--data", str(tmp_path / "data"))
    with BrokerProcess(*options) as broker:
        url = f"amqp://127.0.0.1:{broker.port}"
        assert {line: status(line, url) for line in statuses} == statuses
    assert {line: status(line, url) for line in ("ctl -q ping", "alarms", "doctor")} == {
        "ctl -q ping": 69,
        "alarms": 3,
        "doctor": 3,
    }


def status(line: str, url: str) -> int:
    command = [sys.executable, "-m", "flintmq", *shlex.split(line)]
    environment = os.environ | {"FLINTMQ_URL": url}
    return subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False).returncode


def test_statuses_of_serve(tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text("[limits]\nno_such = 1\n")
    assert status(f"serve --config {tmp_path / 'wrong.toml'}", "") == 2
    with BrokerProcess("--data", str(tmp_path / "data")) as broker:
        assert status(f"serve --port {broker.port}", "") == 1
        assert status(f"serve --port 0 --data {tmp_path / 'data'}", "") == 1
