"""The patterns of a topic exchange as a trie of words, matched in one pass over a routing key.

    stock.*.nyse       root --stock-- o --(*)-- o --nyse-- [q1]
    stock.#                           `---(#)-- [q2]
    #.nyse             `--(#)-- o --nyse-- [q3]

Words are parted by dots. `*` stands for one word, `#` for any number of words, none included.
The empty key has no words at all, so `#` matches it and `*` does not; elsewhere an empty word is
a word: "a..b" has three and "." has two. RabbitMQ splits keys the same way.

Matching walks the set of nodes that the words read so far can lead to. A `#` node that was
reached once stays reached until the end, and is entered at most once for a key; every other node
has one parent and one way in, so no node is visited twice for the same word. The cost is bounded
by words x nodes whatever the patterns are: there is no backtracking.
A key is a short string of at most 255 octets, which makes at most 256 words.
"""

from __future__ import annotations

from typing import Any

from flintmq.broker.matching import counted_set as tally


def key_words(key: str) -> list[str]:
    """The words of a routing key."""
    return key.split(".") if key else []


def pattern_words(pattern: str) -> list[str]:
    """The words of a pattern in its simplest equal form.

    Neighbouring `#` are one, and a `*` behind a `#` goes before it ("#.*" and "*.#" are both "one
    word or more"), so below a `#` node there are only plain words.
    """
    words: list[str] = []
    hash_pending = False
    for word in key_words(pattern):
        if word == "#":
            hash_pending = True
            continue
        if hash_pending and word != "*":
            words.append("#")
            hash_pending = False
        words.append(word)
    if hash_pending:
        words.append("#")
    return words


class TopicNode:
    """A place in the trie: the ways on, and the destinations of the patterns that end here."""

    # A lone plain word is held in `word` and `only`; `words` comes with the second one, as a dict
    # costs four times what the rest of a node does and long patterns are mostly chains.
    __slots__ = ("destinations", "hash", "only", "serial", "star", "word", "words")

    def __init__(self) -> None:
        self.word: str | None = None
        self.only: TopicNode | None = None
        self.words: dict[str, TopicNode] | None = None
        self.star: TopicNode | None = None
        self.hash: TopicNode | None = None
        self.destinations: tally.Tally = None
        self.serial = 0

    def child(self, word: str) -> TopicNode | None:
        """The node behind a word of a pattern."""
        if word == "*":
            return self.star
        if word == "#":
            return self.hash
        if self.words is not None:
            return self.words.get(word)
        return self.only if self.word == word else None

    def grow(self, word: str) -> TopicNode:
        """The node behind a word of a pattern, made when there is none."""
        node = self.child(word)
        if node is not None:
            return node
        node = TopicNode()
        if word == "*":
            self.star = node
        elif word == "#":
            self.hash = node
        elif self.words is not None:
            self.words[word] = node
        elif self.word is None or self.only is None:
            self.word, self.only = word, node
        else:
            self.words = {self.word: self.only, word: node}
            self.word = self.only = None
        return node

    def prune(self, word: str) -> None:
        """Forgets the node behind a word of a pattern."""
        if word == "*":
            self.star = None
        elif word == "#":
            self.hash = None
        elif self.words is None:
            self.word = self.only = None
        else:
            del self.words[word]
            if not self.words:
                self.words = None

    def is_bare(self) -> bool:
        """Whether nothing ends here and nothing goes on from here."""
        return (
            self.destinations is None
            and self.only is None
            and self.words is None
            and self.star is None
            and self.hash is None
        )


class TopicTrie:
    """Patterns with their destinations, which need not be distinct."""

    __slots__ = ("root", "serial")

    def __init__(self) -> None:
        self.root = TopicNode()
        # Counts the matches made, to tell which `#` nodes the present one has entered.
        self.serial = 0

    def add(self, pattern: str, destination: Any) -> None:
        node = self.root
        for word in pattern_words(pattern):
            node = node.grow(word)
        node.destinations = tally.add(node.destinations, destination)

    def remove(self, pattern: str, destination: Any) -> None:
        """Takes back one add of the same pattern and destination; KeyError when there was none."""
        words = pattern_words(pattern)
        path: list[TopicNode] = []
        node = self.root
        for word in words:
            path.append(node)
            after = node.child(word)
            if after is None:
                raise KeyError(pattern)
            node = after
        node.destinations = tally.remove(node.destinations, destination)
        while words and node.is_bare():
            node = path.pop()
            node.prune(words.pop())

    def match(self, routing_key: str, found: dict[Any, Any]) -> None:
        """Puts the destinations of every pattern that fits `routing_key` into `found` as keys."""
        self.serial += 1
        reached = [self.root]
        hashes: list[TopicNode] = []
        if self.root.hash is not None:
            self._enter(self.root.hash, hashes, found)
        for word in key_words(routing_key):
            following: list[TopicNode] = []
            for node in reached:
                self._step(node, word, following)
                if node.star is not None:
                    following.append(node.star)
            for node in hashes:
                self._step(node, word, following)
            # Only now, since what a `#` leads to begins with the next word.
            for node in following:
                if node.hash is not None:
                    self._enter(node.hash, hashes, found)
            if not following and not hashes:
                return
            reached = following
        for node in reached:
            if node.destinations is not None:
                tally.collect(node.destinations, found)

    def _step(self, node: TopicNode, word: str, following: list[TopicNode]) -> None:
        if node.words is not None:
            after = node.words.get(word)
            if after is not None:
                following.append(after)
        elif node.only is not None and node.word == word:
            following.append(node.only)

    def _enter(self, node: TopicNode, hashes: list[TopicNode], found: dict[Any, Any]) -> None:
        """Reaches a `#` node: it fits whatever follows, so its destinations are found already."""
        if node.serial == self.serial:
            return
        node.serial = self.serial
        if node.destinations is not None:
            tally.collect(node.destinations, found)
        if node.only is not None or node.words is not None:
            hashes.append(node)
