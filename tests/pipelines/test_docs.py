"""The pages say what is so: tables of keys and parameters, snippets, commands."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import bodies, drain, of_text, run

from flintmq.cli import main, parser
from flintmq.pipelines.file import checking, keys
from flintmq.pipelines.file.document import copy_template, load, shipped_names
from flintmq.pipelines.run import cases

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [DOCS / "pipelines.md", *sorted((DOCS / "pipelines").glob("*.md"))]


def snippets(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


def test_tables_of_keys() -> None:
    text = (DOCS / "pipelines.md").read_text()
    for name, table in keys.TABLES.items():
        section = text.partition(f"### [{name}]" if name == "pipeline" else f"### [[{name}]]")[2].partition(
            "\n#"
        )[0]
        rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE)
        assert rows == [(key.name, key.help) for key in table.values()], name


@pytest.mark.parametrize("name", shipped_names())
def test_tables_of_parameters(name: str) -> None:
    text = (DOCS / "pipelines" / f"{name}.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (?:`([^`]*)`|(required)|) ?\| .+ \|$", text, re.MULTILINE)
    wanted = []
    for parameter, given in load(name).tables["parameters"].items():
        default = given.get("default") if isinstance(given, dict) else given
        shown = ", ".join(default) if isinstance(default, list) else "" if default is None else str(default)
        wanted.append((parameter, shown, "required" if default is None else ""))
    assert [row for row in rows if row[0] in dict.fromkeys(parameter for parameter, _, _ in wanted)] == wanted


def test_first_pipeline(tmp_path: Path) -> None:
    first, _, transform = snippets(DOCS / "pipelines.md", "toml")
    assert [flow.name for flow in of_text(first).flows()] == ["dear", "lake"]
    (function,) = snippets(DOCS / "pipelines.md", "python")
    (tmp_path / "shouting.py").write_text(function)
    more = f'{transform}\n[[sink]]\nfrom = "shouted"\nconsole = true\n'
    assert of_text(first + more, tmp_path).transforms[-1].inputs == ("orders",)


def test_the_first_pipeline_runs_as_printed(
    spark: Any, uri: str, connection: Any, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the broker's port, the directory, and a run that ends when it has read what is there."""
    text = snippets(DOCS / "pipelines.md", "toml")[0].replace("amqp://guest:guest@localhost:5672/", uri)
    text = text.replace('"orders-lake"', f'"{tmp_path}/orders-lake"')
    monkeypatch.setenv("FLINTMQ_URL", uri)
    section = (DOCS / "pipelines.md").read_text().partition("## A first one")[2].partition("\n## ")[0]
    for command in re.findall(r"^flintmq .*$", section, re.MULTILINE):
        words = shlex.split(command)[1:]
        if words[:2] == ["pipeline", "run"]:
            done, told = run(spark, of_text(text), state)  # declares what it reads
            assert done, told
        elif words[0] != "consume":
            assert main(words) == 0, command
    done, told = run(spark, of_text(text), state)
    assert done, told
    assert words == ["consume", "dear"]
    assert bodies(drain(connection, "dear")) == [{"id": 1, "customer": "ann", "amount": 5000.0}]
    assert spark.read.parquet(str(tmp_path / "orders-lake")).count() == 2


def test_the_case_passes_as_printed(spark: Any, tmp_path: Path) -> None:
    text, case, _ = snippets(DOCS / "pipelines.md", "toml")
    (tmp_path / "orders.test.toml").write_text(case)
    pipeline = of_text(text)
    (outcome,) = cases.run(spark, pipeline, cases.load(tmp_path / "orders.test.toml", pipeline))
    assert outcome.faults == ()


def test_your_ticks_in_your_bars_out(broker: Any, uri: str, tmp_path: Path) -> None:
    """Both programs and the pipeline between them, as printed but for the broker's port."""
    page = DOCS / "pipelines" / "your-ticks.md"
    reader, publisher = (
        code.replace('ConnectionParameters("localhost")', f'ConnectionParameters("localhost", {broker.port})')
        for code in snippets(page, "python")
    )
    (command,) = re.findall(r"^flintmq .*$", page.read_text(), re.MULTILINE)
    pipeline = [*shlex.split(command)[1:], "--set", f"uri={uri}", "--state", str(tmp_path)]
    lines: list[str] = []
    with contextlib.ExitStack() as stack:

        def start(*arguments: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            stack.callback(process.wait, 60)
            stack.callback(process.send_signal, signal.SIGINT)
            return process

        read = start("-c", reader)
        stack.enter_context(alarm(240.0, read))
        start("-m", "flintmq", *pipeline)
        published = start("-c", publisher)
        assert read.stdout is not None
        while len(lines) < 6 and (line := read.stdout.readline()):
            lines.append(line)
    assert published.stdout is not None
    assert (read.returncode, published.returncode) == (0, 0), (lines, published.stdout.read())
    assert len(lines) == 6, lines
    for symbol in ("ABC", "XYZ"):
        starts = [line.split()[1] for line in lines if line.startswith(symbol)]
        assert starts
        assert starts == sorted(set(starts))


@contextlib.contextmanager
def alarm(seconds: float, process: subprocess.Popen[str]) -> Iterator[None]:
    """Ends a process that takes too long, so that whoever reads from it hears of it."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def test_rules_of_route(tmp_path: Path) -> None:
    (rules,) = snippets(DOCS / "pipelines" / "route.md", "toml")
    (tmp_path / "rules.toml").write_text(rules)
    schema = "kind STRING, country STRING, amount DOUBLE"
    pipeline = checking.read("route", {"schema": schema, "rules": str(tmp_path / "rules.toml")})
    assert [rule.exchange for rule in pipeline.transforms[0].rules] == ["large", "refunds"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command is one that the command line takes, with parameters that the pipeline has."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.toml").write_text('[[rule]]\nwhen = "true"\nexchange = "a"\n')
    (tmp_path / "orders.toml").write_text(snippets(DOCS / "pipelines.md", "toml")[0])
    text = "\n".join(snippets(page, "")).replace("\\\n", " ")
    commands = [line.partition("  #")[0] for line in text.splitlines() if line.startswith("flintmq ")]
    for command in commands:
        words = shlex.split(command)[1:]
        options = parser(words[0]).parse_args(words)
        if options.command == "pipeline" and options.task == "run":
            settings = dict(each.split("=", 1) for each in options.set)
            for file in options.files:
                checking.pipeline_of(load(file, settings))


def test_template(tmp_path: Path) -> None:
    copy_template(str(tmp_path / "market"))
    made = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert made == ["market/spark-pipeline.yml", "market/transformations/bars.py"]
    compile((tmp_path / "market/transformations/bars.py").read_text(), "bars.py", "exec")
