"""From the text of a regular expression to a machine: parsing, and the machine's instructions.

    letters, .  [a-z_] [^0-9] [[:alnum:]_]  \\d \\w \\s \\D \\W \\S  \\n \\t \\xHH \\uHHHH
    x*  x+  x?  x{2}  x{2,}  x{2,5}   (lazy ones match the same)
    x|y  (x)  (?:x)  ^  $

`.` is any letter, \\d \\w \\s are those of ASCII. What needs a memory of the text (backreferences, looking
ahead or behind) is refused: no machine that looks at each letter once can do it.

The tree is made of tuples, and so is the machine, one instruction for each place it can be in:

    ("letters", ranges)  ("cat", items)  ("alt", items)  ("repeat", item, least, most)  ("start",)  ("end",)
    (LETTER, ranges, next)  (SPLIT, next, next)  (AT_START, next)  (AT_END, next)  (MATCH,)
"""

from __future__ import annotations

from typing import Any, TypeAlias

from flintmq.errors import ChannelFault
from flintmq.reply_codes import PRECONDITION_FAILED

TEXT_CHARS_MAX = 1024
DEPTH_MAX = 32
REPEATS_MAX = 1000
# A letter of the text costs a step for each place the machine is in, until it has been seen there before:
# this many are some 50 microseconds.
INSTRUCTIONS_MAX = 1000
RANGES_MAX = 64

LETTER = 0
SPLIT = 1
AT_START = 2
AT_END = 3
MATCH = 4

Ranges: TypeAlias = tuple[tuple[int, int], ...]
Tree: TypeAlias = tuple[Any, ...]

LAST_LETTER = 0x10FFFF
ANY: Ranges = ((0, LAST_LETTER),)
CLASSES: dict[str, Ranges] = {
    "d": ((48, 57),),
    "w": ((48, 57), (65, 90), (95, 95), (97, 122)),
    "s": ((9, 13), (32, 32)),
}
# Within a class, as in [[:alpha:]_]; ASCII alone, as \\d and \\w are.
NAMED_CLASSES: dict[str, Ranges] = {
    "alnum": ((48, 57), (65, 90), (97, 122)),
    "alpha": ((65, 90), (97, 122)),
    "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)),
    "cntrl": ((0, 31), (127, 127)),
    "digit": CLASSES["d"],
    "graph": ((33, 126),),
    "lower": ((97, 122),),
    "print": ((32, 126),),
    "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": CLASSES["s"],
    "upper": ((65, 90),),
    "word": CLASSES["w"],
    "xdigit": ((48, 57), (65, 70), (97, 102)),
}
ESCAPES = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11, "a": 7, "e": 27, "0": 0}


def fault(at: int, text: str) -> ChannelFault:
    return ChannelFault(PRECONDITION_FAILED, f"pattern, position {at + 1}: {text}")


