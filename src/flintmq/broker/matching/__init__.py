"""The matching engine: which of many conditions does a message meet?

Begin with match_index.py (headers, selectors, wild cards, patterns) and topic_trie.py (topics).
"""
