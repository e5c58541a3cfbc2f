"""The connections of AMQP/Fast 0.9 in the server's role, without sockets."""
