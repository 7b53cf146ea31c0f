/* bench_memory_step.c: what `hearth bench --memory` starts, as a process of its own: agents with a context get a new turn, and the time until each has its first
 * token is taken.
 *
 *   cold   everything is computed; then the first token after every turn that the other steps take, as what they must come to
 *   fill   the context is computed and saved; then the turn with the context in memory (hot)
 *   warm   the turn with the context on disk
 *
 * Every turn is another one, so that no run finds what the one before it computed. A time counts only when exactly what was meant to be found was found. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/bench.h"
#include "engine/recall.h"

enum { PIECE = 1024 }; /* tokens between two signs of progress */

typedef struct step {
    const bench *b;
    char kind[8];
    char folder[3000];
    int context, batch, variant; /* variant: which turn; of cold and fill: how many */
    int turn;
    hearth_engine *engine;
    hearth_session *sessions[BENCH_BATCH];
    int32_t *tokens; /* room for a context and a turn */
    int32_t first[BENCH_BATCH];
    json_t *out;
} step;

static bool parse_step(step *s, const char *text, err *e) {
    int at = 0;
    if (sscanf(text, "%7[a-z],%d,%d,%d,%n", s->kind, &s->context, &s->batch, &s->variant, &at) != 4 || !at || s->context < 1 || s->batch < 1 || s->batch > BENCH_BATCH ||
        s->variant < 0 || s->variant > 3 * BENCH_SAMPLES || strlen(text + at) >= sizeof s->folder)
        return err_set(e, HEARTH_ARGUMENT, "--memory-step needs KIND,CONTEXT,BATCH,VARIANT,FOLDER, not '%s'", text);
    strcpy(s->folder, text + at);
    if (strcmp(s->kind, "cold") == 0 || strcmp(s->kind, "fill") == 0 || strcmp(s->kind, "warm") == 0) return true;
    return err_set(e, HEARTH_ARGUMENT, "--memory-step knows cold, fill and warm, not '%s'", s->kind);
}

/* ---- contexts and turns ---- */

static bool open_sessions(step *s, err *e) {
    char name[32];
    for (int i = 0; i < s->batch; i++) {
        snprintf(name, sizeof name, "agent %d", i);
        s->sessions[i] = strcmp(s->kind, "cold") == 0 ? hearth_session_new(s->engine, e) : hearth_session_open(s->engine, name, NULL, e);
        if (!s->sessions[i]) return false;
    }
    return true;
}

/* Agents are left as they were before their turn. ok: nothing has failed so far. */
static bool close_sessions(step *s, bool ok, err *e) {
    for (int i = 0; i < s->batch; i++) {
        ok = ok && hearth_session_rewind(s->sessions[i], (size_t)s->context, e);
        hearth_session_free(s->sessions[i]);
        s->sessions[i] = NULL;
    }
    return ok;
}

static bool add_context(step *s, int i, err *e) {
    bench_random_tokens(s->tokens, (size_t)s->context, (uint64_t)i + 1, hearth_engine_info(s->engine).n_vocab);
    for (int at = 0; at < s->context; at += PIECE) {
        int n = s->context - at < PIECE ? s->context - at : PIECE;
        if (!hearth_session_append(s->sessions[i], s->tokens + at, (size_t)n, e)) return false;
        fprintf(stderr, "agent %d of %d, %d of %d tokens\n", i + 1, s->batch, at + n, s->context);
    }
    return true;
}

static bool best_of(const step *s, int i, const float *logits, int32_t *out, err *e) {
    const hearth_session *session = s->sessions[i];
    int n = hearth_engine_info(s->engine).n_vocab;
    size_t length = (size_t)(s->context + s->turn);
    if (hearth_session_length(session) != length || session->kv.length != length)
        return err_set(e, HEARTH_UNSUPPORTED, "a turn ended with %zu tokens in place of %zu: its time means nothing", session->kv.length, length);
    *out = 0;
    for (int t = 0; logits && t < n; t++) {
        if (!isfinite(logits[t])) logits = NULL;
        else if (logits[t] > logits[*out]) *out = t;
    }
    return logits || err_set(e, HEARTH_UNSUPPORTED, "a turn ended with logits that are no numbers: its time means nothing");
}

