/* tensors.c: one table of every tensor a layer may have, with its shape in terms of the hyperparameters.
 * A tensor that the table does not account for is refused: ignoring it would give wrong answers. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"
#include "quant/quant.h"

/* Sizes a shape is made of. */
typedef enum dim {
    D_NONE, D_EMBD, D_Q, D_K, D_V, D_QKV, D_ATTN, D_HEAD_K, D_HEADS, D_FF, D_FF_UP, D_EXPERTS, D_FF_EXPERT, D_FF_SHARED,
    D_Q_RANK, D_KV_RANK, D_KV_A, D_NOPE, D_HEAD_V, D_KV_B, D_QK_NORM_Q, D_QK_NORM_K,
} dim;

/* What a layer consists of; a rule applies when the layer has its part. */
enum {
    PART_ANY = 1 << 0, PART_PRE_NORM = 1 << 1, PART_POST_NORM = 1 << 2, PART_QK_NORM = 1 << 3, PART_SPLIT = 1 << 4, PART_FUSED = 1 << 5,
    PART_LATENT = 1 << 6, PART_Q_RANK = 1 << 7, PART_Q_FULL = 1 << 8, PART_SPLIT_B = 1 << 9, PART_FUSED_B = 1 << 10, PART_DENSE = 1 << 11,
    PART_GATE = 1 << 12, PART_EXPERTS = 1 << 13, PART_SHARED = 1 << 14, PART_SINKS = 1 << 15, PART_BIASES = 1 << 16, PART_QKV_BIAS = 1 << 17,
};

typedef struct rule {
    const char *name;
    size_t field;
    bool vector;      /* decoded to float */
    dim shape[3];     /* fastest first */
    unsigned part;    /* the tensor belongs to layers with this part */
    unsigned needed;  /* and must be there when the layer has this one; 0: optional */
} rule;

