cimport cython
cimport flintmq.protocol.phases as phases
cimport flintmq.wire.amqp as amqp
cimport flintmq.wire.octets as octets
cimport flintmq.wire.traits as traits
from flintmq.protocol.channel cimport Channel
from flintmq.protocol.events cimport Events
from flintmq.protocol.outbox cimport Output


cdef dict HEARD
cdef list STEPS
cdef dict OPENINGS


cdef class Connection:
    cdef readonly Events events
    cdef readonly Output output
    cdef readonly int state
    cdef readonly int version
    cdef readonly bint numeric
    cdef public bint by_ticket
    cdef public Py_ssize_t frame_bytes_max
    cdef public long long message_bytes_max
    cdef public int channel_max
    cdef readonly list channels
    cdef readonly dict far_channels
    cdef readonly int open_channels
    cdef readonly bint has_content
    cdef public bint paused

    @cython.locals(
        at=Py_ssize_t, end=Py_ssize_t, length=Py_ssize_t, number=cython.uint, channel=Channel, kind=cython.int,
        code=cython.uint, output=Output, filled=Py_ssize_t,
    )
    cpdef Py_ssize_t receive(self, bytearray buffer, Py_ssize_t size) except -1
    @cython.locals(
        start=Py_ssize_t, stop=Py_ssize_t, head=Py_ssize_t, header_size=Py_ssize_t, head_end=Py_ssize_t,
        body=Py_ssize_t, body_end=Py_ssize_t, body_size=cython.ulonglong, content=bytes,
    )
    cdef Py_ssize_t publish(
        self, const unsigned char* frames, Py_ssize_t at, Py_ssize_t end, Py_ssize_t size, Channel channel,
        int class_trait,
    ) except -1
    cpdef Py_ssize_t due(self, bytearray start) except -1
    @cython.locals(state=cython.int)
    cpdef receive_method(self, unsigned int number, Channel channel, bytes payload)
    cpdef receive_exchange(self, int kind, unsigned int number, Channel channel, bytes payload)
    cpdef forget_channel(self, Channel channel)
    @cython.locals(steps=dict)
    cpdef follow(self, str event)
    @cython.locals(heard=dict, kept=tuple)
    cpdef bytes encoded(self, method)
    @cython.locals(version=int, used=Py_ssize_t)
    cdef Py_ssize_t receive_greeting(self, bytes start) except -1
    @cython.locals(steps=dict)
    cpdef receive_connection_method(self, method)


@cython.locals(said=dict)
cpdef decoded(int version, bytes payload)
