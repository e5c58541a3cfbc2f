"""Where a broker is, and that no password is told on the way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flintmq.pipelines.errors import PipelineFailed
from flintmq.pipelines.file import keys
from flintmq.pipelines.queries import brokers
from flintmq.pipelines.run import sessions
from flintmq.spark import sessions as spark_sessions


def test_settings() -> None:
    assert brokers.settings_of(None, {}).address
    named = brokers.settings_of(None, {"FLINTMQ_URI": "amqp://me@there:99/x", "FLINTMQ_PASSWORD": "p"})
    assert (named.host, named.port, named.user, named.virtual_host) == ("there", 99, "me", "x")
    assert named.password.reveal() == "p"
    given = brokers.settings_of("amqp://me:q@there", {"FLINTMQ_PASSWORD": "p"})
    assert given.password.reveal() == "q"
    with pytest.raises(PipelineFailed, match="uri"):
        brokers.settings_of("http://there", {})


def test_a_password_goes_by_the_option_that_spark_hides() -> None:
    uri = "amqps://me:s%40crt@there:5671/host?name=x"
    assert brokers.spark_options(uri) == {"url": uri}
    assert brokers.spark_options("amqp://there") == {"uri": "amqp://there"}
    assert brokers.spark_options(None) == {}


@pytest.mark.parametrize(
    ("given", "made"),
    [("100 ms", "100 milliseconds"), ("1 second", "1 seconds"), ("5m", "5 minutes"), ("2 Weeks", "2 weeks")],
)
def test_intervals_in_the_words_of_spark(given: str, made: str) -> None:
    assert keys.interval(given) == made


def test_the_session_has_the_defaults_of_every_session_and_a_log_of_its_own() -> None:
    made = sessions.settings_for("local[2]", {"spark.sql.session.timeZone": "CET"})
    assert made == {**spark_sessions.DEFAULTS, **made} | {"spark.sql.session.timeZone": "CET"}
    (named,) = re.findall(r"file://(\S+)", made["spark.driver.extraJavaOptions"])
    assert Path(named).is_file()
