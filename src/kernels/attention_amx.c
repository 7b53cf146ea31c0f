/* Attention of many queries on the tile unit: one pass over the keys with a running softmax.
 *
 * Keys are taken in runs of 128 that start at multiples of 128. A run's keys and values are rounded to bfloat16 and laid out as right tiles once for all queries of the
 * call. Then 32 queries at a time: scores by the unit, weights of the softmax by vectors in float, weighted values by the unit again.
 *
 * Exponents are to the base of two; what turns scores into them is multiplied into the queries. A query's weights are relative to the largest score it has
 * seen, give or take RISE: only a score that is larger by more moves that reference and costs a pass over the query's sums. What a query gets does not depend
 * on the queries beside it: positions that it must not see have weight zero. */
#include "kernels/attention_amx.h"

#include "kernels/ops_avx512.h"
#include "kernels/tiles_amx.h"
#include "quant/quant.h"

#define RUN 128
#define GROUP 32        /* queries of two left tiles */
#define RISE 8          /* weights may reach 2^8 before they are scaled down */
#define LOG2_E 1.44269504088896341f

/* What 32 queries see together: all of them positions [seen_from, seen_to], any of them [from, to]. */
typedef struct group {
    int64_t from, to, seen_from, seen_to;
} group;

typedef struct work {
    const kern_attention *a;
    int k_steps, v_pairs; /* tiles of 32 columns in a key; pairs of tiles of 16 columns in a value */
    int groups;
    uint8_t *keys;        /* [RUN / 16][k_steps] right tiles */
    uint8_t *values;      /* [2 * v_pairs][RUN / STEP] right tiles */
    uint8_t *queries;     /* [groups][2][k_steps] left tiles */
    float *sums;          /* [groups][v_pairs][2][2] tiles */
    float *max, *sum;     /* per query: the reference, and the sum of weights relative to it */
    group *group;
    int64_t base, from, to; /* the run starts at base; positions from..to of it are read */
} work;

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

INLINE const uint8_t *row_at(const kern_attention *a, const uint8_t *const *blocks, size_t stride, int64_t position) {
    return blocks[position / a->block] + (size_t)(position % a->block) * stride;
}

/* The scale of a block. */
INLINE __m512 block_scale(const uint8_t *block) {
    uint16_t half;
    memcpy(&half, block, sizeof half);
    return _mm512_set1_ps(_cvtsh_ss(half));
}

/* Sixteen numbers of a row from column c, a multiple of 16; those beyond its end are zero. Rows of blocks are whole. */
INLINE __m512 numbers(const uint8_t *row, int64_t c, int64_t end, const int type) {
    const __mmask16 mask = end - c >= 16 ? 0xFFFF : c >= end ? 0 : (__mmask16)((1u << (end - c)) - 1);
    if (type == QUANT_F32) return _mm512_maskz_loadu_ps(mask, row + 4 * c);
    if (type == QUANT_F16) return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, row + 2 * c));
    if (mask == 0) return _mm512_setzero_ps();
    const uint8_t *block = row + c / 32 * (type == QUANT_Q8_0 ? 34 : 18);
    __m512i x;
    if (type == QUANT_Q8_0) {
        x = vi_signed_bytes(block + 2 + c % 32);
    } else {
        x = vi_unsigned_bytes(block + 2);
        x = _mm512_sub_epi32(c % 32 ? vi_shr(x, 4) : vi_and(x, vi_set(15)), vi_set(8));
    }
    return _mm512_maskz_mul_ps(mask, _mm512_cvtepi32_ps(x), block_scale(block));
}

/* ---- laying out ---- */

/* Sixteen keys: 32 columns of each are rounded, then turned so that every pair of columns has the keys side by side. */
INLINE void keys_tiles(const work *s, uint8_t *dst, int64_t position, const int type) {
    const kern_attention *a = s->a;
    _Alignas(64) uint8_t rounded[16][64];
    const uint8_t *row[16], *at[16];
    for (int i = 0; i < 16; i++) { /* places outside from..to repeat a key that may be read */
        row[i] = row_at(a, a->k, a->k_stride, most(s->from, least(position + i, s->to)));
        at[i] = rounded[i];
    }
    for (int64_t c = 0; c < a->k_dim; c += STEP, dst += TILE_BYTES) {
        for (int i = 0; i < 16; i++)
            _mm512_store_si512(rounded[i], (__m512i)_mm512_cvtne2ps_pbh(numbers(row[i], c + 16, a->k_dim, type), numbers(row[i], c, a->k_dim, type)));
        for (int piece = 0; piece < 4; piece++) transpose16(dst + 256 * piece, at, 16 * (size_t)piece);
    }
}

