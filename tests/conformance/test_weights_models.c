/* Whatever form the weights are in, the logits are the same bits: every architecture, every kernel set of this machine, all memory budgets, packed now or mapped
 * from an earlier start. */
#include "tools/support.h"

#include "model/model.h"
#include "quant/quant.h"

static const char *const names[] = {"deepseek2-lite", "deepseek3", "gemma2", "gpt-oss", "granitemoe", "llama", "olmo2", "phi3", "qwen3moe"};
enum { N_NAMES = sizeof names / sizeof *names, TOKENS = 12 };

/* Logits of a few tokens taken in at once and of some more one by one. NULL options: no cache. */
static float *logits_of(const gguf *g, const kernels *k, pool *p, const weights_options *o, weights_stats *stats) {
    err e = {0};
    model m;
    const int kv_type = strcmp(k->name, "ref") ? QUANT_F16 : QUANT_F32;
    if (!model_load(&m, g, k, kv_type, kv_type, &e)) fail_msg("%s", e.text);
    weights *w = NULL;
    if (o) {
        w = weights_open(g, k, p, o, &e);
        if (!w || !model_use_cache(&m, w, &e) || !weights_start(w, &e)) fail_msg("%s", e.text);
    }
    size_t row = (size_t)m.params.n_vocab;
    float *logits = malloc(row * TOKENS * sizeof *logits);
    int32_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++) ids[i] = (i * 37 + 5) % m.params.n_vocab;
    model_run run = {.pool = p};
    kv_seq kv = {.layout = &m.kv};
    for (int at = 0; at < TOKENS;) {
        int n = at == 0 ? 7 : 1;
        model_part part = {.kv = &kv, .tokens = ids + at, .n = n, .n_logits = n};
        if (!model_forward(&m, &run, &part, 1, logits + row * (size_t)at, &e)) fail_msg("%s", e.text);
        at += n;
    }
    if (w) *stats = weights_get_stats(w);
    model_run_free(&run);
    kv_seq_free(&kv);
    weights_close(w);
    model_free(&m);
    return logits;
}

static void check_model(const char *name, const kernels *k, pool *p) {
    err e = {0};
    char path[64], folder[256];
    snprintf(path, sizeof path, "models/%s.gguf", name);
    snprintf(folder, sizeof folder, "%s/%s-%s", temp_dir(), name, k->name);
    gguf *g = gguf_open(kit_path(path), &e);
    if (!g) fail_msg("%s", e.text);
    weights_stats st = {0};
    weights_options o = weights_defaults();
    o.cache_dir = folder;
    o.persist_least = 0;
    float *plain = logits_of(g, k, p, NULL, NULL);
    size_t bytes = (size_t)TOKENS * gguf_find_tensor(g, "token_embd.weight")->ne[1] * sizeof *plain;
    uint64_t total = 0;
    for (int round = 0; round < 6; round++) {
        /* all in memory; the same mapped; half of it; half with all made on demand and ahead; without a file; nothing */
        o.persist = round != 4;
        o.move = false; /* else the mapped ones are soon in memory too */
        o.memory = round < 2 ? (uint64_t)1 << 40 : round == 5 ? 0 : total / 2;
        o.preload = round == 3 ? WEIGHTS_PRELOAD_NONE : WEIGHTS_PRELOAD_ALL;
        o.prefetch = round == 3 ? 2 : -1;
        float *got = logits_of(g, k, p, &o, &st);
        if (memcmp(got, plain, bytes) != 0) fail_msg("%s on %s: other logits in round %d", name, k->name, round);
        free(got);
        if (round == 0) total = st.packed_total;
        if (!total) break; /* this set packs nothing */
        if (round == 0) assert_true(st.hit_rate == 1 && !st.mapped);
        if (round == 1) assert_true(st.hit_rate == 1 && st.mapped && st.makes == (uint64_t)st.entries && st.mapped_bytes == st.packed_bytes);
        assert_true(st.used <= st.memory);
        assert_int_equal(st.lost, 0);
    }
    free(plain);
    gguf_close(g);
}

static void every_form_gives_the_same_bits(void **state) {
    (void)state;
    need_kit();
    err e = {0};
    pool *p = pool_new(2, &e);
    for (const kernels *const *k = kernels_all(); *k; k++)
        for (int i = 0; i < N_NAMES && (*k)->usable(); i++) check_model(names[i], *k, p);
    pool_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_form_gives_the_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
