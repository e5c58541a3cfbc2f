"""A playbook with a disk under it, whose queues keep only a few messages in memory."""

from __future__ import annotations

from pathlib import Path

from playbook.dialogue import Playbook
from playbook.hourglass import Hourglass

from flintmq.broker.broker import Broker
from flintmq.broker.queues.queue import Queue
from flintmq.config import Config, Storage
from flintmq.server.data_directory import open_broker

KEPT_MESSAGES = 4
LOADED_MESSAGES = 4


class PagedPlaybook(Playbook):
    """Its time stands still; it may be restarted."""

    def __init__(self, directory: Path, sync: str = "always", config: Config | None = None) -> None:
        self.sync = sync
        self.config = Config() if config is None else config
        self.clock = Hourglass()
        super().__init__(clock=self.clock)
        self.directory = directory
        self.broker = self.open()

    def open(self) -> Broker:
        config = self.config._replace(storage=Storage(directory=self.directory, sync=self.sync))
        broker = open_broker(config, self.clock, lambda: None)
        assert broker.store is not None
        broker.store.kept_messages = KEPT_MESSAGES
        broker.store.loaded_messages = LOADED_MESSAGES
        return broker

    def restart(self) -> None:
        """The process ends in good order, and another one begins; whoever was connected is gone."""
        self.end()
        self.close()
        self.clients.clear()
        self.broker = self.open()

    def passes(self, milliseconds: int) -> None:
        """So much time goes by."""
        self.clock.now_s += milliseconds / 1000
        self.broker.pass_work.tick()

    def queue(self, name: str) -> Queue:
        found: Queue = self.broker.virtual_hosts["/"].queues[name]
        return found

    def close(self) -> None:
        assert self.broker.store is not None
        if self.broker.staging is not None:
            self.broker.staging.close()
        self.broker.store.close()
        if self.broker.streams is not None:
            self.broker.streams.close()
