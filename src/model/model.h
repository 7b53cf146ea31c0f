/* model.h: a model's weights and the forward pass.
 *
 *   params.c    hyperparameters, checked
 *   tensors.c   one table of tensor names and shapes, loaded and checked
 *   rope.c      rotation tables
 *   product.c   products with weights, through the weight cache
 *   experts.c   routing and mixture of experts
 *   forward.c   the forward pass, top to bottom */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "base/pool.h"
#include "kernels/matmul.h"
#include "kv/kv.h"
#include "model/params.h"
#include "weights/weights.h"

/* A weight: one matrix, or with experts n of them of the same shape. data is NULL when the model has none. */
typedef struct weight {
    kern_weight mat;       /* the first (or only) matrix */
    int n;
    size_t stride;         /* bytes from one matrix to the next */
    int handle;            /* 1 + the first one's id in the weight cache; 0: it is not there */
} weight;

/* Matrices point into the file's mapping. Vectors are float, owned by the model; NULL when absent. */
typedef struct model_layer {
    float *attn_norm, *attn_post_norm, *ffn_norm, *ffn_post_norm;
    /* attention: fused or apart */
    weight q, k, v, qkv, out;
    float *q_bias, *k_bias, *v_bias, *qkv_bias, *out_bias;
    float *q_norm, *k_norm, *sinks;
    /* latent attention */
    weight q_a, q_b, kv_a, k_b, v_b, kv_b;
    float *q_a_norm, *kv_a_norm;
    /* feed-forward */
    weight gate, up, down;
    float *gate_bias, *up_bias, *down_bias;
    /* experts: a router, many small feed-forward parts, and one that is always used */
    weight router, gate_exps, up_exps, down_exps, gate_shared, up_shared, down_shared;
    float *router_bias, *choice_bias, *gate_exps_bias, *up_exps_bias, *down_exps_bias;
} model_layer;

/* Inverse frequencies of n_rot / 2 pairs, for layers that see all and for windowed ones. */
typedef struct model_rope {
    float *full, *window;
    float *full_long;      /* longrope: for conversations beyond the original context; else NULL */
    float factor;
} model_rope;

typedef struct model {
    model_params params;
    const gguf *file;
    const kernels *kern;
    weights *cache;        /* NULL: weights are used as they lie in the file */
    model_layer *layers;
    weight embed, output;
    float *output_norm;
    model_rope rope;
    kv_layout kv;
    void **owned;          /* memory of vectors and derived weights */
    size_t n_owned, cap_owned;
} model;

/* g must stay open while the model lives. k_type, v_type: what keys and values are kept as. */
bool model_load(model *m, const gguf *g, const kernels *k, int k_type, int v_type, err *e);
void model_free(model *m);
/* Memory that lives as long as the model. */
void *model_own(model *m, size_t count, size_t size, err *e);

/* Registers all matrices with w, which must be new and outlive the model, and uses them through it from then on. The caller starts it. */
bool model_use_cache(model *m, weights *w, err *e);

bool model_load_tensors(model *m, err *e);
bool model_load_rope(model *m, err *e);

/* cos and sin of n_rot / 2 angles for position. */
void rope_angles(const model *m, const float *inverse_frequencies, int64_t position, float *cosines, float *sines);
/* Rotates the first n_rot dimensions of a head. */
void rope_rotate(arch_rope style, float *head, int n_rot, const float *cosines, const float *sines);

/* Buffers of a forward pass, grown on demand; one per running pass. Zero-initialised is empty. */
typedef struct model_run {
    pool *pool;
    weights_walk walk;
    kern_scratch scratch;
    void *memory;
    size_t bytes;
    uint64_t waited_ns; /* of the last pass, so far: for keys and values that were still arriving */
    struct model_pass *pass; /* the one under way, or the last */
    bool fine;          /* in smaller steps */
} model_run;
void model_run_free(model_run *r);

/* The most tokens that one pass takes. */
enum { MODEL_CHUNK = 512 };

