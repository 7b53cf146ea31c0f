/* attention_impl.h: attention as one pass over the keys with a running softmax, in the words of an ops_*.h.
 *
 * Keys are taken in runs of 64 that start at multiples of 64. A run's keys are laid out like a panel of weights (16 keys side by side), so
 * that the scores of up to eight queries come from the product kernel without sums over lanes; values are read as they lie. What a query gets
 * does not depend on the queries beside it: positions that it must not see have weight zero. Quantized keys and values: attention_quant_impl.h. */
#ifndef KERNELS_ATTENTION_IMPL_H
#define KERNELS_ATTENTION_IMPL_H

#include <math.h>

#include "kernels/attention_quant_impl.h"
#include "kernels/float_tile_impl.h"
#include "kernels/vector_impl.h"

#define RUN 64

/* What a query has seen so far. */
typedef struct att_state {
    float max, sum;
} att_state;

typedef struct att_work {
    const kern_attention *a;
    size_t k_bytes, v_bytes; /* of a row that are read */
    int k_padded;
    float *queries;        /* tiles of up to PANEL_TILE queries like activations: k_padded rows of w; keys of floats only */
    att_queries bytes;     /* for quantized keys */
    size_t panel;          /* bytes of 16 keys */
    float *scales;         /* quantized values: of every row of the run and 32 columns */
    int v_blocks;
    float *sums;           /* n_q rows of v_dim: weighted values so far */
    att_state *state;
    uint8_t *keys;         /* the run's keys as chunks of 16 */
    const uint8_t *key[RUN], *value[RUN]; /* rows of the run; only from..to are there */
    int64_t base, from, to; /* the run starts at base; positions from..to of it are read */
    int64_t last;           /* of all runs */
    size_t k_ahead, v_ahead; /* from a row to that of the next run, which is asked for meanwhile; 0: do not */
} att_work;

/* Where n rows from position `from` lie. */
INLINE void att_rows(const uint8_t **row, const kern_attention *a, const uint8_t *const *blocks, size_t stride, int64_t from, int n) {
    for (int done = 0; done < n;) {
        const int place = (int)((from + done) % a->block), count = (int)min_of(a->block - place, n - done);
        const uint8_t *at = blocks[(from + done) / a->block] + (size_t)place * stride;
        for (int i = 0; i < count; i++) row[done + i] = at + (size_t)i * stride;
        done += count;
    }
}

/* How far behind a row the row of the same place in the next run lies; 0 when there is none or runs do not lie within blocks. */
INLINE size_t att_distance(const kern_attention *a, const uint8_t *const *blocks, size_t stride, int64_t base, int64_t last) {
    if (base + 2 * RUN - 1 > last || a->block % RUN != 0) return 0;
    const uint8_t *this = blocks[base / a->block] + (size_t)(base % a->block) * stride, *next = blocks[(base + RUN) / a->block] + (size_t)((base + RUN) % a->block) * stride;
    return (size_t)((uintptr_t)next - (uintptr_t)this);
}

/* Keys of the run side by side; places outside from..to repeat a key that may be read. */
static void att_load_run(att_work *s) {
    const kern_attention *a = s->a;
    const int first = (int)(s->from - s->base), last = (int)(s->to - s->base);
    att_rows(s->key + first, a, a->k, a->k_stride, s->from, last - first + 1);
    att_rows(s->value + first, a, a->v, a->v_stride, s->from, last - first + 1);
    s->k_ahead = att_distance(a, a->k, a->k_stride, s->base, s->last);
    s->v_ahead = s->key[first] == s->value[first] ? 0 : att_distance(a, a->v, a->v_stride, s->base, s->last); /* a row may be both */
    for (int i = 0; i < first; i++) s->key[i] = s->key[first];
    for (int i = last + 1; i < RUN; i++) s->key[i] = s->key[last];
    for (int p = 0; p < RUN; p += PANEL_ROWS) {
        if (p > last || p + PANEL_ROWS <= first) continue;
        uint8_t *panel = s->keys + (size_t)(p / PANEL_ROWS) * s->panel;
        if (a->k_type == QUANT_Q8_0) att_pack_keys(panel, s->key + p, s->bytes.blocks, 8, s->k_ahead);
        else if (a->k_type == QUANT_Q4_0) att_pack_keys(panel, s->key + p, s->bytes.blocks, 4, s->k_ahead);
        else float_pack(panel, s->key + p, 0, s->k_bytes, s->panel / PANEL_ROWS, 0);
    }
    if (a->v_type == QUANT_Q8_0) att_row_scales(s->scales, RUN, s->value, first, last, s->v_blocks, 8);
    else if (a->v_type == QUANT_Q4_0) att_row_scales(s->scales, RUN, s->value, first, last, s->v_blocks, 4);
}

