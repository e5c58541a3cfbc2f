# The C half of the twin sockets.py.
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from libc.errno cimport EAGAIN, EINTR, errno

cdef extern from "<sys/socket.h>" nogil:
    ssize_t c_recv "recv"(int descriptor, void* buffer, size_t size, int flags)
    ssize_t c_send "send"(int descriptor, const void* buffer, size_t size, int flags)
    int MSG_NOSIGNAL

cdef enum:
    NOT_NOW = -1
    GONE = -2


cdef inline Py_ssize_t receive(int descriptor, bytearray buffer, Py_ssize_t start) noexcept:
    cdef ssize_t size = c_recv(
        descriptor, PyByteArray_AS_STRING(buffer) + start, PyByteArray_GET_SIZE(buffer) - start, 0
    )
    if size >= 0:
        return size
    return NOT_NOW if errno == EAGAIN or errno == EINTR else GONE


cdef inline Py_ssize_t send(int descriptor, bytearray buffer, Py_ssize_t start, Py_ssize_t end) noexcept:
    cdef ssize_t size = c_send(descriptor, PyByteArray_AS_STRING(buffer) + start, end - start, MSG_NOSIGNAL)
    if size >= 0:
        return size
    return NOT_NOW if errno == EAGAIN or errno == EINTR else GONE
