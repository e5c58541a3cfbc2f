cimport cython
cimport flintmq.protocol.phases as phases
cimport flintmq.server.network.sockets as sockets
cimport flintmq.wire.octets as octets
from flintmq.broker.scheduling.pass_work cimport PassWork
from flintmq.protocol.connection cimport Connection
from flintmq.server.event_loop.read_coalescing cimport ReadCoalescing
from flintmq.server.sessions.session cimport Session
from flintmq.server.event_loop.pass_scheduler cimport PassScheduler
from flintmq.protocol.outbox cimport Output

cdef Py_ssize_t COPY_BYTES
cdef Py_ssize_t FRAME_HEAD_BYTES
cdef Py_ssize_t READ_BYTES_LEAST
cdef Py_ssize_t READ_BYTES_FIRST


cdef class Link:
    cdef readonly object server
    cdef readonly PassScheduler scheduler
    cdef readonly int descriptor
    cdef readonly Output output
    cdef readonly Session session
    cdef public bytearray leftover
    cdef public int held
    cdef readonly bint is_stranger
    cdef public bint finishing
    cdef public bint received
    cdef public bint sent
    cdef public unsigned long long received_octets
    cdef public unsigned long long sent_octets
    cdef public int missed
    cdef public object verifying
    cdef readonly int wanted
    cdef readonly Py_ssize_t read_most

    @cython.locals(connection=Connection, is_new=bint)
    cpdef bint ready(self, int events)
    @cython.locals(buffer=bytearray, kept=Py_ssize_t, most=Py_ssize_t, size=Py_ssize_t, read_coalescing=ReadCoalescing)
    cpdef readable(self)
    cdef bint is_far_from_whole(self, Py_ssize_t kept) except -1
    cdef Py_ssize_t read_size(self) noexcept
    cdef bint takes_long(self) noexcept
    @cython.locals(size=Py_ssize_t)
    cdef gather(self, bytearray buffer)
    @cython.locals(scheduler=PassScheduler)
    cpdef bint must_wait(self)
    @cython.locals(pass_work=PassWork)
    cpdef after_read(self)
    cpdef receive(self, bytearray buffer, Py_ssize_t size)
    @cython.locals(pass_work=PassWork, session=Session, connection=Connection, used=Py_ssize_t)
    cpdef take(self, bytearray buffer, Py_ssize_t size)
    cpdef hold(self, int reason)
    @cython.locals(output=Output)
    cpdef flush(self)
    @cython.locals(output=Output, size=Py_ssize_t, pending=Py_ssize_t)
    cpdef send(self)
    cpdef want(self, int wanted)
    cpdef wait_to_write(self, bint wanted)
    cpdef after_send(self, Py_ssize_t pending)
