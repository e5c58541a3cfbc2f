"""Topic patterns: what fits, that removal leaves nothing behind, and that no pattern is slow."""

from __future__ import annotations

import random
from typing import Any

import pytest

from flintmq.broker.matching.topic_trie import TopicTrie, key_words, pattern_words


def fits(pattern: str, key: str) -> bool:
    trie = TopicTrie()
    trie.add(pattern, "q")
    found: dict[Any, Any] = {}
    trie.match(key, found)
    return "q" in found


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("a.b", "a.b"),
        ("*", "a"),
        ("*.*", "a.b"),
        ("a.*.c", "a.b.c"),
        ("#", "a"),
        ("#", "a.b.c"),
        ("a.#", "a"),
        ("a.#", "a.b.c"),
        ("#.c", "c"),
        ("#.c", "a.b.c"),
        ("#.c", "c.c.c"),
        ("a.#.c", "a.c"),
        ("a.#.c", "a.b.b.c"),
        ("#.*", "a"),
        ("*.#", "a.b"),
        ("#.*.#.*", "a.b"),
        ("#.b.#.b", "a.b.a.b"),
        ("#.a.*.b.#", "x.a.a.y.b"),
        # A published key may hold the wildcards; they are words like any other there.
        ("*", "#"),
        ("a.*", "a.*"),
        ("#", "#.#"),
    ],
)
def test_fits(pattern: str, key: str) -> None:
    assert fits(pattern, key)


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("a.b", "a"),
        ("a", "a.b"),
        ("*", "a.b"),
        ("*.*", "a"),
        ("a.*", "a"),
        ("a.#", "b"),
        ("#.c", "c.b"),
        ("a.#.c", "a"),
        ("#.*.#.*", "a"),
        ("#.b.#.b", "a.b"),
        ("A", "a"),
        # A wildcard is a whole word; within a word it stands for itself.
        ("a*", "ab"),
        ("a.#b", "a.b"),
        # What a key says is no pattern.
        ("a", "*"),
        ("a.b", "#"),
    ],
)
def test_does_not_fit(pattern: str, key: str) -> None:
    assert not fits(pattern, key)


def test_the_empty_key_has_no_words() -> None:
    """RabbitMQ's split of an empty key is the empty list, not a list of one empty word."""
    assert key_words("") == []
    assert fits("", "")
    assert fits("#", "")
    assert fits("#.#", "")
    assert not fits("*", "")
    assert not fits("", "a")


def test_an_empty_word_is_a_word() -> None:
    assert key_words("a..b") == ["a", "", "b"]
    assert key_words(".") == ["", ""]
    assert fits("a.*.b", "a..b")
    assert fits("a..b", "a..b")
    assert not fits("a.b", "a..b")
    assert fits("*.*", ".")
    assert fits("a.*", "a.")
    assert not fits("", ".")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("#.#.#", ["#"]),
        ("#.*", ["*", "#"]),
        ("#.*.#.*.a", ["*", "*", "#", "a"]),
        ("a.#.#.b.#", ["a", "#", "b", "#"]),
        ("a.b.*", ["a", "b", "*"]),
        ("", []),
    ],
)
def test_patterns_are_simplified(pattern: str, expected: list[str]) -> None:
    assert pattern_words(pattern) == expected


def test_removal_leaves_a_bare_trie() -> None:
    patterns = ["", "#", "*", "a.b.c", "a.b.d", "a.b", "a.*.c", "a.#.c", "#.a.#", "x.y.z"]
    trie = TopicTrie()
    for pattern in patterns:
        trie.add(pattern, "q")
        trie.add(pattern, "r")
    for pattern in patterns:
        trie.remove(pattern, "q")
        trie.remove(pattern, "r")
    assert trie.root.is_bare()


def test_removal_keeps_what_others_use() -> None:
    trie = TopicTrie()
    for pattern in ("a.b.c", "a.b", "a.b.d"):
        trie.add(pattern, pattern)
    trie.remove("a.b.c", "a.b.c")
    for key, expected in (("a.b", ["a.b"]), ("a.b.c", []), ("a.b.d", ["a.b.d"])):
        found: dict[Any, Any] = {}
        trie.match(key, found)
        assert list(found) == expected


def test_equal_patterns_written_differently_are_counted() -> None:
    trie = TopicTrie()
    trie.add("#.#", "q")
    trie.add("#", "q")
    trie.remove("#", "q")
    found: dict[Any, Any] = {}
    trie.match("a", found)
    assert list(found) == ["q"]


def test_removing_an_unknown_pattern_is_an_error() -> None:
    trie = TopicTrie()
    trie.add("a.b", "q")
    for pattern in ("a.c", "a.b.c", "a", "*"):
        with pytest.raises(KeyError):
            trie.remove(pattern, "q")


