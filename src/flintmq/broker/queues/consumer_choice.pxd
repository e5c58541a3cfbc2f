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

    cpdef set_single_active(self)
    cdef subscribe(self, Consumer consumer)
    cdef unsubscribe(self, Consumer consumer)
    cdef join(self, Consumer consumer)
    @cython.locals(active=list, index=Py_ssize_t, other=Consumer)
    cdef place(self, Consumer consumer)
    @cython.locals(heir=Consumer)
    cdef bint succeed(self) except -1
    @cython.locals(heir=Consumer, each=Consumer)
    cdef Consumer heir(self)
