cimport cython
cimport flintmq.wire.amqp as amqp
cimport flintmq.wire.octets as octets


@cython.locals(size=Py_ssize_t, index=Py_ssize_t, given=object, body=bytes)
cpdef Py_ssize_t total_bytes(list bodies) except -1


@cython.final
cdef class Rows:
    cdef readonly unsigned int number
    cdef readonly unsigned int class_id
    cdef readonly bytes method
    cdef readonly list methods
    cdef readonly bytes properties
    cdef readonly list properties_each
    cdef readonly list bodies
    cdef readonly Py_ssize_t reached

    @cython.locals(
        size=Py_ssize_t, index=Py_ssize_t, stop=Py_ssize_t, body=bytes, method=bytes, properties=bytes,
        at=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, count=Py_ssize_t, payload_max=Py_ssize_t,
        buffer=bytearray,
    )
    cpdef bytearray encode(self, Py_ssize_t frame_bytes_max, Py_ssize_t octets_max)