#define ATT_SCORES(name, kind)                                                                                                            \
    INLINE void name##_scores_part(float *acc, const uint8_t *chunk, int64_t blocks, const float *x, int w, size_t ahead, int t0, int count) { \
        float_part(acc, RUN, true, chunk, blocks, x, w, ahead, 0, t0, count, kind);                                                          \
    }                                                                                                                                      \
    static void name##_scores(float *acc, const uint8_t *chunk, int64_t blocks, const float *x, int w, size_t ahead) {                     \
        TILE_CASES(name##_scores_part)                                                                                                     \
    }
ATT_SCORES(f32, WORD_F32)
ATT_SCORES(f16, WORD_F16)

/* Scores of w queries over the run: score[t][key]. */
static void att_scores(const att_work *s, float score[PANEL_TILE][RUN], int q0, int w) {
    const int type = s->a->k_type;
    const float *queries = s->queries + (int64_t)q0 * s->k_padded;
    for (int p = 0; p < RUN; p += PANEL_ROWS) {
        if (s->base + p > s->to || s->base + p + PANEL_ROWS <= s->from) continue;
        const uint8_t *panel = s->keys + (size_t)(p / PANEL_ROWS) * s->panel;
        if (type == QUANT_Q8_0 || type == QUANT_Q4_0) {
            for (int t = 0; t < w; t += ATT_STEP) {
                if (type == QUANT_Q8_0) att_bytes_q8_0(&s->bytes, &score[t][p], RUN, panel, q0 + t, w - t);
                else att_bytes_q4_0(&s->bytes, &score[t][p], RUN, panel, q0 + t, w - t);
            }
            continue;
        }
        /* The next run is asked for here and not while this one is laid out: over the longer time memory is busy all along. */
        const size_t ahead = q0 == 0 && s->k_ahead ? (size_t)((uintptr_t)s->key[p] - (uintptr_t)panel) + s->k_ahead : 0;
        if (type == QUANT_F32) f32_scores(&score[0][p], panel, s->k_padded, queries, w, ahead);
        else f16_scores(&score[0][p], panel, s->k_padded, queries, w, ahead);
    }
}

/* cap * tanh(x / cap) */
INLINE vf att_cap(vf x, float cap) {
    vf e = vf_exp(vf_mul(x, vf_set(2 / cap)));
    return vf_mul(vf_set(cap), vf_sub(vf_set(1), vf_div(vf_set(2), vf_add(e, vf_set(1)))));
}

/* A query's scores, scaled, and -INFINITY where it must not see. Returns the largest so far; *seen: it may see something of this run. */
INLINE float att_see(const att_work *s, float *score, int q, bool *seen) {
    const kern_attention *a = s->a;
    const int first = (int)(a->first[q] > s->base ? min_of(a->first[q] - s->base, RUN) : 0);
    const int last = (int)(a->last[q] < s->base ? -1 : min_of(a->last[q] - s->base, RUN - 1));
    *seen = first <= last;
    for (int i = 0; i < RUN; i += LANES) {
        vf x = vf_mul(vf_load(score + i), vf_set(a->scale));
        vf_store(score + i, a->cap > 0 ? att_cap(x, a->cap) : x);
    }
    for (int i = 0; i < first; i++) score[i] = -INFINITY;
    for (int i = last + 1; i < RUN; i++) score[i] = -INFINITY;
    vf largest = vf_load(score);
    for (int i = LANES; i < RUN; i += LANES) largest = vf_max(largest, vf_load(score + i));
    const float most = vf_largest(largest), before = s->state[q].max;
    return most > before ? most : before; /* not fmaxf: a call here makes the compiler save every register */
}

