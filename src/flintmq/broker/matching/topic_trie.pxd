cimport cython
cimport flintmq.broker.matching.counted_set as counted_set


cpdef list key_words(str key)

@cython.locals(words=list, hash_pending=bint)
cpdef list pattern_words(str pattern)

cdef bint is_wild(list words) except -1

cdef long long KEY_WORDS
cdef Py_ssize_t FEW_WORDS
cdef long long DEAR_VISITS
cdef long long DEAR_BENEATH


@cython.final
cdef class TopicNode:
    cdef str word
    cdef object only
    cdef dict words
    cdef TopicNode star
    cdef TopicNode hash
    cdef object destinations
    cdef unsigned long long serial
    cdef dict dear
    cdef long long visits
    cdef long long beneath
    cdef long long all_beneath
    cdef long long word_beneath
    cdef long long word_visits
    cdef int shrunk

    cdef object way(self, str word)
    cdef put(self, str word, object way)
    @cython.locals(node=TopicNode)
    cdef TopicNode grow(self, str word)
    @cython.locals(node=TopicNode)
    cdef end_with(self, str word, object destination)
    cdef prune(self, str word)
    cpdef bint is_bare(self) except -1
    @cython.locals(was_dear=bint)
    cdef count(self, str word, TopicNode child, long long visits, long long beneath, long long all_beneath)
    @cython.locals(was_dear=bint)
    cdef bint set_dear(self, str word, TopicNode child) except -1
    cdef set_dearest(self, long long visits, long long beneath)
    @cython.locals(visits=cython.longlong, beneath=cython.longlong, ways=list, child=TopicNode)
    cdef find_dearest(self)


@cython.final
cdef class TopicTrie:
    cdef readonly TopicNode root
    cdef unsigned long long serial
    cdef dict shared

    @cython.locals(words=list, nodes=list, node=TopicNode, last=Py_ssize_t, index=Py_ssize_t)
    cpdef add(self, str pattern, object destination)
    cdef str share(self, str word)
    @cython.locals(words=list, nodes=list, node=TopicNode, gone=TopicNode, index=Py_ssize_t)
    cpdef remove(self, str pattern, object destination)
    @cython.locals(
        child=TopicNode, node=TopicNode, index=Py_ssize_t, visits=cython.longlong, beneath=cython.longlong,
        all_beneath=cython.longlong, node_visits=cython.longlong, node_beneath=cython.longlong,
        node_all=cython.longlong
    )
    cdef weigh(self, list nodes, list words, TopicNode gone)
    cpdef Py_ssize_t cost(self) except -1
    cpdef Py_ssize_t cost_beside(self, str pattern) except -1
    @cython.locals(
        words=list,
        reached=list,
        hashes=list,
        following=list,
        node=TopicNode,
        word=str,
        index=Py_ssize_t,
        last=Py_ssize_t,
        visited=Py_ssize_t,
    )
    cpdef Py_ssize_t match(self, str routing_key, dict found) except -1
    cdef _step(self, TopicNode node, str word, list following, bint is_last, dict found)
    cdef _enter(self, TopicNode node, list hashes, dict found)
