cimport cython
cimport flintmq.broker.messages.entry_number as entry_number
cimport flintmq.broker.queues.put_flags as put_flags
cimport flintmq.wire.traits as traits
from flintmq.broker.queues.consumer cimport Consumer
from flintmq.broker.queues.delivery cimport Delivery
from flintmq.broker.messages.message cimport Message
from flintmq.broker.queues.queue cimport Queue
from flintmq.broker.queues.paged_tail cimport PagedTail
from flintmq.broker.streams.stream_reader cimport StreamReader
from flintmq.storage.streams.chunk cimport ChunkBuilder
from flintmq.broker.scheduling.pass_work cimport PassWork
from flintmq.protocol.outbox cimport Output

cdef Py_ssize_t PRESSED_OCTETS
cdef long long SHARE_MIN
cdef Py_ssize_t UNWANTED_SHIFT
cdef double SELECTING_S
cdef Py_ssize_t SELECTED_MASK
cdef Py_ssize_t AGAIN_MS
cdef Py_ssize_t TIME_EVERY_MASK


cdef class StreamQueue(Queue):
    cdef readonly object streams
    cdef readonly object log
    cdef readonly ChunkBuilder builder
    cdef readonly str what
    cdef unsigned long long now_ms
    cdef Py_ssize_t full_octets
    cdef readonly dict readers
    cdef dict due
    cdef bint all_due
    cdef double until_s
    cdef bint reads_later

    cpdef Py_ssize_t message_count(self) noexcept
    @cython.locals(spooled=cython.uint, happened=cython.int)
    cpdef int enqueue(self, Message message) except -1
    @cython.locals(builder=ChunkBuilder, value=bytes, fill=Py_ssize_t)
    cdef int write(self, Message message, bytes content) except -1
    @cython.locals(content=bytes)
    cpdef int write_spooled(self, Message message) except -1
    cpdef bint can_take_now(self, Message message)
    cpdef mark(self)
    cdef int go_on_feeding(self) except -1
    @cython.locals(consumer=Consumer, reader=StreamReader, pass_work=PassWork, share=cython.longlong, due=dict)
    cpdef int dispatch(self) except -1
    @cython.locals(
        is_selective=bint, message=Message, offset=cython.longlong, pass_work=PassWork, least=cython.longlong,
        index=Py_ssize_t
    )
    cdef bint feed(self, Consumer consumer, StreamReader reader, long long share) except -1
    @cython.locals(now_s=double)
    cdef bint is_late(self) except -1
    cdef int read_later(self, StreamReader reader, object failure) except -1
    cpdef rejoin(self, Consumer consumer)
    cpdef subscribe(self, Consumer consumer)
    cpdef unsubscribe(self, Consumer consumer)
    @cython.locals(consumer=Consumer, each=Consumer)
    cpdef unsubscribe_many(self, list consumers)
    cpdef int settle(self, Message message) except -1
    cpdef int hand_out(self, Message message, Output output) except -1
    cpdef requeue(self, list deliveries, bint failed=*)
    cpdef restore(self, PagedTail tail, unsigned long long handed_out)
    cpdef Py_ssize_t shed(self, Py_ssize_t most) except -1
    cpdef Delivery take(self)
    cpdef purge(self)


cpdef read_again(StreamQueue queue)
