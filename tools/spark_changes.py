"""Changes what lies under a Spark query, between two of its runs, and counts the rows.

    python tools/spark_changes.py                                       every change, source and sink
    python tools/spark_changes.py --changes "checkpoint restored" --sources stream --modes transactional
    python tools/spark_changes.py --alarms 5,60,300                     how long the alarm of the disk lasts

tests/spark/changed_queries.py has the changes: what each does, by what words the query has to stop, and how
it goes on as the sentence says. A round is good if every row is in the sink once, or the query stopped, said
why and how to go on, and no row is missing after that. Rows come twice only where that is said:
with knownBatches=write, and at least once (a queue as the source, or the mode confirm).
tools/spark_faults.py kills processes at every moment of a batch: the other dimension.
Exit status 1 if a round is not good, or a query that had to stop did not, or said something else.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
for place in (ROOT / "tests", ROOT / "tests" / "spark"):
    sys.path.insert(0, str(place))

from changed_queries import (  # noqa: E402 - found by the path above
    CHANGES,
    MODES,
    SOURCES,
    Broker,
    Change,
    Outcome,
    Round,
    alarm_of,
    walk,
)
from standalone_cluster import SHORT_LIVED  # noqa: E402


def rounds_of(arguments: argparse.Namespace) -> list[tuple[Change, str, str]]:
    changes = [each for each in CHANGES if not each.name.startswith("alarm")]
    changes += [alarm_of(float(seconds)) for seconds in arguments.alarms.split(",") if seconds]
    chosen = arguments.changes.split(";") if arguments.changes else [each.name for each in changes]
    unknown = set(chosen) - {each.name for each in changes}
    if unknown:
        raise SystemExit(
            f"no such change: {', '.join(sorted(unknown))}; there are "
            f"{'; '.join(each.name for each in changes)}"
        )
    return [
        (change, source, mode)
        for change in changes
        if change.name in chosen
        for source in arguments.sources.split(",")
        for mode in arguments.modes.split(",")
    ]


def run(arguments: argparse.Namespace) -> int:
    from flintmq.spark import session

    settings = {
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.driver.memory": "700m",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }
    spark = session("local[2]", "flintmq changes", settings=settings)
    spark.sparkContext.setLogLevel("OFF")
    outcomes: list[tuple[Outcome, bool]] = []
    with tempfile.TemporaryDirectory(prefix="flintmq-changes-") as place:
        broker = Broker(Path(place) / "broker")
        try:
            for number, (change, source, mode) in enumerate(rounds_of(arguments)):
                directory = Path(place) / f"round-{number}"
                directory.mkdir()
                round_ = Round(spark, broker, directory, f"round-{number}", source, mode)
                outcome = walk(round_, change, source)
                is_told = bool(outcome.told) == change.stops(round_) and change.says in (
                    outcome.told or change.says
                )
                outcomes.append((outcome, is_told))
                print(row(outcome, is_told), flush=True)
        finally:
            broker.stop()
    spark.stop()
    good = sum(outcome.is_good and is_told for outcome, is_told in outcomes)
    stopped = sum(bool(outcome.told) for outcome, _ in outcomes)
    lost, twice = (sum(getattr(each, name) for each, _ in outcomes) for name in ("lost", "twice"))
    print(
        f"\n{len(outcomes)} rounds, {good} good; {stopped} queries stopped and said why; "
        f"{lost} rows lost, {twice} twice"
    )
    return 0 if good == len(outcomes) else 1


def row(outcome: Outcome, is_told: bool) -> str:
    verdict = "" if outcome.is_good and is_told else "  BAD" if is_told else "  NOT AS TOLD"
    said = f"\n      {outcome.told}" if outcome.told and verdict else ""
    return (
        f"{outcome.change:<30} {outcome.source:<7} {outcome.mode:<14} {outcome}; "
        f"{outcome.seconds:.0f} s{verdict}{said}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--changes", default="", help="names with semicolons between; all of them if left out"
    )
    parser.add_argument("--sources", default=",".join(SOURCES))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--alarms", default="5", help="seconds, with commas between")
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
