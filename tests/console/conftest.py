"""One broker with a little traffic, and one browser, for all tests of the console."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import console_stage as stage
import pytest
from broker_process import BrokerProcess
from console_browser import Console, chromium
from management_http import Http
from playwright.sync_api import Browser, BrowserContext

_MANAGEMENT = re.compile(r"management on http://127\.0\.0\.1:(\d+)")
QUEUES = 1000


def found_in(log: Path, pattern: re.Pattern[str]) -> str:
    """What the broker says in its log, once it has said so."""
    end_s = time.monotonic() + 30
    while (found := pattern.search(log.read_text())) is None:
        assert time.monotonic() < end_s
        time.sleep(0.01)
    return found[1]


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Http]:
    directory: Path = tmp_path_factory.mktemp("broker")
    settings, log = directory / "flintmq.toml", directory / "broker.log"
    settings.write_text(f'[audit]\nfile = "{directory}/audit.log"\n[log]\nfile = "{log}"\n')
    options = ("--management-port", "0", "--data", str(directory / "data"), "--config", str(settings))
    with BrokerProcess(*options) as broker:
        api = Http(int(found_in(log, _MANAGEMENT)), broker.port)
        stage.declare(api)
        stage.fill(api, jobs=1500)
        stage.many_queues(api, QUEUES)
        with stage.traffic(broker.port):
            yield api


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def stranger(api: Http, browser: Browser) -> Iterator[Console]:
    """A tab in which nobody has signed in."""
    with tabs(browser) as context:
        yield Console(context.new_page(), url_of(api))


@pytest.fixture(scope="session")
def signed_in(api: Http, browser: Browser) -> Iterator[BrowserContext]:
    """A browser in which an administrator has signed in."""
    with tabs(browser) as context:
        first = Console(context.new_page(), url_of(api))
        first.sign_in()
        first.settled()
        first.page.close()
        assert first.faults == []
        yield context


@pytest.fixture
def console(api: Http, signed_in: BrowserContext) -> Iterator[Console]:
    """A tab of the administrator; nothing may have gone wrong at the end of a test."""
    console = Console(signed_in.new_page(), url_of(api))
    console.page.goto(console.url)
    console.settled()
    yield console
    console.page.close()
    assert not console.faults, "\n".join(console.faults)


@contextmanager
def tabs(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    try:
        yield context
    finally:
        context.close()


def url_of(api: Http) -> str:
    return f"http://127.0.0.1:{api.port}/"
