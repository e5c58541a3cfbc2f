"""The sync client of AMQP/Fast: blocking calls on a socket of its own."""
