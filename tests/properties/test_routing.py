"""Topic and headers routing agree with plain models under random binding and unbinding."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flintmq.broker.exchanges.exchange import Exchange, HeadersExchange, TopicExchange


class Queue:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


QUEUES = [Queue(f"q{number}") for number in range(4)]
BINDINGS_MAX = 1000


def pattern_fits(pattern: str, key: str) -> bool:
    """The model: every word is followed by a dot, so that the empty key is empty here too."""
    parts = [re.escape(word) + r"\." for word in pattern.split(".")] if pattern else []
    expression = "".join({r"\*\.": r"[^.]*\.", r"\#\.": r"(?:[^.]*\.)*"}.get(part, part) for part in parts)
    return re.fullmatch(expression, key + "." if key else "") is not None


def values_match(wanted: Any, given_value: Any) -> bool:
    if wanted is None:
        return True
    if isinstance(wanted, bool) or isinstance(given_value, bool):
        return wanted is given_value
    if isinstance(wanted, str | bytes) and isinstance(given_value, str | bytes):
        octets = [v.encode() if isinstance(v, str) else v for v in (wanted, given_value)]
        return octets[0] == octets[1]
    return given_value is not None and bool(wanted == given_value)


def headers_match(arguments: dict[str, Any], headers: dict[str, Any]) -> bool:
    """The model: look at every argument of one binding."""
    mode = arguments.get("x-match", "all")
    verdicts = [
        name in headers and values_match(wanted, headers[name])
        for name, wanted in arguments.items()
        if name != "x-match" and ("with-x" in mode or not name.startswith("x-"))
    ]
    return any(verdicts) if mode.startswith("any") else all(verdicts)


# Two letters and few words make patterns share nodes, and keys fit often.
words = st.sampled_from(["a", "b", ""])
patterns = st.lists(words | st.sampled_from(["*", "#"]), max_size=6).map(".".join)
keys = st.lists(words | st.sampled_from(["*", "#", "c"]), max_size=7).map(".".join)

scalars = st.sampled_from([None, True, False, 0, 1, 2, 0.0, 1.0, 2.5, "", "a", b"a", b"\xff"])
names = st.sampled_from(["a", "b", "c", "x-d"])
tables = st.dictionaries(names, scalars, max_size=4)
modes = st.sampled_from([{}, *({"x-match": mode} for mode in ("all", "any", "all-with-x", "any-with-x"))])
header_arguments = st.builds(lambda mode, table: {**mode, **table}, modes, tables)
extra_arguments = st.sampled_from([{}, {"n": 1}, {"n": True}])

changes = st.sampled_from(["bind", "bind", "bind", "unbind", "unbind known", "delete"])
queues = st.sampled_from(QUEUES)


def type_class(arguments: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """What tells two argument tables apart, in the model."""
    return sorted(
        (
            (
                name,
                "bytes" if isinstance(value, str | bytes) else type(value).__name__,
                value.encode() if isinstance(value, str) else value,
            )
            for name, value in arguments.items()
        ),
        key=lambda field: field[0],
    )


class Model:
    """A list of bindings, searched from end to end."""

    def __init__(self) -> None:
        self.bindings: list[tuple[Queue, str, dict[str, Any]]] = []

    def place(self, queue: Queue, key: str, arguments: dict[str, Any]) -> int | None:
        for at, (other, other_key, other_arguments) in enumerate(self.bindings):
            same = other is queue and other_key == key
            if same and type_class(other_arguments) == type_class(arguments):
                return at
        return None

    def bind(self, queue: Queue, key: str, arguments: dict[str, Any]) -> bool:
        if self.place(queue, key, arguments) is not None:
            return False
        self.bindings.append((queue, key, arguments))
        return True

    def unbind(self, queue: Queue, key: str, arguments: dict[str, Any]) -> bool:
        at = self.place(queue, key, arguments)
        if at is None:
            return False
        del self.bindings[at]
        return True

    def unbind_destination(self, queue: Queue) -> int:
        before = len(self.bindings)
        self.bindings = [binding for binding in self.bindings if binding[0] is not queue]
        return before - len(self.bindings)


def change(exchange: Exchange, model: Model, step: Any) -> None:
    kind, queue, key, arguments, pick = step
    if kind == "delete":
        removed, rest = exchange.unbind_chain(exchange.unhook(queue), BINDINGS_MAX)
        assert rest is None
        assert len(removed) == model.unbind_destination(queue)
    elif kind == "bind":
        assert exchange.bind(queue, key, arguments) == model.bind(queue, key, arguments)
    else:
        if kind == "unbind known" and model.bindings:
            queue, key, arguments = model.bindings[pick % len(model.bindings)]
        assert exchange.unbind(queue, key, arguments) == model.unbind(queue, key, arguments)
    listed = [(b.destination, b.routing_key, b.arguments) for b in exchange.bindings.values()]
    assert listed == model.bindings
    assert exchange.is_unused() == (not model.bindings)
    for known in QUEUES:
        ordered = [
            (b.destination, b.routing_key, b.arguments)
            for b in exchange.bindings_after(0)
            if b.destination is known
        ]
        assert ordered == [binding for binding in model.bindings if binding[0] is known]


def steps(key: st.SearchStrategy[str], arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(st.tuples(changes, queues, key, arguments, st.integers(0, 50)), max_size=25)


@given(steps(patterns, extra_arguments), st.lists(keys, min_size=1, max_size=8))
def test_topics_agree_with_the_model(script: list[Any], published: list[str]) -> None:
    exchange, model = TopicExchange("x"), Model()
    for step in script:
        change(exchange, model, step)
        for key in published:
            found: dict[Any, Any] = {}
            exchange.route(key, None, found)
            assert set(found) == {q for q, pattern, _ in model.bindings if pattern_fits(pattern, key)}
    for queue in QUEUES:
        exchange.unbind_chain(exchange.unhook(queue), BINDINGS_MAX)
    assert exchange.patterns.root.is_bare()


@given(steps(st.just(""), header_arguments), st.lists(tables, min_size=1, max_size=8))
def test_headers_agree_with_the_model(script: list[Any], published: list[dict[str, Any]]) -> None:
    exchange, model = HeadersExchange("x"), Model()
    for step in script:
        change(exchange, model, step)
        for headers in published:
            found: dict[Any, Any] = {}
            exchange.route("", headers.copy, found)
            assert set(found) == {q for q, _, wanted in model.bindings if headers_match(wanted, headers)}
    for queue in QUEUES:
        exchange.unbind_chain(exchange.unhook(queue), BINDINGS_MAX)
    assert not exchange.index.names
    assert not exchange.index.conditions
