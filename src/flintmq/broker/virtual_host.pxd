cimport cython
cimport flintmq.broker.lookup as lookup
from flintmq.broker.agenda cimport Agenda
from flintmq.broker.consumer cimport Consumer
from flintmq.broker.exchange cimport Exchange
from flintmq.broker.message cimport Message
from flintmq.broker.queue cimport Queue
from flintmq.broker.route cimport Route
from flintmq.broker.store cimport Store


@cython.final
cdef class VirtualHost:
    cdef readonly str name
    cdef readonly Store store
    cdef readonly object wiring
    cdef readonly Agenda agenda
    cdef readonly dict exchanges
    cdef readonly dict queues
    cdef readonly dict exclusive
    cdef readonly dict routes
    cdef readonly unsigned long long generation

    @cython.locals(route=Route)
    cpdef Route route_of(self, bytes octets)
    @cython.locals(queue=Queue)
    cpdef tuple owners_of(self, list queues)
    @cython.locals(exchange=Exchange, found=dict, queues=list)
    cpdef list match(self, Route route, Message message)
    @cython.locals(route=Route)
    cpdef queue_came_or_went(self, str name)
    @cython.locals(queue=Queue)
    cpdef consume(self, Consumer consumer)
    @cython.locals(queue=Queue)
    cpdef cancel(self, Consumer consumer)
