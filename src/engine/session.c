/* session.c: one conversation. */
#include "engine/engine.h"

#include <string.h>

hearth_session *hearth_session_new(hearth_engine *en, hearth_error *e) {
    err_clear(e);
    if (!en->has_model) {
        err_set(e, HEARTH_ARGUMENT, "the engine was opened for its vocabulary only");
        return NULL;
    }
    hearth_session *s = mem_zalloc(1, sizeof *s, e);
    if (!s) return NULL;
    s->engine = en;
    s->run.pool = en->pool;
    s->kv.layout = &en->model.kv;
    s->logits = mem_aligned((size_t)en->model.params.n_vocab, sizeof *s->logits, e);
    if (!s->logits) {
        hearth_session_free(s);
        return NULL;
    }
    return s;
}

void hearth_session_free(hearth_session *s) {
    if (!s) return;
    kv_seq_free(&s->kv);
    model_run_free(&s->run);
    token_list_free(&s->tokens);
    mem_free(s->logits);
    mem_free(s);
}

/* Runs tokens [kv.length, tokens.n) through the model, logits of the last one. */
static bool compute(hearth_session *s, err *e) {
    while (s->kv.length < s->tokens.n) {
        size_t left = s->tokens.n - s->kv.length;
        int n = left > MODEL_CHUNK ? MODEL_CHUNK : (int)left;
        bool end = (size_t)n == left;
        model_part part = {.kv = &s->kv, .tokens = s->tokens.ids + s->kv.length, .n = n, .n_logits = end ? 1 : 0, .long_context = s->long_context};
        if (!model_forward(&s->engine->model, &s->run, &part, 1, s->logits, e)) return false;
    }
    s->logits_valid = true;
    return true;
}

/* Models with two sets of rotation frequencies use the long one for the whole text once it outgrows the original context: what was
 * computed with the other is computed again. */
static void choose_frequencies(hearth_session *s) {
    const model *m = &s->engine->model;
    bool now = m->rope.full_long && s->tokens.n > (size_t)m->params.original_context;
    if (now == s->long_context) return;
    s->long_context = now;
    kv_seq_truncate(&s->kv, 0);
}

bool hearth_session_append(hearth_session *s, const int32_t *tokens, size_t n, hearth_error *error) {
    err local = {0}, *e = error ? error : &local;
    err_clear(e);
    if (n == 0) return true;
    size_t before = s->tokens.n, room = (size_t)s->engine->n_context;
    if (n > room - before)
        return err_set(e, HEARTH_LIMIT, "the context is full: %zu tokens and %zu more do not fit into %zu", before, n, room);
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) ok = token_list_add(&s->tokens, tokens[i], e);
    if (ok) {
        choose_frequencies(s);
        ok = compute(s, e);
    }
    if (!ok) {
        s->tokens.n = before;
        kv_seq_truncate(&s->kv, before);
        s->logits_valid = false;
        choose_frequencies(s);
    }
    return ok;
}

const float *hearth_session_logits(hearth_session *s) {
    if (s->tokens.n == 0) return NULL;
    if (!s->logits_valid) {
        kv_seq_truncate(&s->kv, s->tokens.n - 1);
        if (!compute(s, NULL)) return NULL;
    }
    return s->logits;
}

size_t hearth_session_length(const hearth_session *s) { return s->tokens.n; }
const int32_t *hearth_session_tokens(const hearth_session *s) { return s->tokens.ids; }

bool hearth_session_rewind(hearth_session *s, size_t position, hearth_error *e) {
    err_clear(e);
    if (position > s->tokens.n)
        return err_set(e, HEARTH_ARGUMENT, "cannot rewind to %zu: the session has only %zu tokens", position, s->tokens.n);
    if (position == s->tokens.n) return true;
    s->tokens.n = position;
    kv_seq_truncate(&s->kv, position);
    s->logits_valid = false;
    choose_frequencies(s);
    return true;
}
