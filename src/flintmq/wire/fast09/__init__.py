"""The octets of AMQP/Fast 0.9: frames, methods, field tables, content headers, and how these cross."""

# As a ClientConnection numbers versions of protocols: 128 is AMQP/Fast 0.8.
VERSION = 129
