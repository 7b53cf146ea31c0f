#include "kernels/matmul.h"

#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/sets.h"
#include "quant/quant.h"

/* A range of rows is one task. It should be short enough that an uneven machine still ends at one time, a few microseconds; the pool hands out several at once, because
 * between two memory has nothing to do for a moment, a twentieth of the time of short ones. */
#define TASK_WORK (1 << 17) /* multiply-adds, weighed for few tokens by the bytes they must read */
#define FEW 8 /* with more tokens a task should be longer: it reads all activations for itself */
#define TASKS_PER_THREAD 8
#define PREPARE_LEAST 4096 /* activations that a task prepares, at least */
#define TASKS_PER_THREAD_MANY 3 /* where the product is computed in the way for many */

/* One product to be split: a weight, its prepared activations, its output. */
typedef struct product {
    const kern_matmul *m;
    const kern_weight *w;
    const void *act;
    float *y;
    int64_t ldy, n;
    int64_t pairs;      /* of rows that are read in turns, the first so many of w and the first of other; 0: they are not */
    const void *other;  /* packed: another weight of the same kind, or the later half of w */
    float *other_y;
    int64_t rest;       /* rows from here to the last have no other; they are a task of their own */
    int64_t step;       /* rows per task */
    int64_t first_task; /* of all products' tasks */
} product;

/* One preparation of activations. */
typedef struct prepare {
    const kern_matmul *m;
    const float *x; /* gathered already, or to be gathered by tokens */
    int64_t ldx, cols, n;
    const int32_t *tokens;
    float *gathered; /* room for the gathered rows when tokens is not NULL */
    kern_make *make; /* NULL, or what makes x first */
    void *context;
    void *act;
    int64_t step, columns; /* per task */
    int64_t first_task;
} prepare;

typedef struct job {
    prepare *prepares;
    product *products;
    int prepare_count, product_count;
    bool by_rows; /* rows of each product are asked for by themselves */
} job;

void kern_scratch_free(kern_scratch *s) {
    mem_free(s->data);
    *s = (kern_scratch){0};
}

static bool scratch_reserve(kern_scratch *s, size_t bytes, err *e) {
    if (bytes <= s->cap) return true;
    void *data = mem_aligned(bytes, 1, e);
    if (!data) return false;
    mem_free(s->data);
    s->data = data;
    s->cap = bytes;
    return true;
}

/* The last entry whose first task is not after i. */
#define FIND_BY_TASK(array, count, i, at)                    \
    int at = 0;                                              \
    for (int high = (count)-1; at < high;) {                 \
        int middle = (at + high + 1) / 2;                    \
        if ((array)[middle].first_task <= (i)) at = middle;  \
        else high = middle - 1;                              \
    }

static int64_t parts_of(int64_t n, int64_t step) { return (n + step - 1) / step; }
static int64_t round_up(int64_t n, int64_t step) { return parts_of(n, step) * step; }

static void prepare_task(void *context, int64_t i, int thread) {
    (void)thread;
    const job *j = context;
    FIND_BY_TASK(j->prepares, j->prepare_count, i, at)
    const prepare *p = &j->prepares[at];
    const int64_t parts = parts_of(p->cols, p->columns), t0 = (i - p->first_task) / parts * p->step, t1 = t0 + p->step < p->n ? t0 + p->step : p->n;
    const int64_t c0 = (i - p->first_task) % parts * p->columns, c1 = c0 + p->columns < p->cols ? c0 + p->columns : p->cols;
    if (p->tokens) {
        for (int64_t t = t0; t < t1; t++)
            memcpy(p->gathered + t * p->cols, p->x + p->tokens[t] * p->ldx, (size_t)p->cols * sizeof(float));
        p->m->act(p->act, p->gathered, p->cols, p->cols, p->n, (kern_part){t0, t1, 0, p->cols});
    } else if (p->make) { /* a few tokens at a time, so that they are read from the caches */
        for (int64_t t = t0, next; t < t1; t = next) {
            next = t + p->m->act_step < t1 ? t + p->m->act_step : t1;
            for (int64_t k = t; k < next; k++) p->make(p->context, k, c0, c1 - c0);
            p->m->act(p->act, p->x + c0, p->ldx, p->cols, p->n, (kern_part){t, next, c0, c1});
        }
    } else {
        p->m->act(p->act, p->x + c0, p->ldx, p->cols, p->n, (kern_part){t0, t1, c0, c1});
    }
}