/* 32 values, pairs of positions; those outside from..to are zero. */
INLINE void values_tiles(const work *s, uint8_t *dst, int64_t position, const int type) {
    const kern_attention *a = s->a;
    for (int pair = 0; pair < STEP / 2; pair++, dst += 64) {
        const uint8_t *row[2];
        int64_t end[2];
        for (int i = 0; i < 2; i++) {
            const int64_t p = position + 2 * pair + i;
            end[i] = p >= s->from && p <= s->to ? a->v_dim : 0;
            row[i] = row_at(a, a->v, a->v_stride, most(s->from, least(p, s->to)));
        }
        for (int64_t c = 0; c < 32 * s->v_pairs; c += 16)
            pair_store(dst + (size_t)(c / 16) * (RUN / STEP) * TILE_BYTES, numbers(row[0], c, end[0], type), numbers(row[1], c, end[1], type));
    }
}

INLINE void run_keys(const work *s, const int type) {
    for (int64_t p = s->from / 16 * 16; p <= s->to; p += 16) keys_tiles(s, s->keys + (size_t)((p - s->base) / 16 * s->k_steps) * TILE_BYTES, p, type);
}

INLINE void run_values(const work *s, const int type) {
    for (int64_t p = s->from / STEP * STEP; p <= s->to; p += STEP) values_tiles(s, s->values + (size_t)((p - s->base) / STEP) * TILE_BYTES, p, type);
}

/* One for each type. */
#define RUN_TILES(name, type)                                             \
    static void run_keys_##name(const work *s) { run_keys(s, type); }     \
    static void run_values_##name(const work *s) { run_values(s, type); }
RUN_TILES(f32, QUANT_F32)
RUN_TILES(f16, QUANT_F16)
RUN_TILES(q8_0, QUANT_Q8_0)
RUN_TILES(q4_0, QUANT_Q4_0)

static void run_tiles(const work *s) {
    switch (s->a->k_type) {
    case QUANT_F32: run_keys_f32(s); break;
    case QUANT_F16: run_keys_f16(s); break;
    case QUANT_Q8_0: run_keys_q8_0(s); break;
    default: run_keys_q4_0(s);
    }
    switch (s->a->v_type) {
    case QUANT_F32: run_values_f32(s); break;
    case QUANT_F16: run_values_f16(s); break;
    case QUANT_Q8_0: run_values_q8_0(s); break;
    default: run_values_q4_0(s);
    }
}

static void queries_tiles(const work *s) {
    const kern_attention *a = s->a;
    const __m512 factor = _mm512_set1_ps(a->cap > 0 ? a->scale : a->scale * LOG2_E);
    for (int q = 0; q < GROUP * s->groups; q++)
        for (int step = 0; step < s->k_steps; step++) {
            const uint8_t *row = (const uint8_t *)(a->q + least(q, a->n_q - 1) * a->ldq);
            const int64_t c = step * STEP, end = q < a->n_q ? a->k_dim : 0;
            const __m512 x = _mm512_mul_ps(numbers(row, c, end, QUANT_F32), factor), y = _mm512_mul_ps(numbers(row, c + 16, end, QUANT_F32), factor);
            _mm512_store_si512(s->queries + ((size_t)(q / 16) * (size_t)s->k_steps + (size_t)step) * TILE_BYTES + (size_t)(q % 16) * 64,
                               (__m512i)_mm512_cvtne2ps_pbh(y, x));
        }
}

/* ---- softmax ---- */

/* 2^x to 3e-6, far below what rounding to bfloat16 leaves; zero for minus infinity. */
INLINE __m512 exp2_of(__m512 x) {
    const __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); /* x less the whole number below */
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(0.0135341703f), f, _mm512_set1_ps(0.0520115178f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.241442672f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.693003868f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.00000259f));
    return _mm512_scalef_ps(p, x); /* takes the whole number below x */
}

/* cap * tanh(x / cap), as an exponent of two */
INLINE __m512 capped(__m512 x, float cap) {
    const __m512 e = exp2_of(_mm512_mul_ps(x, _mm512_set1_ps(2 * LOG2_E / cap))), two = _mm512_set1_ps(2), one = _mm512_set1_ps(1);
    return _mm512_mul_ps(_mm512_set1_ps(cap * LOG2_E), _mm512_sub_ps(one, _mm512_div_ps(two, _mm512_add_ps(e, one))));
}

/* Moves the reference of query q up to `to`. */
static void rise(const work *s, int q, float to) {
    const float shrink = exp2f(s->max[q] - to); /* zero when nothing was seen before */
    float *row = s->sums + (size_t)(q / GROUP) * (size_t)s->v_pairs * 4 * TILE_FLOATS + q % GROUP / 16 * 2 * TILE_FLOATS + q % 16 * 16;
    for (int i = 0; i < s->v_pairs; i++, row += 4 * TILE_FLOATS)
        for (int j = 0; j < 2; j++) _mm512_store_ps(row + j * TILE_FLOATS, _mm512_mul_ps(_mm512_load_ps(row + j * TILE_FLOATS), _mm512_set1_ps(shrink)));
    s->sum[q] *= shrink;
    s->max[q] = to;
}

