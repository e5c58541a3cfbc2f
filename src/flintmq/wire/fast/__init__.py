"""The octets of AMQP/Fast 0.8: commands, field tables, message headers, and their way to Basic and back."""

# As a ClientConnection numbers versions of protocols: what AMQP/Fast begins with.
VERSION = 128
