# Inline bodies of layout.py for the compiled build; tests compare the two.
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcpy, memset

cdef extern from *:
    """
    #include <stdint.h>
    #include <stddef.h>
    #include <string.h>
    #if defined(__GNUC__)
    #define FLINT_UNUSED __attribute__((unused))
    #else
    #define FLINT_UNUSED
    #endif
    #if defined(__GNUC__) && defined(__x86_64__)
    #define FLINT_CRC_SSE 1
    __attribute__((target("sse4.2")))
    static uint32_t flint_crc_sse(uint32_t state, const unsigned char *p, size_t n) {
        uint64_t wide = state;
        while (n >= 8) {
            uint64_t word;
            memcpy(&word, p, 8);
            wide = __builtin_ia32_crc32di(wide, word);
            p += 8;
            n -= 8;
        }
        state = (uint32_t)wide;
        while (n--) state = __builtin_ia32_crc32qi(state, *p++);
        return state;
    }
    #endif
    static uint32_t flint_crc_table[8][256];
    static int flint_crc_way = 0;
    FLINT_UNUSED static uint32_t flint_crc_soft(uint32_t state, const unsigned char *p, size_t n) {
        while (n >= 8) {
            uint32_t low = state ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
            state = flint_crc_table[7][low & 255] ^ flint_crc_table[6][(low >> 8) & 255]
                  ^ flint_crc_table[5][(low >> 16) & 255] ^ flint_crc_table[4][low >> 24]
                  ^ flint_crc_table[3][p[4]] ^ flint_crc_table[2][p[5]]
                  ^ flint_crc_table[1][p[6]] ^ flint_crc_table[0][p[7]];
            p += 8;
            n -= 8;
        }
        while (n--) state = flint_crc_table[0][(state ^ *p++) & 255] ^ (state >> 8);
        return state;
    }
    FLINT_UNUSED static void flint_crc_choose(void) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int k = 0; k < 8; k++) c = c & 1 ? 0x82F63B78u ^ (c >> 1) : c >> 1;
            flint_crc_table[0][i] = c;
        }
        for (int t = 1; t < 8; t++)
            for (int i = 0; i < 256; i++)
                flint_crc_table[t][i] = flint_crc_table[0][flint_crc_table[t - 1][i] & 255]
                                      ^ (flint_crc_table[t - 1][i] >> 8);
        flint_crc_way = 1;
    #ifdef FLINT_CRC_SSE
        if (__builtin_cpu_supports("sse4.2")) flint_crc_way = 2;
    #endif
    }
    FLINT_UNUSED static uint32_t flint_crc32c(uint32_t seed, const unsigned char *p, size_t n) {
        if (!flint_crc_way) flint_crc_choose();
    #ifdef FLINT_CRC_SSE
        if (flint_crc_way == 2) return ~flint_crc_sse(~seed, p, n);
    #endif
        return ~flint_crc_soft(~seed, p, n);
    }
    """
    unsigned int flint_crc32c(unsigned int seed, const unsigned char* p, size_t n) noexcept nogil

cdef enum:
    FORMAT_VERSION = 1
    SEGMENT_HEAD = 64
    RECORD_HEAD = 24
    RUN_OCTETS = 16
    ENTRY = 1
    MOVED = 2
    SETTLE = 3
    COMMIT = 4
    PUT = 5
    DELETE = 6
    CHECKPOINT = 7
    BATCH = 8
    PAD = 9
    END = 10
    KIND_MAX = 10
    GROUPED = 1
    SPOOLED = 2
    FLAGS_MAX = 3
    CHUNK_BITS = 12
    CHUNK_SLOTS = 4096
    FOLD_LIVE_MAX = 512
    MASK_BITS = 32
    UNKNOWN = 0
    PARTLY = 1
    DEAD = 2

cdef inline int put_u32(bytearray buffer, Py_ssize_t at, unsigned int value) noexcept:
    cdef unsigned char* p = <unsigned char*>PyByteArray_AS_STRING(buffer) + at
    p[0] = value & 255
    p[1] = (value >> 8) & 255
    p[2] = (value >> 16) & 255
    p[3] = (value >> 24) & 255
    return 0

cdef inline int put_u64(bytearray buffer, Py_ssize_t at, unsigned long long value) noexcept:
    put_u32(buffer, at, <unsigned int>value)
    put_u32(buffer, at + 4, <unsigned int>(value >> 32))
    return 0

cdef inline int put_octets(bytearray buffer, Py_ssize_t at, bytes octets) noexcept:
    memcpy(PyByteArray_AS_STRING(buffer) + at, PyBytes_AS_STRING(octets), PyBytes_GET_SIZE(octets))
    return 0

cdef inline int put_zeros(bytearray buffer, Py_ssize_t at, Py_ssize_t count) noexcept:
    memset(PyByteArray_AS_STRING(buffer) + at, 0, count)
    return 0

cdef inline unsigned int get_u8(bytes octets, Py_ssize_t at) noexcept:
    return (<const unsigned char*>PyBytes_AS_STRING(octets))[at]

cdef inline unsigned int get_u32(bytes octets, Py_ssize_t at) noexcept:
    cdef const unsigned char* p = <const unsigned char*>PyBytes_AS_STRING(octets) + at
    return (<unsigned int>p[0]) | (<unsigned int>p[1] << 8) | (<unsigned int>p[2] << 16) | (<unsigned int>p[3] << 24)

cdef inline unsigned long long get_u64(bytes octets, Py_ssize_t at) noexcept:
    return (<unsigned long long>get_u32(octets, at)) | (<unsigned long long>get_u32(octets, at + 4) << 32)

cdef inline unsigned int crc_written(unsigned int seed, bytearray buffer, Py_ssize_t start, Py_ssize_t end) noexcept:
    return flint_crc32c(seed, <const unsigned char*>PyByteArray_AS_STRING(buffer) + start, end - start)

cdef inline unsigned int crc_read(unsigned int seed, bytes octets, Py_ssize_t start, Py_ssize_t end) noexcept:
    return flint_crc32c(seed, <const unsigned char*>PyBytes_AS_STRING(octets) + start, end - start)