/* One conversation's share of a pass: n >= 1 tokens that follow those in kv. */
typedef struct model_part {
    kv_seq *kv;
    const int32_t *tokens;
    int n;
    int n_logits;      /* logits are wanted for this many tokens at the end */
    float *hidden;     /* not NULL: receives the normed hidden state of each of the n tokens, n_embd floats each */
    bool long_context; /* rotate with the frequencies for conversations beyond the original context */
} model_part;

/* Computes all parts' tokens (MODEL_CHUNK at most in total) in one pass and extends their kv. logits receives n_vocab values for each
 * token that wants them, part after part. A token's results do not depend on what else is in the pass. On failure every kv is as before; when a block of one
 * turned out to be damaged (HEARTH_FORMAT), kv_seq_mend tells of which. */
bool model_forward(const model *m, model_run *r, const model_part *parts, int n_parts, float *logits, err *e);
/* The same in steps, two for each layer (attention, feed-forward) or five (r->fine), and at last the logits: passes of other runs can be computed between them. Until it is done, or given up, the parts stay
 * where they are and their kv are left alone. Giving up needs no call. */
bool model_begin(const model *m, model_run *r, const model_part *parts, int n_parts, err *e);
bool model_step(model_run *r, float *logits, bool *done, err *e);
/* Between two layers: only the first n_parts go on; what was computed of the others is forgotten. */
void model_go_on_with(model_run *r, int n_parts);
enum { MODEL_LAYER_STEPS = 5 }; /* at most */
int model_layer_steps(const model *m, const model_run *r);
int model_steps(const model *m, const model_run *r); /* of a pass */

/* A matrix in its ready form, held until it is given back. */
typedef struct taken {
    kern_weight mat;
    const kern_weight *held;
} taken;
taken model_take(const model *m, const weight *w, int i); /* the ith of several */
void model_give(const model *m, taken *t);
/* Which weights (KERN_SHARED at most) the product after the next one reads: memory is asked for them when it has nothing else to do. */
void model_expect(const model *m, model_run *r, const weight *const *w, int count);
/* Products of up to KERN_SHARED weights with the same x; y[i] has ldy[i] floats from token to token. */
bool model_multiply(const model *m, model_run *r, const weight *const *w, int count, const float *x, int64_t ldx, int64_t n, float *const *y,
                    const int64_t *ldy, err *e);
/* The same, where make makes x shortly before it is read. */
bool model_multiply_made(const model *m, model_run *r, const weight *const *w, int count, kern_make *make, void *context, const float *x, int64_t ldx, int64_t n,
                         float *const *y, const int64_t *ldy, err *e);
/* One product for what is chosen by, logits and experts: where many tokens are multiplied with less precision, it is computed for few at a time. */
bool model_multiply_exact(const model *m, model_run *r, const weight *w, const float *x, int64_t ldx, int64_t n, float *y, int64_t ldy, err *e);
/* What is done between the products of a feed-forward part, for some columns of one token: biases (NULL: none), then the activation, of gate and up to the place of gate. */
typedef struct model_join {
    const model *m;
    const float *gate_bias, *up_bias;
} model_join;
void model_join_columns(void *context, float *gate, float *up, int64_t first, int64_t n); /* a kern_join; the context is a model_join */
/* y = w[2] . join(w[0] . x, w[1] . x): see kern_mul_gated; part < 0: all of it, else see kern_mul_gated_part. */
bool model_multiply_gated(const model *m, model_run *r, const weight *const w[3], model_join *join, int part, const float *x, int64_t ldx, int64_t n, float *y, int64_t ldy, err *e);

/* The feed-forward part of a layer with experts, for n tokens: y = moe(x), where y may be x. Scratch floats and ints as model_experts_floats / _ints say. */
bool model_experts(const model *m, const model_layer *l, model_run *r, const float *x, float *y, int n, float *scratch, int *ints, err *e);
size_t model_experts_floats(const model_params *p, int n);
size_t model_experts_ints(const model_params *p, int n);
/* y = activation(gate) * up */
void model_activate(const model *m, float *y, const float *gate, const float *up, int64_t n);

#endif
