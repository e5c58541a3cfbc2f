cimport cython


@cython.final
cdef class State:
    cdef readonly tuple places
    cdef readonly bint accepts
    cdef readonly bint accepts_at_end
    cdef dict following


@cython.final
cdef class StateBudget:
    cdef readonly Py_ssize_t limit
    cdef readonly Py_ssize_t spent
    cdef dict warm

    cpdef spend(self, Py_ssize_t cost, object regexp)
    cpdef flush(self)


@cython.final
cdef class Regexp:
    cdef readonly list code
    cdef readonly int start
    cdef StateBudget budget
    cdef readonly dict states
    cdef State first
    cdef bint anchored
    cdef readonly Py_ssize_t steps

    cpdef bint matches(self, str text) except -1
    @cython.locals(state=State, after=State, steps=Py_ssize_t)
    cpdef bint search(self, str text, Py_ssize_t steps_max) except -1
    cdef State advance(self, State state, str letter)
    @cython.locals(state=State)
    cdef State state_of(self, list seeds, bint at_start)
    cpdef forget(self)
