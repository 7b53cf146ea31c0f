/* inner.h: inside the weights room. The cache's tables and what its files call of each other. */
#ifndef WEIGHTS_INNER_H
#define WEIGHTS_INNER_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/file.h"
#include "weights/folder.h"
#include "weights/packfile.h"
#include "weights/weights.h"

/* One word holds all that a hit touches: how many hold the packed form, whether it is ready, and how often it was asked for (the upper half, which wraps
 * and is folded into 64 bits now and then). A request adds itself before it looks, so that nothing can be evicted between the look and the use. */
#define STATE_REFS 0xFFFFFFull
#define STATE_READY (1ull << 24)
#define STATE_USE (1ull << 32)

/* Requests per twelfth of a span of time. */
#define RING 12
typedef struct ring {
    uint32_t slots[RING];
} ring;
typedef struct ring_clock {
    uint64_t slot_ns, turn; /* length of a slot; the number of the current one */
} ring_clock;

struct entry;
typedef struct view {
    kern_weight mat; /* first: what requests get */
    struct entry *owner; /* of the packed view; NULL for raw, which is not counted */
} view;

typedef enum making { MAKING_NOT, MAKING_FRONT, MAKING_BACK } making;

typedef struct entry {
    _Alignas(64) atomic_uint_fast64_t state;
    atomic_uint_fast64_t stamp; /* order of the last use, where that decides */
    view packed, raw;
    const kern_matmul *product; /* NULL: there is no packed form */
    size_t bytes;               /* packed, whole pages */
    size_t exact;               /* packed, as the kernels say */
    size_t offset;              /* in the arena */
    const char *name;
    int slice, stage;
    bool from_file;

    /* below: under the lock */
    making making;
    bool keep;          /* the plan wants it to stay */
    bool in_map;        /* the ready form lies in the mapped file */
    bool preloaded;
    bool linked;        /* in the list of those that may go */
    struct entry *before, *after;
    uint32_t uses_seen; /* folded so far */
    uint32_t uses_made; /* when it was last made */
    int pins;
    uint64_t requests, misses, evictions, makes, make_ns;
    ring minute, window;
    /* in the packed file */
    const uint8_t *file; /* NULL: not there */
    uint64_t sum, file_make_ns;
    bool checked;        /* its bytes were compared with its checksum, now or earlier in this boot */
} entry;

typedef struct stage {
    int *ids;
    int n;
    int next; /* the stage that was seen to follow */
} stage;

/* An entry's place in the plan. */
typedef struct rank {
    double value;
    int id;
} rank;

struct weights {
    const gguf *file;
    const kernels *kern;
    pool *pool;
    weights_options o;
    int serial;          /* which instance in this process, for messages */

    entry *entries;
    int n, cap;
    char **names;
    int n_names;
    stage *stages;
    int n_stages;
    void *arena;
    size_t arena_bytes;
    uint64_t budget, total;
    bool budget_auto, limited; /* limited: not everything fits */
    int ahead;           /* stages to prefetch */
    rank *ranks;         /* room for sorting */

    atomic_int unready;  /* entries with a packed form that is not ready */
    atomic_bool first_seen;
    atomic_uint_fast64_t tick, next_roll;

    pthread_mutex_t lock;
    pthread_cond_t made; /* something was made */
    uint64_t used;
    entry *loose_first, *loose_last; /* ready, not wanted by the plan; oldest first */
    ring_clock minute, window;
    uint64_t waits, prefetches;
    double preload_seconds;
    int preloaded, lost;
    char self_check[512];

    /* threads */
    pthread_cond_t work;
    pthread_t prefetcher, keeper;
    bool prefetcher_runs, keeper_runs;
    bool stop;
    int prefetch_from;   /* the stage a pass is in; -1: nothing to do */
    bool prefetch_busy, keeper_busy;
    bool persist_wanted, persist_tried, records_wanted;

    /* persistence; the keeper's once it runs */
    char *folder;        /* NULL: none */
    hash128 table, fingerprint, layout;
    bool fingerprint_known, source_known;
    int64_t hashed_from_ns;
    packfile pack;
    char *pack_path;
    bool pack_trusted;   /* it was checked in full earlier in this boot */
    bool pack_bad, writing, written;
    char state[400];     /* one sentence on where it stands; under the lock */
};

/* cache.c */
enum admit_why { ADMIT_REQUEST, ADMIT_PREFETCH, ADMIT_PIN };
bool cache_admit(weights *w, entry *e, enum admit_why why);
bool cache_evict(weights *w, entry *e);
void cache_publish(weights *w, entry *e, bool in_map, uint64_t ns);
/* Evicts whatever is not held until so many bytes fit. */
bool cache_make_room(weights *w, size_t bytes);
bool cache_ready(const entry *e);
void loose_link(weights *w, entry *e);
void loose_unlink(weights *w, entry *e);
void cache_warn(weights *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* plan.c: all under the lock but prefetch_run */
void plan_roll(weights *w);
void plan_make(weights *w);
uint32_t ring_sum(const ring *r);
void prefetch_run(weights *w, int from, pool *p);
void *prefetch_main(void *arg);

/* make.c: without the lock */
void make_entry(weights *w, entry *e, pool *p); /* admitted and marked as being made; publishes it. p may be NULL */
void make_preload(weights *w);
void make_packed(entry *e, void *to, pool *p);

/* fingerprint.c */
hash128 fingerprint_table(const gguf *g);
bool fingerprint_weights(const gguf *g, pool *p, hash128 *out, err *e); /* p may be NULL */
bool fingerprint_layout(weights *w, hash128 *out, err *e);

/* persist.c */
void persist_find(weights *w);
void persist_bad(weights *w, const char *why);
void *keeper_main(void *arg);

/* move.c: without the lock */
void move_to_memory(weights *w);

static inline uint64_t cache_now(const weights *w) { return w->o.now(); }

#endif
