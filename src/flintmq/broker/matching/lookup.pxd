cimport cython
cimport flintmq.broker.matching.field_equality as field_equality
cimport flintmq.wire.amqp as amqp
cimport flintmq.wire.headers as headers
from flintmq.broker.messages.message cimport Message

cdef Py_ssize_t LARGE_BYTES
cdef Py_ssize_t STEPS_MAX

cpdef object plain(object value)


@cython.final
cdef class AskedNames:
    cdef readonly dict names
    cdef readonly bytearray sieve
    cdef Py_ssize_t gone

    cpdef add(self, str name)
    cpdef remove(self, str name)
    cdef dict read(self, Message message)


@cython.final
cdef class Lookup:
    cdef readonly Message message
    cdef readonly str key
    cdef public Py_ssize_t steps
    cdef dict _headers
    cdef dict _some
    cdef AskedNames _asked
    cdef dict _values
    cdef dict _forms
    cdef object _body
    cdef bint _is_parsed

    @staticmethod
    @cython.locals(lookup=Lookup)
    cdef Lookup create(Message message, str key)
    cpdef int spend(self, Py_ssize_t steps) except -1
    cpdef dict headers(self)
    cpdef dict headers_among(self, AskedNames asked)
    cdef dict table_for(self, str name)
    cpdef bint has_header(self, str name) except -1
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
