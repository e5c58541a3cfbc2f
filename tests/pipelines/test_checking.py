"""Everything that can be wrong in a pipeline's file is told with its line, without Spark and a broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from running import of_shipped, of_text

from flintmq.errors import ConfigFault
from flintmq.pipelines.errors import PipelineWrong
from flintmq.pipelines.file.document import shipped_names

GOOD = """\
[pipeline]
name = "test"
[[source]]
name = "ticks"
queue = "ticks"
format = "json"
schema = "symbol STRING NOT NULL, price DOUBLE"
[[transform]]
name = "dear"
sql = "SELECT symbol, price FROM ticks WHERE price > 100"
[[sink]]
from = "dear"
exchange = "dear"
routing_key = "dear.{symbol}"
"""


def findings(text: str, directory: Path | None = None, **settings: str) -> list[tuple[int, str]]:
    with pytest.raises(PipelineWrong) as caught:
        of_text(text, directory, **settings)
    return [(finding.line, finding.text) for finding in caught.value.findings]


def changed(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def test_good() -> None:
    pipeline = of_text(GOOD)
    (flow,) = pipeline.flows()
    assert flow.name == "dear"
    assert [source.name for source in flow.sources] == ["ticks"]
    assert [transform.name for transform in flow.transforms] == ["dear"]


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('format = "json"', 'fromat = "json"', 6, "a source has no key 'fromat'; did you mean 'format'?"),
        ('format = "json"', 'format = "jsno"', 6, "format = \"jsno\": expected one of json, csv, raw"),
        (
            'exchange = "dear"',
            'exchange = "dear"\norder = "symbol"',
            14,
            "order = \"symbol\": expected { within = \"symbol\", by = \"start\" }",
        ),
        (
            'exchange = "dear"',
            'exchange = "dear"\norder = { within = "symbol", by = "prise" }',
            14,
            "there is no column 'prise' in 'dear'; did you mean 'price'?",
        ),
        ("price DOUBLE", "price DUOBLE", 7, "there is no type 'DUOBLE'; did you mean 'DOUBLE'?"),
        ("price DOUBLE", "symbol DOUBLE", 7, "column 'symbol' is there twice"),
        ("price DOUBLE", "price DECIMAL(9", 7, "brackets do not match"),
        ("FROM ticks", "FROM tikcs", 10, "there is no source or transform 'tikcs'; did you mean 'ticks'?"),
        ("SELECT symbol", "DELETE symbol", 10, "begins with SELECT or WITH, not DELETE"),
        ("price > 100", "(price > 100", 10, "a bracket is not closed"),
        ("price > 100", "symbol = 'A", 10, "a quote ' that nothing ends"),
        ('from = "dear"', 'from = "deer"', 12, "there is no source or transform 'deer'"),
        ("dear.{symbol}", "dear.{symbol", 14, "a brace { without an expression"),
        ("[[sink]]", "[sink]", 11, "write [[sink]], with two brackets"),
        ("[[sink]]", "[[sinks]]", 11, "there is no table 'sinks' in a pipeline; did you mean 'sink'?"),
        ('queue = "ticks"', "", 3, "a source needs one of queue, queues"),
        ('queue = "ticks"', 'queue = "a"\nstream = "b"', 6, "a source has one of queue, stream, not each"),
        ('name = "dear"', 'name = "ticks"', 9, "there is a source 'ticks' already"),
        ('queue = "ticks"', 'queue = "ticks"\nmalformed = "dead-letter"', 6, "needs dead_letter_exchange"),
        ('queue = "ticks"', 'queue = "ticks"\nspeed = 2', 6, "speed means nothing for a source of queue"),
        ('queue = "ticks"', 'queue = "ticks"\nmetadata = ["offsett"]', 6, "did you mean 'offset'?"),
        ('queue = "ticks"', 'queue = "ticks"\nmetadata = ["price"]', 6, "no column 'price'"),
        ('exchange = "dear"', 'exchange = "dear"\nmode = "exactly"', 14, "one of confirm, transactional"),
        ('exchange = "dear"', 'exchange = "dear"\ntrigger = "soon"', 14, 'a time such as "1 second"'),
        ('name = "test"', 'name = "test"\ntrigger = 5', 3, "expected a time"),
        (
            'queue = "ticks"',
            'queue = "ticks"\nwatermark = { column = "price", delay = "soon" }',
            6,
            'watermark.delay = "soon": expected a time such as "1 second"',
        ),
        ('queue = "ticks"', 'queue = "ticks"\nuri = "http://there"', 6, "must begin with amqp:// or amqps://"),
        ('exchange = "dear"', 'exchange = "dear"\nuri = "amqp://there:x"', 14, "'uri' is wrong: "),
        (
            'queue = "ticks"',
            'queue = "ticks"\noptions = { leaseTimout = "9s" }',
            6,
            "options: There is no option 'leaseTimout' of the amqp format; did you mean 'leaseTimeout'?",
        ),
        (
            'exchange = "dear"',
            'exchange = "dear"\noptions = { leaseTimeout = "9s" }',
            14,
            "options: Option 'leaseTimeout' means nothing in a write",
        ),
        ('name = "test"', "", 1, "[pipeline] needs a name"),
        ('name = "test"', 'name = "test', 2, "this is not TOML"),
    ],
)  # fmt: skip
def test_faults(old: str, new: str, line: int, said: str) -> None:
    found = findings(changed(old, new))
    assert any(at == line and said in text for at, text in found), found


def test_line_inside_of_sql() -> None:
    text = changed(
        '"SELECT symbol, price FROM ticks WHERE price > 100"', '"""\nSELECT symbol, price\nFROM ticsk\n"""'
    )
    assert findings(text)[0] == (12, "sql: there is no source or transform 'ticsk'; did you mean 'ticks'?")


def test_all_faults_at_once() -> None:
    text = changed("price DOUBLE", "price DUOBLE").replace("FROM ticks", "FROM nothing")
    assert [line for line, _ in findings(text)] == [7, 10]


def test_a_queue_feeds_one_sink() -> None:
    second = '[[sink]]\nname = "again"\nfrom = "dear"\nparquet = "out"\n'
    ((line, said),) = findings(GOOD + second)
    assert line == 5
    assert "feeds the sinks 'dear' and 'again', but a queue gives each message once" in said
    assert len(of_text(changed("queue =", "stream =") + second).flows()) == 2


def test_a_directory_takes_the_batches_of_one_sink() -> None:
    """Spark takes a batch of the second for one of the first that has its number, and leaves it out."""
    text = changed("queue =", "stream =")
    text += '[[sink]]\nname = "one"\nfrom = "dear"\nparquet = "out/"\n'
    second = '[[sink]]\nname = "two"\nfrom = "dear"\nparquet = "./out"\n'
    ((line, said),) = findings(text + second)
    assert line == len((text + second).splitlines())
    assert said.startswith("the sink 'one' writes to './out' as well, and a directory of Parquet files takes")
    assert len(of_text(text + second.replace("./out", "other")).flows()) == 3


def test_what_leads_nowhere() -> None:
    text = GOOD + '[[source]]\nname = "other"\nqueue = "other"\n'
    assert findings(text) == [(15, "source 'other' leads to no sink")]


def test_ctes_and_functions_are_no_tables() -> None:
    sql = "WITH a AS (SELECT * FROM ticks) SELECT extract(day FROM now()) FROM a JOIN range(3)"
    assert of_text(changed("SELECT symbol, price FROM ticks WHERE price > 100", sql)).transforms[
        0
    ].inputs == ("ticks",)


OTHER = '[[source]]\nname = "other"\nqueue = "other"\n'


@pytest.mark.parametrize(
    ("sql", "inputs"),
    [
        ("SELECT price FROM ticks, other", ("ticks", "other")),
        ("SELECT price FROM ticks CROSS JOIN other", ("ticks", "other")),
        ("SELECT price FROM ticks WHERE symbol IN (SELECT key FROM other)", ("ticks", "other")),
        ("WITH a(b) AS (SELECT price FROM ticks) SELECT b FROM a", ("ticks",)),
        ("SELECT price IS DISTINCT FROM symbol FROM ticks", ("ticks",)),
        ("SELECT window.start, max(price) FROM ticks GROUP BY window(now(), '1 minute')", ("ticks",)),
        ("SELECT symbol FROM `ticks` LATERAL VIEW explode(array(1)) other AS one", ("ticks",)),
        # A path into a VARIANT, which sqlglot does not read.
        ("SELECT parse_json(symbol):a.b::int FROM ticks", ("ticks",)),
    ],
)
def test_the_tables_that_a_query_reads(sql: str, inputs: tuple[str, ...]) -> None:
    text = changed("SELECT symbol, price FROM ticks WHERE price > 100", sql).replace(
        "[[transform]]", OTHER + "[[transform]]"
    )
    text = text.replace('routing_key = "dear.{symbol}"', 'routing_key = "dear"')
    if "other" not in inputs:
        text += '[[sink]]\nname = "rest"\nfrom = "other"\nparquet = "rest"\n'
    (made,) = of_text(text).transforms
    assert set(made.inputs) == set(inputs)


def test_without_sqlglot_a_query_reads_what_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    assert of_text(GOOD).transforms[0].inputs == ("ticks",)
    assert findings(changed("FROM ticks", "FROM"))[0] == (
        10,
        "sql: it reads no source and no transform",
    )


def test_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '[parameters]\nlimit = 100\nqueue = "ticks"\n' + changed("> 100", "> ${limit}").replace(
        'queue = "ticks"', 'queue = "${queue}"\nuri = "${env:TEST_URI}"'
    )
    monkeypatch.setenv("TEST_URI", "amqp://elsewhere")
    pipeline = of_text(text, limit="7", queue="other")
    assert pipeline.transforms[0].given["sql"].endswith("price > 7")
    assert (pipeline.sources[0].target, pipeline.sources[0].given["uri"]) == ("other", "amqp://elsewhere")
    with pytest.raises(
        ConfigFault, match=r"--set limti: test.toml has no such parameter; did you mean 'limit'\?"
    ):
        of_text(text, limti="7")
    with pytest.raises(ConfigFault, match="--set limit=many: expected a number"):
        of_text(text, limit="many")
    monkeypatch.delenv("TEST_URI")
    assert findings(text) == [(9, "${env:TEST_URI}: the environment has no TEST_URI")]
    assert findings(text.replace("${queue}", "${qeue}"))[0][1].startswith(
        "${qeue}: there is no such parameter"
    )


def test_python_beside_the_file(tmp_path: Path) -> None:
    text = changed('sql = "SELECT symbol, price FROM ticks WHERE price > 100"', 'python = "mine:made"')
    assert findings(text, tmp_path) == [
        (10, "python: there is no module 'mine', neither installed nor beside this file")
    ]
    (tmp_path / "mine.py").write_text("")
    assert of_text(text, tmp_path).transforms[0].inputs == ("ticks",)


def test_rules(tmp_path: Path) -> None:
    text = changed(
        'sql = "SELECT symbol, price FROM ticks WHERE price > 100"', 'from = "ticks"\nrules = "rules.toml"'
    )
    assert findings(text, tmp_path)[0][0] == 11
    (tmp_path / "rules.toml").write_text('[[rule]]\nwhen = "price > 1"\nexchange = "a"\n')
    assert findings(text, tmp_path) == [
        (11, "rule 1: there is no column 'routing_key' in 'ticks'; there are symbol, price")
    ], "a rule without a routing_key keeps that of the message"
    text = text.replace("schema =", 'metadata = ["routing_key"]\nschema =')
    (rule,) = of_text(text, tmp_path).transforms[0].rules
    assert (rule.exchange, rule.routing_key) == ("a", "{routing_key}")
    (tmp_path / "rules.toml").write_text('[[rule]]\nwhen = "price > 1"\n')
    assert "rule 1: expected when, exchange" in findings(text, tmp_path)[0][1]
    last = '[[rule]]\nwhen = "true"\nexchange = "b"\nrouting_key = "b.{sybol}"\n'
    (tmp_path / "rules.toml").write_text(f'[[rule]]\nwhen = "prise > 1"\nexchange = "a"\n{last}')
    assert findings(text, tmp_path) == [
        (12, "rule 1: there is no column 'prise' in 'ticks'; did you mean 'price'?"),
        (12, "rule 2: there is no column 'sybol' in 'ticks'; did you mean 'symbol'?"),
    ]


@pytest.mark.parametrize("name", shipped_names())
def test_shipped_are_in_order(name: str, tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text('[[rule]]\nwhen = "true"\nexchange = "a"\n')
    given = {
        "archive": {"lake": "out"},
        "replay": {"lake": "out"},
        "route": {"schema": "a INT", "rules": str(tmp_path / "rules.toml")},
    }
    pipeline = of_shipped(name, **given.get(name, {}))
    assert pipeline.name == name
    assert pipeline.description
    if name in given:
        with pytest.raises(PipelineWrong, match=r"has no default: give it with --set"):
            of_shipped(name)


def test_command(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(changed("fro", "fro") + "[[sink]]\nfrom = 1\n")
    command = [sys.executable, "-m", "flintmq", "pipeline", "check", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"{file}:16: from = 1: expected a name that SQL takes" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert all(line.startswith(f"flintmq: {file}:") for line in done.stderr.splitlines()), done.stderr
    file.write_text(GOOD)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{file}: pipeline 'test' is in order; flows: dear\n")


def test_checking_needs_no_spark() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = sys.modules['pyarrow'] = None\n"
        "from flintmq.cli import main; sys.exit(main(['pipeline', 'check', 'bars', 'dropout', 'dedupe']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        (
            "SELECT symbol, price FROM",
            "SELECT symbol, pric FROM",
            10,
            "there is no column 'pric' in 'ticks'; did you mean 'price'?",
        ),
        (
            'sql = "SELECT symbol, price FROM ticks WHERE price > 100"',
            'sql = """\nSELECT symbol,\n   max(cost) AS high\nFROM ticks\nGROUP BY window(now(), \'1 s\')"""',
            12,
            "there is no column 'cost' in 'ticks'; there are symbol, price",
        ),
        ("dear.{symbol}", "dear.{sybol}", 14, "no column 'sybol' in 'dear'; did you mean 'symbol'?"),
        (
            "dear.{symbol}",
            'dear"\nproperties = { type = "upper(kind)" }\nvalue = "json',
            15,
            "no column 'kind'",
        ),
        ("dear.{symbol}", 'dear"\ncolumns = ["symbol", "volume"]\nvalue = "json', 15, "no column 'volume'"),
    ],
)
def test_a_wrong_column(old: str, new: str, line: int, said: str) -> None:
    found = findings(changed(old, new))
    assert found[0][0] == line, found
    assert said in found[0][1]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT *, window.start AS price FROM (SELECT window, symbol FROM ticks"
        " GROUP BY window(now(), '1 s'), symbol)",
        "SELECT SYMBOL, Price FROM Ticks t LATERAL VIEW explode(array(1)) e AS n WHERE n > 1",
        "SELECT symbol, price AS p, p + 1 AS q, q AS price FROM ticks",
        "SELECT symbol, transform(array(1), x -> x + price)[0] AS price FROM ticks",
        "SELECT symbol, stack(2, 1, 2) AS (price, other) FROM ticks",
        "SELECT symbol, named_struct('a', price).a FROM ticks",
        "this is nothing that a parser knows",
    ],
)
def test_what_is_right_or_for_spark_to_say(query: str) -> None:
    """No finding about a column where there is none."""
    text = changed("SELECT symbol, price FROM ticks WHERE price > 100", query)
    if query.startswith("this"):
        assert all("column" not in said for _, said in findings(text))
    else:
        of_text(text)


