cimport cython


@cython.final
cdef class StreamBacklog:
    cdef readonly long long count
    cdef readonly long long octets
    cdef readonly long long length_max
    cdef readonly long long bytes_max
    cdef dict positions

    cpdef limit(self, long long length_max, long long bytes_max)
    cdef int change(self, long long count, long long size) except -1
    @cython.locals(count=cython.longlong, octets=cython.longlong)
    cpdef bint is_exceeded(self, long long coming) noexcept
    cdef bint is_crowded(self, int priority) except -1
    cpdef list noted(self, int priority)
    cpdef keep(self, int priority, list positions)
    cpdef note(self, int priority, long long position, long long first)
    cpdef int lowest(self)
    # An object: C for the error value of a long long does not compile (Cython 3).
    cpdef oldest(self, int priority)
    cpdef put_first(self, int priority, long long position)
    cpdef clear(self)
