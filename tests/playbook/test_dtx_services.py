"""Coordinating distributed transactions by requests to the exchange `amq.system`."""

from __future__ import annotations

from typing import Any

import pytest
from playbook.branches import (
    OK,
    SETTINGS,
    USERS,
    X1,
    end,
    prepare,
    prepared,
    recovered,
    select,
    start,
    started,
)
from playbook.dialogue import Client, Playbook, carrying
from playbook.hourglass import TimedPlaybook
from playbook.test_services import ask, reply_queue

from flintmq.broker.transactions.xid import Xid
from flintmq.config import parse
from flintmq.wire import amqp, methods
from flintmq.wire.methods import BasicPublish
from flintmq.wire.tables import FieldTable


def xid(number: int) -> Xid:
    return Xid(42, b"query", b"%d" % number)


def stage(client: Client, *numbers: int, is_prepared: bool = True) -> list[str]:
    """Branches with one message each, on channel 2."""
    for number in numbers:
        octets = xid(number).octets()
        client[2] >> start(octets)
        client[2] << started()
        client[2] >> carried(b"%d" % number)
        client[2] >> end(octets)
        client[2] << methods.DtxDemarcationEndOk(flags=OK)
        if is_prepared:
            client[2] >> prepare(octets)
            client[2] << prepared()
    return [str(xid(number)) for number in numbers]


def carried(body: bytes) -> Any:
    return carrying(BasicPublish(routing_key="q"), body)


def coordinator(playbook: Playbook, **login: Any) -> Client:
    client = playbook.client(**login)
    client.declares("q")
    reply_queue(client)
    client[2] >> methods.ChannelOpen()
    client[2] << methods.ChannelOpenOk()
    select(client, 2)
    return client


@pytest.fixture
def spark(playbook: Playbook) -> Client:
    return coordinator(playbook)


def test_branches_are_listed(spark: Client) -> None:
    stage(spark, 1, 2)
    stage(spark, 3, is_prepared=False)
    rows = ask(spark, "dtx.list")["rows"]
    assert isinstance(rows, list)
    assert [(row["xid"], row["state"], row["messages"], row["operations"]) for row in rows] == [  # type: ignore[call-overload, index]
        (str(xid(1)), "prepared", 1, 1),
        (str(xid(2)), "prepared", 1, 1),
        (str(xid(3)), "open", 1, 1),
    ]
    assert len(ask(spark, "dtx.list", prefix=str(xid(2)))["rows"]) == 1  # type: ignore[arg-type]


def test_many_are_committed_in_one_go(spark: Client) -> None:
    xids = stage(spark, 1, 2, 3)
    assert ask(spark, "dtx.commit", xids=[*xids, xids[0]]) == {
        "already": False,
        "committed": 3,
        "rolled-back": 0,
        "unrouted": 0,
        "refused": 0,
    }
    assert spark.gets_all("q") == [b"1", b"2", b"3"]


def test_all_or_none(spark: Client) -> None:
    xids = stage(spark, 1, 2)
    answer = ask(spark, "dtx.commit", xids=[*xids, str(xid(9))])
    assert answer["error-code"] == amqp.NOT_FOUND
    assert str(xid(9)) in str(answer["error-text"])
    [half] = stage(spark, 3, is_prepared=False)
    answer = ask(spark, "dtx.commit", xids=[*xids, half])
    assert answer["error-code"] == amqp.PRECONDITION_FAILED
    assert "is open" in str(answer["error-text"])
    assert spark.gets_all("q") == []


def test_a_batch_is_committed_once(spark: Client) -> None:
    assert ask(spark, "dtx.marker", marker="query") == {"known": False}
    first = stage(spark, 1, 2)
    loser = stage(spark, 3)
    asked: dict[str, Any] = {"xids": first, "marker": "query", "marker_number": 0}
    done = ask(spark, "dtx.commit", rollback_xids=loser, **asked)
    assert done["already"] is False
    assert (done["committed"], done["rolled-back"], done["marker-number"]) == (2, 1, 0)
    told = ask(spark, "dtx.marker", marker="query")
    assert (told["known"], told["marker-number"], told["marker-note"]) == (True, 0, "")
    again = stage(spark, 1, 4)
    done = ask(spark, "dtx.commit", xids=again, marker="query", marker_number=0)
    assert (done["already"], done["committed"], done["rolled-back"], done["marker-number"]) == (True, 0, 2, 0)
    assert ask(spark, "dtx.list")["rows"] == []
    assert spark.gets_all("q") == [b"1", b"2"]
    second = stage(spark, 5)
    ask(spark, "dtx.commit", xids=second, marker="query", marker_number=7)
    assert ask(spark, "dtx.marker", marker="query")["marker-number"] == 7
    ask(spark, "dtx.commit", xids=[], marker="query", marker_number=8)
    assert ask(spark, "dtx.marker", marker="query")["marker-number"] == 8


