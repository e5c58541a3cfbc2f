cimport cython
cimport flintmq.wire.amqp as amqp
cimport flintmq.wire.content as content
cimport flintmq.wire.octets as octets

cdef Py_ssize_t SIEVE_SLOTS
cdef int _SLOT_SHIFT
cdef unsigned long long _WORD_MASK
cdef unsigned long long _FACTOR
cdef unsigned long long _SALT


@cython.locals(flags=cython.int, bit=cython.int, size=Py_ssize_t)
cdef Py_ssize_t find_property(const unsigned char* source, Py_ssize_t at, Py_ssize_t end, int wanted) noexcept

@cython.locals(source=octets.Readable, at=Py_ssize_t, size=Py_ssize_t)
cpdef object read_property(bytes whole, Py_ssize_t end, int wanted)

@cython.locals(source=octets.Readable, at=Py_ssize_t)
cpdef dict read_headers(bytes whole, Py_ssize_t end)

@cython.locals(
    source=octets.Readable, start=Py_ssize_t, stop=Py_ssize_t, size=Py_ssize_t, table=dict, name=str,
    text=str, kind=cython.int, left=Py_ssize_t, after=Py_ssize_t
)
cdef dict read_table(bytes whole, Py_ssize_t at, Py_ssize_t end, dict names, bytearray sieve)

@cython.locals(source=octets.Readable, at=Py_ssize_t)
cpdef dict read_headers_among(bytes whole, Py_ssize_t end, dict names, bytearray sieve)

@cython.locals(hashed=cython.ulonglong, word=cython.ulonglong)
cdef Py_ssize_t sieve_slot(const unsigned char* source, Py_ssize_t start, Py_ssize_t stop) noexcept

@cython.locals(whole=bytes)
cpdef put_in_sieve(bytearray sieve, str name)

@cython.locals(
    source=octets.Readable, at=Py_ssize_t, stop=Py_ssize_t, type_at=Py_ssize_t, after=Py_ssize_t, found=list
)
cpdef list entry_places(bytes whole, Py_ssize_t end, bytes name)
