"""What the documentation shows is run here, as it stands, against a live broker."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from broker_process import BrokerProcess

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Snippets that need Spark are run by tests/spark and tests/pipelines, those of testing.md beside this.
OTHERS_PAGES = [
    ROOT / "docs" / "spark.md",
    ROOT / "docs" / "testing.md",
    *(ROOT / "docs").glob("pipelines*"),
    *(ROOT / "docs").glob("pipelines/*"),
]
SNIPPETS = [
    pytest.param(code, id=f"{page.relative_to(ROOT)}:{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M))
    if page not in OTHERS_PAGES and "flintmq.spark" not in code
]
LINKS = [
    pytest.param(page, target, id=f"{page.relative_to(ROOT)}->{target}")
    for page in [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    if "://" not in target
]


@pytest.mark.parametrize("code", SNIPPETS)
def test_snippet(code: str, tmp_path: Path) -> None:
    with BrokerProcess("--data", str(tmp_path / "data")) as broker:
        here = code.replace(
            'ConnectionParameters("localhost")', f'ConnectionParameters("localhost", {broker.port})'
        )
        here = here.replace("guest:guest@localhost", f"guest:guest@localhost:{broker.port}")
        assert str(broker.port) in here, "a snippet connects to localhost, where the test has its broker"
        done = subprocess.run(
            [sys.executable, "-c", here],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            env=os.environ,
        )
    assert done.returncode == 0, done.stderr
    for shown in re.findall(r'basic_publish\([^\n]*b"([^"]+)"', code):
        assert shown in done.stdout


@pytest.mark.parametrize(("page", "target"), LINKS)
def test_link_leads_somewhere(page: Path, target: str) -> None:
    assert (page.parent / target).exists()
