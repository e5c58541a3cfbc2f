# The C half of the twin stamp.py. Unchecked; see there.
cimport flintmq.wire.octets as octets
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy

cdef enum:
    ENTRY_BYTES = 25
    TABLE_BYTES = 29


cdef inline bytes stamped(
    bytes source, Py_ssize_t start, Py_ssize_t table_at, Py_ssize_t table_end, Py_ssize_t end,
    unsigned long long offset
):
    cdef bint has_table = table_end > table_at
    cdef Py_ssize_t size = end - start + (ENTRY_BYTES if has_table else TABLE_BYTES)
    cdef bytes made = PyBytes_FromStringAndSize(NULL, size)
    cdef unsigned char* target = <unsigned char*>PyBytes_AS_STRING(made)
    cdef const unsigned char* octet = <const unsigned char*>PyBytes_AS_STRING(source)
    cdef Py_ssize_t at = table_at - start
    memcpy(target, octet + start, at)
    if has_table:
        octets.write_long(target, at, <unsigned int>(table_end - table_at - 4 + ENTRY_BYTES))
        memcpy(target + at + 4, octet + table_at + 4, table_end - table_at - 4)
        at += table_end - table_at
    else:
        target[12] |= 0x20
        at = octets.write_long(target, at, ENTRY_BYTES)
    target[at] = 15
    memcpy(target + at + 1, b"x-stream-offsetl", 16)
    at = octets.write_longlong(target, at + 17, offset)
    memcpy(target + at, octet + table_end, end - table_end)
    return made
