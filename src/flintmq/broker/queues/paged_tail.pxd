cimport cython


@cython.final
cdef class PagedTail:
    cdef list runs
    cdef Py_ssize_t taken
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t holes
    cdef public long long octets

    cpdef push(self, unsigned long long entry)
    @cython.locals(end=Py_ssize_t, holes=Py_ssize_t, taken=list)
    cpdef list take(self, Py_ssize_t most)
    @cython.locals(at=Py_ssize_t, found=list)
    cpdef list window(self, Py_ssize_t start, Py_ssize_t most)
    @cython.locals(holes=Py_ssize_t)
    cpdef put_back(self, list entries)
    cpdef punch(self, Py_ssize_t index)
    @cython.locals(found=list, before=Py_ssize_t, number=Py_ssize_t, at=Py_ssize_t, holes=Py_ssize_t)
    cpdef list pick(self, set wanted)
    @cython.locals(skipped=Py_ssize_t)
    cpdef Py_ssize_t skip_holes(self) except -1
    cpdef bint is_hole(self, Py_ssize_t index) except -1
    cpdef bint fill(self, Py_ssize_t index, unsigned long long entry) except -1
    @cython.locals(at=Py_ssize_t, number=Py_ssize_t)
    cpdef tuple place_of(self, Py_ssize_t index)
    cpdef clear(self)
