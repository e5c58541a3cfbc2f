"""Selectors as trees that are held against messages: values, and truths with a third one, unknown.

    region = 'eu' AND (price > 100 OR urgent)

              and --+-- = (name region, literal 'eu')
                    +-- or --+-- > (name price, literal 100)
                             +-- truth (name urgent)

NULL, a division by zero, a number that does not fit 64 bits, and any operation on types it is not made for
are NULL, and a comparison with NULL is unknown. A selector holds when it is true.
Each kind of node knows its cover (condition.py), and that of its contrary: by De Morgan's laws this is all
that NOT needs. A comparison is never true of NULL, so that its names are there is the least it asks.
"""

from __future__ import annotations

from math import inf
from typing import Any

from flintmq.broker.matching.condition import (
    BETWEEN,
    EQUAL,
    PRESENT,
    Condition,
    Cover,
    all_of,
    any_of,
    key_of,
)
from flintmq.broker.matching.lookup import Lookup, Reference
from flintmq.broker.matching.wildcard import Wildcard

FALSE = 0
TRUE = 1
UNKNOWN = -1

# What integers of 64 bits can hold, signed or not.
WHOLE_MAX = 1 << 64

# Letters of a selector that are worked through in a step of Lookup.spend, and letters of two texts that are
# compared in one, by shifts.
SELECTOR_LETTERS = 5
COMPARED_LETTERS = 10

_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compare(operator: str, left: Any, right: Any) -> int:
    """The truth of a comparison: numbers with numbers; texts and booleans for equality alone."""
    if left is None or right is None:
        return UNKNOWN
    if type(left) is str or type(right) is str or type(left) is bool or type(right) is bool:
        if type(left) is not type(right):
            return UNKNOWN
    elif operator == "<":
        return TRUE if left < right else FALSE
    elif operator == "<=":
        return TRUE if left <= right else FALSE
    elif operator == ">":
        return TRUE if left > right else FALSE
    elif operator == ">=":
        return TRUE if left >= right else FALSE
    if operator == "=":
        return TRUE if left == right else FALSE
    if operator == "<>":
        return TRUE if left != right else FALSE
    return UNKNOWN


def calculate(operator: str, left: Any, right: Any) -> Any:
    """The result of an arithmetic operation, None for NULL."""
    if type(left) is not int and type(left) is not float:
        return None
    if type(right) is not int and type(right) is not float:
        return None
    if operator == "+":
        result = left + right
    elif operator == "-":
        result = left - right
    elif operator == "*":
        result = left * right
    elif right == 0:
        return None
    elif type(left) is int and type(right) is int:
        # As in Java, which JMS refers to: towards zero.
        result = abs(left) // abs(right)
        if (left < 0) != (right < 0):
            result = -result
    else:
        result = left / right
    if type(result) is float:
        return result if result == result else None
    return result if -WHOLE_MAX <= result <= WHOLE_MAX else None


class Expression:
    """A node: value() when it stands for a value, test() when it stands for a truth."""

    __slots__ = ("height",)

    # Nodes that may stand where a condition is asked for.
    is_condition = True

    def __init__(self) -> None:
        self.height = 1

    def value(self, lookup: Lookup) -> Any:
        raise NotImplementedError

    def test(self, lookup: Lookup) -> int:
        raise NotImplementedError

    def references(self) -> list[Reference]:
        """The names that must not be NULL for this to have a value."""
        return []

    def cover(self, negated: bool) -> Cover:
        """What is true of every message for which this is true, or false when negated."""
        return all_of([(PRESENT, reference, None) for reference in dict.fromkeys(self.references())])

    def is_exact(self, negated: bool) -> bool:
        """Whether a message that meets one of the homes of the cover fulfils this."""
        return False


class Literal(Expression):
    __slots__ = ("constant",)
    is_condition = False

    def __init__(self, constant: Any) -> None:
        self.height = 1
        self.constant = constant

    def value(self, lookup: Lookup) -> Any:
        return self.constant


class Name(Expression):
    __slots__ = ("reference",)
    is_condition = False

    def __init__(self, reference: Reference) -> None:
        self.height = 1
        self.reference = reference

    def value(self, lookup: Lookup) -> Any:
        return lookup.value(self.reference)

    def references(self) -> list[Reference]:
        return [self.reference]