static void product_rows(const product *p, float *y, int64_t ldy, int64_t r0, int64_t r1) {
    const kern_weight *w = p->w;
    if (w->packed && p->m->rows_packed) p->m->rows_packed(y, ldy, w->packed, w->rows, w->cols, r0, r1, p->act, p->n);
    else p->m->rows(y, ldy, w->data, w->rows, w->cols, r0, r1, p->act, p->n);
}

static void product_pairs(const product *p, int64_t r0, int64_t r1) {
    const kern_weight *w = p->w;
    if (r0 < p->pairs) p->m->pairs_packed((float *const[]){p->y, p->other_y}, (const void *const[]){w->packed, p->other}, w->cols, r0, r1 < p->pairs ? r1 : p->pairs, p->act);
    if (r1 > round_up(p->pairs, p->step)) product_rows(p, p->y, p->ldy, p->rest, w->rows);
}

/* Neighbouring tasks, of one product or of several. */
static void product_tasks(void *context, int64_t first, int64_t end, int thread) {
    (void)thread;
    const job *j = context;
    FIND_BY_TASK(j->products, j->product_count, first, at)
    for (; first < end; at++) {
        const product *p = &j->products[at];
        const int64_t next = at + 1 < j->product_count && j->products[at + 1].first_task < end ? j->products[at + 1].first_task : end;
        const int64_t r0 = (first - p->first_task) * p->step, r1 = (next - p->first_task) * p->step;
        if (p->pairs) product_pairs(p, r0, r1);
        else product_rows(p, p->y, p->ldy, r0, r1 < p->w->rows ? r1 : p->w->rows);
        first = next;
    }
}

static size_t align64(size_t n) { return (n + 63) & ~(size_t)63; }

/* Where reading at two places is faster, a weight is paired with the next one (gate with up, whose rows are then also joined by the thread that computed them), or one half of it with the other. True when the next one
 * is taken too. */
static bool find_pairs(product *p, const kern_weight *next, float *next_y) {
    const kern_weight *w = p->w;
    const int64_t step = p->m->row_step;
    if (p->n != 1 || !w->packed || !p->m->pairs_packed || !kern_cpu_get()->ahead_pair) return false;
    if (next && next->packed && next->type == w->type && next->fine == w->fine && next->rows == w->rows && w->rows % step == 0) {
        p->pairs = p->rest = w->rows;
        p->other = next->packed;
        p->other_y = next_y;
        return true;
    }
    p->pairs = w->rows / step / 2 * step;
    p->rest = 2 * p->pairs;
    p->other = (const char *)w->packed + p->m->packed_bytes(p->pairs, w->cols);
    p->other_y = p->y + p->pairs;
    return false;
}

static int64_t product_task_count(const product *p) { return p->pairs ? parts_of(p->pairs, p->step) + (p->rest < p->w->rows) : parts_of(p->w->rows, p->step); }

/* work: multiply-adds of all products that run together. */
static int64_t rows_per_task(const kern_matmul *m, const kern_weight *w, int64_t n, int64_t work, int threads) {
    const int64_t row_work = w->cols * (n < 4 ? 4 : n);
    if (threads == 1) return round_up(w->rows, m->row_step);
    int64_t rows = (TASK_WORK + row_work - 1) / row_work;
    if (n > FEW) {
        const bool many = m->many && n >= m->many;
        const int64_t most = many ? 512 : 256, share = work / (w->cols * n) / ((int64_t)threads * (many ? TASKS_PER_THREAD_MANY : TASKS_PER_THREAD));
        const int64_t wanted = share < most ? share : most;
        if (rows < wanted) rows = wanted;
    }
    return round_up(rows, m->row_step);
}

