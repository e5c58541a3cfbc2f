"""Pipelines: what flows through the broker, described in one small file and run on Spark.

    document, toml_lines   the file: TOML text, parameters, and the line each value stands on
    keys, checking, sql    what may stand in it, told without Spark and without a broker
    model                  what was checked: sources, transforms, sinks, flows
    fingerprint            whether a checkpoint still fits
    frames, decoding, sinks, lake, gaps     the Spark side: a flow becomes one streaming query
    runner, status         running, restarting, ending; what `flintmq pipeline status` shows
    feed, demo             market data made up, and all of it alive in one terminal

Knows the broker only as its client does. Spark is imported where a pipeline is run, never to check one.
Begin with file/model.py and run/runner.py.
"""
