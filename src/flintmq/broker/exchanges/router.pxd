cimport cython
cimport flintmq.broker.messages.entry_number as entry_number
cimport flintmq.broker.matching.lookup as lookup
cimport flintmq.broker.queues.put_flags as put_flags
from flintmq.broker.scheduling.pass_work cimport PassWork
from flintmq.broker.exchanges.exchange cimport Exchange
from flintmq.broker.messages.message cimport Message
from flintmq.broker.queues.queue cimport Queue
from flintmq.broker.queues.active_rules cimport ActiveRules
from flintmq.broker.exchanges.route cimport RoutingContext, Route
from flintmq.broker.store.store cimport Store
cimport flintmq.wire.traits as traits

cdef Py_ssize_t LOOKED_AT_PER_COPY


@cython.final
cdef class Router:
    cdef readonly str name
    cdef readonly dict exchanges
    cdef readonly dict queues
    cdef readonly PassWork pass_work
    cdef readonly Store store
    cdef public object streams
    cdef readonly object chains
    cdef readonly dict routes
    cdef readonly Py_ssize_t routes_queues
    cdef readonly dict passed
    cdef RoutingContext passage
    cdef readonly unsigned long long generation
    cdef readonly dict reached
    cdef readonly unsigned long long reached_in
    cdef readonly unsigned long long rights
    cdef public object departures
    cdef public bint has_departures
    cdef public bint is_traced
    cdef public object firehose
    cdef public object policies
    cdef public object services
    cdef readonly object dead_letters

    cpdef object chance(self)
    @cython.locals(route=Route)
    cpdef Route route_of(self, bytes octets)
    cpdef fold(self, Route route)
    cpdef forget(self, Route route)
    cpdef Exchange find_exchange(self, str name, int class_id=*, int method_id=*)
    cpdef bint has_exchange_of(self, bytes octets) except -1
    @cython.locals(queue=Queue)
    cpdef tuple owners_of(self, list queues)
    @cython.locals(queue=Queue)
    cdef bint is_ruled(self, list queues) except -1
    @cython.locals(exchange=Exchange, found=dict, queues=list)
    cpdef list match(self, Route route, Message message, channel)
    @cython.locals(context=RoutingContext)
    cpdef list match_keys(self, exchange, list keys, Message message, channel)
    @cython.locals(passage=RoutingContext)
    cpdef RoutingContext take_passage(self)
    @cython.locals(route=Route, queues=list)
    cpdef tuple find_way(self, Message message, channel)
    cpdef check_way(self, Route route, Message message, channel)
    @cython.locals(queue=Queue, context=RoutingContext, work_max=Py_ssize_t, verdict=cython.int, is_over=cython.bint)
    cpdef tuple resolve(self, exchange, list keys, RoutingContext context, bint is_asked=*)
    cpdef bint go_through(
        self,
        Exchange source,
        list keys,
        RoutingContext context,
        dict found,
        Py_ssize_t work_max,
        bint is_asked,
    ) except -1
    cpdef give_up(self, RoutingContext context, bint is_asked, fault)
    @cython.locals(into=dict)
    cpdef look_up(
        self,
        Exchange source,
        list keys,
        RoutingContext context,
        headers,
        dict found,
        Py_ssize_t work_max,
        bint is_asked,
    )
    cpdef check_work(self, Exchange source, list keys, Py_ssize_t work_max)
    cpdef bint is_gone(self, destination) except -1
    cpdef list reachable(self, Route route, list further)
    cpdef dict alternate(self, exchange)
    cpdef rewired(self)
    cpdef rights_changed(self)
    @cython.locals(route=Route)
    cpdef queue_came_or_went(self, str name)
    @cython.locals(queue=Queue, count=Py_ssize_t, happened=cython.int)
    cpdef int enqueue(self, Message message, list queues, tuple owners, bint is_ruled) except -1
    cdef int enqueue_ruled(self, Message message, list queues) except -1
    @cython.locals(admitted=list, happened=cython.int)
    cdef int enqueue_admitted(self, Message message, list queues) except -1
    @cython.locals(queue=Queue, forcing=list, others=list, happened=cython.int)
    cdef int enqueue_transient(self, Message message, list queues) except -1
    @cython.locals(timed=cython.bint, is_refused=cython.bint, queue=Queue, rules=ActiveRules, admitted=list)
    cdef list admit(self, Message message, list queues)
    @cython.locals(twin=Message)
    cdef Message own_twin(self, Message message)
    @cython.locals(queue=Queue)
    cpdef bint is_refused(self, Message message, list queues) except -1
    @cython.locals(queue=Queue, found=list)
    cpdef list refusing(self, Message message, list queues)
    cdef int enqueue_stored(self, Message message, list queues, tuple owners) except -1
    @cython.locals(queue=Queue, taken=Py_ssize_t, index=Py_ssize_t, happened=cython.int)
    cdef int enqueue_kept(self, Message message, list queues, list shown) except -1
    @cython.locals(entry=cython.ulonglong)
    cpdef disown(self, Queue queue, Message message)
    @cython.locals(store=Store, queue=Queue, held=Message, owners=tuple, others=Py_ssize_t)
    cdef int enqueue_spooled(self, Message message, list queues) except -1
    @cython.locals(store=Store, queue=Queue)
    cdef hold_for_others(self, Message message, Message held, list queues, Py_ssize_t others)
    cpdef bint is_too_large(self, Message message) except -1
    @cython.locals(queue=Queue, left_out=list)
    cpdef list fitting(self, Message message, list queues)
    @cython.locals(queue=Queue)
    cpdef check_body(self, Message message, list queues)
    @cython.locals(happened=cython.int, fitting=list)
    cpdef int forward(self, Message message, list queues) except -1
    cpdef int forward_shown(self, Message message, list queues) except -1
    @cython.locals(queues=list, happened=cython.int)
    cpdef bint post(self, Message message, bint is_immediate=*) except -1
    @cython.locals(queue=Queue)
    cpdef int post_to(self, Message message, list queues, bint is_immediate) except -1
    cpdef secure_streams(self)


cpdef object copies_of(Route route)
