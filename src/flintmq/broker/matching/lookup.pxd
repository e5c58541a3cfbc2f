cimport cython
cimport flintmq.broker.matching.field_equality as field_equality
cimport flintmq.wire.amqp as amqp
cimport flintmq.wire.headers as headers
from flintmq.broker.messages.message cimport Message

cpdef object plain(object value)


@cython.final
cdef class Lookup:
    cdef readonly Message message
    cdef readonly str key
    cdef dict _headers
    cdef dict _values
    cdef dict _forms
    cdef object _body
    cdef bint _is_parsed

    @staticmethod
    @cython.locals(lookup=Lookup)
    cdef Lookup create(Message message, str key)
    cpdef dict headers(self)
    @cython.locals(table=dict)
    cpdef object form(self, str name)
    @cython.locals(table=dict)
    cpdef object value(self, object reference)
    cpdef object body_value(self, tuple path)
    @cython.locals(wanted=cython.int)
    cdef object read(self, int reference)


@cython.locals(lookup=Lookup)
cpdef Lookup lookup_of(object source, str key)

cpdef Lookup lookup_for(Message message, str key)
