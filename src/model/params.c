#include "model/params.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Far above any real model, low enough that no product of two of them overflows 64 bits. */
#define MAX_LAYERS 4096
#define MAX_WIDTH (1 << 24)
#define MAX_HEADS (1 << 16)
#define MAX_CONTEXT (1 << 30)

/* Reads keys below the architecture's prefix. Failures stick in e; `missing` is the first required key that was not there. */
typedef struct reader {
    const gguf *g;
    const char *prefix;
    err *e;
    bool failed;
    char key[128];
} reader;

static const char *key_of(reader *r, const char *name) {
    snprintf(r->key, sizeof r->key, "%s.%s", r->prefix, name);
    return r->key;
}

static bool fail_missing(reader *r) {
    r->failed = true;
    return err_set(r->e, HEARTH_FORMAT, "the metadata key %s is missing", r->key);
}

static bool fail_range(reader *r, double value, double min, double max) {
    r->failed = true;
    return err_set(r->e, HEARTH_FORMAT, "the metadata key %s is %g, which is not from %g to %g", r->key, value, min, max);
}

/* True when the key is there and good. Missing is no failure. */
static bool get_int(reader *r, const char *name, int *out, int min, int max) {
    uint64_t v;
    err e = {0};
    if (r->failed) return false;
    if (!gguf_get_u64(r->g, key_of(r, name), &v, &e)) {
        if (e.code != HEARTH_OK) {
            r->failed = true;
            err_set(r->e, e.code, "%s", e.text);
        }
        return false;
    }
    if (v < (uint64_t)min || v > (uint64_t)max) return fail_range(r, (double)v, min, max);
    *out = (int)v;
    return true;
}

static void need_int(reader *r, const char *name, int *out, int min, int max) {
    if (!get_int(r, name, out, min, max) && !r->failed) fail_missing(r);
}

static bool get_float(reader *r, const char *name, float *out, double min, double max) {
    double v;
    err e = {0};
    if (r->failed) return false;
    if (!gguf_get_f64(r->g, key_of(r, name), &v, &e)) {
        if (e.code != HEARTH_OK) {
            r->failed = true;
            err_set(r->e, e.code, "%s", e.text);
        }
        return false;
    }
    if (!(v >= min && v <= max)) return fail_range(r, v, min, max);
    *out = (float)v;
    return true;
}

static bool get_flag(reader *r, const char *name, bool *out) {
    err e = {0};
    if (r->failed) return false;
    if (gguf_get_bool(r->g, key_of(r, name), out, &e)) return true;
    if (e.code != HEARTH_OK) {
        r->failed = true;
        err_set(r->e, e.code, "%s", e.text);
    }
    return false;
}

/* A number for all layers, or an array with one for each. set(layer, value). */
static bool get_per_layer(reader *r, model_params *p, const char *name, size_t field, int min, int max) {
    if (r->failed) return false;
    const gguf_kv *kv = gguf_find(r->g, key_of(r, name));
    if (!kv) return false;
    int value = 0;
    if (kv->type != GGUF_ARRAY) {
        if (!get_int(r, name, &value, min, max)) return false;
    } else if (kv->item == GGUF_STRING || kv->item == GGUF_ARRAY || kv->item == GGUF_F32 || kv->item == GGUF_F64) {
        r->failed = true;
        return err_set(r->e, HEARTH_FORMAT, "the metadata key %s holds no whole numbers", r->key);
    } else if (kv->count < (uint64_t)p->n_layers) {
        r->failed = true;
        return err_set(r->e, HEARTH_FORMAT, "the metadata key %s has %llu entries for %d layers", r->key, (unsigned long long)kv->count, p->n_layers);
    }
    for (int i = 0; i < p->n_layers; i++) {
        int64_t v = kv->type == GGUF_ARRAY ? gguf_item_i64(kv, (uint64_t)i) : value;
        if (v < min || v > max) return fail_range(r, (double)v, min, max);
        memcpy((char *)&p->layers[i] + field, &(int){(int)v}, sizeof(int));
    }
    return true;
}

