/* load: the load generator of FlintMQ's benchmark, for any AMQP 0-9-1 broker on 127.0.0.1.
 *
 * It publishes, consumes, checks every delivery and every confirm, and prints one JSON object: figures where
 * all was right ("ok": true), or else the first thing that was wrong. run.py builds and calls it.
 *
 *     main           held connections -> topology -> backlog or flow -> checks -> report
 *     publish.h      producers: threads that publish, confirms.h keeps account of confirms
 *     consume.h      the thread that consumes and checks
 *     message.h      streams, routes and bodies
 *     amqp.h         frames and connections
 *     meter.h        clocks, CPU time, memory, latency percentiles
 *     settings.h     the command line
 *
 * Build: gcc -O2 -pthread -o load load.c
 */
#define _GNU_SOURCE
#include <endian.h>
#include <signal.h>
#include <sys/prctl.h>

#include "consume.h"

static connection *control; /* declares, inspects and deletes */

/* ---- topology ---- */

static void delete_queue(int queue, uint32_t messages_left_max) {
    char name[NAME_BYTES_MAX];
    queue_name(name, queue);
    size_t start = method_start(&control->out, 1, QUEUE_DELETE);
    put_u16(&control->out, 0);
    put_shortstr(&control->out, name);
    put_u8(&control->out, 0);
    frame answer = request(control, start, QUEUE_DELETE_OK);
    if (answer.payload_bytes != 8) fail("broken queue.delete-ok");
    uint32_t left = get_u32(answer.payload + 4);
    if (left > messages_left_max) fail("queue %d still holds %u messages at the end", queue, left);
}

/* Declares a queue, or with `passive` only asks; returns how many messages it holds. */
static uint32_t declare_queue(int queue, bool passive) {
    char name[NAME_BYTES_MAX];
    queue_name(name, queue);
    size_t start = method_start(&control->out, 1, QUEUE_DECLARE);
    put_u16(&control->out, 0);
    put_shortstr(&control->out, name);
    put_u8(&control->out, (uint8_t)(passive | settings.topology.durable << 1));
    put_u32(&control->out, 0);
    frame answer = request(control, start, QUEUE_DECLARE_OK);
    uint8_t name_bytes = answer.payload_bytes > 5 ? answer.payload[4] : 0;
    if (answer.payload_bytes != 4u + 1 + name_bytes + 8) fail("broken queue.declare-ok");
    return get_u32(answer.payload + 5 + name_bytes);
}

static void bind_queue(int queue, const char *key) {
    char name[NAME_BYTES_MAX];
    queue_name(name, queue);
    size_t start = method_start(&control->out, 1, QUEUE_BIND);
    put_u16(&control->out, 0);
    put_shortstr(&control->out, name);
    put_shortstr(&control->out, exchange_name(&settings.topology));
    put_shortstr(&control->out, key);
    put_u8(&control->out, 0);
    if (settings.topology.kind == HEADERS) put_terms(&control->out, queue, true);
    else put_u32(&control->out, 0);
    request(control, start, QUEUE_BIND_OK);
}

static void delete_exchange(void) {
    size_t start = method_start(&control->out, 1, EXCHANGE_DELETE);
    put_u16(&control->out, 0);
    put_shortstr(&control->out, exchange_name(&settings.topology));
    put_u8(&control->out, 0);
    request(control, start, EXCHANGE_DELETE_OK);
}

static void declare_exchange(void) {
    delete_exchange(); /* one left by a run that was cut short may have other bindings */
    size_t start = method_start(&control->out, 1, EXCHANGE_DECLARE);
    put_u16(&control->out, 0);
    put_shortstr(&control->out, exchange_name(&settings.topology));
    put_shortstr(&control->out, exchange_name(&settings.topology) + strlen("bench.")); /* called after its type */
    put_u8(&control->out, 0);
    put_u32(&control->out, 0);
    request(control, start, EXCHANGE_DECLARE_OK);
}

