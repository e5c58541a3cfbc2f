cimport cython
cimport flintmq.wire.amqp as amqp
cimport flintmq.wire.content as content
cimport flintmq.wire.octets as octets


@cython.locals(flags=cython.int, bit=cython.int, size=Py_ssize_t)
cdef Py_ssize_t find_property(const unsigned char* source, Py_ssize_t at, Py_ssize_t end, int wanted) noexcept

@cython.locals(source=octets.Readable, at=Py_ssize_t, size=Py_ssize_t)
cpdef object read_property(bytes whole, Py_ssize_t end, int wanted)

@cython.locals(source=octets.Readable, at=Py_ssize_t)
cpdef dict read_headers(bytes whole, Py_ssize_t end)

@cython.locals(
    source=octets.Readable, start=Py_ssize_t, stop=Py_ssize_t, size=Py_ssize_t, table=dict, name=str,
    text=str, kind=cython.int, left=Py_ssize_t
)
cdef dict read_table(bytes whole, Py_ssize_t at, Py_ssize_t end)

@cython.locals(
    source=octets.Readable, at=Py_ssize_t, stop=Py_ssize_t, type_at=Py_ssize_t, after=Py_ssize_t, found=list
)
cpdef list entry_places(bytes whole, Py_ssize_t end, bytes name)
