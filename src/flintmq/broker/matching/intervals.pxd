cimport cython
from flintmq.broker.matching.condition cimport Condition


@cython.final
cdef class Intervals:
    cdef dict entries
    cdef dict pending
    cdef list lows
    cdef list highs
    cdef list reaches
    cdef list conditions

    cpdef Py_ssize_t count(self) except -1
    cpdef add(self, object low, object high, object condition)
    cpdef remove(self, object low, object high, object condition)
    @cython.locals(hits=list, entry=tuple)
    cpdef list stab(self, object value)
    cdef rebuild(self)
    @cython.locals(middle=Py_ssize_t)
    cdef object reach(self, Py_ssize_t low, Py_ssize_t high)
    @cython.locals(middle=Py_ssize_t, condition=Condition)
    cdef search(self, object value, Py_ssize_t low, Py_ssize_t high, list hits)
