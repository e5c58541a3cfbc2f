cimport cython
from flintmq.broker.messages.message cimport Message

cdef long long OWED_MS
cdef long long DUE_PART


@cython.final
cdef class ServiceGoals:
    cdef object timetable
    cdef readonly long long wait_ms_max
    cdef readonly long long bandwidth
    cdef readonly long long owed
    cdef long long filled_ms
    cdef readonly long long late

    cpdef set(self, long long wait_ms_max, long long bandwidth)
    @cython.locals(size=cython.longlong)
    cpdef int handed_out(self, Message message, long long now_ms) except -1
    @cython.locals(due_ms=cython.longlong)
    cpdef long long due_ms(self, Message message, long long now_ms) except *
    @cython.locals(most=cython.longlong, needed_ms=cython.longlong)
    cpdef bint is_owed(self, long long now_ms) except -1
