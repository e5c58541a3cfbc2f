/* Producers: one thread and one connection each, in step with a rate, a confirm window or the broker's pace. */
#ifndef FLINTMQ_BENCH_PUBLISH_H
#define FLINTMQ_BENCH_PUBLISH_H

#include <pthread.h>
#include <stdatomic.h>

#include "confirms.h"
#include "meter.h"
#include "settings.h"

/* The shortest sleep between two batches at a set rate: many small sends would measure the kernel. */
enum { PACE_NS_MIN = 50000, BATCHES_BETWEEN_LISTENING = 64 };

typedef struct {
    int number;
    pthread_t thread;
    connection *connection;
    pattern pattern;
    ledger ledger;
    uint64_t published, limit;   /* limit 0: until the time is over */
    uint64_t expected;           /* deliveries that these publications must cause */
    uint32_t *of_stream;         /* published so far, by stream */
    uint64_t *sent_ns;           /* when each was sent, by sequence; only at a set rate */
    uint64_t late_ns_max;        /* how far behind its rate it fell */
    bool paused;                 /* by channel.flow */
    _Atomic bool finished;
} producer;

static producer producers[PRODUCERS_MAX];
static uint64_t start_ns; /* when publishing begins; set before the producers start */
static uint32_t *fan_of_stream;

static double rate_of_one(void) {
    return settings.rate / settings.producers;
}

static uint64_t due_ns(uint64_t sequence) {
    return start_ns + (uint64_t)((double)sequence * 1e9 / rate_of_one());
}

static void producer_frame(producer *p, const frame *f) {
    if (f->type == FRAME_HEARTBEAT) return;
    if (is_method(f, BASIC_ACK) && f->payload_bytes == 13) {
        ledger_confirm(&p->ledger, get_u64(f->payload + 4), f->payload[12] & 1);
    } else if (is_method(f, CHANNEL_FLOW) && f->payload_bytes == 5) {
        bool active = f->payload[4] & 1;
        p->paused = !active;
        size_t start = method_start(&p->connection->out, 1, CHANNEL_FLOW_OK);
        put_u8(&p->connection->out, active);
        frame_finish(&p->connection->out, start);
        flush(p->connection);
    } else {
        refuse_close(f);
        if (is_method(f, BASIC_NACK)) fail("the broker refused publications with basic.nack");
        fail("a producer got an unexpected frame of type %u", f->type);
    }
}

/* Receives once, waiting or not as flags say, and handles what came. */
static void listen_to_broker(producer *p, int flags) {
    frame f;
    if (!receive(p->connection, flags)) return;
    while (take_frame(p->connection, &f)) producer_frame(p, &f);
}

static void prepare_producer(producer *p, int number) {
    p->number = number;
    int count = settings.topology.kind == TOPIC ? 2 * TOPICS : settings.batch * 4;
    if (count < settings.topology.queues) count = settings.topology.queues;
    if (settings.body_bytes > 8192 && settings.batch > 16) settings.batch = 16, count = 64;
    build_pattern(&p->pattern, &settings.topology, count, settings.body_bytes, settings.persistent);
    p->of_stream = calloc((size_t)stream_count(&settings.topology), sizeof *p->of_stream);
    if (settings.count) p->limit = settings.count / (uint64_t)settings.producers;
    else if (settings.rate > 0) p->limit = (uint64_t)(rate_of_one() * settings.seconds);
    if (settings.rate > 0) p->sent_ns = calloc(p->limit + 1, sizeof *p->sent_ns);
    if (!p->of_stream || (settings.rate > 0 && !p->sent_ns)) fail("out of memory");
    ledger_open(&p->ledger);
    p->connection = dial(65536);
    open_channel(p->connection, 1);
    if (settings.confirm_window) {
        size_t start = method_start(&p->connection->out, 1, CONFIRM_SELECT);
        put_u8(&p->connection->out, 0);
        request(p->connection, start, CONFIRM_SELECT_OK);
    }
}

/* How many messages to send now: none when it is too early by the rate. */
static int batch_due(producer *p, uint64_t now, int place) {
    uint64_t count = (uint64_t)settings.batch;
    if (settings.rate > 0) {
        uint64_t due = (uint64_t)((double)(now - start_ns) / 1e9 * rate_of_one()) + 1;
        if (due <= p->published) return 0;
        if (due - p->published < count) count = due - p->published;
        uint64_t late = now - due_ns(p->published);
        if (now > due_ns(p->published) && late > p->late_ns_max) p->late_ns_max = late;
    }
    if (p->limit && p->limit - p->published < count) count = p->limit - p->published;
    if (count > (uint64_t)(p->pattern.count - place)) count = (uint64_t)(p->pattern.count - place);
    return (int)count;
}

/* Stamps the publications from `place` on, and sends them with one call. */
static void publish_batch(producer *p, int place, int count) {
    pattern *t = &p->pattern;
    uint64_t moment = settings.rate > 0 ? now_ns() : 0;
    for (int i = place; i < place + count; i++) {
        int stream = t->streams[i];
        stamp_body(pattern_body(t, i), p->number, stream, p->published, p->of_stream[stream]++);
        p->expected += fan_of_stream[stream];
        if (moment) p->sent_ns[p->published] = moment;
        p->published++;
    }
    p->ledger.published = p->published;
    send_octets(p->connection, t->data.data + t->offsets[place], t->offsets[place + count] - t->offsets[place]);
}

static void *publish(void *argument) {
    producer *p = argument;
    uint64_t end_ns = start_ns + (uint64_t)(settings.seconds * 1e9);
    if (settings.rate > 0) end_ns += settings.deadline_ms * 1000000; /* what was due may still go out in time */
    int place = 0;
    for (uint64_t batches = 0; !p->limit || p->published < p->limit; batches++) {
        uint64_t now = now_ns();
        if (!settings.count && now >= end_ns) break;
        int count = batch_due(p, now, place);
        if (count == 0) {
            uint64_t next = due_ns(p->published), soonest = now + PACE_NS_MIN;
            sleep_until_ns(next > soonest ? next : soonest);
            continue;
        }
        while (settings.confirm_window && !ledger_has_room(&p->ledger, (uint64_t)count, settings.confirm_window))
            listen_to_broker(p, 0);
        publish_batch(p, place, count);
        place = (place + count) % p->pattern.count;
        if (batches % BATCHES_BETWEEN_LISTENING == 0) listen_to_broker(p, MSG_DONTWAIT);
        while (p->paused) listen_to_broker(p, 0);
    }
    while (settings.confirm_window && ledger_waiting(&p->ledger)) listen_to_broker(p, 0);
    atomic_store(&p->finished, true);
    return NULL;
}

static void start_producers(void) {
    start_ns = now_ns();
    for (int i = 0; i < settings.producers; i++)
        if (pthread_create(&producers[i].thread, NULL, publish, &producers[i])) fail("no thread for a producer");
}

static bool producers_finished(void) {
    for (int i = 0; i < settings.producers; i++)
        if (!atomic_load(&producers[i].finished)) return false;
    return true;
}

static void join_producers(void) {
    for (int i = 0; i < settings.producers; i++) pthread_join(producers[i].thread, NULL);
}

/* Closes the connections; a confirm or refusal that still comes is looked at. */
static void hang_up_producers(void) {
    for (int i = 0; i < settings.producers; i++) {
        connection *c = producers[i].connection;
        put_connection_close(&c->out);
        flush(c);
        for (frame f = await_frame(c); !is_method(&f, CONNECTION_CLOSE_OK); f = await_frame(c))
            producer_frame(&producers[i], &f);
        drop(c);
    }
}

#endif
