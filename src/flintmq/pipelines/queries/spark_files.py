"""Files where Spark keeps them: on this machine, in HDFS or in an object store, by Spark's own file systems.

A path that names no file system is in the one that Spark is set up with (fs.defaultFS), as for Spark itself.
A file that is not there is no error. Whatever else keeps a file from being read or made is raised.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = logging.getLogger("flintmq.pipelines")


class SparkFiles:
    """What a session sees, with its settings and rights."""

    def __init__(self, session: SparkSession) -> None:
        spark: Any = session
        self._path_of = spark._jvm.org.apache.hadoop.fs.Path
        self._settings = spark._jsparkSession.sessionState().newHadoopConf()

    def text(self, place: str) -> str | None:
        """All of a small file; None if there is none."""
        from py4j.protocol import Py4JJavaError

        path = self._path_of(place)
        try:
            stream = path.getFileSystem(self._settings).open(path)
            try:
                return bytes(stream.readAllBytes()).decode()
            finally:
                stream.close()
        except Py4JJavaError as error:
            if _is_missing(error):
                return None
            raise

    def names(self, place: str) -> list[str]:
        """What is in a directory; nothing if there is none."""
        from py4j.protocol import Py4JJavaError

        path = self._path_of(place)
        try:
            return [each.getPath().getName() for each in path.getFileSystem(self._settings).listStatus(path)]
        except Py4JJavaError as error:
            if _is_missing(error):
                return []
            raise

    def make(self, place: str) -> None:
        """Makes an empty file, with the directories above it: on each file system it is there at once."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            path = self._path_of(place)
            path.getFileSystem(self._settings).create(path, True).close()
        except (Py4JError, PySparkException) as error:
            raise OSError(f"{place} cannot be made: {_said(error)}") from error

    def remove(self, place: str) -> bool:
        """Removes a file that is not needed; one that cannot be removed stays. Whether it is gone."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            path = self._path_of(place)
            path.getFileSystem(self._settings).delete(path, False)
        except (Py4JError, PySparkException, OSError) as error:  # OSError: Spark is gone
            log.debug("%s stays: %s", place, _said(error))
            return False
        return True

    def local(self, place: str) -> Path | None:
        """Where it is on this machine; None if it is elsewhere."""
        path = self._path_of(place)
        found = path.getFileSystem(self._settings).makeQualified(path).toUri()
        return Path(found.getPath()) if found.getScheme() == "file" else None


def _is_missing(error: Any) -> bool:
    return bool(error.java_exception.getClass().getName() == "java.io.FileNotFoundException")


def _said(error: Any) -> str:
    """What the error of Java says, in a line. Spark turns some of these errors into its own."""
    java = getattr(error, "java_exception", None)
    return str(error if java is None else java.toString()).partition("\n")[0]
