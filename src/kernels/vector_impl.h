/* vector_impl.h: functions that run along a vector, in the words of an ops_*.h. */
#ifndef KERNELS_VECTOR_IMPL_H
#define KERNELS_VECTOR_IMPL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* e^x with a relative error below 2e-7; 0 below -87, at most e^88. */
INLINE vf vf_exp(vf x) {
    vf clamped = vf_min(vf_max(x, vf_set(-87)), vf_set(88));
    vf n = vf_round(vf_mul(clamped, vf_set(1.44269504f)));
    vf r = vf_fma(n, vf_set(-0.693359375f), clamped);
    r = vf_fma(n, vf_set(2.12194440e-4f), r);
    vf p = vf_set(1.0f / 720);
    p = vf_fma(p, r, vf_set(1.0f / 120));
    p = vf_fma(p, r, vf_set(1.0f / 24));
    p = vf_fma(p, r, vf_set(1.0f / 6));
    p = vf_fma(p, r, vf_set(0.5f));
    p = vf_fma(p, r, vf_set(1));
    p = vf_fma(p, r, vf_set(1));
    vf power = vf_bits(vi_shl(vi_add(vi_of(n), vi_set(127)), 23));
    return vf_where_above(x, -87, vf_mul(p, power));
}

/* A tail that is shorter than a vector, by way of a whole one. */
INLINE vf vf_load_some(const float *p, int64_t n) { return n >= LANES ? vf_load(p) : vf_load_part(p, (int)n); }
INLINE void vf_store_some(float *p, vf x, int64_t n) {
    if (n >= LANES) vf_store(p, x);
    else vf_store_part(p, x, (int)n);
}

static float vec_dot(const float *a, const float *b, int64_t n) {
    vf sum[4] = {vf_set(0), vf_set(0), vf_set(0), vf_set(0)};
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
#pragma GCC unroll 4
        for (int l = 0; l < 4; l++) sum[l] = vf_fma(vf_load(a + i + l * LANES), vf_load(b + i + l * LANES), sum[l]);
    for (; i < n; i += LANES) sum[0] = vf_fma(vf_load_some(a + i, n - i), vf_load_some(b + i, n - i), sum[0]);
    return vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
}

static void vec_rms_norm(float *y, const float *x, const float *weight, int64_t n, float eps) {
    const vf factor = vf_set(1 / sqrtf(vec_dot(x, x, n) / (float)n + eps));
    for (int64_t i = 0; i < n; i += LANES) {
        vf v = vf_mul(vf_load_some(x + i, n - i), factor);
        if (weight) v = vf_mul(v, vf_load_some(weight + i, n - i));
        vf_store_some(y + i, v, n - i);
    }
}

static void vec_add(float *y, const float *x, float scale, int64_t n) {
    const vf s = vf_set(scale);
    for (int64_t i = 0; i < n; i += LANES) vf_store_some(y + i, vf_fma(s, vf_load_some(x + i, n - i), vf_load_some(y + i, n - i)), n - i);
}

static void vec_silu_mul(float *y, const float *gate, const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        vf g = vf_load_some(gate + i, n - i), u = vf_load_some(up + i, n - i);
        vf s = vf_mul(g, vf_inverse(vf_add(vf_set(1), vf_exp(vf_sub(vf_set(0), g)))));
        vf_store_some(y + i, vf_mul(s, u), n - i);
    }
}

/* (1 + tanh(u)) / 2 is 1 / (1 + e^(-2u)). */
static void vec_gelu_mul(float *y, const float *gate, const float *up, int64_t n) {
    for (int64_t i = 0; i < n; i += LANES) {
        vf g = vf_load_some(gate + i, n - i), u = vf_load_some(up + i, n - i);
        vf inner = vf_mul(vf_mul(g, vf_set(-1.5957691216f)), vf_fma(vf_mul(g, vf_set(0.044715f)), g, vf_set(1)));
        vf s = vf_mul(g, vf_inverse(vf_add(vf_set(1), vf_exp(inner))));
        vf_store_some(y + i, vf_mul(s, u), n - i);
    }
}

static void vec_to_f16(uint16_t *dst, const float *src, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) vf_half_store(dst + i, vf_load(src + i));
    if (i < n) {
        uint16_t rest[LANES];
        vf_half_store(rest, vf_load_part(src + i, (int)(n - i)));
        memcpy(dst + i, rest, (size_t)(n - i) * sizeof *rest);
    }
}

#endif
