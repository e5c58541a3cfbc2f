"""The OpenAPI document, and schemathesis with what it makes of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from management_http import Http

# What could take the user away that the tests log in with, or wait for long.
LEFT_OUT = "(users|permissions|vhosts|definitions|session|-limits|operator)"
CHECKS = "status_code_conformance,content_type_conformance,response_schema_conformance"


def test_document(http_api: Http) -> None:
    """Each operation is named once, says what it does, and names what its path needs."""
    document = Http(http_api.port, 0, user="").get("openapi.json")
    operations = [
        (path, operation) for path, methods in document["paths"].items() for operation in methods.values()
    ]
    names = [operation["operationId"] for _, operation in operations]
    assert len(names) == len(set(names)) > 100
    for path, operation in operations:
        assert operation["summary"].endswith("."), path
        named = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}


def test_schemathesis(http_api: Http, tmp_path: Path) -> None:
    """Whatever is asked, the answer is one that the document knows."""
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run"),
            f"http://127.0.0.1:{http_api.port}/api/openapi.json",
            *("--auth", "guest:guest", "--checks", CHECKS, "--max-examples", "2", "--phases", "fuzzing"),
            *("--exclude-path-regex", LEFT_OUT, "--request-timeout", "20", "--no-color", "--seed", "1"),
        ],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=tmp_path,
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
