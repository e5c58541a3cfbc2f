cimport cython
cimport flintmq.wire.octets as octets
cimport flintmq.wire.traits as traits


@cython.final
cdef class Message:
    cdef readonly bytes route
    cdef readonly bytes content
    cdef readonly unsigned int header_size
    cdef readonly int traits
    cdef readonly unsigned int origin
    cdef public unsigned long long entry

    @staticmethod
    @cython.locals(message=Message)
    cdef Message create(bytes route, bytes content, unsigned int header_size, int traits, unsigned int origin)
    cpdef Py_ssize_t body_size(self) noexcept
    cpdef Message copy(self)


cpdef Message new_message(bytes route, bytes content, unsigned int header_size, int traits, unsigned int origin)
