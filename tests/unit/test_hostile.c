/* Whole models that are wrong in one place: every metadata key absent, absurd or of another type, every tensor absent, misshapen or
 * of another type, weights full of noise. hearth refuses in one sentence, or runs; it never crashes, hangs or asks for absurd memory. */
#include "tools/support.h"

#include <math.h>
#include <sys/resource.h>

#include "quant/quant.h"
#include "unit/gguf_builder.h"

enum { EMBD = 32, VOCAB = 259 + 8, MAX_KEYS = 64, MAX_TENSORS = 64 };

typedef struct key {
    char name[64];
    gguf_type type;
    double number;
    const char *text;
} key;

typedef struct tensor {
    char name[64];
    int type;
    int n_dims;
    uint64_t ne[3];
} tensor;

typedef struct tiny {
    key keys[MAX_KEYS];
    int n_keys;
    tensor tensors[MAX_TENSORS];
    int n_tensors;
    uint64_t seed;
} tiny;

static void number(tiny *m, const char *arch, const char *name, gguf_type type, double value) {
    key *k = &m->keys[m->n_keys++];
    *k = (key){.type = type, .number = value};
    snprintf(k->name, sizeof k->name, "%s.%s", arch, name);
}

static void matrix(tiny *m, const char *name, int type, uint64_t a, uint64_t b, uint64_t c) {
    tensor *t = &m->tensors[m->n_tensors++];
    *t = (tensor){.type = type, .n_dims = c > 1 ? 3 : b > 1 ? 2 : 1, .ne = {a, b, c}};
    snprintf(t->name, sizeof t->name, "%s", name);
}

static void common(tiny *m, const char *arch) {
    m->keys[m->n_keys++] = (key){.name = "general.architecture", .type = GGUF_STRING, .text = arch};
    number(m, arch, "block_count", GGUF_U32, 2);
    number(m, arch, "context_length", GGUF_U32, 64);
    number(m, arch, "embedding_length", GGUF_U32, EMBD);
    number(m, arch, "attention.head_count", GGUF_U32, 4);
    number(m, arch, "attention.layer_norm_rms_epsilon", GGUF_F32, 1e-5);
    matrix(m, "token_embd.weight", QUANT_Q8_0, EMBD, VOCAB, 1);
    matrix(m, "output_norm.weight", QUANT_F32, EMBD, 1, 1);
}

static void in_layers(tiny *m, const char *name, int type, uint64_t a, uint64_t b, uint64_t c) {
    char full[64];
    for (int i = 0; i < 2; i++) {
        snprintf(full, sizeof full, "blk.%d.%s", i, name);
        matrix(m, full, type, a, b, c);
    }
}

static tiny make_llama(void) {
    tiny m = {.seed = 1};
    common(&m, "llama");
    number(&m, "llama", "attention.head_count_kv", GGUF_U32, 2);
    number(&m, "llama", "feed_forward_length", GGUF_U32, 64);
    number(&m, "llama", "rope.dimension_count", GGUF_U32, 8);
    number(&m, "llama", "rope.freq_base", GGUF_F32, 10000);
    number(&m, "llama", "rope.scaling.factor", GGUF_F32, 2);
    in_layers(&m, "attn_norm.weight", QUANT_F32, EMBD, 1, 1);
    in_layers(&m, "ffn_norm.weight", QUANT_F32, EMBD, 1, 1);
    in_layers(&m, "attn_q.weight", QUANT_F16, EMBD, 32, 1);
    in_layers(&m, "attn_k.weight", QUANT_Q4_0, EMBD, 16, 1);
    in_layers(&m, "attn_v.weight", QUANT_Q5_1, EMBD, 16, 1);
    in_layers(&m, "attn_output.weight", QUANT_BF16, EMBD, EMBD, 1);
    in_layers(&m, "ffn_gate.weight", QUANT_IQ4_NL, EMBD, 64, 1);
    in_layers(&m, "ffn_up.weight", QUANT_MXFP4, EMBD, 64, 1);
    in_layers(&m, "ffn_down.weight", QUANT_F32, 64, EMBD, 1);
    return m;
}

