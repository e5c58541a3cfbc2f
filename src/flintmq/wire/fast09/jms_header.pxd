cimport cython
cimport flintmq.wire.octets as octets

cdef unsigned int CLASS_JMS
cdef unsigned int CLASS_BASIC
cdef Py_ssize_t JMS_SIZE
cdef Py_ssize_t JMS_FLAGS
cdef Py_ssize_t JMS_PROPERTIES
cdef Py_ssize_t BASIC_SIZE
cdef Py_ssize_t BASIC_FLAGS
cdef Py_ssize_t BASIC_PROPERTIES
cdef unsigned int JMS_MOVED
cdef unsigned int JMS_MODE
cdef unsigned int JMS_PRIORITY
cdef unsigned int JMS_DESTINATION
cdef unsigned int JMS_LAST
cdef unsigned int JMS_OTHERS
cdef unsigned int BASIC_MOVED
cdef unsigned int BASIC_MODE
cdef unsigned int BASIC_PRIORITY
cdef unsigned int BASIC_OTHERS
cdef unsigned int TIMESTAMP
cdef unsigned int UNMOVED
cdef Py_ssize_t DIGITS_MAX
cdef Py_ssize_t TEXT_MAX


@cython.locals(
    size=Py_ssize_t, flags=cython.uint, basic_flags=cython.uint, buffer=bytearray, destination=str,
    at=Py_ssize_t, made=Py_ssize_t, bit=cython.uint, stop=Py_ssize_t,
)
cpdef tuple to_basic(bytes payload)
@cython.locals(
    size=Py_ssize_t, key_size=Py_ssize_t, flags=cython.uint, jms_flags=cython.uint, buffer=bytearray,
    at=Py_ssize_t, made=Py_ssize_t, bit=cython.uint, stop=Py_ssize_t, digits=bytes,
)
cpdef bytes to_jms(bytes header, bytes key)
cdef Py_ssize_t text_end(const unsigned char* source, Py_ssize_t at, Py_ssize_t size) noexcept
cdef bint is_plain(const unsigned char* source, Py_ssize_t at, Py_ssize_t stop) noexcept
cdef bint are_digits(const unsigned char* source, Py_ssize_t at, Py_ssize_t stop) noexcept