@pytest.mark.parametrize("name", shipped_names())
def test_columns_of_shipped_pipelines(name: str) -> None:
    given = {"lake": "/tmp/lake"} if name in ("archive", "replay") else {}
    if name == "route":
        return  # its columns come with its rules, see test_rules
    of_shipped(name, **given)


@pytest.mark.parametrize(
    ("sql", "made"),
    [
        ("symbol = '${word}'", r"symbol = 'it\'s \\'"),
        ("symbol = ${word}", r"symbol = 'it\'s \\'"),
        ("price > ${limit}", "price > 7"),
        ("symbol IN (${words})", "symbol IN ('a', 'b\\'')"),
        ("symbol = 'a''${word}'", r"symbol = 'a''it\'s \\'"),
        ("symbol = ${raw}", "symbol = 1 OR 1 = 1"),
        ("symbol = '--' AND symbol = '${word}' -- it's", r"symbol = '--' AND symbol = 'it\'s \\' -- it's"),
    ],
)
def test_a_parameter_is_a_value(sql: str, made: str) -> None:
    """It cannot change the SQL around it, unless it is declared to be SQL."""
    parameters = '[parameters]\nword = "x"\nlimit = 1\nwords = []\nraw = { default = "x", sql = true }\n'
    text = parameters + changed("price > 100", sql)
    pipeline = of_text(text, word="it's \\", limit="7", words="a,b'", raw="1 OR 1 = 1")
    assert pipeline.transforms[0].given["sql"] == f"SELECT symbol, price FROM ticks WHERE {made}"


def test_a_parameter_in_a_template_is_text() -> None:
    text = '[parameters]\nkey = "x"\n' + changed("dear.{symbol}", "${key}.{symbol}")
    assert of_text(text, key="{secret}").sinks[0].given["routing_key"] == "{{secret}}.{symbol}"


@pytest.mark.parametrize("text", ["a = " + "[" * 5000 + "]" * 5000, "a." * 5000 + "b = 1"])
def test_deep_toml(text: str) -> None:
    assert findings(text) == [(1, "tables or arrays are nested too deeply; a pipeline needs three levels")]
