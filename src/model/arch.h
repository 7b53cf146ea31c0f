/* arch.h: what distinguishes one architecture from another, as data. The forward pass reads these and the
 * hyperparameters; it has no per-model code. */
#ifndef MODEL_ARCH_H
#define MODEL_ARCH_H

#include "base/err.h"

/* How the rotated part of a head is paired: (0,1)(2,3).. or (0,n/2)(1,n/2+1).. */
typedef enum arch_rope { ROPE_PAIRS, ROPE_HALVES } arch_rope;

typedef enum arch_activation {
    ACT_SILU,
    ACT_GELU,    /* tanh form */
    ACT_CLAMPED, /* gpt-oss: gate and up clamped at 7, gate * sigmoid(1.702 gate) * (up + 1) */
} arch_activation;

typedef enum arch_gating {
    GATING_SOFTMAX,        /* over all experts, then choose */
    GATING_SIGMOID,        /* each on its own, then choose */
    GATING_SOFTMAX_CHOSEN, /* choose by logit, then softmax over the chosen */
} arch_gating;

enum {
    ARCH_PRE_NORM = 1 << 0,      /* a norm before attention and before the feed-forward part */
    ARCH_POST_NORM = 1 << 1,     /* a norm after each, before it is added */
    ARCH_QK_NORM_HEAD = 1 << 2,  /* queries and keys are normed per head */
    ARCH_QK_NORM_WHOLE = 1 << 3, /* ... or over all heads together */
    ARCH_EXPERTS = 1 << 4,       /* must have experts; without it they are optional */
    ARCH_NORM_CHOSEN = 1 << 5,   /* weights of the chosen experts are made to sum to 1, unless the file says otherwise */
    ARCH_LATENT = 1 << 6,        /* multi-head latent attention */
    ARCH_SINKS = 1 << 7,         /* an extra logit per head in the softmax */
    ARCH_FUSED_UP = 1 << 8,      /* ffn_up holds gate and up, one after the other */
    ARCH_EMBED_SQRT = 1 << 9,    /* embeddings are multiplied by sqrt(width) */
    ARCH_BIASES = 1 << 10,       /* attention, router and experts must have biases */
    ARCH_SCALES = 1 << 11,       /* logits are divided by logit_scale, which must be there */
    ARCH_YARN_EXACT = 1 << 12,   /* YaRN's correction range is not rounded to whole dimensions */
    ARCH_QKV_BIAS = 1 << 13,     /* queries, keys and values must have biases */
};

typedef struct arch {
    const char *name;
    arch_rope rope;
    arch_activation activation;
    arch_gating gating;
    unsigned traits;
    int window_period;  /* of a model with a sliding window: every nth layer sees all; 1: none does */
    int window_default; /* when the file names no window; 0: no window then */
    int no_rope_period; /* every nth layer has no rotation; 0: all have */
    const char *ffn_norm; /* the name of the norm before the feed-forward part */
} arch;

/* Refuses an unknown name with the list of known ones. */
const arch *arch_find(const char *name, size_t len, err *e);

#endif
