"""`flintmq file send` and `flintmq file receive`: files of any size through queues.

Read files.py first, which has the options. docs/files.md is the page of it.
"""
