# The C half of the twin octets.py: the same functions on pointers. Unchecked; see there.
cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memcmp, memcpy

ctypedef const unsigned char* Readable
ctypedef unsigned char* Writable


cdef inline const unsigned char* readable(bytearray buffer) noexcept:
    return <const unsigned char*>PyByteArray_AS_STRING(buffer)


cdef inline const unsigned char* readable_bytes(bytes buffer) noexcept:
    return <const unsigned char*>PyBytes_AS_STRING(buffer)


cdef inline unsigned char* writable(bytearray buffer) noexcept:
    return <unsigned char*>PyByteArray_AS_STRING(buffer)


cdef inline bytearray unset(Py_ssize_t size):
    return PyByteArray_FromStringAndSize(NULL, size)


# From a pointer of its own gcc makes one load and one swap of it, from `source[at + n]` a load for each octet.
cdef inline unsigned int read_short(const unsigned char* source, Py_ssize_t at) noexcept:
    cdef const unsigned char* place = source + at
    return (<unsigned int>place[0] << 8) | place[1]


cdef inline unsigned int read_long(const unsigned char* source, Py_ssize_t at) noexcept:
    cdef const unsigned char* place = source + at
    return (
        (<unsigned int>place[0] << 24)
        | (<unsigned int>place[1] << 16)
        | (<unsigned int>place[2] << 8)
        | place[3]
    )


cdef inline unsigned long long read_longlong(const unsigned char* source, Py_ssize_t at) noexcept:
    return (<unsigned long long>read_long(source, at) << 32) | read_long(source, at + 4)


cdef inline int read_signed_long(const unsigned char* source, Py_ssize_t at) noexcept:
    return <int>read_long(source, at)


cdef inline long long read_signed_longlong(const unsigned char* source, Py_ssize_t at) noexcept:
    return <long long>read_longlong(source, at)


cdef inline double read_double(const unsigned char* source, Py_ssize_t at) noexcept:
    cdef unsigned long long bits = read_longlong(source, at)
    cdef double value
    memcpy(&value, &bits, 8)
    return value


cdef inline str text(const unsigned char* source, Py_ssize_t start, Py_ssize_t end):
    return <str>PyUnicode_DecodeUTF8(<char*>source + start, end - start, "surrogateescape")


cdef inline str text_or_none(const unsigned char* source, Py_ssize_t start, Py_ssize_t end):
    try:
        return <str>PyUnicode_DecodeUTF8(<char*>source + start, end - start, NULL)
    except UnicodeDecodeError:
        return None


cdef inline bytes copy(const unsigned char* source, Py_ssize_t start, Py_ssize_t end):
    return PyBytes_FromStringAndSize(<const char*>source + start, end - start)


cdef inline bytes join(
    const unsigned char* source, Py_ssize_t start, Py_ssize_t end, Py_ssize_t start2, Py_ssize_t end2
):
    cdef bytes joined = PyBytes_FromStringAndSize(NULL, end - start + end2 - start2)
    cdef char* target = PyBytes_AS_STRING(joined)
    memcpy(target, source + start, end - start)
    memcpy(target + (end - start), source + start2, end2 - start2)
    return joined


cdef inline bint equal(const unsigned char* source, Py_ssize_t start, Py_ssize_t end, bytes other) noexcept:
    return PyBytes_GET_SIZE(other) == end - start and memcmp(
        source + start, PyBytes_AS_STRING(other), end - start
    ) == 0


cdef inline Py_ssize_t write_octet(unsigned char* target, Py_ssize_t at, unsigned char value) noexcept:
    target[at] = value
    return at + 1


cdef inline Py_ssize_t write_long(unsigned char* target, Py_ssize_t at, unsigned int value) noexcept:
    target[at] = <unsigned char>(value >> 24)
    target[at + 1] = <unsigned char>(value >> 16)
    target[at + 2] = <unsigned char>(value >> 8)
    target[at + 3] = <unsigned char>value
    return at + 4


cdef inline Py_ssize_t write_longlong(unsigned char* target, Py_ssize_t at, unsigned long long value) noexcept:
    write_long(target, at, <unsigned int>(value >> 32))
    return write_long(target, at + 4, <unsigned int>value)


cdef inline Py_ssize_t write_frame_head(
    unsigned char* target, Py_ssize_t at, unsigned char kind, unsigned int channel, unsigned int size
) noexcept:
    target[at] = kind
    target[at + 1] = <unsigned char>(channel >> 8)
    target[at + 2] = <unsigned char>channel
    return write_long(target, at + 3, size)


cdef inline Py_ssize_t write_method_head(
    unsigned char* target, Py_ssize_t at, unsigned int channel, unsigned int size, unsigned int code
) noexcept:
    write_frame_head(target, at, 1, channel, size)
    return write_long(target, at + 7, code)


cdef inline Py_ssize_t write_bytes(unsigned char* target, Py_ssize_t at, bytes source) noexcept:
    memcpy(target + at, PyBytes_AS_STRING(source), PyBytes_GET_SIZE(source))
    return at + PyBytes_GET_SIZE(source)


cdef inline Py_ssize_t write_frame(
    unsigned char* target, Py_ssize_t at, unsigned char kind, unsigned int channel, bytes source, Py_ssize_t start,
    Py_ssize_t end,
) noexcept:
    at = write_frame_head(target, at, kind, channel, <unsigned int>(end - start))
    memcpy(target + at, PyBytes_AS_STRING(source) + start, end - start)
    return write_octet(target, at + end - start, 0xCE)


cdef inline Py_ssize_t write_deliver(
    unsigned char* target, Py_ssize_t at, unsigned int channel, unsigned int size, unsigned int code,
    bytes consumer_tag, unsigned long long tag, unsigned char flag, bytes route,
) noexcept:
    at = write_method_head(target, at, channel, size, code)
    at = write_bytes(target, at, consumer_tag)
    at = write_longlong(target, at, tag)
    at = write_octet(target, at, flag)
    at = write_bytes(target, at, route)
    return write_octet(target, at, 0xCE)


cdef inline bytes with_body(
    bytes header, unsigned long long size, const unsigned char* source, Py_ssize_t start, Py_ssize_t end
):
    cdef Py_ssize_t head = PyBytes_GET_SIZE(header)
    cdef bytes joined = PyBytes_FromStringAndSize(NULL, head + end - start)
    cdef unsigned char* target = <unsigned char*>PyBytes_AS_STRING(joined)
    memcpy(target, PyBytes_AS_STRING(header), head)
    write_longlong(target, 4, size)
    memcpy(target + head, source + start, end - start)
    return joined


cdef inline Py_ssize_t write_range(
    unsigned char* target, Py_ssize_t at, bytes source, Py_ssize_t start, Py_ssize_t end
) noexcept:
    memcpy(target + at, PyBytes_AS_STRING(source) + start, end - start)
    return at + end - start


cdef inline Py_ssize_t write_notify(
    unsigned char* target, Py_ssize_t at, unsigned int handle, unsigned int number, unsigned int fragment,
    unsigned char flags, bytes name,
) noexcept:
    cdef unsigned int size = <unsigned int>(13 + PyBytes_GET_SIZE(name))
    target[at] = <unsigned char>(size >> 8)
    target[at + 1] = <unsigned char>size
    target[at + 2] = 41
    target[at + 3] = <unsigned char>(handle >> 8)
    target[at + 4] = <unsigned char>handle
    write_long(target, at + 5, number)
    write_long(target, at + 9, fragment)
    target[at + 13] = flags
    at = write_bytes(target, at + 14, name)
    return write_octet(target, at, 0xCE)
