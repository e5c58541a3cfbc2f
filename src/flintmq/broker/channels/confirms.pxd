cimport cython
cimport flintmq.wire.amqp as amqp
from flintmq.broker.exchanges.router cimport Router
from flintmq.broker.scheduling.pass_work cimport PassWork
from flintmq.broker.store.store cimport Store
from flintmq.protocol.outbox cimport Output

cdef Py_ssize_t TOLD_MAX
cdef long long ALL


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
    cdef readonly unsigned long long safe
    cdef public list lost
    cdef Py_ssize_t told
    cdef bint is_telling
    cdef bint joins_nacks
    cdef object farewell

    cpdef int count(self) except -1
    cpdef note_kept(self, unsigned long long entry)
    cpdef confirm(self)
    cpdef confirm_streamed(self, unsigned long long published)
    cpdef confirm_through(self, unsigned long long published)
    cdef confirm_unlost(self, unsigned long long published)
    cpdef bint tell(self, long long most) except -1
    @cython.locals(
        begun=Py_ssize_t,
        at=Py_ssize_t,
        end=Py_ssize_t,
        first=cython.ulonglong,
        last=cython.ulonglong,
    )
    cdef Py_ssize_t tell_lost(self, list lost, long long most) except -1
    cdef forget_told(self)
    cpdef confirm_safe(self)
    cpdef retire(self, farewell)
    cpdef part(self)
