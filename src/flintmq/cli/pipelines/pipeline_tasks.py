"""What `flintmq pipeline run|check|test|list|status` do."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path

from flintmq.clock import Clock
from flintmq.errors import ConfigFault
from flintmq.pipelines.errors import PipelineFailed
from flintmq.pipelines.file import checking, columns
from flintmq.pipelines.file.document import Document, load, shipped_names
from flintmq.pipelines.file.model import Pipeline
from flintmq.pipelines.run import status


def _state(options: argparse.Namespace) -> Path:
    return Path(options.state) if options.state else status.state_directory()


def _settings(given: list[str]) -> dict[str, str]:
    made: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise ConfigFault(f"--set {each}: expected NAME=VALUE")
        made[name] = value
    return made


def _documents(files: list[str], settings: dict[str, str]) -> list[Document]:
    """With several files a parameter goes to those that have it."""
    if len(files) == 1:
        return [load(files[0], settings)]
    known = {file: load(file).tables.get("parameters", {}) for file in files}
    for name in settings:
        if not any(name in parameters for parameters in known.values()):
            raise ConfigFault(f"--set {name}: none of {', '.join(files)} has such a parameter")
    return [load(file, {name: settings[name] for name in settings if name in known[file]}) for file in files]


def _pipelines(options: argparse.Namespace) -> list[Pipeline]:
    return [checking.pipeline_of(document) for document in _documents(options.files, _settings(options.set))]


def run_files(options: argparse.Namespace) -> int:
    pipelines = _pipelines(options)
    from flintmq.pipelines.run.runner import RunOptions, run

    chosen = RunOptions(_state(options), options.available_now, options.reset)
    return run(pipelines, options.master, chosen, lambda line: print(line, flush=True))


def check_files(options: argparse.Namespace) -> int:
    pipelines = _pipelines(options)
    if options.spark:
        from flintmq.pipelines.queries.frames import build_empty
        from flintmq.pipelines.run.sessions import open_session

        spark = open_session("local[1]", {})
        try:
            for pipeline in pipelines:
                build_empty(spark.newSession(), pipeline)
        finally:
            spark.stop()
    if not columns.is_available():
        print("tables and columns were not checked: that needs sqlglot, of the extra flintmq[pipelines]")
    for pipeline in pipelines:
        flows = ", ".join(flow.name for flow in pipeline.flows())
        print(f"{pipeline.file}: pipeline {pipeline.name!r} is in order; flows: {flows}")
    return 0


def test_file(options: argparse.Namespace) -> int:
    (pipeline,) = _pipelines(options)
    from flintmq.pipelines.run import cases
    from flintmq.pipelines.run.sessions import open_session

    found = cases.load(Path(options.cases or cases.file_of(options.files[0])), pipeline)
    spark = open_session("local[1]", {**pipeline.spark, "spark.sql.shuffle.partitions": "1"})
    failed = 0
    try:
        for outcome in cases.run(spark, pipeline, found):
            failed += bool(outcome.faults)
            print(f"{'FAILED' if outcome.faults else 'passed'}  {outcome.case.name}", flush=True)
            for fault in outcome.faults:
                print(f"    {fault}", flush=True)
    finally:
        spark.stop()
    print(f"{len(found) - failed} passed, {failed} failed")
    return 1 if failed else 0


def show_list(options: argparse.Namespace) -> int:
    found = status.read_all(_state(options))
    if options.json:
        print(json.dumps([asdict(each) for each in found]))
        return 0
    now_ms = Clock().wall_ms()
    if found:
        print(
            f"{'NAME':20} {'STATE':10} {'FLOWS':>5} {'ROWS/S':>10} {'LAG':>12} {'UNROUTED':>9} "
            f"{'PID':>8}  SINCE"
        )
    for each in found:
        rate = sum(flow.rows_per_s for flow in each.flows.values())
        since = f"{(now_ms - each.started_ms) // 1000} s" if each.started_ms else each.file
        print(
            f"{each.name:20} {each.state:10} {len(each.flows):5} {rate:10.0f} "
            f"{_lag(each):>12} {_unrouted(each):9} {each.pid:8}  {since}"
        )
    print(f"shipped: {', '.join(shipped_names())}")
    return 0


def _lag(known: status.PipelineStatus) -> str:
    rows = [flow.lag_rows for flow in known.flows.values() if flow.lag_rows is not None]
    return f"{sum(rows)} rows" if rows else "-"


def _unrouted(known: status.PipelineStatus) -> int:
    return sum(flow.unrouted for flow in known.flows.values())


def show_status(options: argparse.Namespace) -> int:
    directory = _state(options)
    found = status.read_all(directory)
    if options.name is not None:
        found = [each for each in found if each.name == options.name]
        if not found:
            raise PipelineFailed(f"no pipeline {options.name!r} has run here ({directory})")
    if options.json:
        print(json.dumps([asdict(each) for each in found]))
        return 0
    for each in found:
        print(f"{each.name}: {each.state}, process {each.pid}, {each.file}")
        for name, flow in each.flows.items():
            lag = "-" if flow.lag_rows is None else f"{flow.lag_rows} rows"
            if flow.lag_s is not None:
                lag += f", {flow.lag_s:.1f} s"
            print(
                f"  {name}: {flow.state}, batch {flow.batch}, {flow.rows} rows, "
                f"{flow.rows_per_s:.0f} rows/s, batch time {flow.batch_ms} ms, "
                f"lag {lag}, restarts {flow.restarts}"
            )
            if flow.unrouted:
                print(f"    {flow.unrouted} rows went to no queue: none is bound for them")
            if flow.last_error is not None:
                print(f"    last error: {flow.last_error}")
    if not found:
        print(f"no pipeline has run here ({os.fspath(directory)})")
    return 0
