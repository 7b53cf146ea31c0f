/* attention_impl.h: attention as one pass over the keys with a running softmax, in the words of an ops_*.h.
 *
 * Keys are taken in runs of 64 that start at multiples of 64. A run's keys are laid out like a panel of weights (16 keys side by side), so
 * that the scores of up to eight queries come from the product kernel without sums over lanes; values are read as they lie. What a query gets
 * does not depend on the queries beside it: positions that it must not see have weight zero. */
#ifndef KERNELS_ATTENTION_IMPL_H
#define KERNELS_ATTENTION_IMPL_H

#include <math.h>

#include "kernels/float_tile_impl.h"
#include "kernels/vector_impl.h"

#define RUN 64

/* What a query has seen so far. */
typedef struct att_state {
    float max, sum;
} att_state;

typedef struct att_work {
    const kern_attention *a;
    int kind, size;        /* of a key's number: WORD_F32 or WORD_F16, its bytes */
    int k_padded;
    float *queries;        /* tiles of up to PANEL_TILE queries like activations: k_padded rows of w */
    float *sums;           /* n_q rows of v_dim: weighted values so far */
    att_state *state;
    uint8_t *keys;         /* the run's keys as chunks of 16 */
    const uint8_t *key[RUN], *value[RUN]; /* rows of the run; only from..to are there */
    int64_t base, from, to; /* the run starts at base; positions from..to of it are read */
} att_work;

/* Where n rows from position `from` lie. */
static void att_rows(const uint8_t **row, const kern_attention *a, const uint8_t *const *blocks, size_t stride, int64_t from, int n) {
    int64_t at = from / a->block;
    int place = (int)(from % a->block);
    for (int i = 0; i < n; i++) {
        row[i] = blocks[at] + (size_t)place * stride;
        if (++place == a->block) {
            place = 0;
            at++;
        }
    }
}

/* Reads rows from first to last once, in the order in which they lie: the hardware sees a straight line and fetches ahead, which it does not
 * when sixteen rows are read side by side. */
INLINE void att_touch(const uint8_t *const *row, int first, int last, size_t bytes) {
    for (int r = first; r <= last; r++)
        for (size_t i = 0; i < bytes; i += 64) __asm__ volatile("" ::"r"(*(const volatile uint8_t *)(row[r] + i)));
}

/* Keys of the run side by side; places outside from..to repeat a key that may be read. */
static void att_load_run(att_work *s) {
    const kern_attention *a = s->a;
    const size_t bytes = (size_t)(a->k_dim * s->size), padded = (size_t)(s->k_padded * s->size), v_bytes = (size_t)(a->v_dim * s->size);
    const int first = (int)(s->from - s->base), last = (int)(s->to - s->base);
    att_rows(s->key + first, a, a->k, a->k_stride, s->from, last - first + 1);
    att_rows(s->value + first, a, a->v, a->v_stride, s->from, last - first + 1);
    att_touch(s->key, first, last, bytes);
    for (int i = 0; i < first; i++) s->key[i] = s->key[first];
    for (int i = last + 1; i < RUN; i++) s->key[i] = s->key[last];
    for (int p = 0; p < RUN; p += PANEL_ROWS) {
        if (p > last || p + PANEL_ROWS <= first) continue;
        float_pack(s->keys + (size_t)p * padded, s->key + p, 0, bytes, padded, 0);
    }
    att_touch(s->value, first, last, v_bytes);
}

/* Scores of w queries over the run: score[t][key]. */
static void att_scores(const att_work *s, float score[PANEL_TILE][RUN], int q0, int w) {
    const size_t padded = (size_t)(s->k_padded * s->size);
    _Alignas(64) float acc[PANEL_TILE * PANEL_ROWS];
    for (int p = 0; p < RUN; p += PANEL_ROWS) {
        if (s->base + p > s->to || s->base + p + PANEL_ROWS <= s->from) continue;
        memset(acc, 0, sizeof acc);
        float_tile(acc, s->keys + (size_t)p * padded, s->k_padded, s->queries + (int64_t)q0 * s->k_padded, w, 0, s->kind);
        for (int t = 0; t < w; t++) memcpy(&score[t][p], acc + PANEL_ROWS * t, PANEL_ROWS * sizeof(float));
    }
}

