cimport cython
cimport flintmq.storage.layout as layout
cimport flintmq.storage.streams.stream_octets as stream_octets
cimport flintmq.wire.stamp as stamp
cimport flintmq.wire.traits as traits
from flintmq.broker.queues.consumer cimport Consumer
from flintmq.broker.messages.message cimport Message
from flintmq.storage.streams.chunk cimport Chunk

cdef Py_ssize_t FLAGS_AT
cdef Py_ssize_t PROPERTIES_AT
cdef Py_ssize_t READ_SHIFT
cdef Py_ssize_t DECODED_SHIFT


@cython.final
cdef class ChunkMessages:
    cdef readonly list messages
    cdef readonly list filters


@cython.locals(found=ChunkMessages)
cpdef ChunkMessages decoded(Chunk chunk)
@cython.locals(
    route=bytes, size=Py_ssize_t, header_size=Py_ssize_t, sizes=cython.uint, route_size=Py_ssize_t,
    filter_size=Py_ssize_t, start=Py_ssize_t, table_at=Py_ssize_t, table_end=Py_ssize_t, flags=cython.uint,
    content=bytes, message=Message
)
cpdef decode(bytes octets, Py_ssize_t at, Py_ssize_t end, unsigned long long offset, ChunkMessages found)


@cython.final
cdef class StreamReader:
    cdef readonly Consumer consumer
    cdef readonly object cursor
    cdef readonly unsigned long long start
    cdef readonly tuple wanted
    cdef readonly bint match_unfiltered
    cdef list found
    cdef list filters
    cdef unsigned long long chunk_offset
    cdef public Py_ssize_t index
    cdef public bint is_failing
    cdef readonly Py_ssize_t load_cost

    cpdef Message peek(self)
    cpdef bint wants(self) except -1
    cpdef unsigned long long offset(self) noexcept
    @cython.locals(messages=ChunkMessages, chunk=Chunk)
    cpdef bint load(self) except -1
