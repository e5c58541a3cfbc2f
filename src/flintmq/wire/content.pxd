cimport cython
cimport flintmq.wire.amqp as amqp
cimport flintmq.wire.octets as octets
cimport flintmq.wire.traits as traits

cdef int DEPTH_MAX


@cython.locals(flags=cython.int, bit=cython.int, found=cython.int, table_size=Py_ssize_t, seen=cython.int, mode=cython.int, is_long=bint)
cdef int survey(const unsigned char* source, Py_ssize_t at, Py_ssize_t end) noexcept
cpdef int traits_of(bytes header) except? -9
@cython.locals(found=cython.int, size=Py_ssize_t, kind=cython.int)
cdef int look_over(const unsigned char* source, Py_ssize_t at, Py_ssize_t end, int depth) noexcept
cdef bint names_copies(const unsigned char* source, Py_ssize_t at, Py_ssize_t size) noexcept
@cython.locals(kind=cython.int, size=Py_ssize_t)
cdef Py_ssize_t after_value(const unsigned char* source, Py_ssize_t at, Py_ssize_t end, int depth) noexcept
@cython.locals(size=Py_ssize_t, stop=Py_ssize_t)
cdef Py_ssize_t after_container(
    const unsigned char* source, Py_ssize_t at, Py_ssize_t end, int depth, int kind
) noexcept
@cython.locals(count=Py_ssize_t, stop=Py_ssize_t)
cdef Py_ssize_t count_entries(const unsigned char* source, Py_ssize_t at, Py_ssize_t end, int kind) noexcept
