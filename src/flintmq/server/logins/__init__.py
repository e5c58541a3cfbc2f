"""Clients that are not logged in yet: how many there may be and how long, and whose password is checked next.

Read strangers.py first. Passwords are checked, and back ends are asked, on threads of this room: the event
loop never waits for them. What a login means is in auth/.
"""
