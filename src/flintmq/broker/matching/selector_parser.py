"""From the text of a selector to its tree: a tokenizer and a parser by binding powers (Pratt).

    selector    the conditional expressions of SQL's WHERE, as in JMS
    literals    'text' with '' for a quote; 12, 0.5, 1e3; TRUE, FALSE
    names       region, JMSPriority, headers.region, "any header", body.order.amount (of JSON)
    operators   OR < AND < NOT < = <> < <= > >= IS BETWEEN IN LIKE < + - < * / < signs

Words of the language are the same in capitals and small letters, names are not. Everything that a peer
controls has a limit, and every fault says at which letter it was found and what was expected there.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from flintmq.broker.matching.lookup import reference_of
from flintmq.broker.matching.selector import (
    Arithmetic,
    Between,
    BodyPath,
    Comparison,
    Expression,
    IsNull,
    Junction,
    Like,
    Literal,
    Membership,
    Name,
    Not,
    SelectorCondition,
    Truth,
)
from flintmq.broker.matching.wildcard import Wildcard
from flintmq.errors import ChannelFault
from flintmq.field_tuple import FieldTuple
from flintmq.wire import amqp

# A tree of as many nodes as there are letters is some 100 octets for each: 400 KB at the worst.
TEXT_CHARS_MAX = 4096
TOKENS_MAX = 1024
# Each level is two or three frames of the Python stack while parsing, and one while matching.
HEIGHT_MAX = 64
SHOWN_CHARS_MAX = 24
WHOLE_DIGITS_MAX = 19
# Stands before a path in a body of JSON.
BODY_PREFIX = "body."

WORDS = frozenset(("AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"))
COMPARISONS = frozenset(("=", "<>", "<", "<=", ">", ">="))

# How tightly an operator holds on to what stands before it.
POWERS = {
    "OR": 10,
    "AND": 20,
    **dict.fromkeys(("IS", "NOT", "BETWEEN", "IN", "LIKE", *COMPARISONS), 40),
    "+": 50,
    "-": 50,
    "*": 60,
    "/": 60,
}
NOT_POWER = 30
SIGN_POWER = 70
VALUE_POWER = 41


@cache
def token_pattern() -> re.Pattern[str]:
    """Compiled for the first selector: it takes longer than the rest of the module to load."""
    return re.compile(
        r"""\s+
        |(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
        |(?P<word>[^\W\d][\w$]*(?:\.[\w$]+)*|\$[\w$]*(?:\.[\w$]+)*)
        |(?P<text>'(?:[^']|'')*')
        |(?P<quoted>"(?:[^"]|"")*")
        |(?P<sign><>|<=|>=|[=<>+\-*/(),])""",
        re.VERBOSE,
    )


class Token(FieldTuple):
    """`kind` is number, word, text, name, end, or the sign or word of the language itself."""

    kind: str
    text: str
    at: int


def fault(at: int, text: str) -> ChannelFault:
    return ChannelFault(amqp.PRECONDITION_FAILED, f"selector, position {at + 1}: {text}")


def tokenize(text: str) -> list[Token]:
    """The tokens of a selector, the end included."""
    if len(text) > TEXT_CHARS_MAX:
        raise fault(TEXT_CHARS_MAX, f"it has {len(text)} letters, {TEXT_CHARS_MAX} at most")
    tokens: list[Token] = []
    pattern = token_pattern()
    at = 0
    while at < len(text):
        found = pattern.match(text, at)
        if found is None:
            raise fault(at, unknown_sign(text, at))
        kind, written = found.lastgroup, found.group()
        if (
            kind == "number"
            and found.end() < len(text)
            and (text[found.end()].isalnum() or text[found.end()] == "_")
        ):
            raise fault(
                found.end(), f"expected an operator after {shown(written)}, found {shown(text[found.end()])}"
            )
        if kind == "sign" or (kind == "word" and written.upper() in WORDS):
            tokens.append(Token(written.upper(), written, at))
        elif kind == "text" or kind == "quoted":
            inner = written[1:-1].replace(written[0] * 2, written[0])
            tokens.append(Token(kind, inner, at))
        elif kind is not None:
            tokens.append(Token(kind, written, at))
        if len(tokens) > TOKENS_MAX:
            raise fault(at, f"more than {TOKENS_MAX} words and signs")
        at = found.end()
    return [*tokens, Token("end", "", len(text))]


def unknown_sign(text: str, at: int) -> str:
    if text[at] == "'":
        return "expected the ' that ends the text which starts here"
    if text[at] == '"':
        return 'expected the " that ends the name which starts here'
    return f"expected a value or an operator, found {shown(text[at])}"


def shown(text: str) -> str:
    """A piece of the selector for the reply text, which has 255 octets."""
    short = text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "..."
    return "'" + short.encode("ascii", "backslashreplace").decode()[: 2 * SHOWN_CHARS_MAX] + "'"


class Parser:
    """Reads one selector from front to back."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.place = 0
        self.depth = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.place]

    def take(self, kind: str, expected: str) -> Token:
        """The next token, which must be of this kind."""
        token = self.token
        if token.kind != kind:
            raise self.unexpected(expected)
        self.place += 1
        return token

    def unexpected(self, expected: str) -> ChannelFault:
        found = "the end" if self.token.kind == "end" else shown(self.token.text)
        return fault(self.token.at, f"expected {expected}, found {found}")

    def whole(self) -> Expression:
        root = self.condition(0)
        if self.token.kind != "end":
            raise self.unexpected("an operator or the end")
        return root

    def condition(self, power: int) -> Expression:
        """An expression that is true or false."""
        at = self.token.at
        return as_condition(self.expression(power), at)

    def operand(self, power: int = VALUE_POWER) -> Expression:
        """An expression that has a value."""
        at = self.token.at
        found = self.expression(power)
        if found.is_condition:
            raise fault(at, "expected a value, found a condition")
        return found

    def expression(self, power: int) -> Expression:
        """Everything that holds together tighter than `power`."""
        self.depth += 1
        at = self.token.at
        left = self.prefix()
        while POWERS.get(self.token.kind, 0) > power:
            left = self.infix(left, at)
            if left.height > HEIGHT_MAX:
                raise fault(self.token.at, f"nested deeper than {HEIGHT_MAX} levels")
        self.depth -= 1
        return left

    def prefix(self) -> Expression:
        if self.depth > HEIGHT_MAX:
            raise fault(self.token.at, f"nested deeper than {HEIGHT_MAX} levels")
        token = self.token
        self.place += 1
        if token.kind == "(":
            inner = self.expression(0)
            self.take(")", "an operator or ')'")
            return inner
        if token.kind == "NOT":
            return Not(self.condition(NOT_POWER))
        if token.kind in ("+", "-"):
            return self.signed(token.kind)
        if token.kind == "word":
            if token.text.startswith(BODY_PREFIX):
                return BodyPath(tuple(token.text[len(BODY_PREFIX) :].split(".")))
            return Name(reference_of(token.text))
        if token.kind == "quoted":
            return Name(token.text)
        if token.kind in ("text", "number", "TRUE", "FALSE"):
            return Literal(constant_of(token))
        self.place -= 1
        raise self.unexpected("a value or a condition")

    def signed(self, sign: str) -> Expression:
        at = self.token.at
        inner = self.operand(SIGN_POWER)
        refuse_text(inner, at, sign)
        if isinstance(inner, Literal):
            return Literal(-inner.constant if sign == "-" else inner.constant)
        return Arithmetic("-" if sign == "-" else "+", Literal(0), inner)

    def infix(self, left: Expression, at: int) -> Expression:
        """The operator that comes next, with `left`, which starts at `at`, before it."""
        token = self.token
        self.place += 1
        if token.kind in ("AND", "OR"):
            return self.junction(left, token, at)
        if left.is_condition:
            raise fault(token.at, f"expected AND, OR or the end after a condition, found {shown(token.text)}")
        if token.kind in COMPARISONS:
            right_at = self.token.at
            right = self.operand()
            if token.kind not in ("=", "<>"):
                refuse_text(left, at, token.kind)
                refuse_text(right, right_at, token.kind)
            return Comparison(token.kind, left, right)
        if token.kind in ("+", "-", "*", "/"):
            right_at = self.token.at
            right = self.operand(POWERS[token.kind])
            refuse_text(left, at, token.kind)
            refuse_text(right, right_at, token.kind)
            return Arithmetic(token.kind, left, right)
        if token.kind == "IS":
            return self.is_null(left)
        if token.kind != "NOT":
            return self.test_of(token, left, at)
        token = self.token
        if token.kind not in ("BETWEEN", "IN", "LIKE"):
            raise self.unexpected("BETWEEN, IN or LIKE")
        self.place += 1
        return Not(self.test_of(token, left, at))

    def junction(self, left: Expression, token: Token, at: int) -> Expression:
        parts = [as_condition(left, at)]
        while True:
            parts.append(self.condition(POWERS[token.kind]))
            if self.token.kind != token.kind:
                return Junction(token.kind == "AND", tuple(parts))
            self.place += 1

    def is_null(self, left: Expression) -> Expression:
        negated = self.token.kind == "NOT"
        if negated:
            self.place += 1
        self.take("NULL", "NULL" if negated else "NULL or NOT NULL")
        return Not(IsNull(left)) if negated else IsNull(left)

    def test_of(self, token: Token, left: Expression, at: int) -> Expression:
        if token.kind == "BETWEEN":
            low_at = self.token.at
            low = self.operand()
            self.take("AND", "AND")
            high_at = self.token.at
            high = self.operand()
            for operand, place in ((left, at), (low, low_at), (high, high_at)):
                refuse_text(operand, place, "BETWEEN")
            return Between(left, low, high)
        if token.kind == "IN":
            return Membership(left, self.constants())
        pattern = self.take("text", "a pattern in quotes")
        if self.token.kind != "ESCAPE":
            return Like(left, Wildcard(pattern.text, "_", "%"))
        self.place += 1
        escape = self.take("text", "one letter in quotes")
        if len(escape.text) != 1:
            raise fault(escape.at, f"expected one letter in quotes, found {shown(escape.text)}")
        check_escapes(pattern, escape.text)
        return Like(left, Wildcard(pattern.text, "_", "%", escape.text))

    def constants(self) -> tuple[Any, ...]:
        """The list of an IN."""
        self.take("(", "'('")
        found: list[Any] = []
        while True:
            negative = self.token.kind == "-"
            if negative or self.token.kind == "+":
                self.place += 1
            token = self.token
            allowed = ("number",) if negative else ("number", "text", "TRUE", "FALSE")
            if token.kind not in allowed:
                raise self.unexpected("a number" if negative else "a literal")
            self.place += 1
            found.append(-constant_of(token) if negative else constant_of(token))
            if self.token.kind != ",":
                self.take(")", "',' or ')'")
                return tuple(found)
            self.place += 1


