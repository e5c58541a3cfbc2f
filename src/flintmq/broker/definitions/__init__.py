"""Definitions: the file of users, virtual hosts, policies and topology that RabbitMQ's tools exchange.

    JSON in parts --> Import: read, check all, apply --> administration, virtual hosts
    JSON in parts <-- Export <-------------------------- administration, virtual hosts

Begin with definitions.py. docs/definitions.md has what becomes of each key.
"""
