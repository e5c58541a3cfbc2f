cimport cython


@cython.final
cdef class ReadCoalescing:
    cdef public Py_ssize_t octets
    cdef readonly int turns
    cdef readonly double usual_octets
    cdef readonly bint pausing
    cdef double ended_s

    @cython.locals(octets=Py_ssize_t, now_s=double, gap_s=double)
    cpdef end_turn(self)
