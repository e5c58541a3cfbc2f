"""The sessions of AMQP/Fast."""