static void turn_tokens(const step *s, int32_t *out, int i, int variant) {
    bench_random_tokens(out, (size_t)s->turn, (uint64_t)(variant + 1) * 1000003 + (uint64_t)i, hearth_engine_info(s->engine).n_vocab);
}

/* The turns of sessions [from, from + n) in one pass. */
static bool turn_pass(step *s, int from, int n, int variant, err *e) {
    hearth_engine *en = s->engine;
    int n_vocab = en->model.params.n_vocab;
    model_part parts[BENCH_BATCH];
    float *logits = mem_alloc((size_t)n, (size_t)n_vocab * sizeof *logits, e);
    bool ok = logits != NULL;
    for (int i = 0; ok && i < n; i++) {
        hearth_session *x = s->sessions[from + i];
        turn_tokens(s, s->tokens, from + i, variant);
        for (int t = 0; ok && t < s->turn; t++) ok = token_list_add(&x->tokens, s->tokens[t], e);
        parts[i] = (model_part){.kv = &x->kv, .tokens = x->tokens.ids + s->context, .n = s->turn, .n_logits = 1, .long_context = x->long_context};
    }
    ok = ok && model_forward(&en->model, &s->sessions[0]->run, parts, n, logits, e);
    for (int i = 0; ok && i < n; i++) {
        hearth_session *x = s->sessions[from + i];
        recall_keep(en, &x->kv, x->tokens.ids);
        x->changed = true;
        x->logits_valid = false;
        ok = best_of(s, from + i, logits + (size_t)i * (size_t)n_vocab, &s->first[from + i], e);
    }
    mem_free(logits);
    return ok;
}

/* A turn of every agent, as many as fit together in one pass, and the first token after it. */
static bool take_turn(step *s, int variant, err *e) {
    int together = MODEL_CHUNK / s->turn;
    if (s->batch > 1 && together > 1) {
        for (int i = 0; i < s->batch; i += together)
            if (!turn_pass(s, i, s->batch - i < together ? s->batch - i : together, variant, e)) return false;
        return true;
    }
    for (int i = 0; i < s->batch; i++) {
        turn_tokens(s, s->tokens, i, variant);
        if (!hearth_session_append(s->sessions[i], s->tokens, (size_t)s->turn, e) || !best_of(s, i, hearth_session_logits(s->sessions[i]), &s->first[i], e)) return false;
    }
    return true;
}

static void report_first(step *s, json_t *list) {
    json_t *firsts = json_array();
    for (int i = 0; i < s->batch; i++) json_array_append_new(firsts, json_integer(s->first[i]));
    json_array_append_new(list, firsts);
}

static void report_number(step *s, const char *key, double value) { json_object_set_new(s->out, key, json_real(value)); }

/* ---- the steps ---- */

static bool run_cold(step *s, err *e) {
    json_t *firsts = json_array();
    json_object_set_new(s->out, "first", firsts);
    double start = clock_seconds();
    bool ok = open_sessions(s, e);
    for (int i = 0; ok && i < s->batch; i++) ok = add_context(s, i, e);
    report_number(s, "prefill", clock_seconds() - start);
    ok = ok && take_turn(s, 0, e);
    report_number(s, "seconds", clock_seconds() - start);
    if (ok) report_first(s, firsts);
    for (int v = 1; ok && v < s->variant; v++) {
        for (int i = 0; ok && i < s->batch; i++) ok = hearth_session_rewind(s->sessions[i], (size_t)s->context, e);
        ok = ok && take_turn(s, v, e);
        if (ok) report_first(s, firsts);
    }
    return close_sessions(s, ok, e);
}

