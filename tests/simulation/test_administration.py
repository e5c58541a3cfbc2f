"""Histories with much administration; and that what is broken in it does not go unnoticed."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from flintmq.broker.administration.administration import Administration
from flintmq.broker.administration.permissions import AdministeredPermissions
from flintmq.broker.administration.virtual_hosts import VirtualHosts

from .broker_history import BrokerHistory

STEPS = 60
SEEDS = 60
SEEDS_BROKEN = 400


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def administered(seed: int) -> None:
    history = BrokerHistory(seed)
    history.administered_share = 0.9
    history.run(STEPS)


def run_all(seeds: int) -> None:
    for seed in range(seeds):
        administered(seed)


def test_users_and_virtual_hosts_come_and_go_under_load_and_crashes() -> None:
    run_all(SEEDS)


def forgets_nothing(self: object, *arguments: object) -> Iterator[None]:
    return iter(())


def does_nothing(self: object, *arguments: object) -> None:
    pass


@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (Administration, "closed", forgets_nothing),
        (Administration, "rights_changed", does_nothing),
        (AdministeredPermissions, "forget_host", forgets_nothing),
        (VirtualHosts, "resume", does_nothing),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_what_is_broken_is_noticed(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, broken: object
) -> None:
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(AssertionError):
        run_all(SEEDS_BROKEN)
