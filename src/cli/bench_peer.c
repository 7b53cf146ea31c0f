/* bench_peer.c: the figures of llama-bench, and for several sequences at once of llama-batched-bench beside it, taken in turns with ours. Nothing
 * they print is believed unless the sizes are those asked for and the speed agrees with the time. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench.h"

enum { MOST_TRIES = 3, LEAST_CONTEXT = 512 };

/* Text of arguments, kept while the program runs. */
typedef struct arguments {
    const char *argv[32];
    int n;
    char text[1024];
    size_t used;
} arguments;

static void add(arguments *a, const char *argument) { a->argv[a->n++] = argument; }

static void add_number(arguments *a, const char *option, long value) {
    add(a, option);
    add(a, a->text + a->used);
    a->used += (size_t)snprintf(a->text + a->used, sizeof a->text - a->used, "%ld", value) + 1;
}

static void add_list(arguments *a, const char *option, const bench_list *l) {
    add(a, option);
    add(a, a->text + a->used);
    for (int i = 0; i < l->n; i++)
        a->used += (size_t)snprintf(a->text + a->used, sizeof a->text - a->used, "%s%d", i ? "," : "", l->items[i]);
    if (l->n == 0) a->used += (size_t)snprintf(a->text + a->used, sizeof a->text - a->used, "0");
    a->used++;
}

/* Shows an output that is not believed. */
static bool disbelieve(const char *program, const bench_child *c, const bench_case *k, err *e) {
    char output[160];
    err_quote(output, sizeof output, c->out.data ? c->out.data : "", c->out.len);
    return err_set(e, HEARTH_FORMAT, "%s did not print a believable result for %s %d at depth %d with %d sequence%s: %s", program, k->n_gen ? "decode" : "prefill",
                   k->n_prompt + k->n_gen, k->depth, k->batch, k->batch == 1 ? "" : "s", c->out.len ? output : "it printed nothing");
}

/* Runs the program and judges how it ended. One that ends well but says nothing is asked again: llama-batched-bench prints from a thread
 * that it does not always wait for. */
static bool run(const arguments *a, bench_child *c, err *e) {
    bool ok = bench_child_run(a->argv, c, e);
    for (int tries = 1; ok && c->status == 0 && c->out.len == 0 && tries < MOST_TRIES; tries++) {
        bench_child_free(c);
        ok = bench_child_run(a->argv, c, e);
    }
    if (!ok) return false;
    const char *why = c->complaint[0] ? c->complaint : "it said nothing";
    if (c->status > 128) return err_set(e, HEARTH_IO, "%s was ended by signal %d: %s", a->argv[0], c->status - 128, why);
    if (c->status != 0) return err_set(e, HEARTH_IO, "%s failed with status %d: %s", a->argv[0], c->status, why);
    return true;
}

static bool number(const json_t *o, const char *key, double *out) {
    const json_t *v = json_object_get(o, key);
    *out = json_number_value(v);
    return json_is_number(v) && isfinite(*out);
}

/* A speed is believed when it is positive and gives the number of tokens back when multiplied with the time. */
static bool plausible(double speed, double seconds, double tokens) {
    return speed > 0 && seconds > 0 && fabs(speed * seconds / tokens - 1) < 0.02;
}

static bool add_sample(bench_case *c, double speed) {
    if (c->theirs.n >= BENCH_SAMPLES) return false;
    c->theirs.items[c->theirs.n++] = speed;
    return true;
}

/* ---- one sequence ---- */

static bool take_single(const json_t *results, bench_case *c, int threads) {
    size_t i;
    json_t *r;
    json_array_foreach(results, i, r) {
        double p, n, d, t, speed, ns;
        if (!number(r, "n_prompt", &p) || !number(r, "n_gen", &n) || !number(r, "n_depth", &d) || !number(r, "n_threads", &t)) continue;
        if (p != c->n_prompt || n != c->n_gen || d != c->depth || t != threads) continue;
        return number(r, "avg_ts", &speed) && number(r, "avg_ns", &ns) && plausible(speed, ns * 1e-9, p + n) && add_sample(c, speed);
    }
    return false;
}

