cimport cython
cimport flintmq.broker.messages.entry_number as entry_number
cimport flintmq.broker.store.entry_head as entry_head
cimport flintmq.wire.traits as traits
from flintmq.broker.messages.message cimport Message
from flintmq.storage.journal.journal cimport Journal



@cython.final
cdef class Store:
    cdef readonly Journal journal
    cdef readonly object overflow
    cdef readonly Journal paged_out
    cdef readonly object delivered_marks
    cdef readonly unsigned long long synced
    cdef readonly unsigned long long recovered
    cdef readonly object waiting
    cdef readonly dict outputs
    cdef public list handed_out
    cdef public str alarm
    cdef public long long lost
    cdef set lost_entries
    cdef public unsigned int numbers
    cdef public Py_ssize_t kept_messages
    cdef public Py_ssize_t kept_bytes
    cdef public Py_ssize_t kept_messages_lean
    cdef public Py_ssize_t kept_bytes_lean
    cdef public Py_ssize_t loaded_messages
    cdef readonly dict arrived
    cdef readonly dict held
    cdef readonly dict promised
    cdef readonly dict shared
    cdef readonly dict beside
    cdef readonly dict beside_of
    cdef unsigned long long spools
    cdef readonly set branch_owners
    cdef unsigned int branches_made
    cdef list due

    cpdef int keep(self, Message message, tuple owners) except -1
    cdef bytes head_of(self, Message message, bytes rest)
    cpdef int settle(self, unsigned int owner, unsigned long long entry) except -1
    @cython.locals(entry=cython.ulonglong)
    cpdef unsigned long long stage(self, Message message, tuple owners) except? 0
    @cython.locals(message=Message)
    cpdef list staged(self, list entries)
    @cython.locals(message=Message)
    cpdef unsigned long long journal_entry(self, unsigned int owner, Message message) except? 0
    cdef settle_spilled(self, unsigned long long entry)
    @cython.locals(entry=cython.ulonglong)
    cpdef unsigned long long spill(self, Message message) except? 0
    @cython.locals(entry=cython.ulonglong, beside=cython.ulonglong)
    cpdef unsigned long long paged_entry(self, Message message, bint is_durable) except? 0
    cpdef list load(self, list entries)
    @cython.locals(entry=cython.ulonglong, transient=Py_ssize_t)
    cpdef list read(self, list entries)
    @cython.locals(entry=cython.ulonglong, count=Py_ssize_t)
    cpdef Py_ssize_t fitting(self, list entries, Py_ssize_t octets) except -1
    @cython.locals(sequence=cython.ulonglong)
    cdef Py_ssize_t octets_of(self, unsigned long long entry) except -1
    @cython.locals(head=bytes)
    cpdef keep_spooled(self, Message message, tuple owners)
    cpdef hold(self, Message message, spool, Py_ssize_t queues)
    cpdef release(self, unsigned long long entry)
    cpdef forget_arrived(self, Message message)
    cpdef body_of(self, Message message)
    @cython.locals(entry=cython.ulonglong)
    cpdef spool_of(self, Message message)
    cpdef wait(self, confirms, unsigned long long published)
    cpdef end_pass(self)
    cpdef note_handed_out(self)
    cpdef bint is_behind(self)
    cpdef bint is_overflow_behind(self)


@cython.locals(
    message=Message, route=bytes, found=cython.int, at=Py_ssize_t, end=Py_ssize_t, arrived_ms=cython.longlong,
    lifetime_ms=cython.longlong, origin=cython.uint
)
cpdef Message restored(unsigned long long entry, bytes head, bytes content, unsigned long long recovered)
