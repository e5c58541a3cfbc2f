"""Random operations on FlintMQ and RabbitMQ, for a minute: no difference that is not known.

DIFFERENTIAL_SECONDS makes it longer, DIFFERENTIAL_SEED begins elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from differential.comparison import Comparison, Difference
from differential.generator import Generator
from differential.known import KNOWN
from differential.operation import Operation, from_json
from differential.run import brokers, search

SECONDS = float(os.environ.get("DIFFERENTIAL_SECONDS", "60"))
SEED = int(os.environ.get("DIFFERENTIAL_SEED", "1"))
HINT = "RabbitMQ is not installed: apt-get install rabbitmq-server, or make interop-deps"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "rabbitmq.md"

# Starting and stopping both, and reducing a difference, take their time.
pytestmark = pytest.mark.timeout(SECONDS + 540)


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    if not brokers.RABBITMQ_SERVER.exists():
        if os.environ.get("CI") == "true":
            pytest.fail(HINT)
        pytest.skip(HINT)
    with ExitStack() as stack:
        directory = tmp_path_factory.mktemp("differential")
        ours = stack.enter_context(brokers.flintmq(brokers.FLINTMQ_COMMAND, directory / "flintmq"))
        theirs = stack.enter_context(brokers.rabbitmq(directory / "rabbitmq"))
        yield Comparison(ours.port, theirs.port)


def test_no_difference_that_is_not_known(comparison: Comparison) -> None:
    found = search(comparison, SEED, SECONDS, most=1)
    assert not found, f"\n{found[0]}"
    assert comparison.operations > 100


def test_a_difference_is_found_and_reduced(comparison: Comparison) -> None:
    """RabbitMQ does not serve recover without requeue. The operations before that have no part in it."""
    operations = Generator(1).topology()
    operations += [Operation("qos", 0, 1, {"count": 3}), Operation("recover", 0, 1, {"requeue": False})]
    found = comparison.run(operations)
    assert isinstance(found, Difference)
    assert comparison.confirmed(found) is not None
    assert comparison.reduced(found).operations == [operations[-1]]


def test_operations_come_from_the_seed_alone_and_can_be_read_back() -> None:
    made = Generator(7).operations(50)
    assert made == Generator(7).operations(50) != Generator(8).operations(50)
    assert [from_json(each.as_json()).as_json() for each in made] == [each.as_json() for each in made]


def test_each_known_difference_is_on_the_page_for_those_who_come_from_rabbitmq() -> None:
    page = PAGE.read_text()
    missing = [each.reason for each in KNOWN if each.reason not in page]
    assert not missing, missing
