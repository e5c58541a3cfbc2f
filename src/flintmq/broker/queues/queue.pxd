cimport cython
cimport flintmq.broker.messages.entry_number as entry_number
cimport flintmq.broker.queues.put_flags as put_flags
cimport flintmq.wire.traits as traits
from flintmq.broker.scheduling.pass_work cimport PassWork
from flintmq.broker.queues.consumer cimport Consumer
from flintmq.broker.queues.delivery cimport Delivery, PagedMessage
from flintmq.broker.messages.message cimport Message
from flintmq.broker.queues.active_rules cimport ActiveRules
from flintmq.broker.queues.consumer_choice cimport ConsumerChoice
from flintmq.broker.queues.expiry cimport Expiry
from flintmq.broker.queues.limits cimport Limits
from flintmq.broker.queues.retries cimport Retries
from flintmq.broker.queues.ring cimport Ring
from flintmq.broker.queues.service_goals cimport ServiceGoals
from flintmq.broker.queues.paged_tail cimport PagedTail
from flintmq.broker.queues.stream_backlog cimport StreamBacklog
from flintmq.broker.store.store cimport Store
from flintmq.protocol.outbox cimport Output

cdef Py_ssize_t CONGESTED_MESSAGES
cdef Py_ssize_t CONGESTED_BYTES
cdef Py_ssize_t EXPIRED_MAX
cdef Py_ssize_t EXPIRED_BYTES_MAX
cdef Py_ssize_t HOLES_MIN
cdef Py_ssize_t LETTER_OCTETS
cdef Py_ssize_t LETTER_CONTENT_SHARE
cdef Py_ssize_t LETTERS_BYTES_SHORT
cdef Py_ssize_t LETTERS_OCTETS_MAX
cdef Py_ssize_t RETURNED_BYTES
cdef Py_ssize_t RETURNED_LETTERS_OCTETS
cdef long long LETTERS_SHORT_MS
cdef Py_ssize_t ROUND_SHIFT
cdef Py_ssize_t PASS_ENTRIES
cdef Py_ssize_t PASS_BYTES
cdef Py_ssize_t RETURNED_MAX
cdef Py_ssize_t INSERTED_MAX
cdef Py_ssize_t WAITING_MAX_SHORT
cdef Py_ssize_t SHED_MESSAGE_BYTES
cdef Py_ssize_t PAGED_COPIES


