"""Fixtures for pytest: brokers in processes of their own, in memory, on ports that were free.

    flintmq                 one for a test alone
    flintmq_virtual_host    a fresh virtual host of the broker of the run
    flintmq_session         the broker of the run, for all tests, which then share its queues
    flintmq_options         what else their command lines say, for a conftest.py to override

pytest finds them by itself where the package is installed. The brokers end with the tests, and with pytest,
however that ends. What a test leaves behind is told in the summary: messages that came to no queue, and
unacked ones. Under pytest-xdist each worker has brokers of its own.
"""

from __future__ import annotations

import argparse
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path

import pytest

from flintmq.testing.served_broker import ServedBroker, VirtualHost
from flintmq.testing.sources import BrokerGone, Source, new_source

SOURCE = pytest.StashKey[Source]()
SOURCE_FIXTURE = "_flintmq_source"
# A function that takes one of them: of a test, or of a fixture that stands on it.
NAMED = re.compile(rb"\bdef \w+\([^)]*\bflintmq(_session|_virtual_host)?\s*[,:)]")
# How much is looked at before conftest files are loaded: a millisecond or two, in a project of any size.
EARLY_FILES_MAX = 50
EARLY_ENTRIES_MAX = 500
# Options of a run that executes neither tests nor fixtures.
WITHOUT_TESTS = (
    "collectonly",
    "help",
    "version",
    "markers",
    "cacheshow",
    "showfixtures",
    "show_fixtures_per_test",
    "setupplan",
)
# Options of pytest-xdist: tests run in its workers, which are given the same options, not in the controller.
WITH_WORKERS = ("numprocesses", "tx")
WORKER = "PYTEST_XDIST_WORKER"
LEFTOVERS = "flintmq_leftovers"
LEFTOVERS_KNOWN = ("tell", "fail", "ignore")
SECTION = "flintmq"
MARKER = (
    "flintmq(durable=False, leftovers=None): for the broker of the test; durable: with a data directory; "
    f"leftovers: {', '.join(LEFTOVERS_KNOWN)}"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        LEFTOVERS,
        f"messages that came to no queue, or are unacked at the end of a test: {', '.join(LEFTOVERS_KNOWN)}",
        default=LEFTOVERS_KNOWN[0],
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    config.pluginmanager.register(Summary(), "flintmq-summary")


@pytest.fixture(scope="session")
def flintmq_options() -> tuple[str, ...]:
    """Further options of `flintmq serve`."""
    return ()


# The source of brokers


def source_of(config: pytest.Config) -> Source:
    """One for the whole run, made when it is first needed, and closed however the run ends."""
    source = config.stash.get(SOURCE, None)
    if source is None:
        source = config.stash[SOURCE] = new_source()
        config.add_cleanup(source.close)
    return source


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """The nursery loads while conftest files do, if one of the first files has a test of a broker."""
    given = early_config.known_args_namespace
    if not has_tests(given):
        return
    patterns = ["conftest.py", *early_config.getini("python_files")]
    named = given.file_or_dir or early_config.getini("testpaths") or ["."]
    places = [early_config.invocation_params.dir / word.partition("::")[0] for word in named]
    if any(map(names_broker, islice(early_files(places, patterns), EARLY_FILES_MAX))):
        source_of(early_config)


def has_tests(options: argparse.Namespace) -> bool:
    """Whether tests run in this process."""
    names = WITHOUT_TESTS if WORKER in os.environ else WITHOUT_TESTS + WITH_WORKERS
    return not any(getattr(options, name, None) for name in names)


def early_files(places: Sequence[Path], patterns: Sequence[str]) -> Iterator[Path]:
    """Files with tests, those nearest to the given places first, as far as a short look finds them."""
    # Unlike Path.is_file, these are False for whatever the system refuses to look at.
    yield from filter(os.path.isfile, places)
    folders = deque(filter(os.path.isdir, places))
    left = EARLY_ENTRIES_MAX
    while folders and left > 0:
        try:
            with os.scandir(folders.popleft()) as entries:
                found = sorted(islice(entries, left), key=lambda entry: entry.name)
                folders.extend(
                    Path(entry.path)
                    for entry in found
                    if entry.is_dir() and not entry.name.startswith((".", "_"))
                )
        except OSError:  # pytest says what is wrong with it
            continue
        left -= len(found)
        for entry in found:
            if any(fnmatch(entry.name, pattern) for pattern in patterns):
                yield Path(entry.path)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> None:
    """The nursery loads while the tests are, from the first file on that has a test of a broker."""
    config = parent.config
    if SOURCE in config.stash or file_path.suffix != ".py" or not has_tests(config.option):
        return
    if names_broker(file_path):
        source_of(config)


def names_broker(file_path: Path) -> bool:
    """Whether a file has a function that takes a fixture of a broker."""
    try:
        return bool(NAMED.search(file_path.read_bytes()))
    except OSError:  # pytest says what is wrong with it
        return False


def pytest_collection_finish(session: pytest.Session) -> None:
    """The nursery loads while other tests run, if any test will need it."""
    if not has_tests(session.config.option):
        return
    for item in session.items:
        if SOURCE_FIXTURE in getattr(item, "fixturenames", ()):
            source_of(session.config)
            return


@pytest.fixture(scope="session")
def _flintmq_source(pytestconfig: pytest.Config) -> Source:
    return source_of(pytestconfig)


# Brokers


@pytest.fixture
def flintmq(
    request: pytest.FixtureRequest, _flintmq_source: Source, flintmq_options: Sequence[str]
) -> Iterator[ServedBroker]:
    """A broker for this test: `flintmq.uri`, `flintmq.published()`, `flintmq.move_time(60)` and more."""
    options = list(flintmq_options)
    if chosen(request.node, "durable", False):
        options += ["--data", str(request.getfixturevalue("tmp_path") / "flintmq")]
    broker = ServedBroker(_flintmq_source, options)
    try:
        yield broker
        tell_leftovers(request.node, broker)
    finally:
        broker.stop()


@pytest.fixture(scope="session")
def flintmq_session(_flintmq_source: Source, flintmq_options: Sequence[str]) -> Iterator[ServedBroker]:
    """A broker for all tests of the run: `flintmq_session.uri`, `flintmq_session.port`."""
    broker = ServedBroker(_flintmq_source, flintmq_options)
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def flintmq_virtual_host(
    request: pytest.FixtureRequest, flintmq_session: ServedBroker
) -> Iterator[VirtualHost]:
    """A fresh virtual host of the broker of the run: `flintmq_virtual_host.uri` and what `flintmq` has.

    Without what concerns the whole broker: alarms, time, kill -9.
    """
    host = flintmq_session.virtual_host()
    try:
        yield host
        tell_leftovers(request.node, host)
    finally:
        flintmq_session.delete_virtual_host(host.name)


# What tests leave behind


def chosen(item: pytest.Item, name: str, default: object) -> object:
    """What the marker of a test says."""
    marker = item.get_closest_marker("flintmq")
    if marker is None:
        return default
    if marker.args or marker.kwargs.keys() - {"durable", "leftovers"}:
        raise pytest.UsageError(f"{item.nodeid}: the marker is {MARKER}")
    return marker.kwargs.get(name, default)


def tell_leftovers(item: pytest.Item, host: VirtualHost) -> None:
    wanted = chosen(item, "leftovers", None) or item.config.getini(LEFTOVERS)
    if wanted not in LEFTOVERS_KNOWN:
        raise pytest.UsageError(f"{LEFTOVERS} is {wanted!r}: it can be {', '.join(LEFTOVERS_KNOWN)}")
    if wanted == "ignore":
        return
    try:
        lines = host.leftovers()
    except BrokerGone:  # the test has killed it: there is nobody who could tell
        return
    if lines and wanted == "fail":
        pytest.fail("left behind: " + "; ".join(lines), pytrace=False)
    if lines:
        item.add_report_section("teardown", SECTION, "\n".join(lines))


class Summary:
    """Tells at the end of the run what tests have left behind; of those of other workers too."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            for title, text in report.sections:
                if title == f"Captured {SECTION} teardown":
                    self.lines += [f"{report.nodeid}: {line}" for line in text.splitlines()]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.lines:
            terminalreporter.section("flintmq: messages left behind")
            for line in self.lines:
                terminalreporter.line(line)