class BodyPath(Expression):
    """A path in a body of JSON. An index knows nothing of it: the body is parsed for who asks."""

    __slots__ = ("path",)
    is_condition = False

    def __init__(self, path: tuple[str, ...]) -> None:
        self.height = 1
        self.path = path

    def value(self, lookup: Lookup) -> Any:
        return lookup.body_value(self.path)


class Operation(Expression):
    """An operator between two values."""

    __slots__ = ("left", "operator", "right")

    def __init__(self, operator: str, left: Expression, right: Expression) -> None:
        self.operator = operator
        self.left = left
        self.right = right
        self.height = 1 + max(left.height, right.height)

    def references(self) -> list[Reference]:
        return [*self.left.references(), *self.right.references()]


class Arithmetic(Operation):
    __slots__ = ()
    is_condition = False

    def value(self, lookup: Lookup) -> Any:
        return calculate(self.operator, self.left.value(lookup), self.right.value(lookup))


class Comparison(Operation):
    __slots__ = ()

    def test(self, lookup: Lookup) -> int:
        left = self.left.value(lookup)
        if type(left) is str:
            lookup.spend(len(left) >> COMPARED_LETTERS)
        return compare(self.operator, left, self.right.value(lookup))

    def cover(self, negated: bool) -> Cover:
        operator = _OPPOSITE[self.operator] if negated else self.operator
        name, literal = self.left, self.right
        if isinstance(name, Literal):
            name, literal, operator = literal, name, _MIRRORED[operator]
        if operator == "<>" or not (isinstance(name, Name) and isinstance(literal, Literal)):
            return Expression.cover(self, negated)
        if operator == "=":
            return (EQUAL, name.reference, key_of(literal.constant))
        bounds = (-inf, literal.constant) if operator in ("<", "<=") else (literal.constant, inf)
        return (BETWEEN, name.reference, bounds)

    def is_exact(self, negated: bool) -> bool:
        cover = self.cover(negated)
        return cover is not None and cover[0] == EQUAL


class Between(Expression):
    __slots__ = ("high", "low", "operand")

    def __init__(self, operand: Expression, low: Expression, high: Expression) -> None:
        self.operand = operand
        self.low = low
        self.high = high
        self.height = 1 + max(operand.height, low.height, high.height)

    def test(self, lookup: Lookup) -> int:
        operand = self.operand.value(lookup)
        above = compare(">=", operand, self.low.value(lookup))
        below = compare("<=", operand, self.high.value(lookup))
        if above == FALSE or below == FALSE:
            return FALSE
        return TRUE if above == TRUE and below == TRUE else UNKNOWN

    def references(self) -> list[Reference]:
        return self.operand.references()

    def cover(self, negated: bool) -> Cover:
        low, high, operand = self.low, self.high, self.operand
        if (
            isinstance(low, Literal)
            and isinstance(high, Literal)
            and isinstance(operand, Name)
            and not negated
        ):
            return (BETWEEN, operand.reference, (low.constant, high.constant))
        return Expression.cover(self, negated)


class Membership(Expression):
    """operand IN (constants)"""

    __slots__ = ("constants", "keys", "kind", "operand")

    def __init__(self, operand: Expression, constants: tuple[Any, ...]) -> None:
        self.operand = operand
        self.constants = constants
        self.keys = frozenset([key_of(constant) for constant in constants])
        kinds = {kind_of(constant) for constant in constants}
        # Of several kinds, a value that is none of the constants has at least one it cannot be held against.
        self.kind = kinds.pop() if len(kinds) == 1 else None
        self.height = 1 + operand.height

    def test(self, lookup: Lookup) -> int:
        operand = self.operand.value(lookup)
        if operand is None:
            return UNKNOWN
        if key_of(operand) in self.keys:
            return TRUE
        return FALSE if kind_of(operand) is self.kind else UNKNOWN

    def references(self) -> list[Reference]:
        return self.operand.references()

    def cover(self, negated: bool) -> Cover:
        if negated or not isinstance(self.operand, Name):
            return Expression.cover(self, negated)
        reference = self.operand.reference
        return any_of([(EQUAL, reference, key_of(constant)) for constant in self.constants])

    def is_exact(self, negated: bool) -> bool:
        return not negated and isinstance(self.operand, Name)


