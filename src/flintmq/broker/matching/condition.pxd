from flintmq.broker.matching.lookup cimport Lookup


cdef class Condition:
    cdef readonly object form
    cdef public object destinations
    cdef public tuple homes
    cdef public bint exact
    cdef public unsigned long long serial
    cdef readonly Py_ssize_t steps

    cpdef tuple home_list(self)
    cpdef bint holds(self, Lookup lookup) except -1