static tiny make_deepseek(void) {
    tiny m = {.seed = 2};
    const char *a = "deepseek2";
    common(&m, a);
    static const struct { const char *name; double value; } ints[] = {
        {"attention.head_count_kv", 1}, {"attention.q_lora_rank", 32}, {"attention.kv_lora_rank", 32}, {"attention.key_length_mla", 40}, {"attention.value_length_mla", 32},
        {"rope.dimension_count", 8}, {"feed_forward_length", 64}, {"expert_feed_forward_length", 32}, {"expert_count", 8}, {"expert_used_count", 3}, {"expert_shared_count", 2},
        {"expert_group_count", 4}, {"expert_group_used_count", 2}, {"leading_dense_block_count", 0}, {"expert_gating_func", 2}};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) number(&m, a, ints[i].name, GGUF_U32, ints[i].value);
    number(&m, a, "expert_weights_scale", GGUF_F32, 2.5);
    number(&m, a, "expert_weights_norm", GGUF_BOOL, 1);
    number(&m, a, "rope.scaling.yarn_log_multiplier", GGUF_F32, 0.1);
    in_layers(&m, "attn_norm.weight", QUANT_F32, EMBD, 1, 1);
    in_layers(&m, "ffn_norm.weight", QUANT_F32, EMBD, 1, 1);
    in_layers(&m, "attn_q_a.weight", QUANT_Q8_0, EMBD, 32, 1);
    in_layers(&m, "attn_q_a_norm.weight", QUANT_F32, 32, 1, 1);
    in_layers(&m, "attn_q_b.weight", QUANT_F16, 32, 160, 1);
    in_layers(&m, "attn_kv_a_mqa.weight", QUANT_F16, EMBD, 40, 1);
    in_layers(&m, "attn_kv_a_norm.weight", QUANT_F32, 32, 1, 1);
    in_layers(&m, "attn_kv_b.weight", QUANT_Q8_0, 32, 4 * (32 + 32), 1);
    in_layers(&m, "attn_output.weight", QUANT_F16, 128, EMBD, 1);
    in_layers(&m, "ffn_gate_inp.weight", QUANT_F32, EMBD, 8, 1);
    in_layers(&m, "exp_probs_b.bias", QUANT_F32, 8, 1, 1);
    in_layers(&m, "ffn_gate_exps.weight", QUANT_F16, EMBD, 32, 8);
    in_layers(&m, "ffn_up_exps.weight", QUANT_Q8_0, EMBD, 32, 8);
    in_layers(&m, "ffn_down_exps.weight", QUANT_F16, 32, EMBD, 8);
    in_layers(&m, "ffn_gate_shexp.weight", QUANT_F16, EMBD, 64, 1);
    in_layers(&m, "ffn_up_shexp.weight", QUANT_F16, EMBD, 64, 1);
    in_layers(&m, "ffn_down_shexp.weight", QUANT_F16, 64, EMBD, 1);
    return m;
}

static void put_key(builder *b, const key *k) {
    buf *kv = add_kv(b, k->name, k->type);
    switch (k->type) {
    case GGUF_STRING: put_text(kv, k->text); break;
    case GGUF_F32: put_f32(kv, (float)k->number); break;
    case GGUF_BOOL: put_u8(kv, k->number != 0); break;
    case GGUF_U64: put_u64(kv, k->number < 0 ? UINT64_MAX : (uint64_t)k->number); break;
    default: put_u32(kv, k->number < 0 ? (uint32_t)(int32_t)k->number : (uint32_t)k->number); break;
    }
}

static void put_vocabulary(builder *b) {
    add_text(b, "tokenizer.ggml.model", "llama");
    buf *kv = add_array(b, "tokenizer.ggml.tokens", GGUF_STRING, VOCAB);
    char piece[32];
    for (int i = 0; i < VOCAB; i++) {
        if (i >= 3 && i < 259) snprintf(piece, sizeof piece, "<0x%02X>", i - 3);
        else snprintf(piece, sizeof piece, i == 0 ? "<unk>" : i == 1 ? "<s>" : i == 2 ? "</s>" : "w%d", i);
        put_text(kv, piece);
    }
    kv = add_array(b, "tokenizer.ggml.scores", GGUF_F32, VOCAB);
    for (int i = 0; i < VOCAB; i++) put_f32(kv, (float)-i);
    kv = add_array(b, "tokenizer.ggml.token_type", GGUF_I32, VOCAB);
    for (int i = 0; i < VOCAB; i++) put_u32(kv, i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1);
    add_u32(b, "tokenizer.ggml.bos_token_id", 1);
    add_u32(b, "tokenizer.ggml.eos_token_id", 2);
}

