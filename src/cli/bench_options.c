/* bench_options.c: lists of sizes, and the cases that they make. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"

bool bench_list_parse(bench_list *l, const char *option, const char *text, int min, int max, err *e) {
    l->n = 0;
    for (const char *p = text;; p++) {
        char *end;
        errno = 0;
        long value = strtol(p, &end, 10);
        if (end == p || errno || (*end && *end != ','))
            return err_set(e, HEARTH_ARGUMENT, "%s needs whole numbers separated by commas, not '%s'", option, text);
        if (value < min || value > max)
            return err_set(e, HEARTH_ARGUMENT, "%s %ld is out of range: give numbers from %d to %d", option, value, min, max);
        if (l->n >= BENCH_VALUES) return err_set(e, HEARTH_ARGUMENT, "%s has more than %d values", option, BENCH_VALUES);
        l->items[l->n++] = (int)value;
        p = end;
        if (!*p) return true;
    }
}

static bool add_case(bench *b, int n_prompt, int n_gen, int depth, int batch, err *e) {
    if (n_prompt + n_gen == 0) return true; /* 0 leaves one out */
    if (b->n_cases >= BENCH_CASES) return err_set(e, HEARTH_ARGUMENT, "these lists make more than %d measurements: give fewer values", BENCH_CASES);
    b->cases[b->n_cases++] = (bench_case){.n_prompt = n_prompt, .n_gen = n_gen, .depth = depth, .batch = batch};
    return true;
}

bool bench_make_cases(bench *b, err *e) {
    bool ok = true;
    for (int d = 0; ok && d < b->depths.n; d++) {
        for (int s = 0; ok && s < b->batches.n; s++) {
            int depth = b->depths.items[d], batch = b->batches.items[s];
            for (int i = 0; ok && i < b->prompts.n; i++) ok = add_case(b, b->prompts.items[i], 0, depth, batch, e);
            for (int i = 0; ok && i < b->gens.n; i++) ok = add_case(b, 0, b->gens.items[i], depth, batch, e);
        }
    }
    return ok;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(const bench_samples *s) {
    if (s->n == 0) return NAN;
    bench_samples sorted = *s;
    qsort(sorted.items, (size_t)sorted.n, sizeof *sorted.items, compare);
    int middle = sorted.n / 2;
    return sorted.n % 2 ? sorted.items[middle] : (sorted.items[middle - 1] + sorted.items[middle]) / 2;
}

double bench_spread(const bench_samples *s) {
    double low = INFINITY, high = -INFINITY;
    for (int i = 0; i < s->n; i++) low = fmin(low, s->items[i]), high = fmax(high, s->items[i]);
    return (high - low) / bench_median(s);
}
