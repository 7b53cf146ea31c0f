/* kernel_check.h: random weights and activations for checking kernels against ref, shared by the unit test and bench/kernels.c, which also
 * runs where no test library is. */
#ifndef TESTS_KERNEL_CHECK_H
#define TESTS_KERNEL_CHECK_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/kernels.h"
#include "quant/quant.h"

static inline uint64_t check_next(uint64_t *s) {
    uint64_t z = (*s += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
static inline double check_double(uint64_t *s) { return (double)(check_next(s) >> 11) * 0x1p-53; }
static inline float check_normal(uint64_t *s) {
    double u = check_double(s), v = check_double(s);
    return (float)(sqrt(-2 * log(u + 1e-300)) * cos(6.283185307179586 * v));
}

/* Where the half-precision scales of a block lie; -1: none. */
static inline void check_scale_fields(int type, int at[2]) {
    at[0] = 0, at[1] = -1;
    switch (type) {
    case QUANT_Q4_1: case QUANT_Q5_1: case QUANT_Q4_K: case QUANT_Q5_K: at[1] = 2; break;
    case QUANT_Q2_K: at[0] = 80, at[1] = 82; break;
    case QUANT_Q3_K: at[0] = 108; break;
    case QUANT_Q6_K: at[0] = 208; break;
    case QUANT_TQ1_0: at[0] = 52; break;
    case QUANT_TQ2_0: at[0] = 64; break;
    case QUANT_Q4_0: case QUANT_Q5_0: case QUANT_Q8_0: case QUANT_IQ4_NL: case QUANT_IQ4_XS: case QUANT_IQ2_XXS: case QUANT_IQ2_XS:
    case QUANT_IQ2_S: case QUANT_IQ3_XXS: case QUANT_IQ3_S: case QUANT_IQ1_S: break;
    default: at[0] = -1;
    }
}

/* Random bits in the quantized fields, ordinary numbers in the scales: every code of a format occurs. */
static inline void check_weights(uint8_t *w, const quant_info *info, int64_t n, uint64_t *s) {
    float decoded[256];
    int at[2];
    check_scale_fields(info->type, at);
    for (int64_t i = 0; i < n / info->block; i++, w += info->bytes) {
        for (;;) {
            for (int b = 0; b < info->bytes; b++) w[b] = (uint8_t)check_next(s);
            for (int f = 0; f < 2; f++) {
                uint16_t h = quant_f32_to_f16(check_normal(s) * 0.01f);
                if (at[f] >= 0) memcpy(w + at[f], &h, 2);
            }
            if (info->type == QUANT_MXFP4) w[0] = (uint8_t)(110 + check_next(s) % 20);
            if (info->type == QUANT_F32) memcpy(w, &(float){check_normal(s)}, 4);
            if (info->type == QUANT_F64) memcpy(w, &(double){check_normal(s)}, 8);
            if (info->type == QUANT_F16) memcpy(w, &(uint16_t){quant_f32_to_f16(check_normal(s))}, 2);
            if (info->type == QUANT_BF16) memcpy(w, &(uint16_t){quant_f32_to_bf16(check_normal(s))}, 2);
            info->decode(decoded, w, info->block);
            bool fine = true;
            for (int b = 0; b < info->block; b++) fine &= fabsf(decoded[b]) < 1e5f;
            if (fine) break;
        }
    }
}

/* Activations that survive quantization to bytes (with a scale per 32 up to 256 columns) and rounding to 8 bits unchanged: whole numbers up to 127, which
 * occurs in every 32 columns, times one power of two per token. What is left of the error is the order of float sums. */
static inline void check_exact_activations(float *x, int64_t n, float scale, uint64_t *s) {
    for (int64_t i = 0; i < n; i++) x[i] = (float)((int)(check_next(s) % 255) - 127) * scale;
    for (int64_t i = 0; i < n; i += 32) x[i + (int64_t)(check_next(s) % (uint64_t)(n - i < 32 ? n - i : 32))] = check_next(s) & 1 ? 127 * scale : -127 * scale;
}

/* Sum of |w| |x|: what rounding errors are measured by. */
static inline double check_magnitude(const quant_info *info, const uint8_t *row, const float *x, int64_t cols) {
    double sum = 0;
    float decoded[256];
    for (int64_t c = 0; c < cols; c += info->block) {
        info->decode(decoded, row + quant_bytes(info, (uint64_t)c), info->block);
        for (int i = 0; i < info->block; i++) sum += fabs((double)decoded[i] * (double)x[c + i]);
    }
    return sum;
}

#define CHECK_GUARD 37 /* floats between the rows of a result that must stay as they are */

/* One product on random data. */
typedef struct check_case {
    int type;
    int64_t rows, cols, n;
    bool exact;  /* activations that survive quantization */
    bool packed;
    float scale; /* of the activations */
} check_case;

/* The largest error of a product against ref, as a fraction of the sum of |w| |x|. Negative: something was written outside the result, or the result
 * of a token or row depends on its neighbours. */
static inline double check_product(const kernels *k, const check_case *c, uint64_t seed) {
    const quant_info *info = quant_find(c->type);
    const kern_matmul *m = kernels_matmul(k, c->type), *ref = kernels_matmul(kernels_find("ref", NULL), c->type);
    const int64_t rows = c->rows, cols = c->cols, n = c->n, ldy = rows + CHECK_GUARD;
    const size_t row_bytes = quant_bytes(info, (uint64_t)cols);
    uint8_t *w = mem_alloc((size_t)rows, row_bytes, NULL); /* no room behind: the address sanitizer sees a read too far */
    float *x = mem_alloc((size_t)(n * cols), 4, NULL), *y = mem_alloc((size_t)(n * ldy), 4, NULL), *z = mem_alloc((size_t)(n * ldy), 4, NULL);
    check_weights(w, info, rows * cols, &seed);
    for (int64_t t = 0; t < n; t++) {
        if (c->exact) check_exact_activations(x + t * cols, cols, c->scale, &seed);
        else for (int64_t i = 0; i < cols; i++) x[t * cols + i] = check_normal(&seed) * c->scale;
    }
    for (int64_t i = 0; i < n * ldy; i++) y[i] = z[i] = 12345;
    void *act = mem_aligned(m->act_bytes(cols, n), 1, NULL), *plain = mem_aligned(ref->act_bytes(cols, n), 1, NULL);
    void *pack = c->packed ? mem_aligned(m->packed_bytes(rows, cols), 1, NULL) : NULL;
    const int64_t token = n / 2 / m->act_step * m->act_step, column = cols > KERN_COLUMNS ? KERN_COLUMNS : cols; /* in parts too */
    m->act(act, x, cols, cols, n, (kern_part){0, token, 0, column});
    m->act(act, x, cols, cols, n, (kern_part){token, n, 0, column});
    if (column < cols) m->act(act, x + column, cols, cols, n, (kern_part){0, n, column, cols});
    ref->act(plain, x, cols, cols, n, (kern_part){0, n, 0, cols});
    ref->rows(z, ldy, w, rows, cols, 0, rows, plain, n);
    int64_t split = rows / 2 / m->row_step * m->row_step; /* in two parts, as threads would */
    if (c->packed) {
        m->pack(pack, w, rows, cols, 0, split);
        m->pack(pack, w, rows, cols, split, rows);
        m->rows_packed(y, ldy, pack, rows, cols, 0, split, act, n);
        m->rows_packed(y, ldy, pack, rows, cols, split, rows, act, n);
    } else {
        m->rows(y, ldy, w, rows, cols, 0, split, act, n);
        m->rows(y, ldy, w, rows, cols, split, rows, act, n);
    }
    double worst = 0;
    for (int64_t t = 0; t < n; t++)
        for (int64_t r = 0; r < ldy; r++) {
            if (r >= rows) {
                if (y[t * ldy + r] != 12345 && worst >= 0) worst = -1;
                continue;
            }
            double size = check_magnitude(info, w + (size_t)r * row_bytes, x + t * cols, cols);
            double off = fabs((double)y[t * ldy + r] - (double)z[t * ldy + r]) / (size > 0 ? size : 1);
            if (worst >= 0 && !(off <= worst)) worst = off;
        }
    /* The last token alone (or with as few as are computed in the same way), from the file's layout and in one part, must have the same bits. */
    const int64_t few = m->many && n >= m->many ? m->many : 1;
    m->act(act, x + (n - few) * cols, cols, cols, few, (kern_part){0, few, 0, cols});
    m->rows(z, ldy, w, rows, cols, 0, rows, act, few);
    if (worst >= 0 && memcmp(z + (few - 1) * ldy, y + (n - 1) * ldy, (size_t)rows * sizeof(float)) != 0) worst = -2;
    /* One token's rows in pairs: the same bits too, and nothing else is written. */
    if (c->packed && few == 1 && m->pairs_packed && rows >= 2 * m->row_step) {
        const int64_t pair = rows / m->row_step / 2 * m->row_step, part = pair / 2 / m->row_step * m->row_step;
        for (int64_t i = 0; i < n * ldy; i++) y[i] = 12345;
        float *const to[2] = {y, y + pair};
        const void *const from[2] = {pack, (const char *)pack + m->packed_bytes(pair, cols)};
        m->pairs_packed(to, from, cols, 0, part, act);
        m->pairs_packed(to, from, cols, part, pair, act);
        if (worst >= 0 && memcmp(z, y, (size_t)(2 * pair) * sizeof(float)) != 0) worst = -3;
        for (int64_t i = 2 * pair; i < n * ldy; i++)
            if (y[i] != 12345 && worst >= 0) worst = -1;
    }
    mem_free(w), mem_free(x), mem_free(y), mem_free(z), mem_free(act), mem_free(plain), mem_free(pack);
    return worst;
}

/* What check_product may return. Exact activations: only float sums differ, at most one rounding (6e-8) per 32 columns and a few for scales; products of many tokens
 * in bfloat16 round each weight by up to 2^-9. Others: the rounding of an activation to a byte is at most 1/254 of the largest of its 32 (up to 256)
 * columns, about 3 times the mean size; a sum of such errors with random signs stays far below the sum of their sizes. */
static inline double check_limit(const kernels *k, const check_case *c) {
    const int many = kernels_matmul(k, c->type)->many;
    /* In bfloat16, or in bytes with a scale per 256 columns: where the scale of 32 columns outweighs the others, 256 roundings to 1/127 of its range against 32 weights
     * of half of it are 0.0023 of the sum of sizes (standard deviation), and this is the worst of thousands. */
    if (many && c->n >= many) return c->exact ? 1e-2 : 1.5e-2;
    return c->exact ? 2e-6 : 2e-2;
}

/* ---- attention ---- */

typedef struct check_att {
    int n_q, k_dim, v_dim;
    int64_t keys, window; /* 0: all keys */
    int k_type, v_type;
    float cap;
    bool sink;
} check_att;

/* Blocks as long as the kernels' runs of keys, and shorter ones. */
#define CHECK_BLOCK(c) ((c)->keys % 2 ? 32 : 64)

typedef struct check_att_data {
    kern_attention a;
    float *q, *out, *sink;
    int64_t *first, *last;
    uint8_t **k, **v;
} check_att_data;

static inline size_t check_row_bytes(int type, int dim) {
    const quant_info *info = quant_find(type);
    return quant_bytes(info, (uint64_t)((dim + info->block - 1) / info->block * info->block));
}

/* Rows of normal numbers, `stride` bytes apart, with nothing behind the last. In every fourth block of a quantized type the codes are random. */
static inline uint8_t *check_rows(int64_t rows, int dim, size_t stride, int type, uint64_t *s) {
    const quant_info *info = quant_find(type);
    const size_t row_bytes = check_row_bytes(type, dim);
    uint8_t *p = mem_zalloc((size_t)(rows - 1) * stride + row_bytes, 1, NULL);
    for (int64_t r = 0; r < rows; r++)
        for (size_t b = 0; b * (size_t)info->bytes < row_bytes; b++) {
            float x[32];
            uint8_t *at = p + (size_t)r * stride + b * (size_t)info->bytes;
            for (int i = 0; i < info->block; i++) x[i] = (int64_t)b * info->block + i < dim ? check_normal(s) : 0;
            info->encode(at, x, info->block);
            for (int i = 2; i < info->bytes && info->block > 1 && b % 4 == 1; i++) at[i] = (uint8_t)check_next(s);
        }
    return p;
}

static inline void check_att_make(check_att_data *d, const check_att *c, uint64_t s) {
    const int ldq = c->k_dim + 3, ldo = c->v_dim + 5;
    const size_t k_stride = check_row_bytes(c->k_type, c->k_dim) + 16, v_stride = check_row_bytes(c->v_type, c->v_dim);
    const size_t n = (size_t)c->n_q, blocks = (size_t)((c->keys + CHECK_BLOCK(c) - 1) / CHECK_BLOCK(c));
    d->q = mem_alloc(n * (size_t)ldq, 4, NULL), d->out = mem_alloc(n * (size_t)ldo, 4, NULL), d->sink = mem_alloc(n, 4, NULL);
    d->first = mem_alloc(n, sizeof *d->first, NULL), d->last = mem_alloc(n, sizeof *d->last, NULL);
    d->k = mem_zalloc(blocks, sizeof *d->k, NULL), d->v = mem_zalloc(blocks, sizeof *d->v, NULL);
    for (size_t i = 0; i < n * (size_t)ldq; i++) d->q[i] = check_normal(&s) * 2;
    for (size_t b = 0; b < blocks; b++) {
        /* Rows that do not exist are not there, so that the address sanitizer sees a read of them. */
        const int64_t left = c->keys - (int64_t)b * CHECK_BLOCK(c), rows = left < CHECK_BLOCK(c) ? left : CHECK_BLOCK(c);
        d->k[b] = check_rows(rows, c->k_dim, k_stride, c->k_type, &s);
        d->v[b] = check_rows(rows, c->v_dim, v_stride, c->v_type, &s);
    }
    for (int q = 0; q < c->n_q; q++) {
        d->last[q] = c->keys - 1 - (c->n_q - 1 - q) / 2;
        if (d->last[q] < 0) d->last[q] = 0;
        d->first[q] = c->window && d->last[q] >= c->window ? d->last[q] - c->window + 1 : 0;
        d->sink[q] = check_normal(&s);
    }
    d->a = (kern_attention){.q = d->q, .ldq = ldq, .out = d->out, .ldo = ldo, .n_q = c->n_q, .first = d->first, .last = d->last,
                            .sink = c->sink ? d->sink : NULL, .k_dim = c->k_dim, .v_dim = c->v_dim, .scale = 1 / sqrtf((float)c->k_dim),
                            .cap = c->cap, .k_type = c->k_type, .v_type = c->v_type, .k = (const uint8_t *const *)d->k, .v = (const uint8_t *const *)d->v,
                            .k_stride = k_stride, .v_stride = v_stride, .block = CHECK_BLOCK(c),
                            .scratch = mem_aligned(kern_attention_scratch(c->n_q, c->k_dim, c->v_dim), 4, NULL)};
}

static inline void check_att_free(check_att_data *d, const check_att *c) {
    for (int64_t b = 0; b * CHECK_BLOCK(c) < c->keys; b++) mem_free(d->k[b]), mem_free(d->v[b]);
    mem_free(d->q), mem_free(d->out), mem_free(d->sink), mem_free(d->first), mem_free(d->last), mem_free(d->k), mem_free(d->v), mem_free(d->a.scratch);
}

/* What check_attention may return. Values are of size one and the weights sum to one; float sums over the keys and an exponential good to 2e-7 stay within the first
 * limit. In bfloat16 a score (of up to 8 or so) is off by at most 2^-8 of the sum of sizes that it is made of, mostly far less, and so is its weight. For quantized keys queries are rounded to 15 bits, which
 * moves a score by about 1e-4. */
static inline double check_att_limit(const kernels *k, const check_att *c) {
    if (k->attention_many && c->n_q >= k->attention_many) return 2e-2; /* where one key takes all, a value of up to 4.5 and its weight, each rounded by up to 2^-9 */
    /* Rounding a query to 15 bits moves a score by up to 3e-4 or so; where two keys share the weight, a quarter of that moves from one value to another, up to 9 apart. */
    return c->k_type == QUANT_Q8_0 || c->k_type == QUANT_Q4_0 ? 1e-3 : 2e-5;
}

/* The largest difference to ref. Negative: something was written outside the result, or a query alone (or with as few as are computed in the same way) gets other
 * bits. */
static inline double check_attention(const kernels *k, const check_att *c, uint64_t seed) {
    check_att_data d;
    check_att_make(&d, c, seed);
    const int64_t ldo = d.a.ldo, floats = c->n_q * ldo;
    float *truth = mem_alloc((size_t)floats, 4, NULL);
    kernels_find("ref", NULL)->attention(&d.a);
    memcpy(truth, d.out, (size_t)floats * 4);
    for (int64_t i = 0; i < floats; i++) d.out[i] = 777;
    k->attention(&d.a);
    double worst = 0;
    for (int64_t i = 0; i < floats; i++) {
        if (i % ldo >= c->v_dim) {
            if (d.out[i] != 777) worst = -1;
        } else if (worst >= 0 && !(fabs((double)d.out[i] - (double)truth[i]) <= worst)) {
            worst = fabs((double)d.out[i] - (double)truth[i]);
        }
    }
    memcpy(truth, d.out, (size_t)floats * 4);
    const int few = k->attention_many && c->n_q >= k->attention_many ? k->attention_many : 1, q = (c->n_q - few) / 2;
    d.a.n_q = few, d.a.q += q * d.a.ldq, d.a.first += q, d.a.last += q, d.a.out += q * ldo;
    if (d.a.sink) d.a.sink += q;
    k->attention(&d.a);
    for (int i = q; i < q + few; i++)
        if (worst >= 0 && memcmp(truth + i * ldo, d.out + i * ldo, (size_t)c->v_dim * 4) != 0) worst = -2;
    mem_free(truth);
    check_att_free(&d, c);
    return worst;
}

/* ---- along a vector ---- */

static inline bool check_close(const float *got, const float *want, int64_t n, double limit) {
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= limit * (1e-30 + fabs((double)want[i])))) return false;
    return got[n] == 777;
}