def union(ranges: list[tuple[int, int]]) -> Ranges:
    """The same letters as few ranges in order."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return tuple(joined)


def complement(ranges: Ranges) -> Ranges:
    others: list[tuple[int, int]] = []
    start = 0
    for low, high in ranges:
        if low > start:
            others.append((start, low - 1))
        start = high + 1
    if start <= LAST_LETTER:
        others.append((start, LAST_LETTER))
    return tuple(others)


class RegexpParser:
    """Reads one pattern from front to back."""

    def __init__(self, text: str) -> None:
        if len(text) > TEXT_CHARS_MAX:
            raise fault(TEXT_CHARS_MAX, f"it has {len(text)} letters, {TEXT_CHARS_MAX} at most")
        self.text = text
        self.at = 0
        self.depth = 0

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def whole(self) -> Tree:
        tree = self.alternatives()
        if self.at < len(self.text):
            raise fault(self.at, "')' without a '(' before it")
        return tree

    def alternatives(self) -> Tree:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise fault(self.at, f"groups nested deeper than {DEPTH_MAX} levels")
        branches = [self.sequence()]
        while self.peek() == "|":
            self.at += 1
            branches.append(self.sequence())
        self.depth -= 1
        return branches[0] if len(branches) == 1 else ("alt", branches)

    def sequence(self) -> Tree:
        items: list[Tree] = []
        while self.peek() not in ("", "|", ")"):
            item = self.item()
            items.append(self.repeated(item))
        return ("cat", items)

    def item(self) -> Tree:
        letter, at = self.peek(), self.at
        self.at += 1
        if letter == "^":
            return ("start",)
        if letter == "$":
            return ("end",)
        if letter == ".":
            return ("letters", ANY)
        if letter == "(":
            return self.group(at)
        if letter == "[":
            return ("letters", self.letter_class(at))
        if letter == "\\":
            return ("letters", self.escape(at))
        if letter in "*+?{":
            raise fault(
                at, f"nothing to repeat before '{letter}'; as a plain letter it is written \\{letter}"
            )
        return ("letters", ((ord(letter), ord(letter)),))

    def group(self, at: int) -> Tree:
        if self.peek() == "?":
            if self.text[self.at : self.at + 2] != "?:":
                kind = self.text[at : at + 4].encode("ascii", "backslashreplace").decode()
                raise fault(at, f"'{kind}' is not supported: groups are (...) or (?:...)")
            self.at += 2
        tree = self.alternatives()
        if self.peek() != ")":
            raise fault(at, "expected the ')' of the group that starts here")
        self.at += 1
        return tree

    def repeated(self, item: Tree) -> Tree:
        at = self.at
        bounds = self.quantifier()
        if bounds is None:
            return item
        if item[0] in ("start", "end"):
            raise fault(at, "an anchor cannot be repeated")
        if self.peek() == "?":  # lazy: it matches the same texts
            self.at += 1
        if self.peek() and self.peek() in "*+?":
            raise fault(self.at, "a repetition of a repetition needs a group")
        return ("repeat", item, *bounds)

    def quantifier(self) -> tuple[int, int | None] | None:
        """The bounds that stand here, if any."""
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if self.peek() in simple:
            self.at += 1
            return simple[self.text[self.at - 1]]
        if self.peek() != "{":
            return None
        at = self.at
        end = self.text.find("}", at)
        parts = self.text[at + 1 : end].split(",") if end > 0 else []
        if (
            len(parts) not in (1, 2)
            or not parts[0].isdecimal()
            or not (parts[-1].isdecimal() or not parts[-1])
        ):
            raise fault(at, "expected {2}, {2,} or {2,5}; a plain brace is written \\{")
        if max([len(part) for part in parts]) > 4:
            raise fault(at, f"more than {REPEATS_MAX} repetitions")
        least = int(parts[0])
        most = least if len(parts) == 1 else int(parts[1]) if parts[1] else None
        if least > REPEATS_MAX or (most is not None and most > REPEATS_MAX):
            raise fault(at, f"more than {REPEATS_MAX} repetitions")
        if most is not None and most < least:
            raise fault(at, "the upper bound is below the lower one")
        self.at = end + 1
        return least, most

    def escape(self, at: int) -> Ranges:
        """What a backslash at `at` and the letter behind it stand for."""
        letter = self.peek()
        if not letter:
            raise fault(at, "the pattern ends with a backslash")
        self.at += 1
        if letter in CLASSES:
            return CLASSES[letter]
        if letter.lower() in CLASSES:
            return complement(CLASSES[letter.lower()])
        if letter in ESCAPES:
            return ((ESCAPES[letter], ESCAPES[letter]),)
        if letter in "xu":
            digits = self.text[self.at : self.at + (2 if letter == "x" else 4)]
            if len(digits) != (2 if letter == "x" else 4) or not all(digit in HEX_DIGITS for digit in digits):
                raise fault(at, "expected \\xHH or \\uHHHH with hexadecimal digits")
            self.at += len(digits)
            return ((int(digits, 16), int(digits, 16)),)
        if letter in "123456789":
            raise fault(at, f"backreferences such as \\{letter} are not supported")
        if letter.isascii() and letter.isalnum():
            raise fault(at, f"\\{letter} is not supported")
        return ((ord(letter), ord(letter)),)

    def letter_class(self, at: int) -> Ranges:
        negated = self.peek() == "^"
        if negated:
            self.at += 1
        ranges: list[tuple[int, int]] = []
        first = True
        while self.peek() != "]" or first:
            first = False
            low = self.class_item(at)
            if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self.class_item(at)
                if len(low) != 1 or len(high) != 1 or low[0][0] != low[0][1] or high[0][0] != high[0][1]:
                    raise fault(at, "a range in a class goes from one letter to another")
                if high[0][0] < low[0][0]:
                    raise fault(at, "a range in a class that ends before it starts")
                low = ((low[0][0], high[0][0]),)
            ranges.extend(low)
            if len(ranges) > RANGES_MAX:
                raise fault(at, f"a class of more than {RANGES_MAX} ranges")
        self.at += 1
        found = union(ranges)
        return complement(found) if negated else found

    def class_item(self, at: int) -> Ranges:
        letter = self.peek()
        if not letter:
            raise fault(at, "expected the ']' of the class that starts here")
        self.at += 1
        if letter == "[" and self.peek() in (":", ".", "="):
            return self.named_class(self.at - 1)
        return self.escape(self.at - 1) if letter == "\\" else ((ord(letter), ord(letter)),)

    def named_class(self, at: int) -> Ranges:
        """The letters of [:alpha:] or [:^alpha:]; of a '[' that begins no name the letter itself."""
        sign = self.peek()
        end = self.text.find(f"{sign}]", self.at + 1)
        name = self.text[self.at + 1 : end] if end > 0 else ""
        plain = name.removeprefix("^")
        if not (plain.isascii() and plain.isalpha()):
            return ((ord("["), ord("[")),)
        if sign != ":" or plain not in NAMED_CLASSES:
            raise fault(at, f"'[{sign}{name}{sign}]' is not supported")
        self.at = end + 2
        found = NAMED_CLASSES[plain]
        return complement(found) if name.startswith("^") else found


HEX_DIGITS = "0123456789abcdefABCDEF"


class Machine:
    """The instructions for a tree (Thompson's construction); the first one to run is `start`."""

    def __init__(self, tree: Tree) -> None:
        self.code: list[tuple[Any, ...]] = [(MATCH,)]
        self.start = self.place(tree, 0)

    def put(self, instruction: tuple[Any, ...]) -> int:
        if len(self.code) >= INSTRUCTIONS_MAX:
            text = f"more than {INSTRUCTIONS_MAX} places in its machine: shorten it or its repetitions"
            raise fault(0, text)
        self.code.append(instruction)
        return len(self.code) - 1

    def place(self, tree: Tree, after: int) -> int:
        """Puts the instructions of a tree that go on with `after`; where they start."""
        kind = tree[0]
        if kind == "letters":
            return self.put((LETTER, tree[1], after))
        if kind == "start":
            return self.put((AT_START, after))
        if kind == "end":
            return self.put((AT_END, after))
        if kind == "cat":
            for item in reversed(tree[1]):
                after = self.place(item, after)
            return after
        if kind == "alt":
            starts = [self.place(branch, after) for branch in tree[1]]
            first = starts.pop()
            while starts:
                first = self.put((SPLIT, starts.pop(), first))
            return first
        return self.place_repeat(tree[1], tree[2], tree[3], after)

    def place_repeat(self, item: Tree, least: int, most: int | None, after: int) -> int:
        if most is None:
            # The loop has to lead to itself, so its place is taken before its body is put.
            loop = self.put((SPLIT, after, after))
            self.code[loop] = (SPLIT, self.place(item, loop), after)
            after = loop
        else:
            end = after
            for _ in range(most - least):
                after = self.put((SPLIT, self.place(item, after), end))
        for _ in range(least):
            after = self.place(item, after)
        return after


def parse_regexp(text: str) -> Tree:
    return RegexpParser(text).whole()
