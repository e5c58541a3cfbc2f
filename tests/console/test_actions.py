"""Everything that can be done in the console, done in a browser, with what the broker has to say about it."""

from __future__ import annotations

import json
import time
from pathlib import Path

from console_browser import Console
from management_http import Http
from playwright.sync_api import expect


def wait_for_messages(api: Http, queue: str, count: int) -> None:
    """The API tells counts of messages as of its last look, which may be some time ago on a busy machine."""
    until_s = time.monotonic() + 20
    while (found := api.get(f"queues/%2F/{queue}")["messages"]) != count:
        assert time.monotonic() < until_s, f"{queue} has {found} messages, not {count}"
        time.sleep(0.1)


def test_a_queue_from_its_declaration_to_its_end(console: Console, api: Http) -> None:
    page = console.page
    console.open("queues")
    console.button("New queue").click()
    console.fill(name="parcels", arguments='{"x-max-length": 100}')
    console.confirm("Declare")
    expect(page.locator("main h1")).to_contain_text("parcels")
    expect(page.get_by_role("heading", name="No message waits here")).to_be_visible()
    for number in range(3):
        console.button("Publish").click()
        console.fill(payload=json.dumps({"parcel": number}), headers=json.dumps({"number": number}))
        console.confirm("Publish")
    console.told("Published, and routed")
    wait_for_messages(api, "parcels", 3)

    page.get_by_label("Selector").fill("number > 0")
    console.button("Look").click()
    expect(page.get_by_text("2 found in 3 looked at")).to_be_visible()
    console.button("Message 1").click()
    expect(page.locator(".message pre")).to_contain_text('"parcel": 1')
    page.get_by_label("Selector").fill("number >")
    # A selector that is none is the user's to see; the request is refused, as it should be.
    console.button("Look").click()
    expect(page.locator(".tab-body .failure")).to_be_visible()
    assert [fault[:3] for fault in console.faults] == ["400", "con"], console.faults
    console.faults.clear()
    page.get_by_label("Selector").fill("")
    page.get_by_label("Body has").fill("2}")
    console.button("Look").click()
    expect(page.get_by_text("1 found in 3 looked at")).to_be_visible()

    console.button("Get").click()
    console.dialog.locator("[name=mode]").select_option("ack_requeue_false")
    console.dialog.get_by_role("button", name="Get", exact=True).click()
    expect(console.dialog.locator(".message pre")).to_contain_text('"parcel": 0')
    console.confirm("Close")
    wait_for_messages(api, "parcels", 2)

    api.ok("PUT", "queues/%2F/parked", {"durable": True})
    console.button("Move").click()
    console.fill(to="parked", limit="1")
    console.confirm("Move")
    console.told("1 moved to parked.")
    wait_for_messages(api, "parked", 1)

    console.button("Purge").click()
    expect(console.dialog).to_contain_text("1 ready message is lost for good")
    console.confirm("Purge")
    console.told("parcels is purged.")
    wait_for_messages(api, "parcels", 0)

    console.open("queues/%2F/parked")
    expect(page.locator("main h1")).to_contain_text("parked")
    console.button("Delete").click()
    delete = console.dialog.get_by_role("button", name="Delete", exact=True)
    expect(console.dialog).to_contain_text("1 message, which is lost for good")
    expect(delete).to_be_disabled()
    console.fill(proof="parked")
    console.confirm("Delete")
    expect(page.locator("main h1")).to_have_text("Queues")
    assert api("GET", "/api/queues/%2F/parked").status == 404
    api.ok("DELETE", "queues/%2F/parcels")


def test_dead_letters_go_back_to_where_they_came_from(console: Console, api: Http) -> None:
    api.ok("PUT", "queues/%2F/graveyard", {"durable": True})
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "graveyard"}
    api.ok("PUT", "queues/%2F/living", {"durable": True, "arguments": dead})
    for number in range(3):
        message = {"properties": {}, "routing_key": "living", "payload": str(number)}
        api.ok("POST", "exchanges/%2F/amq.default/publish", message)
    api.ok("POST", "queues/%2F/living/get", {"count": 3, "ackmode": "reject_requeue_false"})
    stranger = {"properties": {}, "routing_key": "graveyard", "payload": "never died"}
    api.ok("POST", "exchanges/%2F/amq.default/publish", stranger)
    console.open("queues/%2F/graveyard?tab=dead")
    expect(console.row("living")).to_contain_text("rejected")
    console.button("Requeue to where they came from").click()
    console.confirm("Requeue")
    console.told("3 went back, 1 stay.")
    wait_for_messages(api, "living", 3)
    wait_for_messages(api, "graveyard", 1)
    for name in ("living", "graveyard"):
        api.ok("DELETE", f"queues/%2F/{name}")


