#include "model/arch.h"

#include <string.h>

static const arch archs[] = {
    {"llama", ROPE_PAIRS, ACT_SILU, GATING_SOFTMAX, ARCH_PRE_NORM | ARCH_NORM_CHOSEN, 1, 0, 0, "ffn_norm"},
    {"qwen2", ROPE_HALVES, ACT_SILU, GATING_SOFTMAX, ARCH_PRE_NORM | ARCH_QKV_BIAS, 0, 0, 0, "ffn_norm"},
    {"qwen3", ROPE_HALVES, ACT_SILU, GATING_SOFTMAX, ARCH_PRE_NORM | ARCH_QK_NORM_HEAD, 0, 0, 0, "ffn_norm"},
    {"qwen3moe", ROPE_HALVES, ACT_SILU, GATING_SOFTMAX, ARCH_PRE_NORM | ARCH_QK_NORM_HEAD | ARCH_EXPERTS | ARCH_NORM_CHOSEN, 0, 0, 0, "ffn_norm"},
    {"gemma2", ROPE_HALVES, ACT_GELU, GATING_SOFTMAX, ARCH_PRE_NORM | ARCH_POST_NORM | ARCH_EMBED_SQRT, 2, 4096, 0, "ffn_norm"},
    {"gemma3", ROPE_HALVES, ACT_GELU, GATING_SOFTMAX, ARCH_PRE_NORM | ARCH_POST_NORM | ARCH_QK_NORM_HEAD | ARCH_EMBED_SQRT, 6, 0, 0, "ffn_norm"},
    {"granite", ROPE_PAIRS, ACT_SILU, GATING_SOFTMAX, ARCH_PRE_NORM | ARCH_SCALES, 0, 0, 0, "ffn_norm"},
    {"granitemoe", ROPE_PAIRS, ACT_SILU, GATING_SOFTMAX, ARCH_PRE_NORM | ARCH_SCALES | ARCH_EXPERTS | ARCH_NORM_CHOSEN, 0, 0, 0, "ffn_norm"},
    {"deepseek2", ROPE_PAIRS, ACT_SILU, GATING_SOFTMAX, ARCH_PRE_NORM | ARCH_LATENT, 0, 0, 0, "ffn_norm"},
    {"phi3", ROPE_HALVES, ACT_SILU, GATING_SOFTMAX, ARCH_PRE_NORM | ARCH_FUSED_UP, 1, 0, 0, "ffn_norm"},
    {"gpt-oss", ROPE_HALVES, ACT_CLAMPED, GATING_SOFTMAX_CHOSEN, ARCH_PRE_NORM | ARCH_EXPERTS | ARCH_SINKS | ARCH_BIASES | ARCH_YARN_EXACT, 2, 0, 0,
     "post_attention_norm"},
    {"olmo2", ROPE_HALVES, ACT_SILU, GATING_SOFTMAX, ARCH_POST_NORM | ARCH_QK_NORM_WHOLE, 0, 0, 0, "ffn_norm"},
    {"smollm3", ROPE_PAIRS, ACT_SILU, GATING_SOFTMAX, ARCH_PRE_NORM, 0, 0, 4, "ffn_norm"},
};
enum { N_ARCHS = sizeof archs / sizeof *archs };

const arch *arch_find(const char *name, size_t len, err *e) {
    for (int i = 0; i < N_ARCHS; i++)
        if (strlen(archs[i].name) == len && memcmp(archs[i].name, name, len) == 0) return &archs[i];
    char known[256] = "", quoted[64];
    for (int i = 0; i < N_ARCHS; i++) {
        if (i) strcat(known, ", ");
        strcat(known, archs[i].name);
    }
    err_set(e, HEARTH_UNSUPPORTED, "the architecture '%s' is not known; hearth runs %s", err_quote(quoted, sizeof quoted, name, len), known);
    return NULL;
}
