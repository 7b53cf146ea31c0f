/* product.c: products with weights. Each weight is held in the cache while it is used, in whatever form is ready; all forms give the same bits. */
#include "model/model.h"

taken model_take(const model *m, const weight *w, int i) {
    taken t = {.mat = w->mat};
    if (m->cache && w->handle) {
        t.held = weights_acquire(m->cache, w->handle - 1 + i);
        t.mat = *t.held;
    } else {
        t.mat.data = (const char *)w->mat.data + w->stride * (size_t)i;
    }
    return t;
}

void model_give(const model *m, taken *t) {
    if (t->held) weights_release(m->cache, t->held);
    t->held = NULL;
}

void model_expect(const model *m, model_run *r, const weight *const *w, int count) {
    kern_scratch *s = &r->scratch;
    s->n_next = 0;
    for (int i = 0; m->cache && i < count; i++) {
        struct kern_range *to = &s->next[s->n_next];
        if (w[i]->handle) s->n_next += weights_peek(m->cache, w[i]->handle - 1, &to->at, &to->bytes);
    }
}

bool model_multiply(const model *m, model_run *r, const weight *const *w, int count, const float *x, int64_t ldx, int64_t n, float *const *y,
                    const int64_t *ldy, err *e) {
    return model_multiply_made(m, r, w, count, NULL, NULL, x, ldx, n, y, ldy, e);
}

bool model_multiply_made(const model *m, model_run *r, const weight *const *w, int count, kern_make *make, void *context, const float *x, int64_t ldx, int64_t n,
                         float *const *y, const int64_t *ldy, err *e) {
    taken t[KERN_SHARED];
    const kern_weight *mats[KERN_SHARED] = {0};
    for (int i = 0; i < count && i < KERN_SHARED; i++) {
        t[i] = model_take(m, w[i], 0);
        mats[i] = &t[i].mat;
    }
    bool ok = kern_mul_many(m->kern, r->pool, mats, count, make, context, x, ldx, n, y, ldy, &r->scratch, e);
    for (int i = 0; i < count; i++) model_give(m, &t[i]);
    return ok;
}

bool model_multiply_exact(const model *m, model_run *r, const weight *w, const float *x, int64_t ldx, int64_t n, float *y, int64_t ldy, err *e) {
    const kern_matmul *product = kernels_matmul(m->kern, w->mat.type);
    const int64_t most = product && product->many ? product->many - 1 : n;
    for (int64_t t = 0; t < n; t += most) {
        float *to = y + t * ldy;
        if (!model_multiply(m, r, &w, 1, x + t * ldx, ldx, n - t < most ? n - t : most, &to, &ldy, e)) return false;
    }
    return true;
}

bool model_multiply_gated(const model *m, model_run *r, const weight *const w[3], model_join *join, int part, const float *x, int64_t ldx, int64_t n, float *y, int64_t ldy, err *e) {
    taken t[3];
    for (int i = 0; i < 3; i++) t[i] = model_take(m, w[i], 0);
    const kern_gated g = {.gate = &t[0].mat, .up = &t[1].mat, .down = &t[2].mat, .join = model_join_columns, .context = join, .x = x, .ldx = ldx, .n = n, .y = y, .ldy = ldy};
    const bool ok = part < 0 ? kern_mul_gated(m->kern, r->pool, &g, 1, &r->scratch, e) : kern_mul_gated_part(m->kern, r->pool, &g, 1, part, &r->scratch, e);
    for (int i = 0; i < 3; i++) model_give(m, &t[i]);
    return ok;
}
