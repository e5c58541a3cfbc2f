cimport cython
from flintmq.server.network.link cimport Link


cdef class Strangers:
    cdef readonly object server
    cdef object loop
    cdef object failed_logins
    cdef readonly dict silent
    cdef readonly dict greeted
    cdef readonly dict arriving
    cdef readonly dict sources
    cdef object timer
    cdef readonly list pausing
    cdef unsigned long long paused
    cdef object pause_timer
    cdef public Py_ssize_t descriptors_max
    cdef readonly Py_ssize_t files_allow
    cdef readonly Py_ssize_t refused_address
    cdef readonly Py_ssize_t refused_banned
    cdef readonly Py_ssize_t refused_full
    cdef readonly Py_ssize_t displaced
    cdef readonly Py_ssize_t late

    cpdef bint take_files(self) except -1
    @cython.locals(there=dict)
    cpdef bint admits(self, str address) except -1
    @cython.locals(count=Py_ssize_t)
    cpdef bint is_full(self) except -1
    @cython.locals(displaced=Py_ssize_t, links=dict)
    cpdef bint make_room(self, Py_ssize_t most) except -1
    cpdef bint displace(self, Link link) except -1
    @cython.locals(there=dict)
    cpdef add(self, Link link)
    cpdef greet(self, Link link)
    @cython.locals(there=dict)
    cpdef remove(self, Link link)
    @cython.locals(links=dict, link=Link)
    cpdef check(self)
    cpdef refuse_after(self, double pause_s, refused)
    cpdef end_pauses(self)
    cpdef stop(self)
