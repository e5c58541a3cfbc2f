"""SIGHUP: the settings are read again, and the log says what holds now and what waits for a start."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from broker_process import BrokerProcess

from flintmq.client import ClientError, connect

ALL = '{configure = ".*", write = ".*", read = ".*"}'
ROOT = f"""
[users.root]
password = "root"
tags = ["administrator"]
permissions."/" = {ALL}
permissions.orders = {ALL}
"""
FIRST = f"""
virtual_hosts = ["/", "orders"]
[log]
level = "info"
{ROOT}
[users.ann]
password = "ann"
permissions."/" = {ALL}
"""


class Reading:
    """A broker whose settings are written anew."""

    def __init__(self, broker: BrokerProcess, file: Path) -> None:
        self.broker = broker
        self.file = file

    def again(self, settings: str) -> str:
        """What the broker tells about new settings."""
        self.file.write_text(settings)
        return self.hang_up()

    def hang_up(self) -> str:
        start = len(self.broker.lines)
        self.broker.process.send_signal(signal.SIGHUP)
        pattern = re.compile(r"INFO SIGHUP: (the settings were read|nothing was read again)$")
        with self.broker.said:
            assert self.broker.said.wait_for(
                lambda: any(pattern.search(line) for line in self.broker.lines[start:]), 30
            )
            return "\n".join(self.broker.lines[start:])

    def url(self, user: str, virtual_host: str = "%2F") -> str:
        return f"amqp://{user}:{user}@127.0.0.1:{self.broker.port}/{virtual_host}"

    def may_log_in(self, user: str, virtual_host: str = "%2F") -> bool:
        try:
            connect(self.url(user, virtual_host)).close()
        except ClientError:
            return False
        return True


@pytest.fixture
def reading(tmp_path: Path) -> Iterator[Reading]:
    file = tmp_path / "flintmq.toml"
    file.write_text(FIRST)
    with BrokerProcess("--host", "127.0.0.1", "--config", str(file), "--data", str(tmp_path / "d")) as broker:
        yield Reading(broker, file)


NOW = "settings that have changed and hold now: "
LATER = "settings that have changed and need a restart to hold: "


def test_nothing_has_changed(reading: Reading) -> None:
    assert "SIGHUP: the settings have not changed" in reading.hang_up()


def test_a_fifo_in_the_place_of_the_file_does_not_stop_the_broker(reading: Reading) -> None:
    reading.file.unlink()
    os.mkfifo(reading.file)
    told = reading.hang_up()
    assert f"stay in force: {reading.file}: not a regular file, and so read at the start alone" in told
    assert reading.may_log_in("ann")
    reading.file.unlink()
    assert "SIGHUP: the settings have not changed" in reading.again(FIRST)


def test_a_broker_starts_with_settings_from_a_pipe(tmp_path: Path) -> None:
    """As a shell gives them by --config <(...)."""
    fifo = tmp_path / "settings"
    os.mkfifo(fifo)
    threading.Thread(target=fifo.write_text, args=(FIRST,), daemon=True).start()
    with BrokerProcess("--host", "127.0.0.1", "--config", str(fifo)) as broker:
        reading = Reading(broker, fifo)
        assert reading.may_log_in("ann")
        assert f"{fifo}: not a regular file" in reading.hang_up()
        assert reading.may_log_in("ann")


def test_users_come_change_and_go(reading: Reading) -> None:
    credentials = pika.PlainCredentials("ann", "ann")
    parameters = pika.ConnectionParameters("127.0.0.1", reading.broker.port, credentials=credentials)
    ann = pika.BlockingConnection(parameters)
    changed = FIRST.replace("[users.ann]", "[users.bob]").replace('"ann"', '"bob"')
    told = reading.again(changed)
    assert NOW + "users.ann, users.bob" in told
    assert LATER not in told
    assert reading.may_log_in("bob")
    assert not reading.may_log_in("ann")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="'ann' is no longer in the settings"):
        ann.process_data_events(time_limit=30)
    told = reading.again(changed.replace('password = "bob"', 'password = "other"'))
    assert NOW + "users.bob" in told
    assert not reading.may_log_in("bob")


def test_an_administrator_who_goes_with_the_settings_is_missed(reading: Reading) -> None:
    missed = "WARNING SIGHUP: the broker knows no administrator any more who can get in"
    assert missed in reading.again(FIRST.replace('tags = ["administrator"]', ""))
    assert missed not in reading.again(FIRST.replace('tags = ["administrator"]', "").replace("info", "debug"))
    assert missed not in reading.again(FIRST)


def test_what_was_granted_at_run_time_stays(reading: Reading) -> None:
    with connect(reading.url("root")) as root:
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        root.request("permission.set", {"user": "ann", "virtual-host": "orders", **everything})
    reading.again(FIRST.replace('password = "ann"', 'password = "ann"\ntags = ["monitoring"]'))
    assert reading.may_log_in("ann", "orders")


def test_limits_virtual_hosts_templates_policies_and_queues(reading: Reading) -> None:
    told = reading.again(
        FIRST.replace('"orders"]', '"orders", "more"]').replace(
            "permissions.orders", f"permissions.more = {ALL}\npermissions.orders"
        )
        + """
