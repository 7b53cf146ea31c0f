/* experts.c: mixture of experts. A router scores the experts for each token, a few are chosen, and every chosen
 * expert computes all of its tokens at once. */
#include <math.h>
#include <string.h>

#include "model/model.h"

/* The index of the largest value that is not yet taken (NaN counts as smallest); the lowest index wins a tie. */
static int take_largest(float *values, int n) {
    int best = -1;
    for (int i = 0; i < n; i++) {
        if (values[i] == -INFINITY || isnan(values[i])) continue;
        if (best < 0 || values[i] > values[best]) best = i;
    }
    if (best >= 0) values[best] = -INFINITY;
    return best;
}

static void softmax(float *x, int n) {
    float max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) max = fmaxf(max, x[i]);
    for (int i = 0; i < n; i++) sum += x[i] = expf(x[i] - max);
    for (int i = 0; i < n; i++) x[i] /= sum;
}

/* Keeps only the best groups of experts: each is scored by its best expert, or by its best two where a bias steers the choice. */
static void limit_groups(const model_params *p, float *choice, bool two) {
    int size = p->n_experts / p->n_groups;
    float scores[MAX_GROUPS];
    for (int g = 0; g < p->n_groups; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (int i = 0; i < size; i++) {
            float v = choice[g * size + i];
            if (v > first) second = first, first = v;
            else if (v > second) second = v;
        }
        scores[g] = two && size > 1 ? first + second : first;
    }
    bool keep[MAX_GROUPS] = {0};
    for (int i = 0; i < p->n_groups_used; i++) {
        int g = take_largest(scores, p->n_groups);
        if (g >= 0) keep[g] = true;
    }
    for (int g = 0; g < p->n_groups; g++)
        for (int i = 0; i < size && !keep[g]; i++) choice[g * size + i] = -INFINITY;
}

/* From the router's logits (overwritten) to n_used experts and their weights. choice is scratch of n_experts floats. */
static void route(const model_params *p, const model_layer *l, float *logits, float *choice, int *chosen, float *share) {
    int n = p->n_experts;
    if (l->router_bias)
        for (int i = 0; i < n; i++) logits[i] += l->router_bias[i];
    if (p->gating == GATING_SOFTMAX) softmax(logits, n);
    if (p->gating == GATING_SIGMOID)
        for (int i = 0; i < n; i++) logits[i] = 1 / (1 + expf(-logits[i]));
    for (int i = 0; i < n; i++) choice[i] = logits[i] + (l->choice_bias ? l->choice_bias[i] : 0);
    if (p->n_groups > 1) limit_groups(p, choice, l->choice_bias != NULL);
    for (int k = 0; k < p->n_used; k++) {
        int i = take_largest(choice, n);
        chosen[k] = i < 0 ? k : i; /* not a number everywhere: any choice gives not a number */
        share[k] = logits[chosen[k]];
    }
    if (p->gating == GATING_SOFTMAX_CHOSEN) softmax(share, p->n_used);
    if (p->norm_chosen) {
        float sum = 1e-20f;
        for (int k = 0; k < p->n_used; k++) sum += share[k];
        for (int k = 0; k < p->n_used; k++) share[k] /= sum;
    }
    for (int k = 0; k < p->n_used; k++) share[k] *= p->expert_scale;
}

void model_activate(const model *m, float *y, const float *gate, const float *up, int64_t n) {
    switch (m->params.arch->activation) {
    case ACT_SILU: m->kern->silu_mul(y, gate, up, n); break;
    case ACT_GELU: m->kern->gelu_mul(y, gate, up, n); break;
    case ACT_CLAMPED:
        for (int64_t i = 0; i < n; i++) {
            float g = fminf(gate[i], 7), u = fminf(fmaxf(up[i], -7), 7);
            y[i] = (u + 1) * g / (1 + expf(-1.702f * g));
        }
        break;
    }
}

void model_join_columns(void *context, float *gate, float *up, int64_t first, int64_t n) {
    const model_join *j = context;
    if (j->gate_bias) j->m->kern->add(gate, j->gate_bias + first, 1, n);
    if (j->up_bias) j->m->kern->add(up, j->up_bias + first, 1, n);
    model_activate(j->m, gate, gate, up, n);
}

