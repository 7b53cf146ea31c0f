/* bench_report.c: the results as a table for people and as JSON for programs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"

/* "0.93 Top/s" */
static char *rate(char out[48], double per_second, const char *unit) {
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
    int i = 0;
    while (per_second >= 1000 && i < 5) per_second /= 1000, i++;
    snprintf(out, 48, "%.3g %s%s/s", per_second, prefixes[i], unit);
    return out;
}

static void print_limits(const bench *b) {
    const bench_limits *l = &b->limits;
    char text[48], bytes[32];
    printf("limits of this machine with %d thread%s", l->threads, l->threads == 1 ? "" : "s");
    if (b->engine) printf(" and %s kernels", b->info.cpu);
    printf("\n");
    printf("  %-28s %s\n", "read from memory", rate(text, l->read, "B"));
    if (l->read_shared > 0) printf("  %-28s %s (of %s)\n", "read from shared cache", rate(text, l->read_shared, "B"), cli_bytes(bytes, l->shared_bytes));
    for (int i = 0; i < l->n_units; i++) printf("  %-28s %s\n", l->units[i].probe->name, rate(text, l->units[i].per_second, l->units[i].probe->unit));
    printf("\n");
}

static void print_start(const bench_start *s) {
    printf("exec to first token\n");
    printf("  %-28s %.3f s, spread %.1f %%\n", "warm", bench_median(&s->warm), 100 * bench_spread(&s->warm));
    printf("  %-28s %.3f s, spread %.1f %%\n", "cold", bench_median(&s->cold), 100 * bench_spread(&s->cold));
    if (s->resident > 0.01) printf("  up to %.0f %% of the file stayed in memory before a cold start: another program uses it\n", 100 * s->resident);
    printf("\n");
}

static void print_weights(const bench_weights *w) {
    char bytes[32];
    printf("\nweight cache: %d matrices, %s when packed\n", w->entries, cli_bytes(bytes, w->packed_bytes));
    printf("  %-28s %.1f us\n  %-28s %.3f us\n", "cold access, packs it", w->cold_access * 1e6, "warm access", w->warm_access * 1e6);
    printf("  %-20s %8s %12s %10s %16s %12s\n", "products of a token", "budget", "", "hit rate", "products/s", "evictions");
    for (int i = 0; i < w->n_trials; i++) {
        const bench_weights_trial *t = &w->trials[i];
        printf("  %-20s %6.0f %% %12s %8.1f %% %16.1f %12llu\n", t->pattern, 100 * t->budget, cli_bytes(bytes, t->memory), 100 * t->hit_rate, t->uses_per_second,
               (unsigned long long)t->evictions);
    }
}

static void print_case(const bench *b, const bench_case *c) {
    double ours = bench_median(&c->ours);
    char what[32], of[48] = "";
    snprintf(what, sizeof what, "%s %d", c->n_gen ? "decode" : "prefill", c->n_prompt + c->n_gen);
    if (c->limit > 0) snprintf(of, sizeof of, "%.1f %% of %s", 100 * ours / c->limit, c->limit_name);
    printf("%-14s %7d %6d %11.2f %7.1f %%  %-24s", what, c->depth, c->batch, ours, 100 * bench_spread(&c->ours), of);
    if (b->peer && c->theirs.n > 0) printf(" %11.2f %7.1f %% %6.2f x", bench_median(&c->theirs), 100 * bench_spread(&c->theirs), ours / bench_median(&c->theirs));
    printf("\n");
}

static void print_results(const bench *b) {
    char bytes[32];
    printf("%s: %s, %.3g billion parameters in %s; %s kernels, %d thread%s, median of %d\n", b->model, b->info.architecture,
           (double)b->info.n_parameters * 1e-9, cli_bytes(bytes, b->info.n_weight_bytes), b->info.cpu, b->info.threads, b->info.threads == 1 ? "" : "s",
           b->repetitions);
    printf("%-14s %7s %6s %11s %9s  %-24s", "", "depth", "batch", "tokens/s", "spread", "limit");
    if (b->peer) printf(" %11s %9s %8s", "peer", "spread", "ratio");
    printf("\n");
    for (int i = 0; i < b->n_cases; i++) print_case(b, &b->cases[i]);
}

void bench_report_table(const bench *b) {
    if (b->limits.threads) print_limits(b);
    if (b->start.done) print_start(&b->start);
    if (b->n_cases > 0) print_results(b);
    if (b->weights.done) print_weights(&b->weights);
    if (b->memory.asked) bench_memory_table(b);
}

/* ---- JSON ---- */

json_t *bench_samples_json(const bench_samples *s) {
    json_t *list = json_array();
    for (int i = 0; i < s->n; i++) json_array_append_new(list, json_real(s->items[i]));
    return list;
}

static json_t *limits_json(const bench_limits *l) {
    json_t *o = json_pack("{s:i, s:f}", "threads", l->threads, "read_bytes_per_second", l->read);
    if (l->read_shared > 0) {
        json_object_set_new(o, "shared_cache_bytes", json_integer((json_int_t)l->shared_bytes));
        json_object_set_new(o, "shared_cache_read_bytes_per_second", json_real(l->read_shared));
    }
    json_t *units = json_array();
    for (int i = 0; i < l->n_units; i++) {
        const bench_unit *u = &l->units[i];
        json_array_append_new(units, json_pack("{s:s, s:s, s:s, s:f}", "name", u->probe->name, "kernels", u->probe->set, "kind", u->probe->tile ? "tile" : "vector",
                                               "operations_per_second", u->per_second));
    }
    json_object_set_new(o, "units", units);
    return o;
}

