"""The pictures of docs/console.md: taken with each run, kept with CONSOLE_IMAGES=docs/images."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from console_browser import Console
from management_http import Http
from playwright.sync_api import Browser, expect

DESKTOP = {"width": 1280, "height": 820}
PHONE = {"width": 390, "height": 780}
# Pictures that are kept show charts of ten minutes.
KEPT_TRAFFIC_S = 600


def has_rates(console: Console) -> None:
    """Rates are there after the second look of the management process, some seconds later."""
    flowing = console.page.locator(".edge-rate").first
    expect(flowing).to_be_attached(timeout=20_000)


def has_charts(console: Console) -> None:
    console.page.wait_for_function(
        "() => document.querySelectorAll('.chart canvas').length === 2", timeout=20_000
    )


def has_lines(console: Console) -> None:
    console.page.wait_for_function("() => document.querySelectorAll('.spark').length >= 5", timeout=20_000)


def has_rows(console: Console) -> None:
    expect(console.page.locator("main tbody tr, .log li").nth(3)).to_be_visible()


# The name of the picture, the page, light or dark, its size, and what it waits for.
PICTURES: list[tuple[str, str, str, dict[str, int], Callable[[Console], None]]] = [
    ("console-graph", "exchanges?view=graph", "light", DESKTOP, has_rates),
    ("console-queues", "queues", "light", DESKTOP, has_lines),
    ("console-queue", "queues/%2F/orders.overseas", "dark", DESKTOP, has_charts),
    ("console-overview", "overview", "light", DESKTOP, has_charts),
    ("console-overview-dark", "overview", "dark", DESKTOP, has_charts),
    ("console-dead-letters", "queues/%2F/dead-letters?tab=dead", "light", DESKTOP, has_charts),
    ("console-phone", "queues", "light", PHONE, has_lines),
    ("console-audit", "audit", "light", DESKTOP, has_rows),
    ("console-log", "log", "dark", DESKTOP, has_rows),
    ("console-audit-phone", "audit", "dark", PHONE, has_rows),
    ("console-log-phone", "log", "light", PHONE, has_rows),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    kept = os.environ.get("CONSOLE_IMAGES")
    if not kept:
        return tmp_path
    time.sleep(KEPT_TRAFFIC_S)
    return Path(kept)


@pytest.mark.timeout(120 + KEPT_TRAFFIC_S)
def test_pictures(api: Http, browser: Browser, folder: Path) -> None:
    context = browser.new_context(device_scale_factor=1)
    try:
        console = Console(context.new_page(), f"http://127.0.0.1:{api.port}/")
        console.sign_in()
        console.settled()
        console.page.get_by_label("Virtual host").select_option("/")
        for name, where, colours, size, is_there in PICTURES:
            console.page.set_viewport_size({"width": size["width"], "height": size["height"]})
            console.page.emulate_media(color_scheme="dark" if colours == "dark" else "light")
            console.open(where)
            is_there(console)
            console.page.mouse.move(size["width"] - 4, size["height"] - 4)
            console.page.screenshot(path=folder / f"{name}.png")
            assert size_of(folder / f"{name}.png") == (size["width"], size["height"])
        assert console.faults == []
    finally:
        context.close()


def size_of(picture: Path) -> tuple[int, int]:
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:])
    return width, height
