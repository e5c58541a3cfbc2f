cimport cython
from flintmq.broker.matching.lookup cimport Lookup

cdef Py_ssize_t LETTERS_A_STEP

@cython.final
cdef class Segment:
    cdef readonly str text
    cdef readonly Py_ssize_t size
    cdef readonly set wild
    cdef dict masks
    cdef object last

    @cython.locals(at=Py_ssize_t)
    cdef bint fits(self, str text, Py_ssize_t start)
    @cython.locals(at=Py_ssize_t, one=object, state=object)
    cdef Py_ssize_t find(self, str text, Py_ssize_t start, Py_ssize_t end) except -2


@cython.final
cdef class Wildcard:
    cdef readonly list segments
    cdef readonly Py_ssize_t shortest
    cdef readonly Py_ssize_t cost

    @cython.locals(start=Py_ssize_t, end=Py_ssize_t, index=Py_ssize_t, segment=Segment, last=Segment)
    cpdef bint matches(self, str text, Lookup lookup=*) except -1
