# The C half of the twin collector.py.
cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void* item) noexcept


cdef inline void untrack(object item) noexcept:
    PyObject_GC_UnTrack(<void*>item)
