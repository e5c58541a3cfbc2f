/* Clocks, the broker's processor time and memory as the kernel counts them, and latency percentiles. */
#ifndef FLINTMQ_BENCH_METER_H
#define FLINTMQ_BENCH_METER_H

#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define NANOSECONDS 1000000000ull

static uint64_t read_clock(clockid_t clock) {
    struct timespec t;
    if (clock_gettime(clock, &t)) return 0;
    return (uint64_t)t.tv_sec * NANOSECONDS + (uint64_t)t.tv_nsec;
}

static uint64_t now_ns(void) {
    return read_clock(CLOCK_MONOTONIC);
}

static void sleep_until_ns(uint64_t moment_ns) {
    struct timespec t = {.tv_sec = (time_t)(moment_ns / NANOSECONDS), .tv_nsec = (long)(moment_ns % NANOSECONDS)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void pause_ms(uint64_t milliseconds) {
    sleep_until_ns(now_ns() + milliseconds * 1000000);
}

/* Processor time of all threads of a process so far, to the nanosecond; 0 for no process. */
static uint64_t process_cpu_ns(pid_t pid) {
    clockid_t clock;
    if (pid <= 0 || clock_getcpuclockid(pid, &clock)) return 0;
    return read_clock(clock);
}

static double own_cpu_s(void) {
    return (double)read_clock(CLOCK_PROCESS_CPUTIME_ID) / 1e9;
}

/* Resident memory of a process in KiB; 0 for no process. */
static long process_rss_kib(pid_t pid) {
    if (pid <= 0) return 0;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    long size_pages, resident_pages;
    int found = fscanf(file, "%ld %ld", &size_pages, &resident_pages);
    fclose(file);
    return found == 2 ? resident_pages * (sysconf(_SC_PAGESIZE) / 1024) : 0;
}

/* Latencies are counted in buckets that double every 128 steps: any value is known to within 1/128 of
 * itself, and memory does not grow with the run.
 *
 *     value      0 .. 127 | 128 .. 255 | 256 .. 511 | 512 .. 1023 | ...   nanoseconds
 *     one step       1    |     1      |     2      |      4      | ...
 */
#define STEPS 128
#define STEP_BITS 7

typedef struct {
    uint64_t counts[(64 - STEP_BITS + 1) * STEPS];
    uint64_t samples, highest_ns;
} latencies;

static void latency_add(latencies *l, uint64_t ns) {
    unsigned scale = ns < STEPS ? 0 : 63u - (unsigned)__builtin_clzll(ns) - STEP_BITS;
    unsigned octave = ns < STEPS ? 0 : scale + 1;
    l->counts[octave * STEPS + ((ns >> scale) & (STEPS - 1))]++;
    l->samples++;
    if (ns > l->highest_ns) l->highest_ns = ns;
}

/* The latency in microseconds that `fraction` of the samples did not exceed. */
static double latency_us(const latencies *l, double fraction) {
    uint64_t wanted = (uint64_t)((double)l->samples * fraction), seen = 0;
    for (unsigned i = 0; i < sizeof l->counts / sizeof *l->counts; i++) {
        seen += l->counts[i];
        if (seen <= wanted) continue;
        unsigned octave = i / STEPS, step = i % STEPS;
        uint64_t ns = octave ? (uint64_t)(STEPS + step) << (octave - 1) : step;
        return (double)ns / 1e3;
    }
    return (double)l->highest_ns / 1e3;
}

#endif
