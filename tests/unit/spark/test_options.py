"""Options: what is taken, what is refused and how that is said, where credentials come from."""

from __future__ import annotations

import pickle

import pytest

from flintmq.spark.errors import BadOption
from flintmq.spark.options import READ, STREAM, ReadOptions, WriteOptions, settings_of


def read(use: str = STREAM, **given: str) -> ReadOptions:
    return ReadOptions.of({name.lower(): text for name, text in given.items()}, use)


def test_a_stream_with_every_option() -> None:
    options = read(
        url="amqp://me:secret@broker:5673/orders",
        queues="a, b,a",
        consumerName="export",
        startingOffsets='{"a": {"0": 23}, "b": -2}',
        maxOffsetsPerTrigger="1000",
        maxBytesPerTrigger="64m",
        minPartitions="4",
        failOnDataLoss="False",
        leaseTimeout="90s",
    )
    assert options.settings.address == "amqp://broker:5673/orders"
    assert options.queues == ("a", "b")
    assert options.starting == {"a": 23, "b": "earliest"}
    assert (options.rows_max, options.bytes_max, options.partitions_min) == (1000, 64 << 20, 4)
    assert not options.fail_on_data_loss
    assert options.lease_timeout_s == 90.0


def test_defaults_are_those_of_kafka() -> None:
    assert read(queue="q").starting == "latest"
    assert read(READ, queue="q").starting == "earliest"
    assert read(READ, queue="q").ending == "latest"
    assert read(queue="q").fail_on_data_loss


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"queue": "q", "startingOffset": "latest"}, "did you mean 'startingOffsets'?"),
        ({"queue": "q", "maxOffsetPerTrigger": "5"}, "did you mean 'maxOffsetsPerTrigger'?"),
        ({"queue": "q", "zzz": "5"}, "there are ack, columns"),
        ({"queue": "q", "endingOffsets": "latest"}, "'endingOffsets' means nothing in a streaming read"),
        ({"queue": "q", "maxOffsetsPerTrigger": "many"}, "expected a whole number above 0"),
        ({"queue": "q", "maxBytesPerTrigger": "0"}, "expected a size"),
        ({"queue": "q", "failOnDataLoss": "maybe"}, "expected true or false"),
        ({"queue": "q", "startingOffsets": "yesterday"}, "expected earliest, latest, or JSON"),
        ({"queue": "q", "startingOffsets": '{"q": {"1": 3}}'}, 'a queue has the one partition "0"'),
        ({"queue": "q", "startingOffsets": '{"q": -7}'}, "expected an offset"),
        ({"queue": "q", "leaseTimeout": "never"}, "expected a time"),
        ({"queuePattern": "a("}, "expected a regular expression"),
        ({}, "which queues are to be read?"),
        ({"queue": "a", "queues": "b"}, "not 'queue' and 'queues'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption) as refused:
        read(**given)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "?." not in str(refused.value)


def test_a_batch_read_does_not_ack() -> None:
    with pytest.raises(BadOption, match="availableNow"):
        read(READ, queue="q", ack="true")


def test_ending_offsets_cannot_be_earliest() -> None:
    with pytest.raises(BadOption, match="nothing to read"):
        read(READ, queue="q", endingOffsets="earliest")


def test_a_sink_to_a_queue_wants_to_hear_of_lost_rows() -> None:
    options = WriteOptions.of({"queue": "out"})
    assert (options.exchange, options.routing_key, options.mandatory) == ("", "out", True)
    assert not WriteOptions.of({"exchange": "bars"}).mandatory
    with pytest.raises(BadOption, match="routed when all of them are committed"):
        WriteOptions.of({"exchange": "bars", "mandatory": "true", "mode": "transactional"})
    with pytest.raises(BadOption, match="either"):
        WriteOptions.of({"queue": "out", "exchange": "bars"})


def test_credentials_by_option_file_and_environment(tmp_path) -> None:  # type: ignore[no-untyped-def]
    secret = tmp_path / "password"
    secret.write_text("from a file\n")
    environment = {"FLINTMQ_URI": "amqp://me@there/", "FLINTMQ_PASSWORD": "from outside"}
    assert settings_of({}, environment).host == "there"
    assert settings_of({}, environment).password.reveal() == "from outside"
    by_file = settings_of({"passwordFile": str(secret)}, environment)
    assert by_file.password.reveal() == "from a file"
    by_option = settings_of({"password": "given", "passwordFile": str(secret)}, environment)
    assert by_option.password.reveal() == "given"
    # One that stands in the URL is not overruled by the environment.
    assert settings_of({"url": "amqp://me:own@there/"}, environment).password.reveal() == "own"
    with pytest.raises(BadOption, match=r"\$FLINTMQ_URI is wrong"):
        settings_of({}, {"FLINTMQ_URI": "ftp://there"})
    with pytest.raises(BadOption, match="cannot be read"):
        settings_of({"passwordFile": str(tmp_path / "nowhere")}, {})


def test_nothing_shows_the_password() -> None:
    options = read(url="amqp://me:hunter2@there/", queue="q")
    assert "hunter2" not in repr(options)
    assert pickle.loads(pickle.dumps(options)).settings.password.reveal() == "hunter2"
    for uri in ("ftp://me:hunter2@there/", "amqp://me:hunter2@there:port/", "amqp://me:hunter2@there/?x=1"):
        for name in ("uri", "url"):
            with pytest.raises(BadOption) as refused:
                read(**{name: uri, "queue": "q"})
            assert "hunter2" not in str(refused.value)


def test_a_password_in_the_option_that_spark_may_show_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="Give the same text as the option 'url'") as warned:
        options = read(uri="amqp://me:hunter2@there/", queue="q")
    assert options.settings.password.reveal() == "hunter2"
    assert "hunter2" not in str(warned[0].message)
    assert read(uri="amqp://me@there/?name=a:b@c", queue="q").settings.user == "me"
    with pytest.raises(BadOption, match="write '/' in a password as %2F"):
        read(uri="amqp://me:12/34@there", queue="q")
    with pytest.raises(BadOption, match="one of the options 'uri' and 'url'"):
        read(uri="amqp://there", url="amqp://there", queue="q")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"queue": "ticks", "startingOffsets": '{"tickz": 3}'}, "did you mean 'ticks'?"),
        ({"queues": "a,b", "startingOffsets": '{"a": 3, "nowhere": 1}'}, "names 'nowhere'"),
        ({"queuePattern": "t.*", "startingOffsets": '{"trades": 3, "bars": 1}'}, "names 'bars'"),
        ({"queue": "ticks", "endingOffsets": '{"tickz": 3}'}, "did you mean 'ticks'?"),
    ],
)
def test_a_place_in_a_queue_that_is_not_read(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption, match="which this query does not read") as refused:
        ReadOptions.of(given, "read")
    assert said in str(refused.value)
