/* What the command line asks for; see usage(). Set before the first thread starts, only read after. */
#ifndef FLINTMQ_BENCH_SETTINGS_H
#define FLINTMQ_BENCH_SETTINGS_H

#include <getopt.h>

#include "message.h"

static struct {
    topology topology;
    pid_t pid;            /* the broker's process, for its processor time and memory */
    double seconds;       /* how long to publish */
    uint64_t count;       /* or how many messages, where not 0 */
    double rate;          /* messages a second by all producers; 0 is as fast as the broker takes them */
    int producers, consumers, batch, held;
    size_t body_bytes;
    int prefetch, ack_every; /* prefetch 0 is no acknowledgement */
    uint64_t confirm_window; /* 0 is no confirms */
    bool persistent, backlog, tolerate_gaps, latency_from_due;
    uint64_t deadline_ms;
} settings = {.topology = {.queues = 1}, .seconds = 3, .producers = 1, .consumers = 1, .batch = 500,
              .body_bytes = BODY_BYTES_MIN, .ack_every = 100, .deadline_ms = 1000};

static const char usage_text[] =
    "load: publishes to an AMQP 0-9-1 broker on 127.0.0.1, consumes, checks every delivery, prints JSON.\n"
    "  --port N --user NAME --password WORD --vhost NAME   the broker\n"
    "  --pid N              its process, to report its CPU time and memory\n"
    "  --seconds S          how long to publish (3)\n"
    "  --count N            publish N messages instead\n"
    "  --rate R             messages per second (as many as the broker takes)\n"
    "  --producers N --consumers N   connections that publish (1) and consume (1)\n"
    "  --queues N           queues, one consumer each, shared out over the connections (1)\n"
    "  --topology direct|fanout|topic|headers   how messages reach the queues (direct)\n"
    "  --wildcards          topic: also bind each queue to a market's wildcard\n"
    "  --body-bytes N       16 to 65536 (16)\n"
    "  --batch N            messages per send call (500)\n"
    "  --prefetch N         acknowledge, with this prefetch count (no acknowledgements)\n"
    "  --ack-every N        one multiple ack for N deliveries (100)\n"
    "  --persistent         durable queues, persistent messages\n"
    "  --confirms N         publisher confirms, N unconfirmed at most\n"
    "  --backlog            publish all before consuming; measures memory per message (needs --count)\n"
    "  --held N             hold N more connections open, with a channel each\n"
    "  --tolerate-gaps      count missing messages instead of failing\n"
    "  --latency-from-due   measure latency from when a message was due (needs --rate)\n"
    "  --deadline-ms N      a delivery later than this is not on time (1000)\n"
    "  --stall-seconds N    no progress for so long is a failure (15)\n";

__attribute__((noreturn)) static void usage(int status) {
    fputs(usage_text, status ? stderr : stdout);
    exit(status);
}

static double number(const char *option, const char *text, double lowest, double highest) {
    char *end;
    double value = strtod(text, &end);
    if (*end || end == text || !(value >= lowest && value <= highest))
        fail("--%s must be a number from %g to %g, not %s", option, lowest, highest, text);
    return value;
}

static topology_kind kind_of(const char *name) {
    if (!strcmp(name, "direct")) return DIRECT;
    if (!strcmp(name, "fanout")) return FANOUT;
    if (!strcmp(name, "topic")) return TOPIC;
    if (!strcmp(name, "headers")) return HEADERS;
    fail("--topology must be direct, fanout, topic or headers, not %s", name);
}

enum option_code {
    PORT = 1, USER, PASSWORD, VHOST, PID, SECONDS, COUNT, RATE, PRODUCERS, CONSUMERS, QUEUES, TOPOLOGY, WILDCARDS,
    BODY_BYTES, BATCH, PREFETCH, ACK_EVERY, PERSISTENT, CONFIRMS, BACKLOG, HELD, TOLERATE_GAPS, FROM_DUE, DEADLINE,
    STALL, HELP
};

