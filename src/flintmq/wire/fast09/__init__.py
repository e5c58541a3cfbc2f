"""The octets of AMQP/Fast 0.9: frames, methods, field tables, content headers, and how these cross."""
