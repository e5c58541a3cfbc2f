"""The Spark session that pipelines run in: settings that suit streams on one machine, or a cluster's own."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from flintmq.spark import sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

# Beside those of every session with the format amqp.
DEFAULTS = sessions.DEFAULTS | {
    # Python and the JVM exchange columns, not rows.
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # State on disk with changelogs: memory stays flat however many keys there are.
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    # Spark waits without end for a batch that hangs in its sink: a table in a store that does not answer.
    "spark.sql.streaming.stopTimeout": "20s",
    # A batch without rows closes the windows that the one before it left behind.
    "spark.sql.streaming.noDataMicroBatches.enabled": "true",
    # Statistics of times in Parquet, by which a replay finds its rows; the default type has none.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
# On a cluster its operator says what is logged, and how.
LOCAL_DEFAULTS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}


def settings_for(master: str, given: Mapping[str, str]) -> dict[str, str]:
    """The session's settings; what a pipeline's file says wins."""
    made = dict(DEFAULTS)
    if master.startswith("local"):
        made |= LOCAL_DEFAULTS
        log = Path(__file__).parent.with_name("log4j2.properties")
        made["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={log.as_uri()}"
        # Each partition of a shuffle is a task of some 10 ms: as many as there are cores, not 200.
        made["spark.sql.shuffle.partitions"] = str(max(2, min(8, os.cpu_count() or 2)))
    return made | dict(given)


def open_session(master: str, given: Mapping[str, str]) -> SparkSession:
    # What it tells, with the whole plan, the runner tells in a line.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else it warns of a name that is not resolved
    sessions.prepare_environment()
    _launch_apart(settings_for(master, given))
    return sessions.session(master, "flintmq pipeline", settings=settings_for(master, given))


def _launch_apart(settings: Mapping[str, str]) -> None:
    """Starts Spark in a process group of its own. A signal to the group of this process, as a terminal or an
    init system sends it, would else end Spark before the queries are ended."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is None:
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        gateway = launch_gateway(conf, popen_kwargs={"start_new_session": True})
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def session_of_flow(spark: SparkSession, given: Mapping[str, str]) -> SparkSession:
    """A session of the flow on the same Spark: views of its own, and its settings of spark.sql."""
    made = spark.newSession()
    for name, value in {**settings_for(spark.sparkContext.master, given)}.items():
        if name.startswith("spark.sql.") and made.conf.isModifiable(name):
            made.conf.set(name, value)
    # A writer looks its format up in the session that is active in this thread, whatever session it is of.
    made._get_j_spark_session_class(made._jvm).setActiveSession(made._jsparkSession)
    return made