/* Turns a query's scores into weights, which go to its row of left tiles. `mask`: it does not see all of the run. */
INLINE void softmax_row(const work *s, uint8_t *weight, const float *score, int q, const bool mask, const bool cap) {
    const kern_attention *a = s->a;
    __m512 x[RUN / 16];
#pragma GCC unroll 8
    for (int i = 0; i < RUN / 16; i++) {
        x[i] = _mm512_load_ps(score + 16 * i);
        if (cap) x[i] = capped(x[i], a->cap);
    }
    if (mask) {
        const int64_t first = most(a->first[q] - s->base, 0), last = least(a->last[q] - s->base, RUN - 1);
        if (first > last) { /* sees nothing of this run */
            for (int i = 0; i < RUN / STEP; i++) _mm512_store_si512(weight + i * TILE_BYTES, _mm512_setzero_si512());
            return;
        }
        const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
#pragma GCC unroll 8
        for (int i = 0; i < RUN / 16; i++) {
            const __m512i at = _mm512_add_epi32(lanes, _mm512_set1_epi32(16 * i));
            const __mmask16 seen = _mm512_cmpge_epi32_mask(at, _mm512_set1_epi32((int)first)) & _mm512_cmple_epi32_mask(at, _mm512_set1_epi32((int)last));
            x[i] = _mm512_mask_blend_ps(seen, _mm512_set1_ps(-INFINITY), x[i]);
        }
    }
    const __m512 low = _mm512_max_ps(_mm512_max_ps(x[0], x[1]), _mm512_max_ps(x[2], x[3]));
    const float largest = _mm512_reduce_max_ps(_mm512_max_ps(low, _mm512_max_ps(_mm512_max_ps(x[4], x[5]), _mm512_max_ps(x[6], x[7]))));
    if (largest > s->max[q] + RISE) rise(s, q, largest);
    const __m512 reference = _mm512_set1_ps(s->max[q]);
    __m512 sum = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int i = 0; i < RUN / STEP; i++) {
        const __m512 p = exp2_of(_mm512_sub_ps(x[2 * i], reference)), r = exp2_of(_mm512_sub_ps(x[2 * i + 1], reference));
        sum = _mm512_add_ps(sum, _mm512_add_ps(p, r));
        _mm512_store_si512(weight + i * TILE_BYTES, (__m512i)_mm512_cvtne2ps_pbh(r, p));
    }
    s->sum[q] += _mm512_reduce_add_ps(sum);
}

/* One for each kind, so that the loop of the plain one is short. */
static void softmax_plain(const work *s, uint8_t *weight, const float *score, int q) { softmax_row(s, weight, score, q, false, false); }
static void softmax_masked(const work *s, uint8_t *weight, const float *score, int q) { softmax_row(s, weight, score, q, true, false); }
static void softmax_capped(const work *s, uint8_t *weight, const float *score, int q) { softmax_row(s, weight, score, q, true, true); }

/* ---- the pass ---- */

/* The run for one group of queries. */
static void group_run(const work *s, int g) {
    const group *see = &s->group[g];
    if (see->from > s->to || see->to < s->from) return;
    _Alignas(64) float score[GROUP][RUN];
    _Alignas(64) uint8_t weight[2][RUN / STEP][TILE_BYTES];
    const int from = (int)((most(see->from, s->from) - s->base) / STEP), to = (int)((least(see->to, s->to) - s->base) / STEP); /* steps of 32 positions */
    const size_t tile_row = (size_t)s->k_steps * TILE_BYTES;
    const uint8_t *q = s->queries + (size_t)g * 2 * tile_row;
    for (int i = from; i <= to; i++) {
        const uint8_t *k = s->keys + (size_t)(2 * i) * tile_row;
        tiles_product(&score[0][STEP * i], &score[0][STEP * i + 16], &score[16][STEP * i], &score[16][STEP * i + 16], RUN * sizeof(float), q, q + tile_row, TILE_BYTES, k,
                      k + tile_row, s->k_steps, true);
    }
    const bool plain = s->a->cap <= 0 && s->base >= see->seen_from && s->base + RUN - 1 <= see->seen_to;
    for (int i = 0; i < GROUP; i++) {
        uint8_t *row = weight[i / 16][0] + i % 16 * 64;
        if (plain) softmax_plain(s, row, score[i], GROUP * g + i);
        else if (GROUP * g + i >= s->a->n_q)
            for (int j = 0; j < RUN / STEP; j++) _mm512_store_si512(row + j * TILE_BYTES, _mm512_setzero_si512());
        else if (s->a->cap > 0) softmax_capped(s, row, score[i], GROUP * g + i);
        else softmax_masked(s, row, score[i], GROUP * g + i);
    }
    for (int i = 0; i < s->v_pairs; i++) {
        const uint8_t *v = s->values + ((size_t)(2 * i) * (RUN / STEP) + (size_t)from) * TILE_BYTES;
        float *c = s->sums + ((size_t)g * (size_t)s->v_pairs + (size_t)i) * 4 * TILE_FLOATS;
        tiles_product(c, c + TILE_FLOATS, c + 2 * TILE_FLOATS, c + 3 * TILE_FLOATS, 64, weight[0][from], weight[1][from], TILE_BYTES, v,
                      v + RUN / STEP * TILE_BYTES, to - from + 1, false);
    }
}