static void read_heads(reader *r, model_params *p) {
    if (!get_per_layer(r, p, "attention.head_count", offsetof(layer_params, n_heads), 1, MAX_HEADS) && !r->failed) fail_missing(r);
    if (r->failed) return;
    for (int i = 0; i < p->n_layers; i++) p->layers[i].n_kv_heads = p->layers[i].n_heads;
    get_per_layer(r, p, "attention.head_count_kv", offsetof(layer_params, n_kv_heads), 1, MAX_HEADS);
    get_per_layer(r, p, "feed_forward_length", offsetof(layer_params, n_ff), 0, MAX_WIDTH);
    if (r->failed) return;
    for (int i = 0; i < p->n_layers; i++) {
        if (p->layers[i].n_heads % p->layers[i].n_kv_heads == 0) continue;
        r->failed = true;
        err_set(r->e, HEARTH_FORMAT, "layer %d has %d heads, which cannot share %d key-value heads", i, p->layers[i].n_heads, p->layers[i].n_kv_heads);
        return;
    }
    p->k_dim = p->v_dim = p->n_embd / p->layers[0].n_heads;
    bool latent = (p->arch->traits & ARCH_LATENT) != 0;
    get_int(r, "attention.key_length", &p->k_dim, 1, MAX_WIDTH);
    get_int(r, "attention.value_length", &p->v_dim, 1, MAX_WIDTH);
    if (!latent) return;
    need_int(r, "attention.kv_lora_rank", &p->kv_rank, 1, MAX_WIDTH);
    get_int(r, "attention.q_lora_rank", &p->q_rank, 0, MAX_WIDTH);
    get_int(r, "attention.key_length_mla", &p->k_dim, 1, MAX_WIDTH);
    get_int(r, "attention.value_length_mla", &p->v_dim, 1, MAX_WIDTH);
}

static void read_scaling(reader *r, model_params *p) {
    gguf_string s;
    err e = {0};
    p->scaling_factor = 1;
    p->attn_factor = 1;
    p->beta_fast = 32;
    p->beta_slow = 1;
    p->original_context = p->n_context;
    get_int(r, "rope.scaling.original_context_length", &p->original_context, 1, MAX_CONTEXT);
    if (!get_float(r, "rope.scaling.factor", &p->scaling_factor, 1e-6, 1e6)) get_float(r, "rope.scale_linear", &p->scaling_factor, 1e-6, 1e6);
    bool named = gguf_get_string(r->g, key_of(r, "rope.scaling.type"), &s, &e);
    if (e.code != HEARTH_OK) {
        r->failed = true;
        err_set(r->e, e.code, "%s", e.text);
        return;
    }
    if (!named) p->scaling = p->scaling_factor != 1 ? SCALING_LINEAR : SCALING_NONE;
    else if (s.len == 4 && !memcmp(s.data, "none", 4)) p->scaling = SCALING_NONE;
    else if (s.len == 6 && !memcmp(s.data, "linear", 6)) p->scaling = SCALING_LINEAR;
    else if (s.len == 4 && !memcmp(s.data, "yarn", 4)) p->scaling = SCALING_YARN;
    else if (s.len == 8 && !memcmp(s.data, "longrope", 8)) p->scaling = SCALING_LONG;
    else {
        char quoted[64];
        r->failed = true;
        err_set(r->e, HEARTH_UNSUPPORTED, "the rope scaling '%s' is not known; hearth knows none, linear, yarn and longrope",
                err_quote(quoted, sizeof quoted, s.data, s.len));
        return;
    }
    get_float(r, "rope.scaling.yarn_beta_fast", &p->beta_fast, 1e-3, 1e6);
    get_float(r, "rope.scaling.yarn_beta_slow", &p->beta_slow, 1e-3, 1e6);
    if (p->scaling == SCALING_YARN && p->scaling_factor > 1) p->attn_factor = 0.1f * logf(p->scaling_factor) + 1;
    float extra = 1;
    if (get_float(r, "rope.scaling.attn_factor", &extra, 1e-6, 1e6)) p->attn_factor *= extra;
}

static void read_rope(reader *r, model_params *p) {
    p->n_rot = (p->arch->traits & ARCH_LATENT) ? 0 : p->k_dim;
    get_int(r, "rope.dimension_count", &p->n_rot, 2, MAX_WIDTH);
    if (r->failed) return;
    bool latent = (p->arch->traits & ARCH_LATENT) != 0;
    if (p->n_rot < 2 || p->n_rot % 2 || p->n_rot > p->k_dim || (latent && p->n_rot >= p->k_dim)) {
        r->failed = true;
        err_set(r->e, HEARTH_FORMAT, "%d dimensions of heads of size %d cannot be rotated", p->n_rot, p->k_dim);
        return;
    }
    p->rope_base = 10000;
    get_float(r, "rope.freq_base", &p->rope_base, 1, 1e12);
    p->rope_base_window = strcmp(p->arch->name, "gemma3") == 0 ? 10000 : p->rope_base;
    get_float(r, "rope.freq_base_swa", &p->rope_base_window, 1, 1e12);
    read_scaling(r, p);
}

