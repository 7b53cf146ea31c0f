/* bench_weights.c: `hearth bench --weights`: the weight cache by itself, on a model's matrices. First the cost of asking for a matrix that is not ready and for one
 * that is; then products of one token with matrices asked for in several patterns, under budgets from nothing to everything. Every product of a
 * matrix must give the same bits whatever form it came in. Nothing is kept on disk. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/bench.h"
#include "engine/engine.h"
#include "weights/weights.h"

enum { WARM_ROUNDS = 2, TIMED_ROUNDS = 5 };
static const double most_seconds = 4; /* of one pattern under one budget */

typedef struct trial {
    const hearth_engine *engine;
    weights *cache;
    kern_weight *shapes;  /* by id */
    uint64_t *sums;       /* by id: checksum of its product; 0: not known yet */
    int *order;           /* ids in an order by chance; the first fifth is what skewed patterns like */
    int n;
    int64_t widest, tallest;
    float *x, *y;
    kern_scratch scratch;
    uint64_t state;
} trial;

static uint64_t chance(trial *t) {
    uint64_t z = t->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* ---- the cache and what is in it ---- */

static bool packs(const hearth_engine *en, const gguf_tensor *x) {
    if (x->n_dims < 2) return false;
    static const char embedding[] = "token_embd.weight";
    bool embeds = x->name.len == sizeof embedding - 1 && memcmp(x->name.data, embedding, x->name.len) == 0;
    if (embeds && gguf_find_tensor(en->file, "output.weight")) return false; /* then it is only looked up in */
    const kern_matmul *m = kernels_matmul(en->model.kern, x->type);
    return m && m->pack;
}

static int stage_of(const hearth_engine *en, const char *name) {
    int layer;
    return sscanf(name, "blk.%d.", &layer) == 1 && layer >= 0 && layer < en->model.params.n_layers ? layer : en->model.params.n_layers;
}

/* Registers every matrix, or with cache NULL only counts them. */
static bool add_all(trial *t, weights *cache, err *e) {
    t->n = 0;
    for (size_t i = 0; i < gguf_n_tensors(t->engine->file); i++) {
        const gguf_tensor *x = gguf_tensor_at(t->engine->file, i);
        if (!packs(t->engine, x)) continue;
        int n = (int)(x->ne[2] * x->ne[3]);
        kern_weight first = {.type = x->type, .rows = x->ne[1], .cols = x->ne[0], .data = x->data};
        if (cache) {
            char name[128];
            snprintf(name, sizeof name, "%.*s", (int)x->name.len, x->name.data);
            if (weights_add(cache, name, n, (size_t)x->n_bytes / (size_t)n, stage_of(t->engine, name), &first, true, e) < 0) return false;
            for (int k = 0; k < n; k++) t->shapes[t->n + k] = first;
        }
        if (first.cols > t->widest) t->widest = first.cols;
        if (first.rows > t->tallest) t->tallest = first.rows;
        t->n += n;
    }
    return true;
}

static bool open_cache(trial *t, uint64_t memory, err *e) {
    weights_options o = weights_defaults();
    o.memory = memory;
    o.preload = WEIGHTS_PRELOAD_NONE;
    o.prefetch = 0;
    o.persist = false;
    t->cache = weights_open(t->engine->file, t->engine->model.kern, t->engine->pool, &o, e);
    return t->cache && add_all(t, t->cache, e) && weights_start(t->cache, e);
}

static void close_cache(trial *t) {
    weights_close(t->cache);
    t->cache = NULL;
}

static bool prepare(trial *t, err *e) {
    if (!add_all(t, NULL, e)) return false;
    if (t->n == 0)
        return err_set(e, HEARTH_UNSUPPORTED, "--weights has nothing to measure: the %s kernels use this model's weights as they lie in the file", t->engine->model.kern->name);
    t->shapes = mem_zalloc((size_t)t->n, sizeof *t->shapes, e);
    t->sums = mem_zalloc((size_t)t->n, sizeof *t->sums, e);
    t->order = mem_alloc((size_t)t->n, sizeof *t->order, e);
    t->x = mem_aligned((size_t)t->widest, sizeof *t->x, e);
    t->y = mem_aligned((size_t)t->tallest, sizeof *t->y, e);
    if (!t->shapes || !t->sums || !t->order || !t->x || !t->y) return false;
    for (int64_t i = 0; i < t->widest; i++) t->x[i] = (float)((double)(chance(t) >> 11) * 0x1p-53 - 0.5);
    for (int i = 0; i < t->n; i++) {
        int k = (int)(chance(t) % (uint64_t)(i + 1));
        t->order[i] = t->order[k];
        t->order[k] = i;
    }
    return true;
}

/* ---- access ---- */

static double ask_for_all(trial *t) {
    uint64_t start = clock_ns();
    for (int i = 0; i < t->n; i++) weights_release(t->cache, weights_acquire(t->cache, i));
    return (double)(clock_ns() - start) * 1e-9 / t->n;
}

static bool measure_access(trial *t, bench_weights *w, err *e) {
    bool ok = open_cache(t, UINT64_MAX - 1, e);
    if (ok) {
        w->cold_access = ask_for_all(t);
        w->warm_access = ask_for_all(t);
        weights_stats s = weights_get_stats(t->cache);
        w->entries = t->n;
        w->packed_bytes = s.packed_total;
        if (s.hits != (uint64_t)t->n || s.misses != (uint64_t)t->n)
            ok = err_set(e, HEARTH_UNSUPPORTED, "%d weights asked for twice made %llu hits and %llu misses: their times mean nothing", t->n, (unsigned long long)s.hits,
                         (unsigned long long)s.misses);
    }
    close_cache(t);
    return ok;
}

/* ---- patterns ---- */

static int in_circles(trial *t, int64_t i) { return (int)(i % t->n); }
static int by_chance(trial *t, int64_t i) {
    (void)i;
    return (int)(chance(t) % (uint64_t)t->n);
}
/* Four of five go to a fifth of them. */
static int skewed(trial *t, int64_t i) {
    (void)i;
    uint64_t few = (uint64_t)(t->n + 4) / 5;
    return t->order[chance(t) % 5 < 4 ? chance(t) % few : chance(t) % (uint64_t)t->n];
}
/* The same, and every third round goes through all of them. */
static int skewed_with_scans(trial *t, int64_t i) { return i / t->n % 3 == 2 ? in_circles(t, i) : skewed(t, i); }

static const struct {
    const char *name;
    int (*next)(trial *t, int64_t i);
} patterns[] = {{"circle", in_circles}, {"random", by_chance}, {"skewed", skewed}, {"skewed with scans", skewed_with_scans}};
static const double budgets[] = {0, 0.25, 0.5, 0.75, 1};

static uint64_t checksum(const float *y, int64_t n) {
    uint64_t sum = 0x9E3779B97F4A7C15u;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &y[i], 4);
        sum = (sum ^ bits) * 0xD6E8FEB86659FD93u;
        sum ^= sum >> 32;
    }
    return sum ? sum : 1;
}

