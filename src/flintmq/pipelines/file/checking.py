"""From a document to a pipeline, or to findings: everything that can be told without Spark and a broker."""

from __future__ import annotations

import importlib.util
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flintmq.checks import Unfit, shown, suggestion
from flintmq.pipelines.errors import Finding, PipelineWrong
from flintmq.pipelines.file import columns, keys, schema, sql
from flintmq.pipelines.file.document import Document, load
from flintmq.pipelines.file.model import Pipeline, Rule, Sink, Source, Transform
from flintmq.spark import options
from flintmq.spark.columns import NAMES as AMQP_COLUMNS
from flintmq.spark.errors import BadOption

_KIND_KEYS = {
    "binding": ("exchange",), "declare": ("queue", "queues", "stream"), "exchange_type": ("exchange",),
    "time_column": ("lake",), "since": ("lake",), "until": ("lake",), "speed": ("lake",),
    "slice_rows_max": ("lake",),
}  # fmt: skip
_SINK_KEYS = {
    "routing_key": ("exchange",), "exchange_type": ("exchange",), "value": ("exchange",),
    "columns": ("exchange",), "properties": ("exchange",), "mode": ("exchange",),
    "persistent": ("exchange",), "order": ("exchange",), "uri": ("exchange",),
    "partition_by": ("parquet", "delta"),
}  # fmt: skip


def read(source: str, settings: Mapping[str, str] | None = None) -> Pipeline:
    """The pipeline of this file or name; PipelineWrong with everything that is wrong."""
    return pipeline_of(load(source, settings))


def pipeline_of(document: Document) -> Pipeline:
    if document.findings:  # of parameters: what follows from them need not be told as well
        raise PipelineWrong(document.file, document.findings)
    made = _Check(document).pipeline()
    if document.findings:
        raise PipelineWrong(document.file, document.findings)
    return made