static void read_scales(reader *r, model_params *p) {
    p->embed_scale = p->residual_scale = p->logit_scale = 1;
    if (p->arch->traits & ARCH_EMBED_SQRT) p->embed_scale = sqrtf((float)p->n_embd);
    get_float(r, "embedding_scale", &p->embed_scale, -1e6, 1e6);
    get_float(r, "residual_scale", &p->residual_scale, -1e6, 1e6);
    float divisor = 1;
    bool there = get_float(r, "logit_scale", &divisor, 1e-6, 1e6);
    if (!there && !r->failed && (p->arch->traits & ARCH_SCALES)) fail_missing(r);
    p->logit_scale = 1 / divisor;
    /* The largest Gemma models scale by the width per head instead of the head size. */
    bool gemma_27b = (p->n_layers == 46 && !strcmp(p->arch->name, "gemma2")) || (p->n_layers == 62 && !strcmp(p->arch->name, "gemma3"));
    p->attention_scale = 1 / sqrtf((float)(gemma_27b ? p->n_embd / p->layers[0].n_heads : p->k_dim));
    float scale = 0;
    if (get_float(r, "attention.scale", &scale, 0, 1e6) && scale != 0) p->attention_scale = scale;
    get_float(r, "attn_logit_softcapping", &p->attention_cap, 0, 1e6);
    get_float(r, "final_logit_softcapping", &p->logit_cap, 0, 1e6);
    /* Latent attention with YaRN: the query-key product is scaled once more; files hold a tenth of the
     * published mscale_all_dim, and cos and sin then stay unscaled. */
    float log_mul = 0;
    if ((p->arch->traits & ARCH_LATENT) && get_float(r, "rope.scaling.yarn_log_multiplier", &log_mul, 0, 1e3) && p->scaling == SCALING_YARN &&
        p->scaling_factor > 1) {
        float m = log_mul * logf(p->scaling_factor) + 1;
        p->attention_scale *= m * m;
        p->attn_factor /= 0.1f * logf(p->scaling_factor) + 1;
    }
}

static bool read_window_pattern(reader *r, model_params *p) {
    const gguf_kv *kv = gguf_find(r->g, key_of(r, "attention.sliding_window_pattern"));
    int period = p->arch->window_period;
    if (kv && kv->type == GGUF_ARRAY) {
        if (kv->item == GGUF_STRING || kv->item == GGUF_ARRAY || kv->count < (uint64_t)p->n_layers) {
            r->failed = true;
            return err_set(r->e, HEARTH_FORMAT, "the metadata key %s does not say for each of %d layers whether it has a window", r->key, p->n_layers);
        }
        for (int i = 0; i < p->n_layers; i++) p->layers[i].windowed = gguf_item_i64(kv, (uint64_t)i) != 0;
        return true;
    }
    if (kv) get_int(r, "attention.sliding_window_pattern", &period, 1, MAX_LAYERS);
    for (int i = 0; i < p->n_layers; i++) p->layers[i].windowed = period == 1 || i % period < period - 1;
    return true;
}

static void read_windows(reader *r, model_params *p) {
    for (int i = 0; i < p->n_layers; i++) p->layers[i].rotated = p->arch->no_rope_period == 0 || (i + 1) % p->arch->no_rope_period != 0;
    if (p->arch->window_period == 0) return;
    p->window = p->arch->window_default;
    get_int(r, "attention.sliding_window", &p->window, 0, MAX_CONTEXT);
    if (p->window > 0 && !r->failed) read_window_pattern(r, p);
}

