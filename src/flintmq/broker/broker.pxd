cimport cython
from flintmq.broker.queues.pass_work cimport PassWork
from flintmq.broker.channels.channel cimport Channel
from flintmq.broker.queues.queue cimport Queue
from flintmq.broker.store.store cimport Store
from flintmq.protocol.outbox cimport Room

cdef Py_ssize_t PASS_BYTES_MAX
cdef Py_ssize_t PASS_LOADED_BYTES_MAX


@cython.final
cdef class Broker:
    cdef readonly object administration
    cdef readonly PassWork pass_work
    cdef readonly object answers
    cdef readonly object clients
    cdef public object clock
    cdef public object condition
    cdef readonly object config
    cdef readonly dict connections
    cdef readonly unsigned int connections_made
    cdef readonly object endings
    cdef readonly object policies
    cdef readonly long long started_ms
    cdef readonly Store store
    cdef readonly object streams
    cdef readonly object timetable
    cdef readonly object users
    cdef readonly dict virtual_hosts

    @cython.locals(
        pass_work=PassWork, queues=list, queue=Queue, channels=list, channel=Channel, room=Room, most=Py_ssize_t,
        least=Py_ssize_t, done=Py_ssize_t
    )
    cpdef finish_pass(self)
    @cython.locals(pass_work=PassWork, consumers=list)
    cpdef tell_lost_consumers(self)
