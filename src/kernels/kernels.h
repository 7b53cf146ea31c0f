/* kernels.h: tables of functions that do the arithmetic. `ref` is plain C in float, the truth; the others
 * override entries for an instruction set and are picked at run time. Every function works on the part it is given
 * and starts no threads: splitting the work is the caller's (see matmul.h).
 *
 * Shapes: x is [tokens][cols], a weight is [rows][cols], y is [tokens][rows], all row-major. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include "base/err.h"

/* Tokens [t0, t1) and columns [c0, c1) of activations. */
typedef struct kern_part {
    int64_t t0, t1, c0, c1;
} kern_part;
#define KERN_COLUMNS 256 /* columns are parted at multiples of this */

/* Product of a weight matrix of one type with activations, in two steps: the activations are prepared
 * once (quantized, laid out), then any range of rows is computed from the prepared form. */
typedef struct kern_matmul {
    /* Activations of n tokens in prepared form: bytes needed, and the preparation of a part of them. x is column c0 of token 0, and tokens are ldx floats
     * apart. Two types with the same act function share the prepared form. */
    size_t (*act_bytes)(int64_t cols, int64_t n);
    void (*act)(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t n, kern_part part);
    int act_step; /* tokens are parted at multiples of this */
    int many;     /* with so many tokens or more the product is computed in another way, in bfloat16 and not bit for bit the same; 0: never */
    /* y[t * ldy + r] for r in [r0, r1) and all n tokens, from the weight as it lies in the file. r0 is a multiple of row_step, and
     * so is r1 unless it is the last row. */
    void (*rows)(float *y, int64_t ldy, const void *w, int64_t rows, int64_t cols, int64_t r0, int64_t r1, const void *act, int64_t n);
    int row_step;
    /* Packing of a weight (rows [r0, r1), same multiples) into a layout that is faster to read, and the same product from it, bit for
     * bit. NULL: there is none. Packed memory is 64-byte aligned. */
    size_t (*packed_bytes)(int64_t rows, int64_t cols);
    void (*pack)(void *dst, const void *src, int64_t rows, int64_t cols, int64_t r0, int64_t r1);
    void (*rows_packed)(float *y, int64_t ldy, const void *w, int64_t rows, int64_t cols, int64_t r0, int64_t r1, const void *act, int64_t n);
    /* One token's products with rows [r0, r1) of two packed weights, multiples of row_step: read in turns, because memory gives some cores more at two places than at one. The same bits. NULL: there
     * is none. */
    void (*pairs_packed)(float *const y[2], const void *const w[2], int64_t cols, int64_t r0, int64_t r1, const void *act);
} kern_matmul;

/* Attention of a few queries of one KV head over one sequence's keys and values, which lie in runs of tokens
 * (blocks) and are float, half, or quantized rows of blocks of 32 numbers. Scores are q.k * scale, soft-capped when cap > 0, then softmax with an optional
 * extra logit (sink) that takes part in the sum only. */
typedef struct kern_attention {
    const float *q;        /* n_q rows of k_dim */
    int64_t ldq;
    float *out;            /* n_q rows of v_dim */
    int64_t ldo;
    int n_q;
    const int64_t *first;  /* per query: first visible position */
    const int64_t *last;   /* per query: last visible position, inclusive */
    const float *sink;     /* per query a logit, or NULL */
    int k_dim, v_dim;
    float scale, cap;
    int k_type, v_type;    /* QUANT_F32, QUANT_F16, QUANT_Q8_0 or QUANT_Q4_0 */
    const uint8_t *const *k; /* per block: first key row of this head; k_stride bytes between rows */
    const uint8_t *const *v;
    size_t k_stride, v_stride;
    int block;             /* tokens per block */
    float *scratch;        /* kern_attention_scratch floats, 64-byte aligned */
} kern_attention;

/* Enough for every set. */
size_t kern_attention_scratch(int n_q, int k_dim, int v_dim);

typedef struct kernels {
    const char *name;
    bool (*usable)(void);
    /* The product for a weight type; NULL when this set has none of its own (the next lower set is asked; ref has all). */
    const kern_matmul *(*matmul)(int type);
    /* The same with more precision for many tokens (and the same bits for few); NULL: it is the same. */
    const kern_matmul *(*matmul_fine)(int type);
    void (*attention)(const kern_attention *a);
    int attention_many; /* with so many queries or more attention is computed in another way, in bfloat16 and not bit for bit the same; 0: never */
    int attention_rows; /* queries that a call should have at most, where there are many; 0: no wish */
    void (*rms_norm)(float *y, const float *x, const float *weight, int64_t n, float eps); /* weight may be NULL; y may be x */
    void (*add)(float *y, const float *x, float scale, int64_t n);     /* y += scale * x */
    void (*silu_mul)(float *y, const float *gate, const float *up, int64_t n); /* y = silu(gate) * up */
    void (*gelu_mul)(float *y, const float *gate, const float *up, int64_t n); /* tanh form */
    void (*to_f16)(uint16_t *dst, const float *src, int64_t n);
    /* n numbers as blocks of QUANT_Q8_0 or QUANT_Q4_0, the last one filled up with zeros. A block with a number that is not finite decodes to nothing but such. */
    void (*to_blocks)(int type, void *dst, const float *src, int64_t n);
    float (*dot)(const float *a, const float *b, int64_t n);
} kernels;

/* By name; NULL or "auto" is the best that this CPU runs. An unknown or unusable name is an error that lists the usable ones. */
const kernels *kernels_find(const char *name, err *e);
/* All sets of this build, best first, NULL-terminated. */
const kernels *const *kernels_all(void);
/* The product for a type, from k or the best set below it. NULL for types that cannot be computed with. */
const kern_matmul *kernels_matmul(const kernels *k, int type);
const kern_matmul *kernels_matmul_fine(const kernels *k, int type);

#endif
