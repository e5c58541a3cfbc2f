/* What is published, and who must get it: streams, their routes, and bodies that prove themselves.
 *
 * A stream is what one producer publishes with one routing key. Queues, by kind of topology:
 *
 *     direct    stream n goes to queue n, by the default exchange
 *     fanout    the only stream goes to all queues
 *     headers   stream n goes to queue n, by a headers exchange where each queue has a binding of three terms
 *     topic     10,000 topics in 100 markets; queue q has the topics t with t % queues == q,
 *               and with wildcards all the topics of market q % 100 as well
 *
 * A body starts with 16 octets, different in every message; the rest is a fixed pseudo-random filler:
 *
 *     0          1        3                     8                   12        16
 *     +----------+--------+---------------------+-------------------+---------+-----------
 *     | producer | stream | sequence            | sequence          | check   | filler ...
 *     |          |        | of the producer     | within the stream |         |
 *     +----------+--------+---------------------+-------------------+---------+-----------
 *
 * In a queue, a producer's sequence only rises (order) and a stream's sequence rises by exactly one (no
 * loss, no duplicate).
 */
#ifndef FLINTMQ_BENCH_MESSAGE_H
#define FLINTMQ_BENCH_MESSAGE_H

#include "amqp.h"

enum { TOPICS = 10000, MARKETS = 100, TOPICS_OF_MARKET = TOPICS / MARKETS, HOT_TOPICS = 1000 };
enum { BODY_BYTES_MIN = 16, BODY_BYTES_MAX = 65536, NAME_BYTES_MAX = 64, PRODUCERS_MAX = 32 };

typedef enum { DIRECT, FANOUT, TOPIC, HEADERS } topology_kind;

typedef struct {
    topology_kind kind;
    int queues;
    bool wildcards, durable;
} topology;

static const char *exchange_name(const topology *t) {
    return t->kind == FANOUT ? "bench.fanout" : t->kind == TOPIC ? "bench.topic"
        : t->kind == HEADERS ? "bench.headers" : "";
}

static void queue_name(char *name, int queue) {
    snprintf(name, NAME_BYTES_MAX, "bench%d", queue);
}

static int stream_count(const topology *t) {
    return t->kind == TOPIC ? TOPICS : t->kind == FANOUT ? 1 : t->queues;
}

static void routing_key(const topology *t, char *key, int stream) {
    if (t->kind == TOPIC)
        snprintf(key, NAME_BYTES_MAX, "quote.mkt%02d.ins%03d", stream / TOPICS_OF_MARKET, stream % TOPICS_OF_MARKET);
    else if (t->kind == FANOUT || t->kind == HEADERS)
        *key = 0;
    else
        queue_name(key, stream);
}

/* Topics are shared out evenly, so a queue's own ones number the same for all. */
static int own_topics(const topology *t) {
    return (TOPICS + t->queues - 1) / t->queues;
}

static int slots_per_queue(const topology *t) {
    return t->kind == TOPIC ? own_topics(t) + (t->wildcards ? TOPICS_OF_MARKET : 0) : 1;
}

/* The place of a stream among those that a queue gets, or -1 when the queue must not get it. */
static inline int slot_of(const topology *t, int queue, int stream) {
    if (t->kind == FANOUT) return stream == 0 ? 0 : -1;
    if (t->kind == DIRECT || t->kind == HEADERS) return stream == queue ? 0 : -1;
    if (stream >= TOPICS) return -1;
    if (stream % t->queues == queue) return stream / t->queues;
    if (t->wildcards && stream / TOPICS_OF_MARKET == queue % MARKETS)
        return own_topics(t) + stream % TOPICS_OF_MARKET;
    return -1;
}

/* How many queues get each stream. */
static uint32_t *fan_out(const topology *t) {
    uint32_t *fan = calloc((size_t)stream_count(t), sizeof *fan);
    if (!fan) fail("out of memory");
    for (int stream = 0; stream < stream_count(t); stream++)
        for (int queue = 0; queue < t->queues; queue++) fan[stream] += slot_of(t, queue, stream) >= 0;
    return fan;
}

/* ---- bodies ---- */

static uint8_t filler[BODY_BYTES_MAX];

static void fill_filler(void) {
    uint32_t state = 2463534242u; /* xorshift: no two stretches alike, so shifted octets show */
    for (size_t i = 0; i < sizeof filler; i++) {
        state ^= state << 13, state ^= state >> 17, state ^= state << 5;
        filler[i] = (uint8_t)state;
    }
}

static inline uint32_t body_check(uint64_t origin, uint32_t of_stream) {
    return (uint32_t)(((origin ^ (uint64_t)of_stream << 29) * 0x9E3779B97F4A7C15ull) >> 32);
}

static inline void stamp_body(uint8_t *body, int producer, int stream, uint64_t sequence, uint32_t of_stream) {
    uint64_t origin = (uint64_t)producer << 56 | (uint64_t)stream << 40 | sequence;
    uint64_t proof = (uint64_t)body_check(origin, of_stream) << 32 | of_stream;
    memcpy(body, &origin, 8);
    memcpy(body + 8, &proof, 8);
}