def test_a_marker_tells_what_was_committed_and_can_be_set_back(spark: Client) -> None:
    """A number does not say which batch had it: the note does, and a writer that was set back may say so."""
    ask(spark, "dtx.commit", xids=stage(spark, 1), marker="query", marker_number=5, marker_note="five")
    told = ask(
        spark, "dtx.commit", xids=stage(spark, 2), marker="query", marker_number=3, marker_note="three"
    )
    assert (told["already"], told["marker-number"], told["marker-note"]) == (True, 5, "five")
    assert spark.gets_all("q") == [b"1"]
    asked: dict[str, Any] = {"marker": "query", "marker_number": 3, "marker_note": "three"}
    told = ask(spark, "dtx.commit", xids=stage(spark, 3), marker_reset=True, **asked)
    assert (told["already"], told["committed"]) == (False, 1)
    assert spark.gets_all("q") == [b"3"]
    told = ask(
        spark, "dtx.commit", xids=[str(xid(3))], marker_reset=True, **asked
    )  # the answer was not heard
    assert (told["already"], told["committed"]) == (True, 0)
    told = ask(spark, "dtx.marker", marker="query")
    assert (told["marker-number"], told["marker-note"]) == (3, "three")


def mark(client: Client, name: str, number: int = 0, **more: Any) -> FieldTable:
    return ask(client, "dtx.commit", xids=[], marker=name, marker_number=number, **more)


def marker_names(client: Client) -> list[Any]:
    rows = ask(client, "dtx.markers")["rows"]
    assert isinstance(rows, list)
    return [row["marker"] for row in rows if isinstance(row, dict)]


def test_no_marker_is_forgotten_because_others_came() -> None:
    """With room for two: neither a third writer nor any number of single writes drive one out."""
    client = coordinator(Playbook(parse(SETTINGS.replace("branch_bytes_max = 100", ""))))
    mark(client, "a")
    mark(client, "b")
    told = mark(client, "c")
    assert told["error-code"] == amqp.RESOURCE_ERROR
    assert "dtx.forget-marker" in str(told["error-text"])
    assert mark(client, "a", 1)["already"] is False  # those that are known go on
    for number in range(5):
        assert mark(client, f"job-{number}", marker_keep_s=60)["already"] is False
    assert marker_names(client) == ["a", "b", "job-3", "job-4"]
    assert ask(client, "dtx.forget-marker", marker="b") == {"forgotten": True}
    assert ask(client, "dtx.forget-marker", marker="b") == {"forgotten": False}
    assert mark(client, "c")["already"] is False
    assert marker_names(client) == ["a", "c", "job-3", "job-4"]


def test_a_marker_goes_by_its_age() -> None:
    settings = "[dtx]\nmarkers_max = 2\nmarker_age_s = 3600"
    playbook = TimedPlaybook(parse(settings))
    client = coordinator(playbook)
    mark(client, "a")
    mark(client, "job", marker_keep_s=60)
    playbook.passes(3_000_000)
    mark(client, "b")
    assert marker_names(client) == ["a", "b"]
    playbook.passes(1_000_000)
    mark(client, "b", 1)
    assert marker_names(client) == ["b"]


def limited(client: Client, name: str, **arguments: Any) -> None:
    client >> methods.QueueDeclare(queue=name, arguments={"x-overflow": "reject-publish", **arguments})
    assert isinstance(client.next(1), methods.QueueDeclareOk)


