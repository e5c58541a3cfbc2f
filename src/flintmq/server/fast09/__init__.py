"""The sessions of AMQP/Fast 0.9."""