/* One product of one token with matrix id. */
static bool use(trial *t, int id, err *e) {
    const kern_weight *shape = &t->shapes[id], *w = weights_acquire(t->cache, id);
    bool ok = kern_mul(t->engine->model.kern, t->engine->pool, w, t->x, shape->cols, 1, t->y, shape->rows, &t->scratch, e);
    weights_release(t->cache, w);
    if (!ok) return false;
    uint64_t sum = checksum(t->y, shape->rows);
    if (t->sums[id] && t->sums[id] != sum) return err_set(e, HEARTH_UNSUPPORTED, "a weight gave another product from another form: the cache is wrong");
    t->sums[id] = sum;
    return true;
}

static bool run_pattern(trial *t, int pattern, bench_weights_trial *out, err *e) {
    t->state = 1;
    bool ok = open_cache(t, out->memory, e);
    for (int64_t i = 0; ok && i < (int64_t)WARM_ROUNDS * t->n; i++) ok = use(t, patterns[pattern].next(t, i), e);
    if (ok) {
        weights_stats before = weights_get_stats(t->cache);
        uint64_t start = clock_ns();
        double seconds = 0;
        int64_t n = 0;
        for (; ok && n < (int64_t)TIMED_ROUNDS * t->n && (n % t->n || seconds < most_seconds); n++) {
            ok = use(t, patterns[pattern].next(t, n), e);
            seconds = (double)(clock_ns() - start) * 1e-9;
        }
        weights_stats after = weights_get_stats(t->cache);
        out->uses_per_second = (double)n / seconds;
        out->hit_rate = (double)(after.hits - before.hits) / (double)n;
        out->evictions = after.evictions - before.evictions;
        if (ok && after.used > out->memory)
            ok = err_set(e, HEARTH_UNSUPPORTED, "the weight cache holds %llu bytes under a budget of %llu", (unsigned long long)after.used, (unsigned long long)out->memory);
    }
    close_cache(t);
    return ok;
}

bool bench_weights_measure(bench *b, err *e) {
    bench_weights *w = &b->weights;
    trial t = {.engine = b->engine, .state = 1};
    bench_status("weights: access");
    bool ok = prepare(&t, e) && measure_access(&t, w, e);
    for (size_t p = 0; ok && p < sizeof patterns / sizeof *patterns; p++) {
        for (size_t k = 0; ok && k < sizeof budgets / sizeof *budgets; k++) {
            bench_weights_trial *out = &w->trials[w->n_trials++];
            *out = (bench_weights_trial){.pattern = patterns[p].name, .budget = budgets[k], .memory = (uint64_t)(budgets[k] * (double)w->packed_bytes)};
            bench_status("weights: %s, %.0f %% of the memory", out->pattern, 100 * out->budget);
            ok = run_pattern(&t, (int)p, out, e);
        }
    }
    bench_status(NULL);
    mem_free(t.shapes);
    mem_free(t.sums);
    mem_free(t.order);
    mem_free(t.x);
    mem_free(t.y);
    kern_scratch_free(&t.scratch);
    w->done = ok;
    return ok;
}