/* Turns them into weights; returns what the query's earlier sums must be multiplied with. */
INLINE float att_weigh(const att_work *s, float *score, int q, float max) {
    att_state *state = &s->state[q];
    vf sum = vf_set(0);
    for (int i = 0; i < RUN; i += LANES) {
        vf p = vf_exp(vf_sub(vf_load(score + i), vf_set(max)));
        vf_store(score + i, p);
        sum = vf_add(sum, p);
    }
    const float shrink = state->max == max ? 1 : expf(state->max - max);
    state->sum = state->sum * shrink + vf_sum(sum);
    state->max = max;
    return shrink;
}

/* In two steps over all queries: each is a chain in which one number waits for the other, and those of several queries go on side by side. */
static void att_softmax(const att_work *s, float score[PANEL_TILE][RUN], float *shrink, int q0, int w) {
    float max[PANEL_TILE];
    bool seen[PANEL_TILE];
    for (int t = 0; t < w; t++) max[t] = att_see(s, score[t], q0 + t, &seen[t]);
    for (int t = 0; t < w; t++) {
        shrink[t] = 1;
        if (seen[t]) shrink[t] = att_weigh(s, score[t], q0 + t, max[t]);
        else memset(score[t], 0, sizeof score[t]);
    }
}

/* LANES numbers of a value from column `at`, without their scale; rows of blocks are whole, others may end before (part < LANES). */
INLINE vf att_value(const uint8_t *row, int64_t at, const int type, int part) {
    if (type == QUANT_Q8_0) return att_row_bytes(row, at);
    if (type == QUANT_Q4_0) return att_row_nibbles(row, at);
    if (part >= LANES) return type == QUANT_F32 ? vf_load((const float *)(const void *)row + at) : vf_half_load(row + 2 * at);
    if (type == QUANT_F32) return vf_load_part((const float *)(const void *)row + at, part);
    uint16_t rest[LANES] = {0};
    memcpy(rest, row + 2 * at, (size_t)part * 2);
    return vf_half_load(rest);
}

/* Adds the weighted values for `count` queries and `wide` vectors of values from column d; part: numbers in the last vector. */
INLINE void att_values_part(const att_work *s, const float weight[PANEL_TILE][RUN], const float *shrink, int q0, int count, int64_t d, int wide, int part,
                            const int type) {
    vf acc[TILE_STEP][4];
    const int from = (int)(s->from - s->base), to = (int)(s->to - s->base);
    const size_t ahead = q0 == 0 ? s->v_ahead : 0;
    const int width = type == QUANT_F32 ? 4 : type == QUANT_F16 ? 2 : 1; /* bytes of a number, about */
#pragma GCC unroll 8
    for (int t = 0; t < count; t++)
#pragma GCC unroll 4
        for (int i = 0; i < wide; i++) {
            const float *sum = s->sums + (int64_t)(q0 + t) * s->a->v_dim + d + i * LANES;
            acc[t][i] = vf_mul(part < LANES ? vf_load_part(sum, part) : vf_load(sum), vf_set(shrink[t]));
        }
    for (int key = from; key <= to; key++) {
        vf v[4];
#pragma GCC unroll 4
        for (int i = 0; i < wide; i++) v[i] = att_value(s->value[key], d + i * LANES, type, part);
#pragma GCC unroll 4
        for (int i = 0; i < wide * LANES * width; i += 64)
            if (ahead) ask(s->value[key], ahead + (size_t)(d * width + i));
#pragma GCC unroll 8
        for (int t = 0; t < count; t++)
#pragma GCC unroll 4
            for (int i = 0; i < wide; i++) acc[t][i] = vf_fma(v[i], vf_set(weight[t][key]), acc[t][i]);
    }
#pragma GCC unroll 8
    for (int t = 0; t < count; t++)
#pragma GCC unroll 4
        for (int i = 0; i < wide; i++) {
            float *sum = s->sums + (int64_t)(q0 + t) * s->a->v_dim + d + i * LANES;
            if (part < LANES) vf_store_part(sum, acc[t][i], part);
            else vf_store(sum, acc[t][i]);
        }
}

