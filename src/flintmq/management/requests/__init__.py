"""A request over HTTP until its endpoint is called: the connection, the body, who asks, and the path.

Read routes.py first: the table of paths. identities.py is the login, and faults.py what a refusal looks like.
"""