typedef struct {
    int producer, stream;
    uint64_t sequence;
    uint32_t of_stream;
} stamp;

/* Reads a body back; fails when one octet of it is not what was published. */
static inline stamp read_body(const uint8_t *body, size_t body_bytes) {
    uint64_t origin, proof;
    memcpy(&origin, body, 8);
    memcpy(&proof, body + 8, 8);
    stamp s = {(int)(origin >> 56), (int)(origin >> 40 & 0xFFFF), origin & 0xFFFFFFFFFFull, (uint32_t)proof};
    if (body_check(origin, s.of_stream) != proof >> 32) fail("corrupted body: its check word is wrong");
    if (memcmp(body + BODY_BYTES_MIN, filler, body_bytes - BODY_BYTES_MIN)) fail("corrupted body: its filler is wrong");
    return s;
}

/* ---- publications ---- */

/* Encoded publications one after another, sent over and over with fresh stamps. */
typedef struct {
    octets data;
    int count;
    size_t *offsets; /* where each starts; one more for the end */
    int *streams;
    size_t body_bytes;
} pattern;

/* Half of the market data is about the 1,000 busiest instruments, as on real markets. */
static int pick_stream(const topology *t, int index, uint32_t *seed) {
    if (t->kind != TOPIC) return index % stream_count(t);
    bool hot = rand_r(seed) % 2;
    return rand_r(seed) % (hot ? HOT_TOPICS : TOPICS);
}

static void put_text_field(octets *o, const char *name, const char *value) {
    put_shortstr(o, name);
    put_u8(o, 'S');
    put_u32(o, (uint32_t)strlen(value));
    put_octets(o, value, strlen(value));
}

static void put_number_field(octets *o, const char *name, int value) {
    put_shortstr(o, name);
    put_u8(o, 'I');
    put_u32(o, (uint32_t)value);
}

/* The terms of a stream as a field table: with x-match in a binding, with other headers in a message. */
static void put_terms(octets *o, int stream, bool in_binding) {
    octets table = {0};
    char order[NAME_BYTES_MAX];
    snprintf(order, sizeof order, "o%d", stream);
    if (in_binding) put_text_field(&table, "x-match", "all");
    put_text_field(&table, "region", "eu");
    put_number_field(&table, "user", stream);
    put_text_field(&table, "order", order);
    if (!in_binding) {
        put_text_field(&table, "trace", "t");
        put_number_field(&table, "hop", 1);
    }
    put_u32(o, (uint32_t)table.used);
    put_octets(o, table.data, table.used);
    free(table.data);
}

/* The payload of a content header frame. */
static void put_content_header(octets *o, const topology *t, int stream, size_t body_bytes, bool persistent) {
    put_u16(o, 60);
    put_u16(o, 0);
    put_u64(o, body_bytes);
    put_u16(o, t->kind == HEADERS ? 0x3000 : 0x1000); /* delivery-mode, with or without headers */
    if (t->kind == HEADERS) put_terms(o, stream, false);
    put_u8(o, persistent ? 2 : 1);
}

static void put_publication(octets *o, const topology *t, int stream, size_t body_bytes, bool persistent) {
    char key[NAME_BYTES_MAX];
    routing_key(t, key, stream);
    size_t start = method_start(o, 1, BASIC_PUBLISH);
    put_u16(o, 0);
    put_shortstr(o, exchange_name(t));
    put_shortstr(o, key);
    put_u8(o, 0);
    frame_finish(o, start);
    start = frame_start(o, FRAME_HEADER, 1);
    put_content_header(o, t, stream, body_bytes, persistent);
    frame_finish(o, start);
    start = frame_start(o, FRAME_BODY, 1);
    put_u64(o, 0), put_u64(o, 0); /* the stamp's place */
    put_octets(o, filler, body_bytes - BODY_BYTES_MIN);
    frame_finish(o, start);
}

static void build_pattern(pattern *p, const topology *t, int count, size_t body_bytes, bool persistent) {
    p->count = count;
    p->body_bytes = body_bytes;
    p->offsets = calloc((size_t)count + 1, sizeof *p->offsets);
    p->streams = calloc((size_t)count, sizeof *p->streams);
    if (!p->offsets || !p->streams) fail("out of memory");
    uint32_t seed = 20021;
    for (int i = 0; i < count; i++) {
        p->streams[i] = pick_stream(t, i, &seed);
        put_publication(&p->data, t, p->streams[i], body_bytes, persistent);
        p->offsets[i + 1] = p->data.used;
    }
}

/* The body of publication i: the last octets of its last frame, before the frame end. */
static inline uint8_t *pattern_body(pattern *p, int i) {
    return p->data.data + p->offsets[i + 1] - 1 - p->body_bytes;
}

#endif
