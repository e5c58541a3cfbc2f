"""The confirm class: from now on publishes of the channel are confirmed, by broker/channels/confirms.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flintmq.server.commands.command import broker_channel, command, wrong_mode
from flintmq.wire import methods

if TYPE_CHECKING:
    from flintmq.protocol.channel import Channel
    from flintmq.server.commands.command import Session


@command("confirm.select")
def confirm_select(session: Session, channel: Channel, method: methods.ConfirmSelect) -> None:
    owner = broker_channel(channel)
    if owner.transaction is not None:
        raise wrong_mode("cannot switch from tx to confirm mode")
    owner.confirms.active = True
    if not method.no_wait:
        session.send(channel.number, methods.ConfirmSelectOk())
