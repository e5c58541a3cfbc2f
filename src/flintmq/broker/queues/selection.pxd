cimport cython
from flintmq.broker.matching.condition cimport Condition
from flintmq.broker.matching.lookup cimport Lookup
from flintmq.broker.messages.message cimport Message


@cython.final
cdef class Recent:
    cdef Message message
    cdef Lookup lookup

    cdef Lookup of(self, Message message)


@cython.final
cdef class Selection:
    cdef readonly Condition condition
    cdef readonly Recent recent

    cpdef bint accepts(self, Message message) noexcept


cpdef Selection selection_of(object arguments, list consumers)
