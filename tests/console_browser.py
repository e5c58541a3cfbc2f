"""The console in a real browser: Debian's Chromium, driven by Playwright, with all that goes wrong noted."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from playwright.sync_api import Browser, Locator, Page, Request, expect, sync_playwright

HINT = "Chromium is not installed: apt-get install chromium, or make interop-deps"
# Playwright waits for what is expected; a busy machine gets more time than people would give it.
WAIT_MS = 10_000

# Everything that can be used must say what it is.
NAMELESS = """() => {
  const named = (each) => each.getAttribute("aria-label") || each.labels?.[0]?.textContent.trim()
    || each.textContent.trim() || each.getAttribute("title");
  const kinds = "button, a[href], input, select, textarea, [role=img], [role=meter]";
  return [...document.querySelectorAll(kinds)]
    .filter((each) => each.getClientRects().length && !named(each))
    .map((each) => each.outerHTML.slice(0, 160));
}"""


@contextmanager
def chromium() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, HINT
    # Chromium's sandbox refuses to work for root.
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=options)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Console:
    """One tab with the console in it."""

    page: Page
    url: str
    faults: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    took_ms: list[tuple[float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(WAIT_MS)
        expect.set_options(timeout=WAIT_MS)
        self.page.on(
            "console",
            lambda said: self.faults.append(f"console: {said.text}") if said.type == "error" else None,
        )
        self.page.on("pageerror", lambda error: self.faults.append(f"page: {error}"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("requestfailed", self._failed)
        self.page.on("requestfinished", self._finished)
        self.page.on("response", self._answered)

    def _failed(self, request: Request) -> None:
        # The page itself gives up requests when it is left.
        if request.failure != "net::ERR_ABORTED":
            self.faults.append(f"{request.method} {request.url}: {request.failure}")

    def _answered(self, response: object) -> None:
        status, url = response.status, response.url  # type: ignore[attr-defined]
        if status >= 400:
            self.faults.append(f"{status} {url}")

    def _finished(self, request: Request) -> None:
        if "/api/" in request.url:
            self.took_ms.append((request.timing["responseEnd"], f"{request.method} {request.url}"))

    def sign_in(self, user: str = "guest", password: str = "guest") -> None:
        self.page.goto(self.url)
        self.page.get_by_label("User").fill(user)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Sign in").click()

    def open(self, where: str) -> None:
        """Goes to a page by its address, and waits until it has what it shows."""
        self.page.evaluate("where => { location.hash = where }", f"#/{where}")
        self.settled()

    def settled(self) -> None:
        expect(self.page.locator("main h1, main h3").first).to_be_visible()
        expect(self.page.locator(".loading")).to_have_count(0)

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    @property
    def dialog(self) -> Locator:
        return self.page.locator("dialog[open]")

    def fill(self, **fields: str) -> None:
        for name, value in fields.items():
            self.dialog.locator(f"[name={name}]").fill(value)

    def confirm(self, button: str) -> None:
        """Presses a button of the dialog, which is done when the dialog is gone."""
        self.dialog.get_by_role("button", name=button, exact=True).click()
        expect(self.dialog).to_have_count(0)

    def told(self, text: str) -> None:
        expect(self.page.locator("#notices").get_by_text(text).last).to_be_visible()

    def row(self, text: str) -> Locator:
        return self.page.locator("main tbody tr", has_text=re.compile(re.escape(text)))

    def nameless(self) -> list[str]:
        found: list[str] = self.page.evaluate(NAMELESS)
        return found

    def is_too_wide(self) -> bool:
        wide: bool = self.page.evaluate(
            "() => document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )
        return wide
