# The C half of the twin stream_octets.py. Unchecked; see there.
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcmp, memcpy

cdef enum:
    CHUNK_HEAD = 64
    MESSAGE_HEAD = 24
    NO_FILTER = 0xFFFF


cdef inline Py_ssize_t put_part(
    bytearray target, Py_ssize_t at, bytes source, Py_ssize_t start, Py_ssize_t end
) noexcept:
    memcpy(PyByteArray_AS_STRING(target) + at, PyBytes_AS_STRING(source) + start, end - start)
    return at + end - start


cdef inline bytes part(bytes source, Py_ssize_t start, Py_ssize_t end):
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(source) + start, end - start)


cdef inline bint is_same(bytes source, Py_ssize_t start, Py_ssize_t end, bytes other) noexcept:
    return PyBytes_GET_SIZE(other) == end - start and memcmp(
        PyBytes_AS_STRING(source) + start, PyBytes_AS_STRING(other), end - start
    ) == 0
