"""What is wrong, who waits for what, and what waits for nobody: as the console shows it."""

from __future__ import annotations

import re
from typing import Any

from console_browser import Console
from management_http import Http
from playwright.sync_api import expect

from flintmq.client import connect

NOW_MS = 1_794_975_000_000


def diagnosis(*findings: dict[str, Any], more: int = 0) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for each in findings:
        counts[each["kind"]] = counts.get(each["kind"], more) + 1
    return {
        "status": "trouble" if findings else "ok",
        "exit_status": 6 if findings else 0,
        "looked_ms": NOW_MS,
        "seconds": 12.0,
        "checks": 17,
        "virtual_hosts": 2,
        "virtual_hosts_unseen": 0,
        "findings": list(findings),
        "counts": counts,
    }


def finding(kind: str, number: int = 0, **changed: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "seen": f"seen {number}",
        "cause": "the cause",
        "next_step": "the next step",
        "is_urgent": False,
        "virtual_host": "/",
        "object_type": "queue",
        "object_name": "jobs.nightly",
        "since_ms": None,
        "first_seen_ms": NOW_MS - 60_000,
        **changed,
    }


def answer_with(console: Console, said: dict[str, Any]) -> None:
    console.page.route("**/api/doctor", lambda route: route.fulfill(json=said))
    console.open("overview")
    console.page.reload()
    console.settled()


def test_the_overview_says_what_the_doctor_has_found(console: Console, api: Http) -> None:
    api.ok("PUT", "queues/%2F/orphan", {"arguments": {"x-dead-letter-exchange": "nowhere"}})
    try:
        console.open("overview")
        health = console.page.get_by_role("region", name="Health")
        lost = health.locator(".finding", has_text="would send dead letters to exchange 'nowhere'")
        expect(lost).to_contain_text("dead letters are lost", timeout=30_000)
        expect(lost).to_contain_text("there is no such exchange")
        expect(lost).to_contain_text("flintmq declare exchange 'nowhere' fanout")
        expect(lost).to_contain_text("Seen since")
        expect(health).to_contain_text("looked at")
        lost.get_by_role("link", name="Open orphan").click()
        expect(console.page.locator("main h1")).to_contain_text("orphan")
    finally:
        api.ok("DELETE", "queues/%2F/orphan")


def test_nothing_found_says_when_it_was_looked(console: Console) -> None:
    answer_with(console, diagnosis())
    health = console.page.get_by_role("region", name="Health")
    expect(health).to_contain_text("Nothing found")
    expect(health).to_contain_text("17 checks")
    expect(health).to_contain_text(re.compile(r"looked at \d\d:\d\d:\d\d"))


def test_many_findings_unfold_and_the_rest_is_counted(console: Console) -> None:
    many = [finding("queue grows without a consumer", number) for number in range(10)]
    answer_with(console, diagnosis(finding("memory alarm", is_urgent=True, object_type=""), *many, more=990))
    health = console.page.get_by_role("region", name="Health")
    shown = health.locator(".finding")
    expect(shown).to_have_count(3)
    expect(shown.first).to_have_class(re.compile("finding-urgent"))
    expect(shown.first.get_by_role("link")).to_have_count(0)
    health.get_by_role("button", name="Show all 11").click()
    expect(shown).to_have_count(11)
    expect(health).to_contain_text("queue grows without a consumer, 1,000 in all")


def test_consumers_and_channels_show_the_name_of_their_connection_and_its_address(console: Console) -> None:
    for where in ("channels", "consumers"):
        console.open(where)
        row = console.row("orders.overseas worker").first
        expect(row.get_by_role("link", name="orders.overseas worker")).to_be_visible()
        expect(row).to_contain_text(re.compile(r"127\.0\.0\.1:\d+ \(1\)|::1:\d+ \(1\)"))
    console.open("channels?name=overseas")
    expect(console.page.locator("main tbody tr")).to_have_count(1)