def stage_for(client: Client, key: str, number: int, count: int) -> list[str]:
    octets = xid(number).octets()
    client[2] >> start(octets)
    client[2] << started()
    for index in range(count):
        client[2] >> carrying(BasicPublish(routing_key=key), b"%d" % index)
    client[2] >> end(octets)
    client[2] << methods.DtxDemarcationEndOk(flags=OK)
    client[2] >> prepare(octets)
    client[2] << prepared()
    return [str(xid(number))]


@pytest.mark.parametrize("limits", [{"x-max-length": 3}, {"x-max-length-bytes": 3}])
def test_a_commit_into_a_queue_that_is_full(spark: Client, limits: dict[str, int]) -> None:
    limited(spark, "small", **limits)
    xids = stage_for(spark, "small", 1, 5)
    told = ask(spark, "dtx.commit", xids=xids, marker="query", marker_number=0, mandatory=True)
    assert told["error-code"] == amqp.RESOURCE_ERROR
    assert "queue 'small' has no room for 5" in str(told["error-text"])
    assert ask(spark, "dtx.marker", marker="query") == {"known": False}
    assert spark.gets_all("small") == []
    told = ask(spark, "dtx.commit", xids=xids, marker="query", marker_number=0)
    assert (told["committed"], told["refused"], told["unrouted"]) == (1, 2, 0)
    assert spark.gets_all("small") == [b"0", b"1", b"2"]


def test_a_commit_for_a_queue_that_is_gone(spark: Client) -> None:
    xids = stage_for(spark, "gone", 1, 5)
    told = ask(spark, "dtx.commit", xids=xids, mandatory=True)
    assert told["error-code"] == amqp.NO_ROUTE
    assert "5 messages to queue 'gone'" in str(told["error-text"])
    spark.declares("gone")
    assert ask(spark, "dtx.commit", xids=xids, mandatory=True)["unrouted"] == 0
    assert len(spark.gets_all("gone")) == 5
    told = ask(spark, "dtx.commit", xids=stage_for(spark, "never", 2, 4))
    assert (told["committed"], told["unrouted"]) == (1, 4)


def test_a_commit_for_an_exchange_that_is_gone_or_unbound(spark: Client) -> None:
    spark >> methods.ExchangeDeclare(exchange="x", type="direct")
    spark << methods.ExchangeDeclareOk()
    spark[2] >> start(xid(1).octets())
    spark[2] << started()
    spark[2] >> carrying(BasicPublish(exchange="x", routing_key="k"), b"1")
    spark[2] >> end(xid(1).octets())
    spark[2] << methods.DtxDemarcationEndOk(flags=OK)
    spark[2] >> prepare(xid(1).octets())
    spark[2] << prepared()
    told = ask(spark, "dtx.commit", xids=[str(xid(1))], mandatory=True)
    assert "exchange 'x' with routing key 'k' go to no queue: no queue is bound" in str(told["error-text"])
    spark >> methods.ExchangeDelete(exchange="x")
    spark << methods.ExchangeDeleteOk()
    told = ask(spark, "dtx.commit", xids=[str(xid(1))], mandatory=True)
    assert "there is no such exchange" in str(told["error-text"])
    assert ask(spark, "dtx.commit", xids=[str(xid(1))])["unrouted"] == 1


def test_rollback_names_what_is_not_there(spark: Client) -> None:
    xids = stage(spark, 1)
    done = ask(spark, "dtx.rollback", xids=[*xids, str(xid(2))])
    assert done == {"rolled-back": 1, "unknown": [str(xid(2))]}
    assert spark.gets_all("q") == []


def test_prepare(spark: Client) -> None:
    xids = stage(spark, 1, is_prepared=False)
    empty = Xid(42, b"empty", b"")
    spark[2] >> start(empty.octets())
    spark[2] << started()
    spark[2] >> end(empty.octets())
    spark[2] << methods.DtxDemarcationEndOk(flags=OK)
    assert ask(spark, "dtx.prepare", xids=[*xids, str(empty)]) == {
        "prepared": xids,
        "read-only": [str(empty)],
        "rolled-back": [],
    }


