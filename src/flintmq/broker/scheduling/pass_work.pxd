cimport cython
from flintmq.histogram cimport Histogram
from flintmq.protocol.outbox cimport Room

cdef Py_ssize_t COPIES_ALONE_MAX
cdef Py_ssize_t COPIES_MAX
cdef Py_ssize_t COPIES_SHORT_MAX
cdef Py_ssize_t LINKS_FEW
cdef Py_ssize_t LINKS_MAX
cdef Py_ssize_t COPIES_MIN
cdef long long EARLY_MAX
cdef long long ARRIVED_MAX
cdef long long PORTION_MIN
cdef long long UNBOUNDED


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
    cdef bint chores_waited
    cdef public bint has_goals
    cdef public bint pressed
    cdef public bint drained
    cdef public object crowded
    cdef public bint is_promised
    cdef public Py_ssize_t copies
    cdef readonly Py_ssize_t copies_full
    cdef readonly Py_ssize_t copies_max
    cdef public long long arrived
    cdef readonly long long arrived_before
    cdef readonly long long handed_out_max
    cdef readonly long long pass_left
    cdef public long long portion
    cdef readonly long long early_left
    cdef public long long offered
    cdef public bint behind
    cdef public object timetable
    cdef readonly long long now_ms
    cdef public bint is_short
    cdef public bint is_critical
    cdef public object is_memory_full
    cdef public long long hoard_bytes_max
    cdef readonly dict hoarders
    cdef public Py_ssize_t transaction_bytes_max
    cdef public Py_ssize_t unwatched_bytes
    cdef readonly Room room
    cdef readonly Histogram turn_times
    cdef readonly Histogram waits
    cdef long long sampled_ms
    cdef readonly object fates

    cpdef bint wake_hoarders(self, Py_ssize_t most) except -1
    cpdef tick(self)
    cdef int note_wait(self, long long arrived_ms) except -1
    cpdef load(self)
    @cython.locals(most=Py_ssize_t)
    cpdef share(self, Py_ssize_t links)
    cpdef keep_waiting(self, bint others)
    @cython.locals(arrived=cython.longlong)
    cpdef int begin_pass(self) noexcept
    cpdef int begin_early(self) noexcept
    cpdef int end_early(self) noexcept
    cpdef int begin_portion(self, long long queues) noexcept
    @cython.locals(more=cython.longlong)
    cpdef int widen_portion(self) noexcept
    cpdef int charge_offers(self) noexcept
    cpdef int end_portion(self) noexcept
    cpdef bint is_laden(self) noexcept
    cpdef int pause_ms(self) except -1
    cpdef bint is_turn_of_chores(self)
    cpdef bint has_work(self)
