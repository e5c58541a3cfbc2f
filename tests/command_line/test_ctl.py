"""`flintmq ctl` beside rabbitmqctl: the output and the statuses here are those that rabbitmqctl 3.10.8 gave
for the same words, as far as names of nodes, versions and the order of rows allow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from broker_process import BrokerProcess
from command_line.conftest import Command, closed_with, run

from flintmq.cli.ctl import health
from flintmq.cli.ctl.health import place_of
from flintmq.cli.ctl.node import unless_refused
from flintmq.client import ServiceError, connect
from flintmq.testing import Broker


def test_users(flintmq: Command) -> None:
    assert flintmq("ctl await_startup").status == 0
    assert flintmq("ctl add_user shop secret").lines[0] == 'Adding user "shop" ...'
    again = flintmq("ctl add_user shop secret")
    assert (again.status, again.err) == (70, 'Error:\nUser "shop" already exists\n')
    assert flintmq("ctl authenticate_user shop secret").lines[-1] == "Success"
    wrong = flintmq("ctl authenticate_user shop wrong")
    assert wrong.status == 65
    assert wrong.err.startswith('Error:\nError: failed to authenticate user "shop"\n')
    assert (
        flintmq("ctl set_user_tags shop monitoring").out
        == 'Setting tags for user "shop" to [monitoring] ...\n'
    )
    strange = flintmq("ctl set_user_tags shop monitoring boss")
    assert (strange.status, strange.err) == (
        70,
        "Error:\nargument 'tags': there is no tag 'boss'; "
        "there are administrator, monitoring, management, policymaker, impersonator\n",
    )
    assert flintmq("ctl list_users").lines == [
        "Listing users ...",
        "user\ttags",
        "guest\t[administrator]",
        "shop\t[monitoring]",
    ]
    assert flintmq("ctl -q list_users").lines == [
        "user\ttags",
        "guest\t[administrator]",
        "shop\t[monitoring]",
    ]
    assert flintmq("ctl list_users -s").lines == ["guest\t[administrator]", "shop\t[monitoring]"]
    assert flintmq("ctl list_users --formatter json").out == (
        '[\n{"user":"guest","tags":["administrator"]}\n,{"user":"shop","tags":["monitoring"]}\n]\n'
    )
    assert flintmq("ctl list_users --formatter=csv").lines == [
        '"user","tags"',
        '"guest","[administrator]"',
        '"shop","[monitoring]"',
    ]
    boxed = flintmq("ctl -q list_users --formatter pretty_table").lines
    assert boxed[:2] == ["┌───────┬─────────────────┐", "│ user  │ tags            │"]
    assert flintmq("ctl change_password shop other").status == 0
    assert flintmq("ctl change_password nobody x").status == 67
    missing = flintmq("ctl delete_user nobody")
    assert (missing.status, missing.err) == (67, 'Error:\nUser "nobody" does not exist\n')
    assert flintmq("ctl delete_user shop").out == 'Deleting user "shop" ...\n'


def test_the_firehose(flintmq: Command) -> None:
    assert flintmq("ctl trace_on").out == 'Starting tracing for vhost "/" ...\n'
    assert flintmq("ctl -q list_vhosts name tracing").lines[1] == "/\ttrue"
    assert flintmq("ctl trace_off -p /").out == 'Stopping tracing for vhost "/" ...\n'
    assert flintmq("ctl -q list_vhosts name tracing").lines[1] == "/\tfalse"
    assert flintmq("ctl trace_on -p nowhere").status != 0


def test_what_is_said_of_a_virtual_host(flintmq: Command) -> None:
    said = flintmq("ctl add_vhost shop --description 'all of it' --tags a,b --default-queue-type quorum")
    assert said.lines == [
        'Adding vhost "shop" ...',
        "The default queue type quorum is kept; queues without x-queue-type are classic here.",
    ]
    assert flintmq("ctl -q list_vhosts name description tags default_queue_type").lines[1:] == [
        "/\t\t[]\tundefined",
        "shop\tall of it\t[a, b]\tquorum",
    ]
    wrong = flintmq("ctl add_vhost other --default-queue-type fast")
    assert (wrong.status, "expected one of undefined, classic, quorum, stream" in wrong.err) == (70, True)
    assert flintmq("ctl delete_vhost shop").status == 0


def test_virtual_hosts_permissions_and_policies(flintmq: Command) -> None:
    flintmq("ctl add_user clerk secret")
    assert flintmq("ctl add_vhost orders").out == 'Adding vhost "orders" ...\n'
    assert flintmq("ctl list_vhosts name tracing").lines[1:] == ["name\ttracing", "/\tfalse", "orders\tfalse"]
    assert flintmq("ctl set_permissions -p orders clerk '^a' '^b' '.*'").status == 0
    assert flintmq("ctl list_permissions -p orders").lines == [
        'Listing permissions for vhost "orders" ...',
        "user\tconfigure\twrite\tread",
        "clerk\t^a\t^b\t.*",
    ]
    assert flintmq("ctl list_user_permissions clerk").lines == [
        'Listing permissions for user "clerk" ...',
        "vhost\tconfigure\twrite\tread",
        "orders\t^a\t^b\t.*",
    ]
    words = """ctl set_policy -p orders short '^q' '{"max-length":10}' --apply-to queues --priority 2"""
    assert flintmq(words).out == (
        'Setting policy "short" for pattern "^q" to "{"max-length":10}" with priority "2" '
        'for vhost "orders" ...\n'
    )
    assert flintmq("ctl list_policies -p orders").lines[1:] == [
        "vhost\tname\tpattern\tapply-to\tdefinition\tpriority",
        'orders\tshort\t^q\tqueues\t{"max-length":10}\t2',
    ]
    assert flintmq("""ctl set_vhost_limits -p orders '{"max-queues":5}'""").status == 0
    assert flintmq("ctl list_vhost_limits -p orders").lines[1:] == ['{"max-queues":5}']
    assert flintmq("ctl list_vhost_limits --global").lines == [
        "Listing limits for all vhosts ...",
        "vhost\tlimits",
        'orders\t{"max-queues":5}',
    ]
    assert flintmq("""ctl set_vhost_limits -p orders '{"max-channels":-1}'""").status == 0
    assert flintmq("""ctl set_user_limits clerk '{"max-connections":7,"max-channels":-1}'""").status == 0
    assert flintmq("ctl list_user_limits --user clerk").lines[1:] == ['{"max-connections":7}']
    assert flintmq("ctl list_user_limits").lines == ['Listing limits for user "guest" ...', "{}"]
    assert flintmq("ctl list_user_limits --global -q").lines == [
        "user\tlimits",
        'clerk\t{"max-connections":7}',
    ]
    assert flintmq("ctl clear_vhost_limits -p orders").status == 0
    assert flintmq("ctl list_vhost_limits -q -p orders").out == "{}\n"
    assert flintmq("ctl set_topic_permissions -p orders clerk amq.topic ^a ^b").status == 0
    assert flintmq("ctl list_topic_permissions -p orders").lines[1:] == [
        "user\texchange\twrite\tread",
        "clerk\tamq.topic\t^a\t^b",
    ]
    assert flintmq("ctl clear_topic_permissions -p orders clerk").status == 0
    assert flintmq("ctl clear_permissions -p orders guest").status == 0  # there are none, which is no fault
    missing = flintmq("ctl clear_policy -p orders nothere")
    assert (missing.status, missing.err) == (69, "Error:\nParameter does not exist\n")
    assert flintmq("ctl clear_policy -p orders short").status == 0
    assert flintmq("ctl set_parameter tool colour '\"red\"'").status == 0
    assert flintmq("ctl list_parameters").lines[1:] == ["component\tname\tvalue", 'tool\tcolour\t"red"']
    assert flintmq("ctl clear_parameter tool colour").status == 0
    assert flintmq("ctl list_parameters -q").out == ""
    assert flintmq("ctl delete_vhost orders").status == 0
    gone = flintmq("ctl delete_vhost orders")
    assert (gone.status, gone.err) == (65, "Error:\nVirtual host 'orders' does not exist\n")
    flintmq("ctl delete_user clerk")


def test_queues_exchanges_and_bindings(flintmq: Command) -> None:
    assert flintmq("ctl list_queues").lines == ["Timeout: 60.0 seconds ...", "Listing queues for vhost / ..."]
    flintmq("declare queue q1 -a x-max-length=100")
    flintmq("declare queue 'q 2' --transient")
    flintmq("declare exchange logs topic")
    flintmq("bind logs q1 'a.*'")
    flintmq("publish q1 --count 3 x")
    assert flintmq("ctl list_queues -q").lines == ["name\tmessages", "q 2\t0", "q1\t3"]
    assert flintmq("ctl list_queues name messages consumers durable arguments").lines[3:] == [
        "q 2\t0\t0\tfalse\t[]",
        'q1\t3\t0\ttrue\t[{"x-max-length",100}]',
    ]
    assert flintmq("ctl -q list_queues --no-table-headers name messages").lines == ["q 2\t0", "q1\t3"]
    assert flintmq("ctl list_queues --formatter json name messages arguments").out == (
        '[\n{"name":"q 2","messages":0,"arguments":[]}\n'
        ',{"name":"q1","messages":3,"arguments":[["x-max-length","signedint",100]]}\n]\n'
    )
    unknown = flintmq("ctl list_queues nonsense")
    assert unknown.status == 64
    assert "Info key(s) nonsense are not supported" in unknown.err
    assert {"\tdirect", "logs\ttopic", "amq.match\theaders"} <= set(flintmq("ctl list_exchanges").lines)
    assert flintmq("ctl list_bindings").lines == [
        "Listing bindings for vhost /...",
        "source_name\tsource_kind\tdestination_name\tdestination_kind\trouting_key\targuments",
        "\texchange\tq 2\tqueue\tq 2\t[]",
        "\texchange\tq1\tqueue\tq1\t[]",
        "logs\texchange\tq1\tqueue\ta.*\t[]",
    ]
    assert flintmq("ctl list_unresponsive_queues -q").out == ""
    assert flintmq("ctl purge_queue q1").out == "Purging queue 'q1' in vhost '/' ...\n"
    assert flintmq("ctl delete_queue q1").lines == [
        "Deleting queue 'q1' on vhost '/' ...",
        "Queue was successfully deleted with 0 ready messages",
    ]
    gone = flintmq("ctl delete_queue q1")
    assert (gone.status, gone.err) == (64, "Error:\nQueue not found\n")
    flintmq("delete queue 'q 2' -y")
    flintmq("delete exchange logs -y")


def test_connections_are_found_and_closed_by_their_ports(flintmq: Command, broker: BrokerProcess) -> None:
    """As the helpers of client libraries do, which kill a connection to see it recover."""
    url = f"amqp://guest:guest@127.0.0.1:{broker.port}"
    with connect(url, name="victim", recovery=None) as connection:  # noqa: SIM117
        with connection.channel(prefetch=5) as channel:
            channel.consume(channel.queue("q", auto_delete=True).name)
            assert flintmq("ctl list_connections").lines[1] == "user\tpeer_host\tpeer_port\tstate"
            (line,) = flintmq(
                "ctl -q --no-table-headers list_connections pid peer_port client_properties"
            ).lines
            pid, port, properties = line.split("\t")
            assert int(port) == connection._socket.getsockname()[1]  # type: ignore[union-attr]
            assert '{"connection_name","victim"}' in properties
            (line,) = flintmq("ctl -s list_channels").lines
            assert line.split("\t")[1:] == ["guest", "1", "0"]
            (line,) = flintmq("ctl -s list_consumers").lines
            assert line.split("\t")[:1] + line.split("\t")[3:] == ["q", "true", "5", "true", "[]"]
            assert flintmq(f"ctl close_connection '{pid}' 'time to go'").status == 0
            closed_with(connection, "time to go")
    assert flintmq("ctl close_connection '<0.1.0>' bye").status == 69
    assert flintmq("ctl close_all_connections --vhost / bye").lines == [
        "Closing all connections in vhost /, reason: bye...",
        "Closed 0 connections",
    ]


def test_the_broker_itself(flintmq: Command, tmp_path: Path) -> None:
    for word in ("status", "environment", "version", "ping", "check_running", "help"):
        assert flintmq(f"ctl {word}").status == 0
    assert json.loads(flintmq("ctl status --formatter json").out)["alarms"] == []
    refusals = (
        "eval 1+1.",
        "stop",
        "stop_app",
        "clear_password guest",
        "hash_password x",
        "join_cluster other",
    )
    for word in refusals:
        refused = flintmq(f"ctl {word}")
        assert refused.status == 69
        assert refused.err.startswith(f"Error:\n{word.split()[0]}: ")
    unknown = flintmq("ctl nonsense")
    assert unknown.status == 64
    assert "Command 'nonsense' not found" in unknown.err
    assert "`flintmq ctl help` lists the commands" in unknown.err
    assert "Did you mean" not in flintmq("ctl list_ciphers").err
    mistyped = flintmq("ctl lst_queues")
    assert mistyped.status == 64
    assert mistyped.err.startswith(
        "Error:\nCommand 'lst_queues' not found.\n\nDid you mean 'list_queues'?\n\nUsage\n\nflintmq ctl "
    )
    option = flintmq("ctl list_queues --formater json")
    assert (option.status, option.err) == (
        64,
        "Error:\nInvalid options for this command: --formater; did you mean '--formatter'?\n",
    )
    few = flintmq("ctl add_user")
    assert few.status == 64
    assert "not enough arguments" in few.err
    for words in ("--nonsense", "--timeout soon", "--timeout nan", "--formatter nonsense", "--vhost"):
        assert flintmq(f"ctl list_queues {words}").status == 64
    assert flintmq("ctl set_policy --priority high name pattern {}").status == 64
    assert flintmq("ctl list_queues --url amqp://localhost:1").status == 69
    assert flintmq("ctl await_startup --timeout 0.1 --url amqp://localhost:1").status == 69
    file = tmp_path / "definitions.json"
    assert flintmq(f"ctl export_definitions {file}").status == 0
    assert flintmq("ctl export_definitions -").document.keys() == json.loads(file.read_text()).keys()
    assert [user["name"] for user in json.loads(file.read_text())["users"]] == ["guest"]
    assert flintmq(f"ctl import_definitions {file}").status == 0


def test_options_that_a_command_does_not_heed_are_refused(flintmq: Command) -> None:
    flintmq("ctl add_vhost kept")
    flintmq("declare queue kept")
    flintmq("publish kept x")
    for words in (
        "delete_vhost --dry-run kept",
        "purge_queue --if-empty kept",
        "purge_queue --dry-run kept",
        "delete_queue --dry-run kept",
        "delete_user --if-unused guest",
        "list_queues --global",
        "close_all_connections --limit -1 bye",
        "close_all_connections --limit 0.5 bye",
        "delete_queue --if-empty=perhaps kept",
        "export_definitions --format erlang /nowhere/file",
    ):
        assert flintmq(f"ctl {words}").status == 64, words
    assert flintmq("ctl -q list_vhosts name").lines == ["name", "/", "kept"]
    assert flintmq("ctl -q list_queues name messages").lines == ["name\tmessages", "kept\t1"]
    assert flintmq("ctl -q list_queues --online name").lines == ["name", "kept"]
    assert flintmq("ctl -q list_queues --offline name").lines == []
    assert flintmq("ctl delete_queue --if-empty kept").status == 70
    assert flintmq("ctl delete_queue --if-empty=false kept").status == 0
    flintmq("ctl delete_vhost kept")


def test_an_import_for_trial_imports_nothing(flintmq: Command, tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    file.write_text('{"vhosts": [{"name": "imported"}]}')
    assert flintmq(f"ctl import_definitions --dry-run {file}").lines[-1] == "nothing was changed"
    assert flintmq("ctl -q list_vhosts name").lines == ["name", "/"]
    assert flintmq(f"ctl import_definitions --dry-run=false {file}").status == 0
    assert flintmq("ctl -q list_vhosts name").lines == ["name", "/", "imported"]
    flintmq("ctl delete_vhost imported")


def test_values_that_are_not_valid_end_with_the_status_of_rabbitmqctl(flintmq: Command) -> None:
    for line in (
        """set_policy bad '^tmp' '{"message-ttl":-1}'""",
        "set_policy bad '^tmp' 'not json'",
        "set_permissions guest '(' '.*' '.*'",
        "set_parameter c n 'not json'",
        "purge_queue nowhere",
    ):
        assert flintmq(f"ctl {line}").status == 69, line


def test_a_policy_below_zero(flintmq: Command) -> None:
    """A policy that gives way to those without a priority."""
    assert flintmq("""ctl set_policy --priority -10 low '^x' '{"max-length":5}'""").status == 0
    assert flintmq("ctl -q list_policies name priority").lines == ["name\tpriority", "low\t-10"]
    assert flintmq("""ctl set_policy --priority 1.5 low '^x' '{"max-length":5}'""").status == 64
    flintmq("ctl clear_policy low")


def test_the_health_checks_that_supervisors_run(flintmq: Command, tmp_path: Path) -> None:
    """Those of rabbitmq-diagnostics too, as liveness probes have them."""
    node = "flintmq@localhost"
    assert flintmq("ctl -q check_alarms").out == f"Node {node} reported no alarms, local or clusterwide\n"
    assert flintmq("ctl check_local_alarms").lines[-1] == f"Node {node} reported no local alarms"
    assert flintmq("ctl -q alarms").out == f"Node {node} reported no alarms, local or clusterwide\n"
    assert flintmq("ctl alarms --formatter json").document == {"result": "ok", "node": node, "alarms": []}
    assert flintmq("ctl check_virtual_hosts").lines[-1] == f"Node {node} reported all vhosts as running"
    assert flintmq("ctl node_health_check").lines[-1] == "Health check passed"
    assert flintmq("ctl is_running").lines[-1] == f"FlintMQ on node {node} is fully booted and running"
    assert flintmq("ctl -q server_version").lines == ["3.10.8"]
    assert flintmq("ctl check_port_connectivity").lines[-1].startswith("Successfully connected to ")
    assert flintmq("ctl await_online_nodes 1").status == 0
    assert flintmq("ctl await_online_nodes 3").status == 69
    for word in ("check_alarms", "check_port_connectivity", "is_running", "node_health_check"):
        assert flintmq(f"ctl {word} --url amqp://localhost:1").status == 69
    settings = tmp_path / "flintmq.toml"
    settings.write_text('[limits]\nmemory_high_bytes = "1MiB"\n')
    with BrokerProcess("--config", str(settings)) as blocked:
        url = f"--url amqp://localhost:{blocked.port}"
        for word, status in (("check_alarms", 69), ("check_local_alarms", 69), ("node_health_check", 70)):
            said = flintmq(f"ctl {word} {url}")
            assert said.status == status
            assert "emory alarm on node" in said.err or "resource alarm(s) in effect: memory" in said.err
        assert flintmq(f"ctl -q alarms {url}").out == f"Memory alarm on node {node}\n"
        assert flintmq(f"ctl alarms --formatter json {url}").document["alarms"] == ["memory"]


def test_the_cluster_of_one_node(flintmq: Command) -> None:
    assert flintmq("ctl set_cluster_name prod-mq").lines == ["Setting cluster name to prod-mq ..."]
    assert "Cluster name: prod-mq" in flintmq("ctl cluster_status").lines
    assert flintmq("ctl clear_global_parameter cluster_name").status == 0
    lines = flintmq("ctl cluster_status").lines
    assert lines[0] == "Cluster status of node flintmq@localhost ..."
    assert lines[lines.index("Running Nodes") + 2] == "flintmq@localhost"
    found = json.loads(flintmq("ctl cluster_status --formatter json").out)
    assert found["disk_nodes"] == found["running_nodes"] == ["flintmq@localhost"]
    assert (found["partitions"], found["alarms"], found["ram_nodes"]) == ({}, [], [])
    assert flintmq("ctl -q list_feature_flags").lines[0] == "name\tstate"
    assert flintmq("ctl enable_feature_flag all").out == "Enabling all feature flags ...\n"
    assert flintmq("ctl enable_feature_flag stream_queue").status == 0
    assert flintmq("ctl enable_feature_flag nonsense").status == 64


def test_global_parameters(flintmq: Command) -> None:
    said = flintmq("""ctl set_global_parameter mine '{"a":1}'""")
    assert said.out == 'Setting global runtime parameter "mine" to "{"a":1}" ...\n'
    assert flintmq("ctl -q list_global_parameters").lines == ["name\tvalue", 'mine\t{"a":1}']
    assert flintmq("ctl clear_global_parameter mine").status == 0
    again = flintmq("ctl clear_global_parameter mine")
    assert (again.status, again.err) == (69, "Error:\nParameter does not exist\n")


def test_what_only_erlang_or_the_settings_can_do_is_refused_with_what_to_do(flintmq: Command) -> None:
    for word, way in (
        ("rotate_logs", "SIGHUP"),
        ("set_log_level debug", "SIGHUP"),
        ("wait /run/pid", "await_startup"),
        ("force_gc", "nothing to collect"),
        ("forget_cluster_node x", "single node"),
        ("sync_queue q", "single node"),
        ("suspend_listeners", "firewall"),
    ):
        refused = flintmq(f"ctl {word}")
        assert refused.status == 69, word
        assert refused.err.startswith(f"Error:\n{word.split()[0]}: ")
        assert way in refused.err


def test_the_pid_of_another_node_closes_no_connection_of_this_one(
    flintmq: Command, broker: BrokerProcess
) -> None:
    with connect(f"amqp://guest:guest@localhost:{broker.port}", recovery=None) as connection:
        number = connection.request("connection.list").results["rows"][-1]["number"]
        for pid in (f"<rabbit@elsewhere.1.{number}.0>", f"<0.{number}.0>"):
            said = flintmq(f"ctl close_connection '{pid}' because")
            assert (said.status, said.err) == (69, f"Error:\n{pid}: no pid of list_connections\n")
        connection.request("broker.info")
        assert flintmq(f"ctl close_connection '<flintmq@localhost.1.{number}.0>' because").status == 0
        closed_with(connection, "because")


def test_a_virtual_host_that_the_asker_may_not_enter(flintmq: Command) -> None:
    assert flintmq("ctl add_vhost apart").status == 0
    said = flintmq("ctl -q list_queues -p apart")
    assert said.status == 69
    assert "flintmq ctl set_permissions -p apart USER" in said.err
    assert flintmq("ctl -q list_queues -p nowhere").status == 65
    assert flintmq("ctl delete_vhost apart").status == 0


def test_the_last_administrator_is_deleted_by_force_alone() -> None:
    """A broker of its own, which nobody can administer afterwards."""
    with Broker() as broker:
        where = f"--url {broker.uri} --password-in-url"
        refused = run(f"ctl delete_user guest {where}")
        assert refused.status == 70
        assert "give --force to do it anyway" in refused.err
        assert "give --force to do it anyway" in run(f"users delete guest -y {where}").err
        assert run(f"ctl set_user_tags guest monitoring {where}").status == 70
        assert run(f"ctl list_users --force {where}").status == 64
        assert run(f"ctl set_user_tags guest administrator monitoring --force {where}").status == 0
        assert run(f"ctl delete_user guest --force {where}").status == 0
        assert run(f"ctl list_users {where}").status == 69


def test_status_tells_of_the_process(flintmq: Command, broker: BrokerProcess) -> None:
    found = flintmq("ctl status --formatter json").document
    assert found["pid"] == broker.process.pid
    assert found["data_directory"].endswith("/data")
    assert found["uptime"] >= 0
    files = found["file_descriptors"]
    assert 0 < files["sockets_used"] < files["total_used"] <= files["total_limit"]
    assert {each["port"] for each in found["listeners"]} == {broker.port}
    assert found["listeners"][0]["protocol"] == "amqp"
    assert found["vm_memory_high_watermark_setting"] == {"relative": 0.4}
    assert found["disk_free_limit"] == 256 * 2**20
    uses = dict(found["memory"])
    total = uses.pop("total")
    assert uses.pop("strategy") == "rss"
    assert sum(uses.values()) == total
    assert {"queue_procs", "connection_writers", "other_system"} <= uses.keys()
    lines = flintmq("ctl status").lines
    assert f"OS PID: {broker.process.pid}" in lines
    assert f"Node data directory: {found['data_directory']}" in lines
    assert any(line.startswith("Interface: 127.0.0.1, port: ") for line in lines)
    assert any(line.startswith("Total: ") for line in lines)
    assert any(line.startswith("Memory high watermark setting: 0.4 of available memory") for line in lines)
    assert any(line.startswith("other_system: ") and line.endswith("%)") for line in lines)
    assert f"Low free disk space watermark: {256 * 2**20} bytes" in flintmq("ctl status --unit bytes").lines
    assert flintmq("ctl status --unit furlongs").status == 64


def test_the_process_is_told_to_those_who_monitor(
    flintmq: Command, broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    flintmq("ctl add_user clerk secret")
    flintmq("ctl set_permissions clerk .* .* .*")
    url = f"--url amqp://clerk@localhost:{broker.port}"
    monkeypatch.setenv("FLINTMQ_PASSWORD", "secret")
    found = flintmq(f"ctl status --formatter json {url}")
    assert found.status == 0
    assert not {"pid", "listeners", "data_directory"} & found.document.keys()
    assert flintmq(f"ctl status {url}").status == 0
    assert flintmq(f"ctl check_port_connectivity {url}").status == 0
    refused = flintmq(f"ctl listeners {url}")
    assert refused.status == 69
    assert "has not the tag monitoring" in refused.err
    assert flintmq(f"ctl set_disk_free_limit 1GB {url}").status == 69
    assert flintmq(f"ctl set_vm_memory_high_watermark 0.5 {url}").status == 69
    monkeypatch.delenv("FLINTMQ_PASSWORD")
    flintmq("ctl delete_user clerk")


def test_listeners(flintmq: Command, broker: BrokerProcess) -> None:
    node = "flintmq@localhost"
    said = flintmq("ctl listeners")
    assert said.lines[0] == f"Asking node {node} to report its protocol listeners ..."
    assert said.lines[1].startswith(f"Interface: 127.0.0.1, port: {broker.port}, protocol: amqp, purpose: ")
    found = flintmq("ctl listeners --formatter json").document
    assert found["result"] == "ok"
    assert {each["port"] for each in found["listeners"]} == {broker.port}
    said = flintmq(f"ctl check_port_listener {broker.port}")
    assert said.lines[-1] == f"A listener for port {broker.port} is running on node {node}."
    missing = flintmq("ctl check_port_listener 1")
    assert (missing.status, missing.err) == (
        69,
        f"Error:\nNo listener for port 1 is active on node {node}. "
        f"Found listeners that use the following ports: {broker.port}\n",
    )
    for word in ("0", "65536", "amqp", "٣"):
        assert flintmq(f"ctl check_port_listener {word}").status == 64
    assert flintmq("ctl -q check_protocol_listener amqp091").status == 0
    assert flintmq("ctl check_protocol_listener amqps").status == 69
    said = flintmq("ctl check_port_connectivity")
    assert said.lines[-1] == f"Successfully connected to ports {broker.port} on node {node}."
    first_is_down = f"--url amqp://{'x' * 64},localhost:{broker.port}"  # no host can have a name that long
    said = flintmq(f"ctl check_port_connectivity {first_is_down}")
    assert said.lines[-1] == f"Successfully connected to ports {broker.port} on node {node}."
    elsewhere = flintmq("ctl check_port_connectivity --address 127.0.0.2")
    assert elsewhere.status == 69
    assert "127.0.0.2: Connection refused" in elsewhere.err


@pytest.mark.parametrize(
    ("listening", "host", "place"),
    [
        ("0.0.0.0", "mq.example", "mq.example"),
        ("::", "10.0.0.1", "10.0.0.1"),
        ("10.0.0.2", "mq.example", "10.0.0.2"),
        ("127.0.0.1", "localhost", "127.0.0.1"),
        ("::1", "127.0.0.1", "::1"),
        ("127.0.0.1", "mq.example", None),
    ],
)
def test_where_a_listener_is_reached(listening: str, host: str, place: str | None) -> None:
    assert place_of(listening, host) == place


def test_a_broker_whose_ports_cannot_be_tried_from_here(
    flintmq: Command, broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "place_of", lambda listening, host: None)
    said = flintmq(f"ctl check_port_connectivity --url amqp://localhost:{broker.port}")
    assert said.lines == [f"Successfully connected to localhost:{broker.port} on node flintmq@localhost."]


@pytest.mark.parametrize("code", [403, 404, 540])
def test_a_broker_that_does_not_tell_of_its_process(code: int) -> None:
    """One that has no service broker.node, as an older one, or one that refuses it."""

    def refused() -> dict[str, Any]:
        raise ServiceError("broker.node", code, "no service 'broker.node'")

    assert unless_refused(refused, {"pid": 0}) == {"pid": 0}


def test_another_fault_of_the_broker_is_told() -> None:
    def failed() -> dict[str, Any]:
        raise ServiceError("broker.node", 506, "the results do not fit in a frame")

    with pytest.raises(ServiceError, match="do not fit"):
        unless_refused(failed, {})


def test_files_are_told_by_their_whole_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = tmp_path / "flintmq.toml"
    settings.write_text('[log]\nfile = "broker.log"\n[audit]\nfile = "audit.log"\n')
    with BrokerProcess("--config", str(settings), "--data", "data") as broker:
        found = run(f"ctl environment --formatter json --url amqp://localhost:{broker.port}").document
    names = {"directory": "data", "log-file": "broker.log", "audit-file": "audit.log"}
    assert {name: found[name] for name in names} == {
        name: str(tmp_path / file) for name, file in names.items()
    }


def test_memory_by_use(flintmq: Command) -> None:
    flintmq("declare queue held")
    flintmq("publish held --count 20 '" + "x" * 10_000 + "'")
    found = flintmq("ctl memory_breakdown --formatter json").document
    assert found["queue_procs"]["bytes"] >= 200_000
    assert next(iter(found)) == "other_system"
    assert sum(each["percentage"] for each in found.values()) == pytest.approx(100, abs=0.1)
    lines = flintmq("ctl memory_breakdown --unit mb").lines
    assert lines[0] == "Reporting memory breakdown on node flintmq@localhost..."
    assert any(line.startswith("queue_procs: 0.2") and " mb (" in line for line in lines)
    flintmq("delete queue held -y")


def test_a_report_has_all_of_it(flintmq: Command) -> None:
    flintmq("ctl add_vhost closed")
    flintmq("ctl clear_permissions -p closed guest")
    flintmq("declare queue told")
    said = flintmq("ctl report")
    assert said.status == 0
    for part in ("Status of node", "Cluster status of node", "Listing users", "Listing queues for vhost /"):
        assert part in said.out
    assert "\ntold\tclassic\ttrue\t" in said.out
    assert "list_queues" in said.out  # of the virtual host that is closed, with the reason
    assert "access to vhost 'closed' refused" in said.out
    assert "password" not in said.out
    for formatter in ("json", "csv"):
        refused = flintmq(f"ctl report --formatter {formatter}")
        assert (refused.status, refused.out) == (64, "")
        assert "a report is text" in refused.err
    flintmq("delete queue told -y")
    flintmq("ctl delete_vhost closed")


def test_the_environment(flintmq: Command, broker: BrokerProcess) -> None:
    assert flintmq("ctl environment --formatter json").document["pid"] == broker.process.pid
    assert f"pid: {broker.process.pid}" in flintmq("ctl environment").lines


def test_the_memory_limit_is_changed_while_the_broker_runs(tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"
    settings = tmp_path / "flintmq.toml"
    settings.write_text(f'[limits]\nmemory_high_bytes = "8GiB"\n[audit]\nfile = "{audit}"\n')
    with BrokerProcess("--config", str(settings), "--data", str(tmp_path / "data")) as broker:
        url = f"--url amqp://localhost:{broker.port}"
        said = run(f"ctl set_vm_memory_high_watermark absolute 2MiB {url}")
        assert said.status == 0
        assert said.lines[0] == "Setting memory threshold on flintmq@localhost to 2097152 bytes ..."
        assert said.lines[1].startswith("Publishers wait when the broker uses more than 2.0 MiB; it uses ")
        assert said.lines[2] == (
            "This holds until the broker ends. To keep it, set memory_high_bytes = 2097152 in [limits] of "
            "the configuration file."
        )
        assert run(f"ctl -q alarms {url}").out == "Memory alarm on node flintmq@localhost\n"
        said = run(f"ctl set_vm_memory_high_watermark 0.6 {url}")
        assert said.lines[0] == "Setting memory threshold on flintmq@localhost to 0.6 ..."
        assert "set memory_high_share = 0.6 in [limits]" in said.lines[2]
        assert run(f"ctl check_alarms {url}").status == 0
        found = run(f"ctl status --formatter json {url}").document
        assert found["vm_memory_high_watermark_setting"] == {"relative": 0.6}
        assert run(f"ctl -q set_vm_memory_high_watermark absolute 1000G {url}").out == ""
        assert (
            run(f"ctl status --formatter json {url}").document["vm_memory_high_watermark_limit"] == 1000 << 30
        )
        beyond = run(f"ctl set_vm_memory_high_watermark absolute 1000GiB {url}")
        assert "which is more than the " in beyond.lines[1]
        for words in (
            "1.5",
            "0",
            "half",
            "nan",
            "absolute",
            "absolute 1kB",
            "absolute 9999999999999TB",
            "absolute much",
            "0.5 0.5",
            "2GiB",
        ):
            wrong = run(f"ctl set_vm_memory_high_watermark {words} {url}")
            assert wrong.status == 65, words
            assert "expected a s" in wrong.err
        assert run(f"ctl set_vm_memory_high_watermark {url}").status == 64
    asked = [line for line in audit.read_text().splitlines() if "memory-limit.set" in line]
    assert len(asked) == 4
    assert '"guest"' in asked[0]


def test_the_disk_limit_is_changed_while_the_broker_runs(flintmq: Command) -> None:
    said = flintmq("ctl set_disk_free_limit 1GB")
    assert said.status == 0
    assert said.lines[0] == "Setting disk free limit on flintmq@localhost to 1000000000 bytes ..."
    assert said.lines[1].startswith("Publishers wait when less than 953.7 MiB is free; ")
    assert "set disk_free_bytes_min = 1000000000 in [limits]" in said.lines[2]
    assert flintmq("ctl status --formatter json").document["disk_free_limit"] == 10**9
    assert flintmq("ctl check_alarms").status == 0
    assert flintmq("ctl set_disk_free_limit 900TiB").status == 0
    assert flintmq("ctl -q alarms").out == "Disk alarm on node flintmq@localhost\n"
    assert flintmq("ctl set_disk_free_limit mem_relative 0.001").status == 0
    assert flintmq("ctl check_alarms").status == 0
    for words in ("much", "-1", "1GB more", "mem_relative", "mem_relative much", "mem_relative -1"):
        wrong = flintmq(f"ctl set_disk_free_limit -- {words}")
        assert wrong.status == 65, words
        assert "expected " in wrong.err
    beyond = flintmq("ctl set_disk_free_limit 9999999999999TB")
    assert beyond.status == 65
    assert f"expected at most {2**60} bytes" in beyond.err
    assert flintmq("ctl set_disk_free_limit 256MiB").status == 0
    with Broker() as broker:
        refused = run(f"ctl set_disk_free_limit 1GB --url {broker.uri} --password-in-url")
        assert refused.status == 70
        assert "the broker has no data directory" in refused.err


def test_status_counts_all_virtual_hosts(flintmq: Command) -> None:
    before = flintmq("ctl status --formatter json").document["totals"]
    assert flintmq("ctl add_vhost second").status == 0
    assert flintmq("ctl set_permissions -p second guest .* .* .*").status == 0
    assert flintmq("declare queue counted -V second").status == 0
    after = flintmq("ctl status --formatter json").document["totals"]
    assert after["queue_count"] == before["queue_count"] + 1
    assert after["virtual_host_count"] == before["virtual_host_count"] + 1
    assert f"Queue count: {after['queue_count']}" in flintmq("ctl status").lines
    assert flintmq("ctl delete_vhost second").status == 0
