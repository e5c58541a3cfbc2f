cimport cython
cimport flintmq.wire.traits as traits
from flintmq.broker.messages.message cimport Message
from flintmq.broker.queues.delivery cimport Delivery
from flintmq.broker.queues.stream_backlog cimport StreamBacklog


@cython.final
cdef class Limits:
    cdef readonly long long length_max
    cdef readonly long long bytes_max
    cdef readonly long long memory_max
    cdef readonly bint refuses
    cdef readonly bint drops_lowest
    cdef public long long body_bytes
    cdef readonly StreamBacklog backlog

    cpdef set(self, rules)
    cpdef StreamBacklog need_backlog(self)
    cpdef came(self, Message message)
    cdef int note(self, Delivery delivery, int sign) except -1
    cpdef left(self, Message message)
    cdef int count(self, int sign, long long size, int found) except -1
    cpdef clear(self)
    cdef bint is_exceeded(self, Py_ssize_t count) noexcept
    cdef bint would_exceed(self, Py_ssize_t count, Py_ssize_t coming, long long size) noexcept
