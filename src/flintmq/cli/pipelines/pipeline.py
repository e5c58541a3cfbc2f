"""The options of `flintmq pipeline run|check|test|list|status`. pipeline_tasks, imported late, does it."""

from __future__ import annotations

import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    pipeline = commands.add_parser(
        "pipeline",
        help="run and watch pipelines on Spark",
        description="Run and watch pipelines on Spark; see docs/pipelines.md.",
    )
    tasks = pipeline.add_subparsers(dest="task", metavar="TASK", required=True)
    run = tasks.add_parser("run", help="run pipelines until they end or are ended")
    run.add_argument("files", nargs="+", metavar="FILE", help="a pipeline's file, or a shipped one's name")
    run.add_argument("--master", default="local[*]", metavar="URL", help="where Spark runs (local[*])")
    run.add_argument("--available-now", action="store_true", help="take what is there, then end")
    run.add_argument("--reset", action="store_true", help="set old checkpoints aside and start afresh")
    run.set_defaults(run=_task)
    check = tasks.add_parser("check", help="say what is wrong with a file, by line; nothing is run")
    check.add_argument("files", nargs="+", metavar="FILE", help="a pipeline's file, or a shipped one's name")
    check.add_argument("--spark", action="store_true", help="have Spark look at the SQL as well")
    check.set_defaults(run=_task)
    test = tasks.add_parser("test", help="run a pipeline on rows of a file and compare what comes out")
    test.add_argument("files", nargs=1, metavar="FILE", help="a pipeline's file, or a shipped one's name")
    test.add_argument("--cases", metavar="CASES", help="the file with the rows (orders.test.toml)")
    test.set_defaults(run=_task)
    for each in (run, check, test):
        each.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter")
    listed = tasks.add_parser("list", help="pipelines that run or have run, and those that are shipped")
    listed.set_defaults(run=_task)
    shown = tasks.add_parser("status", help="how a pipeline does: rows/s, lag, batch time, last error")
    shown.add_argument("name", nargs="?", metavar="NAME")
    shown.set_defaults(run=_task)
    for each in (listed, shown):
        each.add_argument("--json", action="store_true", help="for programs")
    for each in (run, listed, shown):
        each.add_argument("--state", metavar="DIR", help="where statuses and checkpoints lie")


def _task(options: argparse.Namespace) -> int:
    from flintmq.cli.pipelines import pipeline_tasks as tasks

    chosen = {
        "run": tasks.run_files,
        "check": tasks.check_files,
        "test": tasks.test_file,
        "list": tasks.show_list,
        "status": tasks.show_status,
    }
    return chosen[options.task](options)
