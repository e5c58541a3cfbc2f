# The C half of the twin sockets.py.
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.exc cimport PyErr_SetFromErrno
from libc.errno cimport EAGAIN, ECONNABORTED, EINTR, errno

cdef extern from *:
    """
    #include <arpa/inet.h>
    #include <errno.h>
    #include <fcntl.h>
    #include <netinet/in.h>
    #include <string.h>
    #include <sys/socket.h>
    #include <unistd.h>

    #ifdef __linux__
    #include <sys/epoll.h>
    #endif

    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0 /* Python ignores the signal */
    #endif

    #define FLINT_READY_MAX 256

    /* A descriptor that does not block, with its peer's address in `text`; -1 with errno. */
    static int flint_accept(int listener, char *text, socklen_t text_size)
    {
        struct sockaddr_storage address;
        socklen_t size = sizeof address;
        const void *octets;
    #ifdef __linux__
        int descriptor = accept4(listener, (struct sockaddr *)&address, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    #else
        int descriptor = accept(listener, (struct sockaddr *)&address, &size);
        if (descriptor >= 0) {
            fcntl(descriptor, F_SETFD, FD_CLOEXEC);
            fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK);
        }
    #endif
        if (descriptor < 0)
            return -1;
        octets = address.ss_family == AF_INET6 ? (const void *)&((struct sockaddr_in6 *)&address)->sin6_addr
                                               : (const void *)&((struct sockaddr_in *)&address)->sin_addr;
        if (inet_ntop(address.ss_family, octets, text, text_size) == NULL)
            strcpy(text, "?");
        return descriptor;
    }

    /* The descriptors that are ready now, and their events; how many, or -1 with errno. */
    static int flint_ready(int epoll, int most, int *descriptors, int *events)
    {
    #ifdef __linux__
        struct epoll_event found[FLINT_READY_MAX];
        int count = epoll_wait(epoll, found, most < FLINT_READY_MAX ? most : FLINT_READY_MAX, 0);
        for (int index = 0; index < count; index++) {
            descriptors[index] = found[index].data.fd;
            events[index] = (int)found[index].events;
        }
        return count;
    #else
        errno = ENOSYS; /* readiness.py finds no epoll there either */
        return -1;
    #endif
    }

    static int flint_is_there(int descriptor)
    {
        char octet;
        ssize_t size = recv(descriptor, &octet, 1, MSG_PEEK | MSG_DONTWAIT);
        return size > 0 || (size < 0 && (errno == EAGAIN || errno == EINTR));
    }
    """
    int flint_accept(int listener, char* text, size_t text_size) nogil
    int flint_ready(int epoll, int most, int* descriptors, int* events) nogil
    bint flint_is_there(int descriptor) nogil
    ssize_t c_recv "recv"(int descriptor, void* buffer, size_t size, int flags) nogil
    ssize_t c_send "send"(int descriptor, const void* buffer, size_t size, int flags) nogil
    int c_shutdown "shutdown"(int descriptor, int how) nogil
    int c_close "close"(int descriptor) nogil
    int SHUT_WR
    int MSG_NOSIGNAL

cdef enum:
    NOT_NOW = -1
    GONE = -2
    READY_MAX = 256  # FLINT_READY_MAX


cdef inline list ready(epoll, int most):
    cdef int descriptors[READY_MAX]
    cdef int events[READY_MAX]
    cdef int index
    cdef int epoll_descriptor = epoll.fileno()
    cdef int count
    with nogil:  # other threads have waited for this
        count = flint_ready(epoll_descriptor, most, descriptors, events)
    if count < 0 and errno != EINTR:
        PyErr_SetFromErrno(OSError)
    return [(descriptors[index], events[index]) for index in range(count)]


cdef inline tuple accept(listener):
    cdef char text[64]
    cdef int descriptor = flint_accept(listener.fileno(), text, sizeof(text))
    if descriptor >= 0:
        return descriptor, text.decode("ascii")
    if errno == EAGAIN or errno == EINTR or errno == ECONNABORTED:
        return None
    PyErr_SetFromErrno(OSError)


cdef inline Py_ssize_t receive(
    int descriptor, bytearray buffer, Py_ssize_t start, Py_ssize_t end
) noexcept:
    cdef ssize_t size = c_recv(descriptor, PyByteArray_AS_STRING(buffer) + start, end - start, 0)
    if size >= 0:
        return size
    return NOT_NOW if errno == EAGAIN or errno == EINTR else GONE


cdef inline Py_ssize_t send(int descriptor, bytearray buffer, Py_ssize_t start, Py_ssize_t end) noexcept:
    cdef ssize_t size = c_send(descriptor, PyByteArray_AS_STRING(buffer) + start, end - start, MSG_NOSIGNAL)
    if size >= 0:
        return size
    return NOT_NOW if errno == EAGAIN or errno == EINTR else GONE


cdef inline bint is_there(int descriptor) noexcept:
    return flint_is_there(descriptor)


cdef inline end_sending(int descriptor):
    c_shutdown(descriptor, SHUT_WR)


cdef inline close(int descriptor):
    c_close(descriptor)
