cimport cython


@cython.final
cdef class Binding:
    cdef readonly object source
    cdef tuple form
    cdef readonly object destination
    cdef readonly str routing_key
    cdef readonly unsigned long long number
    cdef dict _arguments
    cdef Binding older
    cdef Binding newer

    cdef bint is_same(self, Binding other)
    cpdef bint is_chained(self)
