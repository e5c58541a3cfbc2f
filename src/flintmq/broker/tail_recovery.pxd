cimport cython
cimport flintmq.broker.messages.entry_number as entry_number
cimport flintmq.broker.store.entry_head as entry_head
cimport flintmq.wire.traits as traits
from flintmq.broker.queues.paged_tail cimport PagedTail


@cython.final
cdef class TailRecovery:
    cdef object branches
    cdef readonly dict tails
    cdef readonly dict ranked
    cdef readonly dict priorities_max
    cdef readonly set timed
    cdef readonly dict delays

    @cython.locals(found=cython.uint, size=Py_ssize_t, priority=cython.uint, tail=PagedTail)
    cpdef entry(self, unsigned long long sequence, tuple owners, bytes header, Py_ssize_t payload_octets)
