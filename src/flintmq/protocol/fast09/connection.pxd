cimport cython
cimport flintmq.protocol.phases as phases
cimport flintmq.wire.amqp as amqp
cimport flintmq.wire.octets as octets
cimport flintmq.wire.traits as traits
from flintmq.protocol.channel cimport Channel
from flintmq.protocol.connection cimport Connection
from flintmq.protocol.outbox cimport Output

cdef int METHOD
cdef int HEADER_FRAME
cdef int BODY
cdef int META
cdef Py_ssize_t HEAD_OCTETS
cdef Py_ssize_t METHOD_OCTETS
cdef int CLASS_JMS
cdef int CLASS_FILE
cdef object JMS_ACK
cdef object FILE_ACK
cdef int ACK_ID
cdef Py_ssize_t ACK_OCTETS
cdef int PUBLISH_ID
cdef Py_ssize_t SIZED_OCTETS
cdef Py_ssize_t CONTENT_OCTETS


@cython.final
cdef class Call:
    cdef readonly object kind
    cdef readonly int flags
    cdef readonly unsigned int synctag
    cdef readonly bytes fields
    cdef readonly tuple ids


@cython.final
cdef class Repeated:
    cdef Call call
    cdef int class_id
    cdef bytes route
    cdef int flags
    cdef bytes properties
    cdef bytes header


cdef class Fast09Connection(Connection):
    cdef object told
    cdef readonly dict calls
    cdef readonly dict current
    cdef dict repeated
    cdef readonly tuple failing
    cdef readonly int failing_flags

    @cython.locals(
        output=Output, at=Py_ssize_t, filled=Py_ssize_t, kind=cython.int, number=cython.uint, length=Py_ssize_t,
        start=Py_ssize_t, end=Py_ssize_t, channel=Channel, used=Py_ssize_t,
    )
    cpdef Py_ssize_t receive(self, bytearray buffer, Py_ssize_t size) except -1
    cdef bint is_idle(self, Channel channel) noexcept
    @cython.locals(repeated=Repeated, call=Call, synctag=cython.uint)
    cdef Py_ssize_t receive_at_once(
        self, const unsigned char* source, Py_ssize_t start, Py_ssize_t end, Py_ssize_t size, Channel channel
    ) except -1
    @cython.locals(
        header=Py_ssize_t, body=Py_ssize_t, length=Py_ssize_t, stop=Py_ssize_t, call=Call, content=bytes,
    )
    cdef Py_ssize_t publish_again(
        self, const unsigned char* source, Py_ssize_t start, Py_ssize_t at, Py_ssize_t size, Channel channel,
        Repeated repeated,
    ) except -1
    cdef bint renew(self, Repeated repeated, bytes payload) except -1
    cpdef Py_ssize_t due(self, bytearray start) except -1
    cpdef Channel channel_of(self, unsigned int number)
    cpdef forget_channel(self, Channel channel)
