cimport cython
from flintmq.broker.queues.consumer cimport Consumer
from flintmq.broker.messages.message cimport Message
from flintmq.broker.queues.queue cimport Queue
from flintmq.broker.store.store cimport Store


@cython.final
cdef class PagedMessage:
    cdef readonly unsigned long long entry
    cdef readonly long long body_size
    cdef readonly Py_ssize_t content_size
    cdef readonly int traits

    @staticmethod
    @cython.locals(paged=PagedMessage)
    cdef PagedMessage create(unsigned long long entry, Message message)


@cython.final
cdef class Delivery:
    cdef readonly unsigned long long tag
    cdef public Message message
    cdef readonly PagedMessage paged
    cdef readonly Queue queue
    cdef public Consumer consumer
    cdef readonly long long position
    cdef public int redeliveries

    @staticmethod
    @cython.locals(delivery=Delivery)
    cdef Delivery create(
        unsigned long long tag, Message message, Queue queue, Consumer consumer, long long position, int redeliveries
    )
    @cython.locals(message=Message)
    cpdef Py_ssize_t page_out(self, Store store, bint is_durable) except -1
    cpdef page_in(self, Message message)
    cpdef unsigned long long entry(self) noexcept
    cpdef Py_ssize_t content_size(self) except -1


cpdef Delivery new_delivery(Message message, Queue queue, long long position, int redeliveries)
