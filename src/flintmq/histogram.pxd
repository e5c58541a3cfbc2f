cimport cython


@cython.final
cdef class Histogram:
    cdef long long first_us
    cdef long long factor
    cdef readonly list counts
    cdef readonly long long sum_us

    @cython.locals(bound_us=cython.longlong, index=Py_ssize_t, last=Py_ssize_t)
    cpdef int note(self, long long value_us) except -1