static void bind_topics(int queue) {
    const topology *t = &settings.topology;
    char key[NAME_BYTES_MAX];
    for (int stream = queue; stream < TOPICS; stream += t->queues) {
        routing_key(t, key, stream);
        bind_queue(queue, key);
    }
    if (!t->wildcards) return;
    snprintf(key, sizeof key, "quote.mkt%02d.*", queue % MARKETS);
    bind_queue(queue, key);
}

static void declare_topology(void) {
    const topology *t = &settings.topology;
    if (t->kind != DIRECT) declare_exchange();
    for (int queue = 0; queue < t->queues; queue++) {
        delete_queue(queue, UINT32_MAX);
        declare_queue(queue, false);
        if (t->kind == FANOUT || t->kind == HEADERS) bind_queue(queue, "");
        if (t->kind == TOPIC) bind_topics(queue);
    }
}

static void delete_topology(void) {
    for (int queue = 0; queue < settings.topology.queues; queue++) delete_queue(queue, 0);
    if (settings.topology.kind != DIRECT) delete_exchange();
}

/* ---- figures ---- */

static struct {
    long rss_kib_before, rss_kib_peak;
    uint64_t cpu_ns_start;
    double cpu_s, seconds, publish_seconds;
    uint64_t published, expected, missing, late_ns_max;
} flow;

static struct {
    connection **connections;
    double seconds, idle_cpu_percent;
    long rss_kib_half, rss_kib_after;
} held;

static struct {
    double seconds;
    long rss_kib_before, rss_kib_after;
} backlog;

static void note_peak(void) {
    long rss = process_rss_kib(settings.pid);
    if (rss > flow.rss_kib_peak) flow.rss_kib_peak = rss;
}

/* ---- held connections ---- */

static void hold_connections(void) {
    held.connections = calloc((size_t)settings.held, sizeof *held.connections);
    if (!held.connections) fail("out of memory");
    uint64_t start = now_ns();
    for (int i = 0; i < settings.held; i++) {
        if (i == settings.held / 2) held.rss_kib_half = process_rss_kib(settings.pid);
        held.connections[i] = dial(1024);
        open_channel(held.connections[i], 1);
    }
    held.seconds = (double)(now_ns() - start) / 1e9;
    pause_ms(1000); /* what the broker does after the last handshake is not its idle state */
    held.rss_kib_after = process_rss_kib(settings.pid);
    uint64_t cpu_ns = process_cpu_ns(settings.pid);
    pause_ms(1000);
    held.idle_cpu_percent = (double)(process_cpu_ns(settings.pid) - cpu_ns) / 1e7;
}

/* Every held connection must still answer; then all are closed, together rather than one by one. */
static void release_connections(void) {
    for (int i = 0; i < settings.held; i++) {
        put_qos(&held.connections[i]->out, 1, 1);
        put_connection_close(&held.connections[i]->out);
        flush(held.connections[i]);
    }
    for (int i = 0; i < settings.held; i++) {
        await_method(held.connections[i], BASIC_QOS_OK);
        await_method(held.connections[i], CONNECTION_CLOSE_OK);
        drop(held.connections[i]);
    }
}

/* ---- the run ---- */

static void sum_producers(void) {
    for (int i = 0; i < settings.producers; i++) {
        flow.published += producers[i].published;
        flow.expected += producers[i].expected;
        if (producers[i].late_ns_max > flow.late_ns_max) flow.late_ns_max = producers[i].late_ns_max;
        if (settings.confirm_window && producers[i].ledger.confirmed != producers[i].published)
            fail("producer %d: %llu of %llu confirmed", i, (unsigned long long)producers[i].ledger.confirmed,
                 (unsigned long long)producers[i].published);
    }
}

static void publish_all(void) {
    start_producers();
    while (!producers_finished()) {
        pause_ms(2);
        note_peak();
    }
    flow.publish_seconds = (double)(now_ns() - start_ns) / 1e9;
    join_producers();
    sum_producers();
}