#define AT(field) offsetof(model_layer, field)
static const rule rules[] = {
    {"attn_norm.weight", AT(attn_norm), true, {D_EMBD}, PART_PRE_NORM, PART_ANY},
    {"post_attention_norm.weight", AT(attn_post_norm), true, {D_EMBD}, PART_POST_NORM, PART_ANY},
    {NULL, AT(ffn_norm), true, {D_EMBD}, PART_PRE_NORM, PART_ANY}, /* named by the architecture */
    {"post_ffw_norm.weight", AT(ffn_post_norm), true, {D_EMBD}, PART_POST_NORM, PART_ANY},

    {"attn_q.weight", AT(q), false, {D_EMBD, D_Q}, PART_SPLIT | PART_Q_FULL, PART_ANY},
    {"attn_k.weight", AT(k), false, {D_EMBD, D_K}, PART_SPLIT, PART_ANY},
    {"attn_v.weight", AT(v), false, {D_EMBD, D_V}, PART_SPLIT, PART_ANY},
    {"attn_q.bias", AT(q_bias), true, {D_Q}, PART_SPLIT, PART_BIASES | PART_QKV_BIAS},
    {"attn_k.bias", AT(k_bias), true, {D_K}, PART_SPLIT, PART_BIASES | PART_QKV_BIAS},
    {"attn_v.bias", AT(v_bias), true, {D_V}, PART_SPLIT, PART_BIASES | PART_QKV_BIAS},
    {"attn_qkv.weight", AT(qkv), false, {D_EMBD, D_QKV}, PART_FUSED, PART_ANY},
    {"attn_qkv.bias", AT(qkv_bias), true, {D_QKV}, PART_FUSED, PART_BIASES | PART_QKV_BIAS},
    {"attn_output.weight", AT(out), false, {D_ATTN, D_EMBD}, PART_ANY, PART_ANY},
    {"attn_output.bias", AT(out_bias), true, {D_EMBD}, PART_ANY, PART_BIASES},
    {"attn_q_norm.weight", AT(q_norm), true, {D_QK_NORM_Q}, PART_QK_NORM, PART_ANY},
    {"attn_k_norm.weight", AT(k_norm), true, {D_QK_NORM_K}, PART_QK_NORM, PART_ANY},
    {"attn_sinks.weight", AT(sinks), true, {D_HEADS}, PART_SINKS, PART_ANY},

    {"attn_q_a.weight", AT(q_a), false, {D_EMBD, D_Q_RANK}, PART_Q_RANK, PART_ANY},
    {"attn_q_a_norm.weight", AT(q_a_norm), true, {D_Q_RANK}, PART_Q_RANK, PART_ANY},
    {"attn_q_b.weight", AT(q_b), false, {D_Q_RANK, D_Q}, PART_Q_RANK, PART_ANY},
    {"attn_kv_a_mqa.weight", AT(kv_a), false, {D_EMBD, D_KV_A}, PART_LATENT, PART_ANY},
    {"attn_kv_a_norm.weight", AT(kv_a_norm), true, {D_KV_RANK}, PART_LATENT, PART_ANY},
    {"attn_k_b.weight", AT(k_b), false, {D_NOPE, D_KV_RANK, D_HEADS}, PART_SPLIT_B, PART_ANY},
    {"attn_v_b.weight", AT(v_b), false, {D_KV_RANK, D_HEAD_V, D_HEADS}, PART_SPLIT_B, PART_ANY},
    {"attn_kv_b.weight", AT(kv_b), false, {D_KV_RANK, D_KV_B}, PART_FUSED_B, PART_ANY},

    {"ffn_gate.weight", AT(gate), false, {D_EMBD, D_FF}, PART_GATE, PART_ANY},
    {"ffn_up.weight", AT(up), false, {D_EMBD, D_FF_UP}, PART_DENSE, PART_ANY},
    {"ffn_down.weight", AT(down), false, {D_FF, D_EMBD}, PART_DENSE, PART_ANY},
    {"ffn_gate.bias", AT(gate_bias), true, {D_FF}, PART_GATE, PART_BIASES},
    {"ffn_up.bias", AT(up_bias), true, {D_FF_UP}, PART_DENSE, PART_BIASES},
    {"ffn_down.bias", AT(down_bias), true, {D_EMBD}, PART_DENSE, PART_BIASES},

    {"ffn_gate_inp.weight", AT(router), false, {D_EMBD, D_EXPERTS}, PART_EXPERTS, PART_ANY},
    {"ffn_gate_inp.bias", AT(router_bias), true, {D_EXPERTS}, PART_EXPERTS, PART_BIASES},
    {"exp_probs_b.bias", AT(choice_bias), true, {D_EXPERTS}, PART_EXPERTS, 0},
    {"ffn_gate_exps.weight", AT(gate_exps), false, {D_EMBD, D_FF_EXPERT, D_EXPERTS}, PART_EXPERTS, PART_ANY},
    {"ffn_up_exps.weight", AT(up_exps), false, {D_EMBD, D_FF_EXPERT, D_EXPERTS}, PART_EXPERTS, PART_ANY},
    {"ffn_down_exps.weight", AT(down_exps), false, {D_FF_EXPERT, D_EMBD, D_EXPERTS}, PART_EXPERTS, PART_ANY},
    {"ffn_gate_exps.bias", AT(gate_exps_bias), true, {D_FF_EXPERT, D_EXPERTS}, PART_EXPERTS, PART_BIASES},
    {"ffn_up_exps.bias", AT(up_exps_bias), true, {D_FF_EXPERT, D_EXPERTS}, PART_EXPERTS, PART_BIASES},
    {"ffn_down_exps.bias", AT(down_exps_bias), true, {D_EMBD, D_EXPERTS}, PART_EXPERTS, PART_BIASES},
    {"ffn_gate_shexp.weight", AT(gate_shared), false, {D_EMBD, D_FF_SHARED}, PART_SHARED, PART_ANY},
    {"ffn_up_shexp.weight", AT(up_shared), false, {D_EMBD, D_FF_SHARED}, PART_SHARED, PART_ANY},
    {"ffn_down_shexp.weight", AT(down_shared), false, {D_FF_SHARED, D_EMBD}, PART_SHARED, PART_ANY},
};
enum { N_RULES = sizeof rules / sizeof *rules };

