"""Playbook: a handle that is paused holds its consumers, and has no more of them than others may."""

from __future__ import annotations

from fast.conversation import FastClient
from playbook.dialogue import Playbook

from flintmq.config import Config

CONSUMERS_MAX = 5


def opened(config: Config) -> FastClient:
    playbook = Playbook(config)
    playbook.client().declares("q")
    fast = FastClient(playbook)
    fast.open()
    fast.opens_handle("q")
    fast >> "22 0001 0001 01"
    fast << "30 0001 0001 00c8 02 'Ok'"
    return fast


def consumes(fast: FastClient) -> bytes:
    fast >> "20 0001 0007 0001 00 00 0000"
    return fast.hears()


def test_consumers_that_are_paused_count_for_their_channel() -> None:
    limits = Config().limits._replace(consumers_per_channel_max=CONSUMERS_MAX)
    fast = opened(Config()._replace(limits=limits))
    for _ in range(CONSUMERS_MAX):
        assert b"Ok" in consumes(fast)
    assert b"reached maximum (5) of consumers per channel" in consumes(fast)
    assert len(fast.session.consumers.handles) <= CONSUMERS_MAX
    fast.playbook.end()


def test_consumers_that_are_paused_count_for_their_connection() -> None:
    limits = Config().limits._replace(consumers_per_connection_max=CONSUMERS_MAX)
    fast = opened(Config()._replace(limits=limits))
    for _ in range(CONSUMERS_MAX):
        assert b"Ok" in consumes(fast)
    assert b"reached maximum (5) of consumers per connection" in consumes(fast)
    fast.playbook.end()


def test_all_that_are_paused_may_go_on() -> None:
    limits = Config().limits._replace(
        consumers_per_channel_max=CONSUMERS_MAX, consumers_per_connection_max=CONSUMERS_MAX
    )
    fast = opened(Config()._replace(limits=limits))
    for _ in range(CONSUMERS_MAX):
        consumes(fast)
    for _ in range(3):
        fast >> "22 0001 0002 00"
        fast << "30 0001 0002 00c8 02 'Ok'"
        assert len(fast.playbook.broker.virtual_hosts["/"].queues["q"].consumers) == CONSUMERS_MAX
        fast >> "22 0001 0002 01"
        fast << "30 0001 0002 00c8 02 'Ok'"
    assert len(fast.session.consumers.handles) == CONSUMERS_MAX
    fast.playbook.end()
