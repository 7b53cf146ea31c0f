/* params.h: the hyperparameters of a model, read from the metadata and checked. */
#ifndef MODEL_PARAMS_H
#define MODEL_PARAMS_H

#include "gguf/gguf.h"
#include "model/arch.h"

enum { MAX_GROUPS = 256 }; /* of experts */

typedef struct layer_params {
    int n_heads, n_kv_heads;
    int n_ff;       /* width of the dense feed-forward part */
    bool windowed;  /* sees only the last `window` positions */
    bool rotated;   /* has rope */
    bool experts;   /* routed experts in place of the dense part */
} layer_params;

typedef enum rope_scaling { SCALING_NONE, SCALING_LINEAR, SCALING_YARN, SCALING_LONG } rope_scaling;

/* How hidden states become one vector, numbered as in files. */
typedef enum pooling { POOLING_NONE, POOLING_MEAN, POOLING_FIRST, POOLING_LAST, POOLING_RANK } pooling;

typedef struct model_params {
    const arch *arch;
    int n_layers;
    int n_embd;
    int n_vocab;       /* rows of the embedding */
    int n_context;     /* positions it was trained for */
    int k_dim, v_dim;  /* per head, as attention computes them (for latent attention after expansion) */
    int window;        /* 0: none */
    float eps;

    /* rope */
    int n_rot;
    float rope_base, rope_base_window;
    rope_scaling scaling;
    float scaling_factor;
    int original_context;
    float attn_factor;          /* multiplies cos and sin */
    float beta_fast, beta_slow; /* YaRN */

    /* scales */
    float embed_scale, residual_scale, logit_scale; /* logits are multiplied by it */
    float attention_scale;
    float attention_cap, logit_cap; /* 0: none */

    /* experts */
    int n_experts, n_used, n_ff_expert, n_ff_shared; /* n_ff_shared: width of all shared experts together */
    int n_groups, n_groups_used;
    arch_gating gating;
    bool norm_chosen;
    float expert_scale;

    /* latent attention */
    int q_rank, kv_rank; /* q_rank 0: queries are not compressed */

    int pooling;         /* POOLING_NONE: the file does not say */

    layer_params *layers;
} model_params;

bool model_params_read(model_params *p, const gguf *g, err *e);
void model_params_free(model_params *p);

#endif
