# The C half of the twin clock.py: what the hot path asks for. The class Clock is Python alone.
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec


cdef inline long long monotonic_us() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <long long>now.tv_sec * 1000000 + now.tv_nsec // 1000
