cimport cython
cimport flintmq.broker.matching.counted_set as tally


cpdef list key_words(str key)

@cython.locals(words=list, hash_pending=bint)
cpdef list pattern_words(str pattern)


@cython.final
cdef class TopicNode:
    cdef str word
    cdef TopicNode only
    cdef dict words
    cdef TopicNode star
    cdef TopicNode hash
    cdef object destinations
    cdef unsigned long long serial

    cdef TopicNode child(self, str word)
    @cython.locals(node=TopicNode)
    cdef TopicNode grow(self, str word)
    cdef prune(self, str word)
    cpdef bint is_bare(self) except -1


@cython.final
cdef class TopicTrie:
    cdef readonly TopicNode root
    cdef unsigned long long serial

    @cython.locals(node=TopicNode)
    cpdef add(self, str pattern, object destination)
    @cython.locals(words=list, path=list, node=TopicNode, after=TopicNode)
    cpdef remove(self, str pattern, object destination)
    @cython.locals(reached=list, hashes=list, following=list, node=TopicNode, word=str)
    cpdef match(self, str routing_key, dict found)
    @cython.locals(after=TopicNode)
    cdef _step(self, TopicNode node, str word, list following)
    cdef _enter(self, TopicNode node, list hashes, dict found)
