cimport cython
cimport flintmq.protocol.phases as phases
cimport flintmq.wire.amqp as amqp
cimport flintmq.wire.octets as octets
from flintmq.protocol.client_events cimport ClientEvents
from flintmq.protocol.outbox cimport Output


@cython.final
cdef class ClientChannel:
    cdef readonly unsigned int number
    cdef readonly int state
    cdef public object owner
    cdef readonly list awaited
    cdef readonly int expects
    cdef object method
    cdef readonly object waiter
    cdef bytes consumer_tag
    cdef unsigned long long tag
    cdef bint redelivered
    cdef bytes route
    cdef bytes properties
    cdef long long remaining
    cdef bytearray body
    cdef readonly object requests

    cpdef follow(self, str event)
    cdef keep_properties(self, const unsigned char* frames, Py_ssize_t start, Py_ssize_t end)


@cython.final
cdef class ClientConnection:
    cdef readonly ClientEvents events
    cdef readonly Output output
    cdef public int version
    cdef readonly int state
    cdef public Py_ssize_t frame_bytes_max
    cdef public long long message_bytes_max
    cdef public int channel_max
    cdef readonly list channels
    cdef public bint paused

    cpdef follow(self, str event)
    @cython.locals(
        at=Py_ssize_t, end=Py_ssize_t, length=Py_ssize_t, number=cython.uint, channel=ClientChannel,
        kind=cython.int, code=cython.uint,
    )
    cpdef Py_ssize_t receive(self, bytearray buffer, Py_ssize_t size) except -1
    @cython.locals(
        start=Py_ssize_t, stop=Py_ssize_t, route=Py_ssize_t, head=Py_ssize_t, header_size=Py_ssize_t,
        head_end=Py_ssize_t, body=Py_ssize_t, body_end=Py_ssize_t, body_size=cython.ulonglong,
    )
    cdef Py_ssize_t deliver(
        self, const unsigned char* frames, Py_ssize_t at, Py_ssize_t end, Py_ssize_t size, ClientChannel channel
    ) except -1
    cdef receive_frame(self, int kind, unsigned int number, ClientChannel channel, bytes payload)
    cdef receive_exchange(self, int kind, unsigned int number, ClientChannel channel, bytes payload)
    cdef receive_method(self, unsigned int number, ClientChannel channel, bytes payload)
    cdef receive_header(self, ClientChannel channel, bytes payload)
    cdef receive_body(self, ClientChannel channel, bytes payload)
    cdef complete(self, ClientChannel channel)
