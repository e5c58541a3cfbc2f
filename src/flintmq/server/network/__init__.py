"""Sockets: those that listen, those of clients, TLS on them, and heartbeats.

    readiness.py     which sockets are ready
    listener.py      takes who connects
    link.py, tls.py  one connection: octets in, octets out
    lost_links.py    those whose peers are gone

Read link.py first. What the octets mean is in protocol/; what the methods do is in sessions/ and commands/.
"""
