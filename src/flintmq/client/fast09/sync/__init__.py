"""The client of AMQP/Fast 0.9 for blocking code; its socket is that of the client of 0.8."""
