"""The sync client: blocking calls on a socket of its own. Begin with connection.py."""
