cimport cython
cimport flintmq.wire.octets as octets
from flintmq.protocol.outbox cimport Output

cdef int PARTIAL
cdef int DELIVERED
cdef int REDELIVERED
cdef Py_ssize_t NOTIFY_OCTETS


@cython.final
cdef class Target:
    cdef readonly unsigned int handle
    cdef readonly bytes name


cdef class FastOutput(Output):
    cdef public object told
    cdef public dict targets
    cdef public dict names
    cdef public dict parts
    cdef bytes properties
    cdef bytes head
    cdef unsigned long long browsed

    cpdef write_command(self, unsigned int channel, bytes frame)
    @cython.locals(
        behind=FastOutput, target=Target, name=bytes, flags=cython.int, head=bytes, body_size=cython.ulonglong,
        size=Py_ssize_t, number=cython.uint, fragment=Py_ssize_t, at=Py_ssize_t,
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
    cdef bytes head_of(self, bytes content, Py_ssize_t header_size)
    @cython.locals(whole=bytes, most=Py_ssize_t, start=Py_ssize_t, stop=Py_ssize_t, at=Py_ssize_t, is_last=bint)
    cpdef write_fragments(
        self, unsigned int handle, unsigned int number, int flags, bytes name, bytes head,
        unsigned long long body_size, bytes content, Py_ssize_t header_size,
    )
    @cython.locals(name=bytes, handle=cython.uint, flags=cython.int, number=cython.uint, at=Py_ssize_t)
    cdef write_piece(self, stream, bytes piece)
    cpdef stream(self, unsigned int channel, body, told, unsigned long long tag=*)
    @cython.locals(found=FastOutput)
    cdef Output behind(self, unsigned int channel)
    cpdef drop_streams(self, unsigned int channel)
    cpdef write_method(self, unsigned int channel, bytes payload)
    cpdef write_settlement(self, unsigned int channel, unsigned int code, unsigned long long tag, int flags)
    cpdef write_method_content(self, unsigned int channel, bytes payload, bytes content, Py_ssize_t header_size)
