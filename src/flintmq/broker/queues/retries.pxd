cimport cython
cimport flintmq.broker.messages.entry_number as entry_number
cimport flintmq.wire.traits as traits
from flintmq.broker.messages.message cimport Message
from flintmq.broker.queues.delivery cimport Delivery
from flintmq.broker.store.store cimport Store


@cython.final
cdef class Retries:
    cdef object timetable
    cdef Store store
    cdef unsigned int number
    cdef str name
    cdef object rules
    cdef readonly long long delivery_limit
    cdef readonly bint counts
    cdef readonly bint delays
    cdef readonly dict notes
    cdef readonly list waiting
    cdef readonly long long waiting_returns

    cpdef set(self, rules)
    @cython.locals(content=bytes, header_size=cython.uint)
    cdef Message shown(self, Message message, long long redeliveries)
    @cython.locals(ready=list, later=list, delivery=Delivery, message=Message, due_ms=cython.longlong)
    cdef list returned(self, list deliveries, bint failed, list dead)
    cdef Py_ssize_t due_ms(self, long long redeliveries, bint failed) except -1
    cdef bint is_dead(self, Delivery delivery) except -1
    cdef wait(self, Delivery delivery, long long due_ms)
    cdef note(self, unsigned long long entry, long long redeliveries, long long due_ms)
    cdef forget(self, unsigned long long entry)
    cpdef restore(self, dict returns)
    cdef wait_again(self, Delivery delivery, long long due_ms)
    cdef Py_ssize_t next_due_ms(self) except -2
    @cython.locals(delivery=Delivery)
    cdef list take_due(self, long long now_ms, Py_ssize_t most)
    @cython.locals(delivery=Delivery)
    cdef list take_waiting(self)
