cimport cython
from flintmq.broker.matching.lookup cimport Lookup
from flintmq.broker.messages.message cimport Message
cimport flintmq.broker.queues.put_flags as put_flags


@cython.final
cdef class Route:
    cdef readonly bytes octets
    cdef readonly object exchange
    cdef readonly str key
    cdef readonly list queues
    cdef readonly tuple owners
    cdef readonly bint by_headers
    cdef readonly unsigned long long generation
    cdef public bint ruled
    cdef public unsigned long long passed
    cdef public unsigned long long copies
    cdef public object writer


@cython.final
cdef class RoutingContext:
    cdef readonly Message message
    cdef readonly object channel
    cdef readonly str key
    cdef public bint taken
    cdef public object past
    cdef readonly list received
    cdef readonly list onward
    cdef public bint refused
    cdef readonly Lookup lookup

    cpdef dict headers(self)
    cpdef end(self, int happened)
    @cython.locals(onward=RoutingContext)
    cpdef take_back(self, bint is_unrouted=*)
