cimport cython
cimport flintmq.wire.amqp as amqp
cimport flintmq.wire.octets as octets

cdef Py_ssize_t BUFFER_BYTES
cdef Py_ssize_t OUTPUT_BYTES_MAX
cdef Py_ssize_t OUTPUT_BYTES_STOP
cdef Py_ssize_t POOL_BUFFERS_MAX
cdef Py_ssize_t TIGHT_BYTES_MAX
cdef Py_ssize_t WHOLE_BYTES_MAX
cdef Py_ssize_t TIGHT_BYTES_STOP
cdef Py_ssize_t STREAM_BYTES_MAX
cdef Py_ssize_t STREAMS_READ_MAX
cdef Py_ssize_t STREAMS_MAX
cdef Py_ssize_t SMALL_BUFFER_BYTES
cdef bytearray NO_BUFFER
cdef list POOL
cdef list SMALL_POOL


@cython.final
cdef class Room:
    cdef public Py_ssize_t budget_bytes
    cdef readonly Py_ssize_t held_bytes
    cdef readonly bint is_tight
    cdef readonly Py_ssize_t output_bytes_max
    cdef readonly Py_ssize_t output_bytes_stop

    @cython.locals(is_tight=bint)
    cpdef int take(self, Py_ssize_t size) except -1


cdef class Output:
    cdef readonly Room room
    cdef list outbox
    cdef public object sender
    cdef readonly bytearray buffer
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t start
    cdef readonly Py_ssize_t fill
    cdef public Py_ssize_t frame_bytes_max
    cdef public long long body_bytes_max
    cdef public long long header_bytes_max
    cdef public bint waiting
    cdef public bint blocked
    cdef readonly bint is_torn
    cdef public bint ended
    cdef public unsigned long long barrier
    cdef public dict wanted
    cdef readonly list streams
    cdef dict streaming_channels
    cdef readonly Py_ssize_t streaming
    cdef readonly Py_ssize_t behind_bytes

    cpdef Py_ssize_t pending(self)
    cdef bint has_room(self) noexcept
    @cython.locals(waiting=Py_ssize_t)
    cpdef bint is_full(self) noexcept
    @cython.final
    cdef int reserve(self, Py_ssize_t size) except -1
    @cython.locals(pending=Py_ssize_t, needed=Py_ssize_t, buffer=bytearray)
    cdef grow(self, Py_ssize_t size)
    @cython.locals(pending=Py_ssize_t)
    cdef move(self, bytearray buffer)
    cpdef release(self)
    cpdef sent(self, Py_ssize_t size)
    cpdef lift_barrier(self)
    cpdef write(self, bytes source)
    @cython.locals(size=Py_ssize_t, at=Py_ssize_t, behind=Output)
    cpdef write_method(self, unsigned int channel, bytes payload)
    @cython.locals(size=Py_ssize_t, behind=Output)
    cpdef write_frame(self, int kind, unsigned int channel, bytes payload)
    @cython.locals(at=Py_ssize_t, behind=Output)
    cpdef write_settlement(self, unsigned int channel, unsigned int code, unsigned long long tag, int flags)
    @cython.locals(size=Py_ssize_t, at=Py_ssize_t, behind=Output)
    cdef write_delivery(
        self,
        unsigned int channel,
        bytes consumer_tag,
        unsigned long long delivery_tag,
        bint redelivered,
        bytes route,
        bytes content,
        Py_ssize_t header_size,
    )
    @cython.locals(behind=Output)
    cpdef write_method_content(self, unsigned int channel, bytes payload, bytes content, Py_ssize_t header_size)
    @cython.final
    cdef Py_ssize_t framed_size(self, Py_ssize_t size) noexcept
    @cython.final
    @cython.locals(start=Py_ssize_t, end=Py_ssize_t, stop=Py_ssize_t, payload_max=Py_ssize_t)
    cdef Py_ssize_t write_content(
        self, unsigned char* target, Py_ssize_t at, unsigned int channel, bytes content, Py_ssize_t header_size
    )
    cpdef stream(self, unsigned int channel, body, told, unsigned long long tag=*)
    cpdef call_off(self, unsigned int channel, unsigned long long tag)
    cpdef unsigned long long streamed_tag(self, unsigned int channel) except? 0
    @cython.locals(behind=Output)
    cpdef drop_streams(self, unsigned int channel)
    @cython.locals(found=Output)
    cdef Output behind(self, unsigned int channel)
    cpdef bint streams_large(self, Py_ssize_t size) noexcept
    @cython.locals(payload_max=Py_ssize_t, room=Py_ssize_t)
    cpdef fill_from_streams(self)
    cdef write_piece(self, stream, bytes piece)
    cdef make_room(self, Py_ssize_t size)
    @cython.locals(behind=Output, waiting=bytes)
    cdef end_stream(self, stream)
    cpdef end_streams(self)
