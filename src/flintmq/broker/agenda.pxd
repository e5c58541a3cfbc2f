cimport cython

cdef Py_ssize_t COPIES_MAX


@cython.final
cdef class Agenda:
    cdef public list queues
    cdef public list confirms
    cdef public list lost_consumers
    cdef public bint pressed
    cdef public Py_ssize_t copies
    cdef public bint behind
    cdef public bint logged
    cdef public object timetable
    cdef readonly long long now_ms

    cpdef tick(self)
    cpdef bint is_laden(self) noexcept
    cpdef bint has_work(self)