/* Fills the queues with nobody consuming, and waits until all messages are in them. */
static void fill_backlog(void) {
    backlog.rss_kib_before = process_rss_kib(settings.pid);
    publish_all();
    uint64_t last = 0, moved_ns = now_ns();
    for (;;) {
        uint64_t waiting = 0;
        for (int queue = 0; queue < settings.topology.queues; queue++) waiting += declare_queue(queue, true);
        if (waiting == flow.expected) break;
        if (waiting > flow.expected) fail("the queues hold more messages than were published");
        if (waiting != last) last = waiting, moved_ns = now_ns();
        else if (now_ns() - moved_ns > (uint64_t)target.stall_seconds * NANOSECONDS)
            fail("stalled: the queues hold %llu of %llu messages", (unsigned long long)waiting,
                 (unsigned long long)flow.expected);
        pause_ms(2);
    }
    backlog.seconds = (double)(now_ns() - start_ns) / 1e9;
    pause_ms(500); /* let buffers of the way in go */
    backlog.rss_kib_after = process_rss_kib(settings.pid);
}

static void await_consuming(void) {
    uint64_t limit_ns = now_ns() + (uint64_t)target.stall_seconds * NANOSECONDS;
    while (atomic_load(&consumer.consuming) < settings.topology.queues) {
        if (now_ns() > limit_ns) fail("stalled: basic.consume was not answered in %d s", target.stall_seconds);
        pause_ms(1);
    }
}

/* Waits for the last delivery. No delivery for a while is a failure, or the end where gaps are tolerated. */
static void await_deliveries(void) {
    uint64_t last = 0, moved_ns = now_ns();
    for (;;) {
        uint64_t delivered = atomic_load(&consumer.delivered);
        if (delivered >= flow.expected) return;
        if (delivered != last) last = delivered, moved_ns = now_ns();
        else if (now_ns() - moved_ns > (uint64_t)target.stall_seconds * NANOSECONDS) {
            if (settings.tolerate_gaps) return;
            fail("stalled: %llu of %llu deliveries came", (unsigned long long)delivered,
                 (unsigned long long)flow.expected);
        }
        pause_ms(2);
        note_peak();
    }
}

static void run_flow(void) {
    flow.rss_kib_before = flow.rss_kib_peak = process_rss_kib(settings.pid);
    open_consumers();
    for (int i = 0; i < settings.producers; i++) prepare_producer(&producers[i], i);
    if (settings.backlog) fill_backlog();
    uint64_t consume_ns = now_ns();
    flow.cpu_ns_start = process_cpu_ns(settings.pid);
    if (pthread_create(&consumer.thread, NULL, consume, NULL)) fail("no thread for the consumer");
    await_consuming();
    if (!settings.backlog) {
        flow.cpu_ns_start = process_cpu_ns(settings.pid);
        publish_all();
        consume_ns = start_ns;
    }
    await_deliveries();
    flow.cpu_s = (double)(process_cpu_ns(settings.pid) - flow.cpu_ns_start) / 1e9;
    uint64_t last_ns = atomic_load(&consumer.last_ns);
    flow.seconds = last_ns > consume_ns ? (double)(last_ns - consume_ns) / 1e9 : 0;
    atomic_store(&consumer.stopping, true);
    pthread_join(consumer.thread, NULL);
    hang_up_producers();
    flow.missing = missing_messages();
    if (atomic_load(&consumer.delivered) + flow.missing != flow.expected) fail("the deliveries do not add up");
}

/* ---- report ---- */

static double ratio(double value, double by) {
    return by > 0 ? value / by : 0;
}

static void report_held(void) {
    /* The first half may live in memory that was free since the start: the second half shows the price. */
    long grown_kib = held.rss_kib_after - held.rss_kib_half;
    int grown_by = settings.held - settings.held / 2;
    printf(", \"held\": {\"connections\": %d, \"connections_per_s\": %.1f, \"kib_per_connection\": %.2f, "
           "\"rss_kib\": %ld, \"idle_cpu_percent\": %.2f}",
           settings.held, ratio(settings.held, held.seconds), ratio((double)grown_kib, grown_by),
           held.rss_kib_after, held.idle_cpu_percent);
}