/* cap * tanh(x / cap) */
INLINE vf att_cap(vf x, float cap) {
    vf e = vf_exp(vf_mul(x, vf_set(2 / cap)));
    return vf_mul(vf_set(cap), vf_sub(vf_set(1), vf_div(vf_set(2), vf_add(e, vf_set(1)))));
}

/* Turns a query's scores into weights; returns what its earlier sums must be multiplied with. */
static float att_softmax(const att_work *s, float *score, int q) {
    const kern_attention *a = s->a;
    const int first = (int)(a->first[q] > s->base ? min_of(a->first[q] - s->base, RUN) : 0);
    const int last = (int)(a->last[q] < s->base ? -1 : min_of(a->last[q] - s->base, RUN - 1));
    if (first > last) { /* sees nothing of this run */
        memset(score, 0, RUN * sizeof *score);
        return 1;
    }
    for (int i = 0; i < RUN; i += LANES) {
        vf x = vf_mul(vf_load(score + i), vf_set(a->scale));
        vf_store(score + i, a->cap > 0 ? att_cap(x, a->cap) : x);
    }
    for (int i = 0; i < first; i++) score[i] = -INFINITY;
    for (int i = last + 1; i < RUN; i++) score[i] = -INFINITY;
    vf largest = vf_load(score);
    for (int i = LANES; i < RUN; i += LANES) largest = vf_max(largest, vf_load(score + i));
    att_state *state = &s->state[q];
    const float max = fmaxf(state->max, vf_largest(largest));
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

INLINE vf att_value(const uint8_t *row, int64_t at, const int kind, int part) {
    if (part >= LANES) return kind == WORD_F32 ? vf_load((const float *)(const void *)row + at) : vf_half_load(row + 2 * at);
    if (kind == WORD_F32) return vf_load_part((const float *)(const void *)row + at, part);
    uint16_t rest[LANES] = {0};
    memcpy(rest, row + 2 * at, (size_t)part * 2);
    return vf_half_load(rest);
}

/* Adds the weighted values for `count` queries and `wide` vectors of values from column d; part: numbers in the last vector. */
INLINE void att_values_part(const att_work *s, const float weight[PANEL_TILE][RUN], const float *shrink, int q0, int count, int64_t d, int wide, int part,
                            const int kind) {
    vf acc[TILE_STEP][2];
    const int from = (int)(s->from - s->base), to = (int)(s->to - s->base);
#pragma GCC unroll 8
    for (int t = 0; t < count; t++)
#pragma GCC unroll 2
        for (int i = 0; i < wide; i++) {
            const float *sum = s->sums + (int64_t)(q0 + t) * s->a->v_dim + d + i * LANES;
            acc[t][i] = vf_mul(part < LANES ? vf_load_part(sum, part) : vf_load(sum), vf_set(shrink[t]));
        }
    for (int key = from; key <= to; key++) {
        vf v[2];
#pragma GCC unroll 2
        for (int i = 0; i < wide; i++) v[i] = att_value(s->value[key], d + i * LANES, kind, part);
#pragma GCC unroll 8
        for (int t = 0; t < count; t++)
#pragma GCC unroll 2
            for (int i = 0; i < wide; i++) acc[t][i] = vf_fma(v[i], vf_set(weight[t][key]), acc[t][i]);
    }
#pragma GCC unroll 8
    for (int t = 0; t < count; t++)
#pragma GCC unroll 2
        for (int i = 0; i < wide; i++) {
            float *sum = s->sums + (int64_t)(q0 + t) * s->a->v_dim + d + i * LANES;
            if (part < LANES) vf_store_part(sum, acc[t][i], part);
            else vf_store(sum, acc[t][i]);
        }
}

INLINE void att_values_count(const att_work *s, const float weight[PANEL_TILE][RUN], const float *shrink, int q0, int count, const int kind) {
    int64_t d = 0;
    for (; d + 2 * LANES <= s->a->v_dim; d += 2 * LANES) att_values_part(s, weight, shrink, q0, count, d, 2, LANES, kind);
    for (; d + LANES <= s->a->v_dim; d += LANES) att_values_part(s, weight, shrink, q0, count, d, 1, LANES, kind);
    if (d < s->a->v_dim) att_values_part(s, weight, shrink, q0, count, d, 1, (int)(s->a->v_dim - d), kind);
}

#define ATT_VALUES(name, kind)                                                                                                            \
    static void att_values_##name(const att_work *s, const float weight[PANEL_TILE][RUN], const float *shrink, int q0, int w) {           \
        int t = 0;                                                                                                                         \
        for (; t + TILE_STEP <= w; t += TILE_STEP) att_values_count(s, weight + t, shrink + t, q0 + t, TILE_STEP, kind);                   \
        for (; t + 4 <= w; t += 4) att_values_count(s, weight + t, shrink + t, q0 + t, 4, kind);                                           \
        for (; t + 2 <= w; t += 2) att_values_count(s, weight + t, shrink + t, q0 + t, 2, kind);                                           \
        for (; t < w; t++) att_values_count(s, weight + t, shrink + t, q0 + t, 1, kind);                                                   \
    }
