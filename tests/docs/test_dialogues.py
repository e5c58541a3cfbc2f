"""Dialogues in the documentation are held with a live broker, in each version that has their methods."""

import re
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from peer import Peer

from flintmq.broker.transactions.xid import xid_of_text
from flintmq.wire import methods
from flintmq.wire.methods import Method

ROOT = Path(__file__).resolve().parents[2]
KINDS: dict[str, type[Method]] = {
    kind.NAME: kind
    for kind in vars(methods).values()
    if isinstance(kind, type) and issubclass(kind, Method) and kind is not Method
}
DIALOGUES = [
    pytest.param(text.splitlines(), version, id=f"{page.name}:{number} in {version}")
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for number, text in enumerate(re.findall(r"^```dialogue\n(.*?)^```", page.read_text(), re.S | re.M))
    for version in ("0-9", "0-9-1")
]


def value_of(name: str, text: str) -> Any:
    if name == "xid":
        return xid_of_text(text).octets()
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdigit() else text


@pytest.mark.parametrize(("lines", "version"), DIALOGUES)
def test_dialogue(lines: list[str], version: str, tmp_path: Path) -> None:
    with (
        BrokerProcess("--data", str(tmp_path / "data")) as broker,
        Peer.connect(broker.port, version) as peer,
    ):
        peer.open(1)
        for line in lines:
            match = re.fullmatch(r'([<>]) (\S+)((?: \w+=\S+)*)(?: "(.*)")?', line)
            assert match, f"not a line of a dialogue: {line}"
            arguments = dict(each.split("=") for each in match[3].split())
            fields = {name: value_of(name, text) for name, text in arguments.items()}
            kind = KINDS[match[2]]
            if match[1] == "<":
                heard = peer.expect(1, kind)
                assert {name: getattr(heard, name) for name in fields} == fields, line
                assert match[4] is None or peer.content(1).body.decode() == match[4]
            elif match[4] is None:
                peer.send(1, kind(**fields))
            else:
                peer.publish(1, match[4].encode(), key=fields["routing_key"])


def test_there_are_some() -> None:
    assert DIALOGUES
