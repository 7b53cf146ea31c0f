/* rope.c: rotary position embeddings. Angles are products of a float position and a float frequency, as the
 * models were trained with. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"
#include "quant/quant.h"

/* Reads a vector of n_rot / 2 factors by which frequencies are divided. *out is NULL when there is none. */
static bool load_factors(const model *m, const char *name, float *out, bool *found, err *e) {
    const gguf_tensor *t = gguf_find_tensor(m->file, name);
    *found = t != NULL;
    if (!t) return true;
    int n = m->params.n_rot / 2;
    const quant_info *q = quant_find(t->type);
    if (t->n_dims != 1 || t->ne[0] != n || t->type != QUANT_F32)
        return err_set(e, HEARTH_FORMAT, "the tensor %s does not hold %d float32 values", name, n);
    q->decode(out, t->data, n);
    for (int i = 0; i < n; i++)
        if (!(out[i] > 0) || !isfinite(out[i])) return err_set(e, HEARTH_FORMAT, "the tensor %s holds a factor that is not positive", name);
    return true;
}

static void plain_frequencies(float *f, float base, int n_rot) {
    for (int i = 0; i < n_rot / 2; i++) f[i] = 1.0f / powf(base, (float)(2 * i) / (float)n_rot);
}

/* The dimension whose wave makes `rotations` turns over the original context. */
static double correction_dimension(const model_params *p, double rotations) {
    return p->n_rot * log(p->original_context / (rotations * 6.283185307179586)) / (2 * log(p->rope_base));
}

/* YaRN: fast waves stay, slow ones are stretched, with a ramp between. */
static void yarn_frequencies(float *f, const model_params *p) {
    double low = correction_dimension(p, p->beta_fast), high = correction_dimension(p, p->beta_slow);
    if (!(p->arch->traits & ARCH_YARN_EXACT)) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, p->n_rot - 1);
    if (high <= low) high = low + 0.001;
    for (int i = 0; i < p->n_rot / 2; i++) {
        float ramp = (float)fmin(1, fmax(0, (i - low) / (high - low)));
        f[i] = f[i] / p->scaling_factor * ramp + f[i] * (1 - ramp);
    }
}

static void divide(float *f, const float *factors, int n) {
    for (int i = 0; i < n; i++) f[i] /= factors[i];
}

bool model_load_rope(model *m, err *e) {
    const model_params *p = &m->params;
    int n = p->n_rot / 2;
    float *f = model_own(m, (size_t)n * 4, sizeof *f, e);
    if (!f) return false;
    m->rope = (model_rope){.full = f, .window = f + n, .full_long = NULL, .factor = p->attn_factor};
    float *factors = f + 2 * n, *long_ones = f + 3 * n;
    plain_frequencies(m->rope.full, p->rope_base, p->n_rot);
    plain_frequencies(m->rope.window, p->rope_base_window, p->n_rot);
    if (p->scaling == SCALING_YARN) yarn_frequencies(m->rope.full, p);
    if (p->scaling == SCALING_LINEAR)
        for (int i = 0; i < n; i++) m->rope.full[i] /= p->scaling_factor;
    /* Gemma's windowed layers have a base of their own and no scaling; elsewhere both kinds rotate alike. */
    if (p->rope_base_window == p->rope_base) memcpy(m->rope.window, m->rope.full, (size_t)n * sizeof *f);

    bool found, has_short, has_long;
    if (!load_factors(m, "rope_freqs.weight", factors, &found, e)) return false;
    if (found) {
        divide(m->rope.full, factors, n);
        if (p->rope_base_window == p->rope_base) divide(m->rope.window, factors, n);
    }
    if (!load_factors(m, "rope_factors_short.weight", factors, &has_short, e)) return false;
    if (!load_factors(m, "rope_factors_long.weight", long_ones, &has_long, e)) return false;
    if (has_short != has_long) return err_set(e, HEARTH_FORMAT, "the file has only one of rope_factors_short and rope_factors_long");
    if (has_short) {
        m->rope.full_long = long_ones;
        for (int i = 0; i < n; i++) long_ones[i] = m->rope.full[i] / long_ones[i];
        divide(m->rope.full, factors, n);
        memcpy(m->rope.window, m->rope.full, (size_t)n * sizeof *f);
    }
    return true;
}

void rope_angles(const model *m, const float *f, int64_t position, float *cosines, float *sines) {
    for (int i = 0; i < m->params.n_rot / 2; i++) {
        double angle = (float)position * f[i];
        cosines[i] = (float)cos(angle) * m->rope.factor;
        sines[i] = (float)sin(angle) * m->rope.factor;
    }
}

/* Loops that the compiler makes vectors of: places known, nothing that overlaps. */
static void rotate_pairs(float *restrict x, int half, const float *restrict cosines, const float *restrict sines) {
    for (int i = 0; i < half; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cosines[i] - b * sines[i];
        x[2 * i + 1] = a * sines[i] + b * cosines[i];
    }
}

static void rotate_halves(float *restrict x, float *restrict y, int half, const float *restrict cosines, const float *restrict sines) {
    for (int i = 0; i < half; i++) {
        const float a = x[i], b = y[i];
        x[i] = a * cosines[i] - b * sines[i];
        y[i] = a * sines[i] + b * cosines[i];
    }
}

void rope_rotate(arch_rope style, float *head, int n_rot, const float *cosines, const float *sines) {
    const int half = n_rot / 2;
    if (style == ROPE_PAIRS) rotate_pairs(head, half, cosines, sines);
    else rotate_halves(head, head + half, half, cosines, sines);
}
