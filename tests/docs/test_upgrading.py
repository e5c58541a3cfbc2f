"""docs/upgrading.md: the program that moves messages, between two brokers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from broker_process import BrokerProcess

from flintmq.client import connect
from flintmq.storage import layout
from flintmq.storage.streams import chunk

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "upgrading.md").read_text()
[PROGRAM] = re.findall(r"^```python\n# move_messages.py\n(.*?)^```", PAGE, re.S | re.M)
COUNT = 250


def test_messages_are_moved_with_their_properties(tmp_path: Path) -> None:
    (tmp_path / "move_messages.py").write_text(PROGRAM)
    with BrokerProcess() as old, BrokerProcess("--data", str(tmp_path / "data")) as new:
        urls = [f"amqp://guest:guest@localhost:{broker.port}" for broker in (old, new)]
        with connect(urls[0]) as connection, connection.channel(confirm=True) as channel:
            channel.queue("bills")
            for number in range(COUNT):
                channel.publish(b"%d" % number, routing_key="bills", headers={"n": number}, persistent=True)
        with connect(urls[1]) as connection, connection.channel() as channel:
            bills = channel.queue("bills", durable=True)
            done = subprocess.run(
                [sys.executable, "move_messages.py", *urls, "bills"],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert (done.returncode, done.stdout) == (0, f"{COUNT} moved\n"), done.stderr
            for number in range(COUNT):
                message = bills.get(no_ack=True)
                assert message is not None
                assert (message.body, message.headers["n"]) == (b"%d" % number, number)
        with connect(urls[0]) as connection:
            left = connection.request("queue.info", {"queue": "bills"}).results
            assert (left["messages-ready"], left["messages-unacked"]) == (0, 0)


def test_the_page_names_the_format_that_is_written() -> None:
    assert layout.FORMAT_VERSION == chunk.VERSION == 1
    assert "All versions so far write format 1" in PAGE
