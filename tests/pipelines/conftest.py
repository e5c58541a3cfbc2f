"""One Spark session and one broker for all tests of pipelines: each takes seconds to start."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from standalone_cluster import SHORT_LIVED

NEEDED = ("pyspark", "pyarrow", "pandas", "deltalake", "fastavro", "rich")
if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
    raise pytest.UsageError(
        f"The tests of pipelines need {', '.join(missing)}: pip install '.[pipelines]', or make test-spark."
    )

# What these tests share lies beside them.
sys.path.insert(0, str(Path(__file__).parent))

# The first query on a busy machine compiles half of Spark.
TEST_TIMEOUT_S = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from flintmq.pipelines.run.sessions import open_session, settings_for

    warehouse = tmp_path_factory.mktemp("warehouse")
    java = f"{settings_for('local[2]', {})['spark.driver.extraJavaOptions']} {SHORT_LIVED}"
    given = {"spark.sql.warehouse.dir": str(warehouse), "spark.driver.extraJavaOptions": java}
    session = open_session("local[2]", given)
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