/* What few tokens have prepared lies together, column by column. Parted by tokens, threads would write to the same lines, which on cores that do not share a cache takes longer than all the rest. */
static void split_prepare(prepare *p, int threads) {
    p->step = p->n;
    p->columns = p->cols;
    if (p->n > FEW || p->tokens) {
        p->step = round_up(parts_of(p->n, threads * 2), p->m->act_step);
        return;
    }
    const int64_t share = parts_of(p->cols, threads * 2), least = PREPARE_LEAST / p->n;
    p->columns = round_up(share > least ? share : least, KERN_COLUMNS);
}

static int64_t prepare_tasks(const prepare *p) { return parts_of(p->n, p->step) * parts_of(p->cols, p->columns); }

/* A preparation that already makes what is needed, or NULL. */
static const prepare *find_prepare(const job *j, const prepare *want) {
    for (int i = j->prepare_count - 1; i >= 0; i--) {
        const prepare *have = &j->prepares[i];
        if (have->m->act != want->m->act || have->n != want->n || have->cols != want->cols) continue;
        if (have->x == want->x && have->ldx == want->ldx && have->tokens == want->tokens) return have;
        /* A single token chosen by several experts. */
        if (want->n == 1 && have->x + (have->tokens ? have->tokens[0] * have->ldx : 0) ==
                                want->x + (want->tokens ? want->tokens[0] * want->ldx : 0)) return have;
    }
    return NULL;
}

/* Fills the lists of preparations and products. act holds an offset into the scratch until all sizes are known. */
static bool plan(job *j, const kernels *k, const kern_group *groups, int count, int threads, size_t *bytes, err *e) {
    size_t used = 0;
    int64_t first_prepare = 0, product_tasks = 0, work = 0;
    for (int g = 0; g < count; g++)
        for (int i = 0; groups[g].n > 0 && i < groups[g].count; i++) work += groups[g].w[i]->rows * groups[g].w[i]->cols * groups[g].n;
    for (int g = 0; g < count; g++) {
        const kern_group *group = &groups[g];
        for (int i = 0; group->n > 0 && i < group->count; i++) {
            const kern_weight *w = group->w[i];
            const kern_matmul *m = w->fine ? kernels_matmul_fine(k, w->type) : kernels_matmul(k, w->type);
            if (!m) {
                const quant_info *info = quant_find(w->type);
                return err_set(e, HEARTH_UNSUPPORTED, "a weight of type %s cannot be multiplied", info ? info->name : "unknown");
            }
            prepare want = {.m = m, .x = group->x, .ldx = group->ldx, .cols = w->cols, .n = group->n, .tokens = group->tokens};
            const prepare *have = find_prepare(j, &want);
            if (!have) {
                split_prepare(&want, threads);
                want.first_task = first_prepare;
                first_prepare += prepare_tasks(&want);
                want.act = (void *)used;
                used += align64(m->act_bytes(w->cols, group->n));
                if (want.tokens) {
                    want.gathered = (void *)used;
                    used += align64((size_t)want.cols * (size_t)want.n * sizeof(float));
                }
                j->prepares[j->prepare_count] = want;
                have = &j->prepares[j->prepare_count++];
            }
            product *p = &j->products[j->product_count++];
            *p = (product){.m = m, .w = w, .act = have->act, .y = group->y[i], .ldy = group->ldy[i], .n = group->n, .first_task = product_tasks};
            const bool last = i + 1 == group->count, with_next = !j->by_rows && find_pairs(p, last ? NULL : group->w[i + 1], last ? NULL : group->y[i + 1]);
            p->step = rows_per_task(m, w, group->n, work, threads);
            if (p->pairs) p->step = round_up(p->step / 2, m->row_step);
            product_tasks += product_task_count(p);
            i += with_next;
        }
    }
    *bytes = used;
    return true;
}