class Like(Expression):
    __slots__ = ("operand", "wildcard")

    def __init__(self, operand: Expression, wildcard: Wildcard) -> None:
        self.operand = operand
        self.wildcard = wildcard
        self.height = 1 + operand.height

    def test(self, lookup: Lookup) -> int:
        operand = self.operand.value(lookup)
        if type(operand) is not str:
            return UNKNOWN
        return TRUE if self.wildcard.matches(operand, lookup) else FALSE

    def references(self) -> list[Reference]:
        return self.operand.references()

    def cover(self, negated: bool) -> Cover:
        if negated or not isinstance(self.operand, Name):
            return Expression.cover(self, negated)
        return self.wildcard.cover(self.operand.reference)


class IsNull(Expression):
    __slots__ = ("operand",)

    def __init__(self, operand: Expression) -> None:
        self.operand = operand
        self.height = 1 + operand.height

    def test(self, lookup: Lookup) -> int:
        return TRUE if self.operand.value(lookup) is None else FALSE

    def cover(self, negated: bool) -> Cover:
        if not negated:
            return None
        return all_of([(PRESENT, reference, None) for reference in self.operand.references()])

    def is_exact(self, negated: bool) -> bool:
        return negated and isinstance(self.operand, Name)


class Truth(Expression):
    """A boolean value in the place of a condition."""

    __slots__ = ("operand",)

    def __init__(self, operand: Expression) -> None:
        self.operand = operand
        self.height = 1 + operand.height

    def test(self, lookup: Lookup) -> int:
        operand = self.operand.value(lookup)
        if type(operand) is not bool:
            return UNKNOWN
        return TRUE if operand else FALSE

    def cover(self, negated: bool) -> Cover:
        if isinstance(self.operand, Name):
            return (EQUAL, self.operand.reference, key_of(not negated))
        return None

    def is_exact(self, negated: bool) -> bool:
        return isinstance(self.operand, Name)


class Not(Expression):
    __slots__ = ("operand",)

    def __init__(self, operand: Expression) -> None:
        self.operand = operand
        self.height = 1 + operand.height

    def test(self, lookup: Lookup) -> int:
        found = self.operand.test(lookup)
        return UNKNOWN if found == UNKNOWN else TRUE - found

    def cover(self, negated: bool) -> Cover:
        return self.operand.cover(not negated)

    def is_exact(self, negated: bool) -> bool:
        return self.operand.is_exact(not negated)


class Junction(Expression):
    """Parts joined by AND, or by OR: one that is false, or true, decides."""

    __slots__ = ("is_and", "parts")

    def __init__(self, is_and: bool, parts: tuple[Expression, ...]) -> None:
        self.is_and = is_and
        self.parts = parts
        self.height = 1 + max([part.height for part in parts])

    def test(self, lookup: Lookup) -> int:
        decisive = FALSE if self.is_and else TRUE
        verdict = TRUE - decisive
        for part in self.parts:
            found = part.test(lookup)
            if found == decisive:
                return decisive
            if found == UNKNOWN:
                verdict = UNKNOWN
        return verdict

    def cover(self, negated: bool) -> Cover:
        covers = [part.cover(negated) for part in self.parts]
        return all_of(covers) if self.is_and != negated else any_of(covers)

    def is_exact(self, negated: bool) -> bool:
        if self.is_and != negated:
            return False
        for part in self.parts:  # noqa: SIM110 - a generator expression is a closure: not in compiled methods
            if not part.is_exact(negated):
                return False
        return True


def kind_of(value: Any) -> type:
    """Values of the same kind can be compared."""
    return str if type(value) is str else bool if type(value) is bool else int


class SelectorCondition(Condition):
    """A whole selector; its form is its text."""

    __slots__ = ("root",)

    def __init__(self, text: str, root: Expression | None) -> None:
        Condition.__init__(self, text, 1 + (len(text) >> SELECTOR_LETTERS))
        self.root = root
        self.exact = root is None or root.is_exact(False)

    def cover(self) -> Cover:
        return None if self.root is None else self.root.cover(False)

    def holds(self, lookup: Lookup) -> bool:
        return self.root is None or self.root.test(lookup) == TRUE
