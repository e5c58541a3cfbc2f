"""How answers look in JSON: RabbitMQ's names of fields, and lists filtered, sorted and cut into pages.

Read shapes.py first.
"""