static int64_t task_count_prepare(const job *j) {
    if (!j->prepare_count) return 0;
    const prepare *p = &j->prepares[j->prepare_count - 1];
    return p->first_task + prepare_tasks(p);
}

static int64_t task_count_product(const job *j) {
    if (!j->product_count) return 0;
    const product *p = &j->products[j->product_count - 1];
    return p->first_task + product_task_count(p);
}

/* From offsets to addresses. */
static void place(job *j, char *memory) {
    for (int i = 0; i < j->prepare_count; i++) {
        j->prepares[i].act = memory + (size_t)j->prepares[i].act;
        j->prepares[i].gathered = (float *)(void *)(memory + (size_t)j->prepares[i].gathered);
    }
    for (int i = 0; i < j->product_count; i++) j->products[i].act = memory + (size_t)j->products[i].act;
}

#define AHEAD ((size_t)256 << 10) /* bytes that a thread that waits asks for: what memory gives it in the time between two products. It must stay in the second cache */

/* Tells the threads where each will begin to read in the product after this one. The caller, which has other things to do until then, asks while it waits for the others. */
static void look_ahead(kern_scratch *s, pool *p, bool few, bool pairs) {
    const int threads = pool_threads(p);
    const struct kern_range *next = s->next;
    const bool joined = pairs && s->n_next == 2 && next[0].bytes == next[1].bytes;
    const size_t halves = pairs && !joined ? 2 : 1, most = pairs ? AHEAD / 2 : AHEAD;
    size_t total = 0;
    for (int i = 0; few && i < (joined ? 1 : s->n_next); i++) total += next[i].bytes / halves;
    for (int t = 0; t < threads; t++) {
        size_t at = total * (size_t)t / (size_t)threads;
        const struct kern_range *r = next;
        while (total && at >= r->bytes / halves) at -= r++->bytes / halves;
        const size_t left = r->bytes / halves - at, apart = joined ? (uintptr_t)next[1].at - (uintptr_t)next[0].at : pairs ? r->bytes / 2 : 0;
        pool_ahead(p, t, total ? r->at + at / 64 * 64 : NULL, apart, left < most ? left : most);
    }
    s->n_next = 0;
}

typedef struct make_job {
    kern_make *make;
    void *context;
    int64_t cols;
} make_job;

static void make_task(void *context, int64_t t, int thread) {
    (void)thread;
    const make_job *j = context;
    j->make(j->context, t, 0, j->cols);
}

static bool run(job *j, const kernels *k, pool *p, const kern_group *groups, int count, kern_make *make, void *context, kern_scratch *s, err *e) {
    size_t bytes = 0;
    if (!plan(j, k, groups, count, pool_threads(p), &bytes, e)) return false;
    if (!scratch_reserve(s, bytes, e)) return false;
    place(j, s->data);
    if (make && j->prepare_count == 1) {
        j->prepares[0].make = make;
        j->prepares[0].context = context;
    } else if (make) { /* several would read it */
        pool_run(p, groups[0].n, make_task, &(make_job){make, context, groups[0].w[0]->cols});
    }
    pool_run(p, task_count_prepare(j), prepare_task, j);
    look_ahead(s, p, groups[0].n <= FEW, j->product_count && j->products[0].pairs);
    pool_run_ranges(p, task_count_product(j), product_tasks, j);
    return true;
}

bool kern_mul_groups(const kernels *k, pool *p, const kern_group *groups, int count, kern_scratch *s, err *e) {
    size_t total = 0;
    for (int g = 0; g < count; g++) total += (size_t)groups[g].count;
    prepare *prepares = mem_alloc(total, sizeof *prepares, e);
    product *products = mem_alloc(total, sizeof *products, e);
    bool ok = prepares && products;
    if (ok) ok = run(&(job){.prepares = prepares, .products = products}, k, p, groups, count, NULL, NULL, s, e);
    mem_free(prepares);
    mem_free(products);
    return ok;
}

