/* kv_talk.h: a stand-in for a model in the tests of blocks and of the store: every number depends on all tokens up to its own, so that whatever is shared, copied or
 * loaded by mistake is seen. Include tools/support.h first. */
#ifndef TESTS_KV_TALK_H
#define TESTS_KV_TALK_H

#include "kv/cache.h"
#include "quant/quant.h"

static inline kv_layout small_layout(void) {
    kv_layout l;
    assert_true(kv_layout_init(&l, 2, QUANT_F32, QUANT_F32, NULL));
    assert_true(kv_layout_set(&l, 0, 2, 3, 2, false, NULL));
    assert_true(kv_layout_set(&l, 1, 1, 4, 2, true, NULL));
    return l;
}

/* The first layer sees 100 positions. */
static inline kv_layout windowed_layout(void) {
    kv_layout l;
    assert_true(kv_layout_init(&l, 2, QUANT_F32, QUANT_F32, NULL));
    assert_true(kv_layout_set(&l, 0, 2, 20, 12, false, NULL));
    kv_layout_window(&l, 100);
    assert_true(kv_layout_set(&l, 1, 1, 4, 2, true, NULL));
    return l;
}

static inline kv_chain chain_of(const char *tenant) { return kv_chain_make(tenant, "model", 5, "f32", 0); }

typedef struct talk {
    kv_seq kv;
    int32_t tokens[4096];
    size_t n;
    uint32_t seed;
} talk;

static inline uint32_t mix(uint32_t h, uint32_t x) { return (h ^ x) * 2654435761u + 12345u; }

static inline void check_or_write(talk *t, size_t from, bool write, uint32_t seed) {
    uint32_t h = seed;
    for (size_t p = 0; p < t->n; p++) {
        h = mix(h, (uint32_t)t->tokens[p]);
        if (p < from) continue;
        for (int layer = 0; layer < t->kv.layout->n_layers; layer++) {
            const kv_layer *l = &t->kv.layout->layers[layer];
            /* Behind its window a layer may have nothing. */
            if (!write && l->windowed && p + (size_t)t->kv.layout->window <= t->n) continue;
            for (int head = 0; head < l->n_heads; head++) {
                uint32_t *k = (uint32_t *)(void *)kv_key(&t->kv, layer, head, p), *v = (uint32_t *)(void *)kv_value(&t->kv, layer, head, p);
                for (int d = 0; d < l->k_dim; d++)
                    if (write) k[d] = mix(h, (uint32_t)(layer * 1000 + head * 100 + d));
                    else if (k[d] != mix(h, (uint32_t)(layer * 1000 + head * 100 + d))) fail_msg("key %d of token %zu of %zu is not the sequence's", d, p, t->n);
                for (int d = 0; d < l->v_dim && !l->shared_values; d++)
                    if (write) v[d] = mix(h, (uint32_t)(layer * 1000 + head * 100 + 50 + d));
                    else if (v[d] != mix(h, (uint32_t)(layer * 1000 + head * 100 + 50 + d))) fail_msg("value %d of token %zu of %zu is not the sequence's", d, p, t->n);
            }
        }
    }
}

/* Where what was found turns out to be damaged, it is computed too. Afterwards all of it has arrived, also what another sequence found of what was computed
 * here. */
static inline void compute_rest(talk *t) {
    for (;;) {
        while (!kv_seq_wait(&t->kv, t->kv.layout->n_layers - 1, NULL, NULL)) assert_true(kv_seq_mend(&t->kv));
        size_t from = t->kv.length;
        if (from == t->n) return;
        assert_true(kv_seq_reserve(&t->kv, t->n - from, NULL));
        check_or_write(t, from, true, t->seed);
        t->kv.length = t->n;
        kv_seq_seal(&t->kv, t->tokens);
    }
}

/* Appends tokens as a session does: what is known is taken, the rest computed. Returns how many were taken. */
static inline size_t append_with(talk *t, const int32_t *tokens, size_t n, uint32_t seed, const kv_source *from) {
    memcpy(t->tokens + t->n, tokens, n * sizeof *tokens);
    t->n += n;
    size_t found = kv_seq_find(&t->kv, t->tokens, t->n - 1, from);
    assert_true(t->kv.length < t->n);
    t->seed = seed;
    compute_rest(t);
    return found;
}

static inline size_t append(talk *t, const int32_t *tokens, size_t n, uint32_t seed) { return append_with(t, tokens, n, seed, NULL); }

static inline void rewind_to(talk *t, size_t n) {
    t->n = n;
    kv_seq_truncate(&t->kv, n);
    if (t->kv.length < n) compute_rest(t); /* windowed layers had nothing to go on from */
}

static inline void end(talk *t, bool keep) {
    if (keep) kv_seq_keep_tail(&t->kv, t->tokens);
    kv_seq_free(&t->kv);
    t->n = 0;
}

#endif
