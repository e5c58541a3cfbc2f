"""Every page of the console, in a browser, while the broker works."""

from __future__ import annotations

import os
import re
import time

import pytest
from console_browser import Console
from management_http import Http
from playwright.sync_api import expect

PAGES = {
    "overview": "Overview",
    "connections": "Connections",
    "channels": "Channels",
    "consumers": "Consumers",
    "exchanges": "Exchanges",
    "exchanges?view=graph": "Exchanges",
    "exchanges/%2F/orders": "orders",
    "exchanges/%2F/amq.default": "(default)",
    "queues": "Queues",
    "queues?sort=message_stats.publish_details.rate&desc=1": "Queues",
    "queues?name=device&page=2": "Queues",
    "queues/%2F/jobs.nightly": "jobs.nightly",
    "queues/%2F/orders.overseas?tab=consumers": "orders.overseas",
    "queues/%2F/orders.overseas?tab=bindings": "orders.overseas",
    "queues/%2F/dead-letters?tab=dead": "dead-letters",
    "queues/%2F/mail?tab=leases": "mail",
    "queues/%2F/mail?tab=settings": "mail",
    "queues/%2F/orders.all?tab=offsets": "orders.all",
    "streams": "Streams",
    "transactions": "Transactions",
    "leases": "Leases",
    "users": "Users",
    "users/shop": "shop",
    "why": "Why may…",
    "hosts": "Virtual hosts",
    "policies": "Policies",
    "definitions": "Definitions",
    "journal": "Journal",
    "audit": "Audit",
    "audit?outcome=refused": "Audit",
    "log": "Log",
    "log?level=warning": "Log",
}
# What people call slow is 200 ms; on a machine that tests other things meanwhile a test may not be so strict.
SLOW_MS = 200
WAIT_MS_MAX = float(os.environ.get("CONSOLE_WAIT_MS", "1500"))
# What stands in the place of a number that is not known yet.
UNKNOWN = "\N{EN DASH}"


