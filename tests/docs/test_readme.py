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
# Snippets that need Spark are run by tests/spark and tests/pipelines, those of testing.md beside this, and
# those of security.md by tests/live/test_identities.py, that of fast09.md by tests/fast09/test_live.py,
# those of celery.md by tests/interop/test_celery_page.py, and that of upgrading.md beside this.
OTHERS_PAGES = [
    ROOT / "docs" / "celery.md",
    ROOT / "docs" / "embedding.md",
    ROOT / "docs" / "fast09.md",
    ROOT / "docs" / "security.md",
    ROOT / "docs" / "spark.md",
    ROOT / "docs" / "testing.md",
    ROOT / "docs" / "upgrading.md",
    *(ROOT / "docs").glob("pipelines*"),
    *(ROOT / "docs").glob("pipelines/*"),
]
MANAGEMENT = "localhost:15672"
# The first line of a snippet that makes sense only after the one before.
GOES_ON = "# Goes on from the example above.\n"


def snippets_of(page: Path) -> list[str]:
    found = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M)
    return [] if page in OTHERS_PAGES else [code for code in found if "flintmq.spark" not in code]


SNIPPETS = [
    pytest.param(code, id=f"{page.relative_to(ROOT)}:{number}")
    for page in PAGES
    for number, code in enumerate(snippets_of(page))
    if not code.startswith(GOES_ON)
]
LINKS = [
    pytest.param(page, target, id=f"{page.relative_to(ROOT)}->{target}")
    for page in [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    if "://" not in target
]


def run_snippet(code: str, broker: BrokerProcess, folder: Path) -> None:
    here = code.replace(
        'ConnectionParameters("localhost")', f'ConnectionParameters("localhost", {broker.port})'
    )
    here = here.replace('connect("localhost"', f'connect("localhost", {broker.port}')
    here = here.replace("guest:guest@localhost", f"guest:guest@localhost:{broker.port}")
    if MANAGEMENT in code:
        served = broker.wait_for(re.compile(r"management on http://127\.0\.0\.1:(\d+)"))
        here = here.replace(MANAGEMENT, f"localhost:{served[1]}")
    assert here != code, "a snippet connects to localhost, where the test has its broker"
    done = subprocess.run(
        [sys.executable, "-c", here],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=folder,
        env=os.environ,
    )
    assert done.returncode == 0, f"{code}\n{done.stderr}"
    for shown in re.findall(r'basic_publish\([^\n]*b"([^"]+)"', code):
        assert shown in done.stdout, code


@pytest.mark.parametrize("code", SNIPPETS)
def test_snippet(code: str, tmp_path: Path) -> None:
    options = ["--management-port", "0"] if MANAGEMENT in code else []
    with BrokerProcess("--data", str(tmp_path / "data"), *options) as broker:
        run_snippet(code, broker, tmp_path)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("step", [1, -1], ids=["forwards", "backwards"])
def test_pages_one_after_the_other(step: int, tmp_path: Path) -> None:
    """A reader tries one page and then another, on the same broker, each page from its top to its end."""
    with BrokerProcess("--data", str(tmp_path / "data"), "--management-port", "0") as broker:
        for page in PAGES[::step]:
            for code in snippets_of(page):
                run_snippet(code, broker, tmp_path)


@pytest.mark.parametrize(("page", "target"), LINKS)
def test_link_leads_somewhere(page: Path, target: str) -> None:
    assert (page.parent / target).exists()


def test_a_stream_of_a_page_is_no_queue_of_another() -> None:
    """Readers follow several pages with one broker: what one has declared or published must not trouble the
    next."""
    streams: dict[str, set[str]] = {}
    classic: dict[str, set[str]] = {}
    for page in PAGES:
        text = page.read_text()
        for name, more in re.findall(r'queue(?:_declare)?\("([^"]+)"((?:[^()]|\([^()]*\))*)\)', text):
            found = streams if '"x-queue-type": "stream"' in more else classic
            found.setdefault(name, set()).add(page.name)
        for name in re.findall(r'^stream = "([^"$]+)"', text, re.M):
            streams.setdefault(name, set()).add(page.name)
        for name in re.findall(r"--set stream=(\S+)", text):
            streams.setdefault(name, set()).add("one that runs a pipeline on it")
    assert {"news", "trades", "prices", "shop-orders", "my-ticks", "ticks"} <= streams.keys()
    assert not streams.keys() & classic.keys()
    by_hand = {name: pages - {"one that runs a pipeline on it"} for name, pages in streams.items()}
    assert [name for name, pages in by_hand.items() if len(pages) > 1] == []
    assert not by_hand["ticks"], "the shipped pipelines expect ticks of their own format there"
