cimport cython
from flintmq.broker.messages.message cimport Message
from flintmq.broker.queues.consumer cimport Consumer
from flintmq.broker.queues.delivery cimport Delivery
from flintmq.broker.queues.queue cimport Queue
from flintmq.broker.queues.ring cimport Ring


@cython.final
cdef class UnackedDeliveries:
    cdef readonly Ring ring
    cdef readonly long long fetched
    cdef public long long outstanding
    cdef readonly long long outstanding_bytes

    cdef int add(self, Delivery delivery, Py_ssize_t size) except -1
    cdef fetch(self, Delivery delivery)
    @cython.locals(newest=Delivery)
    cdef bint ends_with(self, Message message, Queue queue) except -1
    @cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, guess=cython.longlong, delivery=Delivery)
    cdef Delivery find(self, unsigned long long tag)
    @cython.locals(delivery=Delivery, index=Py_ssize_t)
    cdef list through(self, unsigned long long tag)
    @cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, delivery=Delivery)
    cpdef last_through(self, unsigned long long tag)
    @cython.locals(message=Message, size=Py_ssize_t, consumer=Consumer)
    cdef int release(self, Delivery delivery) except -1
    @cython.locals(delivery=Delivery)
    cdef tidy(self)
    @cython.locals(delivery=Delivery, taken=list)
    cpdef list take(self, Py_ssize_t most)
    @cython.locals(delivery=Delivery, last=Queue, found=list, index=Py_ssize_t)
    cpdef list queues(self, Py_ssize_t start, Py_ssize_t most)
