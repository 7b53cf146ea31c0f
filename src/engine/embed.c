#include "engine/embed.h"

#include <math.h>
#include <string.h>

#include "engine/engine.h"

bool embed_possible(const model_params *p, err *e) {
    return p->pooling != POOLING_RANK || err_set(e, HEARTH_UNSUPPORTED, "this model ranks texts; it has no embeddings");
}

void embed_add(const model_params *p, float *vector, const float *states, size_t first, size_t n, size_t total) {
    const size_t width = (size_t)p->n_embd;
    if (first == 0) memset(vector, 0, width * sizeof *vector);
    for (size_t t = 0; t < n; t++) {
        const size_t at = first + t;
        if ((p->pooling == POOLING_FIRST && at > 0) || (p->pooling == POOLING_LAST && at + 1 < total)) continue;
        for (size_t i = 0; i < width; i++) vector[i] += states[t * width + i];
    }
}

void embed_finish(const model_params *p, float *vector) {
    double sum = 0;
    for (int i = 0; i < p->n_embd; i++) sum += (double)vector[i] * vector[i];
    if (sum > 0)
        for (int i = 0; i < p->n_embd; i++) vector[i] = (float)(vector[i] / sqrt(sum));
}

bool hearth_embed(hearth_engine *en, const int32_t *tokens, size_t n, float *out, hearth_error *error) {
    err local = {0}, *e = error ? error : &local;
    err_clear(e);
    if (!en->has_model) return err_set(e, HEARTH_ARGUMENT, "the engine was opened for its vocabulary only");
    if (n == 0 || n > (size_t)en->n_context) return err_set(e, HEARTH_ARGUMENT, "a text to embed has 1 to %d tokens, not %zu", en->n_context, n);
    const model *m = &en->model;
    if (!embed_possible(&m->params, e)) return false;
    kv_seq kv = {.layout = &m->kv};
    model_run run = {.pool = en->pool};
    float *states = mem_alloc((n < MODEL_CHUNK ? n : MODEL_CHUNK) * (size_t)m->params.n_embd, sizeof *states, e);
    bool ok = states != NULL;
    while (ok && kv.length < n) {
        const size_t at = kv.length, left = n - at;
        model_part part = {.kv = &kv, .tokens = tokens + at, .n = left > MODEL_CHUNK ? MODEL_CHUNK : (int)left, .hidden = states,
                           .long_context = m->rope.full_long && n > (size_t)m->params.original_context};
        ok = model_forward(m, &run, &part, 1, NULL, e);
        if (ok) embed_add(&m->params, out, states, at, (size_t)part.n, n);
    }
    if (ok) embed_finish(&m->params, out);
    mem_free(states);
    kv_seq_free(&kv);
    model_run_free(&run);
    return ok;
}
