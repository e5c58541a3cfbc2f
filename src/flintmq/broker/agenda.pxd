cimport cython


@cython.final
cdef class Agenda:
    cdef public list queues
    cdef public list confirms
    cdef public bint pressed
