/* bench_runs.c: the timed runs. All cases of one depth share their sessions: the depth is filled in once, and after every run the sessions are
 * rewound to it. A run counts only when every session has exactly the tokens it should have and finite logits. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/bench.h"
#include "engine/engine.h"

void bench_status(const char *format, ...) {
    if (isatty(STDERR_FILENO) != 1) return;
    fputs("\r\033[K", stderr);
    if (format) {
        va_list args;
        va_start(args, format);
        vfprintf(stderr, format, args);
        va_end(args);
    }
    fflush(stderr);
}

typedef struct group {
    bench *b;
    int depth;
    hearth_session **sessions; /* as many as the largest batch */
    int n_sessions, filled;    /* the first `filled` hold depth tokens */
    int32_t *tokens;           /* random ones, as many as the longest run of a session needs */
    float *logits;             /* of a step of all sessions */
} group;

/* Speed must not depend on which they are, but caches of text or experts could make it so. */
void bench_random_tokens(int32_t *out, size_t n, uint64_t seed, int n_vocab) {
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        out[i] = (int32_t)((state >> 33) % (uint64_t)n_vocab);
    }
}

static bool check_session(const group *g, int i, size_t length, const float *logits, err *e) {
    hearth_session *s = g->sessions[i];
    if (hearth_session_length(s) != length || s->kv.length != length)
        return err_set(e, HEARTH_UNSUPPORTED, "a run ended with %zu tokens in place of %zu: its time means nothing", s->kv.length, length);
    bool finite = logits != NULL;
    for (int t = 0; finite && t < g->b->info.n_vocab; t++) finite = isfinite(logits[t]);
    if (!finite) return err_set(e, HEARTH_UNSUPPORTED, "a run ended with logits that are no numbers: its time means nothing");
    return true;
}

/* Brings the first n sessions to the group's depth. */
static bool fill(group *g, int n, err *e) {
    for (; g->filled < n; g->filled++) {
        hearth_session *s = g->sessions[g->filled] = hearth_session_new(g->b->engine, e);
        if (!s) return false;
        if (g->depth == 0) continue;
        bench_status("filling in %d tokens of sequence %d", g->depth, g->filled + 1);
        bench_random_tokens(g->tokens, (size_t)g->depth, (uint64_t)g->filled + 1, g->b->info.n_vocab);
        if (!hearth_session_append(s, g->tokens, (size_t)g->depth, e) || !check_session(g, g->filled, (size_t)g->depth, hearth_session_logits(s), e)) return false;
    }
    return true;
}

static bool prefill(group *g, const bench_case *c, err *e) {
    for (int i = 0; i < c->batch; i++)
        if (!hearth_session_append(g->sessions[i], g->tokens, (size_t)c->n_prompt, e)) return false;
    return true;
}

/* One token for each of the first n sessions, in one pass. */
static bool step_together(group *g, int n, int t, err *e) {
    const model *m = &g->b->engine->model;
    model_part parts[BENCH_BATCH];
    for (int i = 0; i < n; i++) {
        hearth_session *s = g->sessions[i];
        if (!token_list_add(&s->tokens, g->tokens[t], e)) return false;
        parts[i] = (model_part){.kv = &s->kv, .tokens = &s->tokens.ids[s->tokens.n - 1], .n = 1, .n_logits = 1, .long_context = s->long_context};
    }
    return model_forward(m, &g->sessions[0]->run, parts, n, g->logits, e);
}

static bool decode(group *g, const bench_case *c, err *e) {
    for (int t = 0; t < c->n_gen; t++)
        if (c->batch == 1 ? !hearth_session_append(g->sessions[0], &g->tokens[t], 1, e) : !step_together(g, c->batch, t, e)) return false;
    return true;
}

/* One run of a case; its speed in tokens per second. */
static bool run_case(group *g, const bench_case *c, double *speed, err *e) {
    int n = c->n_prompt + c->n_gen;
    if (!fill(g, c->batch, e)) return false;
    for (int i = 0; i < c->batch; i++)
        if (!hearth_session_rewind(g->sessions[i], (size_t)g->depth, e)) return false;
    bench_random_tokens(g->tokens, (size_t)n, 0, g->b->info.n_vocab);
    uint64_t start = clock_ns();
    bool ok = c->n_gen ? decode(g, c, e) : prefill(g, c, e);
    double seconds = (double)(clock_ns() - start) * 1e-9;
    for (int i = 0; ok && i < c->batch; i++) {
        bool together = c->n_gen && c->batch > 1;
        const float *logits = together ? g->logits + (size_t)i * (size_t)g->b->info.n_vocab : hearth_session_logits(g->sessions[i]);
        ok = check_session(g, i, (size_t)(g->depth + n), logits, e);
    }
    *speed = (double)n * c->batch / seconds;
    return ok;
}

