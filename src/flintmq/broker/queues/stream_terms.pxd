cimport cython
cimport flintmq.wire.amqp as amqp
cimport flintmq.wire.traits as traits
from flintmq.broker.channels.channel cimport Channel
from flintmq.broker.messages.message cimport Message
from flintmq.broker.queues.consumer cimport Consumer
from flintmq.broker.queues.consumer_terms cimport ConsumerTerms


cdef class StreamTerms(ConsumerTerms):
    cdef readonly long long own_rate
    cdef bytes queue_octets

    @cython.locals(channel=Channel, route=bytes, payload=bytes, header=bytes, shown=bytes)
    cpdef deliver(
        self, Consumer consumer, Message message, unsigned long long tag, bint redelivered, bytes content, body
    )
