cimport cython
cimport flintmq.wire.traits as traits
from flintmq.broker.scheduling.pass_work cimport PassWork
from flintmq.broker.channels.channel cimport Channel
from flintmq.broker.exchanges.router cimport Router
from flintmq.broker.queues.delivery cimport Delivery
from flintmq.broker.messages.message cimport Message
from flintmq.broker.queues.active_rules cimport ActiveRules
from flintmq.broker.queues.queue cimport Queue
from flintmq.broker.queues.retries cimport Retries
from flintmq.broker.queues.consumer_selector cimport ConsumerSelector
from flintmq.broker.queues.consumer_terms cimport ConsumerTerms
from flintmq.protocol.outbox cimport Output

cdef long long HOARDED_MESSAGE_BYTES
cdef Py_ssize_t LARGE_BYTES


@cython.final
cdef class Consumer:
    cdef readonly Channel channel
    cdef readonly Output output
    cdef readonly Queue queue
    cdef readonly str tag
    cdef readonly bytes tag_octets
    cdef readonly bint no_ack
    cdef readonly bint no_local
    cdef readonly bint exclusive
    cdef readonly dict arguments
    cdef readonly long long priority
    cdef readonly ConsumerSelector selection
    cdef public long long prefetch_count
    cdef public long long prefetch_bytes
    cdef public long long outstanding
    cdef public long long outstanding_bytes
    cdef public bint parked
    cdef public bint cancelled
    cdef public long long seen
    cdef public long long joined
    cdef readonly ConsumerTerms terms
    cdef readonly int content_class

    cpdef bint is_selective(self)
    cdef bint accepts(self, Message message) noexcept
    cdef bint ready(self, Message message) except -1
    @cython.locals(pass_work=PassWork)
    cdef bint hoards(self) except -1
    cpdef park(self)
    cpdef forget(self)
    @cython.locals(channel=Channel, delivery=Delivery, size=Py_ssize_t)
    cdef int deliver(self, Message message, long long position, int redeliveries) except -1
    @cython.locals(channel=Channel, written=Message, content=bytes)
    cdef bint write_unusual(self, Message message, int redeliveries) except -1
    cdef undelivered(self, Message message, long long position, long long redeliveries)
    @cython.locals(channel=Channel)
    cdef int settled(self, Py_ssize_t size) except -1
    cpdef wake(self)
    cpdef notify_cancel(self)
