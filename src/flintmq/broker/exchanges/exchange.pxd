cimport cython
cimport flintmq.broker.matching.lookup as lookup
cimport flintmq.broker.matching.counted_set as counted_set
from flintmq.broker.exchanges.binding cimport Binding
from flintmq.broker.matching.match_index cimport MatchIndex
from flintmq.broker.matching.topic_trie cimport TopicTrie

cdef Py_ssize_t UNCOUNTED_COPIES


cdef class Exchange:
    cdef readonly str name
    cdef readonly bint durable
    cdef readonly bint auto_delete
    cdef readonly bint internal
    cdef readonly dict arguments
    cdef readonly dict bindings
    cdef dict _newest
    cdef readonly unsigned long long numbered
    cdef object order
    cdef public bint deleted
    cdef public unsigned int life
    cdef readonly dict sources
    cdef public unsigned int number
    cdef public object router

    cpdef validate_binding(self, str routing_key, object arguments)
    cpdef Py_ssize_t topic_steps(self, str routing_key) except -1
    @cython.locals(binding=Binding, older=Binding)
    cpdef bint bind(self, object destination, str routing_key, object arguments) except -1
    @cython.locals(binding=Binding, older=Binding, newer=Binding)
    cpdef bint unbind(self, object destination, str routing_key, object arguments) except -1
    cpdef Binding unhook(self, object destination)
    @cython.locals(older=Binding, removed=list)
    cpdef tuple unbind_chain(self, Binding binding, Py_ssize_t most)
    @cython.locals(binding=Binding, removed=list)
    cpdef list dismantle(self, Py_ssize_t most)
    @cython.locals(binding=Binding)
    cpdef object bindings_after(self, unsigned long long number)
    cpdef Binding find_binding(self, object destination, str routing_key, object arguments)
    cpdef bint leads_to(self, object destination) except -1
    cpdef bint is_unused(self) except -1
    cpdef route(self, str routing_key, object headers, dict found)
    cpdef int charge(self, Py_ssize_t copies) except -1
    cpdef int receive(self, object context) except -1
    cpdef take_back(self, object context, bint is_unrouted)
    cpdef check(self, dict headers)
    cpdef route_message(self, str routing_key, object context, dict found)
    cpdef preview(self, str routing_key, object context, object headers, dict found)
    cpdef enter(self, object router)
    cpdef leave(self)
    cpdef prepare(self)
    cpdef attach(self, Binding binding)
    cpdef detach(self, Binding binding)


cdef class DirectExchange(Exchange):
    cdef dict keys


cdef class FanoutExchange(Exchange):
    cdef object destinations


cdef class TopicExchange(Exchange):
    cdef readonly TopicTrie patterns


cdef class ConditionExchange(Exchange):
    cdef readonly MatchIndex index

    cpdef object form_of(self, Binding binding)
    cpdef object condition_of(self, object form)


cdef class HeadersExchange(ConditionExchange):
    pass
