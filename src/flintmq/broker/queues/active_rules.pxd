cimport cython
cimport flintmq.wire.traits as traits
from flintmq.broker.messages.message cimport Message
from flintmq.broker.queues.consumer_choice cimport ConsumerChoice
from flintmq.broker.queues.expiry cimport Expiry
from flintmq.broker.queues.limits cimport Limits
from flintmq.broker.queues.queue cimport Queue
from flintmq.broker.queues.retries cimport Retries
from flintmq.broker.queues.service_goals cimport ServiceGoals
from flintmq.broker.store.store cimport Store


@cython.final
cdef class ActiveRules:
    cdef object timetable
    cdef public object settings
    cdef public object host
    cdef public object alarm
    cdef public Limits limits
    cdef readonly Expiry expiry
    cdef readonly Retries retries
    cdef readonly ConsumerChoice choice
    cdef public object timeout
    cdef readonly ServiceGoals goals
    cdef public bint persists
    cdef readonly long long expires_ms
    cdef long long unused_since_ms
    cdef readonly bint is_consumed
    cdef public long long leaves_ms

    cpdef Expiry need_expiry(self)
    cpdef Limits need_limits(self)
    cpdef Retries need_retries(self, Queue queue)
    cpdef ConsumerChoice need_choice(self, Queue queue)
    cpdef bint set_goals(self, settings) except -1
    cpdef end_after(self, long long expires_ms)
    cpdef touch(self)
    cpdef bint pause_deletion(self) except -1
    cpdef bint begins_consuming(self) except -1
    cpdef restore_consumed(self)
    cpdef int loaded(self, Message message, Store store) except -1
    cpdef list purge(self)
    cdef set_alarm(self, long long due_ms, callback)
    cpdef close(self)
