cimport cython
cimport flintmq.broker.binding as binding
cimport flintmq.broker.tally as tally


@cython.final
cdef class Requirement:
    cdef tuple terms
    cdef tuple home
    cdef object destinations


@cython.final
cdef class HeaderName:
    cdef Py_ssize_t uses
    cdef readonly object any_present
    cdef readonly dict any_values
    cdef readonly object all_present
    cdef readonly dict all_values


@cython.final
cdef class HeadersIndex:
    cdef readonly dict names
    cdef readonly dict requirements
    cdef readonly object always

    @cython.locals(terms=tuple, requirement=Requirement)
    cpdef add(self, object arguments, object destination)
    @cython.locals(terms=tuple, requirement=Requirement)
    cpdef remove(self, object arguments, object destination)
    @cython.locals(values=dict, header=HeaderName)
    cpdef match(self, dict headers, dict found)
    cdef _check(self, object requirements, dict values, dict found)
    @cython.locals(term=tuple)
    cdef _check_one(self, Requirement requirement, dict values, dict found)
    @cython.locals(header=HeaderName)
    cdef HeaderName _use(self, str name)
    @cython.locals(header=HeaderName)
    cdef _release(self, str name)
    cdef _hang_any(self, HeaderName header, object value, object destination)
    cdef _unhang_any(self, HeaderName header, object value, object destination)
    @cython.locals(home=tuple, term=tuple, size=Py_ssize_t, home_size=Py_ssize_t, header=HeaderName, requirement=Requirement)
    cdef Requirement _require(self, tuple terms)
    @cython.locals(header=HeaderName)
    cdef _dismiss(self, Requirement requirement)
    cdef Py_ssize_t _hanging(self, HeaderName header, object value) except -1
