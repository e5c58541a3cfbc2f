"""A request over HTTP around its endpoint: connection, body, who asks, path, and lists as answers.

Read routes.py first: the table of paths. identities.py is the login, listing.py filters and sorts a list as
the request asks for it, and faults.py is what a refusal looks like.
"""