class CountedKey(str):
    """A word that counts how often it is compared or hashed: the steps a match takes."""

    looked_up = 0

    def __hash__(self) -> int:
        CountedKey.looked_up += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        CountedKey.looked_up += 1
        return super().__eq__(other)


@pytest.mark.parametrize(
    "pattern",
    [
        ".".join(["#"] * 60 + ["a"]),
        ".".join(["#", "a"] * 60 + ["z"]),
        ".".join(["#", "*", "a"] * 40 + ["z"]),
        ".".join(["*", "#"] * 60 + ["z"]),
    ],
)
def test_hostile_patterns_cost_words_times_nodes(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backtracking would take longer than the universe has; the bound is 128 words x 121 nodes."""
    from flintmq.broker.matching import topic_trie

    if not topic_trie.__file__.endswith(".py"):
        pytest.skip("steps are counted on the pure build; the next test times both")
    trie = TopicTrie()
    trie.add(pattern, "q")
    words = [CountedKey("a")] * 128
    monkeypatch.setattr(topic_trie, "key_words", lambda key: words)
    CountedKey.looked_up = 0
    found: dict[Any, Any] = {}
    trie.match("a", found)
    assert ("q" in found) == (pattern.endswith("a"))
    assert CountedKey.looked_up <= 2 * 128 * 121


@pytest.mark.timeout(20)
def test_hostile_patterns_end_in_time() -> None:
    trie = TopicTrie()
    for last in range(200):
        trie.add(".".join(["#", "a"] * 60 + [f"z{last}"]), last)
    found: dict[Any, Any] = {}
    for _ in range(20):
        trie.match(".".join(["a"] * 128), found)
    assert not found


def cost_of(patterns: list[str]) -> int:
    trie = TopicTrie()
    for pattern in patterns:
        trie.add(pattern, "q")
    return trie.cost()


def test_a_key_visits_no_more_than_the_cost() -> None:
    """Whatever comes and goes: and nothing is left of the cost when the last pattern is gone."""
    for seed in range(40):
        chance = random.Random(seed)
        words = chance.choice([["*", "#", "a", "b"], ["*", "a"], ["#", "a", "b"], ["*", "#", *"abcdefgh"]])
        trie = TopicTrie()
        patterns: list[str] = []
        for step in range(150):
            if patterns and chance.random() < (0.3 if step < 100 else 0.7):
                trie.remove(patterns.pop(chance.randrange(len(patterns))), "q")
            else:
                patterns.append(".".join(chance.choices(words, k=chance.randrange(1, 9))))
                trie.add(patterns[-1], "q")
            key = chance.choices("abcdefgh"[: len(words)], k=chance.randrange(1, 40))
            found: dict[Any, Any] = {}
            assert trie.match(".".join(key), found) <= trie.cost() + len(key) + 1
        for pattern in patterns:
            trie.remove(pattern, "q")
        assert trie.root.is_bare()
        assert trie.cost() <= 1


@pytest.mark.parametrize(
    ("patterns", "most"),
    [
        ([f"k{number}.a.b" for number in range(2000)], 0),
        ([f"k{number}.*" for number in range(2000)], 3),
        ([f"*.k{number}.#" for number in range(2000)], 4),
        ([f"#.k{number}" for number in range(2000)], 200),
        ([f"#.k{number}.#" for number in range(2000)], 300),
        ([f"k{number}.#.*.a" for number in range(2000)], 300),
        ([f"#.k{number}.a.b.c" for number in range(2000)], 600),
    ],
)
def test_many_patterns_are_not_dear_where_a_key_meets_few_of_them(patterns: list[str], most: int) -> None:
    assert cost_of(patterns) <= most


def test_patterns_that_a_key_meets_together_are_dear() -> None:
    chance = random.Random(1)
    random_ones = [".".join(chance.choices(["*", "#", "a", "b"], k=20)) + f".x{n}" for n in range(1000)]
    assert cost_of(random_ones) > 500_000
    binary = [f"{number:012b}".replace("0", "*.").replace("1", "a.") + "z.z" for number in range(4096)]
    assert 2 * 4096 <= cost_of(binary) <= 4 * 4096


def test_the_cost_falls_with_the_dearest_of_many_words() -> None:
    trie = TopicTrie()
    for number in range(1000):
        trie.add(f"k{number}.*", "q")
    dear = [f"tenant.#.a{number}.#.z" for number in range(1000)]
    for pattern in dear:
        trie.add(pattern, "q")
    assert trie.cost() > 100_000
    for pattern in dear:
        trie.remove(pattern, "q")
    assert trie.cost() <= 3 + 1024
