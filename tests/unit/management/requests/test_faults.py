"""What the broker refuses, or does not answer, as a status of HTTP."""

from __future__ import annotations

from flintmq.client.core.errors import CallTimeout
from flintmq.management.requests.faults import fault_of


def test_a_broker_that_does_not_answer_is_no_mistake_of_the_client() -> None:
    fault = fault_of(CallTimeout("no answer to management.totals within 60 s"))
    assert (fault.status, fault.error) == (503, "service_unavailable")
    assert fault.reason.startswith("the broker does not answer: ")
