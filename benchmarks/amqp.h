/* The part of AMQP 0-9-1 that the load tool speaks: octets, frames, connections, requests with an answer.
 *
 * Every frame is checked on the way in, since a benchmark of wrong answers measures nothing:
 *
 *     0      1         3             7                  7 + size
 *     +------+---------+-------------+------------------+------+
 *     | type | channel | size        | payload          | 0xCE |
 *     +------+---------+-------------+------------------+------+
 *
 * All that is wrong ends in fail(), which reports one sentence as JSON and ends the process.
 */
#ifndef FLINTMQ_BENCH_AMQP_H
#define FLINTMQ_BENCH_AMQP_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { FRAME_METHOD = 1, FRAME_HEADER = 2, FRAME_BODY = 3, FRAME_HEARTBEAT = 8, FRAME_END = 0xCE };
enum { FRAME_HEAD_BYTES = 7, FRAME_EXTRA_BYTES = 8 };

#define METHOD(class_id, method_id) ((uint32_t)(class_id) << 16 | (method_id))
enum {
    CONNECTION_START = METHOD(10, 10), CONNECTION_START_OK = METHOD(10, 11),
    CONNECTION_TUNE = METHOD(10, 30), CONNECTION_TUNE_OK = METHOD(10, 31),
    CONNECTION_OPEN = METHOD(10, 40), CONNECTION_OPEN_OK = METHOD(10, 41),
    CONNECTION_CLOSE = METHOD(10, 50), CONNECTION_CLOSE_OK = METHOD(10, 51),
    CHANNEL_OPEN = METHOD(20, 10), CHANNEL_OPEN_OK = METHOD(20, 11),
    CHANNEL_FLOW = METHOD(20, 20), CHANNEL_FLOW_OK = METHOD(20, 21), CHANNEL_CLOSE = METHOD(20, 40),
    EXCHANGE_DECLARE = METHOD(40, 10), EXCHANGE_DECLARE_OK = METHOD(40, 11),
    EXCHANGE_DELETE = METHOD(40, 20), EXCHANGE_DELETE_OK = METHOD(40, 21),
    QUEUE_DECLARE = METHOD(50, 10), QUEUE_DECLARE_OK = METHOD(50, 11),
    QUEUE_BIND = METHOD(50, 20), QUEUE_BIND_OK = METHOD(50, 21),
    QUEUE_DELETE = METHOD(50, 40), QUEUE_DELETE_OK = METHOD(50, 41),
    BASIC_QOS = METHOD(60, 10), BASIC_QOS_OK = METHOD(60, 11),
    BASIC_CONSUME = METHOD(60, 20), BASIC_CONSUME_OK = METHOD(60, 21),
    BASIC_PUBLISH = METHOD(60, 40), BASIC_DELIVER = METHOD(60, 60),
    BASIC_ACK = METHOD(60, 80), BASIC_NACK = METHOD(60, 120),
    CONFIRM_SELECT = METHOD(85, 10), CONFIRM_SELECT_OK = METHOD(85, 11),
};

/* Report a failure and end: no figure of a run that went wrong may be used. */
__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *c = text; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ' || (unsigned char)*c > '~') *c = '\'';
    flockfile(stdout); /* two threads may fail at once: the first one's sentence is the report */
    printf("{\"ok\": false, \"failure\": \"%s\"}\n", text);
    fflush(stdout);
    _exit(1);
}

/* ---- octets ---- */

typedef struct {
    uint8_t *data;
    size_t used, room;
} octets;

static uint8_t *octets_extend(octets *o, size_t count) {
    if (o->used + count > o->room) {
        o->room = (o->used + count) * 2 + 256;
        o->data = realloc(o->data, o->room);
        if (!o->data) fail("out of memory for %zu octets", o->room);
    }
    uint8_t *place = o->data + o->used;
    o->used += count;
    return place;
}

static void put_octets(octets *o, const void *data, size_t count) {
    memcpy(octets_extend(o, count), data, count);
}
static void put_u8(octets *o, uint8_t value) {
    *octets_extend(o, 1) = value;
}
static void put_u16(octets *o, uint16_t value) {
    value = htobe16(value);
    put_octets(o, &value, sizeof value);
}
static void put_u32(octets *o, uint32_t value) {
    value = htobe32(value);
    put_octets(o, &value, sizeof value);
}
static void put_u64(octets *o, uint64_t value) {
    value = htobe64(value);
    put_octets(o, &value, sizeof value);
}
static void put_shortstr(octets *o, const char *text) {
    size_t count = strlen(text);
    put_u8(o, (uint8_t)count);
    put_octets(o, text, count);
}

static uint16_t get_u16(const uint8_t *p) {
    uint16_t value;
    memcpy(&value, p, sizeof value);
    return be16toh(value);
}
static uint32_t get_u32(const uint8_t *p) {
    uint32_t value;
    memcpy(&value, p, sizeof value);
    return be32toh(value);
}
static uint64_t get_u64(const uint8_t *p) {
    uint64_t value;
    memcpy(&value, p, sizeof value);
    return be64toh(value);
}

