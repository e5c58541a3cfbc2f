"""The fixture of docs/testing.md, as it stands, in a project of somebody else."""

import subprocess
import sys
import textwrap
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"
THEIR_TEST = """
import pika

def test_a_message_comes_back(broker_uri):
    with pika.BlockingConnection(pika.URLParameters(broker_uri)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", exclusive=True)
        channel.basic_publish("", "q", b"hello")
        assert channel.basic_get("q", auto_ack=True)[2] == b"hello"
"""


def test_the_fixture_serves_a_test(tmp_path: Path) -> None:
    lines = PAGE.read_text().splitlines()
    first = lines.index("    import subprocess")
    last = next(number for number in range(first, len(lines)) if "broker.terminate()" in lines[number])
    (tmp_path / "conftest.py").write_text(textwrap.dedent("\n".join(lines[first : last + 1])))
    (tmp_path / "test_theirs.py").write_text(THEIR_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
