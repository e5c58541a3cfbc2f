"""One broker for all conformance tests of a process, and peers that speak the versions under test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from typing import Any

import pytest
from broker_process import BrokerProcess
from conformance.rule import versions_of
from peer import Peer

# guest may do all, but must not enter "closed"; watcher may look and touch nothing.
# The broker waits for a handshake longer than a peer waits for the broker, so that an end which a test
# expects is never just the end of its patience.
SETTINGS = """
virtual_hosts = ["/", "other", "closed"]

[limits]
handshake_timeout_s = 60

[users.guest]
password = "guest"
permissions."/" = { configure = ".*", write = ".*", read = ".*" }
permissions.other = { configure = ".*", write = ".*", read = ".*" }

[users.watcher]
password = "watcher"
permissions."/" = { configure = "^$", write = "^$", read = "^$" }
"""

Connect = Callable[..., Peer]
_serial = count(1)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    ids = getattr(metafunc.function, "rules", None)
    if ids and "version" in metafunc.fixturenames:
        metafunc.parametrize("version", versions_of(ids))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = tmp_path_factory.mktemp("broker") / "flintmq.toml"
    settings.write_text(SETTINGS)
    with BrokerProcess("--config", str(settings), "--log-level", "info") as running:
        yield running


@pytest.fixture
def connect(broker: BrokerProcess, version: str) -> Iterator[Connect]:
    """Opens further connections, with channel 1 open; the arguments are those of Peer.connect."""
    with ExitStack() as peers:
        yield partial(connected, peers, broker, version)


@pytest.fixture
def connect_091(broker: BrokerProcess) -> Iterator[Connect]:
    """The same in 0-9-1, whatever the version under test."""
    with ExitStack() as peers:
        yield partial(connected, peers, broker, "0-9-1")


def connected(peers: ExitStack, broker: BrokerProcess, version: str, **wishes: Any) -> Peer:
    made = peers.enter_context(Peer.connect(broker.port, version, **wishes))
    made.open(1)
    return made


@pytest.fixture
def peer(connect: Connect) -> Peer:
    """A connection with channel 1 open."""
    return connect()


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"test-{next(_serial)}"
