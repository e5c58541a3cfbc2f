"""What the broker writes down for people: the log, and the audit log, each in a file that is rotated.

Read log_lines.py for the log and audit_log.py for who did what. This room never knows sockets or sessions.
"""
