"""A broker for the client's tests, one for each module that needs no other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broker_process import BrokerProcess
from client.either import Either


@pytest.fixture(scope="module")
def uri() -> Iterator[str]:
    with BrokerProcess() as broker:
        yield f"amqp://guest:guest@127.0.0.1:{broker.port}"


@pytest.fixture(params=["sync", "aio"])
def either(request: pytest.FixtureRequest) -> Either:
    """Both clients, one after the other."""
    return Either(request.param)