/* Columns [d, end). */
INLINE void att_values_columns(const att_work *s, const float weight[PANEL_TILE][RUN], const float *shrink, int q0, int count, int64_t d, int64_t end, const int type) {
    if (2 * count <= TILE_STEP) /* there are registers for more */
        for (; d + 4 * LANES <= end; d += 4 * LANES) att_values_part(s, weight, shrink, q0, count, d, 4, LANES, type);
    for (; d + 2 * LANES <= end; d += 2 * LANES) att_values_part(s, weight, shrink, q0, count, d, 2, LANES, type);
    for (; d + LANES <= end; d += LANES) att_values_part(s, weight, shrink, q0, count, d, 1, LANES, type);
    if (d < end) att_values_part(s, weight, shrink, q0, count, d, 1, (int)(end - d), type);
}

INLINE void att_values_count(const att_work *s, const float weight[PANEL_TILE][RUN], const float *shrink, int q0, int count, const int type) {
    const int64_t end = s->a->v_dim;
    if (type == QUANT_F32 || type == QUANT_F16) {
        att_values_columns(s, weight, shrink, q0, count, 0, end, type);
        return;
    }
    _Alignas(64) float scaled[PANEL_TILE][RUN];
    for (int64_t d = 0; d < end; d += 32) {
        for (int t = 0; t < count; t++)
            for (int i = 0; i < RUN; i += LANES) vf_store(&scaled[t][i], vf_mul(vf_load(&weight[t][i]), vf_load(s->scales + d / 32 * RUN + i)));
        att_values_columns(s, (const float(*)[RUN])scaled, shrink, q0, count, d, min_of(d + 32, end), type);
    }
}

#define ATT_VALUES(name, type)                                                                                                            \
    static void att_values_##name(const att_work *s, const float weight[PANEL_TILE][RUN], const float *shrink, int q0, int w) {           \
        int t = 0;                                                                                                                         \
        for (; t + TILE_STEP <= w; t += TILE_STEP) att_values_count(s, weight + t, shrink + t, q0 + t, TILE_STEP, type);                   \
        for (; t + 4 <= w; t += 4) att_values_count(s, weight + t, shrink + t, q0 + t, 4, type);                                           \
        for (; t + 2 <= w; t += 2) att_values_count(s, weight + t, shrink + t, q0 + t, 2, type);                                           \
        for (; t < w; t++) att_values_count(s, weight + t, shrink + t, q0 + t, 1, type);                                                   \
    }
ATT_VALUES(f32, QUANT_F32)
ATT_VALUES(f16, QUANT_F16)
ATT_VALUES(q8_0, QUANT_Q8_0)
ATT_VALUES(q4_0, QUANT_Q4_0)

/* The run for one tile of queries. */
static void att_tile(const att_work *s, int q0, int w) {
    _Alignas(64) float score[PANEL_TILE][RUN];
    float shrink[PANEL_TILE];
    bool any = false;
    for (int t = 0; t < w; t++) any |= s->a->first[q0 + t] <= s->to && s->a->last[q0 + t] >= s->from;
    if (!any) return;
    if (s->to - s->from + 1 < RUN) memset(score, 0, sizeof score); /* places of the run that no query may see are never computed */
    att_scores(s, score, q0, w);
    att_softmax(s, score, shrink, q0, w);
    switch (s->a->v_type) {
    case QUANT_F32: att_values_f32(s, (const float(*)[RUN])score, shrink, q0, w); break;
    case QUANT_F16: att_values_f16(s, (const float(*)[RUN])score, shrink, q0, w); break;
    case QUANT_Q8_0: att_values_q8_0(s, (const float(*)[RUN])score, shrink, q0, w); break;
    default: att_values_q4_0(s, (const float(*)[RUN])score, shrink, q0, w);
    }
}

/* Queries as tiles of activations. */
static void att_load_queries(const att_work *s) {
    const kern_attention *a = s->a;
    for (int q = 0; q < a->n_q; q++) {
        const int tile = q / PANEL_TILE * PANEL_TILE, w = (int)min_of(PANEL_TILE, a->n_q - tile);
        float *at = s->queries + (int64_t)tile * s->k_padded + 2 * (q - tile);
        for (int c = 0; c < s->k_padded; c++) at[c / 2 * 2 * w + c % 2] = c < a->k_dim ? a->q[q * a->ldq + c] : 0;
    }
}

