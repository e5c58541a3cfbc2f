cimport cython
from flintmq.broker.matching.condition cimport Condition
from flintmq.broker.matching.lookup cimport Lookup
from flintmq.broker.matching.wildcard cimport Wildcard


cdef class PropWildCondition(Condition):
    cdef readonly bint any
    cdef readonly tuple terms

    @cython.locals(term=tuple, wildcard=Wildcard, satisfied=bint)
    cpdef bint holds(self, Lookup lookup) except -1
