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


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    made = session("local[2]", "flintmq tests", settings=SETTINGS)
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess("--data", str(tmp_path_factory.mktemp("broker"))) as process:
        yield process


@pytest.fixture(scope="session")
def uri(broker: BrokerProcess) -> str:
    return f"amqp://guest:guest@127.0.0.1:{broker.port}"


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


class Query:
    """A streaming query with a checkpoint, run to the end of what is there, again and again."""

    def __init__(self, spark: Any, checkpoint: Path, options: dict[str, str]) -> None:
        self.spark = spark
        self.checkpoint = checkpoint
        self.options = options
        self.batches: dict[int, list[int]] = {}
        self.rows: list[int] = []
        self.fail_at: int | None = None
        self.last: Any = None

    def frame(self) -> Any:
        return self.spark.readStream.format("amqp").options(**self.options).load()

    def run(self, **changes: str) -> list[int]:
        """Runs until all is read; the numbers that came, in order."""
        self.options.update(changes)
        before = len(self.rows)
        self.start(trigger={"availableNow": True}).awaitTermination()
        return self.rows[before:]

    def start(self, trigger: dict[str, Any]) -> Any:
        def take(frame: Any, batch: int) -> None:
            found = [int(bytes(row.value)) for row in frame.select("value").collect()]
            if self.fail_at == batch:
                raise RuntimeError("told to fail")
            self.batches[batch] = found
            self.rows += found

        writer = self.frame().writeStream.foreachBatch(take)
        self.last = writer.option("checkpointLocation", str(self.checkpoint)).trigger(**trigger).start()
        return self.last


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
