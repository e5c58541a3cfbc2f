"""A broker for the client's tests, one for each module that needs no other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broker_process import BrokerProcess
from client.either import Either
from network_proxy import NetworkProxy


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as started:
        yield started


@pytest.fixture(scope="module")
def uri(broker: BrokerProcess) -> str:
    return f"amqp://guest:guest@127.0.0.1:{broker.port}"


@pytest.fixture
def proxy(broker: BrokerProcess) -> Iterator[NetworkProxy]:
    """A network to the broker that fails when and where a test says."""
    with NetworkProxy(broker.port) as started:
        yield started


@pytest.fixture(params=["sync", "aio"])
def either(request: pytest.FixtureRequest) -> Either:
    """Both clients, one after the other."""
    return Either(request.param)