/* Numbers as blocks and back: each is off by at most half a step (in Q4_0, which has no code for the largest with the other sign, by a whole one) and what rounding the scale to a half adds. A number that
 * is not finite spoils its block and no other. */
static inline bool check_blocks(const kernels *k, int type, const float *x, int n) {
    const quant_info *info = quant_find(type);
    const int padded = (n + 31) / 32 * 32;
    uint8_t packed[10 * 34 + 1];
    float y[320];
    packed[padded / 32 * info->bytes] = 77;
    k->to_blocks(type, packed, x, n);
    info->decode(y, packed, padded);
    for (int b = 0; b < padded; b += 32) {
        float most = 0, step = 1.0f / (type == QUANT_Q8_0 ? 254 : 8) + 0x1p-11f;
        bool finite = true;
        for (int i = b; i < b + 32 && i < n; i++) most = fmaxf(most, fabsf(x[i])), finite &= isfinite(x[i]) != 0;
        for (int i = b; i < b + 32; i++)
            if (finite ? !(fabsf(y[i] - (i < n ? x[i] : 0)) <= 1.001f * step * most + 1e-5f) : !isnan(y[i])) return false;
    }
    return packed[padded / 32 * info->bytes] == 77;
}

/* The name of a function that differs from ref for vectors of n (at most 300) numbers, or NULL. Limits are a few roundings of float (6e-8), more where
 * they are added up or go into an exponent. */
