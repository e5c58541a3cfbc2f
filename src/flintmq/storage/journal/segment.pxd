cdef class Segment:
    cdef public unsigned long long number
    cdef public Py_ssize_t capacity
    cdef public unsigned long long previous
    cdef public Py_ssize_t previous_end
    cdef public unsigned int seed
    cdef public int handle
    cdef public Py_ssize_t end
    cdef public bint sealed
    cdef public long long live_octets
    cdef public dict obliges
    cdef public long long moved
    cdef public unsigned long long value_sequence
    cdef public unsigned long long touched
    cdef public bint recyclable
    cdef public unsigned long long first_sequence
    cdef public unsigned long long last_sequence
    cdef public bint safe
    cdef public Py_ssize_t appendable
    cdef public bint abandoned
