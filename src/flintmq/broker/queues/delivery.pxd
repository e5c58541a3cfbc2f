cimport cython
from flintmq.broker.queues.consumer cimport Consumer
from flintmq.broker.messages.message cimport Message
from flintmq.broker.queues.queue cimport Queue


@cython.final
cdef class Delivery:
    cdef readonly unsigned long long tag
    cdef public Message message
    cdef readonly Queue queue
    cdef public Consumer consumer
    cdef readonly long long position
    cdef public int redeliveries

    @staticmethod
    @cython.locals(delivery=Delivery)
    cdef Delivery create(
        unsigned long long tag, Message message, Queue queue, Consumer consumer, long long position, int redeliveries
    )


cpdef Delivery new_delivery(Message message, Queue queue, long long position, int redeliveries)
