cimport cython
from flintmq.broker.broker cimport Broker
from flintmq.broker.channels.channel cimport Channel as BrokerChannel
from flintmq.protocol.channel cimport Channel
from flintmq.protocol.outbox cimport Output
from flintmq.server.sessions.session cimport Session


@cython.final
cdef class Parting:
    cdef Session session
    cdef int kind
    cdef object answer
    cdef bint is_to_leave_again
    cdef readonly dict unconfirmed

    @cython.locals(broker=Broker, output=Output)
    cpdef begin(self, int kind, answer)
    cpdef say_answer(self)
