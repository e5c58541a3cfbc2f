cpdef object add(object counted, object item)

cpdef object remove(object counted, object item)

cpdef bint holds(object counted, object item) except -1

cpdef Py_ssize_t size(object counted) except -1

cpdef collect(object counted, dict found)
