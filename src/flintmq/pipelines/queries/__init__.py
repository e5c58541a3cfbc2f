"""From a checked pipeline to Spark queries: frames.py reads and transforms, sinks.py writes."""
