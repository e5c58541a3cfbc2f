cimport cython
cimport flintmq.broker.messages.entry_number as entry_number
cimport flintmq.wire.amqp as amqp
cimport flintmq.wire.content as content
cimport flintmq.wire.octets as octets
cimport flintmq.broker.queues.put_flags as put_flags
cimport flintmq.wire.traits as traits
from flintmq.broker.channels.confirms cimport Confirms
from flintmq.broker.channels.unacked cimport UnackedDeliveries
from flintmq.broker.scheduling.pass_work cimport PassWork
from flintmq.broker.queues.consumer cimport Consumer
from flintmq.broker.queues.delivery cimport Delivery
from flintmq.broker.messages.message cimport Message
from flintmq.broker.queues.queue cimport Queue
from flintmq.broker.queues.ring cimport Ring
from flintmq.broker.exchanges.route cimport Route, RoutingContext
from flintmq.broker.exchanges.router cimport Router
from flintmq.broker.store.store cimport Store
from flintmq.broker.virtual_host cimport VirtualHost
from flintmq.protocol.outbox cimport Output

cdef Py_ssize_t SETTLED_MAX
cdef Py_ssize_t LARGE_BYTES_MIN


@cython.final
cdef class Channel:
    cdef readonly unsigned int number
    cdef readonly unsigned int origin
    cdef readonly VirtualHost virtual_host
    cdef readonly object user
    cdef readonly Output output
    cdef readonly Router router
    cdef PassWork pass_work
    cdef readonly dict consumers
    cdef readonly UnackedDeliveries unacked
    cdef public Confirms confirms
    cdef readonly unsigned long long delivery_tag
    cdef public long long prefetch_count
    cdef public long long prefetch_bytes
    cdef public long long global_count
    cdef public long long global_bytes
    cdef public bint shares_prefetch
    cdef readonly bint flowing
    cdef readonly dict parked
    cdef public object transaction
    cdef readonly unsigned long long unrouted
    cdef readonly unsigned long long publishes
    cdef readonly unsigned long long acks
    cdef public unsigned long long unasked
    cdef public unsigned long long redeliveries
    cdef readonly unsigned long long returns
    cdef readonly unsigned long long gets
    cdef readonly unsigned long long gets_unasked
    cdef readonly unsigned long long gets_empty
    cdef public dict get_filters
    cdef Route last_route
    cdef readonly Store store
    cdef readonly Py_ssize_t streaming
    cdef object late
    cdef public str last_queue
    cdef public str reply_name
    cdef set writable
    cdef unsigned long long rights
    cdef public bint cancel_notices
    cdef public bint by_standard
    cdef public bint numeric
    cdef public object tickets
    cdef public object files
    cdef public object messages
    cdef public tuple stream_qos

    @cython.locals(found=cython.int, size=Py_ssize_t, route=Route, message=Message)
    cpdef int publish(self, bytes route_octets, int flags, bytes whole, Py_ssize_t header_size) except -1
    cpdef disown_publish(self)
    @cython.locals(route=Route, writable=set)
    cpdef Route find_route(self, bytes route_octets)
    cdef Route new_route(self, bytes route_octets)
    cdef check_route(self, Route route)
    @cython.locals(route=Route)
    cpdef check_copies(self, list keys)
    @cython.locals(matched=list, passage=RoutingContext)
    cpdef int forward(self, Message message, Route route, int flags) except -1
    @cython.locals(happened=cython.int)
    cdef int hand_on_passed(
        self, Message message, Route route, list queues, int flags, RoutingContext passage
    ) except -1
    @cython.locals(queue=Queue, happened=cython.int, confirms=Confirms)
    cpdef int hand_on(self, Message message, Route route, list queues, int flags) except -1
    @cython.locals(passage=RoutingContext)
    cdef int forward_copies(self, Message message, Route route, int flags) except -1
    cdef note_outcome(self, int happened)
    cpdef body_of(self, Message message)
    cpdef stream(self, body, unsigned long long tag)
    cpdef stream_ended(self)
    cpdef give_back(self, Message message, unsigned int code, str text)
    cpdef send_back(self, Message message, unsigned int code, str text)
    @cython.locals(content=bytes)
    cdef write_content(self, bytes payload, Message message, body, unsigned long long tag)
    @cython.locals(delivery=Delivery)
    cpdef int ack(self, unsigned long long tag, bint multiple) except -1
    @cython.locals(settled=Py_ssize_t, delivery=Delivery, rest=list, ring=Ring)
    cdef int ack_through(self, unsigned long long tag) except -1
    @cython.locals(message=Message, queue=Queue)
    cpdef int queue_settle(self, Delivery delivery) except -1
    @cython.locals(found=Delivery, deliveries=list)
    cpdef list held(self, unsigned long long tag, bint multiple, str what)
    cpdef reject(self, unsigned long long tag, bint multiple, bint requeue, str what)
    @cython.locals(delivery=Delivery)
    cpdef discard(self, list deliveries)
    @cython.locals(delivery=Delivery, message=Message)
    cpdef refuse(self, list deliveries)
    @cython.locals(delivery=Delivery, back=Delivery, message=Message, queue=Queue, held=list, backs=list)
    cpdef requeue(self, list deliveries, bint failed=*)
    cpdef bint holds(self, unsigned long long tag)
    @cython.locals(delivery=Delivery, consumer=Consumer)
    cpdef take_back(self, unsigned long long tag)
    cdef bint is_late(self, unsigned long long tag) except -1
    cdef bint forgive(self, unsigned long long tag, bint multiple) except -1
    @cython.locals(delivery=Delivery, kept=Delivery, message=Message)
    cpdef list detach(self, list deliveries)
    @cython.locals(delivery=Delivery, message=Message, consumer=Consumer, d=Delivery)
    cpdef recover(self, bint requeue)
    cdef bint has_credit(self, Message message) noexcept
    @cython.locals(delivery=Delivery)
    cpdef bint get(self, Queue queue, bint no_ack, teller=*) except -1
    cpdef bint fetch(self, Queue queue, Delivery delivery, Message message, bint no_ack, teller=*) except -1
    cpdef note_empty_get(self)
    @cython.locals(taken=Delivery, written=Message)
    cdef bint give(self, Queue queue, Delivery delivery, Message message, bint no_ack, teller) except -1
    @cython.locals(consumer=Consumer)
    cpdef wake_parked(self)
    cpdef flow(self, bint active)
    cpdef lose_consumer(self, Consumer consumer)
    cpdef notify_cancel(self, Consumer consumer)
    cpdef close(self, farewell=*)
    cpdef retire(self, farewell)
    cpdef confirm_safe(self)
    cpdef part(self)
