cimport cython
cimport flintmq.wire.octets as octets


cdef Py_ssize_t field_end(const unsigned char* source, Py_ssize_t at, Py_ssize_t size, bytes head) noexcept

@cython.locals(
    whole=octets.Readable, size=Py_ssize_t, host_end=Py_ssize_t, source_end=Py_ssize_t,
    destination_end=Py_ssize_t, flag_at=Py_ssize_t, end=Py_ssize_t
)
cpdef tuple plain_binding(bytes key)

@cython.locals(whole=octets.Readable, size=Py_ssize_t, host_end=Py_ssize_t)
cpdef dict named_of(bytes key)

@cython.locals(
    whole=octets.Readable, size=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, number=cython.int
)
cpdef dict queue_of(bytes value)
