"""FlintMQ: an AMQP message broker in Python whose traffic is a Spark stream."""

__version__ = "0.1.0"
