cimport cython
cimport flintmq.broker.matching.counted_set as counted_set
from flintmq.broker.matching.condition cimport Condition
from flintmq.broker.matching.intervals cimport Intervals
from flintmq.broker.matching.lookup cimport AskedNames, Lookup


@cython.final
cdef class Pieces:
    cdef readonly dict texts
    cdef dict counts
    cdef readonly list sizes

    cdef object find(self, str text)
    cdef add(self, str text, object condition)
    cdef remove(self, str text, object condition)


@cython.final
cdef class NameSlot:
    cdef Py_ssize_t uses
    cdef readonly object present
    cdef readonly dict values
    cdef readonly Pieces prefixes
    cdef readonly Pieces suffixes
    cdef readonly Pieces grams
    cdef readonly Intervals intervals

    cpdef Py_ssize_t crowd(self, int kind, object value) except -1
    cdef hang(self, int kind, object value, object condition)
    cdef unhang(self, int kind, object value, object condition)


@cython.final
cdef class MatchIndex:
    cdef readonly bint typed
    cdef readonly dict names
    cdef readonly dict conditions
    cdef readonly object everywhere
    cdef readonly list numbers
    cdef unsigned long long serial
    cdef readonly AskedNames asked
    cdef readonly Py_ssize_t unlisted

    cpdef Condition find(self, object form)
    cpdef add(self, Condition condition, object destination)
    @cython.locals(condition=Condition)
    cpdef remove(self, object form, object destination)
    @cython.locals(slot=NameSlot)
    cpdef insert(self, Condition condition)
    @cython.locals(slot=NameSlot)
    cdef dismiss(self, Condition condition)
    @cython.locals(slot=NameSlot, headers=dict)
    cpdef Py_ssize_t match(self, Lookup lookup, dict found) except -1
    cdef visit(self, NameSlot slot, object value, Lookup lookup, dict found)
    @cython.locals(size=Py_ssize_t, length=Py_ssize_t, start=Py_ssize_t)
    cdef visit_text(self, NameSlot slot, str text, Lookup lookup, dict found)
    cdef meet(self, object conditions, Lookup lookup, dict found)
    cdef meet_one(self, Condition condition, Lookup lookup, dict found)
