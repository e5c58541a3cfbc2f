cimport cython
cimport flintmq.protocol.phases as phases
cimport flintmq.wire.amqp as amqp
from flintmq.broker.broker cimport Broker
from flintmq.protocol.connection cimport Connection
from flintmq.protocol.outbox cimport Output

# A session has no type here: session.py, which has it, imports this module.


@cython.locals(broker=Broker, connection=Connection, output=Output, payload=bytes)
cpdef greeted(session, int version)
@cython.locals(broker=Broker, connection=Connection)
cpdef start_ok(session, method)
@cython.locals(broker=Broker, connection=Connection)
cpdef login_step(session, step)
cpdef tune(session)
@cython.locals(frame_max=cython.longlong, channel_max=cython.int, connection=Connection, output=Output)
cpdef tune_ok(session, method)
@cython.locals(broker=Broker, connection=Connection)
cpdef open_connection(session, method)
cpdef watch_expiry(session, user)
