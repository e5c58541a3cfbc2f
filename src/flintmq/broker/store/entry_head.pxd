# The C half of the twin entry_head.py.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy


cdef inline void put(unsigned char* target, unsigned long long value, int octets) noexcept:
    cdef int index
    for index in range(octets):
        target[index] = <unsigned char>(value >> (8 * index))


cdef inline bytes pack(
    unsigned int header_size, unsigned int traits, long long arrived_ms, unsigned int origin, bytes rest
):
    cdef bytes head = PyBytes_FromStringAndSize(NULL, 20 + PyBytes_GET_SIZE(rest))
    cdef unsigned char* target = <unsigned char*>PyBytes_AS_STRING(head)
    put(target, header_size, 4)
    put(target + 4, traits, 4)
    put(target + 8, <unsigned long long>arrived_ms, 8)
    put(target + 16, origin, 4)
    memcpy(target + 20, PyBytes_AS_STRING(rest), PyBytes_GET_SIZE(rest))
    return head


cdef inline unsigned int get(bytes head, Py_ssize_t at) except? 0:
    if PyBytes_GET_SIZE(head) < at + 4:
        raise ValueError("the head of an entry is too short")
    cdef unsigned char* source = <unsigned char*>PyBytes_AS_STRING(head) + at
    return source[0] | source[1] << 8 | source[2] << 16 | <unsigned int>source[3] << 24


cdef inline unsigned int header_size(bytes head) except? 0:
    return get(head, 0)


cdef inline unsigned int traits_of(bytes head) except? 0:
    return get(head, 4)
