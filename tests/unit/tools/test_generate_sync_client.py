"""The sync client is what its generator makes of the async one."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).resolve().parent.parent.parent.parent / "tools"


@pytest.fixture
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_sync_client", TOOLS / "generate_sync_client.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ASYNC = '''"""A consumer of the async client: `async for message in consumer`."""

from flintmq.client.aio.transport import Waiters


class Consumer:
    async def __anext__(self) -> int:
        """Use `await anext(consumer)`."""
        async with self.lock:
            return await self.waiters.wait(await self.count())
'''
SYNC = '''"""A consumer of the sync client: `for message in consumer`."""

from flintmq.client.sync.transport import Waiters


class Consumer:
    def __next__(self) -> int:
        """Use `anext(consumer)`."""
        with self.lock:
            return self.waiters.wait(self.count())
'''


def test_asynchrony_goes_and_the_rest_stays(generator: ModuleType) -> None:
    assert generator.plain(ASYNC) == generator.MARK + SYNC


def test_what_is_committed_is_what_is_made(generator: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["generate_sync_client.py", "--check"])
    assert generator.main() == 0


def test_a_module_that_was_changed_by_hand_is_found(
    generator: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("aio", "sync"):
        shutil.copytree(generator.CLIENT / kind, tmp_path / kind)
    by_hand = tmp_path / "sync" / "dtx.py"
    by_hand.write_text(by_hand.read_text() + "# by hand\n")
    monkeypatch.setattr(generator, "MODULES", {tmp_path: generator.MODULES[generator.CLIENT]})
    monkeypatch.setattr(generator, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["generate_sync_client.py", "--check"])
    monkeypatch.setattr(
        generator,
        "formatted",
        lambda text, path: path.read_text().replace("# by hand\n", ""),
    )
    assert generator.main() == 1
    assert "dtx.py" in capsys.readouterr().out