def test_every_page_opens_quickly_and_says_what_everything_is(console: Console) -> None:
    for where, title in PAGES.items():
        console.open(where)
        expect(console.page.locator("main h1")).to_contain_text(title)
        assert console.page.locator("main .failure").all_text_contents() == [], where
        assert console.nameless() == [], where
    console.page.wait_for_load_state("networkidle")
    took_ms = sorted(console.took_ms, reverse=True)
    slow = [f"{each_ms:.0f} ms {what}" for each_ms, what in took_ms if each_ms > SLOW_MS]
    print(f"{len(took_ms)} requests, the slowest {took_ms[0]}; over {SLOW_MS} ms: {slow}")  # noqa: T201
    assert took_ms[0][0] < WAIT_MS_MAX
    assert took_ms[len(took_ms) // 2][0] < SLOW_MS


def test_no_page_is_wider_than_a_phone(console: Console) -> None:
    console.page.set_viewport_size({"width": 390, "height": 844})
    for where in PAGES:
        console.open(where)
        assert not console.is_too_wide(), where
    console.page.get_by_role("button", name="Menu").click()
    console.page.get_by_role("navigation", name="Pages").get_by_role("link", name="Streams").click()
    expect(console.page.locator("main h1")).to_have_text("Streams")


def test_no_table_is_cut_on_a_phone(console: Console) -> None:
    console.page.set_viewport_size({"width": 390, "height": 844})
    message = "queues/%2F/dead-letters"
    for where in ("users", "users/shop", "policies", "hosts", "queues", message, "journal", "audit"):
        console.open(where)
        console.page.locator("main tbody tr").first.wait_for()
        cut = """() => [...document.querySelectorAll("main .table-scroll")]
            .filter((each) => each.scrollWidth > each.clientWidth).length"""
        assert console.page.evaluate(cut) == 0, where
        # A name is not broken to pieces: those of the test are short enough for a line.
        tall = """() => [...document.querySelectorAll("main tbody .name")]
            .filter((each) => each.getClientRects().length > 1).map((each) => each.textContent)"""
        assert console.page.evaluate(tall) == [], where


def test_the_audit_log_is_followed_and_filtered(console: Console, api: Http) -> None:
    page = console.page
    console.open("audit")
    api.ok("PUT", "users/audited", {"password": "secret", "tags": ""})
    added = page.locator("main tbody tr", has_text="user=audited").first
    expect(added).to_contain_text("user.add")  # the page is live
    expect(added.locator(".badge")).to_have_text("allowed")
    assert "secret" not in page.locator("main").inner_text()
    added.get_by_role("link", name="user.add").click()
    expect(page).to_have_url(re.compile(r"#/audit\?.*event=user\.add"))
    expect(page.get_by_label("Event", exact=True)).to_have_value("user.add")
    expect(page.locator("main tbody tr", has_text="http.login")).to_have_count(0)
    refused = Http(api.port, api.amqp_port, "nobody-here", "wrong")
    assert refused("GET", "/api/whoami").status == 401
    console.open("audit?outcome=refused")
    expect(page.locator("main tbody tr", has_text="nobody-here").first).to_contain_text("refused")
    expect(page.locator("main tbody tr .badge-good")).to_have_count(0)
    page.keyboard.press("/")
    expect(page.get_by_label("Entries with this text")).to_be_focused()
    page.keyboard.type("no entry has this")
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    page.get_by_role("link", name="Show all").click()
    expect(page).to_have_url(re.compile("#/audit$"))
    expect(page.locator("main tbody tr").first).to_be_visible()
    api.ok("DELETE", "users/audited")


def test_the_log_is_followed_and_filtered(console: Console, api: Http) -> None:
    page = console.page
    console.open("log?contains=to-be-told")
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    api.ok("PUT", "users/to-be-told", {"password": "secret", "tags": ""})
    try:
        expect(page.locator(".log li").first).to_contain_text("to-be-told")
    finally:
        api.ok("DELETE", "users/to-be-told")
    page.get_by_label("Level").select_option("error")
    expect(page).to_have_url(re.compile("level=error"))
    expect(page.get_by_role("heading", name="Nothing matches")).to_be_visible()
    page.get_by_label("Live").uncheck()
    expect(page).to_have_url(re.compile("paused=1"))


def test_a_line_of_the_log_with_its_traceback(console: Console) -> None:
    lines = [
        "2026-01-31 12:00:02,001 ERROR a bug <b>ends</b> it\n    Traceback (most recent call):\n    KeyError",
        '{"time": "2026-01-31T12:00:01.000+00:00", "level": "warning", "logger": "x", "message": "as JSON"}',
        '{"time": "cut',
    ]
    console.page.route(
        "**/api/flintmq/log*", lambda route: route.fulfill(json={"lines": lines, "more": True})
    )
    console.open("log")
    rows = console.page.locator(".log li")
    expect(rows.nth(0)).to_contain_text("a bug <b>ends</b> it")
    rows.nth(0).get_by_text("Traceback", exact=True).click()
    expect(rows.nth(0).locator("pre")).to_have_text("Traceback (most recent call):\nKeyError")
    expect(rows.nth(1).locator(".badge-warn")).to_have_text("warning")
    expect(rows.nth(1)).to_contain_text("as JSON")
    expect(rows.nth(2)).to_contain_text('{"time": "cut')
    console.page.get_by_role("button", name="Show up to 1,000").click()
    expect(console.page.locator(".pager")).to_contain_text("shows 1,000 at most")


def test_logs_that_are_not_kept_say_how_to(console: Console, api: Http) -> None:
    (node,) = api.get("nodes")
    node = {**node, "log_files": [], "audit_file": None}
    console.page.route("**/api/nodes", lambda route: route.fulfill(json=[node]))
    console.page.reload()  # what the page knew before is forgotten
    console.settled()
    for where, title in (("audit", "There is no audit log"), ("log", "The log goes to standard error")):
        console.open(where)
        expect(console.page.get_by_role("heading", name=title)).to_be_visible()
        expect(console.page.get_by_label("Settings")).to_contain_text(f"[{where}]")
    assert not any("/api/flintmq/log" in url or "/api/flintmq/audit" in url for url in console.asked)


def test_a_policy_for_quorum_queues_can_be_changed(console: Console) -> None:
    console.open("policies")
    console.page.get_by_role("button", name="New policy").click()
    choice = console.page.get_by_role("combobox", name="For", exact=True)
    expect(choice).to_be_visible()
    options = choice.locator("option").all_text_contents()
    assert {"classic_queues", "quorum_queues", "streams"} <= set(options)


def test_a_policy_for_classic_queues_matches_no_stream(console: Console, api: Http) -> None:
    policy = {"pattern": "^orders", "definition": {"max-length": 9}, "apply-to": "classic_queues"}
    api.ok("PUT", "policies/%2F/of-classic", policy)
    try:
        console.open("policies")
        row = console.row("of-classic")
        expect(row).to_contain_text("2 queues")
        expect(row).not_to_contain_text("orders.all")
    finally:
        api.ok("DELETE", "policies/%2F/of-classic")


def test_the_graph_says_which_virtual_host_it_is_of(console: Console) -> None:
    console.page.get_by_label("Virtual host").select_option("")
    console.open("exchanges?view=graph")
    expect(console.page.get_by_text("The graph is of the virtual host /")).to_be_visible()


def test_messages_on_disk_are_not_said_to_be_in_memory(console: Console, api: Http) -> None:
    queue = api.get("queues/%2F/orders.overseas")
    queue |= {"messages_ready": 9, "message_bytes": 3 << 20, "message_bytes_ready": 3 << 20}
    console.page.route("**/api/queues/%2F/orders.overseas*", lambda route: route.fulfill(json=queue))
    shown = {
        0: "3.00 MiB on disk",
        1 << 20: "3.00 MiB, 1.00 MiB of it in memory",
        3 << 20: "3.00 MiB in memory",
    }
    for in_memory, note in shown.items():
        queue["message_bytes_ram"] = in_memory
        console.open("overview")
        console.open("queues/%2F/orders.overseas")
        expect(console.page.locator(".figure-note").first).to_have_text(note)


def test_a_histogram_is_one_line_of_the_journal(console: Console) -> None:
    console.open("journal")
    row = console.row("flintmq_turn_seconds")
    expect(row).to_have_count(1)
    expect(row).to_contain_text(re.compile(r"[\d,]+ times, .* ms each, 99 of 100 within .* ms"))
    expect(console.page.locator("main tbody")).not_to_contain_text("_bucket")


def test_figures_leave_no_hole_on_a_phone(console: Console) -> None:
    console.page.set_viewport_size({"width": 390, "height": 844})
    console.open("overview")
    last = console.page.locator(".figures .figure").last
    ends = """each => {
      const row = each.parentElement.getBoundingClientRect();
      return row.right - each.getBoundingClientRect().right;
    }"""
    assert last.evaluate(ends) < 3


def test_rates_and_times_are_not_rounded_to_others(console: Console) -> None:
    told = """async () => {
      const page = document.querySelector("script[type=module]").src;
      const { rate, duration } = await import(page.replace("app.js", "format.js"));
      return [rate(0.25), rate(0.75), rate(1.5), duration(59_700), duration(3_599_700)];
    }"""
    assert console.page.evaluate(told) == ["0.25/s", "0.75/s", "1.5/s", "59 s", "59 min 59 s"]


def has_past(api: Http, queue: str, apart_s: int = 5) -> None:
    """Waits until the management process has looked at a queue some times, so far apart."""
    end_s = time.monotonic() + 60
    while True:
        details = api.get(f"queues/%2F/{queue}?lengths_age=600&lengths_incr={apart_s}")[
            "messages_ready_details"
        ]
        if len(details.get("samples", [])) >= 4:
            return
        assert time.monotonic() < end_s
        time.sleep(1)


# Notes what the page says of rates and draws, from the first time on.
WATCH = """() => {
  window.said = new Set();
  window.drawn = new Set();
  const look = () => {
    for (const figure of document.querySelectorAll(".figure")) {
      const [name, value] = [".figure-name", ".figure-value"].map((part) => figure.querySelector(part));
      if (name.textContent === "In") window.said.add(value.textContent);
    }
    for (const chart of document.querySelectorAll(".chart [role=img]")) {
      window.drawn.add(chart.getAttribute("aria-label"));
    }
  };
  new MutationObserver(look).observe(document.body, {
    subtree: true, childList: true, characterData: true, attributes: true,
  });
}"""


def test_a_queue_that_is_opened_for_the_first_time_has_its_last_minutes(console: Console, api: Http) -> None:
    page = console.page
    has_past(api, "orders.europe")
    page.evaluate(WATCH)
    with page.expect_response(lambda response: "lengths_age=600" in response.url) as answered:
        console.open("queues/%2F/orders.europe")
    past = answered.value.json()
    assert len(past["messages_ready_details"]["samples"]) >= 4
    assert past["message_stats"]["publish_details"]["avg_rate"] > 0
    page.wait_for_function("() => document.querySelectorAll('.chart canvas').length === 2")
    said, drawn = page.evaluate("() => [[...window.said], [...window.drawn]]")
    assert said
    assert "0/s" not in said
    assert any(re.search(r"In [\d.]+/s", each) for each in drawn if each.startswith("Rates"))
    assert not any("In 0/s" in each for each in drawn)
    expect(page.locator(".chart .u-over").first).to_be_visible()
    expect(page.locator(".legend b").first).to_contain_text(re.compile(r"\d"))


def test_lines_of_queues_have_their_last_minutes_at_once(console: Console, api: Http) -> None:
    has_past(api, "orders.overseas", 10)
    console.open("queues?name=orders.overseas")
    line = console.row("orders.overseas").locator(".spark-line")
    assert (line.get_attribute("d") or "").count("L") >= 3


def test_rates_that_are_not_known_yet_are_not_told_as_zero(console: Console, api: Http) -> None:
    page = console.page
    queue = api.get("queues/%2F/orders.overseas")
    queue["message_stats"]["publish_details"]["rate"] = 0.0
    listed = {"items": [queue], "total_count": 1, "filtered_count": 1, "page": 1, "page_count": 1}
    page.route("**/api/queues?*", lambda route: route.fulfill(json=listed))
    page.route("**/api/queues/%2F/orders.overseas*", lambda route: route.fulfill(json=queue))
    console.open("queues")
    expect(console.row("orders.overseas").locator("td[data-title=In]")).to_have_text(UNKNOWN)
    console.open("queues/%2F/orders.overseas")
    expect(page.locator(".figure:has(.figure-name:text-is('In')) .figure-value")).to_have_text(UNKNOWN)
    expect(page.locator(".waiting").first).to_contain_text("The first samples come in some seconds")


def test_graph_leads_to_queues(console: Console) -> None:
    console.open("exchanges?view=graph")
    expect(console.page.locator(".edge").first).to_be_attached()
    console.page.get_by_role("link", name="Queue orders.europe").click()
    expect(console.page.locator("main h1")).to_contain_text("orders.europe")


def test_an_alarm_says_why_and_who_waits(console: Console) -> None:
    alarm = {
        "alarms": [{"resource": "memory", "reason": "memory is short: 9 of 8 GiB"}],
        "blocked": [{"name": "10.0.0.7:4000 -> 10.0.0.1:5672", "user": "shop", "reason": "low on memory"}],
        "memory_bytes": 9,
        "memory_bytes_high": 8,
        "disk_bytes": None,
        "disk_bytes_free": None,
    }
    console.page.route("**/api/flintmq/alarms", lambda route: route.fulfill(json=alarm))
    console.open("overview")
    console.page.reload()
    bar = console.page.locator(".alarm-bar")
    expect(bar).to_contain_text("memory alarm: memory is short: 9 of 8 GiB")
    expect(bar).to_contain_text("1 connection now")
    expect(console.page.get_by_role("link", name="10.0.0.7:4000 -> 10.0.0.1:5672")).to_be_visible()
    console.open("journal")
    expect(console.page.get_by_role("heading", name="The broker keeps nothing on disk")).to_be_visible()


def test_names_of_others_are_text(console: Console, api: Http) -> None:
    name = "<img src=x onerror=alert(1)>"
    where = "queues/%2F/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"
    api.ok("PUT", where, {"durable": True})
    try:
        console.page.on("dialog", lambda dialog: pytest.fail("a script of a name has run"))
        console.open("queues?name=onerror")
        expect(console.row(name)).to_have_count(1)
        console.open(where)
        expect(console.page.locator("main h1")).to_contain_text(name)
        assert console.page.locator("main img").count() == 0
    finally:
        api.ok("DELETE", where)


def test_keys_and_colours(console: Console) -> None:
    page = console.page
    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page.locator("main h1")).to_have_text("Queues")
    console.settled()
    page.keyboard.press("/")
    page.keyboard.type("jobs")
    expect(console.row("jobs.nightly")).to_have_count(1)
    expect(console.row("orders.europe")).to_have_count(0)
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(console.dialog.get_by_role("heading", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(console.dialog).to_have_count(0)
    shade = "() => getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(shade)
    page.get_by_label("Colours").select_option("dark")
    assert page.evaluate(shade) != light
    page.reload()
    console.settled()
    assert page.evaluate(shade) != light
    page.get_by_label("Colours").select_option("auto")
    assert page.evaluate(shade) == light


def test_polling_stops_while_the_tab_is_hidden(console: Console) -> None:
    page = console.page
    console.open("queues")
    page.wait_for_load_state("networkidle")
    page.clock.install()
    hide = """(is) => {
        Object.defineProperty(document, 'hidden', { configurable: true, get: () => is });
        document.dispatchEvent(new Event('visibilitychange'));
    }"""
    page.evaluate(hide, True)
    console.asked.clear()
    page.clock.fast_forward(60_000)
    assert console.asked == []
    page.evaluate(hide, False)
    with page.expect_response(lambda response: "/api/queues" in response.url):
        page.clock.fast_forward(6_000)
    assert console.asked


def test_wrong_passwords_are_refused_and_sign_out_ends_the_session(stranger: Console) -> None:
    stranger.sign_in(password="wrong")
    expect(stranger.page.get_by_role("alert")).to_contain_text("refuses this user and password")
    stranger.sign_in()
    stranger.settled()
    stranger.open("users")
    stranger.page.get_by_role("button", name="guest · Sign out").click()
    expect(stranger.page.get_by_role("button", name="Sign in")).to_be_visible()
    stranger.page.reload()
    expect(stranger.page.get_by_role("button", name="Sign in")).to_be_visible()
    # Nothing but the wrong password was refused.
    assert [fault for fault in stranger.faults if not fault.startswith("console: Failed to load")] == [
        f"401 {stranger.url}api/session"
    ]


def test_who_monitors_is_shown_no_administration(stranger: Console) -> None:
    stranger.sign_in("alice", "alice-secret")
    stranger.settled()
    menu = stranger.page.get_by_role("navigation", name="Pages")
    expect(menu.get_by_role("link", name="Journal")).to_be_visible()
    expect(menu.get_by_role("link", name="Users")).to_have_count(0)
    for where in ("queues", "hosts", "policies", "journal", "connections"):
        stranger.open(where)
    assert stranger.faults == []


def test_a_page_for_administrators_says_so_to_others_and_does_not_sign_them_out(stranger: Console) -> None:
    stranger.sign_in("alice", "alice-secret")
    stranger.settled()
    for where in ("users", "users/guest", "log"):
        stranger.open(where)
        expect(stranger.page.locator("main")).to_contain_text("It takes the tag administrator")
    stranger.open("queues")
    expect(stranger.page.get_by_role("heading", name="Queues")).to_be_visible()
    assert stranger.faults == []


def test_who_may_not_do_something_is_told_and_stays_signed_in(stranger: Console) -> None:
    stranger.sign_in("alice", "alice-secret")
    stranger.settled()
    stranger.open("queues")
    stranger.button("New queue").click()
    stranger.fill(name="not-for-alice")
    stranger.dialog.get_by_role("button", name="Declare", exact=True).click()
    expect(stranger.dialog.get_by_role("alert")).to_be_visible()
    expect(stranger.page.get_by_role("button", name="alice · Sign out")).to_be_visible()
    # Where the session itself is over, the page asks for the password.
    stranger.page.context.clear_cookies()
    stranger.dialog.get_by_role("button", name="Declare", exact=True).click()
    expect(stranger.page.get_by_role("button", name="Sign in")).to_be_visible()
