"""What a request over HTTP does, a file for each group of paths; queues begin in queues_and_connections.py.

Read overview.py first. Each function is told its path by requests/routes.py, asks the broker by
broker_state/, and answers a list by requests/listing.py.
"""
