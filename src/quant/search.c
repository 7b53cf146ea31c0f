/* search.c: see search.h. Loops are short and simple and sums run in eight lanes, so that compilers vectorise them. */
#include "quant/search.h"

#include <math.h>

enum { SMALL = 32 };

static inline float sum(const float *v, int n) {
    float s[8] = {0};
    for (int i = 0; i < n; i += 8)
        for (int lane = 0; lane < 8; lane++) s[lane] += v[i + lane];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

bool search_load(search_block *b, const float *src, int n) {
    float top = 0, squares[QUANT_SUPER];
    int exponent;
    quant_load(b->x, src, n, 0x1p40f);
    for (int i = 0; i < n; i++) top = fabsf(b->x[i]) > top ? fabsf(b->x[i]) : top;
    if (top < 0x1p-60f) return false;
    frexpf(top, &exponent);
    b->unit = ldexpf(1.0f, exponent);
    const float inverse = ldexpf(1.0f, -exponent);
    for (int i = 0; i < n; i++) {
        b->x[i] *= inverse;
        squares[i] = b->x[i] * b->x[i];
    }
    const float typical = sqrtf(sum(squares, n) / (float)n);
    for (int i = 0; i < n; i++) b->w[i] = typical + fabsf(b->x[i]);
    return true;
}

/* A scale as the file will hold it, in the units of x. What is not zero does not become zero. */
static float as_half(const search_block *b, float scale) {
    const float s = scale * b->unit, a = fabsf(s);
    const float kept = a > 65504.0f ? 65504.0f : a == 0 || a >= 0x1p-24f ? a : 0x1p-24f;
    const float h = quant_half(quant_to_half(kept)) / b->unit;
    return s < 0 ? -h : h;
}

static inline float inverse_of(float d) { return d != 0 ? 1.0f / d : 0.0f; }

/* The integer nearest to v, from low to high. */
static inline int integer(float v, int low, int high) {
    return !(v > (float)low) ? low : v >= (float)high ? high : (int)floorf(v + 0.5f);
}

/* Codes 0..top of x * inverse + shift, as floats. Three loops, because gcc vectorises only simple ones. */
static inline void snap(float *restrict codes, const float *restrict x, float inverse, float shift, int top, int n) {
    const float limit = (float)top + 0.5f;
    for (int i = 0; i < n; i++) {
        const float v = x[i] * inverse + (shift + 0.5f);
        codes[i] = v > 0 ? v : 0;
    }
    for (int i = 0; i < n; i++) codes[i] = codes[i] < limit ? codes[i] : limit;
    for (int i = 0; i < n; i++) codes[i] = (float)(int)codes[i];
}

typedef struct line { float scale, min; } line;

/* The line and the codes that suit a small block best, whatever its neighbours need. */
static line fit_line(const float *x, const float *w, const search_mins_shape *t) {
    const int n = t->n;
    float low = 0, high = x[0], wx[SMALL], wxx[SMALL];
    for (int i = 0; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        wx[i] = w[i] * x[i];
        wxx[i] = wx[i] * x[i];
    }
    if (!(high > low)) return (line){0, -low};
    line best = {(high - low) / (float)t->top, -low};
    const float sw = sum(w, n), swx = sum(wx, n), swxx = sum(wxx, n);
    float least = INFINITY;
    for (int step = 0; step < t->steps + 2; step++) {
        const float codes = (float)t->top + t->from + (t->to - t->from) * (float)step / (float)(t->steps - 1);
        const bool again = step >= t->steps; /* the last two start from the best so far */
        const float inverse = again ? inverse_of(best.scale) : codes / (high - low);
        float l[SMALL], wl[SMALL], wll[SMALL], wxl[SMALL];
        snap(l, x, inverse, (again ? best.min : -low) * inverse, t->top, n);
        for (int i = 0; i < n; i++) {
            wl[i] = w[i] * l[i];
            wll[i] = wl[i] * l[i];
            wxl[i] = wx[i] * l[i];
        }
        const float sl = sum(wl, n), sll = sum(wll, n), sxl = sum(wxl, n), determinant = sw * sll - sl * sl;
        if (!(determinant > 1e-6f * sw * sll)) continue; /* all codes are equal */
        line c = {(sw * sxl - swx * sl) / determinant, (sl * sxl - sll * swx) / determinant};
        if (c.min < 0) c = (line){sxl / sll, 0};
        const float error = swxx - c.scale * sxl + c.min * swx;
        if (error < least && c.scale > 0) {
            least = error;
            best = c;
        }
    }
    return best;
}

static float line_error(float *codes, const float *x, const float *w, line c, const search_mins_shape *t) {
    const float inverse = inverse_of(c.scale);
    float e[SMALL];
    snap(codes, x, inverse, c.min * inverse, t->top, t->n);
    for (int i = 0; i < t->n; i++) {
        const float miss = c.scale * codes[i] - c.min - x[i];
        e[i] = w[i] * miss * miss;
    }
    return sum(e, t->n);
}

/* Integers and codes for given d and dmin, near the wanted lines. */
static void assign_mins(search_mins *out, const search_block *b, const line *wanted, float d, float dmin, const search_mins_shape *t) {
    const float id = inverse_of(d), idmin = inverse_of(dmin);
    out->d = d;
    out->dmin = dmin;
    out->error = 0;
    for (int s = 0; s < t->count; s++) {
        const int scale = integer(wanted[s].scale * id, 0, t->levels), min = integer(wanted[s].min * idmin, 0, t->levels);
        float least = INFINITY, codes[SMALL];
        for (int k = 0; k < 9; k++) {
            const int a = scale + k / 3 - 1, m = min + k % 3 - 1;
            if (a < 0 || a > t->levels || m < 0 || m > t->levels) continue;
            const line c = {d * (float)a, dmin * (float)m};
            const float error = line_error(codes, b->x + s * t->n, b->w + s * t->n, c, t);
            if (!(error < least)) continue;
            least = error;
            out->scale[s] = (uint8_t)a;
            out->min[s] = (uint8_t)m;
            for (int i = 0; i < t->n; i++) out->q[s * t->n + i] = (uint8_t)codes[i];
        }
        out->error += least;
    }
}

/* The d and dmin that suit given integers and codes best. */
static bool solve_mins(const search_mins *c, const search_block *b, const search_mins_shape *t, float *d, float *dmin) {
    double aa = 0, am = 0, mm = 0, ax = 0, mx = 0;
    for (int s = 0; s < t->count; s++) {
        const float *x = b->x + s * t->n, *w = b->w + s * t->n;
        float wq[SMALL], wqq[SMALL], wqx[SMALL], wx[SMALL];
        for (int i = 0; i < t->n; i++) {
            const float q = c->q[s * t->n + i];
            wq[i] = w[i] * q;
            wqq[i] = wq[i] * q;
            wqx[i] = wq[i] * x[i];
            wx[i] = w[i] * x[i];
        }
        const double scale = c->scale[s], min = c->min[s];
        aa += scale * scale * sum(wqq, t->n);
        am -= scale * min * sum(wq, t->n);
        mm += min * min * sum(w, t->n);
        ax += scale * sum(wqx, t->n);
        mx -= min * sum(wx, t->n);
    }
    const double determinant = aa * mm - am * am;
    *dmin = c->dmin;
    if (mm == 0 && aa > 0) {
        *d = (float)(ax / aa);
    } else if (determinant > 1e-9 * aa * mm) {
        *d = (float)((ax * mm - mx * am) / determinant);
        *dmin = (float)((aa * mx - am * ax) / determinant);
    } else {
        return false;
    }
    return *d > 0 && *dmin >= 0;
}

void search_with_mins(search_mins *best, const search_block *b, const search_mins_shape *t) {
    line wanted[SEARCH_COUNT];
    float scale = 0, min = 0, d, dmin;
    for (int s = 0; s < t->count; s++) {
        wanted[s] = fit_line(b->x + s * t->n, b->w + s * t->n, t);
        scale = wanted[s].scale > scale ? wanted[s].scale : scale;
        min = wanted[s].min > min ? wanted[s].min : min;
    }
    assign_mins(best, b, wanted, as_half(b, scale / (float)t->levels), as_half(b, min / (float)t->levels), t);
    if (!solve_mins(best, b, t, &d, &dmin)) return;
    d = as_half(b, d);
    dmin = as_half(b, dmin);
    for (int s = 0; s < t->count; s++) wanted[s] = (line){d * (float)best->scale[s], dmin * (float)best->min[s]};
    search_mins next;
    assign_mins(&next, b, wanted, d, dmin, t);
    if (next.error < best->error) *best = next;
}

/* The value nearest to x * inverse, of 16: each border that is passed adds the step across it. */
static inline void snap_values(float *restrict codes, const float *restrict x, float inverse, const int8_t *values, int n) {
    for (int i = 0; i < n; i++) codes[i] = values[0];
    for (int k = 0; k < 15; k++) {
        const float border = 0.5f * (float)(values[k] + values[k + 1]), step = (float)(values[k + 1] - values[k]);
        for (int i = 0; i < n; i++) codes[i] += x[i] * inverse > border ? step : 0;
    }
}

static inline void snap_plain(float *codes, const float *x, float inverse, const search_plain_shape *t) {
    if (t->values) {
        snap_values(codes, x, inverse, t->values, t->n);
    } else {
        snap(codes, x, inverse, -(float)t->low, t->high - t->low, t->n);
        for (int i = 0; i < t->n; i++) codes[i] += (float)t->low;
    }
}

static float fit_scale(const float *x, const float *w, const search_plain_shape *t) {
    float top = 0, wx[SMALL], best = 0, most = 0;
    for (int i = 0; i < t->n; i++) {
        top = fabsf(x[i]) > fabsf(top) ? x[i] : top;
        wx[i] = w[i] * x[i];
    }
    if (fabsf(top) < 0x1p-40f) return 0;
    for (int step = 0; step < 2 * t->steps + 2; step++) {
        /* Both signs, because the codes are not symmetric; then twice from the best so far. */
        const float code = t->from + (t->to - t->from) * (float)(step / 2) / (float)(t->steps - 1);
        const float inverse = step >= 2 * t->steps ? inverse_of(best) : (step & 1 ? code : -code) / top;
        float codes[SMALL], wxl[SMALL], wll[SMALL];
        snap_plain(codes, x, inverse, t);
        for (int i = 0; i < t->n; i++) {
            wxl[i] = wx[i] * codes[i];
            wll[i] = w[i] * codes[i] * codes[i];
        }
        const float sxl = sum(wxl, t->n), sll = sum(wll, t->n);
        if (sll > 0 && sxl * sxl > most * sll) {
            most = sxl * sxl / sll;
            best = sxl / sll;
        }
    }
    return best;
}

static void assign_plain(search_plain *out, const search_block *b, const float *wanted, float d, const search_plain_shape *t) {
    const float id = inverse_of(d);
    out->d = d;
    out->error = 0;
    for (int s = 0; s < t->count; s++) {
        const float *x = b->x + s * t->n, *w = b->w + s * t->n;
        const int near = integer(wanted[s] * id, t->scale_low, t->scale_high);
        float least = INFINITY, codes[SMALL], e[SMALL];
        for (int a = near - 1; a <= near + 1; a++) {
            if (a < t->scale_low || a > t->scale_high) continue;
            const float scale = d * (float)a;
            snap_plain(codes, x, inverse_of(scale), t);
            for (int i = 0; i < t->n; i++) {
                const float miss = scale * codes[i] - x[i];
                e[i] = w[i] * miss * miss;
            }
            const float error = sum(e, t->n);
            if (!(error < least)) continue;
            least = error;
            out->scale[s] = a;
            for (int i = 0; i < t->n; i++) out->q[s * t->n + i] = (int8_t)codes[i];
        }
        out->error += least;
    }
}

static float solve_plain(const search_plain *c, const search_block *b, const search_plain_shape *t) {
    double aa = 0, ax = 0;
    for (int s = 0; s < t->count; s++) {
        float wqq[SMALL], wqx[SMALL];
        for (int i = 0; i < t->n; i++) {
            const float q = c->q[s * t->n + i], wq = b->w[s * t->n + i] * q;
            wqq[i] = wq * q;
            wqx[i] = wq * b->x[s * t->n + i];
        }
        aa += (double)c->scale[s] * c->scale[s] * sum(wqq, t->n);
        ax += (double)c->scale[s] * sum(wqx, t->n);
    }
    return aa > 0 ? (float)(ax / aa) : 0;
}

void search_without_mins(search_plain *best, const search_block *b, const search_plain_shape *t) {
    float wanted[SEARCH_COUNT], scale = 0;
    for (int s = 0; s < t->count; s++) {
        wanted[s] = fit_scale(b->x + s * t->n, b->w + s * t->n, t);
        scale = fabsf(wanted[s]) > fabsf(scale) ? wanted[s] : scale;
    }
    const int most = t->scale_low < 0 ? t->scale_low : t->scale_high; /* of greatest magnitude */
    assign_plain(best, b, wanted, as_half(b, scale / (float)most), t);
    const float d = as_half(b, solve_plain(best, b, t));
    for (int s = 0; s < t->count; s++) wanted[s] = d * (float)best->scale[s];
    search_plain next;
    assign_plain(&next, b, wanted, d, t);
    if (next.error < best->error) *best = next;
}
