cimport cython
cimport flintmq.broker.matching.lookup as lookups
from flintmq.broker.matching.condition cimport Condition
from flintmq.broker.matching.lookup cimport Lookup
from flintmq.patterns.regexp cimport Regexp, StateBudget


@cython.final
cdef class RegexpCondition(Condition):
    cdef readonly object reference
    cdef readonly Regexp regexp
    cdef readonly str pattern
