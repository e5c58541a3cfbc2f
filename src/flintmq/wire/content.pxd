cimport cython
cimport flintmq.wire.amqp as amqp
cimport flintmq.wire.octets as octets
cimport flintmq.wire.traits as traits


@cython.locals(flags=cython.int, bit=cython.int, found=cython.int, table_size=Py_ssize_t)
cdef int survey(const unsigned char* source, Py_ssize_t at, Py_ssize_t end) noexcept
cpdef int traits_of(bytes header) except -2