class _Check:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.fault = document.fault
        self.known: dict[str, str] = {}

    def pipeline(self) -> Pipeline:
        tables = self.document.tables
        for name in tables:
            if name not in (*keys.TABLES, "parameters"):
                near = suggestion(name, [*keys.TABLES, "parameters"])
                self.fault(f"there is no table {name!r} in a pipeline{near}", name)
        head = self._table(tables.get("pipeline", {}), keys.PIPELINE, "pipeline")
        if "name" not in head and "name" not in tables.get("pipeline", {}):
            self.fault("[pipeline] needs a name", "pipeline")
        sources = tuple(filter(None, (self._source(given, place) for place, given in self._rows("source"))))
        transforms = tuple(
            filter(None, (self._transform(given, place) for place, given in self._rows("transform")))
        )
        sinks = tuple(filter(None, (self._sink(given, place) for place, given in self._rows("sink"))))
        for section in ("source", "sink"):
            if section not in tables:
                self.fault(f"a pipeline needs at least one [[{section}]]")
        made = Pipeline(
            name=head.get("name", ""),
            description=head.get("description", ""),
            file=self.document.file,
            directory=self.document.directory,
            checkpoint=head.get("checkpoint"),
            trigger=head.get("trigger", "1 second"),
            restarts_max=head.get("restarts_max"),
            spark=head.get("spark", {}),
            sources=sources,
            transforms=transforms,
            sinks=sinks,
            parameters=self.document.parameters,
        )
        self._check_flows(made)
        if not self.document.findings and columns.is_available():
            self._check_columns(made)
        return made

    def _rows(self, section: str) -> list[tuple[int, dict[str, Any]]]:
        given = self.document.tables.get(section, [])
        if not isinstance(given, list) or not all(isinstance(row, dict) for row in given):
            self.fault(f"write [[{section}]], with two brackets: there may be several", section)
            return []
        return list(enumerate(given))

    def _table(self, given: Any, known: dict[str, keys.Key], *path: str | int) -> dict[str, Any]:
        """The values of the keys that are known, each as it was parsed."""
        section = path[0]
        if not isinstance(given, dict):
            self.fault(f"write [{section}]: a table", *path)
            return {}
        found: dict[str, Any] = {}
        for name, value in given.items():
            key = known.get(name)
            if key is None:
                self.fault(f"a {section} has no key {name!r}{suggestion(name, known)}", *path, name)
                continue
            try:
                found[name] = key.check(value)
            except Unfit as unfit:
                wrong = unfit.value if unfit.within else value
                self.fault(f"{name}{unfit.within} = {shown(wrong)}: {unfit}", *path, name)
        return found

    def _kind(self, given: Mapping[str, Any], kinds: tuple[str, ...], *path: str | int) -> str | None:
        chosen = [kind for kind in kinds if kind in given]
        if len(chosen) == 1:
            return chosen[0]
        section = path[0]
        if chosen:
            self.fault(f"a {section} has one of {', '.join(chosen)}, not each", *path, chosen[1])
        else:
            self.fault(f"a {section} needs one of {', '.join(kinds)}", *path)
        return None

    def _name(self, given: Mapping[str, Any], raw: Mapping[str, Any], *path: str | int) -> str:
        name = str(given.get("name", ""))
        if not name and "name" not in raw:
            self.fault(f"this {path[0]} needs a name", *path)
        elif name in self.known:
            self.fault(f"there is a {self.known[name]} {name!r} already", *path, "name")
        elif name:
            self.known[name] = str(path[0])
        return name

    def _unfit(
        self, given: Mapping[str, Any], kind: str, fits: dict[str, tuple[str, ...]], *path: str | int
    ) -> None:
        for name, kinds in fits.items():
            if name in given and kind not in kinds:
                self.fault(
                    f"{name} means nothing for a {path[0]} of {kind}; it goes with {', '.join(kinds)}",
                    *path,
                    name,
                )

    def _broker(self, given: Mapping[str, Any], use: str, *path: str | int) -> None:
        """The address of a broker, and options of the amqp format. What is told has no password in it."""
        try:
            if "uri" in given:
                options.settings_of({"uri": given["uri"]}, {})
        except BadOption as error:
            self.fault(str(error).removeprefix("Option ").rstrip("."), *path, "uri")
        try:
            options.parse(given.get("options", {}), use)
        except BadOption as error:
            self.fault(f"options: {error}".rstrip("."), *path, "options")

    # Sources

    def _source(self, raw: dict[str, Any], place: int) -> Source | None:
        path = ("source", place)
        given = self._table(raw, keys.SOURCE, *path)
        name = self._name(given, raw, *path)
        kind = self._kind(raw, keys.SOURCE_KINDS, *path)
        if kind is None or kind not in given:
            return None
        self._unfit(given, kind, _KIND_KEYS, *path)
        if kind == "exchange" and "binding" not in given:
            self.fault('an exchange to bind to needs a binding, such as "#"', *path, "exchange")
        if kind in ("lake", "rate") and "format" in given:
            self.fault(f"a {kind} has columns of its own: leave out format", *path, "format")
        if kind not in ("lake", "rate"):
            self._broker(given, options.STREAM, *path)
        self._format(given, *path)
        columns = [
            part.split()[0].strip("`:").lower() for part in given.get("schema", "").split(",") if part.split()
        ]
        for column in given.get("metadata", ()):
            if column in columns and given.get("format", "raw") != "raw":
                self.fault(f"metadata: {column!r} is a column of the schema as well", *path, "metadata")
            if column not in AMQP_COLUMNS:
                near = suggestion(column, AMQP_COLUMNS)
                self.fault(f"metadata: the amqp source has no column {column!r}{near}", *path, "metadata")
        return Source(name, kind, given[kind], given, self.document.lines.of(*path))

    def _format(self, given: Mapping[str, Any], *path: str | int) -> None:
        form = given.get("format", "raw")
        if form in ("json", "csv", "arrow", "avro") and "schema" not in given:
            self.fault(
                f'format {form} needs a schema, such as "symbol STRING, price DOUBLE"', *path, "format"
            )
        if form == "avro" and "avro_schema" not in given:
            self.fault("format avro needs avro_schema, a file", *path, "format")
        if form == "raw" and "schema" in given and "lake" not in given:
            self.fault("a schema goes with format json, csv, avro or arrow", *path, "schema")
        if "schema" in given and (wrong := schema.fault(given["schema"])) is not None:
            self.fault(f"schema: {wrong}", *path, "schema")
        dead = bool(given.get("dead_letter_exchange"))
        if given.get("malformed") == "dead-letter" and not dead:
            self.fault('malformed = "dead-letter" needs dead_letter_exchange', *path, "malformed")
        if dead and given.get("malformed") != "dead-letter":
            self.fault(
                'dead_letter_exchange goes with malformed = "dead-letter"', *path, "dead_letter_exchange"
            )

    # Transforms

    def _transform(self, raw: dict[str, Any], place: int) -> Transform | None:
        path = ("transform", place)
        given = self._table(raw, keys.TRANSFORM, *path)
        kind = self._kind(raw, keys.TRANSFORM_KINDS, *path)
        earlier = [name for name, section in self.known.items() if section != "sink"]
        name = self._name(given, raw, *path)
        if kind is None or kind not in given:
            return None
        inputs: tuple[str, ...]
        is_stateful = True
        rules: tuple[Rule, ...] = ()
        if kind == "sql":
            inputs = self._sql(given["sql"], earlier, *path, "sql")
            is_stateful = sql.keeps_state(given["sql"])
        elif kind == "python":
            inputs = given.get("inputs", tuple(earlier[-1:]))
            for word in inputs:
                self._refer(word, earlier, *path, "inputs")
            self._module(given["python"], *path, "python")
        else:
            inputs = (given["from"],) if "from" in given else ()
            if not inputs:
                self.fault(f"{kind} needs from: the source or transform it works on", *path, kind)
            for word in inputs:
                self._refer(word, earlier, *path, "from")
            if kind == "rules":
                rules = self._rules(given["rules"], *path, "rules")
                is_stateful = False
        return Transform(name, kind, given, inputs, is_stateful, self.document.lines.of(*path), rules)

    def _refer(self, word: str, earlier: list[str], *path: str | int) -> None:
        if word not in earlier:
            near = suggestion(word, earlier) or f"; there are {', '.join(earlier) or 'none'} before it"
            self.fault(f"there is no source or transform {word!r} before it{near}", *path)

    def _sql(self, text: str, earlier: list[str], *path: str | int) -> tuple[str, ...]:
        wrong = sql.fault(text)
        if wrong is not None:
            self.fault(f"sql: {wrong}", *path)
        lowered = {name.lower(): name for name in earlier}
        inputs: list[str] = []
        tables = columns.tables_of(text)
        if tables is None:  # only Spark can tell: whatever has the name of one that is known
            words = [token.text.lower() for token in sql.tokens(text) if token.kind == "word"]
            inputs = [lowered[word] for word in words if word in lowered]
        for table in tables or ():
            if table.name.lower() in lowered:
                inputs.append(lowered[table.name.lower()])
                continue
            near = suggestion(table.name, earlier) or f"; there are {', '.join(earlier) or 'none'} before it"
            line = self.document.lines.of(*path) + self._lines_into(text, table.line)
            self.document.findings.append(
                Finding(line, f"sql: there is no source or transform {table.name!r}{near}")
            )
        if not inputs and wrong is None and not self.document.findings:
            self.fault("sql: it reads no source and no transform", *path)
        return tuple(dict.fromkeys(inputs))

    def _lines_into(self, text: str, line: int) -> int:
        """How far below its key a line of a text stands; a first newline after the quotes was dropped."""
        opening = (
            1 if "\n" in text and text in self.document.text and f'"""\n{text}' in self.document.text else 0
        )
        return line + opening

    def _module(self, reference: str, *path: str | int) -> None:
        module = reference.partition(":")[0]
        beside = self.document.directory is not None and (
            (self.document.directory / (module.replace(".", "/") + ".py")).is_file()
            or (self.document.directory / module.replace(".", "/") / "__init__.py").is_file()
        )
        try:
            found = beside or importlib.util.find_spec(module) is not None
        except (ModuleNotFoundError, ValueError):
            found = False
        if not found:
            self.fault(
                f"python: there is no module {module!r}, neither installed nor beside this file", *path
            )

    def _rules(self, given: Any, *path: str | int) -> tuple[Rule, ...]:
        rows = self._rules_of_file(given, *path) if isinstance(given, str) else given
        made: list[Rule] = []
        for place, row in enumerate(rows):
            where = path if isinstance(given, str) else (*path, place)
            if not isinstance(row, dict) or not {"when", "exchange"} <= set(row) <= {
                "when",
                "exchange",
                "routing_key",
            }:
                self.fault(f"rule {place + 1}: expected when, exchange, and perhaps routing_key", *where)
                continue
            rule = Rule(str(row["when"]), str(row["exchange"]), str(row.get("routing_key", "{routing_key}")))
            for template in (rule.exchange, rule.routing_key):
                self._template(template, f"rule {place + 1}", *where)
            made.append(rule)
        return tuple(made)

    def _rules_of_file(self, name: str, *path: str | int) -> list[Any]:
        file = (self.document.directory or Path()) / name
        try:
            rows = tomllib.loads(file.read_text("utf-8")).get("rule", [])
        except (OSError, ValueError) as error:
            self.fault(f"rules: {file} cannot be read: {error}", *path)
            return []
        if not isinstance(rows, list) or not rows:
            self.fault(f"rules: {file} has no [[rule]]", *path)
            return []
        return rows

    # Sinks

    def _template(self, template: str, what: str, *path: str | int) -> None:
        try:
            sql.pieces(template)
        except ValueError as error:
            self.fault(f"{what}: {error}", *path)

    def _sink(self, raw: dict[str, Any], place: int) -> Sink | None:
        path = ("sink", place)
        given = self._table(raw, keys.SINK, *path)
        kind = self._kind(raw, keys.SINK_KINDS, *path)
        earlier = [name for name, section in self.known.items() if section != "sink"]
        if kind is None or kind not in given:
            return None
        if "name" not in raw:
            given["name"] = given.get("from", kind)
        if given.get("name") in [name for name, section in self.known.items() if section == "sink"]:
            self.fault(f"there is a sink {given['name']!r} already; give each a name", *path, "name")
        word = given.get("from", earlier[-1] if earlier else "")
        if "from" in given:
            self._refer(word, earlier, *path, "from")
        self._unfit(given, kind, _SINK_KEYS, *path)
        for key in ("exchange", "routing_key"):
            if key in given:
                self._template(given[key], key, *path, key)
        if kind == "exchange":
            self._broker(given, options.WRITE, *path)
        if kind in ("parquet", "delta") and given.get("output_mode", "append") != "append":
            self.fault(f"{kind} takes append only", *path, "output_mode")
        if given.get("exchange_type") and "{" in str(given.get("exchange", "")):
            self.fault(
                "exchange_type declares one exchange; this one depends on the row", *path, "exchange_type"
            )
        name = str(given.get("name", kind))
        self.known.setdefault(name, "sink")
        return Sink(name, kind, given[kind], word, given, self.document.lines.of(*path))

    # Columns

    def _check_columns(self, made: Pipeline) -> None:
        """Names that are no column of what is read, as far as that is known."""
        known: dict[str, columns.Columns | None] = {}
        for source in made.sources:
            known[source.name] = columns.of_source(source)
        for place, transform in enumerate(made.transforms):
            known[transform.name], wrong = columns.of_transform(transform, known)
            if wrong is not None:
                line = self.document.lines.of("transform", place, transform.kind) + wrong.line
                if transform.kind == "sql" and "\n" in transform.given["sql"]:
                    line += self._lines_into(transform.given["sql"], 0)
                self._no_column(wrong.name, line, transform.inputs, known)
            self._check_rules(transform, place, known)
        for place, sink in enumerate(made.sinks):
            for key, text in self._expressions(sink):
                found = known.get(sink.input)
                if found is not None:
                    _, wrong = columns.of_query(f"SELECT {text} FROM `{sink.input}`", {sink.input: found})
                    if wrong is not None:
                        line = self.document.lines.of("sink", place, *key)
                        self._no_column(wrong.name, line, (sink.input,), known)

    def _check_rules(
        self, transform: Transform, place: int, known: Mapping[str, columns.Columns | None]
    ) -> None:
        table = transform.inputs[0] if transform.rules else ""
        found = known.get(table)
        if found is None:
            return
        for number, rule in enumerate(transform.rules):
            pieces = [*sql.pieces(rule.exchange), *sql.pieces(rule.routing_key)]
            for text in (rule.when, *(text for is_sql, text in pieces if is_sql)):
                _, wrong = columns.of_query(f"SELECT {text} FROM `{table}`", {table: found})
                if wrong is not None:
                    inline = () if isinstance(transform.given["rules"], str) else (number,)
                    line = self.document.lines.of("transform", place, "rules", *inline)
                    self._no_column(wrong.name, line, (table,), known, f"rule {number + 1}: ")

    def _expressions(self, sink: Sink) -> list[tuple[tuple[str, ...], str]]:
        """What a sink says of columns, each as SQL: the key, and the expression."""
        found: list[tuple[tuple[str, ...], str]] = []
        for key in ("exchange", "routing_key"):
            pieces = sql.pieces(sink.given.get(key, ""))
            found += [((key,), text) for is_sql, text in pieces if is_sql]
        for name, text in sink.given.get("properties", {}).items():
            found.append((("properties", name), text))
        for key in ("columns", "partition_by"):
            found += [((key,), f"`{name}`") for name in sink.given.get(key, ())]
        if "order" in sink.given:
            within, by = sink.given["order"]
            found += [(("order",), f"`{name}`") for name in (*within, by)]
        return found

    def _no_column(
        self,
        name: str,
        line: int,
        inputs: tuple[str, ...],
        known: Mapping[str, columns.Columns | None],
        where: str = "",
    ) -> None:
        there = [column for table in inputs for column in known[table] or ()]
        near = suggestion(name, there) or f"; there are {', '.join(there)}"
        said = f"{where}there is no column {name!r} in {' or '.join(map(repr, inputs))}{near}"
        self.document.findings.append(Finding(line, said))

    # The whole

    def _check_flows(self, made: Pipeline) -> None:
        readers: dict[str, str] = {}
        for flow in made.flows():
            for source in flow.sources:
                if source.name in readers and not source.is_shared_by_flows:
                    place = made.sources.index(source)
                    self.fault(
                        f"{source.kind} {source.target!r} feeds the sinks {readers[source.name]!r} and "
                        f"{flow.name!r}, but a queue gives each message once: "
                        "use a stream, or an exchange to bind to",
                        "source", place, source.kind,
                    )  # fmt: skip
                readers.setdefault(source.name, flow.name)
        writers: dict[str, str] = {}
        for place, sink in enumerate(made.sinks):
            if sink.directory is None:
                continue
            if sink.directory in writers:
                self.fault(
                    f"the sink {writers[sink.directory]!r} writes to {sink.target!r} as well, and a "
                    "directory of Parquet files takes the batches of one: name another",
                    "sink", place, "parquet",
                )  # fmt: skip
            writers.setdefault(sink.directory, sink.name)
        used = {source.name for flow in made.flows() for source in flow.sources}
        used |= {transform.name for flow in made.flows() for transform in flow.transforms}
        for section, rows in (("source", made.sources), ("transform", made.transforms)):
            for row in rows:
                if row.name and row.name not in used and not self.document.findings:
                    self.document.findings.append(
                        Finding(row.line, f"{section} {row.name!r} leads to no sink")
                    )