@pytest.mark.parametrize(
    ("way", "state"), [("commit", "heuristic-commit"), ("rollback", "heuristic-rollback")]
)
def test_an_operator_decides(spark: Client, way: str, state: str) -> None:
    xids = stage(spark, 1)
    ask(spark, f"dtx.{way}", xids=xids, heuristic=True)
    assert spark.gets_all("q") == ([b"1"] if way == "commit" else [])
    assert recovered(spark) == {xid(1).octets(): state}
    spark >> methods.DtxCoordinationRollback(xid=xid(1).octets())
    code = amqp.XA_HEURCOM if way == "commit" else amqp.XA_HEURRB
    spark << methods.DtxCoordinationRollbackOk(flags=code)
    spark >> methods.DtxCoordinationForget(xid=xid(1).octets())
    spark << methods.DtxCoordinationForgetOk()
    assert recovered(spark) == {}


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("dtx.commit", {}, "argument 'xids': expected an array of texts"),
        ("dtx.commit", {"xids": "1:61:62"}, "argument 'xids': expected an array of texts"),
        ("dtx.commit", {"xids": [7]}, "argument 'xids': expected an array of texts"),
        ("dtx.commit", {"xids": ["what"]}, "'what' is not format:global id:branch id"),
        ("dtx.commit", {"xids": ["1:zz:"]}, "ids that are not hexadecimal"),
        ("dtx.commit", {"xids": ["-1:61:"]}, "format of an xid"),
        ("dtx.commit", {"xids": ["1::"]}, "global id of an xid"),
        ("dtx.commit", {"xids": [], "marker": "m"}, "argument 'marker-number': is missing"),
        ("dtx.commit", {"xids": [], "marker": "m" * 256, "marker_number": 1}, "at most 255 octets"),
        ("dtx.commit", {"xids": [], "marker": "m", "marker_number": 1, "heuristic": True}, "'heuristic'"),
        (
            "dtx.commit",
            {"xids": [], "marker": "m", "marker_number": 1, "marker_note": "n" * 2049},
            "at most 2048 octets",
        ),
        ("dtx.marker", {}, "argument 'marker': is missing"),
        ("dtx.forget-marker", {}, "argument 'marker': is missing"),
    ],
)
def test_wrong_arguments(spark: Client, name: str, arguments: dict[str, Any], text: str) -> None:
    answer = ask(spark, name, **arguments)
    assert answer["error-code"] == amqp.PRECONDITION_FAILED
    assert text in str(answer["error-text"])


def test_markers_and_branches_have_owners() -> None:
    playbook = Playbook(parse(USERS))
    ann = coordinator(playbook, user="ann", password="ann")
    bob = playbook.client(user="bob", password="bob")
    reply_queue(bob, "bobs")
    xids = stage(ann, 1)
    assert ask(bob, "dtx.list", reply_to="bobs")["rows"] == []
    assert ask(bob, "dtx.commit", reply_to="bobs", xids=xids)["error-code"] == amqp.ACCESS_REFUSED
    ask(ann, "dtx.commit", xids=xids, marker="m", marker_number=1)
    refused = ask(bob, "dtx.commit", reply_to="bobs", xids=[], marker="m", marker_number=2)
    assert str(refused["error-text"]).endswith("marker 'm' belongs to another user than 'bob'")


def test_it_is_announced(playbook: Playbook) -> None:
    stranger = playbook.stranger()
    properties = stranger.greet().server_properties
    assert properties["capabilities"]["flintmq.dtx"] is True  # type: ignore[index, call-overload]


def test_a_busy_branch_is_not_rolled_back_by_others(spark: Client) -> None:
    spark[2] >> start(X1)
    spark[2] << started()
    answer = ask(spark, "dtx.rollback", xids=["1:676c6f62616c:6f6e65"])
    assert "end it there first" in str(answer["error-text"])


def test_nothing_is_committed_if_a_branch_to_be_rolled_back_is_busy(spark: Client) -> None:
    winner = stage(spark, 1)
    busy = xid(2).octets()
    spark[2] >> start(busy)
    spark[2] << started()
    answer = ask(spark, "dtx.commit", xids=winner, rollback_xids=[str(xid(2))])
    assert "end it there first" in str(answer["error-text"])
    assert spark.gets_all("q") == []
    spark[2] >> end(busy)
    spark[2] << methods.DtxDemarcationEndOk(flags=OK)
    done = ask(spark, "dtx.commit", xids=winner, rollback_xids=[str(xid(2))])
    assert (done["committed"], done["rolled-back"]) == (1, 1)
    assert spark.gets_all("q") == [b"1"]
