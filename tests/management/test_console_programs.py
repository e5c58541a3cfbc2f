"""The programs of FlintMQ's own client and of Spark that empty pages of the console show."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from broker_process import BrokerProcess

import flintmq.management
from flintmq.client import connect
from flintmq.spark import options

PAGES = Path(flintmq.management.__file__).parent / "console" / "pages"


def programs(first_words: str) -> list[str]:
    """The texts of all pages that begin so."""
    texts = [
        text for page in sorted(PAGES.glob("*.js")) for text in re.findall(r"`(.*?)`", page.read_text(), re.S)
    ]
    return [text for text in texts if text.startswith(first_words)]


def test_programs_with_the_client_run() -> None:
    found = programs("from flintmq.client import")
    assert found
    with (
        BrokerProcess() as broker,
        connect(f"amqp://localhost:{broker.port}") as connection,
        connection.channel() as channel,
    ):
        channel.queue("hello")
        for program in found:
            text = program.replace("${location.hostname}", f"localhost:{broker.port}")
            subprocess.run([sys.executable, "-c", text], check=True, timeout=60)
        assert channel.queue("hello", passive=True).message_count


def test_readers_of_spark_have_its_format_and_options() -> None:
    found = programs("stream = (\n    spark.readStream")
    assert found
    for program in found:
        assert re.findall(r'\.format\("(\w+)"\)', program) == ["amqp"]
        assert {name.lower() for name in re.findall(r'\.option\("(\w+)"', program)} <= options.KNOWN.keys()
