"""One Spark session for all tests of a process, a live broker, and the means to run queries to their end."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess

if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
    raise pytest.UsageError(
        "The tests of the Spark connector need Spark: pip install '.[spark]', or make test-spark."
    )

# What these tests share lies beside them.
sys.path.insert(0, str(Path(__file__).parent))

from spark_queries import Query
from standalone_cluster import SHORT_LIVED

from flintmq.client import Channel, Connection, connect
from flintmq.spark import session

SETTINGS = {
    "spark.driver.memory": "700m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}


# What is logged at all goes to a file, in full.
LOGGING = """
rootLogger.level = off
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c: %m%n%ex
"""


@pytest.fixture(scope="session")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark writes its log and its event log."""
    place = tmp_path_factory.mktemp("records")
    (place / "events").mkdir()
    (place / "log4j2.properties").write_text(LOGGING.format(file=place / "spark.log"))
    return place


@pytest.fixture(scope="session")
def spark(records: Path) -> Iterator[Any]:
    logging = f"-Dlog4j2.configurationFile={records / 'log4j2.properties'}"
    settings = {
        **SETTINGS,
        "spark.driver.extraJavaOptions": f"{SHORT_LIVED} {logging}",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (records / "events").as_uri(),
        # Plans in full, as the SQL page of the UI shows them.
        "spark.sql.ui.explainMode": "extended",
    }
    made = session("local[2]", "flintmq tests", settings=settings)
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess("--data", str(tmp_path_factory.mktemp("broker"))) as process:
        yield process


@pytest.fixture(scope="session")
def uri(broker: BrokerProcess) -> str:
    return f"amqp://127.0.0.1:{broker.port}"


@pytest.fixture
def connection(uri: str) -> Iterator[Connection]:
    with connect(uri) as made:
        yield made


@pytest.fixture
def channel(connection: Connection) -> Channel:
    return connection.channel(confirm=True)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A queue of the test's own."""
    return str(request.node.name)


@pytest.fixture
def stream(channel: Channel, name: str) -> str:
    channel.queue(name, durable=True, arguments={"x-queue-type": "stream"})
    return name


@pytest.fixture
def queue(channel: Channel, name: str) -> str:
    channel.queue(name, durable=True)
    return name


@pytest.fixture
def out(channel: Channel, name: str) -> str:
    channel.queue(f"{name}-out", durable=True)
    return f"{name}-out"


@pytest.fixture
def fill(channel: Channel) -> Callable[..., None]:
    """Publishes messages `start` to `end` - 1, whose bodies are their numbers."""

    def publish(queue: str, start: int, end: int, **properties: Any) -> None:
        bodies = [str(number).encode() for number in range(start, end)]
        channel.publish_many(bodies, routing_key=queue, persistent=True, **properties)

    return publish


@pytest.fixture
def query(spark: Any, uri: str, tmp_path: Path) -> Callable[..., Query]:
    def make(**options: str) -> Query:
        return Query(spark, tmp_path / "checkpoint", {"uri": uri, **options})

    return make


def bodies(connection: Connection, queue: str) -> list[int]:
    """The numbers in a queue, taken out of it."""
    found: list[int] = []
    with connection.channel() as channel:
        while (message := channel.get(queue, no_ack=True)) is not None:
            found.append(int(message.body))
    return found


@pytest.fixture
def drain(connection: Connection) -> Callable[[str], list[int]]:
    return lambda queue: bodies(connection, queue)