static int64_t dim_size(const model_params *p, const layer_params *l, dim d) {
    int64_t q = (int64_t)l->n_heads * p->k_dim, k = (int64_t)l->n_kv_heads * p->k_dim, v = (int64_t)l->n_kv_heads * p->v_dim;
    bool whole = (p->arch->traits & ARCH_QK_NORM_WHOLE) != 0;
    switch (d) {
    case D_NONE: return 1;
    case D_EMBD: return p->n_embd;
    case D_Q: return q;
    case D_K: return k;
    case D_V: return v;
    case D_QKV: return q + k + v;
    case D_ATTN: return (int64_t)l->n_heads * p->v_dim;
    case D_HEAD_K: return p->k_dim;
    case D_HEADS: return l->n_heads;
    case D_FF: return l->n_ff;
    case D_FF_UP: return (p->arch->traits & ARCH_FUSED_UP) ? 2 * (int64_t)l->n_ff : l->n_ff;
    case D_EXPERTS: return p->n_experts;
    case D_FF_EXPERT: return p->n_ff_expert;
    case D_FF_SHARED: return p->n_ff_shared;
    case D_Q_RANK: return p->q_rank;
    case D_KV_RANK: return p->kv_rank;
    case D_KV_A: return (int64_t)p->kv_rank + p->n_rot;
    case D_NOPE: return p->k_dim - p->n_rot;
    case D_HEAD_V: return p->v_dim;
    case D_KV_B: return (int64_t)l->n_heads * (p->k_dim - p->n_rot + p->v_dim);
    case D_QK_NORM_Q: return whole ? q : p->k_dim;
    case D_QK_NORM_K: return whole ? k : p->k_dim;
    }
    return 0;
}

static bool has_tensor(const gguf *g, int layer, const char *name) {
    char full[128];
    snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    return gguf_find_tensor(g, full) != NULL;
}

/* The parts layer i consists of, from the architecture, the hyperparameters and, where files differ, what is in the file. */
static unsigned layer_parts(const model *m, int i) {
    const model_params *p = &m->params;
    unsigned traits = p->arch->traits, parts = PART_ANY;
    if (traits & ARCH_PRE_NORM) parts |= PART_PRE_NORM;
    if (traits & ARCH_POST_NORM) parts |= PART_POST_NORM;
    if (traits & (ARCH_QK_NORM_HEAD | ARCH_QK_NORM_WHOLE)) parts |= PART_QK_NORM;
    if (traits & ARCH_SINKS) parts |= PART_SINKS;
    if (traits & ARCH_BIASES) parts |= PART_BIASES;
    if (traits & ARCH_QKV_BIAS) parts |= PART_QKV_BIAS;
    if (traits & ARCH_LATENT) {
        parts |= PART_LATENT | (p->q_rank ? PART_Q_RANK : PART_Q_FULL);
        parts |= has_tensor(m->file, i, "attn_kv_b.weight") ? PART_FUSED_B : PART_SPLIT_B;
    } else {
        parts |= has_tensor(m->file, i, "attn_qkv.weight") ? PART_FUSED : PART_SPLIT;
    }
    if (p->layers[i].experts) {
        parts |= PART_EXPERTS;
        if (p->n_ff_shared > 0) parts |= PART_SHARED;
    } else {
        parts |= PART_DENSE;
        if (!(traits & ARCH_FUSED_UP)) parts |= PART_GATE;
    }
    return parts;
}

static bool check_shape(const gguf_tensor *t, const char *name, const int64_t *want, int n, err *e) {
    bool ok = t->n_dims <= 3;
    for (int d = 0; d < 3; d++) ok = ok && t->ne[d] == (d < n ? want[d] : 1);
    if (ok) return true;
    return err_set(e, HEARTH_FORMAT, "the tensor %s is %" PRId64 " x %" PRId64 " x %" PRId64 " where %" PRId64 " x %" PRId64 " x %" PRId64 " is expected",
                   name, t->ne[0], t->ne[1], t->ne[2], want[0], n > 1 ? want[1] : 1, n > 2 ? want[2] : 1);
}

