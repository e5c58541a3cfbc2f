cpdef object add(object tally, object item)

cpdef object remove(object tally, object item)

cpdef bint holds(object tally, object item) except -1

cpdef Py_ssize_t size(object tally) except -1

cpdef collect(object tally, dict found)
