"""`flintmq ctl`: the words of rabbitmqctl, for scripts that use them.

Read ctl.py first; lists.py prints rows as rabbitmqctl does.
"""
