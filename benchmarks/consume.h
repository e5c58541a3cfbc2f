/* The consumer: one thread for all consuming connections, which checks every octet that is delivered.
 *
 * Each queue has one consumer, on a channel of its own. On a channel, content comes in this order:
 *
 *     basic.deliver --> header --> body, body, ... until complete --> basic.deliver ...
 */
#ifndef FLINTMQ_BENCH_CONSUME_H
#define FLINTMQ_BENCH_CONSUME_H

#include <sys/epoll.h>

#include "publish.h"

enum { RECEIVE_BYTES = 1 << 18, ROUTE_BYTES_MAX = 63 };
static const char consumer_tag[] = "\5bench"; /* as a short string on the wire */
enum { TAG_BYTES = sizeof consumer_tag - 1, DELIVER_BYTES_BEFORE_ROUTE = 4 + TAG_BYTES + 8 + 1 };

/* Exchange and routing key as they stand in basic.deliver. */
typedef struct {
    uint8_t bytes;
    uint8_t octets[ROUTE_BYTES_MAX];
} route;

typedef enum { AWAIT_DELIVER, AWAIT_HEADER, AWAIT_BODY } content_phase;

typedef struct {
    int queue;
    uint16_t channel;
    content_phase phase;
    uint64_t delivery_tag; /* of the last delivery */
    int unacked;
    route route;           /* of the delivery under way */
    octets partial;        /* its body so far, where that comes in several frames */
    uint64_t sequence[PRODUCERS_MAX]; /* the lowest that may come next, by producer */
    uint32_t *of_stream;   /* what comes next, by producer and slot */
} subscription;

static struct {
    pthread_t thread;
    connection **connections;
    int channels; /* on each connection */
    subscription *subscriptions;
    route *routes; /* by stream */
    octets *headers; /* content headers: one for all, or of each queue where they differ */
    latencies latencies;
    uint64_t on_time, gaps, skipped, acked; /* gaps: places where messages are missing; skipped: messages missing */
    _Atomic uint64_t delivered, last_ns;
    _Atomic int consuming;
    _Atomic bool stopping;
} consumer;

static int slot_index(int producer_number, int slot) {
    return producer_number * slots_per_queue(&settings.topology) + slot;
}

static void build_routes(void) {
    const topology *t = &settings.topology;
    consumer.routes = calloc((size_t)stream_count(t), sizeof *consumer.routes);
    if (!consumer.routes) fail("out of memory");
    for (int stream = 0; stream < stream_count(t); stream++) {
        char key[NAME_BYTES_MAX];
        octets o = {0};
        routing_key(t, key, stream);
        put_shortstr(&o, exchange_name(t));
        put_shortstr(&o, key);
        if (o.used > ROUTE_BYTES_MAX) fail("a route of %zu octets is too long", o.used);
        consumer.routes[stream].bytes = (uint8_t)o.used;
        memcpy(consumer.routes[stream].octets, o.data, o.used);
        free(o.data);
    }
    int headers = t->kind == HEADERS ? t->queues : 1;
    consumer.headers = calloc((size_t)headers, sizeof *consumer.headers);
    if (!consumer.headers) fail("out of memory");
    for (int i = 0; i < headers; i++)
        put_content_header(&consumer.headers[i], t, i, settings.body_bytes, settings.persistent);
}

static void open_consumers(void) {
    build_routes();
    int queues = settings.topology.queues, connections = settings.consumers;
    size_t slots = (size_t)slot_index(settings.producers + 1, 0);
    consumer.channels = (queues + connections - 1) / connections;
    consumer.connections = calloc((size_t)connections, sizeof *consumer.connections);
    consumer.subscriptions = calloc((size_t)queues, sizeof *consumer.subscriptions);
    if (!consumer.connections || !consumer.subscriptions) fail("out of memory");
    for (int i = 0; i < connections; i++) {
        consumer.connections[i] = dial(RECEIVE_BYTES);
        consumer.connections[i]->channels = calloc((size_t)consumer.channels + 1, sizeof(subscription *));
    }
    for (int queue = 0; queue < queues; queue++) {
        connection *c = consumer.connections[queue % connections];
        subscription *s = &consumer.subscriptions[queue];
        *s = (subscription){.queue = queue, .channel = (uint16_t)(queue / connections + 1)};
        s->of_stream = calloc(slots, sizeof *s->of_stream);
        if (!s->of_stream) fail("out of memory");
        ((subscription **)c->channels)[s->channel] = s;
        open_channel(c, s->channel);
        if (!settings.prefetch) continue;
        put_qos(&c->out, s->channel, (uint16_t)settings.prefetch);
        flush(c);
        await_method(c, BASIC_QOS_OK);
    }
}

/* ---- checks ---- */