[limits]
queues_per_virtual_host_max = 2
frame_bytes_max = 65536
[queue_templates.long]
arguments = {x-max-length = 3}
[[queues]]
name = "fixed"
[[policies]]
name = "p"
pattern = "^ruled"
[policies.definition]
max-length = 1
"""
    )
    hosts = "limits.queues_per_virtual_host_max, virtual_hosts, users.root, "
    assert f"{NOW}{hosts}queue_templates.long, queues, policies" in told
    assert LATER + "limits.frame_bytes_max" in told
    with connect(reading.url("root", "more")) as root:
        assert root.request("vhost.list").results["rows"][0]["fixed"] is True
    with connect(reading.url("root")) as root, root.channel() as channel:
        assert root.request("policy.list").results["rows"][0]["name"] == "p"
        channel.queue("ruled")
        with pytest.raises(ClientError, match="limit"):
            channel.queue("one too many")
    told = reading.again(FIRST)
    assert "virtual_hosts" in told.split(LATER)[1], "it is not closed while the broker runs"
    with connect(reading.url("root")) as root, root.channel() as channel:
        assert root.request("policy.list").results["rows"] == []
        channel.queue("one too many")


def test_the_limits_of_memory_and_disk(reading: Reading) -> None:
    """Those of the file hold at once; what a request has set stays until the file has another."""
    with connect(reading.url("root")) as root:

        def limits() -> tuple[int, int]:
            found = root.request("broker.info").results
            return found["memory-bytes-high"], found["disk-bytes-free-min"]  # type: ignore[return-value]

        told = reading.again(FIRST + '[limits]\nmemory_high_bytes = "3GiB"\ndisk_free_bytes_min = "10MiB"\n')
        assert NOW + "limits.memory_high_bytes, limits.disk_free_bytes_min" in told
        assert limits() == (3 << 30, 10 << 20)
        root.request("memory-limit.set", {"bytes": 4 << 30})
        root.request("disk-limit.set", {"bytes": "20MiB"})
        assert limits() == (4 << 30, 20 << 20)
        reading.hang_up()
        assert limits() == (4 << 30, 20 << 20)
        reading.again(FIRST + '[limits]\nmemory_high_bytes = "5GiB"\ndisk_free_bytes_min = 0\n')
        assert limits() == (5 << 30, 0)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ("[[[", "not valid TOML"),
        ("[users.x]\npassword_hash = 'hunter2'", "not a hash of"),
        ("nonsense = 1", "unknown setting 'nonsense'"),
        ('[[policies]]\nname = "p"\npattern = "x"\n[policies.definition]\nnonsense = 1', "no such key"),
    ],
)
def test_wrong_settings_change_nothing(reading: Reading, settings: str, why: str) -> None:
    reading.file.write_text(settings)
    reading.broker.process.send_signal(signal.SIGHUP)
    told = reading.broker.wait_for(
        re.compile("ERROR SIGHUP: the settings .* stay in force, as the file has a mistake: (.*)")
    )[1]
    assert why in told
    assert told.endswith("; correct the file and send SIGHUP again, without a restart")
    assert told.count("correct") == 1
    assert "start again" not in told
    assert "hunter2" not in told
    assert reading.broker.wait_for(re.compile("INFO SIGHUP: (.*)"))[1] == "nothing was read again"
    assert reading.may_log_in("ann")


def test_settings_that_are_gone_change_nothing(reading: Reading) -> None:
    reading.file.unlink()
    reading.broker.process.send_signal(signal.SIGHUP)
    reading.broker.wait_for(re.compile("ERROR SIGHUP: the settings .* stay in force, .*cannot be read"))
    assert reading.may_log_in("ann")


def test_the_level_of_the_log(reading: Reading) -> None:
    reading.file.write_text(FIRST.replace('"info"', '"warning"') + "\n[storage]\nsync = 'never'\n")
    reading.broker.process.send_signal(signal.SIGHUP)
    reading.broker.wait_for(re.compile(f"WARNING SIGHUP: {LATER}"))
    assert not [line for line in reading.broker.lines if "INFO SIGHUP" in line]
    assert NOW + "log.level" in reading.again(FIRST)


def test_what_waits_for_a_start_is_told_each_time(reading: Reading) -> None:
    later = FIRST + "\n[listen]\nport = 1\n[storage]\nsync = 'never'\n"
    for _ in range(2):
        told = reading.again(later)
        assert LATER + "storage.sync" in told, "listen.port is given by the command line"
    assert reading.may_log_in("ann")


def test_a_user_that_the_settings_take_over_is_logged_out(reading: Reading) -> None:
    with connect(reading.url("root")) as root:
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        root.request("user.add", {"user": "eve", "password": "eve"})
        root.request("permission.set", {"user": "eve", "virtual-host": "/", **everything})
        eve = pika.BlockingConnection(pika.URLParameters(reading.url("eve")))
        tagged = f'[users.eve]\npassword = "eve"\ntags = ["administrator"]\npermissions."/" = {ALL}\n'
        reading.again(FIRST + tagged)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="is set by the settings now"):
            eve.process_data_events(time_limit=30)
        assert reading.may_log_in("eve")
        assert {"user": "eve", "tags": ["administrator"], "fixed": True} in root.request("user.list").results[
            "rows"
        ]


def test_guest_enters_a_virtual_host_that_comes(tmp_path: Path) -> None:
    file = tmp_path / "flintmq.toml"
    file.write_text('virtual_hosts = ["/"]\n[log]\nlevel = "info"\n')
    with BrokerProcess("--host", "127.0.0.1", "--config", str(file)) as broker:
        reading = Reading(broker, file)
        told = reading.again('virtual_hosts = ["/", "orders"]\n[log]\nlevel = "info"\n')
        assert f"{NOW}virtual_hosts" in told
        assert "users" not in told
        assert LATER not in told
        assert reading.may_log_in("guest", "orders")
