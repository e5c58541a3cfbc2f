cimport cython
cimport flintmq.wire.octets as octets
cimport flintmq.wire.traits as traits


@cython.final
cdef class Message:
    cdef readonly bytes route
    cdef readonly bytes content
    cdef readonly unsigned int header_size
    cdef public int traits
    cdef readonly unsigned int origin
    cdef public int holders  # here, where it fills a gap: behind the others the object would be 88 octets
    cdef public unsigned long long entry
    cdef public long long arrived_ms
    cdef public long long lifetime_ms

    @staticmethod
    @cython.locals(message=Message)
    cdef Message create(bytes route, bytes content, unsigned int header_size, int traits, unsigned int origin)
    cpdef Message variant(self, bytes route, bytes content, unsigned int header_size, int traits)
    @cython.locals(twin=Message)
    cpdef Message twin(self)
    cpdef stamp(self, long long now_ms)
    cpdef Py_ssize_t body_size(self) noexcept
    @cython.locals(end=Py_ssize_t)
    cpdef bytes shown_route(self)


cpdef Message new_message(bytes route, bytes content, unsigned int header_size, int traits, unsigned int origin)
