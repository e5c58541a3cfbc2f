"""The power fails while a branch is prepared or committed: all of it is on disk, or nothing.

Random histories rarely crash in the one write that matters; here each does.
"""

from __future__ import annotations

import logging

import pytest

from .broker_client import Client
from .broker_history import BrokerHistory
from .broker_model import ModelBranch, ModelChannel
from .simulated_disk import PowerLost

SEEDS = 250


class BranchEnd(BrokerHistory):
    """One branch, and a crash in the middle of the step under test."""

    def one_branch(self) -> tuple[Client, ModelChannel, ModelBranch]:
        self.dtx_share = 1.0
        self.connect()
        client = self.clients[0]
        client.publishes = True
        channel = client.channels[1]
        for _ in range(4):
            self.declare_queue(client, channel)
        for _ in range(5):
            self.publish(client, channel)
        self.finish_pass()
        while channel.branch is None or not (channel.branch.gathered or channel.branch.settling):
            if channel.branch is not None:
                self.roll_back_own(client, channel)
            self.demarcate(client, channel)
        for _ in range(self.chance.randrange(4)):
            self.publish(client, channel)
        branch = channel.branch
        self.demarcate(client, channel)
        return client, channel, branch

    def roll_back_own(self, client: Client, channel: ModelChannel) -> None:
        branch = channel.branch
        assert branch is not None
        self.demarcate(client, channel)
        self.roll_back(client, channel, branch)

    def end_in_darkness(self, prepares_first: bool) -> None:
        client, channel, branch = self.one_branch()
        if prepares_first:
            self.prepare(client, channel, branch)
            if self.chance.random() < 0.7:
                self.calm()
        self.disk.power_left = self.chance.randrange(6)
        try:
            if branch.state == "open" and self.chance.random() < 0.3:
                self.prepare(client, channel, branch)
            else:
                self.commit_branch(client, channel, branch)
            for _ in range(3):
                self.finish_pass()
                self.collect()
                self.tick()
        except PowerLost:
            self.listen(exact=False)
            self.reconcile(was_cut=True)
        self.crash(power=True, may_rot=False)
        self.finale()


@pytest.mark.parametrize("prepares_first", [True, False], ids=["prepared", "open"])
def test_a_branch_ends_whole(prepares_first: bool) -> None:
    logging.disable(logging.CRITICAL)
    try:
        for seed in range(SEEDS):
            try:
                BranchEnd(seed).end_in_darkness(prepares_first)
            except Exception as failure:
                raise AssertionError(f"seed {seed}: {type(failure).__name__}: {failure}") from failure
    finally:
        logging.disable(logging.NOTSET)
