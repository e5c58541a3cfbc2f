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

import gc

# What is loaded stays: to look for garbage among it costs a tenth of the time.
WAS_COLLECTING = gc.isenabled()
gc.disable()
try:
    from flintmq.server.process.lifecycle import run
finally:
    if WAS_COLLECTING:
        gc.enable()

__all__ = ["run"]