/* Slots are (token, k) pairs sorted by expert: slot s computes token slot_token[s], and slot_of[t * n_used + k] = s. */
typedef struct job {
    const model *m;
    const model_layer *l;
    int n, n_used;
    float *logits, *choice, *weights; /* [n][n_experts], [n][n_experts], [n][n_used] */
    int *chosen;                      /* [n][n_used] */
    int *first;                       /* [n_experts + 1]: where an expert's slots begin */
    int32_t *slot_token, *slot_of;
    float *gate, *up, *down;          /* [slots][n_ff_expert], .., [slots][n_embd] */
    float *shared_gate, *shared_up, *shared; /* the same for the experts that every token uses, as one: [n][n_ff_shared], .., [n][n_embd]; NULL: there are none */
    float *y;
} job;

size_t model_experts_floats(const model_params *p, int n) {
    if (!p->n_experts) return 0;
    size_t slots = (size_t)n * (size_t)p->n_used;
    size_t shared = (size_t)n * ((size_t)p->n_ff_shared * 2 + (size_t)p->n_embd);
    return (size_t)n * (size_t)p->n_experts * 2 + slots * (1 + 2 * (size_t)p->n_ff_expert + (size_t)p->n_embd) + shared;
}

size_t model_experts_ints(const model_params *p, int n) {
    return p->n_experts ? (size_t)n * (size_t)p->n_used * 3 + (size_t)p->n_experts + 1 : 0;
}

static void route_token(void *context, int64_t t, int thread) {
    (void)thread;
    job *j = context;
    int64_t x = j->m->params.n_experts;
    route(&j->m->params, j->l, j->logits + t * x, j->choice + t * x, j->chosen + t * j->n_used, j->weights + t * j->n_used);
}

static model_join join_of(const job *j, int expert) {
    const model_layer *l = j->l;
    const int64_t at = (int64_t)expert * j->m->params.n_ff_expert;
    return (model_join){.m = j->m, .gate_bias = l->gate_exps_bias ? l->gate_exps_bias + at : NULL, .up_bias = l->up_exps_bias ? l->up_exps_bias + at : NULL};
}

/* Slots, then the tokens for the shared experts. */
static void activate_slot(void *context, int64_t s, int thread) {
    (void)thread;
    job *j = context;
    int64_t ff = j->m->params.n_ff_expert, slots = (int64_t)j->n * j->n_used;
    if (s >= slots) {
        const int64_t wide = j->m->params.n_ff_shared, at = (s - slots) * wide;
        model_activate(j->m, j->shared_gate + at, j->shared_gate + at, j->shared_up + at, wide);
        return;
    }
    const int *first = j->first;
    int lo = 0, hi = j->m->params.n_experts; /* the expert of this slot, for its biases */
    while (lo + 1 < hi) {
        int mid = (lo + hi) / 2;
        if (first[mid] <= s) lo = mid;
        else hi = mid;
    }
    model_join join = join_of(j, lo);
    model_join_columns(&join, j->gate + s * ff, j->up + s * ff, 0, ff);
}

/* Adds up a token's experts, in the order they were chosen, so that the sum does not depend on the other tokens. */
static void combine_token(void *context, int64_t t, int thread) {
    (void)thread;
    job *j = context;
    int64_t width = j->m->params.n_embd;
    float *y = j->y + t * width;
    memset(y, 0, (size_t)width * sizeof *y);
    for (int k = 0; k < j->n_used; k++) {
        float w = j->weights[t * j->n_used + k];
        j->m->kern->add(y, j->down + (int64_t)j->slot_of[t * j->n_used + k] * width, w, width);
        if (j->l->down_exps_bias) j->m->kern->add(y, j->l->down_exps_bias + (int64_t)j->chosen[t * j->n_used + k] * width, w, width);
    }
    if (j->shared) j->m->kern->add(y, j->shared + t * width, 1, width);
}