static json_t *weights_json(const bench_weights *w) {
    json_t *o = json_pack("{s:i, s:I, s:f, s:f}", "matrices", w->entries, "packed_bytes", (json_int_t)w->packed_bytes, "cold_access_seconds", w->cold_access,
                          "warm_access_seconds", w->warm_access), *list = json_array();
    for (int i = 0; i < w->n_trials; i++) {
        const bench_weights_trial *t = &w->trials[i];
        json_array_append_new(list, json_pack("{s:s, s:f, s:I, s:f, s:f, s:I}", "pattern", t->pattern, "budget", t->budget, "memory", (json_int_t)t->memory, "hit_rate",
                                              t->hit_rate, "products_per_second", t->uses_per_second, "evictions", (json_int_t)t->evictions));
    }
    json_object_set_new(o, "trials", list);
    return o;
}

static json_t *case_json(const bench *b, const bench_case *c) {
    double ours = bench_median(&c->ours);
    int n = c->n_prompt + c->n_gen;
    json_t *o = json_pack("{s:i, s:i, s:i, s:i, s:f, s:f}", "n_prompt", c->n_prompt, "n_gen", c->n_gen, "depth", c->depth, "batch", c->batch, "tokens_per_second",
                          ours, "spread", bench_spread(&c->ours));
    json_object_set_new(o, "samples", bench_samples_json(&c->ours));
    json_object_set_new(o, "bytes_per_token", json_real(c->bytes / n / c->batch));
    json_object_set_new(o, "operations_per_token", json_real(c->operations / n / c->batch));
    if (c->limit > 0) {
        json_object_set_new(o, "limit", json_string(c->limit_name));
        json_object_set_new(o, "limit_tokens_per_second", json_real(c->limit));
        json_object_set_new(o, "fraction_of_limit", json_real(ours / c->limit));
    }
    if (b->peer && c->theirs.n > 0) {
        double theirs = bench_median(&c->theirs);
        json_object_set_new(o, "peer", json_pack("{s:f, s:f, s:o}", "tokens_per_second", theirs, "spread", bench_spread(&c->theirs), "samples", bench_samples_json(&c->theirs)));
        json_object_set_new(o, "ratio", json_real(ours / theirs));
    }
    return o;
}

static void add_model(json_t *o, const bench *b) {
    const hearth_model_info *i = &b->info;
    char name[256], path[1024]; /* bytes that are no UTF-8 would spoil the JSON */
    err_quote(name, sizeof name, i->name, strlen(i->name));
    err_quote(path, sizeof path, b->model, strlen(b->model));
    json_object_set_new(o, "model", json_pack("{s:s, s:s, s:s, s:I, s:I, s:I}", "path", path, "architecture", i->architecture, "name", name, "parameters",
                                              (json_int_t)i->n_parameters, "weight_bytes", (json_int_t)i->n_weight_bytes, "kv_bytes_per_token",
                                              (json_int_t)i->kv_bytes_per_token));
    json_object_set_new(o, "cpu", json_string(i->cpu));
    json_object_set_new(o, "threads", json_integer(i->threads));
    json_object_set_new(o, "repetitions", json_integer(b->repetitions));
    json_object_set_new(o, "warmup", json_integer(b->warmup));
}

char *bench_report_json(const bench *b, err *e) {
    json_t *o = json_object(), *results = json_array();
    for (int i = 0; i < b->n_cases; i++) json_array_append_new(results, case_json(b, &b->cases[i]));
    json_object_set_new(o, "results", results);
    json_object_set_new(o, "hearth", json_string(hearth_version()));
    if (b->engine) add_model(o, b);
    if (b->limits.threads) json_object_set_new(o, "limits", limits_json(&b->limits));
    if (b->start.done) {
        const bench_start *s = &b->start;
        json_object_set_new(o, "start", json_pack("{s:f, s:f, s:f, s:f, s:f}", "warm_seconds", bench_median(&s->warm), "warm_spread", bench_spread(&s->warm),
                                                  "cold_seconds", bench_median(&s->cold), "cold_spread", bench_spread(&s->cold), "cold_resident", s->resident));
    }
    if (b->weights.done) json_object_set_new(o, "weights", weights_json(&b->weights));
    if (b->memory.asked) json_object_set_new(o, "memory", bench_memory_json(b));
    if (b->peer) {
        char path[1024], error[1024];
        json_t *peer = json_pack("{s:s}", "path", err_quote(path, sizeof path, b->peer, strlen(b->peer)));
        if (b->peer_error.code != HEARTH_OK)
            json_object_set_new(peer, "error", json_string(err_quote(error, sizeof error, b->peer_error.text, strlen(b->peer_error.text))));
        json_object_set_new(o, "peer", peer);
    }
    char *text = json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    json_decref(o);
    if (!text) err_nomem(e, 0);
    return text;
}