static bool check_type(const gguf_tensor *t, const char *name, err *e) {
    const quant_info *q = quant_find(t->type);
    if (q && q->decode) return true;
    return err_set(e, HEARTH_UNSUPPORTED, "the tensor %s has the type %s, which hearth cannot compute with", name, q ? q->name : "unknown");
}

static float *load_vector(model *m, const gguf_tensor *t, err *e) {
    const quant_info *q = quant_find(t->type);
    float *v = model_own(m, t->n_elements, sizeof *v, e);
    if (v) q->decode(v, t->data, (int64_t)t->n_elements);
    return v;
}

static weight matrix_of(const gguf_tensor *t) {
    weight w = {.mat = {.type = t->type, .rows = t->ne[1], .cols = t->ne[0], .data = t->data}, .n = (int)t->ne[2]};
    w.stride = quant_bytes(quant_find(t->type), (uint64_t)t->ne[0]) * (size_t)t->ne[1];
    return w;
}

/* Looks a tensor up, checks it and puts it where the rule says. Absent is fine unless needed. */
static bool load_one(model *m, const char *name, const int64_t *shape, int n, bool vector, bool needed, void *field, uint8_t *used, err *e) {
    const gguf_tensor *t = gguf_find_tensor(m->file, name);
    if (!t) return needed ? err_set(e, HEARTH_FORMAT, "the tensor %s is missing", name) : true;
    if (!check_shape(t, name, shape, n, e) || !check_type(t, name, e)) return false;
    used[t - gguf_tensor_at(m->file, 0)] = 1;
    if (vector) {
        float *v = load_vector(m, t, e);
        memcpy(field, &v, sizeof v);
        return v != NULL;
    }
    *(weight *)field = matrix_of(t);
    return true;
}

static bool load_layer(model *m, int i, uint8_t *used, err *e) {
    const model_params *p = &m->params;
    unsigned parts = layer_parts(m, i);
    for (int k = 0; k < N_RULES; k++) {
        const rule *u = &rules[k];
        if (!(u->part & parts)) continue;
        char name[128], norm[64];
        snprintf(norm, sizeof norm, "%s.weight", p->arch->ffn_norm);
        snprintf(name, sizeof name, "blk.%d.%s", i, u->name ? u->name : norm);
        int64_t shape[3];
        int n = 0;
        for (; n < 3 && u->shape[n] != D_NONE; n++) shape[n] = dim_size(p, &p->layers[i], u->shape[n]);
        if (!load_one(m, name, shape, n, u->vector, (u->needed & parts) != 0, (char *)&m->layers[i] + u->field, used, e)) return false;
    }
    return true;
}

/* The older latent layout holds keys and values in one matrix: rows of a head's key part, then of its value part. The values can
 * be used in place; the keys are needed the other way round. */
static bool split_kv_b(model *m, int i, err *e) {
    const model_params *p = &m->params;
    model_layer *l = &m->layers[i];
    const quant_info *q = quant_find(l->kv_b.mat.type);
    int heads = p->layers[i].n_heads, nope = p->k_dim - p->n_rot, rank = p->kv_rank;
    size_t row_bytes = quant_bytes(q, (uint64_t)rank);
    float *keys = model_own(m, (size_t)heads * (size_t)nope * (size_t)rank, sizeof *keys, e);
    float *row = mem_alloc((size_t)rank, sizeof *row, e);
    if (!keys || !row) {
        mem_free(row);
        return false;
    }
    const uint8_t *data = l->kv_b.mat.data;
    for (int h = 0; h < heads; h++) {
        for (int d = 0; d < nope; d++) {
            q->decode(row, data + ((size_t)h * (size_t)(nope + p->v_dim) + (size_t)d) * row_bytes, rank);
            for (int c = 0; c < rank; c++) keys[((size_t)h * (size_t)rank + (size_t)c) * (size_t)nope + (size_t)d] = row[c];
        }
    }
    mem_free(row);
    l->k_b = (weight){.mat = {.type = QUANT_F32, .rows = rank, .cols = nope, .data = keys}, .n = heads, .stride = (size_t)rank * (size_t)nope * 4};
    l->v_b = (weight){.mat = {.type = q->type, .rows = p->v_dim, .cols = rank, .data = data + (size_t)nope * row_bytes},
                      .n = heads,
                      .stride = (size_t)(nope + p->v_dim) * row_bytes};
    return true;
}

