cimport cython


@cython.final
cdef class Route:
    cdef readonly bytes octets
    cdef readonly object exchange
    cdef readonly str key
    cdef readonly list queues
    cdef readonly tuple owners
    cdef readonly bint by_headers
    cdef readonly unsigned long long generation
    cdef public bint ruled
