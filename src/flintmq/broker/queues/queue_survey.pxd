cimport cython
from flintmq.broker.messages.message cimport Message
from flintmq.broker.queues.delivery cimport Delivery
from flintmq.broker.queues.queue cimport Queue

cdef long long READY_MESSAGE_BYTES
cdef long long PAGED_MESSAGE_BYTES
cdef unsigned long long MIX_START
cdef unsigned long long MIX_PRIME
cdef unsigned long long MIX_MASK


@cython.final
cdef class QueueSums:
    cdef str hidden
    cdef readonly long long queues
    cdef readonly long long consumers
    cdef readonly long long ready
    cdef readonly long long streams
    cdef readonly long long kept
    cdef readonly long long unacked
    cdef readonly long long delayed
    cdef readonly long long ready_bytes
    cdef readonly long long oldest_ms

    @cython.locals(name=str, queue=Queue, lane=Queue)
    cpdef add(self, dict queues, list names)
    @cython.locals(held=Py_ssize_t, oldest_ms=cython.longlong)
    cdef int add_lane(self, Queue lane) except -1


@cython.locals(lane=Queue, found=cython.longlong, oldest_ms=cython.longlong)
cpdef long long oldest_ms_of(Queue queue) except -1

@cython.locals(delivery=Delivery, message=Message)
cdef long long head_ms(Queue lane) except -1


@cython.final
cdef class Mark:
    cdef unsigned long long value
    cdef long long changed_in


@cython.final
cdef class QueueMarks:
    cdef readonly dict known
    cdef readonly dict gone

    cpdef forget(self, str name, long long now)
    cpdef list gone_since(self, long long since)
    @cython.locals(queue=Queue, mark=Mark, value=cython.ulonglong, found=list)
    cpdef list changed(self, list queues, long long since, long long now, mark_of_other)


@cython.locals(name=str, queue=Queue, found=list)
cpdef list shown_queues(dict queues, list names, str hidden, departed)

@cython.locals(mark=cython.ulonglong, count=cython.longlong)
cdef unsigned long long plain_mark(Queue queue) except? 0

cdef unsigned long long mixed(unsigned long long mark, unsigned long long value) noexcept

cpdef tuple counts_of(tally)
