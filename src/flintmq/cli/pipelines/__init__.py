"""`flintmq pipeline` and `flintmq demo`: their options; what they do is in flintmq/pipelines.

Read pipeline.py first.
"""