cdef class Queue:
    cdef readonly str name
    cdef readonly PassWork pass_work
    cdef readonly bint durable
    cdef readonly bint exclusive
    cdef readonly bint auto_delete
    cdef readonly dict arguments
    cdef readonly unsigned int owner
    cdef readonly dict sources
    cdef readonly Store store
    cdef readonly unsigned int number
    cdef readonly PagedTail tail
    cdef readonly unsigned long long handed_out
    cdef public bint handed_out_due
    cdef readonly unsigned long long marked
    cdef readonly dict tail_redeliveries
    cdef readonly Ring ready
    cdef readonly long long ready_bytes
    cdef readonly long long position
    cdef public dict leases
    cdef readonly long long holes
    cdef readonly list returned
    cdef readonly list consumers
    cdef readonly list active
    cdef Py_ssize_t turn
    cdef readonly Py_ssize_t selective
    cdef readonly int claimed
    cdef readonly long long unacked
    cdef readonly long long settled_count
    cdef public long long unasked
    cdef readonly object tally
    cdef readonly bint dirty
    cdef bint congested
    cdef public bint deleted
    cdef readonly ActiveRules rules
    cdef readonly object duplicates
    cdef readonly bint is_stream
    cdef public bytes creation_id
    cdef public unsigned int life
    cdef public str user
    cdef public int returning

    cpdef Py_ssize_t message_count(self) noexcept
    cpdef Py_ssize_t waiting_count(self) except -1
    cpdef long long waiting_returns(self) except -1
    cpdef list parts(self)
    cpdef ActiveRules need_rules(self)
    @cython.locals(rules=ActiveRules)
    cpdef apply(self, settings, host)
    @cython.locals(
        rules=ActiveRules, limits=Limits, was_sized=cython.bint, has_backlog=cython.bint, is_limited=cython.bint
    )
    cdef limit(self, settings)
    cpdef int enqueue(self, Message message) except -1
    cdef int enqueue_unlike(self, Message message) except -1
    @cython.final
    cdef int take_in(self, Message message, bint wakes) except -1
    cdef bint has_tail(self) except -1
    cdef int note_handed_out(self, long long count, bint is_cut) except -1
    @cython.locals(
        rules=ActiveRules, expiry=Expiry, is_urgent=cython.bint, happened=cython.int, backlog=StreamBacklog
    )
    cdef int enqueue_ruled(self, Message message) except -1
    cdef bint is_paged(self, Message message) except -1
    @cython.locals(last=cython.longlong, first=cython.longlong, delivery=Delivery, priority=cython.int)
    cdef note_stream(self, StreamBacklog backlog, Message message)
    @cython.locals(limits=Limits, dead=list, message=Message, priority=cython.int, position=cython.longlong)
    cdef trim_stream(self, StreamBacklog backlog)
    @cython.locals(index=cython.longlong, place=Py_ssize_t, message=Message, delivery=Delivery)
    cdef Message draw_at(self, int priority, long long position)
    cdef forget_gone(self, StreamBacklog backlog, int priority)
    @cython.locals(index=cython.longlong, place=Py_ssize_t, delivery=Delivery)
    cdef bint is_at(self, long long position) except -1
    cdef close_holes(self)
    @cython.locals(expiry=Expiry)
    cdef dispatch_momentary(self, Message message)
    @cython.locals(rules=ActiveRules)
    cpdef int tend(self, bint trims=*) except -1
    @cython.locals(limits=Limits, size=cython.longlong)
    cdef bint is_full(self, Message message) except -1
    @cython.locals(limits=Limits, message=Message, size=cython.longlong)
    cpdef bint lacks_room(self, list messages) except -1
    @cython.locals(
        limits=Limits, dead=list, delivery=Delivery, message=Message, letters=Py_ssize_t, size=Py_ssize_t,
        cost=Py_ssize_t, bytes_max=Py_ssize_t, is_slow=bint, due_ms=cython.longlong, room=Py_ssize_t
    )
    cpdef int trim(self) except -1
    cpdef Py_ssize_t letter_octets(self, Message message) except -1
    cdef int append(self, Message message) except -1
    cdef int page_out(self, Message message) except -1
    cpdef Py_ssize_t kept_count(self) except -1
    @cython.locals(limits=Limits)
    cdef relieve(self, Message message)
    @cython.locals(last=Py_ssize_t)
    cdef page_last(self, Message message)
    @cython.locals(message=Message, entries=list, shed=Py_ssize_t, entry=cython.ulonglong)
    cpdef Py_ssize_t shed(self, Py_ssize_t most) except -1
    @cython.locals(
        wanted=Py_ssize_t, loaded=Py_ssize_t, size=Py_ssize_t, fitting=Py_ssize_t, is_full=bint,
        placed=Py_ssize_t, message=Message, entries=list, messages=list
    )
    cpdef int load(self) except -1
    @cython.locals(messages=Py_ssize_t, octets=Py_ssize_t, shed=Py_ssize_t, index=Py_ssize_t, delivery=Delivery)
    cdef Py_ssize_t shed_returned(self, Py_ssize_t most) except -1
    @cython.locals(shed=Py_ssize_t)
    cdef Py_ssize_t shed_leases(self, Py_ssize_t most) except -1
    @cython.locals(wanted=Py_ssize_t)
    cdef Py_ssize_t load_portion(self) except -1
    @cython.locals(
        start=Py_ssize_t, end=Py_ssize_t, most=Py_ssize_t, size=Py_ssize_t, delivery=Delivery, first=list, there=list
    )
    cdef load_returned(self)
    @cython.locals(paged=list, entries=list, messages=list, index=Py_ssize_t, delivery=Delivery, message=Message)
    cpdef page_in(self, list deliveries, bint counted)
    cpdef int note_loaded(self, Message message) except -1
    @cython.locals(message=Message)
    cdef Message look_at(self, Delivery delivery)
    @cython.locals(paged=PagedMessage)
    cpdef int settle_returned(self, Delivery delivery) except -1
    @cython.locals(dead=list, delivery=Delivery, retries=Retries)
    cdef page_in_dead(self, list deliveries)
    @cython.locals(delivery=Delivery)
    cdef bint is_partly_paged(self) except -1
    @cython.locals(back=Delivery, redeliveries=cython.int)
    cdef put_loaded(self, Message message, unsigned long long entry)
    @cython.locals(redeliveries=cython.int)
    cpdef int redeliveries_of(self, Message message, long long position) except -1
    cpdef tidy_tail(self)
    cdef discount(self, Message message)
    @cython.locals(part=Queue)
    cpdef dict pick(self, set entries)
    @cython.locals(
        first=cython.longlong, place=cython.longlong, start=Py_ssize_t, picked=list, numbers=list, messages=list,
        message=Message, redeliveries=cython.int, delivery=Delivery
    )
    cdef pick_from_tail(self, set entries, dict found)
    cpdef restore(self, PagedTail tail, unsigned long long handed_out)
    @cython.locals(entry=cython.ulonglong)
    cpdef int hand_out(self, Message message, Output output) except -1
    cpdef mark(self)
    cpdef pause(self)
    cpdef go_on(self)
    @cython.locals(delivery=Delivery, message=Message)
    cpdef Message head(self)
    @cython.locals(
        message=Message, consumer=Consumer, delivery=Delivery, start=cython.longlong, place=cython.longlong,
        redeliveries=cython.int, pass_work=PassWork, is_cut=cython.bint
    )
    cpdef int dispatch(self) except -1
    @cython.locals(
        message=Message, rules=ActiveRules, handed_out=cython.longlong, arrived_ms=cython.longlong
    )
    cdef int dispatch_sampled(self) except -1
    @cython.locals(
        rules=ActiveRules, message=Message, consumer=Consumer, delivery=Delivery, pass_work=PassWork,
        goals=ServiceGoals, handed_out=cython.longlong, is_cut=cython.bint
    )
    cdef int dispatch_ruled(self) except -1
    @cython.locals(retries=Retries)
    cdef bint holds_back(self) except -1
    cpdef int dispatch_early(self) except -1
    cdef go_on_expiring(self)
    cdef bint expire_early(self) except -1
    cpdef bint dispatch_selectively(self) except -1
    @cython.locals(
        delivery=Delivery, message=Message, consumer=Consumer, index=Py_ssize_t, back=Py_ssize_t,
        seen=cython.longlong, pass_work=PassWork, is_cut=cython.bint
    )
    cdef bint offer_in_turn(self) except -1
    @cython.locals(consumer=Consumer)
    cdef look_on_from(self, long long position)
    @cython.locals(
        first=cython.longlong, position=cython.longlong, looked_at=Py_ssize_t, octets=Py_ssize_t, messages=list,
        message=Message, redeliveries=cython.int, consumer=Consumer, more=cython.bint
    )
    cdef bint offer_from_tail(self) except -1
    @cython.locals(consumer=Consumer, rules=ActiveRules)
    cpdef bint offer(self, Message message, long long position, int redeliveries) except -1
    cdef park(self, Consumer consumer)
    cpdef bint withdraw(self, Consumer consumer) except -1
    cpdef rejoin(self, Consumer consumer)
    cdef unroll(self)
    cdef join(self, Consumer consumer)
    @cython.locals(index=Py_ssize_t)
    cdef leave(self, Consumer consumer)
    @cython.locals(elsewhere=Py_ssize_t, each=Consumer)
    cdef leave_many(self, Py_ssize_t count)
    cpdef bint sweep(self) except -1
    cpdef Delivery take(self)
    @cython.locals(rules=ActiveRules, delivery=Delivery)
    cdef Delivery take_ruled(self)
    @cython.locals(rules=ActiveRules, delivery=Delivery)
    cpdef Delivery take_at(self, long long position, Message message)
    @cython.locals(
        first=cython.longlong, place=Py_ssize_t, redeliveries=cython.int, delivery=Delivery, found=Message
    )
    cdef Delivery draw_found(self, long long position, Message message)
    @cython.locals(message=Message)
    cpdef Delivery draw(self)
    cdef Delivery draw_lowest(self)
    cpdef int settle(self, Message message) except -1
    @cython.final
    cdef int let_go(self, Message message) except -1
    cpdef bury(self, Message message, str reason)
    cdef count_dead(self, Py_ssize_t count, str reason, bint has_exchange)
    @cython.locals(rules=ActiveRules, has_exchange=cython.bint)
    cpdef bury_all(self, list messages, str reason)
    @cython.locals(index=Py_ssize_t)
    cpdef let_go_all(self, list messages)
    cdef int delivered(self, channel, Delivery delivery) except -1
    cpdef take_out(self, Py_ssize_t count)
    cpdef int settled(self, Py_ssize_t count) except -1
    cpdef object need_tally(self)
    cpdef give_back(self, Delivery delivery)
    cpdef give_back_taken(self, list deliveries)
    @cython.locals(delivery=Delivery, count=Py_ssize_t)
    cpdef give_back_some(self, list deliveries)
    @cython.locals(delivery=Delivery, count=Py_ssize_t)
    cpdef requeue(self, list deliveries, bint failed=*)
    @cython.locals(
        retries=Retries,
        delivery=Delivery,
        end=Py_ssize_t,
        index=Py_ssize_t,
        letters=Py_ssize_t,
        octets=Py_ssize_t,
    )
    cpdef Py_ssize_t returned_together(self, list deliveries, Py_ssize_t start) except -1
    @cython.locals(entry=cython.ulonglong)
    cdef bint is_on_disk(self, Delivery delivery) except -1
    @cython.locals(rules=ActiveRules, dead=list, delivery=Delivery)
    cdef list ready_again(self, list deliveries, bint failed)
    cpdef all_returned(self)
    @cython.locals(delivery=Delivery, first=Py_ssize_t)
    cpdef put_back(self, list deliveries)
    @cython.locals(delivery=Delivery, first=Py_ssize_t, start=Py_ssize_t, place=Py_ssize_t, merged=list)
    cdef merge_back(self, list deliveries)
    @cython.locals(first=cython.longlong, index=cython.longlong, delivery=Delivery)
    cdef list return_to_tail(self, list deliveries)
    @cython.locals(consumer=Consumer)
    cdef look_again(self, long long position)
    @cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t, other=Delivery)
    cpdef Py_ssize_t returned_after(self, long long position) except -1
    @cython.locals(drawn=list, message=Message)
    cdef draw_out(self, long long position)
    @cython.locals(size=cython.longlong, index=Py_ssize_t, message=Message, delivery=Delivery)
    cpdef Py_ssize_t body_bytes(self) except -1
    @cython.locals(rest=Queue, count=Py_ssize_t)
    cpdef purge(self)
    @cython.locals(settled=Py_ssize_t, entry=cython.ulonglong)
    cdef settle_paged(self, list entries)
    @cython.locals(message=Message)
    cpdef bint drop(self, Py_ssize_t most) except -1
    @cython.locals(other=Consumer)
    cpdef subscribe(self, Consumer consumer)
    @cython.locals(index=Py_ssize_t)
    cpdef unsubscribe(self, Consumer consumer)
    @cython.locals(consumer=Consumer, each=Consumer, in_round=Py_ssize_t)
    cpdef unsubscribe_many(self, list consumers)
    @cython.locals(consumer=Consumer, claimed=cython.int)
    cdef release_claims(self)
    @cython.locals(consumer=Consumer)
    cpdef bint can_take_now(self, Message message)
    @cython.locals(
        rules=ActiveRules, expiry=Expiry, dead=list, message=Message, size=Py_ssize_t, bytes_max=Py_ssize_t, has_more=bint,
        letters=Py_ssize_t, room=Py_ssize_t
    )
    cpdef bint expire(self) except -1
    cdef bint is_slow(self) except -1
    cdef Py_ssize_t letters_room(self) except -1
    cdef bint is_crowded(self) except -1
    cpdef object room_for_letters(self)
    cdef long long letters_due_ms(self) except -1
    @cython.locals(rules=ActiveRules, limits=Limits, message=Message)
    cpdef bint gives_on(self, Message letter) except -1
    cpdef watch(self)
    @cython.locals(rules=ActiveRules, due_ms=cython.longlong, message=Message)
    cdef look_ahead(self)
    @cython.locals(rules=ActiveRules)
    cpdef alarm_due(self)
    @cython.locals(now_ms=cython.longlong, has_ended=cython.bint)
    cdef do_what_is_due(self, ActiveRules rules)
    @cython.locals(limits=Limits, delivery=Delivery)
    cdef end_waits(self, list ready)
    @cython.locals(
        rules=ActiveRules, retries=Retries, message=Message, place=cython.longlong, start=Py_ssize_t, entries=list
    )
    cpdef restore_returns(self, dict returns, list waiting)
    @cython.locals(rules=ActiveRules, limits=Limits, delivery=Delivery)
    cpdef restored(self, bint is_timed)


@cython.locals(index=Py_ssize_t)
cdef Py_ssize_t index_of(list consumers, Consumer consumer) except -2

@cython.locals(last=Consumer)
cdef Py_ssize_t take_last(list consumers, Py_ssize_t count) except -1

cdef long long sooner(long long due_ms, long long other_ms) noexcept
