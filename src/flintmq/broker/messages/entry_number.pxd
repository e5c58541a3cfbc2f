# The C half of the twin entry_number.py.


cdef inline unsigned long long of_journal(unsigned long long sequence) noexcept:
    return sequence << 1


cdef inline unsigned long long of_overflow(unsigned long long sequence) noexcept:
    return sequence << 1 | 1


cdef inline unsigned long long of_hold(unsigned long long number) noexcept:
    return (<unsigned long long>1 << 63) | number << 1 | 1


cdef inline unsigned long long sequence_of(unsigned long long entry) noexcept:
    return entry >> 1


cdef inline bint is_in_journal(unsigned long long entry) noexcept:
    return entry != 0 and entry & 1 == 0


cdef inline bint is_transient(unsigned long long entry) noexcept:
    return entry & 1 == 1


cdef inline bint is_held(unsigned long long entry) noexcept:
    return entry >> 63 == 1
