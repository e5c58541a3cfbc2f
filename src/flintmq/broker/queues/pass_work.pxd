cimport cython
from flintmq.protocol.outbox cimport Room

cdef Py_ssize_t COPIES_MAX
cdef Py_ssize_t COPIES_SHORT_MAX
cdef Py_ssize_t LINKS_MAX
cdef Py_ssize_t COPIES_MIN


@cython.final
cdef class PassWork:
    cdef public list queues
    cdef public list confirms
    cdef public list lost_consumers
    cdef public unsigned long long passes
    cdef readonly object chores
    cdef readonly dict asking
    cdef readonly dict awaiting
    cdef public bint has_chores
    cdef public bint pressed
    cdef public bint is_promised
    cdef public Py_ssize_t copies
    cdef readonly Py_ssize_t copies_max
    cdef public bint behind
    cdef public object timetable
    cdef readonly long long now_ms
    cdef public bint is_short
    cdef public bint is_critical
    cdef public long long hoard_bytes_max
    cdef readonly dict hoarders
    cdef public Py_ssize_t transaction_bytes_max
    cdef public Py_ssize_t unwatched_bytes
    cdef readonly Room room

    cpdef bint wake_hoarders(self, Py_ssize_t most) except -1
    cpdef tick(self)
    cpdef load(self)
    @cython.locals(most=Py_ssize_t)
    cpdef share(self, Py_ssize_t links)
    cpdef bint is_laden(self) noexcept
    cpdef bint has_work(self)
