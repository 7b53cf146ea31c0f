/* matmul.h: products of weights with activations on a pool of threads. The activations are prepared once for all
 * weights that read them, then rows are handed to the threads in ranges. */
#ifndef KERNELS_MATMUL_H
#define KERNELS_MATMUL_H

#include "base/pool.h"
#include "kernels/kernels.h"

typedef struct kern_weight {
    int type;            /* of quant.h */
    int64_t rows, cols;  /* cols is a multiple of the type's block */
    const void *data;    /* as in the file */
    const void *packed;  /* from kern_matmul.pack of the same set, or NULL */
    bool fine;           /* many tokens are multiplied in bfloat16 also where bytes would be faster */
} kern_weight;

#define KERN_SHARED 4 /* most weights that read the same activations in one call */

/* Memory for prepared activations; zero-initialised is empty, grows on demand, freed by its owner. One per caller:
 * two products at once need two. */
typedef struct kern_scratch {
    void *data;
    size_t cap;
    struct kern_range {
        const char *at;
        size_t bytes;
    } next[KERN_SHARED]; /* what the product after the next one reads: of few tokens, threads that wait ask for its beginning. Forgotten then */
    int n_next;
} kern_scratch;
void kern_scratch_free(kern_scratch *s);

/* y[t * ldy + r] = row r of w . x[t * ldx ...] for n tokens. Fails when memory runs out and when the type cannot be computed with. */
bool kern_mul(const kernels *k, pool *p, const kern_weight *w, const float *x, int64_t ldx, int64_t n, float *y, int64_t ldy, kern_scratch *s,
              err *e);

/* Makes columns [first, first + n) of a token's x. */
typedef void kern_make(void *context, int64_t token, int64_t first, int64_t n);

/* The same for several weights (at most KERN_SHARED, equal cols) that read the same x: q, k and v; gate and up. y[i] has ldy[i] floats from token to
 * token. make (NULL: x is there already) is called with context to make x, shortly before it is read. */
bool kern_mul_many(const kernels *k, pool *p, const kern_weight *const *w, int count, kern_make *make, void *context, const float *x, int64_t ldx, int64_t n,
                   float *const *y, const int64_t *ldy, kern_scratch *s, err *e);

/* Mixture of experts: each group is one expert with the tokens routed to it. All groups run in one parallel loop. */
typedef struct kern_group {
    const kern_weight *w[KERN_SHARED]; /* weights that read the same tokens */
    float *y[KERN_SHARED];             /* token i of the group goes to y[j] + i * ldy[j] */
    int64_t ldy[KERN_SHARED];
    int count;
    const float *x;        /* token i of the group is x + tokens[i] * ldx, or x + i * ldx when tokens is NULL */
    int64_t ldx;
    const int32_t *tokens;
    int64_t n;             /* 0 is allowed and computes nothing */
} kern_group;
bool kern_mul_groups(const kernels *k, pool *p, const kern_group *groups, int count, kern_scratch *s, err *e);

/* y = down . h, where join makes h of gate . x and up . x: columns [first, first + n) of one token, of both results, to the place of the first. Few rows of both are
 * computed at a time for all tokens, joined and prepared for down while they are near; whole, they would go to memory and back. */
typedef void kern_join(void *context, float *gate, float *up, int64_t first, int64_t n);
typedef struct kern_gated {
    const kern_weight *gate, *up, *down;
    kern_join *join;
    void *context;
    const float *x;        /* as in kern_group */
    int64_t ldx;
    const int32_t *tokens;
    int64_t n;             /* 0 is allowed and computes nothing; the weights may be NULL then */
    float *y;
    int64_t ldy;
} kern_gated;
/* For one such or for a mixture of experts, all in the same parallel loops. */
bool kern_mul_gated(const kernels *k, pool *p, const kern_gated *groups, int count, kern_scratch *s, err *e);
/* The same in KERN_GATED_PARTS calls with the same groups, one for each part in their order, each about a third of the work. Until the last one s is used for nothing else, and x stays as it is. */
enum { KERN_GATED_PARTS = 3 };
bool kern_mul_gated_part(const kernels *k, pool *p, const kern_gated *groups, int count, int part, kern_scratch *s, err *e);
/* Whether that is faster than one product after the other: by the rows of all gates that have tokens, and by how many tokens there are. */
bool kern_gated_pays(const pool *p, int64_t rows, int64_t n);
/* The same for one group alone with a single token. */
bool kern_gated_one_pays(int64_t n);

#endif
