cimport cython
cimport flintmq.storage.layout as layout
cimport flintmq.storage.journal.record as record
from flintmq.storage.journal.segment cimport Segment

cdef class Piece:
    cdef public Segment segment
    cdef public Py_ssize_t at
    cdef public Py_ssize_t start
    cdef public Py_ssize_t end

cdef class Batch:
    cdef public bytearray buffer
    cdef public Py_ssize_t fill
    cdef public unsigned long long last_sequence
    cdef public list pieces
    cdef public list spools

    cpdef clear(self)
    cpdef int grow(self, Py_ssize_t room) except -1
    @cython.locals(body=Py_ssize_t, length=Py_ssize_t)
    cpdef start_piece(self, Segment segment, bytes head, unsigned long long sequence, unsigned long long synced)
    cpdef end_segment(self, Segment segment, unsigned long long sequence)
    cpdef end_piece(self)