static bool single(const bench *b, bench_case *first, const bench_case *last, err *e) {
    bench_list prompts = {0}, gens = {0};
    for (const bench_case *c = first; c <= last; c++) {
        if (c->batch != 1) continue;
        if (c->n_gen) gens.items[gens.n++] = c->n_gen;
        else prompts.items[prompts.n++] = c->n_prompt;
    }
    if (prompts.n + gens.n == 0) return true;
    arguments a = {0};
    add(&a, b->peer);
    add(&a, "-m");
    add(&a, b->model);
    add_list(&a, "-p", &prompts);
    add_list(&a, "-n", &gens);
    add_number(&a, "-d", first->depth);
    add_number(&a, "-t", b->info.threads);
    add_number(&a, "-r", 1);
    add(&a, "-o");
    add(&a, "json");
    bench_child child = {0};
    bool ok = run(&a, &child, e);
    json_error_t why;
    json_t *results = ok ? json_loadb(child.out.data ? child.out.data : "", child.out.len, 0, &why) : NULL;
    if (ok && !json_is_array(results)) ok = err_set(e, HEARTH_FORMAT, "%s did not print a list of results: %s", b->peer, results ? "other JSON" : why.text);
    for (bench_case *c = first; ok && c <= last; c++) {
        if (c->batch == 1 && !take_single(results, c, b->info.threads)) ok = disbelieve(b->peer, &child, c, e);
    }
    json_decref(results);
    bench_child_free(&child);
    return ok;
}

/* ---- several sequences ---- */

/* The program beside the peer. */
static bool batched_path(const char *peer, char *out, size_t cap, err *e) {
    const char *slash = strrchr(peer, '/');
    int folder = slash ? (int)(slash - peer) + 1 : 0;
    if (snprintf(out, cap, "%.*sllama-batched-bench", folder, peer) < (int)cap) return true;
    return err_set(e, HEARTH_ARGUMENT, "the path of the peer is too long");
}

/* One JSON object per line; other lines are passed over. */
static bool take_batched(const buf *out, int pp, int tg, bench_case *c) {
    const char *key_speed = c->n_gen ? "speed_tg" : "speed_pp", *key_time = c->n_gen ? "t_tg" : "t_pp";
    for (const char *line = out->data ? out->data : ""; *line;) {
        size_t len = strcspn(line, "\n");
        json_t *r = json_loadb(line, len, 0, NULL);
        double p, t, l, speed, seconds;
        bool same = number(r, "pp", &p) && number(r, "tg", &t) && number(r, "pl", &l) && p == pp && t == tg && l == c->batch;
        bool good = same && number(r, key_speed, &speed) && number(r, key_time, &seconds) &&
                    plausible(speed, seconds, (double)(c->n_gen ? tg : pp) * c->batch) && add_sample(c, speed);
        json_decref(r);
        if (same) return good;
        line += len;
        line += *line == '\n';
    }
    return false;
}

static bool batched(const bench *b, bench_case *c, err *e) {
    char path[4096];
    if (!batched_path(b->peer, path, sizeof path, e)) return false;
    /* It needs a prompt; one token is the nearest to none. */
    int pp = c->n_gen ? (c->depth > 0 ? c->depth : 1) : c->n_prompt, tg = c->n_gen ? c->n_gen : 1;
    arguments a = {0};
    add(&a, path);
    add(&a, "-m");
    add(&a, b->model);
    long context = ((long)pp + tg) * c->batch;
    add_number(&a, "-c", context > LEAST_CONTEXT ? context : LEAST_CONTEXT); /* its warm-up needs some room too */
    add_number(&a, "-npp", pp);
    add_number(&a, "-ntg", tg);
    add_number(&a, "-npl", c->batch);
    add_number(&a, "-t", b->info.threads);
    add_number(&a, "-tb", b->info.threads);
    add(&a, "--output-format");
    add(&a, "jsonl");
    bench_child child = {0};
    bool ok = run(&a, &child, e);
    if (ok && !take_batched(&child.out, pp, tg, c)) ok = disbelieve(path, &child, c, e);
    bench_child_free(&child);
    return ok;
}

bool bench_peer_run(const bench *b, bench_case *first, const bench_case *last, err *e) {
    if (!single(b, first, last, e)) return false;
    for (bench_case *c = first; c <= last; c++) {
        bool comparable = c->batch > 1 && (c->n_gen || c->depth == 0); /* it takes in no prompt after a depth */
        if (comparable && !batched(b, c, e)) return false;
    }
    return true;
}
