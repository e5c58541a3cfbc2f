"""One Spark session and one broker for all tests of pipelines: each takes seconds to start."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess

_NEEDED = ("pyspark", "pyarrow", "pandas", "deltalake", "fastavro", "rich")
_MISSING = [name for name in _NEEDED if importlib.util.find_spec(name) is None]


@pytest.fixture(autouse=True, scope="session")
def _packages() -> None:
    """Where the tests are the gate, a package that is not there is a failure; elsewhere it is said."""
    if _MISSING:
        reason = f"{', '.join(_MISSING)} not installed: pip install 'flintmq[pipelines]'"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session")
def spark(_packages: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from flintmq.pipelines.sessions import open_session

    warehouse = tmp_path_factory.mktemp("warehouse")
    session = open_session("local[2]", {"spark.sql.warehouse.dir": str(warehouse)})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess("--data", str(tmp_path_factory.mktemp("broker"))) as running:
        yield running


@pytest.fixture
def uri(broker: BrokerProcess) -> str:
    return f"amqp://guest:guest@127.0.0.1:{broker.port}/"


@pytest.fixture
def connection(uri: str) -> Iterator[Any]:
    from flintmq.client import connect

    with connect(uri) as opened:
        yield opened


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"