bool kern_mul_many(const kernels *k, pool *p, const kern_weight *const *w, int count, kern_make *make, void *context, const float *x, int64_t ldx, int64_t n,
                   float *const *y, const int64_t *ldy, kern_scratch *s, err *e) {
    prepare prepares[KERN_SHARED];
    product products[KERN_SHARED];
    kern_group group = {.count = count, .x = x, .ldx = ldx, .n = n};
    for (int i = 0; i < count; i++) {
        group.w[i] = w[i];
        group.y[i] = y[i];
        group.ldy[i] = ldy[i];
    }
    return run(&(job){.prepares = prepares, .products = products}, k, p, &group, 1, make, context, s, e);
}

bool kern_mul(const kernels *k, pool *p, const kern_weight *w, const float *x, int64_t ldx, int64_t n, float *y, int64_t ldy, kern_scratch *s,
              err *e) {
    return kern_mul_many(k, p, &w, 1, NULL, NULL, x, ldx, n, &y, &ldy, s, e);
}

/* ---- two products joined to what a third one reads ---- */

#define GATED_ROWS KERN_COLUMNS         /* of both that a task computes: for 512 tokens 1 MiB, which the second cache holds */
#define GATED_LINE (GATED_ROWS + 16)    /* floats from token to token: tokens at a power of two would fall into one set of the caches */
#define GATED_LEAST 32                  /* tokens: results of fewer stay in the caches anyway */

/* One of the groups that have tokens, and the first of its tasks. */
typedef struct gated_part {
    const kern_gated *g;
    int64_t first_task;
} gated_part;

typedef struct gated_job {
    gated_part *parts;
    job first, second;  /* two products of each part, and one */
    kern_group *groups; /* of both */
    int count;
    int64_t from;       /* the first task of this part */
    size_t line_bytes;  /* what a thread has for one result */
    char *memory;       /* of the threads: what each computes before it is joined */
} gated_job;

static int64_t gated_tasks(int64_t rows) { return (rows + GATED_ROWS - 1) / GATED_ROWS; }

static void gated_task(void *context, int64_t i, int thread) {
    const gated_job *j = context;
    i += j->from;
    FIND_BY_TASK(j->parts, j->count, i, at)
    const kern_gated *g = j->parts[at].g;
    const prepare *to = &j->second.prepares[at];
    const int64_t r0 = (i - j->parts[at].first_task) * GATED_ROWS, r1 = r0 + GATED_ROWS < to->cols ? r0 + GATED_ROWS : to->cols;
    float *gate = (float *)(void *)(j->memory + 2 * (size_t)thread * j->line_bytes), *up = gate + j->line_bytes / sizeof(float);
    product_rows(&j->first.products[2 * at], gate - r0, GATED_LINE, r0, r1);
    product_rows(&j->first.products[2 * at + 1], up - r0, GATED_LINE, r0, r1);
    for (int64_t t = 0; t < g->n; t++) g->join(g->context, gate + t * GATED_LINE, up + t * GATED_LINE, r0, r1 - r0);
    to->m->act(to->act, gate, GATED_LINE, to->cols, to->n, (kern_part){0, to->n, r0, r1});
}

bool kern_gated_pays(const pool *p, int64_t rows, int64_t n) {
    const int64_t threads = pool_threads(p), tasks = gated_tasks(rows), rounds = (tasks + threads - 1) / threads;
    return n >= GATED_LEAST && 10 * tasks >= 9 * rounds * threads; /* nearly all threads have work to the end */
}

/* The groups that have tokens, as groups of the first and of the second products; returns the number of tasks. */
static int64_t gated_parts(gated_job *j, const kern_gated *groups, int count) {
    int64_t tasks = 0, most = 0;
    for (int i = 0; i < count; i++) {
        const kern_gated *g = &groups[i];
        if (g->n == 0) continue;
        j->parts[j->count] = (gated_part){.g = g, .first_task = tasks};
        j->groups[j->count++] = (kern_group){.w = {g->gate, g->up}, .count = 2, .x = g->x, .ldx = g->ldx, .tokens = g->tokens, .n = g->n};
        tasks += gated_tasks(g->down->cols);
        if (g->n > most) most = g->n;
    }
    /* What the second ones read is prepared part by part; x only tells them apart. */
    for (int i = 0; i < j->count; i++) {
        const kern_gated *g = j->parts[i].g;
        j->groups[j->count + i] = (kern_group){.w = {g->down}, .y = {g->y}, .ldy = {g->ldy}, .count = 1, .x = g->y, .n = g->n};
    }
    j->line_bytes = align64((size_t)most * GATED_LINE * sizeof(float));
    return tasks;
}