static void read_experts(reader *r, model_params *p) {
    get_int(r, "expert_count", &p->n_experts, 0, MAX_HEADS);
    if (p->n_experts == 0) {
        if ((p->arch->traits & ARCH_EXPERTS) && !r->failed) fail_missing(r);
        return;
    }
    need_int(r, "expert_used_count", &p->n_used, 1, p->n_experts);
    p->n_ff_expert = p->layers[0].n_ff;
    get_int(r, "expert_feed_forward_length", &p->n_ff_expert, 1, MAX_WIDTH);
    int shared = 0, dense = 0, gating = 0;
    get_int(r, "expert_shared_count", &shared, 0, MAX_HEADS);
    if (shared && p->n_ff_expert > MAX_WIDTH / shared) fail_range(r, shared, 0, MAX_WIDTH / p->n_ff_expert);
    if (r->failed) return;
    p->n_ff_shared = shared * p->n_ff_expert;
    get_int(r, "expert_shared_feed_forward_length", &p->n_ff_shared, 0, MAX_WIDTH);
    get_int(r, "leading_dense_block_count", &dense, 0, p->n_layers);
    for (int i = 0; i < p->n_layers; i++) p->layers[i].experts = i >= dense;
    p->n_groups = p->n_groups_used = 1;
    get_int(r, "expert_group_count", &p->n_groups, 1, MAX_GROUPS);
    get_int(r, "expert_group_used_count", &p->n_groups_used, 1, p->n_groups);
    if (!r->failed && (p->n_experts % p->n_groups || p->n_experts / p->n_groups * p->n_groups_used < p->n_used)) {
        r->failed = true;
        err_set(r->e, HEARTH_FORMAT, "%d experts in %d groups, of which %d are used, cannot give %d experts", p->n_experts, p->n_groups, p->n_groups_used, p->n_used);
    }
    p->gating = p->arch->gating;
    if (get_int(r, "expert_gating_func", &gating, 0, 3) && gating > 0)
        p->gating = gating == 1 ? GATING_SOFTMAX : gating == 2 ? GATING_SIGMOID : GATING_SOFTMAX_CHOSEN;
    /* DeepSeek V3 files may leave the function out; only its sigmoid router has a selection bias. */
    else if ((p->arch->traits & ARCH_LATENT) && !r->failed) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.exp_probs_b.bias", dense);
        if (gguf_find_tensor(r->g, name)) p->gating = GATING_SIGMOID;
    }
    p->norm_chosen = (p->arch->traits & ARCH_NORM_CHOSEN) != 0;
    get_flag(r, "expert_weights_norm", &p->norm_chosen);
    p->expert_scale = 1;
    get_float(r, "expert_weights_scale", &p->expert_scale, 0, 1e6);
    if (p->expert_scale == 0) p->expert_scale = 1; /* written by some converters for "none" */
}

bool model_params_read(model_params *p, const gguf *g, err *e) {
    *p = (model_params){0};
    gguf_string name;
    if (!gguf_get_string(g, "general.architecture", &name, e))
        return err_set(e, HEARTH_FORMAT, "the metadata key general.architecture is missing");
    p->arch = arch_find(name.data, name.len, e);
    if (!p->arch) return false;
    const gguf_tensor *embd = gguf_find_tensor(g, "token_embd.weight");
    if (!embd) return err_set(e, HEARTH_FORMAT, "the tensor token_embd.weight is missing: the file holds a vocabulary but no model");
    if (embd->n_dims != 2 || embd->ne[1] > MAX_WIDTH) return err_set(e, HEARTH_FORMAT, "the tensor token_embd.weight has no shape that an embedding can have");
    p->n_vocab = (int)embd->ne[1];

    reader r = {.g = g, .prefix = p->arch->name, .e = e};
    need_int(&r, "block_count", &p->n_layers, 1, MAX_LAYERS);
    need_int(&r, "context_length", &p->n_context, 1, MAX_CONTEXT);
    need_int(&r, "embedding_length", &p->n_embd, 1, MAX_WIDTH);
    if (r.failed) return false;
    if ((uint64_t)p->n_layers > gguf_n_tensors(g))
        return err_set(e, HEARTH_FORMAT, "the file names %d layers but holds only %zu tensors", p->n_layers, gguf_n_tensors(g));
    if (!get_float(&r, "attention.layer_norm_rms_epsilon", &p->eps, 0, 1) && !r.failed) fail_missing(&r);
    p->layers = mem_zalloc((size_t)p->n_layers, sizeof *p->layers, e);
    if (!p->layers) return false;
    /* Prediction layers for several tokens at once, at the end of some files, are no part of the model. */
    int extra = 0;
    get_int(&r, "nextn_predict_layers", &extra, 0, p->n_layers - 1);
    p->n_layers -= extra;
    get_int(&r, "pooling_type", &p->pooling, POOLING_NONE, POOLING_RANK);
    if (!r.failed) read_heads(&r, p);
    if (!r.failed) read_rope(&r, p);
    if (!r.failed) read_scales(&r, p);
    if (!r.failed) read_windows(&r, p);
    if (!r.failed) read_experts(&r, p);
    if (r.failed) model_params_free(p);
    return !r.failed;
}

void model_params_free(model_params *p) {
    mem_free(p->layers);
    p->layers = NULL;
}
