cimport cython


@cython.locals(start=Py_ssize_t, stop=Py_ssize_t)
cdef tuple _decode_table(bytes octets, Py_ssize_t at, Py_ssize_t end, str what, long long entries_max)
cdef tuple _bounds(bytes octets, Py_ssize_t at, Py_ssize_t end, str what)
@cython.locals(type_at=Py_ssize_t)
cdef tuple _name(bytes octets, Py_ssize_t at, Py_ssize_t stop, str what)
@cython.locals(code=cython.int, at=Py_ssize_t, value_end=Py_ssize_t)
cdef Py_ssize_t _value_end(bytes octets, Py_ssize_t type_at, Py_ssize_t stop, str what) except -1
@cython.locals(start=Py_ssize_t)
cdef Py_ssize_t _variable_end(bytes octets, Py_ssize_t at, Py_ssize_t stop, Py_ssize_t length_bytes) except -1


@cython.final
cdef class _Decoder:
    cdef bytes octets
    cdef str what
    cdef long long entries_max
    cdef long long entries_left

    @cython.locals(octets=bytes, table=dict, type_at=Py_ssize_t)
    cdef dict table(self, Py_ssize_t at, Py_ssize_t stop, int depth)
    @cython.locals(octets=bytes, values=list)
    cdef list array(self, Py_ssize_t at, Py_ssize_t stop, int depth)
    @cython.locals(code=cython.int, values=list, index=Py_ssize_t)
    cdef list uniform_array(self, Py_ssize_t at, Py_ssize_t stop, int depth)
    @cython.locals(octets=bytes, value_end=Py_ssize_t, length_bytes=Py_ssize_t, raw=bytes)
    cdef tuple value(self, int code, Py_ssize_t at, Py_ssize_t stop, int depth)
    @cython.locals(start=Py_ssize_t, value_end=Py_ssize_t)
    cdef tuple container(self, int code, Py_ssize_t at, Py_ssize_t stop, int depth)
    cdef int count(self, long long entries) except -1
