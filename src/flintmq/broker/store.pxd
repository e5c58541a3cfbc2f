cimport cython
from flintmq.broker.message cimport Message
from flintmq.storage.journal cimport Journal


@cython.final
cdef class Store:
    cdef readonly Journal journal
    cdef readonly object overflow
    cdef readonly unsigned long long synced
    cdef readonly object waiting
    cdef readonly dict outputs
    cdef public list handed_out
    cdef public str alarm
    cdef public unsigned int numbers
    cdef public Py_ssize_t kept_messages
    cdef public Py_ssize_t kept_bytes
    cdef public Py_ssize_t kept_messages_lean
    cdef public Py_ssize_t kept_bytes_lean
    cdef public Py_ssize_t loaded_messages

    cdef int keep(self, Message message, tuple owners) except -1
    cdef int settle(self, unsigned int owner, unsigned long long entry) except -1
    cpdef unsigned long long spill(self, Message message) except? 0
    cpdef list load(self, list entries)
    cpdef wait(self, channel, unsigned long long published)


@cython.locals(message=Message)
cpdef Message restored(unsigned long long entry, bytes head, bytes content)
