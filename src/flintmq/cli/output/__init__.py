"""What commands print and end with: tables, JSON, questions, and the statuses of a shell.

Read tables.py first. This room never knows a broker.
"""
