"""One broker with its management process for all tests here."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from broker_process import BrokerProcess
from management_http import Http

_MANAGEMENT = re.compile(r"management on http://127\.0\.0\.1:(\d+)")


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess("--management-port", "0") as process:
        yield process


@pytest.fixture
def http_api(broker: BrokerProcess) -> Http:
    return Http(int(broker.wait_for(_MANAGEMENT)[1]), broker.port)


@pytest.fixture
def vhost(http_api: Http, request: pytest.FixtureRequest) -> Iterator[str]:
    """A virtual host for one test."""
    name = re.sub(r"\W", "-", request.node.name)[:60]
    assert http_api.ok("PUT", f"vhosts/{name}") == 201
    yield name
    assert http_api("DELETE", f"/api/vhosts/{name}").status in (204, 404)
