"""The async client of AMQP/Fast."""
