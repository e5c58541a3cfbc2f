cimport cython
cimport flintmq.wire.amqp as amqp
cimport flintmq.wire.octets as octets
from flintmq.protocol.outbox cimport Output

cdef int METHOD
cdef int HEADER
cdef int BODY
cdef unsigned int META
cdef unsigned int CHANNEL_MAX_NORMAL
cdef Py_ssize_t SIZE_MAX_NORMAL
cdef Py_ssize_t EXTENDED_OCTETS
cdef int DELIVER_ID
cdef Py_ssize_t DELIVER_OCTETS
cdef Py_ssize_t PROPERTIES
cdef Py_ssize_t AMQP_PROPERTIES


@cython.final
cdef class Target:
    cdef readonly str kind
    cdef readonly str namespace
    cdef readonly str queue
    cdef readonly int class_id
    cdef readonly dict tails

    cdef bytes route
    cdef unsigned int start
    cdef bytes properties
    cdef bytes header
    cdef int flags
    cdef bytes tail

    cdef bytes tail_of(self, str proxy)


cdef class Fast09Output(Output):
    cdef public object told
    cdef readonly dict targets

    @cython.locals(behind=Output)
    cpdef write_on(self, unsigned int channel, bytes octets)
    @cython.locals(
        target=Target, header=bytes, tail=bytes, start=Py_ssize_t, end=Py_ssize_t, most=Py_ssize_t,
        heads=Py_ssize_t, at=Py_ssize_t, stop=Py_ssize_t,
    )
    cdef write_delivery(
        self,
        unsigned int channel,
        bytes consumer_tag,
        unsigned long long delivery_tag,
        bint redelivered,
        bytes route,
        bytes content,
        Py_ssize_t header_size,
    )
    cdef Py_ssize_t put_head(
        self, unsigned char* out, Py_ssize_t at, unsigned int kind, unsigned int channel, Py_ssize_t size
    ) noexcept
    cdef translate(self, Target target, bytes route, bytes header)
    cpdef write_method_content(self, unsigned int channel, bytes payload, bytes content, Py_ssize_t header_size)
    cpdef write_method(self, unsigned int channel, bytes payload)
    cpdef write_settlement(self, unsigned int channel, unsigned int code, unsigned long long tag, int flags)
    cpdef stream(self, unsigned int channel, body, told, unsigned long long tag=*)
    cdef write_piece(self, stream, bytes piece)
    @cython.locals(end=Py_ssize_t)
    cdef put(self, bytes source)
    cpdef call_off(self, unsigned int channel, unsigned long long tag)
