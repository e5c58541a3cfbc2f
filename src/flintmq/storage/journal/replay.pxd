cimport cython
cimport flintmq.storage.layout as layout
cimport flintmq.storage.journal.record as record
from flintmq.storage.journal.index cimport EntryIndex, OwnerSet
from flintmq.storage.journal.segment cimport Segment

@cython.final
cdef class Replay:
    cdef public EntryIndex index
    cdef public dict segments
    cdef public dict values
    cdef public unsigned long long checkpoint_sequence
    cdef public unsigned long long synced_sequence
    cdef public unsigned long long last_sequence
    cdef public unsigned long long records
    cdef public long long groups_dropped
    cdef public list holes
    cdef public list dropped
    cdef public list ungrouped
    cdef public dict moved_to
    cdef public list victims
    cdef public dict spooled
    cdef Segment _segment
    cdef list _group
    cdef unsigned int _owner_near
    cdef OwnerSet _set_near
    cdef Segment _died_near
    cdef Segment _near_target
    cdef public bint overlapping

    @cython.locals(at=Py_ssize_t, end=Py_ssize_t, length=Py_ssize_t, before=cython.ulonglong, sequence=cython.ulonglong, kind=cython.uint)
    cpdef Py_ssize_t scan(self, Segment segment, bytes octets, Py_ssize_t limit, set seen) except -1
    @cython.locals(at=Py_ssize_t, length=Py_ssize_t, kind=cython.uint)
    cpdef list sequences(self, unsigned long long number, bytes octets, Py_ssize_t limit)
    cdef int _take(self, bytes octets, Py_ssize_t at, Py_ssize_t length, unsigned long long sequence, unsigned int kind) except -1
    @cython.locals(first=cython.ulonglong, count=Py_ssize_t, each=Py_ssize_t)
    cdef _commit(self, bytes octets, Py_ssize_t at)
    cdef _drop_group(self, bytes octets)
    @cython.locals(at=Py_ssize_t, length=Py_ssize_t)
    cpdef settle_again(self, Segment segment, bytes octets, dict void)
    cdef _value(self, bytes key, unsigned long long sequence, bytes value)
    @cython.locals(key_end=Py_ssize_t, first=cython.ulonglong)
    cdef int _apply(self, bytes octets, Py_ssize_t at, Py_ssize_t length, unsigned long long sequence, unsigned int kind) except -1
    @cython.locals(segment=Segment, owner_set=OwnerSet, owner=cython.uint, size=Py_ssize_t, header_at=Py_ssize_t)
    cdef int _entry(self, bytes octets, Py_ssize_t at, Py_ssize_t length, unsigned long long sequence) except -1
    @cython.locals(original=cython.ulonglong, older=cython.ulonglong)
    cdef _moved(self, bytes octets, Py_ssize_t at, Py_ssize_t length)
    @cython.locals(segment=Segment, index=EntryIndex, run=Py_ssize_t, run_at=Py_ssize_t, owner=cython.uint, first=cython.ulonglong, end=cython.ulonglong, sequence=cython.ulonglong)
    cdef int _settle(self, bytes octets, Py_ssize_t at) except -1
    @cython.locals(segment=Segment)
    cdef int _died(self, unsigned long long number, Py_ssize_t size) except -1
    @cython.locals(near=Segment)
    cdef int _oblige(self, Segment segment, unsigned long long first, unsigned long long end) except -1
    @cython.locals(start=Py_ssize_t, length=Py_ssize_t)
    cdef Py_ssize_t _next_record(self, bytes octets, Py_ssize_t at, Py_ssize_t limit, unsigned long long before) except -1

@cython.locals(index=EntryIndex, location=cython.ulonglong, number=cython.ulonglong, size=Py_ssize_t, octets=bytes, at=Py_ssize_t, header_at=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, payload_octets=Py_ssize_t, told=Py_ssize_t)
cpdef list tell_entries(object journal, object visitor, Py_ssize_t journal_octets)
