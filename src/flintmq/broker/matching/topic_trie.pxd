cimport cython
cimport flintmq.broker.matching.counted_set as counted_set


cpdef list key_words(str key)

@cython.locals(words=list, hash_pending=bint)
cpdef list pattern_words(str pattern)


@cython.final
cdef class TopicNode:
    cdef str word
    cdef object only
    cdef dict words
    cdef TopicNode star
    cdef TopicNode hash
    cdef object destinations
    cdef unsigned long long serial

    cdef object way(self, str word)
    cdef put(self, str word, object way)
    @cython.locals(node=TopicNode)
    cdef TopicNode grow(self, str word)
    @cython.locals(node=TopicNode)
    cdef end_with(self, str word, object destination)
    cdef prune(self, str word)
    cpdef bint is_bare(self) except -1


@cython.final
cdef class TopicTrie:
    cdef readonly TopicNode root
    cdef unsigned long long serial
    cdef dict shared

    @cython.locals(words=list, node=TopicNode, last=Py_ssize_t, index=Py_ssize_t)
    cpdef add(self, str pattern, object destination)
    cdef str share(self, str word)
    @cython.locals(words=list, path=list, node=TopicNode, index=Py_ssize_t)
    cpdef remove(self, str pattern, object destination)
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
