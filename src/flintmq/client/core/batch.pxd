cimport cython
cimport flintmq.wire.amqp as amqp
cimport flintmq.wire.octets as octets

cdef Py_ssize_t FRAME_BYTES
cdef Py_ssize_t BODY_SIZE_AT


@cython.locals(size=Py_ssize_t, index=Py_ssize_t, given=object, body=bytes)
cpdef Py_ssize_t total_bytes(list bodies) except -1


@cython.final
cdef class Rows:
    cdef readonly unsigned int number
    cdef readonly bytes head
    cdef readonly list heads
    cdef readonly list bodies
    cdef readonly Py_ssize_t reached

    @cython.locals(
        size=Py_ssize_t, index=Py_ssize_t, stop=Py_ssize_t, body=bytes, head=bytes, bodies=list, heads=list,
        at=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, count=Py_ssize_t, payload_max=Py_ssize_t,
        buffer=bytearray, number="unsigned int",
    )
    cpdef bytearray encode(self, Py_ssize_t frame_bytes_max, Py_ssize_t octets_max)


@cython.locals(at=Py_ssize_t, buffer=bytearray)
cpdef bytes row_head(unsigned int number, unsigned int class_id, bytes method, bytes properties)
