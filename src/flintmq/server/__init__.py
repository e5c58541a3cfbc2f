"""The broker on real sockets: the only asyncio code for AMQP.

    process/     start, signals, end of the process
    server.py    listeners, timers, alarms, who must wait
    network/     sockets: those that listen, those of clients, TLS, heartbeats
    logins/      who is not logged in yet
    sessions/    one connection of AMQP; fast/ and fast09/ for AMQP/Fast
    commands/    each method of each class
    event_loop/  turns and passes
    logs/        the log and the audit log

Begin with server.py and sessions/session.py. `run` is all that the command line needs.
"""

from flintmq.server.process.lifecycle import run

__all__ = ["run"]
