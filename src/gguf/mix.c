/* mix.c: which tensor gets which number format. The rules are those that published files of the same names follow, so that a
 * Q4_K_M made here is what people expect of a Q4_K_M. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "gguf/quantize.h"
#include "quant/quant.h"

/* The numbers are those of general.file_type. */
enum {
    MIX_F32 = 0,
    MIX_F16 = 1,
    MIX_Q4_0 = 2,
    MIX_Q4_1 = 3,
    MIX_Q8_0 = 7,
    MIX_Q5_0 = 8,
    MIX_Q5_1 = 9,
    MIX_Q2_K = 10,
    MIX_Q3_K_S = 11,
    MIX_Q3_K_M = 12,
    MIX_Q3_K_L = 13,
    MIX_Q4_K_S = 14,
    MIX_Q4_K_M = 15,
    MIX_Q5_K_S = 16,
    MIX_Q5_K_M = 17,
    MIX_Q6_K = 18,
    MIX_IQ4_NL = 25,
    MIX_IQ4_XS = 30,
    MIX_BF16 = 32,
    MIX_TQ1_0 = 36,
    MIX_TQ2_0 = 37,
    MIX_MXFP4_MOE = 38,
};

static const gguf_mix mixes[] = {
    {"F32", MIX_F32, QUANT_F32},          {"F16", MIX_F16, QUANT_F16},          {"BF16", MIX_BF16, QUANT_BF16},
    {"Q8_0", MIX_Q8_0, QUANT_Q8_0},       {"Q6_K", MIX_Q6_K, QUANT_Q6_K},       {"Q5_K_M", MIX_Q5_K_M, QUANT_Q5_K},
    {"Q5_K_S", MIX_Q5_K_S, QUANT_Q5_K},   {"Q5_1", MIX_Q5_1, QUANT_Q5_1},       {"Q5_0", MIX_Q5_0, QUANT_Q5_0},
    {"Q4_K_M", MIX_Q4_K_M, QUANT_Q4_K},   {"Q4_K_S", MIX_Q4_K_S, QUANT_Q4_K},   {"Q4_1", MIX_Q4_1, QUANT_Q4_1},
    {"Q4_0", MIX_Q4_0, QUANT_Q4_0},       {"IQ4_NL", MIX_IQ4_NL, QUANT_IQ4_NL}, {"IQ4_XS", MIX_IQ4_XS, QUANT_IQ4_XS},
    {"Q3_K_L", MIX_Q3_K_L, QUANT_Q3_K},   {"Q3_K_M", MIX_Q3_K_M, QUANT_Q3_K},   {"Q3_K_S", MIX_Q3_K_S, QUANT_Q3_K},
    {"Q2_K", MIX_Q2_K, QUANT_Q2_K},       {"TQ2_0", MIX_TQ2_0, QUANT_TQ2_0},    {"TQ1_0", MIX_TQ1_0, QUANT_TQ1_0},
    {"MXFP4_MOE", MIX_MXFP4_MOE, QUANT_MXFP4},
    /* Names people use for the usual kind of the size. */
    {"Q5_K", MIX_Q5_K_M, QUANT_Q5_K},     {"Q4_K", MIX_Q4_K_M, QUANT_Q4_K},     {"Q3_K", MIX_Q3_K_M, QUANT_Q3_K},
};

const gguf_mix *gguf_mix_at(size_t i) { return i < sizeof mixes / sizeof *mixes ? &mixes[i] : NULL; }

const gguf_mix *gguf_mix_find(const char *name, err *e) {
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        if (strcasecmp(mixes[i].name, name) == 0) return &mixes[i];
    char list[400] = "", quoted[40];
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++) {
        if (i > 0) strcat(list, ", ");
        strcat(list, mixes[i].name);
    }
    err_set(e, HEARTH_ARGUMENT, "'%s' is no known mix; known are %s", err_quote(quoted, sizeof quoted, name, strlen(name)), list);
    return NULL;
}

/* ---- what a tensor is ---- */

typedef enum role { ROLE_OUTPUT, ROLE_EMBEDDING, ROLE_ATTN_V, ROLE_ATTN_K, ROLE_ATTN_OUT, ROLE_FFN_DOWN, ROLE_OTHER } role;

static bool has(gguf_string s, const char *part) { return memmem(s.data, s.len, part, strlen(part)) != NULL; }
static bool is(gguf_string s, const char *text) { return s.len == strlen(text) && memcmp(s.data, text, s.len) == 0; }
static bool ends(gguf_string s, const char *tail) {
    size_t n = strlen(tail);
    return s.len >= n && memcmp(s.data + s.len - n, tail, n) == 0;
}

