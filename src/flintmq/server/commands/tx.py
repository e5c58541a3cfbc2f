"""The tx class: select, commit and rollback. A large commit takes several passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.broker.transactions.transaction import Transaction
from flintmq.server.commands.command import AwaitedMethod, broker_channel, command, is_open, wrong_mode
from flintmq.wire import methods

if TYPE_CHECKING:
    from flintmq.broker.scheduling.chores import Chore
    from flintmq.protocol.channel import Channel
    from flintmq.server.commands.command import Session


@command("tx.select")
def tx_select(session: Session, channel: Channel, method: methods.TxSelect) -> None:
    owner = broker_channel(channel)
    if owner.confirms.active:
        raise wrong_mode("cannot switch from confirm to tx mode")
    if owner.transaction is None:
        owner.transaction = Transaction(owner)
    if not isinstance(owner.transaction, Transaction):
        raise wrong_mode("cannot switch from dtx to tx mode")
    session.send(channel.number, methods.TxSelectOk())


@command("tx.commit")
def tx_commit(session: Session, channel: Channel, method: methods.TxCommit) -> None:
    transaction = open_transaction(channel)
    if transaction.is_large() or not transaction.commit():
        AwaitedMethod(session, channel, method).begin(committed(session, channel, transaction))
        return
    session.send(channel.number, methods.TxCommitOk())


def committed(session: Session, channel: Channel, transaction: Transaction) -> Chore:
    yield from transaction.commit_in_portions()
    if is_open(session, channel, transaction.channel):
        session.send(channel.number, methods.TxCommitOk())


@command("tx.rollback")
def tx_rollback(session: Session, channel: Channel, method: methods.TxRollback) -> None:
    open_transaction(channel).rollback()
    session.send(channel.number, methods.TxRollbackOk())


def open_transaction(channel: Channel) -> Transaction:
    transaction = broker_channel(channel).transaction
    if not isinstance(transaction, Transaction):
        raise wrong_mode("channel is not transactional")
    return transaction
