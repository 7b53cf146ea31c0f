/* bench_memory.c: how much sooner a conversation that is remembered goes on: the time until the first token after a new turn when everything must be computed
 * (cold), when it is on disk and the process is fresh (warm; with the page cache as it is, and dropped), and when it is in memory (hot). Every step is a process of
 * its own, and every first token must be the one that the cold run came to. */
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "cli/bench.h"
#include "cli/interrupt.h"
#include "engine/recall.h"

/* ---- the folder ---- */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st, (void)type, (void)at;
    return remove(path);
}

static void remove_all(const char *folder) { nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

/* Of the tree that is being dropped; nftw passes nothing on. */
static double stayed;
static err drop_error;

static int drop_one(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st, (void)at;
    return type == FTW_F && !bench_drop_file(path, &stayed, &drop_error);
}

static bool drop_all(const char *folder, double *resident, err *e) {
    stayed = 0;
    err_clear(&drop_error);
    int failed = nftw(folder, drop_one, 16, FTW_PHYS);
    *resident = fmax(*resident, stayed);
    return !failed || err_set(e, HEARTH_IO, "%s cannot be dropped from memory: %s", folder, drop_error.text);
}

static bool make_folder(const bench *b, char out[3000], err *e) {
    char *base = recall_folder(b->memory.store_dir, e);
    bool ok = base && file_make_folder(base, e);
    if (ok && (snprintf(out, 3000, "%s/bench-XXXXXX", base) >= 3000 || !mkdtemp(out))) ok = err_set(e, HEARTH_IO, "%s: no folder can be made there", base);
    mem_free(base);
    return ok;
}

/* ---- starting a step ---- */

static char doing[160];

static void hear(const char *line) { bench_status("%s: %s", doing, line); }

/* The result of a step, freed with json_decref. */
static json_t *run_step(const bench *b, const bench_memory_case *c, const char *kind, int variant, const char *folder, err *e) {
    char text[3200];
    const char *argv[BENCH_ARGUMENTS + 5] = {"/proc/self/exe", "bench", "--memory-step", text};
    snprintf(text, sizeof text, "%s,%d,%d,%d,%s", kind, c->context, c->batch, variant, folder);
    /* The same options, so that it opens the model as we would. */
    for (int i = 1; i < b->argc; i++) argv[i + 3] = b->argv[i];
    bench_child child = {.hear = hear};
    bench_status("%s", doing);
    bool ok = bench_child_run(argv, &child, e);
    if (ok && interrupt_pending()) ok = err_set(e, HEARTH_CANCELLED, "interrupted");
    if (ok && child.status != 0) ok = err_set(e, HEARTH_IO, "%s: hearth started anew failed with status %d: %s", doing, child.status, child.complaint);
    json_t *out = ok ? json_loadb(child.out.data ? child.out.data : "", child.out.len, 0, NULL) : NULL;
    if (ok && !out) err_set(e, HEARTH_FORMAT, "%s: hearth started anew printed no result", doing);
    bench_child_free(&child);
    return out;
}

static bool add_sample(bench_samples *to, const json_t *result, const char *key, err *e) {
    const json_t *value = json_object_get(result, key);
    if (!json_is_number(value) || !(json_number_value(value) >= 0)) return err_set(e, HEARTH_FORMAT, "%s: hearth started anew printed no '%s'", doing, key);
    to->items[to->n++] = json_number_value(value);
    return true;
}

static bool add_samples(bench_samples *to, const json_t *result, const char *key, err *e) {
    const json_t *list = json_object_get(result, key);
    for (size_t i = 0; i < json_array_size(list) && to->n < BENCH_SAMPLES; i++) to->items[to->n++] = json_number_value(json_array_get(list, i));
    return json_array_size(list) > 0 || err_set(e, HEARTH_FORMAT, "%s: hearth started anew printed no '%s'", doing, key);
}

/* The first tokens of turns [at, ...) must be those that the cold run came to. */
static bool check_first(const json_t *result, const json_t *cold, size_t at, size_t n, err *e) {
    const json_t *have = json_object_get(result, "first"), *want = json_object_get(cold, "first");
    bool same = json_array_size(have) == n && json_array_size(want) >= at + n;
    for (size_t i = 0; same && i < n; i++) same = json_equal(json_array_get(have, i), json_array_get(want, at + i));
    return same || err_set(e, HEARTH_UNSUPPORTED, "%s: the first token is another one than when all is computed: its time means nothing", doing);
}

/* ---- a case ---- */

static bool measure_cold(const bench *b, bench_memory_case *c, const char *folder, json_t **cold, err *e) {
    int n = b->repetitions;
    for (int r = 0; r < n; r++) {
        snprintf(doing, sizeof doing, "context %d, batch %d: cold, run %d of %d", c->context, c->batch, r + 1, n);
        json_t *x = run_step(b, c, "cold", r == 0 ? 3 * n : 1, folder, e);
        bool ok = x && add_sample(&c->cold, x, "seconds", e) && add_sample(&c->alone, x, "prefill", e);
        if (ok && r > 0) ok = check_first(x, *cold, 0, 1, e);
        if (r == 0) *cold = x;
        else json_decref(x);
        if (!ok) return false;
    }
    return true;
}

static bool measure_fill(const bench *b, bench_memory_case *c, const char *folder, const json_t *cold, err *e) {
    snprintf(doing, sizeof doing, "context %d, batch %d: saving, then hot", c->context, c->batch);
    json_t *x = run_step(b, c, "fill", b->repetitions, folder, e);
    bool ok = x && add_sample(&c->saving, x, "prefill", e) && add_sample(&c->stall, x, "stall", e) && add_sample(&c->durable, x, "durable", e) &&
              add_samples(&c->hot, x, "hot", e) && add_samples(&c->turn_durable, x, "turn_durable", e) && check_first(x, cold, 0, (size_t)b->repetitions, e);
    c->disk_bytes = x ? (uint64_t)json_integer_value(json_object_get(x, "disk_bytes")) : 0;
    json_decref(x);
    return ok;
}

static bool measure_warm(const bench *b, bench_memory_case *c, const char *folder, bool drop, const json_t *cold, err *e) {
    for (int r = 0; r < b->repetitions; r++) {
        int variant = (drop ? 2 : 1) * b->repetitions + r;
        snprintf(doing, sizeof doing, "context %d, batch %d: warm%s, run %d of %d", c->context, c->batch, drop ? ", page cache dropped" : "", r + 1, b->repetitions);
        if (drop && !drop_all(folder, &c->resident, e)) return false;
        json_t *x = run_step(b, c, "warm", variant, folder, e);
        bool ok = x && add_sample(drop ? &c->dropped : &c->warm, x, "seconds", e) && check_first(x, cold, (size_t)variant, 1, e);
        json_decref(x);
        if (!ok) return false;
    }
    return true;
}

static bool measure_case(const bench *b, bench_memory_case *c, err *e) {
    char folder[3000];
    json_t *cold = NULL;
    if (!make_folder(b, folder, e)) return false;
    bool ok = measure_cold(b, c, folder, &cold, e) && measure_fill(b, c, folder, cold, e) && measure_warm(b, c, folder, false, cold, e) &&
              measure_warm(b, c, folder, true, cold, e);
    json_decref(cold);
    remove_all(folder);
    return ok;
}

bool bench_memory_measure(bench *b, err *e) {
    bench_memory *m = &b->memory;
    if (b->argc > BENCH_ARGUMENTS) return err_set(e, HEARTH_ARGUMENT, "too many arguments for --memory");
    /* The facts of the model; the steps open it themselves. */
    hearth_engine_options o = b->engine_options;
    o.store = false, o.kv_memory = 0;
    b->engine = hearth_engine_open(b->model, &o, e);
    if (!b->engine) return false;
    hearth_engine_settle(b->engine);
    b->info = hearth_engine_info(b->engine);
    for (int i = 0; i < m->contexts.n; i++)
        if (m->contexts.items[i] + m->turn > b->info.n_context)
            return err_set(e, HEARTH_LIMIT, "a context of %d and a turn of %d tokens do not fit into the model's context of %d: see --contexts", m->contexts.items[i],
                           m->turn, b->info.n_context);
    interrupt_catch(true);
    for (int i = 0; i < m->contexts.n; i++)
        for (int k = 0; k < m->batches.n; k++) {
            if (m->n_cases == BENCH_MEMORY_CASES) return err_set(e, HEARTH_ARGUMENT, "more than %d pairs of context and batch", BENCH_MEMORY_CASES);
            bench_memory_case *c = &m->cases[m->n_cases++];
            *c = (bench_memory_case){.context = m->contexts.items[i], .batch = m->batches.items[k]};
            if (!measure_case(b, c, e)) return false;
        }
    return true;
}

bool bench_memory_validate(const bench *b, err *e) {
    const bench_memory *m = &b->memory;
    for (int i = 0; m->factor > 0 && i < m->n_cases; i++) {
        const bench_memory_case *c = &m->cases[i];
        double factor = bench_median(&c->cold) / bench_median(&c->warm);
        if (!(factor >= (double)m->factor))
            return err_set(e, HEARTH_LIMIT, "at a context of %d, batch %d, warm is %.1f times as fast as cold, not %g times", c->context, c->batch, factor, (double)m->factor);
    }
    return true;
}