static void report_flow(void) {
    uint64_t delivered = atomic_load(&consumer.delivered), confirmed = 0, frames = 0, multiple = 0;
    for (int i = 0; i < settings.producers; i++) {
        confirmed += producers[i].ledger.confirmed;
        frames += producers[i].ledger.frames;
        multiple += producers[i].ledger.frames_multiple;
    }
    printf(", \"published\": %llu, \"publish_per_s\": %.1f, \"delivered\": %llu, \"deliver_per_s\": %.1f, "
           "\"seconds\": %.3f, \"cpu_us_per_message\": %.4f, \"cpu_percent\": %.1f, \"rss_kib_before\": %ld, "
           "\"rss_kib_peak\": %ld, \"confirmed\": %llu, \"confirm_frames\": %llu, \"confirm_frames_multiple\": %llu, "
           "\"acked\": %llu",
           (unsigned long long)flow.published, ratio((double)flow.published, flow.publish_seconds),
           (unsigned long long)delivered, ratio((double)delivered, flow.seconds), flow.seconds,
           ratio(flow.cpu_s * 1e6, (double)delivered), ratio(flow.cpu_s * 100, flow.seconds), flow.rss_kib_before,
           flow.rss_kib_peak, (unsigned long long)confirmed, (unsigned long long)frames, (unsigned long long)multiple,
           (unsigned long long)consumer.acked);
    if (settings.backlog)
        printf(", \"backlog\": {\"bytes_per_message\": %.1f, \"fill_per_s\": %.1f}",
               ratio((double)(backlog.rss_kib_after - backlog.rss_kib_before) * 1024, (double)flow.expected),
               ratio((double)flow.expected, backlog.seconds));
}

static void report_rated(void) {
    const latencies *l = &consumer.latencies;
    printf(", \"latency\": {\"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, "
           "\"max_us\": %.1f, \"samples\": %llu}",
           latency_us(l, 0.5), latency_us(l, 0.9), latency_us(l, 0.99), latency_us(l, 0.999),
           (double)l->highest_ns / 1e3, (unsigned long long)l->samples);
    /* Messages that the broker kept the producer from sending were due, too. */
    double due = settings.rate * settings.seconds * ratio((double)flow.expected, (double)flow.published);
    printf(", \"dropout\": {\"due\": %.0f, \"on_time\": %llu, \"on_time_percent\": %.4f, \"gaps\": %llu, "
           "\"missing\": %llu, \"publisher_late_ms_max\": %.2f}",
           due, (unsigned long long)consumer.on_time, ratio(100.0 * (double)consumer.on_time, due),
           (unsigned long long)consumer.gaps, (unsigned long long)flow.missing, (double)flow.late_ns_max / 1e6);
}

static void report(void) {
    printf("{\"ok\": true, \"load_cpu_s\": %.3f", own_cpu_s());
    if (settings.held) report_held();
    if (settings.producers) report_flow();
    if (settings.producers && settings.rate > 0) report_rated();
    puts("}");
}

/* ---- main ---- */

static void raise_descriptor_limit(void) {
    struct rlimit limit;
    rlim_t wanted = (rlim_t)(settings.held + settings.consumers + settings.producers + 64);
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= wanted) return;
    limit.rlim_cur = wanted;
    if (limit.rlim_max < wanted) limit.rlim_max = wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit))
        fail("%llu open files are not allowed here (ulimit -Hn)", (unsigned long long)wanted);
}

int main(int argument_count, char **arguments) {
    read_settings(argument_count, arguments);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1ul); /* sleep to the microsecond: the pace must not add to the latency */
    raise_descriptor_limit();
    fill_filler();
    fan_of_stream = fan_out(&settings.topology);
    control = dial(65536);
    open_channel(control, 1);
    if (settings.held) hold_connections();
    if (settings.producers) {
        declare_topology();
        run_flow();
        delete_topology();
    }
    if (settings.held) release_connections();
    hang_up(control);
    report();
    return 0;
}
