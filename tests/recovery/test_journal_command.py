"""`flintmq journal`: what it says of a sound directory, of one in use, and of what is none."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from flintmq.broker.administration import records
from flintmq.broker.queues import leases
from flintmq.broker.store import topology_records
from flintmq.broker.transactions import dtx_journal
from flintmq.cli import main
from flintmq.cli.local.journal import value_text
from flintmq.errors import FlintError
from flintmq.storage import spool
from flintmq.wire import methods
from flintmq.wire.tables import FieldTable, encode_table


@pytest.fixture
def filled(start: Any, publish: Any) -> Any:
    """A broker with something of every kind in its journal."""
    life = start('virtual_hosts = ["/", "other"]\n')
    with life.connect() as peer:
        peer.call(1, methods.ExchangeDeclare(exchange="söme", type="topic", durable=True))
        peer.call(1, methods.QueueDeclare(queue="q", durable=True, arguments={"x-own": 5}))
        peer.call(1, methods.QueueBind(queue="q", exchange="söme", routing_key="a.#"))
        peer.call(1, methods.QueueDeclare(queue="brief", durable=True))
        peer.call(1, methods.QueueDelete(queue="brief"))
        publish(peer, "q", [b"one", b"two"])
        assert peer.get(1, "q") is not None
    return life


def test_inspect_shows_topology_in_words_and_what_lives(filled: Any, journal: Any) -> None:
    filled.stop()
    shown = journal("inspect")
    assert shown.returncode == 0, shown.stderr
    for words in (
        "0000000000000001.segment",
        "exchange 'söme': type 'topic'",
        "queue 'q': number 1, arguments {'x-own': 5}",
        "binding from exchange 'söme' to queue 'q', routing key 'a.#'",
        "delete     queue 'brief'",
        "queue number 1 has handed out up to entry",
        "entry      owners 1; header",
        "2 live entries",
        "sound",
    ):
        assert words in shown.stdout, f"{words}\n{shown.stdout}"


def test_check_of_a_sound_directory_is_status_0(filled: Any, journal: Any) -> None:
    filled.kill()
    checked = journal("check")
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.splitlines()[-1] == "sound"


def test_a_large_body_that_is_damaged_is_no_matter_for_repair(
    start: Any, publish: Any, data: Path, journal: Any
) -> None:
    life = start()
    with life.connect() as peer:
        peer.call(1, methods.QueueDeclare(queue="q", durable=True))
        publish(peer, "q", [bytes(5_000_000)])
    life.stop()
    (body,) = data.glob("*.spool")
    body.write_bytes(bytes(4_999_999) + b"x")
    verdict = "not sound: messages whose bodies are files of their own are lost, and nothing else"
    lost = f"{body.name}: missing, cut short or not what was stored; its message is lost"
    for task, status, last in (("check", 1, verdict), ("repair", 0, lost), ("check", 1, verdict)):
        told = journal(task)
        assert told.returncode == status
        assert lost in told.stdout.splitlines()
        assert told.stdout.splitlines()[-1] == last


def test_a_directory_in_use_says_who_holds_it(filled: Any, journal: Any) -> None:
    for task in ("inspect", "check"):
        assert f"in use by process {filled.process.pid}" in journal(task).stdout
    refused = journal("repair")
    assert refused.returncode == 1
    assert f"in use by process {filled.process.pid}" in refused.stderr
    assert refused.stderr.count("\n") == 1
    filled.stop()


@pytest.mark.parametrize("task", ["inspect", "check", "repair"])
def test_what_is_no_data_directory_is_one_line(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "empty").mkdir()
    (tmp_path / "backup").mkdir()
    (tmp_path / "backup" / "backup.json").write_text("{}")
    for name, words in (
        ("missing", "there is no such directory"),
        ("file", "not a directory"),
        ("empty", "no data directory"),
        ("backup", f"it is a backup, whose data directory is {tmp_path / 'backup' / 'data'}"),
    ):
        assert main(["journal", task, str(tmp_path / name)]) == 1
        told = capsys.readouterr()
        assert told.out == ""
        assert words in told.err
        assert told.err.count("\n") == 1
    assert list((tmp_path / "empty").iterdir()) == []


def test_topology_of_every_kind_in_words() -> None:
    named = encode_table({"virtual-host": "other", "name": "x"})
    value = encode_table({"type": "fanout", "auto-delete": True, "internal": False, "arguments": {}})
    assert (
        value_text(topology_records.EXCHANGE + named, value)
        == "exchange 'x' of virtual host 'other': type 'fanout', auto-delete"
    )
    assert value_text(topology_records.QUEUE + named, b"") == "queue 'x' of virtual host 'other'"
    assert value_text(topology_records.handed_out_key(3), b"") == "queue number 3 has handed out"
    given = (1007).to_bytes(8, "little")
    assert value_text(topology_records.GIVEN, given) == "numbers up to 1007 are not given to new queues"
    assert value_text(b"?what", b"") == "of a kind not known here: b'?what'"
    returned = topology_records.return_key(3, 7)
    assert value_text(returned, b"") == "entry 7 has left queue number 3, which counted its returns"
    value = (2).to_bytes(8, "little") + (5000).to_bytes(8, "little")
    assert value_text(returned, value) == (
        "entry 7 came back 2 times to queue number 3, to be tried again at 5000 ms"
    )
    policy = topology_records.POLICY + encode_table({"virtual-host": "/", "name": "p", "operator": True})
    assert value_text(policy, encode_table({"pattern": "^q"})) == "operator policy 'p': pattern '^q'"


@pytest.mark.parametrize(
    ("kind", "identity", "value", "text"),
    [
        (
            records.USER,
            {"name": "shop"},
            {"hash": "$scrypt$secret", "tags": ["monitoring"], "loopback-only": False, "life": 3},
            "user 'shop': tags ['monitoring']",
        ),
        (records.VIRTUAL_HOST, {"name": "orders"}, {}, "virtual host 'orders'"),
        (records.VIRTUAL_HOST, {"name": "orders"}, {"deleting": True}, "virtual host 'orders': deleting"),
        (
            records.PERMISSION,
            {"user": "shop", "virtual-host": "orders"},
            {"configure": "", "write": ".*", "read": ".*", "life": 3},
            "permission of user 'shop' of virtual host 'orders': configure '', write '.*', read '.*'",
        ),
        (
            records.TOPIC_PERMISSION,
            {"user": "shop", "virtual-host": "/", "exchange": "amq.topic"},
            {"write": "^a", "read": "^b", "life": 3},
            "topic permission of user 'shop' on exchange 'amq.topic': write '^a', read '^b'",
        ),
        (
            records.LIMITS,
            {"kind": "virtual-host", "name": "orders"},
            {"max-queues": 9, "life": 0},
            "limits of virtual host 'orders': max-queues 9",
        ),
        (
            records.PARAMETER,
            {"virtual-host": "", "component": "global", "name": "cluster_name"},
            {"value": "amqp://user:secret@host"},
            "parameter 'cluster_name' of component 'global' of the whole broker",
        ),
        (
            dtx_journal.MARKER,
            {"virtual-host": "/", "name": "batches"},
            {"number": 7, "user": "shop", "note": "", "life": 3},
            "marker 'batches': number 7, user 'shop', note ''",
        ),
    ],
)
def test_what_was_administered_in_words(
    kind: bytes, identity: FieldTable, value: FieldTable, text: str
) -> None:
    """Without hashes of passwords and without values of parameters."""
    assert value_text(kind + encode_table(identity), encode_table(value)) == text


def test_a_lease_in_words() -> None:
    key = leases.LEASE + (5).to_bytes(8, "little") + b"spark"
    assert value_text(key, b"octets") == "lease of 'spark' on queue number 5"


def test_every_kind_of_value_that_recovery_takes_is_told_in_words() -> None:
    known = {kind for kind in map(bytes, ([octet] for octet in range(256))) if is_told(kind)}
    modules = (records, topology_records, leases, dtx_journal, spool)
    kinds = {value for module in modules for value in vars(module).values() if is_kind(value)}
    assert kinds
    assert kinds <= known


def is_kind(value: object) -> bool:
    return isinstance(value, bytes) and len(value) == 1 and value.isalpha()


def is_told(kind: bytes) -> bool:
    try:
        return "not known here" not in value_text(kind, b"")
    except (ValueError, KeyError, struct.error, FlintError):
        return True  # known, and this key is none of it
