cimport cython
from flintmq.broker.scheduling.pass_work cimport PassWork
from flintmq.broker.channels.client_connection cimport Connections
from flintmq.broker.channels.confirms cimport Confirms
from flintmq.broker.queues.queue cimport Queue
from flintmq.broker.store.store cimport Store
from flintmq.broker.virtual_host cimport VirtualHost
from flintmq.protocol.outbox cimport Room

cdef Py_ssize_t PASS_BYTES_MAX
cdef Py_ssize_t PASS_LOADED_BYTES_MAX


@cython.final
cdef class Broker:
    cdef readonly object administration
    cdef readonly PassWork pass_work
    cdef readonly object answer_room
    cdef readonly object answers
    cdef public object audit
    cdef readonly object authentication
    cdef public object backup
    cdef readonly Connections clients
    cdef public object clock
    cdef readonly object config
    cdef readonly dict connections
    cdef readonly unsigned int connections_made
    cdef public object definitions
    cdef readonly object events
    cdef readonly object failed_logins
    cdef readonly object tickets
    cdef readonly object teardowns
    cdef readonly object policies
    cdef public object process
    cdef readonly object staging
    cdef readonly long long started_ms
    cdef readonly Store store
    cdef readonly object streams
    cdef readonly object timetable
    cdef readonly object users
    cdef public object verifying
    cdef readonly dict virtual_hosts
    cdef readonly object host_names

    @cython.locals(
        pass_work=PassWork, queues=list, queue=Queue, due=list, confirms=Confirms, room=Room, most=Py_ssize_t,
        least=Py_ssize_t, done=Py_ssize_t, favoured=set
    )
    cpdef finish_pass(self)
    @cython.locals(pass_work=PassWork, consumers=list)
    cpdef tell_lost_consumers(self)
    cpdef VirtualHost first_host(self)
    @cython.locals(first=VirtualHost)
    cpdef bint hears_events(self, VirtualHost host) except -1
