cimport cython
cimport flintmq.server.sockets as sockets


cdef class Listener:
    cdef object server
    cdef readonly object socket
    cdef public object context
    cdef int accepts

    @cython.locals(accepted=tuple, links=dict, is_opening=bint)
    cpdef bint accept(self)
    cpdef connect(self, int descriptor, str address)
