cimport cython
cimport flintmq.wire.amqp as amqp
from flintmq.broker.exchanges.router cimport Router
from flintmq.broker.scheduling.pass_work cimport PassWork
from flintmq.broker.store.store cimport Store
from flintmq.protocol.outbox cimport Output


@cython.final
cdef class Confirms:
    cdef unsigned int number
    cdef readonly unsigned int origin
    cdef readonly Router router
    cdef readonly Output output
    cdef PassWork pass_work
    cdef Store store
    cdef public bint active
    cdef bint is_due
    cdef public unsigned long long published
    cdef readonly unsigned long long confirmed
    cdef unsigned long long kept
    cdef public unsigned long long stream_batch
    cdef public list lost
    cdef object farewell

    cpdef int count(self) except -1
    cpdef note_kept(self, unsigned long long entry)
    cpdef confirm(self)
    cpdef confirm_streamed(self, unsigned long long published)
    cpdef confirm_through(self, unsigned long long published)
    cpdef confirm_safe(self)
    cpdef retire(self, farewell)
    cpdef part(self)
