cimport cython
cimport flintmq.broker.messages.entry_number as entry_number
cimport flintmq.wire.traits as traits
from flintmq.broker.messages.message cimport Message
from flintmq.broker.store.store cimport Store

cdef Py_ssize_t PASS_MS_MAX


@cython.final
cdef class Expiry:
    cdef object timetable
    cdef readonly long long ttl_ms
    cdef long long ttl_since_ms
    cdef Message momentary

    cpdef limit(self, long long ttl_ms)
    cdef stamp(self, Message message)
    @cython.locals(lifetime_ms=cython.longlong)
    cdef bint is_urgent(self, Message message) noexcept
    @cython.locals(newest=Message)
    cdef bint has_just_come(self, Message message) noexcept
    @cython.locals(until_ms=cython.longlong, since_ms=cython.longlong)
    cdef long long due_ms(self, Message message) noexcept
    @cython.locals(due_ms=cython.longlong, now_ms=cython.longlong)
    cdef bint has_expired(self, Message message) except -1
    cdef loaded(self, Message message, Store store)
