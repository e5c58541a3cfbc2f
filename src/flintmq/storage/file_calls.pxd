# Inline bodies of file_calls.py for the compiled build.
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

cdef extern from *:
    """
    #include <errno.h>
    #include <stddef.h>
    #include <sys/stat.h>
    #include <sys/types.h>
    #include <time.h>
    #include <unistd.h>
    #if defined(__APPLE__)
    #define flint_sync fsync /* for the compiler alone: disk.py syncs otherwise there */
    #else
    #define flint_sync fdatasync
    #endif

    static int flint_write_all(int handle, long long at, const char *octets, size_t size)
    {
        while (size > 0) {
            ssize_t written = pwrite(handle, octets, size, (off_t)at);
            if (written < 0) {
                if (errno == EINTR) continue;
                return -1;
            }
            at += written;
            octets += written;
            size -= (size_t)written;
        }
        return 0;
    }

    static long long flint_monotonic_us(void)
    {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000;
    }

    static int flint_commit(
        int handle, long long at, const char *octets, size_t size,
        const char *path, unsigned long long device, unsigned long long number,
        int notes, long long note_at, const char *note, size_t note_size, int *error, long long *sync_us)
    {
        struct stat found;
        long long began_us;
        int result;
        *error = 0;
        *sync_us = 0;
        if (flint_write_all(handle, at, octets, size)) { *error = errno; return 1; }
        began_us = flint_monotonic_us();
        do result = flint_sync(handle); while (result && errno == EINTR);
        if (result) { *error = errno; return 2; }
        *sync_us = flint_monotonic_us() - began_us;
        if (stat(path, &found)) {
            if (errno != ENOENT && errno != ENOTDIR) *error = errno;
            return 3;
        }
        if ((unsigned long long)found.st_dev != device || (unsigned long long)found.st_ino != number) return 3;
        if (flint_write_all(notes, note_at, note, note_size)) { *error = errno; return 4; }
        return 0;
    }
    """
    int flint_commit(
        int handle, long long at, const char* octets, size_t size,
        const char* path, unsigned long long device, unsigned long long number,
        int notes, long long note_at, const char* note, size_t note_size, int* error, long long* sync_us) nogil

cdef enum:
    DONE = 0
    NOT_WRITTEN = 1
    NOT_SYNCED = 2
    NOT_THERE = 3
    NOT_NOTED = 4


cdef inline tuple commit(
    int handle, long long at, bytearray buffer, Py_ssize_t start, Py_ssize_t end,
    bytes path, unsigned long long device, unsigned long long number, int notes, long long note_at, bytes note
):
    cdef const char* octets = PyByteArray_AS_STRING(buffer) + start  # nobody changes a batch on its way
    cdef const char* path_text = PyBytes_AS_STRING(path)
    cdef const char* note_octets = PyBytes_AS_STRING(note)
    cdef size_t note_size = PyBytes_GET_SIZE(note)
    cdef int step, error
    cdef long long sync_us
    with nogil:
        step = flint_commit(
            handle, at, octets, end - start, path_text, device, number, notes, note_at, note_octets, note_size,
            &error, &sync_us)
    return step, error, sync_us
