cimport cython
from flintmq.broker.scheduling.pass_work cimport PassWork
from flintmq.broker.queues.consumer cimport Consumer
from flintmq.broker.queues.queue cimport Queue
from flintmq.broker.exchanges.exchange cimport Exchange
from flintmq.broker.exchanges.router cimport Router
from flintmq.broker.store.store cimport Store


@cython.final
cdef class VirtualHost:
    cdef readonly str name
    cdef readonly Store store
    cdef readonly object topology
    cdef public object streams
    cdef readonly PassWork pass_work
    cdef readonly Router router
    cdef readonly object config
    cdef object _branches
    cdef public object broker
    cdef readonly Py_ssize_t binding_count
    cdef readonly Py_ssize_t reply_queues
    cdef readonly set static_topology
    cdef readonly dict exchanges
    cdef readonly object exchange_names
    cdef readonly dict queues
    cdef readonly object queue_names
    cdef readonly object falling
    cdef readonly object tally
    cdef readonly dict exclusive
    cdef public object policies

    @cython.locals(queue=Queue)
    cpdef Queue lookup_queue(self, str name)
    @cython.locals(exchange=Exchange)
    cpdef bint hears_events(self) except -1
    @cython.locals(queue=Queue)
    cpdef consume(self, Consumer consumer)
    @cython.locals(queue=Queue)
    cpdef cancel(self, Consumer consumer)
