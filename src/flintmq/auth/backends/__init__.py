"""The back ends that come with the broker: a web server, a directory, tokens. Each is loaded when it is used.

They run on threads beside the broker's, and are the only part of auth that talks to other machines.
"""
