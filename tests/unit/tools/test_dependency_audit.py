"""The audit of dependencies: what it finds it tells, and what it cannot ask it does not pass over."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

TOOL = Path(__file__).resolve().parents[3] / "tools" / "dependency_audit.py"


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dependency_audit", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Advisories:
    """A server that knows of one vulnerable package."""

    def __init__(self) -> None:
        self.vulnerable = ""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(outer.answer(body)).encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {
            "results": [
                {"vulns": [{"id": "PYSEC-1"}]} if query["package"]["name"] == self.vulnerable else {}
                for query in asked["queries"]
            ]
        }


@pytest.fixture
def advisories() -> Iterator[Advisories]:
    found = Advisories()
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


def test_a_clean_environment(
    tool: ModuleType, advisories: Advisories, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(["--url", advisories.url]) == 0
    assert "no known vulnerabilities" in capsys.readouterr().out


def test_a_package_with_a_vulnerability_is_named(
    tool: ModuleType, advisories: Advisories, capsys: pytest.CaptureFixture[str]
) -> None:
    advisories.vulnerable = "pytest"
    assert tool.main(["--url", advisories.url]) == 1
    assert f"pytest {pytest.__version__}: PYSEC-1" in capsys.readouterr().out


def test_an_audit_that_cannot_ask_says_so(tool: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["--url", "http://127.0.0.1:9/"]) == 0
    assert "NOT RUN" in capsys.readouterr().out