static role role_of(gguf_string name) {
    if (is(name, "output.weight")) return ROLE_OUTPUT;
    if (is(name, "token_embd.weight") || is(name, "per_layer_token_embd.weight")) return ROLE_EMBEDDING;
    if (has(name, "attn_qkv.weight") || has(name, "attn_kv_b.weight") || has(name, "attn_v.weight")) return ROLE_ATTN_V;
    if (has(name, "attn_k.weight")) return ROLE_ATTN_K;
    if (has(name, "attn_output.weight")) return ROLE_ATTN_OUT;
    if (has(name, "ffn_down")) return ROLE_FFN_DOWN;
    return ROLE_OTHER;
}

/* "blk.12.": 12; -1 when the name has no such start. */
static int64_t layer_of(gguf_string name) {
    if (name.len < 6 || memcmp(name.data, "blk.", 4) != 0) return -1;
    int64_t n = 0;
    size_t i = 4;
    for (; i < name.len && name.data[i] >= '0' && name.data[i] <= '9' && n < 100000; i++) n = n * 10 + (name.data[i] - '0');
    return i > 4 && i < name.len && name.data[i] == '.' ? n : -1;
}

/* Norms, gates and tables are small and sensitive: they are kept as they are. */
static bool worth_changing(const gguf_tensor *t) {
    static const char *const kept[] = {
        "_norm.weight", "ffn_gate_inp", "altup", "laurel", "per_layer_model_proj", "position_embd", "token_types", "ssm_conv1d", "shortconv.conv",
        "time_mix_",    "attn_rel_b",   ".rel_pos", ".patch_embd", "rope_freqs", "rope_factors",
    };
    if (t->n_dims < 2 || !ends(t->name, "weight")) return false;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (has(t->name, kept[i])) return false;
    return true;
}

/* A number of the architecture; of an array its largest. Absurd ones only change the choice of formats. */
static uint64_t arch_number(const gguf *g, gguf_string arch, const char *suffix, uint64_t otherwise) {
    char key[128];
    if (arch.len > 64) return otherwise;
    memcpy(key, arch.data, arch.len);
    strcpy(key + arch.len, suffix);
    uint64_t value = otherwise;
    const gguf_kv *array = gguf_get_array(g, key, GGUF_TYPES, NULL);
    if (!array) {
        gguf_get_u64(g, key, &value, NULL);
        return value;
    }
    int64_t most = 0;
    for (uint64_t i = 0; i < array->count; i++) {
        if (array->item == GGUF_STRING || array->item == GGUF_ARRAY) return otherwise;
        if (gguf_item_i64(array, i) > most) most = gguf_item_i64(array, i);
    }
    return (uint64_t)most;
}

gguf_mix_facts gguf_mix_facts_of(const gguf *g) {
    gguf_mix_facts f = {.heads_per_kv = 1, .tied = !gguf_find_tensor(g, "output.weight")};
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        int64_t layer = layer_of(gguf_tensor_at(g, i)->name);
        if (layer >= f.layers) f.layers = layer + 1;
    }
    gguf_string arch;
    if (!gguf_get_string(g, "general.architecture", &arch, NULL)) return f;
    f.experts = arch_number(g, arch, ".expert_count", 0);
    uint64_t heads = arch_number(g, arch, ".attention.head_count", 0);
    uint64_t kv_heads = arch_number(g, arch, ".attention.head_count_kv", heads);
    if (kv_heads > 0) f.heads_per_kv = heads / kv_heads;
    return f;
}

/* ---- the rules ---- */

/* The first and last eighth of the layers, and every third between, deserve more bits. */
static bool deserves_more(int64_t layer, int64_t n) { return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2; }

static int choose_attn_v(const gguf_mix *mix, const gguf_mix_facts *f, int64_t layer) {
    int type = mix->type;
    switch (mix->file_type) {
    case MIX_Q2_K: type = f->heads_per_kv >= 4 ? QUANT_Q4_K : QUANT_Q3_K; break;
    case MIX_Q3_K_M: type = layer < 2 ? QUANT_Q5_K : QUANT_Q4_K; break;
    case MIX_Q3_K_L: type = QUANT_Q5_K; break;
    case MIX_Q4_K_S: if (layer < 4) type = QUANT_Q5_K; break;
    case MIX_Q4_K_M:
    case MIX_Q5_K_M: if (deserves_more(layer, f->layers)) type = QUANT_Q6_K; break;
    case MIX_IQ4_NL:
    case MIX_IQ4_XS: if (f->heads_per_kv >= 4) type = QUANT_Q5_K; break;
    default: break;
    }
    /* Where many heads share it, the tensor is small, and bits are cheap. */
    if (f->layers == 80 && f->heads_per_kv > 1 && (type == QUANT_Q3_K || type == QUANT_Q4_K)) type = QUANT_Q5_K;
    return f->experts == 8 ? QUANT_Q8_0 : type;
}