/* ---- frames out ---- */

/* Starts a frame; returns where its payload starts, for frame_finish to fill in the size. */
static size_t frame_start(octets *o, uint8_t type, uint16_t channel) {
    put_u8(o, type);
    put_u16(o, channel);
    put_u32(o, 0);
    return o->used;
}

static void frame_finish(octets *o, size_t payload_start) {
    uint32_t size = htobe32((uint32_t)(o->used - payload_start));
    memcpy(o->data + payload_start - 4, &size, sizeof size);
    put_u8(o, FRAME_END);
}

static size_t method_start(octets *o, uint16_t channel, uint32_t method) {
    size_t payload_start = frame_start(o, FRAME_METHOD, channel);
    put_u32(o, method);
    return payload_start;
}

/* ---- connections ---- */

typedef struct {
    int socket;
    octets in;        /* octets received; those before `taken` are parsed */
    size_t taken;
    octets out;       /* octets to send at the next flush */
    uint32_t frame_bytes_max;
    bool closed;      /* connection.close-ok has come */
    void *channels;   /* the consumer's state, indexed by channel number */
} connection;

typedef struct {
    const uint8_t *payload;
    uint32_t payload_bytes;
    uint16_t channel;
    uint8_t type;
} frame;

/* Where all connections go; set once from the command line. */
static struct {
    uint16_t port;
    const char *user, *password, *virtual_host;
    int stall_seconds;
} target = {5672, "guest", "guest", "/", 15};

static bool is_method(const frame *f, uint32_t method) {
    return f->type == FRAME_METHOD && get_u32(f->payload) == method;
}

/* Takes the next complete frame out of what was received; false when there is none. */
static inline bool take_frame(connection *c, frame *f) {
    size_t available = c->in.used - c->taken;
    if (available < FRAME_HEAD_BYTES) return false;
    const uint8_t *head = c->in.data + c->taken;
    uint32_t size = get_u32(head + 3);
    if (c->frame_bytes_max && (uint64_t)size + FRAME_EXTRA_BYTES > c->frame_bytes_max)
        fail("broken frame: %u octets of payload, frame-max is %u", size, c->frame_bytes_max);
    if (available < (size_t)size + FRAME_EXTRA_BYTES) return false;
    if (head[FRAME_HEAD_BYTES + size] != FRAME_END)
        fail("broken frame: it ends with octet %02x", head[FRAME_HEAD_BYTES + size]);
    *f = (frame){head + FRAME_HEAD_BYTES, size, get_u16(head + 1), head[0]};
    if (f->type == FRAME_METHOD && size < 4) fail("broken frame: a method of %u octets", size);
    c->taken += (size_t)size + FRAME_EXTRA_BYTES;
    return true;
}

/* Receives once into the free part of the buffer; false when nothing is there and flags say not to wait. */
static bool receive(connection *c, int flags) {
    size_t left = c->in.used - c->taken;
    if (c->taken && left) memmove(c->in.data, c->in.data + c->taken, left);
    c->in.used = left;
    c->taken = 0;
    if (left == c->in.room) { /* one frame larger than the buffer */
        octets_extend(&c->in, left);
        c->in.used = left;
    }
    for (;;) {
        ssize_t count = recv(c->socket, c->in.data + left, c->in.room - left, flags);
        if (count > 0) {
            c->in.used += (size_t)count;
            return true;
        }
        if (count == 0) fail("the broker closed a connection");
        if (errno == EINTR) continue;
        if (errno != EAGAIN) fail("receiving: %s", strerror(errno));
        if (flags & MSG_DONTWAIT) return false;
        fail("stalled: no answer in %d s", target.stall_seconds);
    }
}

/* Fails with the broker's own words where the frame is a close that nobody asked for. */
static void refuse_close(const frame *f) {
    if (!is_method(f, CONNECTION_CLOSE) && !is_method(f, CHANNEL_CLOSE)) return;
    const uint8_t *text = f->payload + 6;
    if (f->payload_bytes < 7 || f->payload_bytes < 7u + *text) fail("the broker sent a broken close method");
    fail("the broker closed: %u %.*s", get_u16(f->payload + 4), *text, text + 1);
}

static void send_octets(connection *c, const uint8_t *data, size_t count) {
    while (count) {
        ssize_t sent = send(c->socket, data, count, MSG_NOSIGNAL);
        if (sent >= 0) {
            data += sent;
            count -= (size_t)sent;
            continue;
        }
        if (errno == EINTR) continue;
        if (errno == EAGAIN) fail("stalled: the broker read nothing in %d s", target.stall_seconds);
        int reason = errno;
        frame f; /* the broker may have said why */
        while (receive(c, MSG_DONTWAIT))
            while (take_frame(c, &f)) refuse_close(&f);
        fail("sending: %s", strerror(reason));
    }
}

