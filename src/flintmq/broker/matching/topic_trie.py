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

Words x nodes may still be seconds, so a trie knows how many nodes any one key can visit at the most, and
whoever adds patterns asks for that first (`cost`). Each node has what is visited from there on:

    visits        nodes without a `#` before them, for one start: of its plain words the dearest, and its `*`
    beneath       nodes behind each `#`, which every word of a key may enter: KEY_WORDS x their visits
    all_beneath   the same for many starts, which may take another plain word each: the sum over all words

A hundred thousand tenants cost as much as the dearest of them, as a key has but one of their names.
Patterns without wildcards are not counted: together they cost a key no more than one node for each word.
"""

from __future__ import annotations

from typing import Any

from flintmq.broker.matching import counted_set


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


def is_wild(words: list[str]) -> bool:
    """Whether any of these words of a pattern stands for others."""
    return "*" in words or "#" in words


# Words that many patterns of a trie have: only so many are looked for.
SHARED_WORDS_MAX = 1024
# What a key may have, but for empty ones.
KEY_WORDS = 128
# Up to so many plain words are gone through when one of them gets cheaper. Of more only the dear ones are,
# and the cost of the others stays that of the dearest there has ever been.
FEW_WORDS = 64
DEAR_VISITS = 8
DEAR_BENEATH = 1024


class TopicNode:
    """A place in the trie: the ways on, and the destinations of the patterns that end here.

    Where nothing goes on behind a plain word, the counted set of what ends there stands in the place of its
    node: of a million patterns most lead to such an end.
    """

    # A lone plain word is held in `word` and `only`; `words` comes with the second one, as a dict
    # costs four times what the rest of a node does and long patterns are mostly chains.
    __slots__ = (
        "all_beneath",
        "beneath",
        "dear",
        "destinations",
        "hash",
        "only",
        "serial",
        "shrunk",
        "star",
        "visits",
        "word",
        "word_beneath",
        "word_visits",
        "words",
    )

    def __init__(self) -> None:
        self.word: str | None = None
        self.only: TopicNode | counted_set.CountedSet = None
        self.words: dict[str, TopicNode | counted_set.CountedSet] | None = None
        self.star: TopicNode | None = None
        self.hash: TopicNode | None = None
        self.destinations: counted_set.CountedSet = None
        self.serial = 0
        # What a key visits from here on; 0 until a pattern with wildcards leads here.
        self.visits = 0
        self.beneath = 0  # of a `#` node: with what each word of the key visits behind it
        self.all_beneath = 0
        # The dearest plain word in both respects; those that are dear, and how often one of them has become
        # cheaper since they were gone through.
        self.dear: dict[str, TopicNode] | None = None
        self.word_visits = 0
        self.word_beneath = 0
        self.shrunk = 0

    def way(self, word: str) -> TopicNode | counted_set.CountedSet:
        """What is behind a word of a pattern: a node, a counted set, or None."""
        if word == "*":
            return self.star
        if word == "#":
            return self.hash
        if self.words is not None:
            return self.words.get(word)
        return self.only if self.word == word else None

    def put(self, word: str, way: TopicNode | counted_set.CountedSet) -> None:
        """Has a word lead there."""
        if word == "*":
            self.star = way
        elif word == "#":
            self.hash = way
        elif self.words is not None:
            self.words[word] = way
        elif self.word is None or self.word == word:
            self.word, self.only = word, way
        else:
            self.words = {self.word: self.only, word: way}
            self.word = self.only = None

    def grow(self, word: str) -> TopicNode:
        """The node behind a word of a pattern, made when there is none."""
        way = self.way(word)
        if type(way) is TopicNode:
            return way
        node = TopicNode()
        node.destinations = way
        self.put(word, node)
        return node

    def end_with(self, word: str, destination: Any) -> None:
        """A pattern ends with this word."""
        way = self.way(word)
        if type(way) is TopicNode or word == "*" or word == "#":
            node = self.grow(word)
            node.destinations = counted_set.add(node.destinations, destination)
        else:
            self.put(word, counted_set.add(way, destination))

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

    def count(self, word: str, child: TopicNode | None, visits: int, beneath: int, all_beneath: int) -> None:
        """What is behind a word of a pattern has another cost than this, which was counted before."""
        if child is not None:
            visits = child.visits - visits
            beneath = child.beneath - beneath
            all_beneath = child.all_beneath - all_beneath
        else:
            visits, beneath, all_beneath = -visits, -beneath, -all_beneath
        if word == "#":
            self.beneath += beneath
            self.all_beneath += beneath
            return
        self.all_beneath += all_beneath
        if word == "*":
            self.visits += visits
            self.beneath += beneath
            return
        was_dear = self.set_dear(word, child)
        if visits < 0 or beneath < 0:
            if self.words is None or len(self.words) <= FEW_WORDS:
                self.find_dearest()
                return
            if was_dear:
                self.shrunk += 1
                if self.dear is None or 4 * self.shrunk >= len(self.dear):
                    self.find_dearest()
                    return
        if child is not None:
            self.set_dearest(max(self.word_visits, child.visits), max(self.word_beneath, child.beneath))

    def set_dear(self, word: str, child: TopicNode | None) -> bool:
        """Notes whether a plain word is dear; whether it was."""
        was_dear = self.dear is not None and word in self.dear
        if child is not None and (child.visits > DEAR_VISITS or child.beneath > DEAR_BENEATH):
            if self.dear is None:
                self.dear = {}
            self.dear[word] = child
        elif was_dear and self.dear is not None:
            del self.dear[word]
            if not self.dear:
                self.dear = None
        return was_dear

    def set_dearest(self, visits: int, beneath: int) -> None:
        self.visits += visits - self.word_visits
        self.beneath += beneath - self.word_beneath
        self.word_visits = visits
        self.word_beneath = beneath

    def find_dearest(self) -> None:
        """Looks again which plain word is the dearest."""
        self.shrunk = 0
        visits = 0
        beneath = 0
        ways: list[TopicNode | counted_set.CountedSet] = []
        if self.words is None:
            ways = [self.only]
        elif len(self.words) <= FEW_WORDS:
            ways = list(self.words.values())
        else:
            visits = min(self.word_visits, DEAR_VISITS)
            beneath = min(self.word_beneath, DEAR_BENEATH)
            if self.dear is not None:
                ways = list(self.dear.values())
        for way in ways:
            if type(way) is TopicNode:
                child: TopicNode = way
                visits = max(visits, child.visits)
                beneath = max(beneath, child.beneath)
        self.set_dearest(visits, beneath)


class TopicTrie:
    """Patterns with their destinations, which need not be distinct."""

    __slots__ = ("root", "serial", "shared")

    def __init__(self) -> None:
        self.root = TopicNode()
        # Counts the matches made, to tell which `#` nodes the present one has entered.
        self.serial = 0
        self.shared: dict[str, str] = {}  # each of these words is one text, however many nodes have it

    def add(self, pattern: str, destination: Any) -> None:
        words = pattern_words(pattern)
        node = self.root
        if not words:
            node.destinations = counted_set.add(node.destinations, destination)
            return
        nodes = [node]
        last = len(words) - 1
        for index in range(last):
            node = node.grow(self.share(words[index]))
            nodes.append(node)
        node.end_with(self.share(words[last]), destination)
        if is_wild(words):
            way = node.way(words[last])
            if type(way) is TopicNode:
                nodes.append(way)
            self.weigh(nodes, words, None)

    def share(self, word: str) -> str:
        """The same word, as another node may have it already."""
        known = self.shared.get(word)
        if known is not None:
            return known
        if len(self.shared) < SHARED_WORDS_MAX:
            self.shared[word] = word
        return word

    def remove(self, pattern: str, destination: Any) -> None:
        """Takes back one add of the same pattern and destination; KeyError when there was none."""
        words = pattern_words(pattern)
        node = self.root
        nodes = [node]
        for index in range(len(words)):
            way = node.way(words[index])
            if type(way) is not TopicNode:
                if way is None or index + 1 < len(words):
                    raise KeyError(pattern)
                left = counted_set.remove(way, destination)
                if left is not None:
                    node.put(words[index], left)
                    return
                node.prune(words[index])
                break
            node = way
            nodes.append(node)
        else:
            node.destinations = counted_set.remove(node.destinations, destination)
        gone: TopicNode | None = None
        while len(nodes) > 1 and node.is_bare():
            gone = nodes.pop()
            node = nodes[-1]
            node.prune(words[len(nodes) - 1])
        if is_wild(words) or (gone is not None and gone.visits):
            self.weigh(nodes, words, gone)

    def weigh(self, nodes: list[TopicNode], words: list[str], gone: TopicNode | None) -> None:
        """Something has changed behind the last of these nodes, which these words lead along."""
        child: TopicNode | None = None
        visits = beneath = all_beneath = 0
        if gone is not None:
            visits, beneath, all_beneath = gone.visits, gone.beneath, gone.all_beneath
        for index in range(len(nodes) - 1, -1, -1):
            node = nodes[index]
            node_visits, node_beneath, node_all = node.visits, node.beneath, node.all_beneath
            if not node.visits:
                node.visits = 1
            if index < len(words):
                node.count(words[index], child, visits, beneath, all_beneath)
            if index and words[index - 1] == "#":
                node.beneath = node.all_beneath
                if node.only is not None or node.words is not None:
                    node.beneath += KEY_WORDS * node.visits
            child = node
            visits, beneath, all_beneath = node_visits, node_beneath, node_all

    def cost(self) -> int:
        """How many nodes a key may visit, but for one for each of its words."""
        return self.root.visits + self.root.beneath

    def cost_beside(self, pattern: str) -> int:
        """The cost that there is already; 0 if this pattern would not add to it."""
        return self.cost() if is_wild(pattern_words(pattern)) else 0

    def match(self, routing_key: str, found: dict[Any, Any]) -> int:
        """Puts the destinations of every pattern that fits `routing_key` into `found` as keys.

        Returns how many nodes were visited, each once for each word that it was held against.
        """
        self.serial += 1
        visited = 0
        reached = [self.root]
        hashes: list[TopicNode] = []
        if self.root.hash is not None:
            self._enter(self.root.hash, hashes, found)
        words = key_words(routing_key)
        last = len(words) - 1
        for index in range(last + 1):
            word = words[index]
            following: list[TopicNode] = []
            visited += len(reached) + len(hashes)
            for node in reached:
                self._step(node, word, following, index == last, found)
                if node.star is not None:
                    following.append(node.star)
            for node in hashes:
                self._step(node, word, following, index == last, found)
            # Only now, since what a `#` leads to begins with the next word.
            for node in following:
                if node.hash is not None:
                    self._enter(node.hash, hashes, found)
            if not following and not hashes:
                return visited
            reached = following
        for node in reached:
            if node.destinations is not None:
                counted_set.collect(node.destinations, found)
        return visited + len(reached)

    def _step(
        self, node: TopicNode, word: str, following: list[TopicNode], is_last: bool, found: dict[Any, Any]
    ) -> None:
        way: TopicNode | counted_set.CountedSet = None
        if node.words is not None:
            way = node.words.get(word)
        elif node.word == word:
            way = node.only
        if way is None:
            return
        if type(way) is TopicNode:
            following.append(way)
        elif is_last:
            counted_set.collect(way, found)

    def _enter(self, node: TopicNode, hashes: list[TopicNode], found: dict[Any, Any]) -> None:
        """Reaches a `#` node: it fits whatever follows, so its destinations are found already."""
        if node.serial == self.serial:
            return
        node.serial = self.serial
        if node.destinations is not None:
            counted_set.collect(node.destinations, found)
        if node.only is not None or node.words is not None:
            hashes.append(node)