static void put_tensor(builder *b, const tensor *t, uint64_t *seed, bool noise) {
    const quant_info *q = quant_find(t->type);
    uint64_t n = t->ne[0] * t->ne[1] * t->ne[2];
    uint64_t bytes = (n + (uint64_t)q->block - 1) / (uint64_t)q->block * (uint64_t)q->bytes;
    pad(&b->data, 32);
    add_info(b, t->name, (uint32_t)t->n_dims, t->ne, (uint32_t)t->type, b->data.len);
    if (!noise && q->encode && n % (uint64_t)q->block == 0) {
        float *values = malloc(n * sizeof *values);
        void *packed = malloc(bytes);
        for (uint64_t i = 0; i < n; i++) values[i] = (float)(rng_normal(seed) * 0.3);
        q->encode(packed, values, (int64_t)n);
        put(&b->data, packed, bytes);
        free(values);
        free(packed);
        return;
    }
    for (uint64_t i = 0; i < bytes; i++) put_u8(&b->data, (uint8_t)rng_next(seed));
}

/* Writes the model, opens it, and when it opens computes a few tokens. Returns whether it ran. */
static bool try_model(const tiny *m, bool noise, const char *what) {
    builder b = {0};
    uint64_t seed = m->seed;
    for (int i = 0; i < m->n_keys; i++) put_key(&b, &m->keys[i]);
    put_vocabulary(&b);
    for (int i = 0; i < m->n_tensors; i++) {
        put_tensor(&b, &m->tensors[i], &seed, noise);
        noise = noise || !quant_find(m->tensors[i].type)->encode; /* what cannot be encoded is made of noise */
    }
    const char *path = finish_file(&b, "tiny.gguf");
    err e = {0};
    hearth_engine_options o = hearth_engine_defaults();
    o.threads = 2;
    hearth_engine *en = hearth_engine_open(path, &o, &e);
    if (!en) {
        if (e.code == HEARTH_OK || strlen(e.text) < 10) fail_msg("%s: refused without a reason", what);
        return false;
    }
    hearth_session *s = hearth_session_new(en, &e);
    if (!s) fail_msg("%s: %s", what, e.text);
    const int32_t ids[] = {1, 80, 90, 100, 5};
    bool ok = hearth_session_append(s, ids, 5, &e) && hearth_session_append(s, ids + 1, 1, &e);
    if (ok && !noise)
        for (int i = 0; i < VOCAB; i++) assert_true(isfinite(hearth_session_logits(s)[i]));
    hearth_session_free(s);
    hearth_engine_close(en);
    return ok;
}

static void bad_keys(tiny base) {
    static const double absurd[] = {0, 1, 3, 255, 65537, 2147483647.0, 4294967295.0, -1, 1e30, 1e-30};
    char what[128];
    for (int k = 1; k < base.n_keys; k++) {
        for (size_t v = 0; v < sizeof absurd / sizeof *absurd; v++) {
            tiny m = base;
            m.keys[k].number = absurd[v];
            if (absurd[v] > 4e9) m.keys[k].type = GGUF_U64;
            snprintf(what, sizeof what, "%s = %g", m.keys[k].name, absurd[v]);
            try_model(&m, false, what);
        }
        tiny m = base;
        m.keys[k] = (key){.type = GGUF_STRING, .text = "many"};
        strcpy(m.keys[k].name, base.keys[k].name);
        snprintf(what, sizeof what, "%s is text", base.keys[k].name);
        if (try_model(&m, false, what)) fail_msg("%s: accepted", what);
        m = base;
        m.keys[k].type = GGUF_F32;
        m.keys[k].number = NAN;
        snprintf(what, sizeof what, "%s is not a number", base.keys[k].name);
        if (try_model(&m, false, what)) fail_msg("%s: accepted", what);
        m = base;
        memmove(&m.keys[k], &m.keys[k + 1], sizeof(key) * (size_t)(base.n_keys - k - 1));
        m.n_keys--;
        snprintf(what, sizeof what, "%s is missing", base.keys[k].name);
        try_model(&m, false, what);
    }
}

