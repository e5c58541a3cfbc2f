"""Classes that are not served are answered with 540: what spec/rules.txt says of their rules is true."""

from __future__ import annotations

import pytest
from broker_process import BrokerProcess
from generate_conformance import read_rules
from peer import Peer

from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method

ASKED: dict[str, Method] = {
    "message": methods.MessageQos(prefetch_count=1),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_a_class_that_is_not_served_is_answered_with_540(broker: BrokerProcess, asked: Method) -> None:
    with Peer.connect(broker.port, "0-9") as peer:
        peer.open(1)
        peer.send(1, asked)
        closed = peer.expect_connection_close(amqp.NOT_IMPLEMENTED)
        assert (closed.class_id, closed.method_id) == (asked.CLASS_ID, asked.METHOD_ID)


def test_the_table_says_so_of_whole_classes() -> None:
    unserved = {
        rule.class_name for rule in read_rules() if rule.reason.endswith("class is answered with 540")
    }
    assert unserved <= {*ASKED, "reject-code"}
    for rule in read_rules():
        if rule.class_name in unserved:
            assert rule.kind == "later", rule.id
