"""What the broker refuses, or does not answer, as a status of HTTP."""

from __future__ import annotations

from flintmq.client.core.errors import CallTimeout, PublishFailed, RequestUnknown, ServiceError
from flintmq.management.requests.faults import fault_of
from flintmq.wire import amqp


def test_a_broker_that_does_not_answer_is_no_mistake_of_the_client() -> None:
    fault = fault_of(CallTimeout("no answer to management.totals within 60 s"))
    assert (fault.status, fault.error) == (503, "service_unavailable")
    assert fault.reason.startswith("the broker does not answer: ")


def test_what_nobody_can_tell_is_no_refusal() -> None:
    """Whatever is remembered of the broker is asked for again then, as it may have changed."""
    unknown = RequestUnknown("user.put", "the connection was lost")
    assert fault_of(unknown).status == 503
    assert fault_of(PublishFailed("not safe", unknown=[1])).status == 503
    assert fault_of(PublishFailed("not safe", nacked=[1])).status == 400


def test_a_bug_of_the_broker_is_no_mistake_of_the_client() -> None:
    fault = fault_of(
        ServiceError("queue.peek", amqp.INTERNAL_ERROR, "queue.peek failed; see the broker's log")
    )
    assert (fault.status, fault.error) == (500, "internal_error")
    assert fault.reason == "queue.peek failed; see the broker's log"
