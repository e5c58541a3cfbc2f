cimport cython
cimport flintmq.storage.layout as layout
cimport flintmq.storage.journal.record as record

@cython.locals(kind=cython.uint, number_at=Py_ssize_t)
cpdef Py_ssize_t checked_entry(bytes octets, Py_ssize_t at, Py_ssize_t size, unsigned long long segment, unsigned int seed, unsigned long long sequence) except -1
@cython.locals(start=Py_ssize_t, middle=Py_ssize_t)
cpdef tuple entry_parts(bytes octets, Py_ssize_t at, Py_ssize_t header_at)