def as_condition(found: Expression, at: int) -> Expression:
    """The expression where a condition is asked for: of values, a name or TRUE or FALSE may stand there."""
    if found.is_condition:
        return found
    if isinstance(found, Name | BodyPath) or (
        isinstance(found, Literal) and isinstance(found.constant, bool)
    ):
        return Truth(found)
    raise fault(at, "expected a condition, found a value")


def constant_of(token: Token) -> Any:
    if token.kind == "text":
        return token.text
    if token.kind != "number":
        return token.kind == "TRUE"
    if token.text.isdigit():
        if len(token.text.lstrip("0")) > WHOLE_DIGITS_MAX:
            raise fault(token.at, f"expected a whole number of {WHOLE_DIGITS_MAX} digits at most")
        return int(token.text)
    return float(token.text)


def refuse_text(operand: Expression, at: int, operator: str) -> None:
    """Only numbers have an order and can be calculated with."""
    if isinstance(operand, Literal) and isinstance(operand.constant, str | bool):
        kind = "a text" if isinstance(operand.constant, str) else "TRUE or FALSE"
        raise fault(at, f"expected a number for {operator}, found {kind}")


def check_escapes(pattern: Token, escape: str) -> None:
    at = 0
    while at < len(pattern.text):
        if pattern.text[at] == escape:
            at += 1
            if at == len(pattern.text):
                raise fault(pattern.at, "the pattern ends with its escape letter")
        at += 1


def parse_selector(text: str) -> SelectorCondition:
    """The condition that a selector is; an empty one holds for every message."""
    tokens = tokenize(text)
    return SelectorCondition(text, None if len(tokens) == 1 else Parser(tokens).whole())
