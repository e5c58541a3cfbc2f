cimport cython
cimport flintmq.storage.layout as layout
cimport flintmq.storage.streams.stream_octets as stream_octets

cpdef Py_ssize_t padded(Py_ssize_t size) noexcept


@cython.final
cdef class Chunk:
    cdef readonly bytes octets
    cdef readonly Py_ssize_t at
    cdef readonly object head
    cdef readonly unsigned long long first_offset
    cdef readonly unsigned long long end_offset
    cdef public object messages

    cpdef Py_ssize_t messages_at(self) except -1
    cpdef Py_ssize_t messages_end(self) except -1


cpdef Chunk checked_chunk(bytes octets, Py_ssize_t at)
@cython.locals(
    size=Py_ssize_t, sizes=cython.uint, filter_size=Py_ssize_t, room=Py_ssize_t, route_size=Py_ssize_t,
    header_size=Py_ssize_t, left=Py_ssize_t
)
cpdef bint well_formed(bytes octets, Py_ssize_t at, Py_ssize_t end, Py_ssize_t count) noexcept
@cython.locals(first=Py_ssize_t)
cdef bint route_fits(bytes octets, Py_ssize_t at, Py_ssize_t size) noexcept


@cython.final
cdef class ChunkBuilder:
    cdef readonly Py_ssize_t filter_octets
    cdef bytearray buffer
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t fill
    cdef readonly unsigned long long first_time_ms
    cdef public unsigned long long last_time_ms

    cpdef clear(self)
    @cython.locals(filter_size=Py_ssize_t, size=Py_ssize_t, at=Py_ssize_t, buffer=bytearray)
    cpdef Py_ssize_t append(
        self, unsigned long long time_ms, bytes route, bytes content, Py_ssize_t header_size, unsigned int traits,
        bytes filter_value
    ) except -1
    cdef grow(self, Py_ssize_t size)
    cpdef Chunk finish(self, unsigned long long first_offset, unsigned long long epoch, unsigned long long safe_before)
