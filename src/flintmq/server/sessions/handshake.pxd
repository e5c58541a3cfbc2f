cimport cython
cimport flintmq.protocol.phases as phases
cimport flintmq.wire.amqp as amqp
from flintmq.broker.broker cimport Broker
from flintmq.broker.channels.client_connection cimport ClientConnection
from flintmq.broker.virtual_host cimport VirtualHost
from flintmq.protocol.connection cimport Connection
from flintmq.protocol.outbox cimport Output
from flintmq.server.sessions.session cimport Session


@cython.locals(broker=Broker, connection=Connection, output=Output, payload=bytes)
cpdef greeted(Session session, int version)
@cython.locals(broker=Broker, connection=Connection)
cpdef start_ok(Session session, method)
@cython.locals(broker=Broker, connection=Connection)
cpdef login_step(Session session, step)
@cython.locals(connection=Connection)
cpdef tune(Session session)
@cython.locals(frame_max=cython.longlong, channel_max=cython.int, connection=Connection, output=Output)
cpdef tune_ok(Session session, method)
@cython.locals(broker=Broker, connection=Connection, virtual_host=VirtualHost, client=ClientConnection)
cpdef open_connection(Session session, method)
cpdef watch_expiry(Session session, user)