static void finish(const work *s) {
    const kern_attention *a = s->a;
    for (int q = 0; q < a->n_q; q++) {
        float sum = s->sum[q], shrink = 1;
        if (a->sink) {
            const float sink = a->sink[q] * LOG2_E, max = fmaxf(s->max[q], sink);
            shrink = exp2f(s->max[q] - max);
            sum = sum * shrink + exp2f(sink - max);
        }
        const __m512 factor = _mm512_set1_ps(sum > 0 ? shrink / sum : 0);
        const float *row = s->sums + (size_t)(q / GROUP) * (size_t)s->v_pairs * 4 * TILE_FLOATS + q % GROUP / 16 * 2 * TILE_FLOATS + q % 16 * 16;
        for (int64_t c = 0; c < a->v_dim; c += 16) {
            const __mmask16 mask = a->v_dim - c >= 16 ? 0xFFFF : (__mmask16)((1u << (a->v_dim - c)) - 1);
            _mm512_mask_storeu_ps(a->out + q * a->ldo + c, mask, _mm512_mul_ps(_mm512_load_ps(row + (c / 32 * 4 + c / 16 % 2) * TILE_FLOATS), factor));
        }
    }
}

static void *carve(uint8_t **at, size_t bytes) {
    void *p = *at;
    *at += (bytes + 63) & ~(size_t)63;
    return p;
}

static void begin(work *s, const kern_attention *a) {
    *s = (work){.a = a, .k_steps = (a->k_dim + STEP - 1) / STEP, .v_pairs = (a->v_dim + 31) / 32, .groups = (a->n_q + GROUP - 1) / GROUP, .from = INT64_MAX, .to = -1};
    const size_t k = (size_t)s->k_steps, v = (size_t)s->v_pairs, groups = (size_t)s->groups;
    uint8_t *at = (uint8_t *)a->scratch;
    s->keys = carve(&at, RUN / 16 * k * TILE_BYTES);
    s->values = carve(&at, 2 * v * (RUN / STEP) * TILE_BYTES);
    s->queries = carve(&at, groups * 2 * k * TILE_BYTES);
    s->sums = carve(&at, groups * v * 4 * TILE_FLOATS * sizeof(float));
    s->max = carve(&at, groups * GROUP * sizeof(float));
    s->sum = carve(&at, groups * GROUP * sizeof(float));
    s->group = carve(&at, groups * sizeof(group));
    memset(s->sums, 0, groups * v * 4 * TILE_FLOATS * sizeof(float));
    for (int g = 0; g < s->groups; g++) {
        group see = {.from = INT64_MAX, .to = -1, .seen_from = 0, .seen_to = INT64_MAX};
        for (int q = GROUP * g; q < GROUP * (g + 1); q++) {
            s->max[q] = -INFINITY, s->sum[q] = 0;
            if (q >= a->n_q) {
                see.seen_to = -1; /* queries that are not there see nothing */
                continue;
            }
            see.from = least(see.from, a->first[q]), see.to = most(see.to, a->last[q]);
            see.seen_from = most(see.seen_from, a->first[q]), see.seen_to = least(see.seen_to, a->last[q]);
        }
        s->group[g] = see;
        s->from = least(s->from, see.from), s->to = most(s->to, see.to);
    }
}

void kern_attention_amx(const kern_attention *a) {
    work s;
    begin(&s, a);
    tiles_begin();
    queries_tiles(&s);
    const int64_t first = s.from, last = s.to;
    for (s.base = first / RUN * RUN; s.base <= last; s.base += RUN) {
        s.from = most(s.base, first);
        s.to = least(s.base + RUN - 1, last);
        run_tiles(&s);
        for (int g = 0; g < s.groups; g++) group_run(&s, g);
    }
    _tile_release();
    finish(&s);
}
