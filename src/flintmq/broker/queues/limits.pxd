cimport cython
from flintmq.broker.messages.message cimport Message


@cython.final
cdef class Limits:
    cdef readonly long long length_max
    cdef readonly long long bytes_max
    cdef readonly bint refuses
    cdef public long long body_bytes

    cpdef set(self, rules)
    cpdef came(self, Message message)
    cpdef left(self, Message message)
    cdef bint is_exceeded(self, Py_ssize_t count) noexcept
    cdef bint would_exceed(self, Py_ssize_t count, Py_ssize_t coming, long long size) noexcept
