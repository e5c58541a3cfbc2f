cimport cython
cimport flintmq.storage.layout as layout

cpdef unsigned int seed_of(unsigned long long segment)
cpdef Py_ssize_t padded(Py_ssize_t length) noexcept
cpdef Py_ssize_t entry_length(int kind, Py_ssize_t owners, Py_ssize_t header, Py_ssize_t payload) except -1
cpdef Py_ssize_t write_head(bytearray buffer, Py_ssize_t at, Py_ssize_t length, unsigned long long sequence, unsigned int kind, unsigned int flags, Py_ssize_t count) noexcept
@cython.locals(end=Py_ssize_t)
cpdef Py_ssize_t seal(bytearray buffer, Py_ssize_t at, Py_ssize_t length, unsigned int seed) noexcept
@cython.locals(body=Py_ssize_t)
cpdef Py_ssize_t write_entry(bytearray buffer, Py_ssize_t at, unsigned int seed, Py_ssize_t length, unsigned long long sequence, unsigned int kind, unsigned int flags, unsigned long long original, tuple owners, bytes header, bytes payload) except -1
@cython.locals(length=Py_ssize_t)
cpdef Py_ssize_t checked_length(bytes octets, Py_ssize_t at, Py_ssize_t end, unsigned int seed) noexcept
cpdef Py_ssize_t entry_body(bytes octets, Py_ssize_t at) noexcept
@cython.locals(count=Py_ssize_t, body=Py_ssize_t)
cpdef tuple entry_owners(bytes octets, Py_ssize_t at)
cpdef Py_ssize_t entry_header_at(bytes octets, Py_ssize_t at) noexcept
@cython.locals(kind=cython.uint, count=Py_ssize_t, body=Py_ssize_t, fixed=Py_ssize_t)
cpdef bint well_formed(bytes octets, Py_ssize_t at, Py_ssize_t length) noexcept
