/* ref: plain C, the truth that the other sets are compared with and the exact path (--cpu ref). Weights are decoded to
 * float, products are summed in double in a fixed order. A token's result depends on nothing but the token:
 * not on how many are computed together, nor on how rows are split over threads. */
#include <math.h>
#include <string.h>

#include "kernels/sets.h"
#include "quant/quant.h"

#define LANES 8      /* partial sums, so that the compiler can use vectors of any width with one result */
#define CHUNK 1024   /* weights decoded at a time; a multiple of every block */
#define TOKENS 32    /* tokens that share a decoded chunk */

static bool ref_usable(void) { return true; }

static void dot_add(double acc[LANES], const float *a, const float *b, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) acc[l] += (double)a[i + l] * (double)b[i + l];
    for (int l = 0; i < n; i++, l++) acc[l] += (double)a[i] * (double)b[i];
}

static double lanes_sum(const double acc[LANES]) {
    double s = 0;
    for (int l = 0; l < LANES; l++) s += acc[l];
    return s;
}

static double dot_exact(const float *a, const float *b, int64_t n) {
    double acc[LANES] = {0};
    dot_add(acc, a, b, n);
    return lanes_sum(acc);
}

static float ref_dot(const float *a, const float *b, int64_t n) { return (float)dot_exact(a, b, n); }

/* The product. Activations stay as they are. */

static size_t ref_act_bytes(int64_t cols, int64_t n) { return (size_t)cols * (size_t)n * sizeof(float); }

static void ref_act(void *dst, const float *x, int64_t ldx, int64_t cols, int64_t n, kern_part p) {
    (void)n;
    for (int64_t t = p.t0; t < p.t1; t++) memcpy((float *)dst + t * cols + p.c0, x + t * ldx, (size_t)(p.c1 - p.c0) * sizeof(float));
}

static void ref_rows(int type, float *y, int64_t ldy, const void *w, int64_t cols, int64_t r0, int64_t r1, const float *x, int64_t n) {
    const quant_info *info = quant_find(type);
    size_t row_bytes = quant_bytes(info, (uint64_t)cols);
    float chunk[CHUNK];
    double acc[TOKENS][LANES];
    for (int64_t r = r0; r < r1; r++) {
        const uint8_t *row = (const uint8_t *)w + (size_t)r * row_bytes;
        for (int64_t t0 = 0; t0 < n; t0 += TOKENS) {
            int64_t tokens = n - t0 < TOKENS ? n - t0 : TOKENS;
            memset(acc, 0, sizeof acc);
            for (int64_t c = 0; c < cols; c += CHUNK) {
                int64_t len = cols - c < CHUNK ? cols - c : CHUNK;
                info->decode(chunk, row + quant_bytes(info, (uint64_t)c), len);
                for (int64_t t = 0; t < tokens; t++) dot_add(acc[t], chunk, x + (t0 + t) * cols + c, len);
            }
            for (int64_t t = 0; t < tokens; t++) y[(t0 + t) * ldy + r] = (float)lanes_sum(acc[t]);
        }
    }
}

#define X(name, number, block, bytes)                                                                                               \
    static void rows_##name(float *y, int64_t ldy, const void *w, int64_t rows, int64_t cols, int64_t r0, int64_t r1, const void *act,   \
                            int64_t n) {                                                                                            \
        (void)rows;                                                                                                                 \
        ref_rows(number, y, ldy, w, cols, r0, r1, act, n);                                                                          \
    }
QUANT_TYPES(X)
#undef X

