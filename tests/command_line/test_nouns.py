"""Commands that list, declare, publish and administer."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from broker_process import BrokerProcess
from command_line.conftest import Command, closed_with

from flintmq.cli.operating import bench, requeue
from flintmq.client import connect


def test_status_of_the_broker(flintmq: Command) -> None:
    said = flintmq("status")
    assert said.status == 0
    facts = dict(line.split("  ", 1) for line in said.lines)
    assert facts["product"].strip() == "FlintMQ"
    assert facts["alarms"].strip() == "none"
    assert flintmq("status --json").document["product"] == "FlintMQ"
    assert flintmq("alarms").out == "no alarms\n"


def test_a_stream_is_read_from_where_one_likes(flintmq: Command) -> None:
    flintmq("declare queue ticks -a x-queue-type=stream")
    before = datetime.now()
    flintmq("publish ticks --lines", "one\ntwo\nthree\n")
    for begin, found in (
        ("first", ["one", "two", "three"]),
        ("1", ["two", "three"]),
        ("last", ["three"]),
        ("1h", ["one", "two", "three"]),
        (before.isoformat(), ["one", "two", "three"]),
        (f"{before + timedelta(hours=1):%Y-%m-%dT%H:%M}", []),
        ("next", []),
    ):
        said = flintmq(f"consume ticks --offset {begin} --count {len(found) or 1} --idle 0.3")
        assert (said.status, said.lines) == (0, found), begin
    for wrong in ("frist", "0001-01-01T00:00+14:00"):
        said = flintmq(f"consume ticks --offset {wrong} --idle 0.3")
        assert said.status == 1
        assert (
            f"expected first, last, next, an offset, a timestamp, or an age such as 1h, not '{wrong}'"
            in said.err
        )
    assert "is a stream: consume it from an offset" in flintmq("peek ticks").err
    assert flintmq("delete queue ticks --yes").status == 0


def test_a_queue_from_its_declaration_to_its_end(flintmq: Command) -> None:
    assert flintmq("declare queue orders -a x-max-length=50").out == "queue 'orders' declared\n"
    assert flintmq("declare exchange logs topic").status == 0
    assert flintmq("bind logs orders 'a.*'").out == "'orders' bound to 'logs'\n"
    assert flintmq("publish a.b hello -e logs -H n=5").out == "1 published\n"
    assert flintmq("publish orders --lines", "one\ntwo\n").out == "2 published\n"
    (row,) = flintmq("queues 'ord*' --json").document
    assert (row["name"], row["messages_ready"], row["messages_entered"], row["durable"]) == (
        "orders",
        3,
        3,
        True,
    )
    (binding,) = flintmq("bindings --destination orders --json").document
    assert (binding["source"], binding["routing_key"]) == ("logs", "a.*")
    assert "logs" in {row["name"] for row in flintmq("exchanges --json").document}
    found = flintmq("search orders --selector 'n = 5' --json").document
    assert [(row["body"], row["properties"]["headers"]) for row in found] == [("hello", {"n": 5})]
    assert flintmq("peek orders --limit 2 --columns body --no-headers").lines == ["hello", "one"]
    assert flintmq("get orders").out == "hello\n"
    assert json.loads(flintmq("get orders --json --requeue").out)["body"] == "one"
    assert flintmq("consume orders --count 2").lines == ["one", "two"]
    empty = flintmq("get orders")
    assert (empty.status, empty.err) == (5, "flintmq: queue 'orders' is empty\n")
    assert flintmq("unbind logs orders 'a.*'").status == 0
    assert flintmq("bindings --destination orders --json").document == []
    assert flintmq("delete queue orders -y").out == "queue 'orders' deleted with 0 messages\n"
    assert flintmq("delete exchange logs --yes").status == 0
    gone = flintmq("delete queue orders -y")
    assert gone.status == 5
    assert "no queue 'orders'" in gone.err


def test_messages_that_wait_for_a_retry_are_shown_wherever_queues_are(
    flintmq: Command, broker: BrokerProcess
) -> None:
    flintmq("declare queue later -a x-delayed-retry-type=all -a x-delayed-retry-min=600000")
    flintmq("publish later --lines", "one\ntwo\nthree\n")
    with connect(f"amqp://localhost:{broker.port}") as connection, connection.channel() as channel:
        for _ in range(2):
            message = channel.get("later")
            assert message is not None
            message.reject(requeue=True)
    (row,) = flintmq("queues later --json").document
    assert [row[f"messages_{kind}"] for kind in ("ready", "unacked", "delayed")] == [1, 0, 2]
    assert flintmq("queues later --columns messages_delayed --no-headers").out.split() == ["2"]
    assert "delayed" in flintmq("queues later").lines[0].split()
    assert "delayed 2" in flintmq("top --count 1").out
    assert flintmq("status --json").document["messages_delayed"] == 2
    facts = dict(line.split("  ", 1) for line in flintmq("status").lines)
    assert facts["messages delayed"].strip() == "2"
    listed = flintmq("ctl -q list_queues --no-table-headers name messages messages_delayed").lines
    assert "later\t1\t2" in listed
    assert flintmq("purge later -y").out == "3 messages purged\n"
    (row,) = flintmq("queues later --json").document
    assert row["messages_delayed"] == 0
    flintmq("delete queue later -y")


def test_virtual_hosts_count_queues_that_somebody_has_declared(flintmq: Command) -> None:
    """Not those of direct reply-to, one of which the command itself uses."""
    declared = len(flintmq("queues --json").document)
    flintmq("declare queue counted")
    (row,) = flintmq("vhosts --json").document
    assert row["queues"] == declared + 1
    flintmq("delete queue counted -y")


def test_names_that_begin_with_a_dash(flintmq: Command) -> None:
    assert flintmq("declare queue --transient -- --yes").out == "queue '--yes' declared\n"
    assert flintmq("publish -- --yes -body").out == "1 published\n"
    assert flintmq("get -- --yes").out == "-body\n"
    assert flintmq("delete queue --yes -- --yes").status == 0


def test_queues_tell_their_type_and_policy(flintmq: Command) -> None:
    for name, kind in (("typed.plain", "classic"), ("typed.voted", "quorum"), ("typed.kept", "stream")):
        assert flintmq(f"declare queue {name} --type {kind}").status == 0
    assert flintmq("""policies set all-typed ^typed '{"max-length-bytes": 100000}'""").status == 0
    voted = (
        """policies set voted-typed ^typed '{"delivery-limit": 3}' --apply-to quorum_queues --priority 1"""
    )
    assert flintmq(voted).status == 0
    assert flintmq("""policies set --operator cap ^typed '{"max-length-bytes": 5000}'""").status == 0
    rows = flintmq("queues 'typed.*' --json").document
    assert {row["name"]: (row["type"], row["policy"]) for row in rows} == {
        "typed.plain": ("classic", "all-typed"),
        "typed.voted": ("quorum", "voted-typed"),
        "typed.kept": ("stream", "all-typed"),
    }
    table = flintmq("queues typed.voted --columns name,policy,features --no-headers").out
    assert table == "typed.voted  voted-typed  quorum, durable\n"
    listed = flintmq("ctl -q list_queues name type policy operator_policy effective_policy_definition").lines
    assert {
        'typed.plain\tclassic\tall-typed\tcap\t[{"max-length-bytes",5000}]',
        'typed.voted\tquorum\tvoted-typed\tcap\t[{"delivery-limit",3},{"max-length-bytes",5000}]',
    } <= set(listed)
    for name in ("typed.plain", "typed.voted", "typed.kept"):
        flintmq(f"delete queue {name} -y")
    flintmq("policies clear all-typed")
    flintmq("policies clear voted-typed")
    flintmq("policies clear --operator cap")


def test_what_is_lost_is_asked_for(flintmq: Command) -> None:
    flintmq("declare queue full")
    flintmq("publish full --count 5 x")
    refused = flintmq("purge full")
    assert refused.status == 2
    assert refused.err == (
        "flintmq: 5 messages of queue 'full' will be lost: "
        "--yes is needed, as there is no terminal to ask at\n"
    )
    assert flintmq("delete queue full").status == 2
    assert flintmq("queues full --json").document[0]["messages_ready"] == 5
    assert flintmq("purge full --yes --json").document == {"queue": "full", "purged": 5}
    flintmq("delete queue full -y")


def test_moving_messages(flintmq: Command) -> None:
    flintmq("declare queue here")
    flintmq("declare queue there")
    flintmq("publish here --count 7 x")
    assert flintmq("move here there --limit 4").out == "4 messages moved, 3 left\n"
    assert flintmq("move here there --json").document == {"moved": 3, "left": 0}
    assert flintmq("move here there").out == "0 messages moved, 0 left\n"
    missing = flintmq("move here nowhere")
    assert (missing.status, "no queue 'nowhere'" in missing.err) == (5, True)
    for queue in ("here", "there"):
        flintmq(f"delete queue {queue} -y")


def test_dead_letters_go_back_to_where_they_died(flintmq: Command, broker: BrokerProcess) -> None:
    """From one queue to two; what did not die, or whose queue is gone, stays."""
    flintmq("declare queue grave")
    for name in ("first", "second", "gone"):
        flintmq(f"declare queue {name} -a x-dead-letter-exchange= -a x-dead-letter-routing-key=grave")
    flintmq("publish grave living")
    url = f"amqp://guest:guest@localhost:{broker.port}"
    with connect(url) as connection, connection.channel(confirm=True) as channel:
        for name, count in (("first", 3), ("second", 2), ("gone", 1)):
            for _ in range(count):
                channel.publish(b"x", routing_key=name, headers={"CC": ["grave.copies"]})
                message = channel.get(name)
                assert message is not None
                message.reject(requeue=False)
        while channel.queue("grave", passive=True).message_count < 7:
            pass
        channel.delete_queue("gone")
    assert flintmq("requeue grave --limit 2").out.startswith("2 messages went back, 5 left")
    assert flintmq("requeue grave --json").document == {"requeued": 3, "kept": 2, "left": 2}
    said = flintmq("requeue grave")
    assert (said.status, said.out) == (
        0,
        "0 messages went back, 2 left; 2 cannot go: "
        "they did not die in another queue, it is gone, or another user's\n",
    )
    for name, count in (("first", 3), ("second", 2), ("grave", 2)):
        assert flintmq(f"queues {name} --json").document[0]["messages_ready"] == count
        flintmq(f"delete queue {name} -y")
    assert flintmq("requeue grave").status == 5


@pytest.mark.parametrize(
    "line",
    [
        "--url {url} status --json",
        "--url={url} --json status",
        "-V / --url {url} --timeout 20 --json status",
        "-V/ --url={url} status --json",
        "--url {url} ctl status --formatter json",
        "--url {url} queues --json -- -odd-",
        "--url {url} users --json",
        "--url {url} definitions export",
    ],
)
def test_options_of_the_broker_before_the_command(
    flintmq: Command, broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setenv("FLINTMQ_URL", "amqp://localhost:1")
    said = flintmq(line.format(url=f"amqp://localhost:{broker.port}"))
    assert (said.status, said.err) == (0, "")
    assert said.document is not None


def test_requeue_tells_what_it_has_not_looked_at(flintmq: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requeue, "LOOKED_AT_MAX", 5)
    flintmq("declare queue alive")
    flintmq("publish alive --count 9 x")
    said = flintmq("requeue alive --limit 1")
    assert said.out.startswith("0 messages went back, 9 left; 5 cannot go: ")
    assert said.out.endswith("; 4 behind them were not looked at\n")
    flintmq("delete queue alive --yes")


def test_options_before_a_command_that_are_wrong(flintmq: Command) -> None:
    for line in ("--colour red status", "--url", "--url amqp://localhost", "--url x serve", "-x"):
        said = flintmq(line)
        assert said.status == 2, line
        assert "usage: flintmq" in said.err
    assert flintmq("--version").status == 0


def test_what_no_queue_takes_is_a_failure(flintmq: Command) -> None:
    said = flintmq("publish nowhere x")
    assert said.status == 1
    assert "no queue is bound" in said.err
    assert flintmq("publish nowhere x --drop-unroutable").status == 0
    assert flintmq("publish key x -P nonsense=1").status == 2


def test_connections_are_listed_and_closed(flintmq: Command, broker: BrokerProcess) -> None:
    url = f"amqp://guest:guest@localhost:{broker.port}"
    with connect(url, name="busy", recovery=None) as connection:  # noqa: SIM117
        with connection.channel(prefetch=3) as channel:
            queue = channel.queue("watched", auto_delete=True)
            channel.consume(queue.name)
            rows = flintmq("connections --json").document
            (row,) = [row for row in rows if row["connection_name"] == "busy"]
            (found,) = flintmq("consumers --queue watched --json").document
            assert (found["connection"], found["prefetch_count"]) == (row["number"], 3)
            channels = flintmq("channels --everywhere --json").document
            assert [each["consumers"] for each in channels if each["connection"] == row["number"]] == [1]
            assert "busy" in flintmq("connections").out
            assert flintmq("close").status == 2
            assert flintmq(f"close {row['number']}").status == 2  # --yes is missing
            assert flintmq(f"close {row['number']} -y --reason bye").out == "1 connection(s) closed\n"
            closed_with(connection, "bye")
    assert flintmq("close 99999 -y").status == 5


def test_tags_are_given_as_words_or_with_commas(flintmq: Command) -> None:
    assert flintmq("users add tagged --tags monitoring,management", "secret\n").status == 0
    for words, tags in (
        ("monitoring policymaker", "monitoring, policymaker"),
        ("monitoring,management", "monitoring, management"),
        ("''", "none"),
    ):
        assert flintmq(f"users tags tagged {words}").out == f"the tags of 'tagged': {tags}\n"
    flintmq("users delete tagged --yes")


def test_users_permissions_limits_and_policies(flintmq: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert flintmq("users add bob --tags monitoring", "").status == 2  # no password
    assert flintmq("users add bob --tags monitoring", "secret\n").status == 0
    assert {row["user"]: row["tags"] for row in flintmq("users --json").document}["bob"] == ["monitoring"]
    assert flintmq("permissions set bob '^b' '.*' '.*'").status == 0
    (row,) = flintmq("permissions --user bob --json").document
    assert (row["virtual_host"], row["configure"]) == ("/", "^b")
    assert flintmq("permissions set-topic bob amq.topic '^a' '^b'").status == 0
    assert flintmq("permissions --topic --user bob --json").document[0]["write"] == "^a"
    assert flintmq("permissions clear-topic bob amq.topic").status == 0
    assert flintmq("users tags bob policymaker").status == 0
    assert flintmq("users password bob", "another\n").status == 0
    monkeypatch.setenv("FLINTMQ_USER", "bob")
    monkeypatch.setenv("FLINTMQ_PASSWORD", "another")
    assert flintmq("status --json").document["user"] == "bob"
    assert flintmq("users").status == 4  # takes an administrator
    monkeypatch.setenv("FLINTMQ_PASSWORD", "wrong")
    assert flintmq("status").status == 4
    monkeypatch.delenv("FLINTMQ_USER")
    monkeypatch.delenv("FLINTMQ_PASSWORD")
    assert flintmq("vhosts add other").status == 0
    assert flintmq("permissions set bob .* .* .* -V other").status == 0
    assert {row["virtual_host"] for row in flintmq("permissions --user bob --json").document} == {
        "/",
        "other",
    }
    assert flintmq("limits set max-queues 5 -V other").out == "max-queues of virtual host 'other': 5\n"
    assert flintmq("limits set max-channels 9 --user bob").out == "max-channels of user 'bob': 9\n"
    assert flintmq("limits set max-channels 99").out == "max-channels of virtual host '/': 99\n"
    assert flintmq("limits clear max-channels").out == "max-channels of virtual host '/' is gone\n"
    assert {(row["name"], row["value"]) for row in flintmq("limits --json").document} == {
        ("max-queues", 5),
        ("max-channels", 9),
    }
    assert flintmq("limits clear max-channels --user bob").status == 0
    assert flintmq("""policies set short ^q '{"max-length": 5}' -V other --priority 3""").status == 0
    (row,) = flintmq("policies -V other --json").document
    assert (row["definition"], row["priority"]) == ({"max-length": 5}, 3)
    assert flintmq("policies set short ^q nonsense").status == 2
    assert flintmq("policies clear short -V other").status == 0
    assert flintmq("parameters set tool colour '\"red\"'").status == 0
    assert flintmq("parameters --component tool --json").document[0]["value"] == "red"
    assert flintmq("parameters clear tool colour").status == 0
    assert flintmq("vhosts delete other").status == 2
    assert flintmq("vhosts delete other -y").status == 0
    assert flintmq("users delete bob -y").status == 0
    assert flintmq("users delete bob -y").status == 5
    assert flintmq("bans --json").document == []
    assert flintmq("bans clear").out == "0 ban(s) ended\n"


def test_a_broker_that_is_not_there(flintmq: Command) -> None:
    said = flintmq("queues --url amqp://localhost:1")
    assert said.status == 3
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert flintmq("queues --url http://localhost").status == 2
    assert flintmq("queues -V nowhere").status == 4


def test_columns_and_order(flintmq: Command) -> None:
    for name, count in (("a1", 1), ("a2", 3), ("a3", 2)):
        flintmq(f"declare queue {name}")
        flintmq(f"publish {name} --count {count} x")
    said = flintmq("queues 'a?' --columns name,messages_ready --sort messages_ready")
    assert said.lines == [
        "name  ready",
        "a2        3",
        "a3        2",
        "a1        1",
    ]
    assert flintmq("queues 'a?' --columns name --sort=-name --no-headers").lines == ["a1", "a2", "a3"]
    assert "messages_unacked" in flintmq("queues 'a?' --columns '?'").lines
    wrong = flintmq("queues --columns nonsense")
    assert wrong.status == 2
    assert "expected some of name" in wrong.err
    for name in ("a1", "a2", "a3"):
        flintmq(f"delete queue {name} -y")


def test_numbers_that_are_none(flintmq: Command) -> None:
    for line in ("top --interval -1", "doctor --seconds soon", "bench -r nan", "get q --count -1", "close x"):
        assert flintmq(line).status == 2


def test_names_do_not_take_over_the_terminal(flintmq: Command, broker: BrokerProcess) -> None:
    hostile = "a\x1b[2J\x07b"
    with (
        connect(f"amqp://guest:guest@localhost:{broker.port}") as connection,
        connection.channel() as channel,
    ):
        channel.queue(hostile)
        channel.queue("quiet")
        for line in ("queues", "ctl list_queues", "top --count 1", f"get '{hostile}'", f"get '{hostile}x'"):
            said = flintmq(line)
            assert "\x1b" not in said.out + said.err
            assert "\x07" not in said.out + said.err
            assert "\\x1b[2J" in said.out + said.err
        channel.delete_queue(hostile)
        channel.delete_queue("quiet")


@pytest.mark.parametrize("charset", ["ascii", "latin-1", "utf-8"])
def test_letters_that_the_charset_of_the_output_lacks(
    charset: str, flintmq: Command, broker: BrokerProcess
) -> None:
    name = "naïve.\u20ac.\U0001f600"
    assert flintmq(f"declare queue {name}").status == 0
    shown = name.encode(charset, "backslashreplace")

    def said(*words: str) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "flintmq", *words]
        environment = {**os.environ, "PYTHONIOENCODING": charset, "PYTHONUTF8": "0"}
        return subprocess.run(command, capture_output=True, timeout=60, env=environment)

    try:
        for words in (["queues"], ["ctl", "list_queues", "name"]):
            done = said(*words)
            assert (done.returncode, done.stderr) == (0, b"")
            assert shown in done.stdout
        for words in (["queues", "--json"], ["ctl", "-q", "list_queues", "name", "--formatter=json"]):
            document = json.loads(said(*words).stdout.decode(charset))
            assert name in [row["name"] for row in document]
        missing = said("purge", f"{name}.gone", "--yes")
        assert missing.returncode == 5
        assert shown in missing.stderr
    finally:
        flintmq(f"delete queue {name} --yes")


def test_bodies_do_not_take_over_the_terminal(flintmq: Command, broker: BrokerProcess) -> None:
    """A pipe gets the octets as they are."""
    bodies = (b"\x1b]0;owned\x07\x1b[2J", "\u009b2J\u202e é\nsecond\tline".encode(), b"\xff\x9b2J")
    name = "n\u009b2J"
    with (
        connect(f"amqp://guest:guest@localhost:{broker.port}") as connection,
        connection.channel() as channel,
    ):
        channel.queue(name)
        for body in bodies:
            channel.publish(body, routing_key=name)
        for line in (
            f"get {name} --count 3 --requeue",
            f"get {name} --count 3 --requeue --json",
            f"consume {name} --count 3 --requeue",
            f"peek {name} --json",
            "queues --json",
            "ctl list_queues name --formatter json",
        ):
            shown = flintmq(line, at_terminal=True).out
            assert "2J" in shown
            assert [each for each in shown if not each.isprintable() and each != "\n"] == [], line
            assert "\u009b" in flintmq(line.replace("--count 3", "--count 2")).out, line
        assert flintmq(f"get {name} --count 3 --requeue", at_terminal=True).lines == [
            "\\x1b]0;owned\\x07\\x1b[2J",
            "\\x9b2J\\u202e é",
            "second    line",
            "\\xff\\x9b2J",
        ]
        documents = flintmq(f"get {name} --count 3 --requeue --json", at_terminal=True).lines
        assert [json.loads(line)["body"] for line in documents[:2]] == [body.decode() for body in bodies[:2]]
        channel.delete_queue(name)


def test_words_of_other_tools(flintmq: Command) -> None:
    assert flintmq("declare queue kept --durable").status == 0
    assert flintmq("declare exchange logs topic --durable").status == 0
    assert flintmq("queues kept --json").document[0]["durable"] is True
    assert flintmq("declare queue kept --durable --transient").status == 2
    assert flintmq("bind logs kept --routing-key a.b").status == 0
    assert flintmq("publish --exchange logs --routing-key a.b one").status == 0
    assert flintmq("publish --routing-key kept --payload two").status == 0
    assert flintmq("publish --routing-key=kept", "three").status == 0
    assert flintmq("publish kept --payload four").status == 0
    assert flintmq("consume kept --count 4").lines == ["one", "two", "three", "four"]
    for line in (
        "publish",
        "publish --payload x",
        "publish --routing-key kept kept x",
        "publish kept x --payload y",
        "bind logs kept a.b --routing-key other",
    ):
        assert flintmq(line, "x").status == 2, line
    assert flintmq("unbind logs kept --routing-key a.b").status == 0
    assert flintmq("bindings --destination kept --source logs --json").document == []
    flintmq("delete queue kept --yes")
    flintmq("delete exchange logs --yes")


def test_a_publish_that_is_refused(flintmq: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert flintmq("users add reader", "pass\n").status == 0
    assert flintmq("permissions set reader '' '' '.*'").status == 0
    assert flintmq("declare queue unwritten").status == 0
    with monkeypatch.context() as patch:
        patch.setenv("FLINTMQ_USER", "reader")
        patch.setenv("FLINTMQ_PASSWORD", "pass")
        said = flintmq("publish unwritten x")
    assert (said.status, said.out) == (4, "")
    assert "refused" in said.err
    assert "arrived" not in said.err
    said = flintmq("publish k x -e no-such-exchange")
    assert (said.status, said.out) == (5, "")
    assert "arrived" not in said.err
    flintmq("users delete reader -y")
    flintmq("delete queue unwritten -y")


def test_properties_and_names_that_cannot_be(flintmq: Command) -> None:
    flintmq("declare queue typed")
    said = flintmq("publish typed x -P priority=high")
    assert (said.status, said.err) == (
        1,
        "flintmq: publishing to exchange '' cannot be done: priority is 'high', and takes a whole number\n",
    )
    said = flintmq("declare queue amq.mine")
    assert said.status == 4
    assert said.err.endswith("contains reserved prefix 'amq.*'; use another name\n")
    assert flintmq("publish typed x").status == 0
    none = flintmq("get typed --count 0")
    assert (none.status, none.out, none.err) == (0, "", "")
    assert flintmq("get typed").out == "x\n"


def test_a_guest_who_is_refused_hears_how_others_log_in(
    flintmq: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLINTMQ_PASSWORD", "another one")
    for command in ("queues", "ctl list_queues"):
        said = flintmq(command)
        assert said.status in (4, 69)
        assert "commands log in as guest unless FLINTMQ_USER and FLINTMQ_PASSWORD" in said.err
    monkeypatch.setenv("FLINTMQ_USER", "nobody")
    assert "unless" not in flintmq("queues").err


def test_top_draws_rates(flintmq: Command) -> None:
    flintmq("declare queue seen")
    flintmq("publish seen --count 3 x")
    said = flintmq("top --count 2 --interval 0.05 --sort messages_ready")
    assert said.status == 0
    assert said.out.count("FlintMQ ") == 2
    assert [line.split()[:2] for line in said.lines if line.startswith("seen")] == [["seen", "3"]] * 2
    flintmq("delete queue seen -y")


def test_bench_counts_what_it_sends(flintmq: Command) -> None:
    summary = flintmq("bench -C 300 -s 50 -c 100 --json").document
    assert (summary["sent"], summary["received"]) == (300, 300)
    assert summary["latency_ms"]["max"] >= summary["latency_ms"]["median"] > 0
    assert flintmq("queues 'flintmq-bench-*' --json").document == []
    assert flintmq("bench -s 3").status == 2
    assert flintmq("bench --time 1 --url amqp://localhost:1").status == 3


def test_bench_with_topics_and_many_queues(flintmq: Command) -> None:
    said = flintmq("bench --topics 200 --queues 50 -y 2 -C 1000 -c 500 --json")
    found = said.document
    assert (said.status, found["topics"], found["queues"]) == (0, 200, 50)
    assert (found["sent"], found["expected"], found["received"], found["lost"]) == (1000, 1000, 1000, 0)
    told = flintmq("bench -t fanout --queues 5 -C 100 -y 2")
    assert told.status == 0
    assert "lost      0 of 500 expected by all queues, 0 %" in told.lines
    assert flintmq("declare exchange ticks topic").status == 0
    given = flintmq("bench -e ticks -k 'x.%d' --topics 4 -B 'x.*' --queues 2 -C 8 --json").document
    assert (given["expected"], given["received"]) == (16, 16)
    assert "ticks" in flintmq("exchanges").out
    assert "flintmq-bench" not in flintmq("exchanges").out + flintmq("queues").out
    for line in ("--queues 0", "--queues 2 -u same", "--topics 2 -k same"):
        assert flintmq(f"bench {line} -C 1").status == 2, line
    flintmq("delete exchange ticks -y")


def test_bench_fails_when_messages_are_lost(flintmq: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "DRAIN_S", 0.5)
    flintmq("""policies set short '^flintmq-bench' '{"max-length": 1}'""")
    said = flintmq("bench -C 2000 -q 1 -A 1")
    assert said.status == 1
    assert re.search(r"^lost      [\d,]+ of 2,000 expected by all queues, ", said.out, re.M)
    flintmq("policies clear short -y")


def test_bench_ends_when_an_alarm_blocks_its_producers(
    flintmq: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "BLOCKED_S", 0.5)
    monkeypatch.setattr(bench, "JOIN_S", 0.5)
    settings = tmp_path / "flintmq.toml"
    settings.write_text('[limits]\ndisk_free_bytes_min = "900TiB"\n')
    with BrokerProcess("--data", str(tmp_path / "data"), "--config", str(settings)) as full:
        url = f"amqp://localhost:{full.port}"
        while flintmq(f"alarms --url {url}").status == 0:
            pass
        for amount in ("--time 0.1", "-C 10000"):
            said = flintmq(f"bench {amount} -y 0 -c 10 --url {url}")
            assert said.status == 1
            assert said.err.endswith("taken no message of the load for 0.5 s; see: flintmq alarms\n")


def test_bench_asks_before_it_takes_from_a_queue_in_use(flintmq: Command, broker: BrokerProcess) -> None:
    flintmq("declare queue production")
    flintmq("publish production --count 20 short")
    refused = flintmq("bench -f -u production -C 1")
    assert refused.status == 2
    assert refused.err.startswith("flintmq: queue 'production' has 20 messages and 0 consumers")
    assert flintmq("queues production --json").document[0]["messages_ready"] == 20
    taken = flintmq("bench -f -u production -C 1 --yes --json").document
    assert taken["sent"] == 1
    assert taken["received"] >= 1
    flintmq("purge production --yes")
    assert flintmq("bench -f -u production -y 0 -C 1 --json").document["sent"] == 1  # nothing is in it
    flintmq("purge production --yes")
    with (
        connect(f"amqp://guest:guest@localhost:{broker.port}") as connection,
        connection.channel() as channel,
        channel.consume("production"),
    ):
        assert "0 messages and 1 consumers" in flintmq("bench -f -u production -C 1").err
    flintmq("delete queue production --yes")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_the_commands(shell: str, flintmq: Command) -> None:
    said = flintmq(f"completion {shell}")
    assert said.status == 0
    for word in ("doctor", "list_queues", "hash-password"):
        assert word in said.out


def test_bash_completes(flintmq: Command) -> None:
    script = flintmq("completion bash").out + (
        '\nCOMP_WORDS=(flintmq que) COMP_CWORD=1; _flintmq; echo "${COMPREPLY[@]}"'
        '\nCOMP_WORDS=(flintmq ctl list_qu) COMP_CWORD=2; _flintmq; echo "${COMPREPLY[@]}"'
        '\nCOMP_WORDS=(flintmq users --js) COMP_CWORD=2; _flintmq; echo "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.split("\n")[:3] == ["queues", "list_queues", "--json"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is full")
def test_an_output_that_takes_nothing(flintmq: Command) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "flintmq", "exchanges"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "flintmq: the output could not be written: No space left on device\n"


def test_a_reader_that_has_seen_enough(flintmq: Command) -> None:
    """As `flintmq exchanges | head -1`: no traceback."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "flintmq", "exchanges"]
    with os.fdopen(write, "w") as pipe:
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (1, "")


def test_definitions_that_are_refused_in_part_say_how_to_import_the_rest(
    flintmq: Command, tmp_path: Path
) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(
        '{"queues": [{"name": "rest", "vhost": "/", "durable": true}],'
        ' "exchanges": [{"name": "x", "vhost": "/", "type": "x-unheard-of", "durable": true}]}'
    )
    for task in ("check", "import"):
        said = flintmq(f"definitions {task} {file}")
        assert said.status == 1
        assert said.lines[-1].startswith("nothing was changed; flintmq definitions import --partial ")
    said = flintmq(f"definitions import --partial {file}")
    assert (said.status, said.lines[-1]) == (1, "changed: 1 queues; as they were: 0")
    assert flintmq("delete queue rest --yes").status == 0
