cimport cython
cimport flintmq.broker.matching.lookup as lookup
from flintmq.broker.queues.pass_work cimport Agenda
from flintmq.broker.queues.consumer cimport Consumer
from flintmq.broker.exchanges.exchange cimport Exchange
from flintmq.broker.messages.message cimport Message
from flintmq.broker.queues.queue cimport Queue
from flintmq.broker.queues.regime cimport Regime
from flintmq.broker.exchanges.route cimport Passage, Route
from flintmq.broker.store.store cimport Store
cimport flintmq.wire.traits as traits


@cython.final
cdef class VirtualHost:
    cdef readonly str name
    cdef readonly Store store
    cdef readonly object wiring
    cdef public object streams
    cdef readonly Agenda agenda
    cdef readonly object branches
    cdef public object broker
    cdef readonly Py_ssize_t binding_count
    cdef readonly object chains
    cdef readonly set configured
    cdef readonly dict exchanges
    cdef readonly object exchange_names
    cdef readonly dict queues
    cdef readonly object queue_names
    cdef readonly object falling
    cdef public bint is_falling
    cdef readonly dict exclusive
    cdef readonly dict routes
    cdef readonly object dead_letters
    cdef public object policies
    cdef readonly unsigned long long generation

    @cython.locals(route=Route)
    cpdef Route route_of(self, bytes octets)
    @cython.locals(queue=Queue)
    cpdef tuple owners_of(self, list queues)
    @cython.locals(queue=Queue)
    cpdef bint is_ruled(self, list queues)
    cpdef list admit(self, Message message, list queues)
    @cython.locals(exchange=Exchange, found=dict, queues=list)
    cpdef list match(self, Route route, Message message, channel)
    @cython.locals(passage=Passage)
    cpdef list match_keys(self, exchange, list keys, Message message, channel)
    @cython.locals(queue=Queue)
    cpdef Queue lookup_queue(self, str name)
    @cython.locals(queue=Queue, passage=Passage)
    cpdef tuple resolve(self, exchange, list keys, Passage passage)
    @cython.locals(route=Route, queues=list)
    cpdef bint post(self, Message message) except -1
    cpdef hand_over(self, Message message, list queues)
    @cython.locals(route=Route)
    cpdef queue_came_or_went(self, str name)
    @cython.locals(queue=Queue)
    cpdef consume(self, Consumer consumer)
    @cython.locals(queue=Queue)
    cpdef cancel(self, Consumer consumer)
