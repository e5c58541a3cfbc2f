"""Whether a checkpoint still fits its flow: what the flow was when the checkpoint was made, kept beside it.

    CHECKPOINT/bars/             Spark's own
    CHECKPOINT/bars.flow.json    {"id": ..., "parts": {"source ticks": hash, "transform bars": hash}}

Parts are what Spark's checkpoint depends on: which sources there are and what they read; where the flow
keeps state, also their schema and watermark, and each transform that keeps state. Filters, triggers, the
address of the broker and where a sink leads may change at will; a changed sink is told. What a Parquet
directory needs of its checkpoint is in pipelines/queries/parquet_directory.py. Whether a queue or
stream is still the one that the offsets are of is for the amqp source to find out.

A checkpoint that is given as a URI has its record under --state, by a hash of the URI:

    STATE/records/PIPELINE/bars.HASH.flow.json
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from flintmq.clock import Clock
from flintmq.pipelines.errors import CheckpointUnfit
from flintmq.pipelines.file import sql
from flintmq.pipelines.file.model import Flow, Source, Transform

SUFFIX = ".flow.json"
# Records of format 1 had the broker's address in the part of a source.
_FORMAT = 2


def parts(flow: Flow, has_address: bool = False) -> dict[str, str]:
    """The parts of a flow that its checkpoint depends on, each as a hash, in order."""
    is_stateful = any(transform.is_stateful for transform in flow.transforms)
    made: dict[str, Any] = {}
    for source in flow.sources:
        made[f"source {source.name}"] = _source_part(source, is_stateful, has_address)
    for transform in flow.transforms:
        if transform.is_stateful:
            made[f"transform {transform.name}"] = _transform_part(transform)
    return {name: _hash(value) for name, value in made.items()}


def _source_part(source: Source, is_stateful: bool, has_address: bool) -> list[Any]:
    uri = urlsplit(source.given.get("uri") or "")
    place = unquote(uri.path[1:]) or "/"  # the virtual host
    if has_address:
        place = f"{uri.hostname}:{uri.port}{uri.path}" if source.given.get("uri") else ""
    made: list[Any] = [source.kind, source.target, place]
    if is_stateful:
        schema = re.sub(r"\s+", " ", source.given.get("schema", "")).strip().lower()
        made += [source.format, schema, source.given.get("watermark"), source.given.get("columns")]
    return made


def _transform_part(transform: Transform) -> list[Any]:
    given = transform.given
    if transform.kind == "sql":
        return ["sql", sql.normalised(given["sql"]), given.get("watermark")]
    if transform.kind == "python":
        return ["python", given["python"], given.get("arguments"), transform.inputs]
    return [transform.kind, given.get("distinct_by"), transform.inputs]


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def difference(old: dict[str, str], new: dict[str, str]) -> str | None:
    """What has changed, in words; None if nothing has."""
    for name in old:
        if name not in new:
            return f"{name} is gone"
    for name in new:
        if name not in old:
            return f"{name} is new"
        if new[name] != old[name]:
            return f"{name} has changed"
    return "the order of its sources or transforms has changed" if list(old) != list(new) else None


@dataclass(frozen=True)
class FlowRecord:
    """The checkpoint of a flow: where it is, and the id it was born with."""

    checkpoint: str
    id: str
    told: str = ""  # what has changed since the last run and does not keep the flow from going on
    figures: str = ""  # the file in which the sink counts its rows, if there is one
    is_begun: bool = False  # an earlier run has claimed the checkpoint
    run: str = ""  # a random name for this run


def is_remote(checkpoint: str) -> bool:
    """Whether a checkpoint is given as a URI: Spark reaches it, and this process may not."""
    return "://" in checkpoint


def told_gone(checkpoint: str | Path) -> str:
    return (
        f"it was started before, but its checkpoint {checkpoint} is not there: it begins anew, and rows that "
        "it wrote before may be written again"
    )


def _record_file(checkpoint: str, records: Path, flow: Flow) -> Path:
    """Beside the checkpoint; for a remote one in `records`, one for each URI that the flow was given."""
    if not is_remote(checkpoint):
        return Path(checkpoint) / (flow.name + SUFFIX)
    return records / f"{flow.name}.{_hash(checkpoint.rstrip('/'))}{SUFFIX}"


def check_reset(checkpoint: str) -> None:
    """Raises if a checkpoint cannot be set aside."""
    if is_remote(checkpoint):
        raise CheckpointUnfit(f"--reset cannot set {checkpoint} aside: name another checkpoint")


def claim(checkpoint: str, records: Path, flow: Flow, reset: bool, clock: Clock) -> FlowRecord:
    """The flow's checkpoint; CheckpointUnfit if it belongs to another state of the flow."""
    remote = is_remote(checkpoint)
    place, record = Path(checkpoint) / flow.name, _record_file(checkpoint, records, flow)
    record.parent.mkdir(parents=True, exist_ok=True)
    if reset:
        check_reset(checkpoint)
        _set_aside(place, record, clock)
    known: dict[str, Any] | None = None
    if record.is_file():
        known = _known(record, remote)
    elif not remote and place.exists() and any(place.iterdir()):
        raise CheckpointUnfit(
            f"{place} is a checkpoint, but not of this pipeline: it has no {record.name} beside it. "
            "Name another directory, or set this one aside with --reset."
        )
    now, sink = parts(flow), f"{flow.sink.kind} {flow.sink.target}"
    told = changed = ""
    if known is not None:
        had = parts(flow, has_address=True) if known["format"] == 1 else now
        changed = difference(known["parts"], had) or ""
        if known.get("sink", sink) != sink:
            # A start that is refused later is a start too: this says nothing of where rows have gone.
            told = f"the sink was {known['sink']} at the last start, and is {sink} now"
        if not remote and not place.exists():
            told += ("; " if told else "") + told_gone(place)
    named = f"{checkpoint.rstrip('/')}/{flow.name}"
    if changed and (remote or place.exists()):
        afresh = ", name another checkpoint, or start afresh with --reset, which sets the old one aside."
        raise CheckpointUnfit(
            f"flow {flow.name!r} cannot go on from its checkpoint {named}: {changed}. "
            f"Undo that{', or name another checkpoint.' if remote else afresh}"
        )
    if known is not None and (remote or place.exists()):
        flow_id = known["id"]
    else:  # of a checkpoint that is gone the numbers of batches come again: they are not those of that id
        flow_id = f"{clock.wall_ms():x}{clock.random.getrandbits(32):08x}"
    fresh = record.with_suffix(".new")
    written = {"format": _FORMAT, "id": flow_id, "parts": now, "sink": sink}
    fresh.write_text(json.dumps(written, indent=1) + "\n", "utf-8")
    fresh.replace(record)
    run = f"{clock.random.getrandbits(64):016x}"
    return FlowRecord(named, flow_id, told, is_begun=known is not None, run=run)


def _known(record: Path, remote: bool) -> dict[str, Any]:
    """What the record of a flow says."""
    try:
        known: dict[str, Any] = json.loads(record.read_text("utf-8"))
        if known["format"] not in (1, _FORMAT) or not isinstance(known["parts"], dict) or not known["id"]:
            raise ValueError(f"format {known['format']}")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        afresh = "start afresh with --reset, which sets it and its checkpoint aside"
        raise CheckpointUnfit(
            f"{record} cannot be read: {type(error).__name__}: {error}. Restore it from a copy, or "
            f"{'name another checkpoint' if remote else afresh}."
        ) from None
    return known


def _set_aside(place: Path, record: Path, clock: Clock) -> None:
    """Renames: what a checkpoint holds may still be wanted."""
    stamp = f".{clock.wall_ms()}.old"
    for path in (place, record):
        if path.exists():
            path.rename(path.with_name(path.name + stamp))
