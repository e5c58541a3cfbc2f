"""Commands that need no broker that runs: they start one, make what it needs, or look into its files.

Read serve.py first: it is `flintmq serve`.
"""