static void note_latency(const stamp *s, uint64_t now) {
    uint64_t sent = settings.latency_from_due ? due_ns(s->sequence) : producers[s->producer].sent_ns[s->sequence];
    uint64_t latency = now > sent ? now - sent : 0;
    consumer.on_time += latency <= settings.deadline_ms * 1000000;
    /* The first tenth warms up caches and is left out. */
    if (sent >= start_ns + (uint64_t)(settings.seconds * 1e8)) latency_add(&consumer.latencies, latency);
}

/* Checks a whole body and its place in the order of its queue. */
static void check_delivery(subscription *s, const uint8_t *body, uint64_t now) {
    stamp b = read_body(body, settings.body_bytes);
    int slot = b.producer < settings.producers ? slot_of(&settings.topology, s->queue, b.stream) : -1;
    if (slot < 0) fail("queue %d got a message of stream %d, which is not routed to it", s->queue, b.stream);
    const route *expected = &consumer.routes[b.stream];
    if (s->route.bytes != expected->bytes || memcmp(s->route.octets, expected->octets, expected->bytes))
        fail("queue %d: a delivery of stream %d names another exchange or routing key", s->queue, b.stream);
    if (b.sequence < s->sequence[b.producer])
        fail("queue %d: sequence %llu came after %llu", s->queue, (unsigned long long)b.sequence,
             (unsigned long long)s->sequence[b.producer] - 1);
    s->sequence[b.producer] = b.sequence + 1;
    uint32_t *next = &s->of_stream[slot_index(b.producer, slot)];
    if (b.of_stream != *next) {
        if (b.of_stream < *next) fail("queue %d: message %u of stream %d came again", s->queue, b.of_stream, b.stream);
        if (!settings.tolerate_gaps)
            fail("queue %d: %u messages of stream %d are missing before %u", s->queue, b.of_stream - *next, b.stream,
                 b.of_stream);
        consumer.gaps++;
        consumer.skipped += b.of_stream - *next;
    }
    *next = b.of_stream + 1;
    if (settings.rate > 0) note_latency(&b, now);
}

static void take_deliver(subscription *s, const frame *f) {
    if (s->phase != AWAIT_DELIVER) fail("queue %d: a delivery started inside another one", s->queue);
    const uint8_t *tag = f->payload + 4 + TAG_BYTES;
    size_t route_bytes = f->payload_bytes - DELIVER_BYTES_BEFORE_ROUTE;
    if (f->payload_bytes < DELIVER_BYTES_BEFORE_ROUTE || route_bytes > ROUTE_BYTES_MAX)
        fail("queue %d: broken delivery of %u octets", s->queue, f->payload_bytes);
    if (memcmp(f->payload + 4, consumer_tag, TAG_BYTES)) fail("queue %d: wrong consumer tag", s->queue);
    if (get_u64(tag) != ++s->delivery_tag)
        fail("queue %d: delivery tag %llu where %llu was due", s->queue, (unsigned long long)get_u64(tag),
             (unsigned long long)s->delivery_tag);
    if (tag[8]) fail("queue %d: a first delivery is marked as redelivered", s->queue);
    s->route.bytes = (uint8_t)route_bytes;
    memcpy(s->route.octets, tag + 9, route_bytes);
    s->phase = AWAIT_HEADER;
}

static void take_header(subscription *s, const frame *f) {
    if (s->phase != AWAIT_HEADER) fail("queue %d: a content header came out of place", s->queue);
    const octets *expected = &consumer.headers[settings.topology.kind == HEADERS ? s->queue : 0];
    if (f->payload_bytes != expected->used || memcmp(f->payload, expected->data, expected->used))
        fail("queue %d: the content header differs from the published one", s->queue);
    s->partial.used = 0;
    s->phase = AWAIT_BODY;
}

/* Takes a body frame; true when the body is complete. */
static bool take_body(subscription *s, const frame *f, uint64_t now) {
    if (s->phase != AWAIT_BODY) fail("queue %d: a body came out of place", s->queue);
    const uint8_t *body = f->payload;
    if (f->payload_bytes != settings.body_bytes) {
        put_octets(&s->partial, f->payload, f->payload_bytes);
        if (s->partial.used < settings.body_bytes) return false;
        body = s->partial.data;
    }
    if (s->partial.used && s->partial.used != settings.body_bytes)
        fail("queue %d: a body of %zu octets instead of %zu", s->queue, s->partial.used, settings.body_bytes);
    check_delivery(s, body, now);
    s->phase = AWAIT_DELIVER;
    return true;
}

/* ---- the thread ---- */

static void put_ack(connection *c, subscription *s) {
    size_t start = method_start(&c->out, s->channel, BASIC_ACK);
    put_u64(&c->out, s->delivery_tag);
    put_u8(&c->out, 1); /* multiple */
    frame_finish(&c->out, start);
    consumer.acked += (uint64_t)s->unacked;
    s->unacked = 0;
}

