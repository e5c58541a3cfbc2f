"""The faults that a peer is told of, and the names of their codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import flintmq
from flintmq.errors import ChannelFault, ConnectionFault, RepliedFault, ServiceFault
from flintmq.reply_codes import REPLY_NAMES
from flintmq.wire import amqp


@pytest.mark.parametrize("kind", [ChannelFault, ConnectionFault, ServiceFault])
def test_the_reply_text_starts_with_the_name_of_the_code(kind: type[RepliedFault]) -> None:
    fault = kind(amqp.NOT_FOUND, "no queue 'a'")
    assert (fault.code, fault.text) == (404, "no queue 'a'")
    assert fault.reply_text == "NOT_FOUND - no queue 'a'"
    assert str(fault) == "404 NOT_FOUND - no queue 'a'"


def test_a_name_that_a_plug_in_has_written_stands_once() -> None:
    fault = ChannelFault(406, "PRECONDITION_FAILED - a length is missing")
    assert fault.reply_text == "PRECONDITION_FAILED - a length is missing"


def test_an_unknown_code_is_told_as_an_internal_error() -> None:
    assert ConnectionFault(999, "what is that").reply_text == "INTERNAL_ERROR - what is that"


def test_no_module_writes_the_name_of_a_code_into_a_text() -> None:
    written = re.compile(rf"""["'](?:{"|".join(REPLY_NAMES.values())}) - """)
    package = Path(flintmq.__file__).parent
    assert [str(path) for path in package.rglob("*.py") if written.search(path.read_text("utf-8"))] == []