/* The last part of several is the second product. Each plans anew, and finds in s what the others left: where that lies does not depend on which form of a weight is there. */
static bool gated_run(gated_job *j, const kernels *k, pool *p, const kern_gated *groups, int count, int part, int parts, kern_scratch *s, err *e) {
    const int64_t tasks = gated_parts(j, groups, count), shares = parts > 1 ? parts - 1 : 1;
    const int threads = pool_threads(p);
    size_t bytes[2] = {0};
    if (!plan(&j->first, k, j->groups, j->count, threads, &bytes[0], e) || !plan(&j->second, k, j->groups + j->count, j->count, threads, &bytes[1], e)) return false;
    if (!scratch_reserve(s, bytes[0] + bytes[1] + 2 * j->line_bytes * (size_t)threads, e)) return false;
    place(&j->first, s->data);
    place(&j->second, (char *)s->data + bytes[0]);
    j->memory = (char *)s->data + bytes[0] + bytes[1];
    j->from = tasks * part / shares;
    if (part == 0) pool_run(p, task_count_prepare(&j->first), prepare_task, &j->first);
    if (part < shares) pool_run(p, tasks * (part + 1) / shares - j->from, gated_task, j);
    if (part == parts - 1) pool_run_ranges(p, task_count_product(&j->second), product_tasks, &j->second);
    return true;
}

/* ---- the same for one token, whose gate and up are read in turns ---- */

typedef struct gated_one {
    const kern_gated *g;
    const product *first;   /* gate with up, or each */
    int count;
    const prepare *to;
    float *gate, *up;
    atomic_int_least64_t *done; /* of GATED_ROWS rows each, how many are there */
} gated_one;

bool kern_gated_one_pays(int64_t n) { return n == 1 && kern_cpu_get()->ahead_pair; }

/* Rows that are complete are joined and prepared for down by the thread that computed the last of them; memory meanwhile brings what was asked for. */
static void gated_rows(const gated_one *j, int64_t r0, int64_t r1) {
    if (j->first->pairs) product_pairs(j->first, r0, r1);
    else
        for (int i = 0; i < j->count; i++) product_rows(&j->first[i], j->first[i].y, 0, r0, r1);
    const int64_t at = r0 / GATED_ROWS, from = at * GATED_ROWS, to = from + GATED_ROWS < j->to->cols ? from + GATED_ROWS : j->to->cols;
    if (atomic_fetch_add(&j->done[at], r1 - r0) + r1 - r0 < to - from) return;
    j->g->join(j->g->context, j->gate + from, j->up + from, from, to - from);
    j->to->m->act(j->to->act, j->gate + from, 0, j->to->cols, 1, (kern_part){0, 1, from, to});
}

static void gated_one_tasks(void *context, int64_t first, int64_t end, int thread) {
    (void)thread;
    const gated_one *j = context;
    const int64_t step = j->first->step, last = end * step < j->to->cols ? end * step : j->to->cols;
    for (int64_t r = first * step, next; r < last; r = next) {
        next = (r / GATED_ROWS + 1) * GATED_ROWS < last ? (r / GATED_ROWS + 1) * GATED_ROWS : last;
        gated_rows(j, r, next);
    }
}

