"""The broker as a process: its start, its signals, settings that are read again, and its orderly end.

Read lifecycle.py first. embedded.py has a broker in a program's own event loop, rehearsal.py one for tests,
and management_process.py the process of the HTTP API beside the broker.
"""