static bool load_outer(model *m, uint8_t *used, err *e) {
    int64_t embd = m->params.n_embd;
    int64_t shape[2] = {embd, m->params.n_vocab};
    if (!load_one(m, "token_embd.weight", shape, 2, false, true, &m->embed, used, e)) return false;
    if (!load_one(m, "output_norm.weight", shape, 1, true, true, &m->output_norm, used, e)) return false;
    if (!load_one(m, "output.weight", shape, 2, false, false, &m->output, used, e)) return false;
    if (!m->output.mat.data) m->output = m->embed; /* tied */
    return true;
}

/* Tensors that describe the rotation are read in rope.c; those of layers beyond the model are for predicting several tokens at once. */
static bool may_be_unused(const model *m, const gguf_tensor *t) {
    static const char *const names[] = {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"};
    for (int i = 0; i < 3; i++)
        if (t->name.len == strlen(names[i]) && !memcmp(t->name.data, names[i], t->name.len)) return true;
    char prefix[32];
    for (int i = m->params.n_layers; i < m->params.n_layers + 4; i++) {
        int n = snprintf(prefix, sizeof prefix, "blk.%d.", i);
        if (t->name.len > (size_t)n && !memcmp(t->name.data, prefix, (size_t)n) && gguf_find(m->file, "deepseek2.nextn_predict_layers")) return true;
    }
    return false;
}

static bool check_all_used(const model *m, const uint8_t *used, err *e) {
    for (size_t i = 0; i < gguf_n_tensors(m->file); i++) {
        const gguf_tensor *t = gguf_tensor_at(m->file, i);
        if (used[i] || may_be_unused(m, t)) continue;
        char quoted[96];
        return err_set(e, HEARTH_UNSUPPORTED, "the tensor %s is not part of the architecture %s as hearth knows it",
                       err_quote(quoted, sizeof quoted, t->name.data, t->name.len), m->params.arch->name);
    }
    return true;
}

bool model_load_tensors(model *m, err *e) {
    m->layers = mem_zalloc((size_t)m->params.n_layers, sizeof *m->layers, e);
    uint8_t *used = mem_zalloc(gguf_n_tensors(m->file), 1, e);
    bool ok = m->layers && used && load_outer(m, used, e);
    for (int i = 0; ok && i < m->params.n_layers; i++) ok = load_layer(m, i, used, e);
    ok = ok && check_all_used(m, used, e);
    for (int i = 0; ok && i < m->params.n_layers; i++)
        if (m->layers[i].kv_b.mat.data) ok = split_kv_b(m, i, e);
    mem_free(used);
    return ok;
}

/* ---- the weight cache ---- */

static bool cache_one(weights *cache, weight *w, const char *name, int when, bool from_file, err *e) {
    if (!w->mat.data) return true;
    int id = weights_add(cache, name, w->n, w->stride, when, &w->mat, from_file, e);
    w->handle = id + 1;
    return id >= 0;
}

bool model_use_cache(model *m, weights *cache, err *e) {
    char name[128];
    for (int i = 0; i < m->params.n_layers; i++) {
        /* Parts of the older latent layout are made or cut from one tensor, which itself is not multiplied with. */
        bool derived = m->layers[i].kv_b.mat.data != NULL;
        for (int k = 0; k < N_RULES; k++) {
            const rule *u = &rules[k];
            if (u->vector || u->field == AT(kv_b)) continue;
            bool part = u->field == AT(k_b) || u->field == AT(v_b);
            snprintf(name, sizeof name, "blk.%d.%s", i, u->name);
            if (!cache_one(cache, (weight *)(void *)((char *)&m->layers[i] + u->field), name, i, !(part && derived), e)) return false;
        }
    }
    bool tied = m->output.mat.data == m->embed.mat.data;
    if (!cache_one(cache, &m->output, tied ? "token_embd.weight" : "output.weight", m->params.n_layers, true, e)) return false;
    m->cache = cache;
    return true;
}