static bool gated_one_run(const kernels *k, pool *p, const kern_gated *g, kern_scratch *s, err *e) {
    prepare prepares[3];
    product products[3];
    job first = {.prepares = prepares, .products = products}, second = {.prepares = prepares + 2, .products = products + 2};
    const kern_group groups[2] = {{.w = {g->gate, g->up}, .count = 2, .x = g->x, .ldx = g->ldx, .tokens = g->tokens, .n = 1},
                                  {.w = {g->down}, .y = {g->y}, .ldy = {g->ldy}, .count = 1, .x = g->y, .n = 1}};
    const int64_t rows = g->down->cols;
    size_t bytes[2] = {0}, line = align64((size_t)rows * sizeof(float)), count = align64((size_t)gated_tasks(rows) * sizeof(atomic_int_least64_t));
    if (!plan(&first, k, &groups[0], 1, pool_threads(p), &bytes[0], e) || !plan(&second, k, &groups[1], 1, pool_threads(p), &bytes[1], e)) return false;
    if (first.product_count == 2) { /* they are not of one kind: row by row, not halves */
        first = (job){.prepares = prepares, .products = products, .by_rows = true};
        if (!plan(&first, k, &groups[0], 1, pool_threads(p), &bytes[0], e)) return false;
    }
    if (!scratch_reserve(s, bytes[0] + bytes[1] + 2 * line + count, e)) return false;
    place(&first, s->data);
    place(&second, (char *)s->data + bytes[0]);
    char *memory = (char *)s->data + bytes[0] + bytes[1];
    gated_one j = {.g = g, .first = products, .count = first.product_count, .to = second.prepares, .gate = (float *)(void *)memory, .up = (float *)(void *)(memory + line),
                   .done = (void *)(memory + 2 * line)};
    products[1].y = products[0].other_y = j.up;
    products[0].y = j.gate;
    for (int64_t i = 0; i < gated_tasks(rows); i++) atomic_init(&j.done[i], 0);

    pool_run(p, task_count_prepare(&first), prepare_task, &first);
    const kern_scratch after = *s;
    s->next[0] = (struct kern_range){.at = g->down->packed, .bytes = g->down->packed ? products[2].m->packed_bytes(g->down->rows, g->down->cols) : 0};
    s->n_next = g->down->packed != NULL;
    look_ahead(s, p, true, products[2].pairs);
    pool_run_ranges(p, parts_of(rows, products[0].step), gated_one_tasks, &j);
    memcpy(s->next, after.next, sizeof s->next);
    s->n_next = after.n_next;
    look_ahead(s, p, true, products[0].pairs);
    pool_run_ranges(p, task_count_product(&second), product_tasks, &second);
    return true;
}

static bool gated_some(const kernels *k, pool *p, const kern_gated *groups, int count, int part, int parts, kern_scratch *s, err *e) {
    const size_t n = (size_t)count;
    gated_job j = {.parts = mem_alloc(n, sizeof *j.parts, e), .groups = mem_alloc(2 * n, sizeof *j.groups, e),
                   .first = {.prepares = mem_alloc(2 * n, sizeof(prepare), e), .products = mem_alloc(2 * n, sizeof(product), e), .by_rows = true},
                   .second = {.prepares = mem_alloc(n, sizeof(prepare), e), .products = mem_alloc(n, sizeof(product), e)}};
    bool ok = j.parts && j.groups && j.first.prepares && j.first.products && j.second.prepares && j.second.products;
    ok = ok && gated_run(&j, k, p, groups, count, part, parts, s, e);
    mem_free(j.parts), mem_free(j.groups);
    mem_free(j.first.prepares), mem_free(j.first.products), mem_free(j.second.prepares), mem_free(j.second.products);
    return ok;
}

bool kern_mul_gated(const kernels *k, pool *p, const kern_gated *groups, int count, kern_scratch *s, err *e) {
    if (count == 1 && kern_gated_one_pays(groups[0].n)) return gated_one_run(k, p, groups, s, e);
    return gated_some(k, p, groups, count, 0, 1, s, e);
}

bool kern_mul_gated_part(const kernels *k, pool *p, const kern_gated *groups, int count, int part, kern_scratch *s, err *e) {
    return gated_some(k, p, groups, count, part, KERN_GATED_PARTS, s, e);
}
