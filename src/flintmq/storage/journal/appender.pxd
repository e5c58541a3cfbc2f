cimport cython
cimport flintmq.storage.layout as layout
cimport flintmq.storage.journal.record as record
from flintmq.storage.journal.batch cimport Batch
from flintmq.storage.journal.index cimport EntryIndex, OwnerSet
from flintmq.storage.journal.segment cimport Segment

cdef class Appender:
    cdef object __weakref__
    cdef readonly object options
    cdef public EntryIndex index
    cdef public dict segments
    cdef public dict values
    cdef public long long value_octets
    cdef public unsigned long long epoch
    cdef public unsigned long long next_sequence
    cdef public unsigned long long next_segment
    cdef public unsigned long long synced_sequence
    cdef public bint opened
    cdef readonly object spools
    cdef dict _adopted
    cdef Batch _batch
    cdef Segment _segment
    cdef Segment _near
    cdef bint _piece_open
    cdef unsigned long long _previous
    cdef Py_ssize_t _previous_end
    cdef unsigned int _flags
    cdef unsigned long long _group_first
    cdef Py_ssize_t _group_start
    cdef tuple _owners_near
    cdef OwnerSet _set_near
    cdef bytearray _runs
    cdef Py_ssize_t _runs_fill
    cdef unsigned int _run_owner
    cdef unsigned long long _run_first
    cdef unsigned int _run_count
    cdef unsigned long long _run_target
    cdef dict _run_targets
    cpdef unsigned long long append_entry(self, tuple owners, bytes header, bytes payload) except? 0
    @cython.locals(owner_set=OwnerSet, length=Py_ssize_t, size=Py_ssize_t, fill=Py_ssize_t, segment=Segment, batch=Batch, sequence=cython.ulonglong)
    cdef unsigned long long _append_entry(self, tuple owners, bytes header, bytes payload, unsigned int flags) except? 0
    @cython.locals(state=cython.int, target=cython.ulonglong)
    cpdef bint append_settle(self, unsigned int owner, unsigned long long sequence) except -1
    cpdef unsigned long long append_value(self, unsigned int kind, bytes key, bytes octets) except? 0
    cpdef begin_group(self)
    cpdef bint in_group(self)
    cpdef unsigned long long commit_group(self) except? 0
    @cython.locals(owners=tuple, length=Py_ssize_t, size=Py_ssize_t, segment=Segment, batch=Batch)
    cpdef int append_moved(self, unsigned long long original, unsigned int flags, bytes header, bytes payload) except -1
    cdef unsigned long long _take_sequence(self) except? 0
    cdef Segment _current(self)
    @cython.locals(length=Py_ssize_t, size=Py_ssize_t, segment=Segment, batch=Batch, sequence=cython.ulonglong, at=Py_ssize_t)
    cdef unsigned long long _append_plain(self, unsigned int kind, unsigned int flags, Py_ssize_t count, bytes body) except? 0
    @cython.locals(segment=Segment, needed=Py_ssize_t)
    cdef int _room(self, Py_ssize_t size) except -1
    @cython.locals(segment=Segment, batch=Batch, length=Py_ssize_t, size=Py_ssize_t, kind=cython.uint)
    cdef _lay_out(self, bytes octets, Py_ssize_t at, Py_ssize_t end, Segment old)
    cdef bint _given_up(self, bytes octets, Py_ssize_t at, unsigned int kind) except -1
    cdef _laid_out(self, unsigned long long sequence, unsigned int kind, Py_ssize_t size, Segment old)
    @cython.locals(at=Py_ssize_t)
    cdef int _end_run(self) except -1
    cpdef int flush_settles(self) except -1
    @cython.locals(segment=Segment)
    cdef int _died(self, unsigned long long number, Py_ssize_t size, unsigned long long sequence) except -1
    cdef public list victims
    cdef public bint emptied