static void sort_slots(job *j) {
    int n_experts = j->m->params.n_experts, slots = j->n * j->n_used;
    memset(j->first, 0, (size_t)(n_experts + 1) * sizeof *j->first);
    for (int s = 0; s < slots; s++) j->first[j->chosen[s] + 1]++;
    for (int x = 0; x < n_experts; x++) j->first[x + 1] += j->first[x];
    for (int s = 0; s < slots; s++) {
        int slot = j->first[j->chosen[s]]++;
        j->slot_token[slot] = s / j->n_used;
        j->slot_of[s] = slot;
    }
    for (int x = n_experts; x > 0; x--) j->first[x] = j->first[x - 1];
    j->first[0] = 0;
}

/* What an expert's tokens are multiplied with: w, and w2 (may be NULL), which reads the same. */
static void take_pair(const model *m, kern_group *g, taken t[2], const weight *w, const weight *w2, int i) {
    t[0] = t[1] = (taken){.held = NULL};
    if (g->n == 0) return;
    t[0] = model_take(m, w, i);
    g->w[0] = &t[0].mat;
    g->count = w2 ? 2 : 1;
    if (!w2) return;
    t[1] = model_take(m, w2, i);
    g->w[1] = &t[1].mat;
}

/* One product, or two, for every expert that has tokens; the last group is that of the shared ones. */
static bool multiply_experts(job *j, model_run *r, kern_group *groups, taken *t, const weight *const w[2], const weight *const shared[2], err *e) {
    int n_experts = j->m->params.n_experts, count = n_experts + (j->shared != NULL);
    for (int i = 0; i < n_experts; i++) take_pair(j->m, &groups[i], t + 2 * i, w[0], w[1], i);
    if (j->shared) take_pair(j->m, &groups[n_experts], t + 2 * n_experts, shared[0], shared[1], 0);
    bool ok = kern_mul_groups(j->m->kern, r->pool, groups, count, &r->scratch, e);
    for (int i = 0; i < 2 * count; i++) model_give(j->m, &t[i]);
    return ok;
}

static bool run_experts(job *j, model_run *r, const float *x, err *e) {
    const model_params *p = &j->m->params;
    const model_layer *l = j->l;
    int n_experts = p->n_experts;
    kern_group *groups = mem_zalloc((size_t)n_experts + 1, sizeof *groups, e);
    taken *t = mem_alloc((size_t)(n_experts + 1) * 2, sizeof *t, e);
    bool ok = groups && t;
    for (int i = 0; ok && i < n_experts; i++) {
        int64_t at = j->first[i];
        groups[i] = (kern_group){.x = x, .ldx = p->n_embd, .tokens = j->slot_token + at, .n = j->first[i + 1] - at, .ldy = {p->n_ff_expert, p->n_ff_expert},
                                 .y = {j->gate + at * p->n_ff_expert, j->up + at * p->n_ff_expert}};
    }
    if (ok && j->shared)
        groups[n_experts] = (kern_group){.x = x, .ldx = p->n_embd, .n = j->n, .ldy = {p->n_ff_shared, p->n_ff_shared}, .y = {j->shared_gate, j->shared_up}};
    ok = ok && multiply_experts(j, r, groups, t, (const weight *const[]){&l->gate_exps, &l->up_exps}, (const weight *const[]){&l->gate_shared, &l->up_shared}, e);
    if (ok) pool_run(r->pool, (int64_t)j->n * (j->n_used + (j->shared != NULL)), activate_slot, j);
    for (int i = 0; ok && i < n_experts; i++) {
        int64_t at = j->first[i];
        groups[i] = (kern_group){.x = j->gate + at * p->n_ff_expert, .ldx = p->n_ff_expert, .n = j->first[i + 1] - at, .ldy = {p->n_embd},
                                 .y = {j->down + at * p->n_embd}};
    }
    if (ok && j->shared)
        groups[n_experts] = (kern_group){.x = j->shared_gate, .ldx = p->n_ff_shared, .n = j->n, .ldy = {p->n_embd}, .y = {j->shared}};
    ok = ok && multiply_experts(j, r, groups, t, (const weight *const[]){&l->down_exps, NULL}, (const weight *const[]){&l->down_shared, NULL}, e);
    mem_free(groups);
    mem_free(t);
    return ok;
}

