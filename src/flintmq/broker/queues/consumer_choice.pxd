cimport cython
from flintmq.broker.queues.consumer cimport Consumer
from flintmq.broker.queues.queue cimport Queue


@cython.final
cdef class ConsumerChoice:
    cdef Queue queue
    cdef readonly Py_ssize_t ranked
    cdef readonly bint single_active
    cdef readonly Consumer single
    cdef readonly bint yields
    cdef readonly list successors
    cdef long long joined

    @cython.locals(consumer=Consumer)
    cpdef set_single_active(self)
    cdef subscribe(self, Consumer consumer)
    cdef unsubscribe(self, Consumer consumer)
    @cython.locals(consumer=Consumer)
    cdef unsubscribe_many(self, list consumers)
    cdef forget(self, Consumer consumer)
    @cython.locals(each=tuple)
    cdef replace_single(self)
    cdef add_successor(self, Consumer consumer)
    cdef join(self, Consumer consumer)
    @cython.locals(active=list, low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, other=Consumer)
    cdef place(self, Consumer consumer)
    @cython.locals(heir=Consumer)
    cdef bint succeed(self) except -1
    @cython.locals(heir=Consumer)
    cdef Consumer heir(self)


@cython.locals(consumer=Consumer)
cdef bint is_there(tuple successor) except -1