def test_an_exchange_with_its_bindings(console: Console, api: Http) -> None:
    page = console.page
    console.open("exchanges")
    console.button("New exchange").click()
    console.fill(name="letters")
    console.confirm("Declare")
    expect(page.get_by_role("heading", name="Nothing is bound to this exchange")).to_be_visible()
    console.button("Publish").click()
    console.fill(key="letter.blue", payload="hello")
    console.confirm("Publish")
    console.told("no queue took it")
    console.button("Bind").click()
    console.fill(destination="invoices.print", key="letter.#")
    console.confirm("Bind")
    expect(console.row("letter.#")).to_be_visible()
    console.button("Publish").click()
    console.fill(key="letter.blue", payload="hello")
    console.confirm("Publish")
    console.told("routed to at least one queue")
    wait_for_messages(api, "invoices.print", 1)
    page.get_by_role("button", name="Unbind invoices.print from letters").click()
    expect(console.dialog).to_contain_text("no longer go to invoices.print")
    console.confirm("Unbind")
    expect(console.row("letter.#")).to_have_count(0)
    console.button("Delete").click()
    console.fill(proof="letters")
    console.confirm("Delete")
    assert api("GET", "/api/exchanges/%2F/letters").status == 404
    api.ok("DELETE", "queues/%2F/invoices.print/contents")


def test_a_user_and_why_the_user_may(console: Console, api: Http) -> None:
    page = console.page
    console.open("users")
    console.button("New user").click()
    console.fill(name="bob", password="bob-secret", tags="monitoring")
    console.confirm("Save")
    expect(page.get_by_role("heading", name="No permissions")).to_be_visible()
    console.button("Set").click()
    console.fill(configure="^$", write="^letters", read="^post\\.")
    console.confirm("Save")
    expect(console.row("^letters")).to_be_visible()
    assert api.get("permissions/%2F/bob")["write"] == "^letters"
    page.locator("main").get_by_role("link", name="Why may…").click()
    page.get_by_label("Name").fill("letters")
    expect(page.get_by_role("status").filter(has_text="Yes.")).to_contain_text("it matches")
    page.get_by_label("Operation").select_option("consume")
    expect(page.get_by_role("status").filter(has_text="No.")).to_contain_text("does not match")
    console.open("users/bob")
    console.button("Take away").click()
    console.confirm("Take away")
    expect(page.get_by_role("heading", name="No permissions")).to_be_visible()
    console.button("Delete").click()
    console.fill(proof="bob")
    console.confirm("Delete")
    expect(console.row("shop")).to_be_visible()
    expect(console.row("bob")).to_have_count(0)


def test_policies_say_what_they_match(console: Console, api: Http) -> None:
    console.open("policies")
    expect(console.row("short-messages")).to_contain_text("2 queues")
    console.button("New policy").click()
    console.fill(name="long", pattern="^payments\\.", definition='{"max-length": 70000}')
    console.confirm("Save")
    expect(console.row("long")).to_contain_text("payments.capture")
    assert api.get("queues/%2F/payments.capture")["policy"] == "long"
    console.button("Delete long").click()
    console.confirm("Delete")
    expect(console.row("^payments")).to_have_count(0)


def test_a_virtual_host_with_limits(console: Console, api: Http) -> None:
    console.open("hosts")
    console.button("New virtual host").click()
    console.fill(name="trial")
    console.confirm("Add")
    expect(console.row("trial")).to_be_visible()
    console.button("Limits of trial").click()
    console.fill(**{"max-queues": "7"})
    console.confirm("Save")
    expect(console.row("trial")).to_contain_text("max-queues 7")
    console.button("Delete trial").click()
    expect(console.dialog).to_contain_text("lost for good")
    console.fill(proof="trial")
    console.confirm("Delete")
    expect(console.row("trial")).to_have_count(0)
    assert api("GET", "/api/vhosts/trial").status == 404


def test_definitions_go_out_and_in(console: Console, api: Http, tmp_path: Path) -> None:
    console.open("definitions")
    with console.page.expect_download() as download:
        console.button("Export").click()
    exported = json.loads(Path(download.value.path()).read_text())
    assert "orders.europe" in {queue["name"] for queue in exported["queues"]}
    wanted = {"queues": [{"name": "brought", "vhost": "/", "durable": True, "arguments": {}}]}
    (tmp_path / "some.json").write_text(json.dumps(wanted))
    console.page.get_by_label("Document").set_input_files(tmp_path / "some.json")
    expect(console.page.get_by_text("some.json has 1 queues.")).to_be_visible()
    console.button("Import").click()
    console.told("The definitions are imported.")
    api.ok("DELETE", "queues/%2F/brought")


def test_a_connection_is_closed(console: Console, api: Http) -> None:
    import pika

    connection = pika.BlockingConnection(
        pika.ConnectionParameters(port=api.amqp_port, client_properties={"connection_name": "to be closed"})
    )
    connection.channel()
    console.open("connections?name=")
    console.page.get_by_role("link", name="to be closed").click()
    expect(console.page.locator("main h1")).to_contain_text("to be closed")
    console.button("Close").click()
    expect(console.dialog).to_contain_text("goes back to its queues")
    console.confirm("Close it")
    expect(console.row("to be closed")).to_have_count(0)