static const struct option option_table[] = {
    {"port", 1, 0, PORT}, {"user", 1, 0, USER}, {"password", 1, 0, PASSWORD}, {"vhost", 1, 0, VHOST},
    {"pid", 1, 0, PID}, {"seconds", 1, 0, SECONDS}, {"count", 1, 0, COUNT}, {"rate", 1, 0, RATE},
    {"producers", 1, 0, PRODUCERS}, {"consumers", 1, 0, CONSUMERS}, {"queues", 1, 0, QUEUES},
    {"topology", 1, 0, TOPOLOGY}, {"wildcards", 0, 0, WILDCARDS}, {"body-bytes", 1, 0, BODY_BYTES},
    {"batch", 1, 0, BATCH}, {"prefetch", 1, 0, PREFETCH}, {"ack-every", 1, 0, ACK_EVERY},
    {"persistent", 0, 0, PERSISTENT}, {"confirms", 1, 0, CONFIRMS}, {"backlog", 0, 0, BACKLOG},
    {"held", 1, 0, HELD}, {"tolerate-gaps", 0, 0, TOLERATE_GAPS}, {"latency-from-due", 0, 0, FROM_DUE},
    {"deadline-ms", 1, 0, DEADLINE}, {"stall-seconds", 1, 0, STALL}, {"help", 0, 0, HELP}, {0, 0, 0, 0}};

static void set_option(enum option_code code, const char *name, const char *value) {
    switch (code) {
    case PORT: target.port = (uint16_t)number(name, value, 1, 65535); break;
    case USER: target.user = value; break;
    case PASSWORD: target.password = value; break;
    case VHOST: target.virtual_host = value; break;
    case PID: settings.pid = (pid_t)number(name, value, 1, 1 << 30); break;
    case SECONDS: settings.seconds = number(name, value, 0.01, 86400); break;
    case COUNT: settings.count = (uint64_t)number(name, value, 1, 1e12); break;
    case RATE: settings.rate = number(name, value, 1, 1e7); break;
    case PRODUCERS: settings.producers = (int)number(name, value, 0, PRODUCERS_MAX); break;
    case CONSUMERS: settings.consumers = (int)number(name, value, 1, 10000); break;
    case QUEUES: settings.topology.queues = (int)number(name, value, 1, TOPICS); break;
    case TOPOLOGY: settings.topology.kind = kind_of(value); break;
    case WILDCARDS: settings.topology.wildcards = true; break;
    case BODY_BYTES: settings.body_bytes = (size_t)number(name, value, BODY_BYTES_MIN, BODY_BYTES_MAX); break;
    case BATCH: settings.batch = (int)number(name, value, 1, 10000); break;
    case PREFETCH: settings.prefetch = (int)number(name, value, 1, 65535); break;
    case ACK_EVERY: settings.ack_every = (int)number(name, value, 1, 65535); break;
    case PERSISTENT: settings.persistent = settings.topology.durable = true; break;
    case CONFIRMS: settings.confirm_window = (uint64_t)number(name, value, 1, 1 << 19); break;
    case BACKLOG: settings.backlog = true; break;
    case HELD: settings.held = (int)number(name, value, 1, 1000000); break;
    case TOLERATE_GAPS: settings.tolerate_gaps = true; break;
    case FROM_DUE: settings.latency_from_due = true; break;
    case DEADLINE: settings.deadline_ms = (uint64_t)number(name, value, 1, 1e6); break;
    case STALL: target.stall_seconds = (int)number(name, value, 1, 3600); break;
    case HELP: usage(0);
    }
}

static void read_settings(int argument_count, char **arguments) {
    int code, index;
    while ((code = getopt_long(argument_count, arguments, "", option_table, &index)) != -1) {
        if (code == '?') usage(2);
        set_option((enum option_code)code, option_table[index].name, optarg);
    }
    if (optind < argument_count) usage(2);
    if (settings.backlog && !settings.count) fail("--backlog needs --count");
    if (settings.latency_from_due && settings.rate <= 0) fail("--latency-from-due needs --rate");
    if (settings.prefetch && settings.ack_every > settings.prefetch) settings.ack_every = settings.prefetch;
    /* Four batches in a window of confirms keep the broker busy while the first one's confirm travels. */
    int quarter = (int)(settings.confirm_window / 4) ? (int)(settings.confirm_window / 4) : 1;
    if (settings.confirm_window && settings.batch > quarter) settings.batch = quarter;
    if (settings.consumers > settings.topology.queues) settings.consumers = settings.topology.queues;
}

#endif
