"""The bindings of a headers exchange, indexed by their terms so that few are looked at.

A term is a header name with the value it must have, or with None when being there is enough.

    x-match any, any-with-x    one satisfied term is enough: the destination hangs on each term
    x-match all, all-with-x    bindings with the same terms share one Requirement, which hangs on
                               the one of its terms that fewest others hang on

A message looks up each of its headers, takes what hangs on "any" terms, and checks the other
terms of the requirements it meets. Without "-with-x", arguments that start with "x-" are no terms;
x-match itself never is. `all` of no terms matches every message, `any` of none matches nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, TypeAlias

from flintmq.broker import binding, tally
from flintmq.errors import ChannelFault
from flintmq.wire.tables import FieldValue

Term: TypeAlias = tuple[str, Hashable]

PRECONDITION_FAILED = 406
MATCH_MODES = ("all", "any", "all-with-x", "any-with-x")
# A reply text has 255 octets; the value a peer sent may be of any length.
SHOWN_VALUE_CHARS_MAX = 60


def match_mode(arguments: Mapping[str, FieldValue]) -> str:
    """The x-match of a binding, `all` when it says nothing; ChannelFault when it is none of the four."""
    mode = arguments.get("x-match", "all")
    if isinstance(mode, str) and mode in MATCH_MODES:
        return mode
    shown = repr(mode)[:SHOWN_VALUE_CHARS_MAX]
    raise ChannelFault(
        PRECONDITION_FAILED, f"invalid x-match argument {shown}: expected all, any, all-with-x or any-with-x"
    )


def binding_terms(arguments: Mapping[str, FieldValue], mode: str) -> tuple[Term, ...]:
    """The terms of a binding in the order of their names."""
    with_x = mode.endswith("-with-x")
    names = [name for name in arguments if name != "x-match" and (with_x or not name.startswith("x-"))]
    return tuple([(name, binding.matching_form(arguments[name])) for name in sorted(names)])


class Requirement:
    """Terms that must all be satisfied, and the destinations that ask for exactly these."""

    __slots__ = ("destinations", "home", "terms")

    def __init__(self, terms: tuple[Term, ...], home: Term) -> None:
        self.terms = terms
        self.home = home
        self.destinations: tally.Tally = None


class HeaderName:
    """What hangs on one header name: on its presence, and on each value."""

    __slots__ = ("all_present", "all_values", "any_present", "any_values", "uses")

    def __init__(self) -> None:
        # Terms with this name, wherever their requirement hangs; at 0 the name is forgotten.
        self.uses = 0
        self.any_present: tally.Tally = None
        self.any_values: dict[Hashable, tally.Tally] | None = None
        self.all_present: tally.Tally = None
        self.all_values: dict[Hashable, tally.Tally] | None = None


class HeadersIndex:
    """Header bindings with their destinations, which need not be distinct."""

    __slots__ = ("always", "names", "requirements")

    def __init__(self) -> None:
        self.names: dict[str, HeaderName] = {}
        self.requirements: dict[tuple[Term, ...], Requirement] = {}
        self.always: tally.Tally = None

    def add(self, arguments: Mapping[str, FieldValue], destination: Any) -> None:
        mode = match_mode(arguments)
        terms = binding_terms(arguments, mode)
        if mode.startswith("any"):
            for name, value in terms:
                self._hang_any(self._use(name), value, destination)
        elif not terms:
            self.always = tally.add(self.always, destination)
        else:
            requirement = self.requirements.get(terms)
            if requirement is None:
                requirement = self._require(terms)
            requirement.destinations = tally.add(requirement.destinations, destination)

    def remove(self, arguments: Mapping[str, FieldValue], destination: Any) -> None:
        """Takes back one add of the same arguments and destination; KeyError when there was none."""
        mode = match_mode(arguments)
        terms = binding_terms(arguments, mode)
        if mode.startswith("any"):
            for name, value in terms:
                self._unhang_any(self.names[name], value, destination)
                self._release(name)
        elif not terms:
            self.always = tally.remove(self.always, destination)
        else:
            requirement = self.requirements[terms]
            requirement.destinations = tally.remove(requirement.destinations, destination)
            if requirement.destinations is None:
                self._dismiss(requirement)

    def match(self, headers: dict[str, FieldValue], found: dict[Any, Any]) -> None:
        """Puts the destinations of every binding that `headers` satisfy into `found` as keys."""
        if self.always is not None:
            tally.collect(self.always, found)
        # Headers that no binding names are left alone, however large their values are.
        values: dict[str, Hashable] = {}
        for name in headers:
            if name in self.names:
                values[name] = binding.matching_form(headers[name])
        for name in values:
            value = values[name]
            header = self.names[name]
            if header.any_present is not None:
                tally.collect(header.any_present, found)
            if header.any_values is not None:
                tally.collect(header.any_values.get(value), found)
            if header.all_present is not None:
                self._check(header.all_present, values, found)
            if header.all_values is not None:
                self._check(header.all_values.get(value), values, found)

    def _check(self, requirements: tally.Tally, values: dict[str, Hashable], found: dict[Any, Any]) -> None:
        if requirements is None:
            return
        if type(requirements) is not dict:
            self._check_one(requirements, values, found)
            return
        for requirement in requirements:
            self._check_one(requirement, values, found)

    def _check_one(
        self, requirement: Requirement, values: dict[str, Hashable], found: dict[Any, Any]
    ) -> None:
        for name, value in requirement.terms:
            if value is None:
                if name not in values:
                    return
            elif values.get(name) != value:
                return
        tally.collect(requirement.destinations, found)

    def _use(self, name: str) -> HeaderName:
        header = self.names.get(name)
        if header is None:
            header = self.names[name] = HeaderName()
        header.uses += 1
        return header

    def _release(self, name: str) -> None:
        header = self.names[name]
        header.uses -= 1
        if header.uses == 0:
            del self.names[name]

    def _hang_any(self, header: HeaderName, value: Hashable, destination: Any) -> None:
        if value is None:
            header.any_present = tally.add(header.any_present, destination)
            return
        if header.any_values is None:
            header.any_values = {}
        header.any_values[value] = tally.add(header.any_values.get(value), destination)

    def _unhang_any(self, header: HeaderName, value: Hashable, destination: Any) -> None:
        if value is None:
            header.any_present = tally.remove(header.any_present, destination)
        else:
            header.any_values = _without(header.any_values, value, destination)

    def _require(self, terms: tuple[Term, ...]) -> Requirement:
        """Makes the requirement of these terms and hangs it on the least used of them."""
        home = terms[0]
        home_size = -1
        for term in terms:
            size = self._hanging(self._use(term[0]), term[1])
            # Presence is the weakest of terms: it is taken only when there is nothing else.
            if home_size < 0 or home[1] is None or (term[1] is not None and size < home_size):
                home, home_size = term, size
        requirement = self.requirements[terms] = Requirement(terms, home)
        header = self.names[home[0]]
        if home[1] is None:
            header.all_present = tally.add(header.all_present, requirement)
        else:
            if header.all_values is None:
                header.all_values = {}
            header.all_values[home[1]] = tally.add(header.all_values.get(home[1]), requirement)
        return requirement

    def _dismiss(self, requirement: Requirement) -> None:
        name, value = requirement.home
        header = self.names[name]
        if value is None:
            header.all_present = tally.remove(header.all_present, requirement)
        else:
            header.all_values = _without(header.all_values, value, requirement)
        for term in requirement.terms:
            self._release(term[0])
        del self.requirements[requirement.terms]

    def _hanging(self, header: HeaderName, value: Hashable) -> int:
        if value is None:
            return tally.size(header.all_present)
        return 0 if header.all_values is None else tally.size(header.all_values.get(value))


def _without(
    values: dict[Hashable, tally.Tally] | None, value: Hashable, item: Any
) -> dict[Hashable, tally.Tally] | None:
    """The values with one use of `item` taken from `value`, or None when nothing is left."""
    if values is None:
        raise KeyError(value)
    left = tally.remove(values.get(value), item)
    if left is None:
        del values[value]
    else:
        values[value] = left
    return values or None