/* The same in one go: expert i, or after the last one those that every token uses. */
static void gate_expert(const job *j, kern_gated *g, model_join *join, taken t[3], const float *x, int i) {
    const model_layer *l = j->l;
    const int64_t width = j->m->params.n_embd, at = j->first[i];
    const bool shared = i == j->m->params.n_experts;
    const weight *const w[3] = {shared ? &l->gate_shared : &l->gate_exps, shared ? &l->up_shared : &l->up_exps, shared ? &l->down_shared : &l->down_exps};
    *join = shared ? (model_join){.m = j->m} : join_of(j, i);
    *g = (kern_gated){.join = model_join_columns, .context = join, .x = x, .ldx = width, .tokens = shared ? NULL : j->slot_token + at, .n = shared ? j->n : j->first[i + 1] - at,
                      .y = shared ? j->shared : j->down + at * width, .ldy = width};
    for (int k = 0; g->n > 0 && k < 3; k++) t[k] = model_take(j->m, w[k], shared ? 0 : i);
    g->gate = &t[0].mat, g->up = &t[1].mat, g->down = &t[2].mat;
}

static bool run_gated(job *j, model_run *r, const float *x, err *e) {
    const int count = j->m->params.n_experts + (j->shared != NULL);
    kern_gated *groups = mem_alloc((size_t)count, sizeof *groups, e);
    model_join *joins = mem_alloc((size_t)count, sizeof *joins, e);
    taken *t = mem_zalloc((size_t)count * 3, sizeof *t, e);
    bool ok = groups && joins && t, held = ok;
    for (int i = 0; ok && i < count; i++) gate_expert(j, &groups[i], &joins[i], t + 3 * i, x, i);
    ok = ok && kern_mul_gated(j->m->kern, r->pool, groups, count, &r->scratch, e);
    for (int i = 0; held && i < 3 * count; i++) model_give(j->m, &t[i]);
    mem_free(groups), mem_free(joins), mem_free(t);
    return ok;
}

static bool gated_pays(const job *j, const pool *p) {
    const model_params *m = &j->m->params;
    int64_t rows = j->shared ? m->n_ff_shared : 0;
    for (int i = 0; i < m->n_experts; i++) rows += j->first[i + 1] > j->first[i] ? m->n_ff_expert : 0;
    return kern_gated_pays(p, rows, j->n);
}

bool model_experts(const model *m, const model_layer *l, model_run *r, const float *x, float *y, int n, float *scratch, int *ints, err *e) {
    const model_params *p = &m->params;
    int64_t slots = (int64_t)n * p->n_used;
    job j = {.m = m, .l = l, .n = n, .n_used = p->n_used, .y = y};
    j.logits = scratch;
    j.choice = j.logits + (int64_t)n * p->n_experts;
    j.weights = j.choice + (int64_t)n * p->n_experts;
    j.gate = j.weights + slots;
    j.up = j.gate + slots * p->n_ff_expert;
    j.down = j.up + slots * p->n_ff_expert;
    if (l->gate_shared.mat.data) {
        j.shared = j.down + slots * p->n_embd;
        j.shared_gate = j.shared + (int64_t)n * p->n_embd;
        j.shared_up = j.shared_gate + (int64_t)n * p->n_ff_shared;
    }
    j.chosen = ints;
    j.slot_token = ints + slots;
    j.slot_of = j.slot_token + slots;
    j.first = j.slot_of + slots;
    if (!model_multiply_exact(m, r, &l->router, x, p->n_embd, n, j.logits, p->n_experts, e)) return false;
    pool_run(r->pool, n, route_token, &j);
    sort_slots(&j);
    if (!(gated_pays(&j, r->pool) ? run_gated(&j, r, x, e) : run_experts(&j, r, x, e))) return false;
    pool_run(r->pool, n, combine_token, &j); /* y may be x: only from here on is it written */
    return true;
}
