"""Regular expressions in linear time, for whoever a client may give a pattern to.

regexp_parser.py turns a pattern into a machine, regexp.py runs the machine, and name_pattern.py asks it about
the names of queues and exchanges, as permissions and policies do. Begin with regexp.py.
"""
