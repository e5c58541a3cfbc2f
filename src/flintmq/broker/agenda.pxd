cimport cython


@cython.final
cdef class Agenda:
    cdef public list queues
    cdef public list confirms
    cdef public list lost_consumers
    cdef public bint pressed
    cdef public bint behind
    cdef public bint logged
    cdef public object timetable
    cdef readonly long long now_ms

    cpdef tick(self)
    cpdef bint has_work(self)
