cimport cython
from flintmq.broker.broker cimport Broker
from flintmq.broker.scheduling.pass_work cimport PassWork
from flintmq.broker.channels.channel cimport Channel as BrokerChannel
from flintmq.broker.virtual_host cimport VirtualHost
from flintmq.protocol.channel cimport Channel
from flintmq.protocol.connection cimport Connection
from flintmq.protocol.events cimport Events
cimport flintmq.protocol.phases as phases
from flintmq.protocol.outbox cimport Output


cdef class Session(Events):
    cdef readonly Broker broker
    cdef PassWork pass_work
    cdef readonly Output output
    cdef readonly object link
    cdef readonly str peer_address
    cdef readonly unsigned int number
    cdef readonly Connection connection
    cdef public object user
    cdef public VirtualHost virtual_host
    cdef public object login
    cdef public int questions
    cdef public str refusal
    cdef public int heartbeat_s
    cdef public frozenset capabilities
    cdef public dict client_properties
    cdef public bint has_published
    cdef public bint is_internal
    cdef readonly object parting
    cdef public bint is_leaving
    cdef public bint is_refused

    cpdef bint is_short(self) noexcept
    cpdef bint expects_standard(self) except -1
    @cython.locals(channel=Channel)
    cpdef bint is_publisher(self) except -1
    @cython.locals(owner=BrokerChannel)
    cpdef publish(self, Channel channel, bytes route, int flags, bytes content, Py_ssize_t header_size)
    @cython.locals(owner=BrokerChannel)
    cpdef ack(self, Channel channel, unsigned long long tag, bint multiple)
