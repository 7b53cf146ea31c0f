/* tiny_model.h: whole models of a few kilobytes, made up by the test: a list of metadata keys and of tensors that can be changed before the
 * file is written. */
#ifndef TESTS_TINY_MODEL_H
#define TESTS_TINY_MODEL_H

#include "tools/support.h"

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

static inline void number(tiny *m, const char *arch, const char *name, gguf_type type, double value) {
    key *k = &m->keys[m->n_keys++];
    *k = (key){.type = type, .number = value};
    snprintf(k->name, sizeof k->name, "%s.%s", arch, name);
}

static inline void matrix(tiny *m, const char *name, int type, uint64_t a, uint64_t b, uint64_t c) {
    tensor *t = &m->tensors[m->n_tensors++];
    *t = (tensor){.type = type, .n_dims = c > 1 ? 3 : b > 1 ? 2 : 1, .ne = {a, b, c}};
    snprintf(t->name, sizeof t->name, "%s", name);
}

static inline void common(tiny *m, const char *arch) {
    m->keys[m->n_keys++] = (key){.name = "general.architecture", .type = GGUF_STRING, .text = arch};
    number(m, arch, "block_count", GGUF_U32, 2);
    number(m, arch, "context_length", GGUF_U32, 64);
    number(m, arch, "embedding_length", GGUF_U32, EMBD);
    number(m, arch, "attention.head_count", GGUF_U32, 4);
    number(m, arch, "attention.layer_norm_rms_epsilon", GGUF_F32, 1e-5);
    matrix(m, "token_embd.weight", QUANT_Q8_0, EMBD, VOCAB, 1);
    matrix(m, "output_norm.weight", QUANT_F32, EMBD, 1, 1);
}

static inline void in_layers(tiny *m, const char *name, int type, uint64_t a, uint64_t b, uint64_t c) {
    char full[64];
    for (int i = 0; i < 2; i++) {
        snprintf(full, sizeof full, "blk.%d.%s", i, name);
        matrix(m, full, type, a, b, c);
    }
}

static inline tiny make_llama(void) {
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

static inline tiny make_deepseek(void) {
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

static inline void put_key(builder *b, const key *k) {
    buf *kv = add_kv(b, k->name, k->type);
    switch (k->type) {
    case GGUF_STRING: put_text(kv, k->text); break;
    case GGUF_F32: put_f32(kv, (float)k->number); break;
    case GGUF_BOOL: put_u8(kv, k->number != 0); break;
    case GGUF_U64: put_u64(kv, k->number < 0 ? UINT64_MAX : (uint64_t)k->number); break;
    default: put_u32(kv, k->number < 0 ? (uint32_t)(int32_t)k->number : (uint32_t)k->number); break;
    }
}

static inline void put_vocabulary(builder *b) {
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

static inline void put_tensor(builder *b, const tensor *t, uint64_t *seed, bool noise) {
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

/* Writes the file and returns its path. noise: the weights are random bytes rather than random numbers; *noisy (may be NULL) tells whether any are. */
static inline const char *write_tiny(const tiny *m, bool noise, bool *noisy) {
    builder b = {0};
    uint64_t seed = m->seed;
    for (int i = 0; i < m->n_keys; i++) put_key(&b, &m->keys[i]);
    put_vocabulary(&b);
    for (int i = 0; i < m->n_tensors; i++) {
        put_tensor(&b, &m->tensors[i], &seed, noise);
        noise = noise || !quant_find(m->tensors[i].type)->encode; /* what cannot be encoded is made of noise */
    }
    if (noisy) *noisy = noise;
    return finish_file(&b, "tiny.gguf");
}

#endif
