"""A loop over messages that has ended by its timeout leaves no consumer behind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from client.either import Either

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
TIMEOUT_S = 0.3


def test_the_page_does_what_it_shows(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    section = PAGE.read_text().split("## Handling messages", 1)[1]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    exec(found[1].replace("amqp://guest:guest@localhost", uri), {})
    assert capsys.readouterr().out == "6\nb'4'\n"


@pytest.mark.parametrize("no_ack", [False, True])
def test_a_consumer_is_cancelled_by_the_timeout_of_its_loop(no_ack: bool, uri: str, either: Either) -> None:
    async def test() -> None:
        async with await either.connect(uri) as connection:
            channel = await connection.channel(confirm=True)
            queue = await channel.queue("", exclusive=True)
            consumer = await queue.consume(timeout_s=TIMEOUT_S, no_ack=no_ack)
            async for _ in consumer:
                raise AssertionError("nothing was published")
            assert (await channel.queue(queue.name, passive=True)).consumer_count == 0
            await channel.publish(b"x", routing_key=queue.name)
            async for _ in consumer:
                raise AssertionError("the consumer is over")
            assert (await channel.get(queue.name, no_ack=True)).body == b"x"

    either.run(test)
