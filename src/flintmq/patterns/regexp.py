"""Regular expressions that look at each letter of a text once, whatever the pattern.

The machine of a pattern (regexp_parser.py) may be in many places at a time. A State is such a set of
places; which State follows on which letter is worked out when it first happens, and kept:

    ^a(b|c)+$      {a} --a--> {b,c} --b--> {b,c,end} --c--> {b,c,end}
                                    `-x--> {}            nothing leads on: no match

What is kept is bounded over all patterns of an exchange (StateBudget): when it is spent, all of it is
forgotten and made again as it is needed. A pattern is searched for: it may be found anywhere in the text
unless ^ or $ say otherwise.
"""

from __future__ import annotations

from flintmq.patterns.regexp_parser import AT_START, LETTER, MATCH, SPLIT, Machine

# Places and ways on that an exchange keeps: 500,000 of each are some 32 MB at the worst.
BUDGET = 500_000
# What a State costs beside its places, in the same measure.
STATE_COST = 16
# What a search takes is counted in steps of some 100 nanoseconds: one for so many letters whose way on is
# known, else one for each place. Whoever does not count allows any number of them.
KNOWN_LETTERS = 4
ANY_STEPS = 1 << 62


class State:
    """The places a machine can be in at once, and where letters lead from there."""

    __slots__ = ("accepts", "accepts_at_end", "following", "places")

    def __init__(self, places: tuple[int, ...], accepts: bool, accepts_at_end: bool) -> None:
        self.places = places
        self.accepts = accepts
        self.accepts_at_end = accepts_at_end
        self.following: dict[str, State] = {}


class StateBudget:
    """How much the patterns of one exchange keep together."""

    __slots__ = ("limit", "spent", "warm")

    def __init__(self, limit: int = BUDGET) -> None:
        self.limit = limit
        self.spent = 0
        self.warm: dict[Regexp, None] = {}

    def spend(self, cost: int, regexp: Regexp) -> None:
        if self.spent + cost > self.limit:
            self.flush()
        self.spent += cost
        self.warm[regexp] = None

    def flush(self) -> None:
        for regexp in self.warm:
            regexp.forget()
        self.warm = {}
        self.spent = 0

    def leave(self, regexp: Regexp) -> None:
        """The pattern is gone; what it spent is known again at the next flush."""
        self.warm.pop(regexp, None)


class Regexp:
    """One pattern."""

    __slots__ = ("anchored", "budget", "code", "first", "start", "states", "steps")

    def __init__(self, machine: Machine, budget: StateBudget) -> None:
        self.code = machine.code
        self.start = machine.start
        self.budget = budget
        self.states: dict[tuple[int, ...], State] = {}
        self.first: State | None = None
        self.steps = 0  # that the last search took
        # Whether a match can only start where the text does: then it can fail before the end.
        elsewhere = self.state_of([self.start], False)
        self.anchored = not elsewhere.places and not elsewhere.accepts

    def matches(self, text: str) -> bool:
        """Whether the pattern is found in the text."""
        return self.search(text, ANY_STEPS)

    def search(self, text: str, steps_max: int) -> bool:
        """Whether the pattern is found in the text; not if it takes more steps, as `steps` tells then."""
        if self.first is None:
            self.first = self.state_of([self.start], True)
        state = self.first
        steps = len(text) // KNOWN_LETTERS
        for letter in text:
            if state.accepts:
                break
            after = state.following.get(letter)
            if after is None:
                after = self.advance(state, letter)
                steps += STATE_COST + len(state.places) + len(after.places)
                if steps > steps_max:
                    self.steps = steps
                    return False
            state = after
            if self.anchored and not state.places:
                self.steps = steps
                return state.accepts
        self.steps = steps
        return state.accepts or state.accepts_at_end

    def advance(self, state: State, letter: str) -> State:
        """The State that a letter leads to, made or found."""
        code = ord(letter)
        seeds: list[int] = []
        for place in state.places:
            instruction = self.code[place]
            if instruction[0] == LETTER:
                for low, high in instruction[1]:
                    if low <= code <= high:
                        seeds.append(instruction[2])
                        break
        if not self.anchored:
            seeds.append(self.start)
        after = self.state_of(seeds, False)
        self.budget.spend(1, self)
        state.following[letter] = after
        return after

    def state_of(self, seeds: list[int], at_start: bool) -> State:
        """The State of everything that the seeds lead to without a letter."""
        waiting, places, accepts = self.closure(seeds, at_start, False)
        places.sort()
        form = (-1, *places) if accepts else tuple(places)
        # The first one is kept elsewhere: ^ behind $ makes it differ from others of the same places.
        state = None if at_start else self.states.get(form)
        if state is not None:
            return state
        at_end = accepts
        if waiting and not accepts:
            at_end = self.closure([*waiting, *places], at_start, True)[2]
        state = State(tuple(places), accepts, at_end)
        self.budget.spend(STATE_COST + len(form), self)
        if not at_start:
            self.states[form] = state
        return state

    def closure(self, seeds: list[int], at_start: bool, at_end: bool) -> tuple[list[int], list[int], bool]:
        """Ends that were not passed, all places where the machine waits, and whether it has matched."""
        stack = list(seeds)
        seen: set[int] = set()
        waiting: list[int] = []
        places: list[int] = []
        accepts = False
        while stack:
            place = stack.pop()
            if place in seen:
                continue
            seen.add(place)
            instruction = self.code[place]
            kind = instruction[0]
            if kind == SPLIT:
                stack.append(instruction[1])
                stack.append(instruction[2])
            elif kind == MATCH:
                accepts = True
            elif kind == LETTER:
                places.append(place)
            elif kind == AT_START:
                if at_start:
                    stack.append(instruction[1])
            elif at_end:
                stack.append(instruction[1])
            else:
                waiting.append(place)
                places.append(place)
        return waiting, places, accepts

    def forget(self) -> None:
        """Gives back what it has kept."""
        self.states = {}
        self.first = None
