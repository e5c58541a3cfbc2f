"""Why a query failed, in one line: what a user needs of Spark's exceptions, which are long."""

from __future__ import annotations

import re

# 700 of text, and three paths of 100: a refusal ends with what to do.
CHARACTERS_MAX = 1_000
_PYTHON_LAST_LINE = re.compile(
    r"^((?:[A-Za-z_]\w*\.)*)"
    r"([A-Z]\w*(?:Error|Exception|Fault|Lost|Option|Failed|Closed|Refused|Wrong|Unfit)|TakenOver): (.+)"
)
# What connector and sinks raise where a second try fails for the same reason: flintmq.spark.errors and
# flintmq.pipelines.errors.
_UNFIT = "CheckpointUnfit"
_LASTING = ("AmqpRefused", "BadOption", "DataLost", _UNFIT)
_TAKEN_OVER = "TakenOver"
# SQL that raises because of a row, such as a malformed one, raises again when it reads the row again.
_RAISED_BY_SQL = "[USER_RAISED_EXCEPTION]"
# Errors of these say all in their text. Of others the name tells as much: KeyError: 'price'.
_TELLING = ("flintmq.", "org.", "java.", "pyspark.", "py4j.")
# What py4j puts before an error of Java, which follows it and its causes.
_CALLING = "An error occurred while calling "
_JAVA_CAUSE = re.compile(r"^(?:Caused by)?: (?:[\w$]+\.)+([A-Z][\w$]*)(?:: (.+))?$")
_CONDITION = re.compile(r"^\[[A-Z_.]+\]\s*")
_STATE = re.compile(r"\s*SQLSTATE: \w+")


def plain(error: BaseException) -> str:
    """One line: of an error in Python its last line, else what Spark says first, or its cause."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(("at ", "... ", "+-", "==", "File "))]
    python = [match for line in lines if (match := _PYTHON_LAST_LINE.match(line)) is not None]
    if python:
        module, name, said = python[-1].groups()
        said = said if module.startswith(_TELLING) else f"{name}: {said}"
    elif lines and lines[0].startswith(_CALLING):
        causes = [match for line in lines if (match := _JAVA_CAUSE.match(line)) is not None]
        said = (causes[-1][2] or causes[-1][1]) if causes else lines[0]
    else:
        raised = [line for line in lines if _RAISED_BY_SQL in line]
        said = raised[-1].partition(_RAISED_BY_SQL)[2] if raised else (lines[0] if lines else "")
    said = _STATE.sub("", _CONDITION.sub("", said.strip())).strip()
    return (said or type(error).__name__)[:CHARACTERS_MAX]


def is_lasting(error: BaseException) -> bool:
    """Whether the connector, or a row that the SQL does not take, needs a person first."""
    if _RAISED_BY_SQL in str(error):
        return True
    return _raised(error) in _LASTING


def is_taken_over(error: BaseException) -> bool:
    """Whether another query reads the flow's queue now, under the same name."""
    return _raised(error) == _TAKEN_OVER


def is_unfit(error: BaseException) -> bool:
    """Whether the sink has batches that do not go with the checkpoint, which no time mends."""
    return _raised(error) == _UNFIT


def _raised(error: BaseException) -> str:
    """The class of the error in Python that ended a query; empty if none did."""
    found = [match[2] for line in str(error).splitlines() if (match := _PYTHON_LAST_LINE.match(line.strip()))]
    return found[-1] if found else ""
