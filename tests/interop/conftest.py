"""The live broker of the interop tests.

Owns its start, the reading of the address it listens on, and its stop. FLINTMQ_TEST_URL names a broker
that already runs; without it every test process starts a FlintMQ of its own. A test marked
`standard` holds a rule of the standard that RabbitMQ does not follow, and is skipped there.
"""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # the modules the tests share have names of their own: interop_*

from interop_live import Broker  # noqa: E402

LIBRARIES = ("pika", "aio_pika", "kombu", "celery", "amqp", "txamqp")
START_S_MAX = 30.0
STOP_S_MAX = 15.0
LISTENING = re.compile(r"listening on\b.*:(\d+)")

collect_ignore_glob: list[str] = []
_absent = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
if _absent and os.environ.get("CI") != "true":
    collect_ignore_glob.append("test_*.py")
    warnings.warn(
        pytest.PytestWarning(
            f"interop tests left out, no {', '.join(_absent)}: pip install -r tests/interop/requirements.txt"
        ),
        stacklevel=1,
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "standard: a rule of the standard that RabbitMQ does not follow; skipped there"
    )
    config.addinivalue_line("markers", "planned: RabbitMQ has it and we do not yet; must fail on FlintMQ")


class BrokerProcess:
    """One `flintmq serve`, from its first line to its exit status."""

    def __init__(self, data: Path, port: int = 0) -> None:
        self.command = [sys.executable, "-m", "flintmq", "serve", "--host", "127.0.0.1"]
        self.command += ["--port", str(port), "--data", str(data)]
        self.process = subprocess.Popen(
            self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=data.parent
        )
        self.said: list[str] = []
        self.port = 0
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._listening.wait(START_S_MAX)
        if not self.port:
            self.process.kill()
            pytest.fail(f"{' '.join(self.command)} did not say what it listens on:\n{self.output}")

    def _read(self) -> None:
        """Keep what it says, so that a full pipe never stops it; the first address is the one we use."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            found = LISTENING.search(line)
            if found and not self.port:
                self.port = int(found[1])
                self._listening.set()
        self._listening.set()

    @property
    def output(self) -> str:
        return "".join(self.said)[-4000:]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            pytest.fail(f"the broker did not stop within {STOP_S_MAX:g} s of SIGTERM:\n{self.output}")
        self._reader.join(STOP_S_MAX)
        assert status == 0, f"the broker ended with {status} after SIGTERM:\n{self.output}"


def ask_product(host: str, port: int) -> str:
    """What the broker calls itself in connection.start."""
    import pika

    parameters = pika.ConnectionParameters(host, port)
    connection = pika.BlockingConnection(parameters)
    properties = connection._impl.server_properties
    connection.close()
    return str(properties.get("product", ""))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    url = os.environ.get("FLINTMQ_TEST_URL")
    if url:
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        yield Broker(parts.hostname, parts.port, ask_product(parts.hostname, parts.port))
        return
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data")
    try:
        yield Broker("127.0.0.1", process.port, ask_product("127.0.0.1", process.port))
    finally:
        process.stop()


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[[int], BrokerProcess]]:
    """Starts brokers that one test may stop as it likes, all on the same data directory."""
    if os.environ.get("FLINTMQ_TEST_URL"):
        pytest.skip("stops and starts a broker, so it needs one of its own: unset FLINTMQ_TEST_URL")
    started: list[BrokerProcess] = []

    def start(port: int = 0) -> BrokerProcess:
        started.append(BrokerProcess(tmp_path / "data", port))
        return started[-1]

    yield start
    for process in started:
        if process.process.poll() is None:
            process.stop()


@pytest.fixture(autouse=True)
def _standard_only(request: pytest.FixtureRequest, broker: Broker) -> None:
    if request.node.get_closest_marker("standard") and broker.is_rabbitmq:
        pytest.skip("the standard asks for this and RabbitMQ does not do it")
    if request.node.get_closest_marker("planned") and not broker.is_rabbitmq:
        # Strict: the day it passes, the mark has to go.
        request.applymarker(pytest.mark.xfail(strict=True, reason="queue arguments are not built yet"))


@pytest.fixture
def channel(broker: Broker) -> Iterator[Any]:
    """A channel of pika's blocking client, on a connection of its own."""
    from interop_pika import connected

    with connected(broker) as connection:
        yield connection.channel()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Names that no other test uses: name("jobs") is the same name all through one test."""
    mark = f"{request.node.originalname[:60]}.{uuid.uuid4().hex[:8]}"
    return lambda noun: f"{mark}.{noun}"
