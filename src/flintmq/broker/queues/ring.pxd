cimport cython

cdef Py_ssize_t SMALLEST
cdef Py_ssize_t KEPT


@cython.final
cdef class Ring:
    cdef list items
    cdef Py_ssize_t mask
    cdef Py_ssize_t head
    cdef readonly Py_ssize_t count

    cpdef int push(self, item) except -1
    cpdef pop(self)
    cpdef pop_last(self)
    cpdef at(self, Py_ssize_t index)
    cpdef replace(self, Py_ssize_t index, item)
    cdef grow(self)
    cpdef clear(self)
