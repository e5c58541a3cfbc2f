cimport cython


cpdef tuple text_at(bytes octets, Py_ssize_t at, bytes head)
@cython.locals(at=Py_ssize_t, flag_at=Py_ssize_t, end=Py_ssize_t)
cpdef tuple plain_binding(bytes key)