static inline const char *check_vectors(const kernels *k, int n, uint64_t s) {
    const kernels *ref = kernels_find("ref", NULL);
    float a[300], b[300], y[301], z[301];
    uint16_t h[301], g[301];
    for (int i = 0; i < n; i++) a[i] = check_normal(&s) * (i % 7 == 3 ? 20 : 1), b[i] = check_normal(&s);
    y[n] = z[n] = 777;
    k->rms_norm(y, a, b, n, 1e-5f), ref->rms_norm(z, a, b, n, 1e-5f);
    if (!check_close(y, z, n, 2e-6)) return "rms_norm";
    k->rms_norm(y, a, NULL, n, 1e-5f), ref->rms_norm(z, a, NULL, n, 1e-5f);
    if (!check_close(y, z, n, 2e-6)) return "rms_norm without weight";
    k->silu_mul(y, a, b, n), ref->silu_mul(z, a, b, n);
    if (!check_close(y, z, n, 3e-6)) return "silu_mul";
    k->gelu_mul(y, a, b, n), ref->gelu_mul(z, a, b, n);
    for (int i = 0; i < n; i++)
        if (fabsf(z[i]) < 1e-7f && fabsf(y[i]) < 1e-7f) y[i] = z[i]; /* far out the exponent's rounding is all that is left */
    if (!check_close(y, z, n, 3e-5)) return "gelu_mul";
    for (int i = 0; i < n; i++) y[i] = z[i] = a[i] + b[i] * 0.5f;
    k->add(y, b, 1.5f, n), ref->add(z, b, 1.5f, n);
    for (int i = 0; i < n; i++)
        if (!(fabsf(y[i] - z[i]) <= 1e-6f * (fabsf(a[i]) + 3 * fabsf(b[i])))) return "add";
    h[n] = g[n] = 777;
    a[0] = n % 3 ? 1e6f : 3e-7f;
    k->to_f16(h, a, n), ref->to_f16(g, a, n);
    if (memcmp(h, g, sizeof *h * (size_t)(n + 1)) != 0) return "to_f16";
    for (int i = 0; i < 3; i++) {
        if (!check_blocks(k, QUANT_Q8_0, b, n)) return "to_blocks (Q8_0)";
        if (!check_blocks(k, QUANT_Q4_0, b, n)) return "to_blocks (Q4_0)";
        b[check_next(&s) % (uint64_t)n] = i ? INFINITY : NAN;
    }
    for (int i = 0; i < n; i++) b[i] = check_normal(&s);
    double size = 0;
    for (int i = 0; i < n; i++) size += fabs((double)a[i] * (double)b[i]);
    if (!(fabs((double)k->dot(a, b, n) - (double)ref->dot(a, b, n)) <= 2e-6 * size)) return "dot";
    return NULL;
}

#endif
