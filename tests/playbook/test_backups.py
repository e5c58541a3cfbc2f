"""backup.begin to backup.end: the broker keeps its files, and stops doing so by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playbook.dialogue import Carried, Client, carrying
from playbook.paged import PagedPlaybook
from playbook.test_administration import listening

from flintmq.broker.services import backup_services
from flintmq.wire.methods import BasicPublish
from flintmq.wire.tables import FieldTable


@pytest.fixture
def playbook(tmp_path: Path) -> Iterator[PagedPlaybook]:
    playbook = PagedPlaybook(tmp_path / "data")
    yield playbook
    playbook.end()
    playbook.close()


def ask(client: Client, name: str, **arguments: Any) -> FieldTable:
    """The answer, after what was appended before is on disk."""
    playbook, reply_to = client.playbook, f"mine{client.session.number}"
    asked = BasicPublish(exchange="amq.system", routing_key=name)
    client >> carrying(asked, b"", headers=arguments, reply_to=reply_to)
    store = playbook.broker.store
    assert store is not None
    store.journal.commit_now()
    playbook.finish_pass()
    heard = client.next(1)
    assert isinstance(heard, Carried), heard
    assert heard.properties.headers is not None
    return heard.properties.headers


def refused(client: Client, name: str, **arguments: Any) -> tuple[object, str]:
    told = ask(client, name, **arguments)
    return told.get("error-code"), str(told.get("error-text"))


def begin(playbook: PagedPlaybook) -> Client:
    client = listening(playbook.client())
    assert "directory" in ask(client, "backup.begin")
    return client


def pass_ms(playbook: PagedPlaybook, milliseconds: int) -> None:
    playbook.passes(milliseconds)
    playbook.broker.timetable.run()


def is_held(playbook: PagedPlaybook) -> bool:
    store, streams = playbook.broker.store, playbook.broker.streams
    assert store is not None
    assert streams is not None
    found = {store.journal.reclaimer.is_held, store.journal.spools.is_held, streams.storage.is_held}
    assert len(found) == 1
    return found.pop()


def test_the_files_are_kept_while_the_asker_is_heard_of(playbook: PagedPlaybook) -> None:
    client = begin(playbook)
    for _ in range(3):
        pass_ms(playbook, backup_services.HELD_S * 1000 - 1000)
        assert ask(client, "backup.renew") == {"seconds": backup_services.HELD_S}
    assert is_held(playbook)
    assert ask(client, "backup.end") == {}
    assert not is_held(playbook)


def test_an_asker_who_is_silent_has_no_backup(playbook: PagedPlaybook) -> None:
    client = begin(playbook)
    pass_ms(playbook, backup_services.HELD_S * 1000 + 1000)
    assert not is_held(playbook)
    code, text = refused(client, "backup.end")
    assert code == 404
    assert "the broker has given it up, as its log tells" in text


def test_the_room_is_given_back_when_the_disk_runs_short(playbook: PagedPlaybook) -> None:
    client = begin(playbook)
    assert playbook.broker.store is not None
    playbook.broker.store.on_alarm("the disk is full")
    pass_ms(playbook, 1000)
    assert not is_held(playbook)
    assert refused(client, "backup.renew")[0] == 404
    code, text = refused(client, "backup.begin")
    assert code == 406
    assert "the disk has trouble: the disk is full" in text


def test_files_are_listed_in_pages(playbook: PagedPlaybook) -> None:
    client = begin(playbook)
    for number in range(5):
        client.declares(f"log{number}", durable=True, arguments={"x-queue-type": "stream"})
    assert ask(client, "backup.end") == {}
    begun = ask(client, "backup.begin")
    names: list[str] = []
    after = ""
    while True:
        page = ask(client, "backup.files", limit=1, after=after)
        assert isinstance(page["rows"], list)
        names += [str(row["name"]) for row in page["rows"] if isinstance(row, dict)]
        if "next" not in page:
            break
        after = str(page["next"])
    assert len(names) == begun["files"]
    assert names == sorted(set(names))
    assert refused(client, "backup.files", after="else")[0] == 406
