cimport cython
cimport flintmq.clock as clock
from flintmq.broker.scheduling.pass_work cimport PassWork
from flintmq.broker.broker cimport Broker
from flintmq.histogram cimport Histogram
from flintmq.server.event_loop.read_coalescing cimport ReadCoalescing
from flintmq.protocol.outbox cimport Output, Room

cdef Py_ssize_t TURN_BYTES
cdef Py_ssize_t RESUMED_COPIES
cdef int PASSES_MORE
cdef Py_ssize_t QUEUES_FEW
cdef Py_ssize_t READ_BYTES_MIN
cdef Py_ssize_t READ_BYTES_WAITED
cdef long long REFRESH_US
cdef Py_ssize_t SENDERS_FEW
cdef long long SENDERS_US


@cython.final
cdef class PassScheduler:
    cdef object loop
    cdef Broker broker
    cdef readonly PassWork pass_work
    cdef readonly bytearray buffer
    cdef readonly object view
    cdef readonly list outbox
    cdef list writable
    cdef readonly Room room
    cdef readonly ReadCoalescing read_coalescing
    cdef bint pass_due
    cdef bint is_scheduled
    cdef bint is_stopped
    cdef object resuming
    cdef bint is_resuming
    cdef int reads
    cdef public int count
    cdef public bint is_alarmed
    cdef readonly Py_ssize_t read_bytes_max
    cdef readonly Py_ssize_t read_bytes
    cdef object alarm_clock
    cdef long long alarm_due_ms
    cdef long long began_us
    cdef long long refreshed_us
    cdef readonly dict senders
    cdef long long senders_us
    cdef public long long sent_octets
    cdef readonly bint little_waits
    cdef public object waiting_changed
    cdef public long long slow_us
    cdef public object slow_turn

    @cython.locals(share=Py_ssize_t)
    cpdef begin_turn(self, Py_ssize_t links)
    cdef int begin_time(self) except -1
    @cython.locals(took_us=cython.longlong)
    cdef int end_time(self) except -1
    cpdef note_sender(self, link)
    @cython.locals(little_waits=bint)
    cdef int count_senders(self) except -1
    cpdef limit_reads(self, Py_ssize_t most)
    cpdef after_read(self)
    cpdef resume_soon(self, link)
    cdef resume_more(self)
    cpdef resume_some(self)
    cpdef schedule_pass(self)
    cdef end_link(self, link)
    cpdef stop(self)
    cpdef scheduled_turn(self)
    cpdef has_room(self, link)
    @cython.locals(links=list, more=cython.int)
    cpdef end_turn(self)
    @cython.locals(outbox=list, output=Output, index=Py_ssize_t)
    cpdef finish_pass(self)
    cpdef set_alarm_clock(self)
    cpdef stop_alarm_clock(self)
