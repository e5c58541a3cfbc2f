"""Commands against a broker that runs, a file for each noun: queues, users, messages, connections and others.

Read running_broker.py first: the connection, the credentials, and lists asked page by page.
"""
