cimport cython
from flintmq.broker.channels.channel cimport Channel


@cython.final
cdef class ClientConnection:
    cdef readonly unsigned int number
    cdef readonly object user
    cdef readonly object virtual_host
    cdef readonly str peer_address
    cdef readonly int version
    cdef readonly dict client_properties
    cdef readonly long long since_ms
    cdef readonly object peer
    cdef public str blocked
    cdef readonly dict channels


@cython.final
cdef class Connections:
    cdef readonly dict by_number
    cdef readonly dict by_user
    cdef readonly dict by_host
    cdef readonly dict internal
    cdef readonly dict names
    cdef readonly dict kept
    cdef readonly dict patient
    cdef public bint is_watching_kept
    cdef readonly dict channels_of_user
    cdef readonly dict channels_of_host

    cpdef enter(self, ClientConnection client)
    @cython.locals(client=ClientConnection)
    cpdef leave(self, unsigned int number)
    @cython.locals(client=ClientConnection)
    cpdef open_channel(self, unsigned int number, Channel channel)
    @cython.locals(client=ClientConnection)
    cpdef close_channel(self, unsigned int number, int channel_number)
    cdef count_channels(self, ClientConnection client, Py_ssize_t more)


@cython.locals(those=dict)
cdef leave_group(dict groups, group, unsigned int number)
@cython.locals(count=Py_ssize_t)
cpdef count_up(dict counts, group, Py_ssize_t more)
