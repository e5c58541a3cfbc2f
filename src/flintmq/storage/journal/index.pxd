cimport cython
cimport flintmq.storage.layout as layout


@cython.final
cdef class OwnerSet:
    cdef public unsigned int number
    cdef public tuple owners
    cdef public dict bits
    cdef public long long entries
    cdef public bint wide
    cdef public unsigned int full_mask

@cython.final
cdef class Chunk:
    cdef public unsigned long long number
    cdef public Py_ssize_t live
    cdef public bint folded
    cdef public Py_ssize_t count
    cdef public unsigned long long[::1] locations
    cdef public unsigned int[::1] sizes
    cdef public unsigned int[::1] sets
    cdef public unsigned int[::1] masks
    cdef public unsigned short[::1] slots

    @cython.locals(low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
    cdef Py_ssize_t find(self, Py_ssize_t slot) except -2
    cdef Py_ssize_t slot_at(self, Py_ssize_t at) except -1

@cython.final
cdef class EntryIndex:
    cdef public dict chunks
    cdef public long long entries
    cdef public dict wide
    cdef public unsigned long long found_location
    cdef public unsigned int found_size
    cdef public unsigned long long newest
    cdef Py_ssize_t _sets_swept
    cdef Chunk _near
    cdef list _sets
    cdef list _free_sets
    cdef dict _sets_by_owners

    @cython.locals(known=OwnerSet, made=OwnerSet)
    cpdef OwnerSet owner_set(self, tuple owners)
    @cython.locals(number=cython.ulonglong, chunk=Chunk, found=Chunk, slot=Py_ssize_t)
    cpdef int put(self, unsigned long long sequence, unsigned long long location, unsigned int size, OwnerSet owners) except -1
    @cython.locals(number=cython.ulonglong, chunk=Chunk, found=Chunk)
    cdef Chunk _chunk(self, unsigned long long sequence)
    @cython.locals(chunk=Chunk, at=Py_ssize_t)
    cpdef bint locate(self, unsigned long long sequence) except -1
    @cython.locals(chunk=Chunk, at=Py_ssize_t)
    cpdef relocate(self, unsigned long long sequence, unsigned long long location, unsigned int size)
    @cython.locals(chunk=Chunk, at=Py_ssize_t, owners=OwnerSet, bit=cython.uint)
    cpdef int settle(self, unsigned long long owner, unsigned long long sequence) except -1
    @cython.locals(chunk=Chunk, at=Py_ssize_t)
    cpdef bint forget(self, unsigned long long sequence) except -1
    cdef OwnerSet _set(self, unsigned int number)
    cdef int _remove(self, Chunk chunk, Py_ssize_t at, OwnerSet owners) except -1
    @cython.locals(chunk=Chunk, at=Py_ssize_t, owners=OwnerSet, mask=cython.uint)
    cpdef tuple owners_of(self, unsigned long long sequence)
    @cython.locals(chunk=Chunk, first=cython.ulonglong, at=Py_ssize_t)
    cpdef list live_in(self, unsigned long long number)
