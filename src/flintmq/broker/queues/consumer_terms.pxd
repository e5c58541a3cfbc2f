cimport cython
cimport flintmq.wire.amqp as amqp
from flintmq.broker.channels.channel cimport Channel
from flintmq.broker.messages.message cimport Message
from flintmq.broker.queues.consumer cimport Consumer
from flintmq.protocol.outbox cimport Output

cdef long long BURST_MS
cdef long long WAKE_MS


cdef class ConsumerTerms:
    cdef readonly int content_class
    cdef readonly long long rate
    cdef readonly long long credit
    cdef long long filled_ms
    cdef readonly long long window_bytes
    cdef readonly long long window_count
    cdef long long ahead_bytes
    cdef long long ahead_count
    cdef object alarm
    cdef Consumer consumer

    cpdef limit(self, long long rate, long long window_bytes=*, long long window_count=*)
    cpdef bint admits(self, Consumer consumer, Message message) except -1
    @cython.locals(size=Py_ssize_t)
    cdef int spend(self, Message message) except -1
    @cython.locals(now_ms=cython.longlong, wait_ms=cython.longlong, needed_ms=cython.longlong)
    cdef bint fill(self, Consumer consumer) except -1
    @cython.locals(consumer=Consumer)
    cpdef rested(self)
    @cython.locals(output=Output)
    cdef bint has_window(self, Consumer consumer, Message message) except -1
    @cython.locals(channel=Channel)
    cpdef deliver(
        self, Consumer consumer, Message message, unsigned long long tag, bint redelivered, bytes content, body
    )
    cpdef forget(self)