static void bad_tensors(tiny base) {
    char what[128];
    for (int i = 0; i < base.n_tensors; i++) {
        const char *name = base.tensors[i].name;
        bool optional = strstr(name, "exp_probs_b") != NULL;
        tiny m = base;
        memmove(&m.tensors[i], &m.tensors[i + 1], sizeof(tensor) * (size_t)(base.n_tensors - i - 1));
        m.n_tensors--;
        snprintf(what, sizeof what, "%s is missing", name);
        if (try_model(&m, false, what) != optional) fail_msg("%s: %s", what, optional ? "refused" : "accepted");
        for (int d = 0; d < 3; d++) {
            const uint64_t sizes[] = {base.tensors[i].ne[d] + 32, base.tensors[i].ne[d] * 2, 1};
            for (int k = 0; k < 3; k++) {
                m = base;
                m.tensors[i].ne[d] = sizes[k];
                if (d >= m.tensors[i].n_dims) m.tensors[i].n_dims = d + 1;
                if (memcmp(m.tensors[i].ne, base.tensors[i].ne, sizeof m.tensors[i].ne) == 0) continue;
                snprintf(what, sizeof what, "%s has dimension %d of size %d", name, d, (int)sizes[k]);
                /* An embedding may have more rows than there are tokens: many are padded. */
                bool padded = strcmp(name, "token_embd.weight") == 0 && d == 1 && sizes[k] > VOCAB;
                if (try_model(&m, false, what) != padded) fail_msg("%s: %s", what, padded ? "refused" : "accepted");
            }
        }
        static const int types[] = {QUANT_I8, QUANT_I32, QUANT_I64, QUANT_F64, QUANT_Q4_K, QUANT_IQ1_M, QUANT_Q4_1, QUANT_F32};
        for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
            m = base;
            m.tensors[i].type = types[k];
            snprintf(what, sizeof what, "%s has type %s", name, quant_find(types[k])->name);
            bool ran = try_model(&m, false, what);
            if (ran && !quant_find(types[k])->decode) fail_msg("%s: accepted", what);
        }
    }
    tiny m = base;
    matrix(&m, "blk.0.surprise.weight", QUANT_F32, EMBD, 2, 1);
    if (try_model(&m, false, "an unknown tensor")) fail_msg("an unknown tensor: accepted");
}

static void limit_memory(void) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    /* Every one of these files is under a megabyte: nothing here may ask for gigabytes. */
    struct rlimit r = {.rlim_cur = (rlim_t)2 << 30, .rlim_max = (rlim_t)2 << 30};
    setrlimit(RLIMIT_AS, &r);
#endif
}

static void llama_with_bad_keys(void **state) { (void)state, bad_keys(make_llama()); }
static void llama_with_bad_tensors(void **state) { (void)state, bad_tensors(make_llama()); }
static void deepseek_with_bad_keys(void **state) { (void)state, bad_keys(make_deepseek()); }
static void deepseek_with_bad_tensors(void **state) { (void)state, bad_tensors(make_deepseek()); }

static void good_models_run(void **state) {
    (void)state;
    tiny a = make_llama(), b = make_deepseek();
    assert_true(try_model(&a, false, "llama"));
    assert_true(try_model(&b, false, "deepseek2"));
}

static void noise_in_the_weights_is_survived(void **state) {
    (void)state;
    uint64_t seed = test_seed();
    for (int i = 0; i < 20; i++) {
        tiny a = make_llama(), b = make_deepseek();
        a.seed = rng_next(&seed);
        b.seed = rng_next(&seed);
        try_model(&a, true, "noise in llama");
        try_model(&b, true, "noise in deepseek2");
    }
}

int main(void) {
    limit_memory();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_models_run),          cmocka_unit_test(llama_with_bad_keys),       cmocka_unit_test(llama_with_bad_tensors),
        cmocka_unit_test(deepseek_with_bad_keys),   cmocka_unit_test(deepseek_with_bad_tensors), cmocka_unit_test(noise_in_the_weights_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
