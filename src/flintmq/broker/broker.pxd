cimport cython
from flintmq.broker.agenda cimport Agenda
from flintmq.broker.channel cimport Channel
from flintmq.broker.queue cimport Queue
from flintmq.broker.store cimport Store


@cython.final
cdef class Broker:
    cdef readonly Agenda agenda
    cdef public object clock
    cdef readonly object config
    cdef readonly dict connections
    cdef readonly unsigned int connections_made
    cdef readonly object policies
    cdef readonly long long started_ms
    cdef readonly Store store
    cdef readonly object streams
    cdef readonly object timetable
    cdef readonly object users
    cdef readonly dict virtual_hosts

    @cython.locals(agenda=Agenda, queues=list, queue=Queue, channels=list, channel=Channel)
    cpdef finish_pass(self)
    @cython.locals(agenda=Agenda, consumers=list)
    cpdef tell_lost_consumers(self)
