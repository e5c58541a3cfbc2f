cimport flintmq.broker.lookup as lookup
from flintmq.broker.binding cimport Binding
from flintmq.broker.condition cimport Condition
from flintmq.broker.exchange cimport Exchange
from flintmq.broker.match_index cimport MatchIndex
from flintmq.broker.regexp_condition cimport RegexpCondition
from flintmq.regexp cimport StateBudget


cdef class SelectorExchange(Exchange):
    cdef readonly MatchIndex index


cdef class PropWildExchange(Exchange):
    cdef readonly MatchIndex index


cdef class RegexpExchange(Exchange):
    cdef readonly MatchIndex index
    cdef readonly StateBudget budget
    cdef readonly Py_ssize_t by_header