static void flush(connection *c) {
    send_octets(c, c->out.data, c->out.used);
    c->out.used = 0;
}

static frame await_frame(connection *c) {
    frame f;
    while (!take_frame(c, &f)) receive(c, 0);
    return f;
}

/* Waits for one method on a connection where nothing else may come but heartbeats. */
static frame await_method(connection *c, uint32_t method) {
    for (;;) {
        frame f = await_frame(c);
        if (is_method(&f, method)) return f;
        if (f.type == FRAME_HEARTBEAT) continue;
        refuse_close(&f);
        fail("a frame of type %u came where method %u.%u was due", f.type, method >> 16, method & 0xFFFF);
    }
}

/* Ends the request begun at payload_start in c->out, sends it and waits for its answer. */
static frame request(connection *c, size_t payload_start, uint32_t answer) {
    frame_finish(&c->out, payload_start);
    flush(c);
    return await_method(c, answer);
}

/* A loopback address has some 28,000 free ports: every 10,000 connections get an address of their own. */
static void choose_source(int socket) {
    static unsigned opened;
    struct sockaddr_in source = {.sin_family = AF_INET};
    source.sin_addr.s_addr = htonl(INADDR_LOOPBACK + opened++ / 10000 % 200);
    int yes = 1;
    setsockopt(socket, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes);
    if (bind(socket, (struct sockaddr *)&source, sizeof source)) fail("bind: %s", strerror(errno));
}

static int connect_socket(void) {
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0) fail("socket: %s", strerror(errno));
    choose_source(s);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(target.port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(s, (struct sockaddr *)&address, sizeof address)) fail("connect: %s", strerror(errno));
    int yes = 1;
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    struct timeval patience = {.tv_sec = target.stall_seconds};
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    return s;
}

static void log_in(connection *c) {
    static const uint8_t protocol_header[8] = {'A', 'M', 'Q', 'P', 0, 0, 9, 1};
    send_octets(c, protocol_header, sizeof protocol_header);
    await_method(c, CONNECTION_START);
    octets *o = &c->out;
    size_t start = method_start(o, 0, CONNECTION_START_OK);
    put_u32(o, 0); /* no client properties */
    put_shortstr(o, "PLAIN");
    size_t user_bytes = strlen(target.user), password_bytes = strlen(target.password);
    put_u32(o, (uint32_t)(user_bytes + password_bytes + 2));
    put_u8(o, 0);
    put_octets(o, target.user, user_bytes);
    put_u8(o, 0);
    put_octets(o, target.password, password_bytes);
    put_shortstr(o, "en_US");
    frame tune = request(c, start, CONNECTION_TUNE);
    if (tune.payload_bytes != 12) fail("broken tune method of %u octets", tune.payload_bytes);
    uint16_t channel_max = get_u16(tune.payload + 4);
    c->frame_bytes_max = get_u32(tune.payload + 6);
    start = method_start(o, 0, CONNECTION_TUNE_OK);
    put_u16(o, channel_max);
    put_u32(o, c->frame_bytes_max);
    put_u16(o, 0); /* no heartbeats: nothing but the load is measured */
    frame_finish(o, start);
    start = method_start(o, 0, CONNECTION_OPEN);
    put_shortstr(o, target.virtual_host);
    put_shortstr(o, "");
    put_u8(o, 0);
    request(c, start, CONNECTION_OPEN_OK);
}

static connection *dial(size_t buffer_bytes) {
    connection *c = calloc(1, sizeof *c);
    if (!c) fail("out of memory");
    octets_extend(&c->in, buffer_bytes);
    c->in.used = 0;
    c->socket = connect_socket();
    log_in(c);
    return c;
}

static void open_channel(connection *c, uint16_t channel) {
    size_t start = method_start(&c->out, channel, CHANNEL_OPEN);
    put_shortstr(&c->out, "");
    request(c, start, CHANNEL_OPEN_OK);
}

static void put_qos(octets *o, uint16_t channel, uint16_t prefetch) {
    size_t start = method_start(o, channel, BASIC_QOS);
    put_u32(o, 0);
    put_u16(o, prefetch);
    put_u8(o, 0);
    frame_finish(o, start);
}

static void put_connection_close(octets *o) {
    size_t start = method_start(o, 0, CONNECTION_CLOSE);
    put_u16(o, 200);
    put_shortstr(o, "");
    put_u32(o, 0);
    frame_finish(o, start);
}

static void drop(connection *c) {
    close(c->socket);
    free(c->in.data);
    free(c->out.data);
    free(c);
}

static void hang_up(connection *c) {
    put_connection_close(&c->out);
    flush(c);
    await_method(c, CONNECTION_CLOSE_OK);
    drop(c);
}

#endif
