/* The exact account of publisher confirms: each publication is confirmed once, alone or by `multiple`.
 *
 *     1 ........ lowest ................. published
 *     confirmed | some confirmed, by bits | next to publish
 */
#ifndef FLINTMQ_BENCH_CONFIRMS_H
#define FLINTMQ_BENCH_CONFIRMS_H

#include "amqp.h"

enum { LEDGER_TAGS = 1 << 20 }; /* how far the newest publication may run ahead of the oldest unconfirmed one */

typedef struct {
    uint64_t published, lowest; /* highest tag published; lowest tag not yet confirmed */
    uint64_t confirmed, frames, frames_multiple;
    uint8_t *done; /* one octet for each tag of the window, at tag % LEDGER_TAGS */
} ledger;

static void ledger_open(ledger *l) {
    *l = (ledger){.lowest = 1, .done = calloc(LEDGER_TAGS, 1)};
    if (!l->done) fail("out of memory");
}

static uint64_t ledger_waiting(const ledger *l) {
    return l->published - l->confirmed;
}

/* Whether `count` more may be published with at most `window` unconfirmed. */
static bool ledger_has_room(const ledger *l, uint64_t count, uint64_t window) {
    return ledger_waiting(l) + count <= window && l->published + count - l->lowest < LEDGER_TAGS;
}

static void ledger_advance(ledger *l) {
    while (l->lowest <= l->published && l->done[l->lowest % LEDGER_TAGS]) l->done[l->lowest++ % LEDGER_TAGS] = 0;
}

static void ledger_confirm(ledger *l, uint64_t tag, bool multiple) {
    l->frames++;
    l->frames_multiple += multiple;
    if (multiple && tag == 0) tag = l->published; /* zero stands for all so far */
    if (tag == 0 || tag > l->published)
        fail("publication %llu was confirmed, but the last one is %llu", (unsigned long long)tag,
             (unsigned long long)l->published);
    if (tag < l->lowest || (!multiple && l->done[tag % LEDGER_TAGS]))
        fail("publication %llu was confirmed twice", (unsigned long long)tag);
    for (uint64_t t = multiple ? l->lowest : tag; t <= tag; t++) {
        l->confirmed += !l->done[t % LEDGER_TAGS];
        l->done[t % LEDGER_TAGS] = 1;
    }
    ledger_advance(l);
}

#endif