static bool run_repetition(group *g, bench_case *first, const bench_case *last, int repetition, err *e) {
    for (bench_case *c = first; c <= last; c++) {
        bench_status("depth %d, %s %d, batch %d: %s %d", g->depth, c->n_gen ? "decode" : "prefill", c->n_prompt + c->n_gen, c->batch,
                     repetition < 0 ? "warm-up" : "repetition", repetition < 0 ? repetition + 1 + g->b->warmup : repetition + 1);
        double speed;
        if (!run_case(g, c, &speed, e)) return false;
        if (repetition >= 0) c->ours.items[c->ours.n++] = speed;
    }
    return true;
}

/* A speed is compared with a limit of the same minute. */
static bool read_again(bench *b, err *e) {
    if (b->reads.n == BENCH_SAMPLES) return true;
    bench_status("measuring the machine: reading");
    if (!bench_limits_read_again(&b->limits, e)) return false;
    b->reads.items[b->reads.n++] = b->limits.read;
    b->reads_shared.items[b->reads_shared.n++] = b->limits.read_shared;
    return true;
}

/* A peer that fails once is not asked again; our own figures go on. */
static void run_peer(group *g, bench_case *first, const bench_case *last, int repetition) {
    bench *b = g->b;
    if (!b->peer || b->peer_error.code != HEARTH_OK) return;
    bench_status("depth %d: repetition %d of %s", g->depth, repetition + 1, b->peer);
    bench_peer_run(b, first, last, &b->peer_error);
}

/* A system that runs in another takes back the memory of a program that has ended 2 s later, and for some tenths of a second all else is a fifth slower. */
static void rest_after_peer(const bench *b) {
    enum { SECONDS = 4 };
    if (!b->peer || b->peer_error.code != HEARTH_OK) return;
    bench_status("waiting until the machine is at rest");
    sleep(SECONDS);
}

static bool run_group(bench *b, bench_case *first, const bench_case *last, err *e) {
    group g = {.b = b, .depth = first->depth};
    int longest = first->depth;
    for (const bench_case *c = first; c <= last; c++) {
        if (c->batch > g.n_sessions) g.n_sessions = c->batch;
        if (c->n_prompt + c->n_gen > longest) longest = c->n_prompt + c->n_gen;
    }
    g.sessions = mem_zalloc((size_t)g.n_sessions, sizeof *g.sessions, e);
    g.tokens = mem_alloc((size_t)longest, sizeof *g.tokens, e);
    g.logits = mem_alloc((size_t)g.n_sessions, (size_t)b->info.n_vocab * sizeof *g.logits, e);
    bool ok = g.sessions && g.tokens && g.logits;
    for (int r = -b->warmup; ok && r < b->repetitions; r++) {
        if (r > 0) rest_after_peer(b);
        ok = run_repetition(&g, first, last, r, e) && (r < 0 || read_again(b, e));
        if (ok && r >= 0) run_peer(&g, first, last, r);
    }
    bench_status(NULL);
    for (int i = 0; g.sessions && i < g.n_sessions; i++) hearth_session_free(g.sessions[i]);
    mem_free(g.sessions);
    mem_free(g.tokens);
    mem_free(g.logits);
    return ok;
}

static bool check_sizes(const bench *b, err *e) {
    for (int i = 0; i < b->n_cases; i++) {
        const bench_case *c = &b->cases[i];
        int64_t need = (int64_t)c->depth + c->n_prompt + c->n_gen;
        if (need > b->info.n_context)
            return err_set(e, HEARTH_LIMIT, "depth %d and %d tokens more do not fit into the model's context of %d", c->depth, c->n_prompt + c->n_gen,
                           b->info.n_context);
    }
    return true;
}

bool bench_run_all(bench *b, err *e) {
    if (!check_sizes(b, e)) return false;
    for (int i = 0; i < b->n_cases;) {
        int last = i;
        while (last + 1 < b->n_cases && b->cases[last + 1].depth == b->cases[i].depth) last++;
        if (!run_group(b, &b->cases[i], &b->cases[last], e)) return false;
        i = last + 1;
    }
    if (b->reads.n > 0) b->limits.read = bench_median(&b->reads), b->limits.read_shared = bench_median(&b->reads_shared);
    for (int i = 0; i < b->n_cases; i++) bench_work(b, &b->cases[i]);
    return true;
}