static void att_finish(const att_work *s) {
    const kern_attention *a = s->a;
    for (int q = 0; q < a->n_q; q++) {
        float sum = s->state[q].sum, shrink = 1;
        if (a->sink) {
            const float max = fmaxf(s->state[q].max, a->sink[q]);
            shrink = expf(s->state[q].max - max);
            sum = sum * shrink + expf(a->sink[q] - max);
        }
        const vf factor = vf_set(sum > 0 ? shrink / sum : 0);
        for (int64_t i = 0; i < a->v_dim; i += LANES)
            vf_store_some(a->out + q * a->ldo + i, vf_mul(vf_load_some(s->sums + (int64_t)q * a->v_dim + i, a->v_dim - i), factor), a->v_dim - i);
    }
}

static size_t att_row_size(int type, int dim) {
    const quant_info *info = quant_find(type);
    return (size_t)((dim + info->block - 1) / info->block) * (size_t)info->bytes;
}

/* Cuts the scratch memory. */
static void att_begin(att_work *s, const kern_attention *a) {
    const bool floats = a->k_type == QUANT_F32 || a->k_type == QUANT_F16;
    const size_t n = (size_t)a->n_q;
    *s = (att_work){.a = a, .k_bytes = att_row_size(a->k_type, a->k_dim), .v_bytes = att_row_size(a->v_type, a->v_dim)};
    s->k_padded = (int)float_padded(a->k_dim);
    s->bytes.blocks = (a->k_dim + 31) / 32;
    s->v_blocks = (a->v_dim + 31) / 32;
    s->panel = floats ? (size_t)s->k_padded * PANEL_ROWS * (a->k_type == QUANT_F32 ? 4 : 2) : s->k_bytes * PANEL_ROWS;
    s->keys = (uint8_t *)a->scratch;
    s->scales = a->scratch + RUN * 32 * s->bytes.blocks;
    s->queries = s->scales + RUN * s->v_blocks;
    s->bytes.bytes = (int8_t *)s->queries;
    s->bytes.scale = s->queries + n * (size_t)s->bytes.blocks * 16;
    s->bytes.minus_sum = (int32_t *)(void *)(s->bytes.scale + n * (size_t)s->bytes.blocks);
    s->sums = s->queries + n * 32 * (size_t)s->bytes.blocks;
    s->state = (att_state *)(s->sums + n * (size_t)a->v_dim);
    if (floats) att_load_queries(s);
    else att_bytes_queries(&s->bytes, a);
}

/* Nobody has asked for the first run: all of it at once. */
static void att_ask_first(const att_work *s, int64_t first) {
    const kern_attention *a = s->a;
    const int64_t last = min_of(first / RUN * RUN + RUN - 1, s->last), b = first / a->block;
    if (last / a->block != b) return;
    const size_t at = (size_t)(first % a->block), n = (size_t)(last - first + 1);
    for (size_t i = 0; i < n * a->k_stride; i += 64) ask(a->k[b], at * a->k_stride + i);
    if (a->k[b] != a->v[b])
        for (size_t i = 0; i < n * a->v_stride; i += 64) ask(a->v[b], at * a->v_stride + i);
}

static void vec_attention(const kern_attention *a) {
    att_work s;
    att_begin(&s, a);
    int64_t first = INT64_MAX;
    s.last = -1;
    for (int q = 0; q < a->n_q; q++) {
        s.state[q] = (att_state){.max = -INFINITY, .sum = 0};
        if (a->first[q] < first) first = a->first[q];
        if (a->last[q] > s.last) s.last = a->last[q];
    }
    memset(s.sums, 0, (size_t)a->n_q * (size_t)a->v_dim * sizeof(float));
    att_ask_first(&s, first);
    for (s.base = first / RUN * RUN; s.base <= s.last; s.base += RUN) {
        s.from = s.base < first ? first : s.base;
        s.to = min_of(s.base + RUN - 1, s.last);
        att_load_run(&s);
        for (int q = 0; q < a->n_q; q += PANEL_TILE) att_tile(&s, q, (int)min_of(PANEL_TILE, a->n_q - q));
    }
    att_finish(&s);
}

#endif