/* Methods other than basic.deliver: the answers to consume and close, and what must not come. */
static void take_other_method(connection *c, const frame *f) {
    if (is_method(f, BASIC_CONSUME_OK)) {
        atomic_fetch_add(&consumer.consuming, 1);
    } else if (is_method(f, CONNECTION_CLOSE_OK)) {
        c->closed = true;
    } else {
        refuse_close(f);
        fail("a consumer got method %u.%u", get_u16(f->payload), get_u16(f->payload + 2));
    }
}

/* Handles all complete frames; returns how many deliveries were completed. */
static uint64_t take_deliveries(connection *c, uint64_t now) {
    uint64_t count = 0;
    frame f;
    while (take_frame(c, &f)) {
        if (f.type == FRAME_HEARTBEAT) continue;
        subscription *s = f.channel <= consumer.channels ? ((subscription **)c->channels)[f.channel] : NULL;
        if (f.type == FRAME_METHOD && !is_method(&f, BASIC_DELIVER)) {
            take_other_method(c, &f);
            continue;
        }
        if (!s) fail("a frame of type %u came on channel %u, which is not open", f.type, f.channel);
        if (f.type == FRAME_METHOD) take_deliver(s, &f);
        else if (f.type == FRAME_HEADER) take_header(s, &f);
        else if (f.type != FRAME_BODY) fail("broken frame: its type is %u", f.type);
        else if (take_body(s, &f, now)) {
            count++;
            if (settings.prefetch && ++s->unacked >= settings.ack_every) put_ack(c, s);
        }
    }
    return count;
}

static void start_consuming(int poll) {
    for (int i = 0; i < settings.consumers; i++) {
        connection *c = consumer.connections[i];
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poll, EPOLL_CTL_ADD, c->socket, &event);
    }
    for (int queue = 0; queue < settings.topology.queues; queue++) {
        connection *c = consumer.connections[queue % settings.consumers];
        char name[NAME_BYTES_MAX];
        queue_name(name, queue);
        size_t start = method_start(&c->out, consumer.subscriptions[queue].channel, BASIC_CONSUME);
        put_u16(&c->out, 0);
        put_shortstr(&c->out, name);
        put_octets(&c->out, consumer_tag, TAG_BYTES);
        put_u8(&c->out, settings.prefetch ? 0 : 2); /* no-ack */
        put_u32(&c->out, 0);
        frame_finish(&c->out, start);
    }
    for (int i = 0; i < settings.consumers; i++) flush(consumer.connections[i]);
}

/* Acknowledges what is left and closes; deliveries that still come are checked up to the broker's close-ok. */
static void close_consumers(void) {
    for (int queue = 0; queue < settings.topology.queues; queue++) {
        subscription *s = &consumer.subscriptions[queue];
        if (s->unacked) put_ack(consumer.connections[queue % settings.consumers], s);
    }
    for (int i = 0; i < settings.consumers; i++) {
        connection *c = consumer.connections[i];
        put_connection_close(&c->out);
        flush(c);
        while (!c->closed) {
            receive(c, 0);
            atomic_fetch_add(&consumer.delivered, take_deliveries(c, now_ns()));
        }
        drop(c);
    }
}

static void *consume(void *argument) {
    (void)argument;
    int poll = epoll_create1(EPOLL_CLOEXEC);
    if (poll < 0) fail("epoll: %s", strerror(errno));
    start_consuming(poll);
    struct epoll_event events[64];
    while (!atomic_load_explicit(&consumer.stopping, memory_order_relaxed)) {
        int ready = epoll_wait(poll, events, 64, 20);
        for (int i = 0; i < ready; i++) {
            connection *c = events[i].data.ptr;
            if (!receive(c, MSG_DONTWAIT)) continue;
            uint64_t now = now_ns(), count = take_deliveries(c, now);
            if (c->out.used) flush(c);
            if (!count) continue;
            atomic_fetch_add(&consumer.delivered, count);
            atomic_store(&consumer.last_ns, now_ns());
        }
    }
    close(poll);
    close_consumers();
    return NULL;
}

/* How many messages never came, over all queues and streams; each one is a failure unless gaps are tolerated. */
static uint64_t missing_messages(void) {
    const topology *t = &settings.topology;
    uint64_t missing = 0;
    for (int queue = 0; queue < t->queues; queue++)
        for (int stream = 0; stream < stream_count(t); stream++) {
            int slot = slot_of(t, queue, stream);
            for (int p = 0; slot >= 0 && p < settings.producers; p++) {
                uint32_t got = consumer.subscriptions[queue].of_stream[slot_index(p, slot)];
                uint32_t sent = producers[p].of_stream[stream];
                if (got != sent && !settings.tolerate_gaps)
                    fail("queue %d got %u of %u messages of stream %d", queue, got, sent, stream);
                missing += sent - got;
            }
        }
    return missing + consumer.skipped;
}

#endif
