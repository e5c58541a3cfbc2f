from flintmq.broker.exchanges.binding cimport Binding
from flintmq.broker.matching.condition cimport Condition
from flintmq.broker.exchanges.exchange cimport ConditionExchange
from flintmq.broker.matching.match_index cimport MatchIndex
from flintmq.broker.matching.regexp_condition cimport RegexpCondition
from flintmq.patterns.regexp cimport StateBudget


cdef class SelectorExchange(ConditionExchange):
    cdef Condition validated


cdef class PropWildExchange(ConditionExchange):
    pass


cdef class RegexpExchange(ConditionExchange):
    cdef readonly StateBudget budget
    cdef readonly Py_ssize_t by_header
