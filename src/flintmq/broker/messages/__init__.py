"""A message as the broker holds it, what its publisher says in properties, and what the broker changes there.

Begin with message.py.
"""
