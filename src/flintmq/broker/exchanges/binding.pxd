cimport cython


@cython.final
cdef class Binding:
    cdef readonly object source
    cdef readonly tuple identity
    cdef readonly object destination
    cdef readonly str routing_key
    cdef readonly unsigned long long number
    cdef dict _arguments
    cdef Binding older
    cdef Binding newer

    cpdef bint is_chained(self)
