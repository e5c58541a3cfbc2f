cimport cython
cimport flintmq.wire.amqp as amqp
cimport flintmq.wire.octets as octets

cdef Py_ssize_t TABLE_BYTES_MAX


@cython.locals(flags=cython.int, bit=cython.int, size=Py_ssize_t)
cdef Py_ssize_t find_property(const unsigned char* source, Py_ssize_t at, Py_ssize_t end, int wanted) noexcept

@cython.locals(source=octets.Readable, at=Py_ssize_t, size=Py_ssize_t)
cpdef object read_property(bytes content, Py_ssize_t end, int wanted)

@cython.locals(source=octets.Readable, at=Py_ssize_t)
cpdef dict read_headers(bytes content, Py_ssize_t end)

@cython.locals(
    source=octets.Readable, start=Py_ssize_t, stop=Py_ssize_t, size=Py_ssize_t, table=dict, name=str,
    text=str, kind=cython.int
)
cdef dict read_table(bytes content, Py_ssize_t at, Py_ssize_t end)
