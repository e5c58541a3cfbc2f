cimport cython
cimport flintmq.storage.layout as layout
from flintmq.storage.journal.appender cimport Appender
from flintmq.storage.journal.batch cimport Batch
from flintmq.storage.journal.index cimport EntryIndex
from flintmq.storage.journal.segment cimport Segment

@cython.final
cdef class Journal(Appender):
    cdef readonly str directory
    cdef readonly object disk
    cdef readonly object clock
    cdef public object on_synced
    cdef public object on_alarm
    cdef public object on_damage
    cdef public object on_clear
    cdef public str alarm
    cdef object _lock
    cdef str _lock_path
    cdef readonly object promises
    cdef readonly str missing
    cdef double _list_due_s
    cdef public object now_ms
    cdef object _worker
    cdef readonly object tidier
    cdef readonly object writer
    cdef readonly object reader
    cdef readonly object reclaimer
    cdef Batch _idle
    cdef Batch _in_flight
    cdef list _written
    cdef Py_ssize_t _written_octets
    cdef double _sync_due_s
    cdef double _retry_due_s
    cdef bint _write_failed
    cdef bint _failed_before
    cdef str _write_error
    cdef readonly str held
    cdef public Py_ssize_t behind_octets
    cpdef end_batch(self)
    cpdef bint is_behind(self)
    @cython.locals(batch=Batch, index=Py_ssize_t)
    cpdef list read_entries(self, list sequences)
    cpdef Py_ssize_t entry_octets(self, unsigned long long sequence) except -1
    @cython.locals(sequence=cython.ulonglong, location=cython.ulonglong, number=cython.ulonglong, at=Py_ssize_t, size=Py_ssize_t, start=Py_ssize_t, header_at=Py_ssize_t, octets=bytes)
    cdef tuple _read(self, list sequences, Py_ssize_t index, list unwritten)
    @cython.locals(batch=Batch)
    cdef bytes _octets_unwritten(self, unsigned long long number, Py_ssize_t at, Py_ssize_t size, list unwritten)
    @cython.locals(end=Py_ssize_t, location=cython.ulonglong, start=Py_ssize_t, stop=Py_ssize_t)
    cdef Py_ssize_t _run_end(self, list sequences, Py_ssize_t index, unsigned long long number, Py_ssize_t at) except -1
