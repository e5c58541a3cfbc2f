"""The names of the columns that a read gives, and their types in SQL; for those who do without Spark.

    value BINARY, key STRING, queue STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,
    exchange STRING, routing_key STRING, redelivered BOOLEAN       [properties ...] [headers]

`key` is the routing key again, by the name it has in Kafka's schema.
"""

from __future__ import annotations

STANDARD = {
    "value": "BINARY",
    "key": "STRING",
    "queue": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "exchange": "STRING",
    "routing_key": "STRING",
    "redelivered": "BOOLEAN",
}
# `timestamp` of the standard columns is when the broker took the message; this one is its publisher's.
PROPERTY_TIMESTAMP = "property_timestamp"
PROPERTIES = {
    "content_type": "STRING",
    "content_encoding": "STRING",
    "delivery_mode": "INT",
    "priority": "INT",
    "correlation_id": "STRING",
    "reply_to": "STRING",
    "expiration": "STRING",
    "message_id": "STRING",
    PROPERTY_TIMESTAMP: "TIMESTAMP",
    "type": "STRING",
    "user_id": "STRING",
    "app_id": "STRING",
    "cluster_id": "STRING",
}
NAMES = (*STANDARD, *PROPERTIES, "headers")
