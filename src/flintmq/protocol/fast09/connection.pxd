cimport cython
cimport flintmq.protocol.phases as phases
cimport flintmq.wire.amqp as amqp
cimport flintmq.wire.traits as traits
from flintmq.protocol.channel cimport Channel
from flintmq.protocol.connection cimport Connection


cdef class Call:
    cdef readonly object kind
    cdef readonly int flags
    cdef readonly int synctag


cdef class Fast09Connection(Connection):
    cdef object told
    cdef readonly dict calls
    cdef readonly tuple failing
    cdef readonly int failing_flags

    @cython.locals(at=Py_ssize_t)
    cpdef Py_ssize_t receive(self, bytearray buffer, Py_ssize_t size) except -1
    cpdef Py_ssize_t due(self, bytearray start) except -1
    cpdef Channel channel_of(self, unsigned int number)
    cpdef forget_channel(self, Channel channel)
