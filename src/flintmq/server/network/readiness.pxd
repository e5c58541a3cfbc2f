cimport cython
cimport flintmq.server.network.sockets as sockets
from flintmq.server.network.link cimport Link
from flintmq.server.event_loop.pass_scheduler cimport PassScheduler


@cython.final
cdef class EpollReadiness:
    cdef object loop
    cdef PassScheduler scheduler
    cdef readonly object epoll
    cdef readonly object crowd
    cdef readonly set apart
    cdef readonly Py_ssize_t newcomers
    cdef int due
    cdef readonly dict links
    cdef dict listeners
    cdef public int looks_max

    cpdef watch(self, int descriptor, Link link)
    cpdef change(self, int descriptor, int wanted)
    cpdef settle(self, int descriptor, int wanted)
    cpdef listen(self, int descriptor, listener)
    @cython.locals(link=Link)
    cpdef forget(self, int descriptor)
    cpdef turn(self)
    @cython.locals(descriptor=int, events=int, link=Link, is_opening=bint, later=list)
    cpdef bint serve(self, list ready)
    cdef bint comes_later(self, Link link) noexcept
    @cython.locals(descriptor=int, events=int, link=Link, is_opening=bint, served=int)
    cdef bint serve_later(self, list ready) except -1
    @cython.locals(descriptor=int, events=int, link=Link, is_opening=bint)
    cpdef bint serve_crowd(self)
    @cython.locals(ready=list, looks=int, turns=int)
    cpdef linger(self)
