cimport cython
cimport flintmq.storage.layout as layout
cimport flintmq.storage.streams.stream_octets as stream_octets

cdef Py_ssize_t ROW_OCTETS


@cython.final
cdef class Selection:
    cdef readonly Py_ssize_t limit
    cdef readonly Py_ssize_t octets
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t value_octets
    cdef readonly Py_ssize_t key_octets
    cdef readonly Py_ssize_t exchange_octets
    cdef readonly Py_ssize_t property_octets
    cdef readonly Py_ssize_t first_at
    cdef readonly Py_ssize_t end_at

    @cython.locals(
        taken=Py_ssize_t, size=Py_ssize_t, route_size=Py_ssize_t, cost=Py_ssize_t, exchange_size=Py_ssize_t
    )
    cpdef Py_ssize_t measure(
        self, bytes octets, Py_ssize_t at, Py_ssize_t end, Py_ssize_t skipped, Py_ssize_t wanted
    ) except -1


@cython.locals(sizes=cython.uint, filter_size=Py_ssize_t)
cdef Py_ssize_t header_start(bytes octets, Py_ssize_t at) noexcept
cdef Py_ssize_t value_start(bytes octets, Py_ssize_t at) noexcept


@cython.final
cdef class OctetColumn:
    cdef bytearray buffer
    cdef readonly Py_ssize_t starts_at
    cdef readonly Py_ssize_t data_at
    cdef readonly Py_ssize_t fill

    cpdef place(self, bytearray buffer, Py_ssize_t starts_at, Py_ssize_t data_at)
    cdef int put(self, Py_ssize_t row, bytes octets, Py_ssize_t start, Py_ssize_t end) except -1


@cython.final
cdef class ColumnFilling:
    cdef readonly bytearray buffer
    cdef readonly Py_ssize_t count
    cdef public Py_ssize_t offsets_at
    cdef public Py_ssize_t times_at
    cdef readonly OctetColumn value
    cdef readonly OctetColumn key
    cdef readonly OctetColumn exchange
    cdef readonly OctetColumn headers
    cdef readonly OctetColumn properties

    @cython.locals(
        buffer=bytearray, row=Py_ssize_t, size=Py_ssize_t, start=Py_ssize_t, middle=Py_ssize_t, body_at=Py_ssize_t
    )
    cpdef int fill(self, bytes octets, Py_ssize_t at, Py_ssize_t end, unsigned long long offset) except -1
    @cython.locals(flags=cython.uint, at=Py_ssize_t, table_end=Py_ssize_t)
    cdef int put_headers(self, Py_ssize_t row, bytes octets, Py_ssize_t start, Py_ssize_t end) except -1
