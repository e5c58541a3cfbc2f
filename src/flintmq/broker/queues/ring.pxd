cimport cython

cdef Py_ssize_t SMALLEST
cdef Py_ssize_t NEAR_MAX
cdef Py_ssize_t BLOCK_BITS
cdef Py_ssize_t BLOCK


@cython.final
cdef class Ring:
    cdef list items
    cdef Py_ssize_t mask
    cdef Py_ssize_t head
    cdef readonly Py_ssize_t count
    cdef Py_ssize_t near
    cdef Py_ssize_t room
    cdef list blocks

    cpdef int push(self, item) except -1
    @cython.locals(block=list)
    cdef bint put_beyond(self, item) except -1
    cpdef pop(self)
    @cython.locals(block=list, near=Py_ssize_t)
    cdef draw_near(self)
    @cython.locals(block=list)
    cpdef pop_last(self)
    @cython.locals(block=list)
    cpdef at(self, Py_ssize_t index)
    @cython.locals(block=list)
    cpdef replace(self, Py_ssize_t index, item)
    cdef grow(self)
    cpdef clear(self)
