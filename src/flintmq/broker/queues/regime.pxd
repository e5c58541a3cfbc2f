cimport cython
cimport flintmq.broker.messages.entry_number as entry_number
cimport flintmq.wire.traits as traits
from flintmq.broker.queues.pass_work cimport PassWork
from flintmq.broker.queues.consumer cimport Consumer
from flintmq.broker.queues.delivery cimport Delivery
from flintmq.broker.messages.message cimport Message
from flintmq.broker.queues.queue cimport Queue
from flintmq.broker.store.store cimport Store

cdef Py_ssize_t EXPIRED_MAX
cdef Py_ssize_t EXPIRED_BYTES_MAX
cdef Py_ssize_t LETTER_OCTETS
cdef Py_ssize_t LETTERS_OCTETS_MAX
cdef Py_ssize_t PASS_MS_MAX


@cython.final
cdef class Regime:
    cdef readonly Queue queue
    cdef object timetable
    cdef readonly object host
    cdef readonly object rules
    cdef readonly object alarm
    cdef readonly long long ttl_ms
    cdef long long ttl_since_ms
    cdef readonly bint timed
    cdef Message momentary
    cdef readonly long long length_max
    cdef readonly long long bytes_max
    cdef public long long waiting_bytes
    cdef readonly bint refuses
    cdef readonly long long delivery_limit
    cdef readonly bint counts
    cdef readonly dict notes
    cdef readonly list waiting
    cdef readonly object consumer_timeout
    cdef readonly Py_ssize_t ranked
    cdef readonly bint single_active
    cdef readonly Consumer single
    cdef readonly bint yields
    cdef readonly long long expires_ms
    cdef long long unused_since_ms

    @cython.locals(now_ms=cython.longlong, was_limited_ms=cython.longlong)
    cpdef apply(self, rules, host)
    @staticmethod
    @cython.locals(timed=cython.bint, is_refused=cython.bint, queue=Queue, regime=Regime, admitted=list)
    cdef list admit(Message message, list queues, PassWork pass_work)
    @cython.locals(queue=Queue, is_urgent=cython.bint)
    cdef int enqueue(self, Message message) except -1
    @cython.locals(lifetime_ms=cython.longlong)
    cdef bint is_urgent(self, Message message) noexcept
    cdef dispatch_momentary(self, Message message)
    @cython.locals(newest=Message)
    cdef bint has_just_come(self, Message message) noexcept
    cdef bint is_full(self, Message message) except -1
    @cython.locals(message=Message, size=cython.longlong)
    cpdef bint lacks_room(self, list messages)
    cdef bint would_exceed(self, Message message) except -1
    cdef bint exceeds(self) except -1
    @cython.locals(queue=Queue, dead=list, delivery=Delivery, message=Message, letters=Py_ssize_t)
    cpdef trim(self)
    cdef Py_ssize_t letter_octets(self, Message message) except -1
    cpdef tend(self, bint trims=*)
    @cython.locals(index=Py_ssize_t)
    cpdef bury(self, list messages, str reason)
    @cython.locals(queue=Queue, message=Message, consumer=Consumer, delivery=Delivery)
    cdef int dispatch(self) except -1
    @cython.locals(queue=Queue, chosen=Consumer)
    cdef Consumer next_consumer(self)
    @cython.locals(queue=Queue)
    cdef pass_turn(self, Consumer consumer)
    @cython.locals(delivery=Delivery, message=Message)
    cpdef Delivery take(self)
    cdef handed_out(self, channel, Delivery delivery)
    @cython.locals(content=bytes, header_size=cython.uint)
    cdef Message counted(self, Message message, long long redeliveries)
    cdef subscribe(self, Consumer consumer)
    cdef join(self, Consumer consumer)
    @cython.locals(active=list, index=Py_ssize_t, other=Consumer)
    cdef place(self, Consumer consumer)
    cdef unsubscribe(self, Consumer consumer)
    @cython.locals(queue=Queue, heir=Consumer)
    cpdef bint succeed(self) except -1
    @cython.locals(ready=list, dead=list, delivery=Delivery, message=Message, due_ms=cython.longlong)
    cdef list returned(self, list deliveries, bint failed)
    cdef Py_ssize_t retry_due_ms(self, long long redeliveries, bint failed) except -1
    @cython.locals(store=Store)
    cdef note(self, Message message, long long redeliveries, long long due_ms)
    @cython.locals(store=Store)
    cdef forget(self, Message message)
    @cython.locals(store=Store)
    cpdef int loaded(self, Message message) except -1
    @cython.locals(store=Store, message=Message, delivery=Delivery, place=cython.longlong)
    cpdef restore_returns(self, dict returns, list waiting)
    @cython.locals(delivery=Delivery, message=Message)
    cpdef restored(self, bint is_timed)
    @cython.locals(until_ms=cython.longlong, since_ms=cython.longlong)
    cdef long long due_ms(self, Message message) noexcept
    @cython.locals(due_ms=cython.longlong, now_ms=cython.longlong)
    cdef bint has_expired(self, Message message) except -1
    @cython.locals(
        queue=Queue, dead=list, message=Message, size=Py_ssize_t, bytes_max=Py_ssize_t, has_more=bint,
        letters=Py_ssize_t
    )
    cpdef bint expire(self) except -1
    cdef bint is_slow(self) except -1
    cpdef touch(self)
    @cython.locals(due_ms=cython.longlong, first=cython.longlong, queue=Queue, message=Message)
    cdef look_ahead(self)
    cpdef watch(self)
    cdef set_alarm(self, long long due_ms)
    @cython.locals(queue=Queue, now_ms=cython.longlong)
    cpdef ring(self)
    cdef bint has_ended(self, long long now_ms)
    @cython.locals(ready=list, delivery=Delivery, message=Message)
    cdef end_waits(self, long long now_ms)
    @cython.locals(delivery=Delivery)
    cpdef list purge(self)
    cpdef close(self)
