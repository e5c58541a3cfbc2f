cimport cython
from flintmq.client.core.message cimport Message
from flintmq.protocol.client cimport ClientChannel, ClientConnection
from flintmq.protocol.client_events cimport ClientEvents

cdef Py_ssize_t MESSAGE_BYTES


@cython.final
cdef class Inbox:
    cdef readonly Intake intake
    cdef readonly Deliveries deliveries
    cdef readonly list messages
    cdef readonly Py_ssize_t head
    cdef public object told
    cdef public object ended

    @cython.locals(message=Message)
    cpdef Message next(self)
    cpdef list take(self, Py_ssize_t count_max)
    @cython.locals(message=Message)
    cdef _drop_lost(self)
    @cython.locals(message=Message, end=Py_ssize_t, size=Py_ssize_t, taken=list)
    cdef list _taken(self, Py_ssize_t count_max)
    cpdef clear(self)
    cpdef Py_ssize_t waiting(self)


@cython.final
cdef class Deliveries:
    cdef readonly object channel
    cdef readonly dict inboxes
    cdef public unsigned int epoch


cdef class Intake(ClientEvents):
    cdef public ClientConnection protocol
    cdef public Py_ssize_t received_bytes
    cdef public Py_ssize_t received_bytes_max

    @cython.locals(deliveries=Deliveries, inbox=Inbox)
    cpdef deliver(
        self,
        ClientChannel channel,
        bytes consumer_tag,
        unsigned long long tag,
        bint redelivered,
        bytes route,
        bytes properties,
        bytes body,
    )
    cdef taken(self, Py_ssize_t size)
