cimport cython
cimport flintmq.server.network.sockets as sockets
from flintmq.server.logins.strangers cimport Strangers


cdef class Listener:
    cdef readonly object server
    cdef readonly tuple proxies
    cdef readonly object socket
    cdef public object context
    cdef readonly bint speaks_fast09
    cdef int accepts

    @cython.locals(accepted=tuple, is_opening=bint, turn=int, strangers=Strangers)
    cpdef bint accept(self)
    cpdef bint is_brought(self, int descriptor, str address)
    @cython.locals(links=dict, strangers=Strangers)
    cpdef bint arrived(self, int descriptor, str address)
    cpdef connect(self, int descriptor, str address)
