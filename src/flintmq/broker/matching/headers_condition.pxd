cimport cython
cimport flintmq.broker.matching.field_equality as field_equality
from flintmq.broker.matching.condition cimport Condition
from flintmq.broker.matching.lookup cimport Lookup


cdef class HeadersCondition(Condition):
    cdef readonly tuple terms
    cdef readonly bint any

    @cython.locals(term=tuple)
    cpdef bint holds(self, Lookup lookup) except -1