ATT_VALUES(f32, WORD_F32)
ATT_VALUES(f16, WORD_F16)

/* The run for one tile of queries. */
static void att_tile(const att_work *s, int q0, int w) {
    _Alignas(64) float score[PANEL_TILE][RUN];
    float shrink[PANEL_TILE];
    bool any = false;
    for (int t = 0; t < w; t++) any |= s->a->first[q0 + t] <= s->to && s->a->last[q0 + t] >= s->from;
    if (!any) return;
    memset(score, 0, sizeof score); /* places of the run that no query may see are never computed */
    att_scores(s, score, q0, w);
    for (int t = 0; t < w; t++) shrink[t] = att_softmax(s, score[t], q0 + t);
    if (s->kind == WORD_F32) att_values_f32(s, (const float(*)[RUN])score, shrink, q0, w);
    else att_values_f16(s, (const float(*)[RUN])score, shrink, q0, w);
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

static void vec_attention(const kern_attention *a) {
    att_work s = {.a = a, .kind = a->kv_type == QUANT_F32 ? WORD_F32 : WORD_F16, .size = a->kv_type == QUANT_F32 ? 4 : 2};
    s.k_padded = (int)float_padded(a->k_dim);
    s.keys = (uint8_t *)a->scratch;
    s.queries = a->scratch + RUN * s.k_padded;
    s.sums = s.queries + (size_t)a->n_q * (size_t)s.k_padded;
    s.state = (att_state *)(s.sums + (size_t)a->n_q * (size_t)a->v_dim);
    int64_t first = INT64_MAX, last = -1;
    for (int q = 0; q < a->n_q; q++) {
        s.state[q] = (att_state){.max = -INFINITY, .sum = 0};
        if (a->first[q] < first) first = a->first[q];
        if (a->last[q] > last) last = a->last[q];
    }
    memset(s.sums, 0, (size_t)a->n_q * (size_t)a->v_dim * sizeof(float));
    att_load_queries(&s);
    for (s.base = first / RUN * RUN; s.base <= last; s.base += RUN) {
        s.from = s.base < first ? first : s.base;
        s.to = min_of(s.base + RUN - 1, last);
        att_load_run(&s);
        for (int q = 0; q < a->n_q; q += PANEL_TILE) att_tile(&s, q, (int)min_of(PANEL_TILE, a->n_q - q));
    }
    att_finish(&s);
}

#endif
