cimport cython
from flintmq.broker.matching.condition cimport Condition
from flintmq.broker.matching.lookup cimport Lookup
from flintmq.broker.messages.message cimport Message
from flintmq.broker.scheduling.pass_work cimport PassWork


@cython.final
cdef class LastLookup:
    cdef Message message
    cdef Lookup lookup

    cdef Lookup of(self, Message message)


@cython.final
cdef class ConsumerSelector:
    cdef readonly Condition condition
    cdef readonly long long cost
    cdef long long cost_min
    cdef readonly LastLookup recent

    cpdef bint accepts(self, Message message) noexcept


cpdef ConsumerSelector selection_of(object arguments, list consumers, PassWork pass_work)

cpdef ConsumerSelector selector_of(Condition condition)