def test_a_consumer_that_acks_nothing_is_not_shown_as_up(console: Console, api: Http) -> None:
    (row,) = [each for each in api.get("consumers/%2F") if each["queue"]["name"] == "mail"]
    held: dict[str, dict[str, Any]] = {
        "stuck": {"held_back_by": "acks", "held_back_reason": "the prefetch is full"},
        "blocked": {"held_back_by": "alarm", "held_back_reason": "memory is short"},
        "paused": {"held_back_by": "flow", "held_back_reason": "the client has stopped the flow"},
        "slow": {"held_back_by": "client", "held_back_reason": "the client reads slowly"},
        "second": {"active": False, "activity_status": "waiting"},
        "well": {},
    }
    rows = [
        {**row, "held_back_by": None, "consumer_tag": tag, "held_back_since": NOW_MS, **each}
        for tag, each in held.items()
    ]
    listed = {"items": rows, "page": 1, "page_count": 1, "total_count": 6, "filtered_count": 6}
    console.page.route("**/api/consumers*", lambda route: route.fulfill(json=listed))
    console.open("consumers")
    expect(console.row("stuck")).to_contain_text(re.compile(r"waits for acks since .*\d\d:\d\d"))
    expect(console.row("blocked")).to_contain_text("blocked by an alarm")
    expect(console.row("paused")).to_contain_text("paused by the client")
    expect(console.row("slow")).to_contain_text("the client reads slowly")
    expect(console.row("second")).to_contain_text("waiting")
    expect(console.row("well").locator(".badge-good")).to_have_text("up")


def test_messages_that_wait_for_a_retry_are_shown_and_told_before_they_are_lost(
    console: Console, api: Http
) -> None:
    retries = {"x-delayed-retry-type": "all", "x-delayed-retry-min": 600_000}
    api.ok("PUT", "queues/%2F/later", {"arguments": retries})
    try:
        url = f"amqp://guest:guest@127.0.0.1:{api.amqp_port}"
        with connect(url) as connection, connection.channel(confirm=True) as channel:
            channel.publish_many([b"x"] * 2, routing_key="later")
            for _ in range(2):
                message = channel.get("later")
                assert message is not None
                message.reject(requeue=True)
        console.open("queues/%2F/later")
        figures = console.page.locator(".figure")
        expect(figures.filter(has_text="Delayed")).to_contain_text("2")
        details = console.page.get_by_role("region", name="Details")
        expect(details).to_contain_text("2 wait for a retry, and are shown here once it is due")
        console.page.get_by_role("button", name="Purge").click()
        dialog = console.page.get_by_role("dialog")
        expect(dialog).to_contain_text("2 messages are lost for good, with 2 that wait for a retry.")
        dialog.get_by_role("button", name="Cancel").click()
        console.open("queues?sort=messages_delayed&desc=1")
        row = console.page.get_by_role("row").filter(has_text="later").first
        expect(row.locator("[data-title=Delayed]")).to_have_text("2")
        console.open("overview")
        expect(console.page.locator(".figure").filter(has_text="Delayed")).to_contain_text("2")
    finally:
        api.ok("DELETE", "queues/%2F/later")


def test_messages_of_streams_do_not_wait(console: Console, api: Http) -> None:
    totals = api.get("overview")
    kept = totals["stream_totals"]
    assert kept["messages"] > 0
    console.open("overview")
    figures = console.page.locator(".figure")
    expect(figures.filter(has_text="In streams")).to_contain_text("1 stream")
    all_ready = totals["queue_totals"]["messages_ready"]
    ready = figures.filter(has_text="Ready").locator(".figure-value").inner_text()
    number = float(ready.replace(",", "").replace(" k", "e3"))
    assert number < all_ready - kept["messages"] / 2
    longest = console.page.get_by_role("table", name="Longest queues")
    expect(longest.locator("tbody tr").first).to_be_visible()
    expect(longest.get_by_role("link", name="orders.all")).to_have_count(0)
    console.open("streams")
    expect(console.row("orders.all")).to_be_visible()


def test_a_long_name_takes_one_line_of_the_overview_and_keeps_its_end(console: Console, api: Http) -> None:
    names = [f"com.example.warehouse.reconciliation.nightly.eu-central-1.{end}" for end in ("one", "two")]
    rows = [{"name": name, "vhost": "/", "type": "classic", "messages": 5, "consumers": 0} for name in names]
    listed = {"items": rows, "page": 1, "page_count": 1, "total_count": 2, "filtered_count": 2}
    console.page.route("**/api/queues?*type=classic*", lambda route: route.fulfill(json=listed))
    console.open("overview")
    console.page.reload()
    for width in (1440, 1024, 390):
        console.page.set_viewport_size({"width": width, "height": 900})
        for name in names:
            shown = console.page.get_by_role("link", name=name)
            expect(shown).to_be_visible()
            box = shown.bounding_box()
            assert box is not None
            assert box["height"] < 30, (width, box)
            end = shown.locator("span").last.bounding_box()
            assert end is not None
            assert end["x"] + end["width"] <= box["x"] + box["width"] + 1, (width, end, box)