static const kern_matmul products[QUANT_TYPE_END] = {
#define X(name, number, block, bytes) \
    [number] = {.act_bytes = ref_act_bytes, .act = ref_act, .act_step = 1, .rows = rows_##name, .row_step = 1},
    QUANT_TYPES(X)
#undef X
};

static const kern_matmul *ref_matmul(int type) {
    const quant_info *info = quant_find(type);
    return info && info->decode ? &products[type] : NULL;
}

/* Attention: one pass over the keys with a running maximum; every query on its own, sums in double. */

typedef struct running {
    double max, sum;
} running;

/* Room for a row of dim numbers in whole blocks. */
static int row_floats(int dim) { return (dim + 31) & ~31; }

static const float *kv_row(const kern_attention *a, int type, const uint8_t *const *blocks, size_t stride, int64_t pos, int dim, float *decoded) {
    const uint8_t *row = blocks[pos / a->block] + (size_t)(pos % a->block) * stride;
    const quant_info *info = quant_find(type);
    info->decode(decoded, row, (dim + info->block - 1) / info->block * info->block);
    return decoded;
}

/* Adds one value with its score to a query's sums. */
static void add_value(running *s, double *acc, const float *value, int dim, double score) {
    if (score > s->max) {
        double shrink = exp(s->max - score);
        s->sum *= shrink;
        for (int i = 0; i < dim; i++) acc[i] *= shrink;
        s->max = score;
    }
    double weight = exp(score - s->max);
    s->sum += weight;
    for (int i = 0; i < dim; i++) acc[i] += weight * (double)value[i];
}

static void ref_attention(const kern_attention *a) {
    double *acc = (double *)(void *)a->scratch;
    running *state = (running *)(void *)(acc + (size_t)a->n_q * (size_t)a->v_dim);
    float *k_row = (float *)(state + a->n_q), *v_row = k_row + row_floats(a->k_dim);
    memset(acc, 0, (size_t)a->n_q * (size_t)a->v_dim * sizeof *acc);
    int64_t first = INT64_MAX, last = -1;
    for (int q = 0; q < a->n_q; q++) {
        state[q] = (running){.max = -INFINITY, .sum = 0};
        if (a->first[q] < first) first = a->first[q];
        if (a->last[q] > last) last = a->last[q];
    }
    for (int64_t pos = first; pos <= last; pos++) {
        const float *key = kv_row(a, a->k_type, a->k, a->k_stride, pos, a->k_dim, k_row);
        const float *value = kv_row(a, a->v_type, a->v, a->v_stride, pos, a->v_dim, v_row);
        for (int q = 0; q < a->n_q; q++) {
            if (pos < a->first[q] || pos > a->last[q]) continue;
            double score = dot_exact(a->q + q * a->ldq, key, a->k_dim) * (double)a->scale;
            if (a->cap > 0) score = (double)a->cap * tanh(score / (double)a->cap);
            add_value(&state[q], acc + (size_t)q * (size_t)a->v_dim, value, a->v_dim, score);
        }
    }
    for (int q = 0; q < a->n_q; q++) {
        double sum = state[q].sum, shrink = 1;
        if (a->sink) {
            /* The sink takes its share and has no value. */
            double max = fmax(state[q].max, (double)a->sink[q]);
            shrink = exp(state[q].max - max);
            sum = sum * shrink + exp((double)a->sink[q] - max);
        }
        double factor = sum > 0 ? shrink / sum : 0;
        for (int i = 0; i < a->v_dim; i++) a->out[q * a->ldo + i] = (float)(acc[(size_t)q * (size_t)a->v_dim + i] * factor);
    }
}

/* The rest. */

static void ref_rms_norm(float *y, const float *x, const float *weight, int64_t n, float eps) {
    double factor = 1 / sqrt(dot_exact(x, x, n) / (double)n + (double)eps);
    for (int64_t i = 0; i < n; i++) y[i] = (float)((double)x[i] * factor) * (weight ? weight[i] : 1);
}

static void ref_add(float *y, const float *x, float scale, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] += scale * x[i];
}

static void ref_silu_mul(float *y, const float *gate, const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = (float)((double)gate[i] / (1 + exp(-(double)gate[i]))) * up[i];
}

static void ref_gelu_mul(float *y, const float *gate, const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double g = gate[i], inner = 0.7978845608028654 * (g + 0.044715 * g * g * g);
        y[i] = (float)(0.5 * g * (1 + tanh(inner))) * up[i];
    }
}

static void ref_to_f16(uint16_t *dst, const float *src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = quant_f32_to_f16(src[i]);
}

static void ref_to_blocks(int type, void *dst, const float *src, int64_t n) {
    const quant_info *info = quant_find(type);
    for (uint8_t *at = dst; n > 0; n -= 32, src += 32, at += info->bytes) {
        float x[32] = {0};
        bool finite = true;
        memcpy(x, src, (size_t)(n < 32 ? n : 32) * sizeof *x);
        for (int i = 0; i < 32; i++) finite &= isfinite(x[i]) != 0;
        info->encode(at, x, 32);
        if (!finite) memcpy(at, &(uint16_t){0x7E00}, 2); /* the scale is not a number */
    }
}

const kernels kern_ref = {
    .name = "ref",
    .usable = ref_usable,
    .matmul = ref_matmul,
    .attention = ref_attention,
    .rms_norm = ref_rms_norm,
    .add = ref_add,
    .silu_mul = ref_silu_mul,
    .gelu_mul = ref_gelu_mul,
    .to_f16 = ref_to_f16,
    .to_blocks = ref_to_blocks,
    .dot = ref_dot,
};
