"""AMQP/Fast 0.8 as a state machine: octets in, events out; commands of the broker in, octets out."""
