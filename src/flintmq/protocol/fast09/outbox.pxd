cimport cython
cimport flintmq.wire.amqp as amqp
from flintmq.protocol.outbox cimport Output


cdef class Target:
    cdef readonly str kind
    cdef readonly str namespace
    cdef readonly str queue
    cdef readonly int class_id
    cdef readonly dict tails

    cpdef bytes tail(self, str proxy)


cdef class Fast09Output(Output):
    cdef public object told
    cdef readonly dict targets

    @cython.locals(behind=Output)
    cpdef write_on(self, unsigned int channel, bytes octets)
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
    cpdef write_method_content(self, unsigned int channel, bytes payload, bytes content, Py_ssize_t header_size)
    cpdef write_method(self, unsigned int channel, bytes payload)
    cpdef write_settlement(self, unsigned int channel, unsigned int code, unsigned long long tag, int flags)
    cpdef stream(self, unsigned int channel, body, told, unsigned long long tag=*)
    cdef write_piece(self, stream, bytes piece)
    @cython.locals(end=Py_ssize_t)
    cdef put(self, bytes source)
    cpdef call_off(self, unsigned int channel, unsigned long long tag)
