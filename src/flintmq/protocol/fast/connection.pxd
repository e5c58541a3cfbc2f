cimport cython
cimport flintmq.protocol.phases as phases
cimport flintmq.wire.amqp as amqp
cimport flintmq.wire.octets as octets
from flintmq.protocol.channel cimport Channel
from flintmq.protocol.connection cimport Connection
from flintmq.protocol.fast.handle cimport Handle

cdef int SEND
cdef int ACK
cdef int PREPARE
cdef Py_ssize_t SEND_OCTETS
cdef Py_ssize_t ACK_OCTETS
cdef Py_ssize_t PREPARE_OCTETS
cdef Py_ssize_t FIXED_OCTETS
cdef Py_ssize_t LONG_SIZE


cdef class FastConnection(Connection):
    cdef object told
    cdef readonly dict handles
    cdef readonly dict sending
    cdef public Handle current
    cdef readonly dict names
    cdef public int open_confirm_tag
    cdef readonly int is_close_said
    cdef public bint is_to_repeat
    cdef Py_ssize_t frame_bytes_max_agreed

    @cython.locals(
        at=Py_ssize_t, start=Py_ssize_t, end=Py_ssize_t, length=Py_ssize_t, code=cython.int,
    )
    cpdef Py_ssize_t receive(self, bytearray buffer, Py_ssize_t size) except -1
    @cython.locals(fragment=Py_ssize_t, stop=Py_ssize_t, handle=Handle)
    cdef Py_ssize_t receive_fragment(
        self, const unsigned char* frames, int code, Py_ssize_t start, Py_ssize_t end, Py_ssize_t size
    ) except -1
    @cython.locals(
        flags=cython.int, channel=Channel, head=Py_ssize_t, body_size=Py_ssize_t, confirm_tag=cython.uint,
        header=bytes, content=bytes,
    )
    cdef int receive_send(
        self, const unsigned char* frames, Py_ssize_t start, Py_ssize_t end, Py_ssize_t stop, Handle handle
    ) except -1
    cdef Py_ssize_t head_end(self, const unsigned char* frames, Py_ssize_t at, Py_ssize_t stop) noexcept
    @cython.locals(number=cython.uint, channel=Channel)
    cdef int receive_ack(self, const unsigned char* frames, Py_ssize_t start, Py_ssize_t end) except -1
    cpdef Channel channel_of(self, unsigned int number)
