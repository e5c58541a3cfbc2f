cimport cython
from flintmq.server.link cimport Link
from flintmq.server.turns cimport Turns


@cython.final
cdef class EpollReadiness:
    cdef object loop
    cdef Turns turns
    cdef readonly object epoll
    cdef readonly dict links

    cpdef watch(self, int descriptor, Link link)
    cpdef change(self, int descriptor, int wanted)
    cpdef forget(self, int descriptor)
    @cython.locals(descriptor=int, events=int, link=Link)
    cpdef turn(self)