static int choose_ffn_down(const gguf_mix *mix, const gguf_mix_facts *f, int64_t layer) {
    switch (mix->file_type) {
    case MIX_Q2_K: return QUANT_Q3_K;
    case MIX_Q3_K_M: return layer < f->layers / 16 ? QUANT_Q5_K : QUANT_Q4_K;
    case MIX_Q3_K_L: return QUANT_Q5_K;
    case MIX_Q4_K_M:
    case MIX_Q5_K_M: return deserves_more(layer, f->layers) ? QUANT_Q6_K : mix->type;
    case MIX_Q4_K_S:
    case MIX_IQ4_NL:
    case MIX_IQ4_XS: return layer < f->layers / 8 ? QUANT_Q5_K : mix->type;
    default: return mix->type;
    }
}

static int choose_attn_out(const gguf_mix *mix, const gguf_mix_facts *f) {
    switch (mix->file_type) {
    case MIX_Q2_K: return f->experts == 8 ? QUANT_Q5_K : QUANT_Q3_K;
    case MIX_Q3_K_M: return f->experts == 8 ? QUANT_Q5_K : QUANT_Q4_K;
    case MIX_Q3_K_L: return f->experts == 8 ? QUANT_Q3_K : QUANT_Q5_K;
    case MIX_Q3_K_S:
    case MIX_Q4_K_S:
    case MIX_Q4_K_M:
    case MIX_IQ4_NL:
    case MIX_IQ4_XS: return f->experts == 8 ? QUANT_Q5_K : mix->type;
    default: return mix->type;
    }
}

static int choose(const gguf_mix *mix, const gguf_mix_facts *f, const gguf_tensor *t) {
    if (mix->type == QUANT_F32 || mix->type == QUANT_F16 || mix->type == QUANT_BF16) return mix->type;
    role r = role_of(t->name);
    int64_t layer = layer_of(t->name);
    if (r == ROLE_OUTPUT || (r == ROLE_EMBEDDING && f->tied)) {
        bool small = mix->type == QUANT_Q8_0 || mix->type == QUANT_MXFP4;
        return small || t->ne[0] % 256 != 0 ? QUANT_Q8_0 : QUANT_Q6_K;
    }
    if (mix->file_type == MIX_MXFP4_MOE) return t->n_dims > 2 && t->ne[2] > 1 && has(t->name, "_exps") ? QUANT_MXFP4 : QUANT_Q8_0;
    switch (r) {
    case ROLE_EMBEDDING: return mix->type == QUANT_TQ1_0 || mix->type == QUANT_TQ2_0 ? QUANT_Q4_K : mix->type;
    case ROLE_ATTN_V: return choose_attn_v(mix, f, layer);
    case ROLE_ATTN_K: return f->experts == 8 ? QUANT_Q8_0 : mix->type;
    case ROLE_ATTN_OUT: return choose_attn_out(mix, f);
    case ROLE_FFN_DOWN: return choose_ffn_down(mix, f, layer);
    default: return mix->type;
    }
}

/* A format that rows of this length allow, near to the one that was wanted. */
static int fit(int type, int64_t columns) {
    static const struct {
        int wanted, instead;
    } near[] = {
        {QUANT_Q2_K, QUANT_Q4_0}, {QUANT_Q3_K, QUANT_Q4_0},    {QUANT_TQ1_0, QUANT_Q4_0}, {QUANT_TQ2_0, QUANT_Q4_0},
        {QUANT_Q4_K, QUANT_Q5_0}, {QUANT_Q5_K, QUANT_Q5_1},    {QUANT_Q6_K, QUANT_Q8_0},  {QUANT_IQ4_XS, QUANT_IQ4_NL},
    };
    const quant_info *q = quant_find(type);
    if (!q || columns % q->block == 0) return type;
    for (size_t i = 0; i < sizeof near / sizeof *near && columns % 32 == 0; i++)
        if (near[i].wanted == type) return near[i].instead;
    return QUANT_F16;
}

int gguf_mix_type(const gguf_mix *mix, const gguf_mix_facts *facts, const gguf_tensor *t, bool *squeezed) {
    const quant_info *now = quant_find(t->type);
    *squeezed = false;
    if (!now || !now->decode) return t->type; /* integers */
    if (mix->type == QUANT_F32) return QUANT_F32;
    if (!worth_changing(t)) return t->type;
    int wanted = choose(mix, facts, t), type = fit(wanted, t->ne[0]);
    *squeezed = type != wanted;
    return type;
}