static bool run_fill(step *s, err *e) {
    double prefill = 0, durable = 0;
    bool ok = open_sessions(s, e);
    double stalled = hearth_engine_kv(s->engine).stall_seconds;
    for (int i = 0; ok && i < s->batch; i++) {
        double start = clock_seconds();
        ok = add_context(s, i, e);
        double end = clock_seconds();
        ok = ok && hearth_session_save(s->sessions[i], e);
        prefill += end - start;
        durable = fmax(durable, clock_seconds() - end);
    }
    hearth_kv_stats k = hearth_engine_kv(s->engine);
    if (ok && (k.skipped || k.failures)) ok = err_set(e, HEARTH_IO, "%s: there is no room for the %llu bytes of this context: choose another folder with --store-dir",
                                                      s->folder, (unsigned long long)k.hot_bytes);
    report_number(s, "prefill", prefill);
    report_number(s, "stall", k.stall_seconds - stalled);
    report_number(s, "durable", durable);
    json_object_set_new(s->out, "disk_bytes", json_integer((json_int_t)k.warm_bytes / s->batch));
    ok = close_sessions(s, ok, e);
    json_t *hot = json_array(), *durables = json_array(), *firsts = json_array();
    json_object_set_new(s->out, "hot", hot), json_object_set_new(s->out, "turn_durable", durables), json_object_set_new(s->out, "first", firsts);
    for (int v = 0; ok && v < s->variant; v++) {
        double start = clock_seconds();
        ok = open_sessions(s, e) && take_turn(s, v, e);
        double end = clock_seconds();
        json_array_append_new(hot, json_real(end - start));
        if (ok) report_first(s, firsts);
        for (int i = 0; ok && i < s->batch; i++) ok = hearth_session_save(s->sessions[i], e);
        json_array_append_new(durables, json_real(clock_seconds() - end));
        if (ok && hearth_engine_kv(s->engine).tokens_loaded > 0) ok = err_set(e, HEARTH_LIMIT, "memory does not hold this context: the time of a hot turn cannot be taken");
        ok = close_sessions(s, ok, e);
    }
    return ok;
}

static bool run_warm(step *s, err *e) {
    double start = clock_seconds();
    bool ok = open_sessions(s, e) && take_turn(s, s->variant, e);
    report_number(s, "seconds", clock_seconds() - start);
    json_t *firsts = json_array();
    json_object_set_new(s->out, "first", firsts);
    if (ok) report_first(s, firsts);
    uint64_t loaded = hearth_engine_kv(s->engine).tokens_loaded, full = (uint64_t)s->batch * (uint64_t)(s->context / KV_BLOCK * KV_BLOCK);
    if (ok && loaded != full)
        ok = err_set(e, HEARTH_UNSUPPORTED, "%llu tokens came from disk in place of %llu: the time means nothing", (unsigned long long)loaded, (unsigned long long)full);
    return close_sessions(s, ok, e);
}

/* The weights are brought in first: they are not what is measured. Fewer tokens than a block, so that nothing is kept on disk. */
static bool warm_up(step *s, err *e) {
    int32_t tokens[KV_BLOCK / 2];
    hearth_session *x = hearth_session_new(s->engine, e);
    bench_random_tokens(tokens, KV_BLOCK / 2, 0, hearth_engine_info(s->engine).n_vocab);
    bool ok = x && hearth_session_append(x, tokens, KV_BLOCK / 2, e);
    hearth_session_free(x);
    return ok;
}

bool bench_memory_step(const bench *b, err *e) {
    static step s;
    s = (step){.b = b, .turn = b->memory.turn, .out = json_object()};
    if (!parse_step(&s, b->memory.step, e)) return false;
    hearth_engine_options o = b->engine_options;
    bool cold = strcmp(s.kind, "cold") == 0;
    o.store = !cold;
    o.store_dir = s.folder;
    o.kv_memory = cold ? 0 : HEARTH_AUTO;
    s.tokens = mem_alloc((size_t)(s.context + s.turn), sizeof *s.tokens, e);
    s.engine = s.tokens ? hearth_engine_open(b->model, &o, e) : NULL;
    bool ok = s.engine && warm_up(&s, e);
    if (ok) {
        hearth_engine_settle(s.engine);
        ok = cold ? run_cold(&s, e) : strcmp(s.kind, "fill") == 0 ? run_fill(&s, e) : run_warm(&s, e);
    }
    hearth_engine_close(s.engine);
    if (ok) {
        json_dumpf(s.out, stdout, JSON_COMPACT);
        putchar('\n');
    }
    json_decref(s.out);
    mem_free(s.tokens);
    return ok;
}
