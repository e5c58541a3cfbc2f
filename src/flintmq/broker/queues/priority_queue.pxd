cimport cython
from flintmq.broker.queues.consumer cimport Consumer
from flintmq.broker.queues.delivery cimport Delivery
from flintmq.broker.messages.message cimport Message
from flintmq.broker.queues.queue cimport Queue
from flintmq.broker.queues.paged_tail cimport PagedTail
from flintmq.broker.queues.stream_backlog cimport StreamBacklog


cdef class PriorityQueue(Queue):
    cdef readonly dict lanes
    cdef readonly list ranks
    cdef readonly dict places
    cdef readonly long long priority_max

    cdef long long rank_of(self, Message message) noexcept
    cdef long long rank_by(self, int found) noexcept
    @cython.locals(lane=Queue)
    cdef Queue lane(self, long long rank)
    @cython.locals(count=Py_ssize_t, lane=Queue)
    cpdef Py_ssize_t message_count(self) noexcept
    cpdef list parts(self)
    @cython.locals(lane=Queue)
    cdef int append(self, Message message) except -1
    @cython.locals(count=Py_ssize_t, lane=Queue)
    cpdef Py_ssize_t kept_count(self) except -1
    @cython.locals(lane=Queue)
    cdef page_last(self, Message message)
    @cython.locals(count=Py_ssize_t, size=cython.longlong, lane=Queue)
    cdef bint is_long(self) except -1
    @cython.locals(lane=Queue, message=Message)
    cpdef Message head(self)
    @cython.locals(lane=Queue)
    cdef close_lane(self, long long rank)
    @cython.locals(lane=Queue)
    cpdef Delivery draw(self)
    @cython.locals(lane=Queue)
    cdef Delivery draw_found(self, long long position, Message message)
    @cython.locals(lane=Queue)
    cdef Delivery draw_lowest(self)
    @cython.locals(lane=Queue)
    cdef bint is_paged(self, Message message) except -1
    @cython.locals(lane=Queue)
    cdef bint has_tail(self) except -1
    @cython.locals(lane=Queue)
    cdef note_stream(self, StreamBacklog backlog, Message message)
    @cython.locals(lane=Queue)
    cdef Message draw_at(self, int priority, long long position)
    @cython.locals(delivery=Delivery, lane=Queue)
    cpdef put_back(self, list deliveries)
    @cython.locals(lane=Queue, more=cython.bint)
    cpdef bint dispatch_selectively(self) except -1
    @cython.locals(lane=Queue, shed=Py_ssize_t)
    cpdef Py_ssize_t shed(self, Py_ssize_t most) except -1
    @cython.locals(size=cython.longlong, lane=Queue)
    cpdef Py_ssize_t body_bytes(self) except -1
    cpdef restore(self, PagedTail tail, unsigned long long handed_out)
    @cython.locals(lane=Queue)
    cpdef restore_lane(self, long long priority, PagedTail tail)
    @cython.locals(lane=Queue)
    cdef discount(self, Message message)
    @cython.locals(lane=Queue)
    cpdef purge(self)
