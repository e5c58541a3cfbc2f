"""Distributed transactions of simulated clients, beside what the model makes of them.

A branch is open on one channel; any channel may prepare, commit or roll it back. A commit that is larger
than a group is decided first, and settled and handed over later: `follow_decided` keeps the model up with it.
What a prepared branch has locked is out with nobody, and after a crash it is ahead of all others.
"""

from __future__ import annotations

from flintmq.broker.transactions.dtx_branch import BranchState
from flintmq.broker.transactions.xid import Xid
from flintmq.wire import amqp, methods
from flintmq.wire.methods import Method

from .broker_actions import Actions
from .broker_client import Client
from .broker_model import Commit, Copy, ModelBranch, ModelChannel

XIDS = tuple(Xid(1, b"simulated", b"%d" % number) for number in range(4))


class BranchActions(Actions):
    """The dtx classes."""

    def demarcate(self, client: Client, channel: ModelChannel) -> None:
        """Starts or ends the channel's work in a branch."""
        if channel.mode != "dtx":
            return
        if channel.branch is not None:
            octets = channel.branch.xid.octets()
            end = methods.DtxDemarcationEnd(xid=octets)
            self.ask_code(client, channel, end, methods.DtxDemarcationEndOk, amqp.XA_OK)
            channel.branch = None
            return
        free = [xid for xid in XIDS if xid not in self.model.branches]
        if free and self.chance.random() < 0.8:
            branch = ModelBranch(self.chance.choice(free), channel)
            start = methods.DtxDemarcationStart(xid=branch.xid.octets())
            self.ask_code(client, channel, start, methods.DtxDemarcationStartOk, amqp.XA_OK)
            self.model.branches[branch.xid] = channel.branch = branch
            for _ in range(self.chance.randrange(4)):
                self.publish(client, channel)
                self.get_some(client, channel)
                self.settle(client, channel)

    def coordinate(self, client: Client, channel: ModelChannel) -> None:
        """Takes some branch that nobody works in one step further, or back."""
        if channel.branch is not None:
            self.demarcate(client, channel)
        idle = [
            branch
            for branch in self.model.branches.values()
            if branch.state != "decided" and (branch.channel is None or branch.channel.branch is not branch)
        ]
        if not idle:
            return
        branch = self.chance.choice(idle)
        way = self.chance.random()
        if branch.state == "prepared" and self.chance.random() < 0.5:
            return  # in doubt for longer
        if way < 0.25:
            self.roll_back(client, channel, branch)
        elif branch.state == "prepared" or way < 0.4:
            self.commit_branch(client, channel, branch)
        else:
            self.prepare(client, channel, branch)

    def ask_code(
        self, client: Client, channel: ModelChannel, method: Method, answer: type[Method], code: int
    ) -> None:
        reply = self.ask(client, channel, method, answer, later=True)
        flags = reply.method.flags  # type: ignore[attr-defined]
        assert flags == code, f"{method} is answered by {flags}"

    def prepare(self, client: Client, channel: ModelChannel, branch: ModelBranch) -> None:
        is_empty = not branch.gathered and not branch.settling
        code = amqp.XA_RDONLY if is_empty else amqp.XA_OK
        method = methods.DtxCoordinationPrepare(xid=branch.xid.octets())
        self.ask_code(client, channel, method, methods.DtxCoordinationPrepareOk, code)
        if is_empty:
            del self.model.branches[branch.xid]
            return
        self.lock(branch)
        branch.state = "prepared"
        self.model.note(branch.key(), branch.value(), self.store.last())
        client.unheard.append((f"prepared {branch.xid}", self.store.last()))

    def lock(self, branch: ModelBranch) -> None:
        if branch.channel is not None:
            for tag, way in branch.settling.items():
                branch.locked.append((self.model.release(branch.channel, tag), way))
                del branch.channel.settling[tag]
        branch.settling.clear()
        branch.channel = None

    def commit_branch(self, client: Client, channel: ModelChannel, branch: ModelBranch) -> None:
        if not self.is_ready(branch):
            return
        method = methods.DtxCoordinationCommit(xid=branch.xid.octets(), one_phase=branch.state == "open")
        self.committing = {number for _, _, number, _ in branch.gathered}
        self.ask_code(client, channel, method, methods.DtxCoordinationCommitOk, amqp.XA_OK)
        self.committing = set()
        self.lock(branch)
        commit = branch.commit = Commit(self.store.last())
        back = [copy for copy, way in branch.locked if way == "requeue"]
        branch.locked = [each for each in branch.locked if each[1] != "requeue"]
        real = self.host.branches.branches.get(branch.xid)
        self.settle_locked(branch, 0 if real is None else len(real.locks), commit.sequence)
        for copy in back:
            self.return_locked(copy)
        if real is not None:
            assert real.state is BranchState.DECIDED
            branch.state = "decided"
            self.model.decided.append(branch)
            self.model.note(branch.key(), "decided", commit.sequence)
        else:
            ends = self.stream_ends()
            self.hand_over(branch, len(branch.gathered))
            if not self.broker.storage_alarm():
                client.unheard_offsets += self.stream_ends_since(ends)
            self.forget(branch)
        self.model.commits.append(commit)
        self.groups.append({number for _, _, number, _ in branch.gathered})
        client.unheard.append((f"commit {branch.xid}", commit.sequence))

    def is_ready(self, branch: ModelBranch) -> bool:
        """Whether a commit is answered at once: a large one waits for the disk, which may not come."""
        real = self.host.branches.branches[branch.xid]
        if not self.host.branches.is_much_to_commit(real):
            return True
        self.finish_pass()
        self.collect()
        real = self.host.branches.branches.get(branch.xid)
        return real is not None and not self.host.branches.is_much_to_commit(real)

    def settle_locked(self, branch: ModelBranch, left: int, sequence: int) -> None:
        """What was settled leaves its queues, but for the last ones, which the branch has locked still."""
        settled = branch.locked[: len(branch.locked) - left]
        branch.locked = branch.locked[len(settled) :]
        for copy, way in settled:
            if way == "reject":
                letter = self.die(copy, "rejected", sequence)
                if letter is not None and branch.commit is not None:
                    branch.commit.published.append(letter)
            else:
                self.model.settle(copy, sequence)
            if copy.sequence and branch.commit is not None:
                branch.commit.settled.append(copy)

    def hand_over(self, branch: ModelBranch, end: int) -> None:
        for exchange, key, number, persistent in branch.gathered[branch.applied : end]:
            if not exchange or exchange in self.known_exchanges():
                copies = self.route_out(number, exchange, key, persistent)
                if branch.commit is not None:
                    branch.commit.published += copies
        branch.applied = end

    def follow_decided(self) -> None:
        """What the broker has settled and handed over since the last time."""
        for branch in list(self.model.decided):
            real = self.host.branches.branches.get(branch.xid)
            self.settle_locked(branch, 0 if real is None else len(real.locks), self.store.last())
            if real is None:
                self.hand_over(branch, len(branch.gathered))
                self.model.decided.remove(branch)
                self.forget(branch)
            else:
                self.hand_over(branch, len(branch.gathered) - real.published())

    def roll_back(self, client: Client, channel: ModelChannel, branch: ModelBranch) -> None:
        method = methods.DtxCoordinationRollback(xid=branch.xid.octets())
        self.ask_code(client, channel, method, methods.DtxCoordinationRollbackOk, amqp.XA_OK)
        if branch.channel is not None:
            for tag in branch.settling:
                del branch.channel.settling[tag]
        for copy, _ in branch.locked:
            self.return_locked(copy)
        if branch.state == "prepared":
            client.unheard.append((f"rollback {branch.xid}", self.store.last()))
        self.forget(branch)

    def return_locked(self, copy: Copy) -> None:
        self.come_back(self.model.ready_again(copy))

    def forget(self, branch: ModelBranch) -> None:
        del self.model.branches[branch.xid]
        if branch.key() in self.model.history:
            self.model.note(branch.key(), None, self.store.last())
