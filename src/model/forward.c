/* forward.c: the forward pass, top to bottom. A pass computes n tokens of one or several conversations: shapes in comments are
 * [tokens][width], row-major. Every part treats each token on its own, so results do not depend on how texts are cut into passes. After
 * each part of a layer it can rest while other passes are computed. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "model/model.h"
#include "quant/quant.h"

/* Rows of queries that one attention task takes; enough to use a key several times while it is in registers. Some kernels want more. */
#define ATTENTION_ROWS 32

/* A token of the pass: where it belongs. */
typedef struct place {
    const model_part *part;
    int32_t token;
    int64_t position;
} place;

/* An attention task's share of the tokens: some that follow each other in one part. */
typedef struct tile {
    int first, n;
} tile;

typedef struct model_pass {
    const model *m;
    const model_params *p;
    model_run *run;
    const model_part *parts;
    int n_parts;
    int n;           /* tokens of all parts */
    int step;        /* the next one */
    int layer_steps;
    err *e;

    /* the layer being computed */
    int index;
    const model_layer *l;
    const layer_params *lp;

    /* buffers */
    float *x;        /* [n][n_embd] the residual stream */
    float *h;        /* [n][n_embd] input and output of a part */
    float *q, *k, *v;
    int64_t ldq, ldk, ldv;
    float *qkv;      /* [n][..] what q, k and v point into */
    float *attn;     /* [n][n_heads * v_dim] */
    float *wide;     /* latent attention: [n][n_heads * (kv_rank + n_rot)] queries, then [n][n_heads * kv_rank] results */
    float *gate, *up;/* [n][n_ff] */
    float *cosines, *sines;               /* [n][n_rot / 2] of layers that see all */
    float *window_cosines, *window_sines; /* of windowed ones */
    float *experts;
    int *expert_ints;
    place *places;   /* [n] */
    tile *tiles;
    int n_tiles;
    char *thread_memory;
    size_t thread_bytes;
    int heads_per_task;
    int64_t first_task; /* of the part of attention that is computed */
    bool finishes;   /* a task first rotates its heads and keeps its key and value */
} pass;

typedef struct widths {
    int64_t heads, qkv, attn, wide, ff;
} widths;

/* The widest of every buffer over all layers. */
static widths find_widths(const model_params *p) {
    widths w = {0};
    bool latent = (p->arch->traits & ARCH_LATENT) != 0;
    for (int i = 0; i < p->n_layers; i++) {
        const layer_params *l = &p->layers[i];
        int64_t q = (int64_t)l->n_heads * p->k_dim, kv = (int64_t)l->n_kv_heads * (p->k_dim + p->v_dim);
        int64_t qkv = latent ? q + p->q_rank + p->kv_rank + p->n_rot : q + kv;
        int64_t attn = (int64_t)l->n_heads * p->v_dim;
        int64_t ff = (p->arch->traits & ARCH_FUSED_UP) ? 2 * (int64_t)l->n_ff : l->n_ff;
        if (l->n_heads > w.heads) w.heads = l->n_heads;
        if (qkv > w.qkv) w.qkv = qkv;
        if (attn > w.attn) w.attn = attn;
        if (!l->experts && ff > w.ff) w.ff = ff;
    }
    if (latent) w.wide = w.heads * (2 * (int64_t)p->kv_rank + p->n_rot);
    return w;
}

static int attention_rows(const pass *s) { return s->m->kern->attention_rows > ATTENTION_ROWS ? s->m->kern->attention_rows : ATTENTION_ROWS; }

static size_t aligned(size_t bytes) { return (bytes + 63) & ~(size_t)63; }

/* What one thread needs in attention: gathered queries and results, and what the kernel asks for. */
static size_t attention_bytes(const kv_layer *l, int rows, size_t n_blocks) {
    size_t r = (size_t)rows;
    return aligned(r * (size_t)l->k_dim * 4) + aligned(r * (size_t)l->v_dim * 4) + 2 * aligned(r * 8) + aligned(r * 4) +
           2 * aligned(n_blocks * sizeof(void *)) + aligned(kern_attention_scratch(rows, l->k_dim, l->v_dim) * 4);
}

static void *carve(char **at, size_t bytes) {
    void *p = *at;
    *at += aligned(bytes);
    return p;
}

/* Cuts the run's memory into the buffers of this pass, growing it first when it is too small. */
static bool make_buffers(pass *s) {
    const model_params *p = s->p;
    size_t n = (size_t)s->n, half = (size_t)p->n_rot / 2, n_blocks = 0;
    for (int i = 0; i < s->n_parts; i++)
        if (s->parts[i].kv->n_blocks > n_blocks) n_blocks = s->parts[i].kv->n_blocks;
    widths w = find_widths(p);
    int threads = pool_threads(s->run->pool);
    int rows = w.heads > attention_rows(s) ? (int)w.heads : attention_rows(s);
    for (int i = 0; i < p->n_layers; i++) {
        size_t b = attention_bytes(&s->m->kv.layers[i], rows, n_blocks);
        if (b > s->thread_bytes) s->thread_bytes = b;
    }
    const size_t sizes[] = {n * (size_t)p->n_embd * 4, n * (size_t)p->n_embd * 4, n * (size_t)w.qkv * 4, n * (size_t)w.attn * 4,
                            n * (size_t)w.wide * 4,    n * (size_t)w.ff * 4,      n * (size_t)w.ff * 4,  n * half * 4,
                            n * half * 4,              n * half * 4,              n * half * 4,          model_experts_floats(p, s->n) * 4,
                            model_experts_ints(p, s->n) * sizeof(int), s->thread_bytes * (size_t)threads, n * sizeof(place), n * sizeof(tile)};
    enum { N = sizeof sizes / sizeof *sizes };
    size_t total = 0;
    for (int i = 0; i < N; i++) total += aligned(sizes[i]);
    if (total > s->run->bytes) {
        mem_free(s->run->memory);
        s->run->bytes = 0;
        s->run->memory = mem_aligned(total, 1, s->e);
        if (!s->run->memory) return false;
        s->run->bytes = total;
    }
    void *parts[N];
    char *at = s->run->memory;
    for (int i = 0; i < N; i++) parts[i] = carve(&at, sizes[i]);
    s->x = parts[0], s->h = parts[1], s->qkv = parts[2], s->attn = parts[3], s->wide = parts[4], s->gate = parts[5], s->up = parts[6];
    s->cosines = parts[7], s->sines = parts[8], s->window_cosines = parts[9], s->window_sines = parts[10];
    s->experts = parts[11], s->expert_ints = parts[12], s->thread_memory = parts[13];
    s->places = parts[14], s->tiles = parts[15];
    return true;
}

static void place_tokens(pass *s) {
    int t = 0;
    for (int i = 0; i < s->n_parts; i++)
        for (int k = 0; k < s->parts[i].n; k++)
            s->places[t++] = (place){.part = &s->parts[i], .token = s->parts[i].tokens[k], .position = (int64_t)s->parts[i].kv->length + k};
}

static void for_tokens(pass *s, pool_task *task) { pool_run(s->run->pool, s->n, task, s); }

static bool multiply(pass *s, const weight *w, const float *x, int64_t ldx, float *y, int64_t ldy) {
    return model_multiply(s->m, s->run, &w, 1, x, ldx, s->n, &y, &ldy, s->e);
}

static void expect(pass *s, const weight *const *w, int count) { model_expect(s->m, s->run, w, count); }

/* What a layer's first product reads; after the last layer, what makes logits. */
static void expect_layer(pass *s, int index) {
    if (index == s->p->n_layers) {
        expect(s, (const weight *const[]){&s->m->output}, 1);
        return;
    }
    const model_layer *l = &s->m->layers[index];
    if (s->p->arch->traits & ARCH_LATENT) expect(s, (const weight *const[]){s->p->q_rank ? &l->q_a : &l->q, &l->kv_a}, 2);
    else if (l->qkv.mat.data) expect(s, (const weight *const[]){&l->qkv}, 1);
    else expect(s, (const weight *const[]){&l->q, &l->k, &l->v}, 3);
}

/* ---- before the layers ---- */

/* What a part of a layer reads: the stream, normed (NULL: as it is). */
static void norm_token(const pass *s, int64_t t, const float *by) {
    const int64_t width = s->p->n_embd;
    if (by) s->m->kern->rms_norm(s->h + t * width, s->x + t * width, by, width, s->p->eps);
    else memcpy(s->h + t * width, s->x + t * width, (size_t)width * sizeof *s->h);
}

static void embed_token(void *context, int64_t t, int thread) {
    (void)thread;
    pass *s = context;
    const model *m = s->m;
    int64_t width = s->p->n_embd;
    const quant_info *q = quant_find(m->embed.mat.type);
    const place *at = &s->places[t];
    float *x = s->x + t * width;
    q->decode(x, (const char *)m->embed.mat.data + quant_bytes(q, (uint64_t)width) * (size_t)at->token, width);
    if (s->p->embed_scale != 1)
        for (int64_t i = 0; i < width; i++) x[i] *= s->p->embed_scale;
    int64_t half = s->p->n_rot / 2;
    bool is_long = at->part->long_context && m->rope.full_long;
    rope_angles(m, is_long ? m->rope.full_long : m->rope.full, at->position, s->cosines + t * half, s->sines + t * half);
    rope_angles(m, is_long ? m->rope.full_long : m->rope.window, at->position, s->window_cosines + t * half, s->window_sines + t * half);
    norm_token(s, t, m->layers[0].attn_norm);
}

/* ---- attention ---- */

static void store_row(const kernels *kern, int type, uint8_t *to, const float *from, int64_t n) {
    if (type == QUANT_F32) memcpy(to, from, (size_t)n * sizeof *from);
    else if (type == QUANT_F16) kern->to_f16((uint16_t *)(void *)to, from, n);
    else kern->to_blocks(type, to, from, n);
}

static void rotate_head(const pass *s, float *head, int64_t t) {
    int64_t half = s->p->n_rot / 2;
    const float *c = s->lp->windowed ? s->window_cosines : s->cosines, *sn = s->lp->windowed ? s->window_sines : s->sines;
    if (s->lp->rotated) rope_rotate(s->p->arch->rope, head, s->p->n_rot, c + t * half, sn + t * half);
}

/* Norms of queries or keys: over each head, or over all of them together. */
static void norm_heads(const pass *s, float *x, const float *w, int n_heads) {
    int64_t dim = s->p->k_dim;
    if (s->p->arch->traits & ARCH_QK_NORM_WHOLE) s->m->kern->rms_norm(x, x, w, n_heads * dim, s->p->eps);
    else
        for (int i = 0; i < n_heads; i++) s->m->kern->rms_norm(x + i * dim, x + i * dim, w, dim, s->p->eps);
}

/* Bias and norm. */
static void norm_qkv(pass *s, int64_t t) {
    const model_layer *l = s->l;
    const kernels *kern = s->m->kern;
    int heads = s->lp->n_heads, kv_heads = s->lp->n_kv_heads, kd = s->p->k_dim, vd = s->p->v_dim;
    float *q = s->q + t * s->ldq, *k = s->k + t * s->ldk, *v = s->v + t * s->ldv;
    if (l->qkv_bias) kern->add(q, l->qkv_bias, 1, s->ldq);
    if (l->q_bias) kern->add(q, l->q_bias, 1, (int64_t)heads * kd);
    if (l->k_bias) kern->add(k, l->k_bias, 1, (int64_t)kv_heads * kd);
    if (l->v_bias) kern->add(v, l->v_bias, 1, (int64_t)kv_heads * vd);
    if (l->q_norm) norm_heads(s, q, l->q_norm, heads);
    if (l->k_norm) norm_heads(s, k, l->k_norm, kv_heads);
}

/* Rotation of a key and of the queries that read it; key and value go to the cache. */
static void finish_head(pass *s, int64_t t, int i) {
    const int group = s->lp->n_heads / s->lp->n_kv_heads, kd = s->p->k_dim, vd = s->p->v_dim;
    float *q = s->q + t * s->ldq, *k = s->k + t * s->ldk + i * kd;
    const kv_seq *kv = s->places[t].part->kv;
    const size_t at = (size_t)s->places[t].position;
    for (int j = i * group; j < (i + 1) * group; j++) rotate_head(s, q + j * kd, t);
    rotate_head(s, k, t);
    store_row(s->m->kern, s->m->kv.k_type, kv_key(kv, s->index, i, at), k, kd);
    store_row(s->m->kern, s->m->kv.v_type, kv_value(kv, s->index, i, at), s->v + t * s->ldv + i * vd, vd);
}

static void finish_qkv(void *context, int64_t t, int thread) {
    (void)thread;
    pass *s = context;
    norm_qkv(s, t);
    for (int i = 0; i < s->lp->n_kv_heads; i++) finish_head(s, t, i);
}

/* One task: some heads that share a key-value head, for some tokens. */
static void attend(void *context, int64_t task, int thread) {
    pass *s = context;
    task += s->first_task;
    const kv_layer *kl = &s->m->kv.layers[s->index];
    int group = s->lp->n_heads / kl->n_heads, hpt = s->heads_per_task, shares = group / hpt;
    const tile *tl = &s->tiles[task % s->n_tiles];
    int kv_head = (int)(task / s->n_tiles / shares), head = kv_head * group + (int)(task / s->n_tiles % shares) * hpt;
    int t0 = tl->first, rows = tl->n * hpt;
    const kv_seq *kv = s->places[t0].part->kv;
    if (s->finishes) finish_head(s, t0, kv_head);

    char *at = s->thread_memory + (size_t)thread * s->thread_bytes;
    float *q = carve(&at, (size_t)rows * (size_t)kl->k_dim * 4), *out = carve(&at, (size_t)rows * (size_t)kl->v_dim * 4);
    int64_t *first = carve(&at, (size_t)rows * 8), *last = carve(&at, (size_t)rows * 8);
    float *sinks = carve(&at, (size_t)rows * 4);
    size_t n_blocks = kv->n_blocks;
    const uint8_t **k = carve(&at, n_blocks * sizeof *k), **v = carve(&at, n_blocks * sizeof *v);
    for (size_t b = 0; b < n_blocks; b++) {
        const uint8_t *part = kv_part(kv, kl, b); /* a window part that was passed is not there, nor is it read */
        k[b] = part ? part + kl->k_offset + (size_t)kv_head * kl->k_head : NULL;
        v[b] = part ? part + kl->v_offset + (size_t)kv_head * kl->v_head : NULL;
    }
    for (int t = 0; t < tl->n; t++) {
        int64_t position = s->places[t0 + t].position;
        for (int i = 0; i < hpt; i++) {
            int row = t * hpt + i;
            memcpy(q + (int64_t)row * kl->k_dim, s->q + (t0 + t) * s->ldq + (int64_t)(head + i) * kl->k_dim, (size_t)kl->k_dim * sizeof *q);
            last[row] = position;
            first[row] = s->lp->windowed && position >= s->p->window ? position - s->p->window + 1 : 0;
            if (s->l->sinks) sinks[row] = s->l->sinks[head + i];
        }
    }
    s->m->kern->attention(&(kern_attention){
        .q = q, .ldq = kl->k_dim, .out = out, .ldo = kl->v_dim, .n_q = rows, .first = first, .last = last, .sink = s->l->sinks ? sinks : NULL,
        .k_dim = kl->k_dim, .v_dim = kl->v_dim, .scale = s->p->attention_scale, .cap = s->p->attention_cap, .k_type = s->m->kv.k_type, .v_type = s->m->kv.v_type,
        .k = k, .v = v, .k_stride = kl->k_stride, .v_stride = kl->v_stride, .block = KV_BLOCK, .scratch = (float *)(void *)at});
    int64_t ldo = (int64_t)s->lp->n_heads * kl->v_dim;
    for (int row = 0; row < rows; row++) {
        int t = row / hpt, i = row % hpt;
        memcpy(s->attn + (t0 + t) * ldo + (int64_t)(head + i) * kl->v_dim, out + (int64_t)row * kl->v_dim, (size_t)kl->v_dim * sizeof *out);
    }
}

/* What comes from the disk may still be arriving: this layer of it must be there. */
static bool wait_for_layer(pass *s) {
    for (int i = 0; i < s->n_parts; i++) {
        if (!s->parts[i].kv->arriving) continue;
        const uint64_t start = clock_ns();
        const bool ok = kv_seq_wait(s->parts[i].kv, s->index, s->run->pool, s->e);
        s->run->waited_ns += clock_ns() - start;
        if (!ok) return false;
    }
    return true;
}

/* One of `parts` equal shares of the tasks. */
static void attend_part(pass *s, int part, int parts) {
    const int group = s->lp->n_heads / s->m->kv.layers[s->index].n_heads;
    const int64_t tasks = (int64_t)s->m->kv.layers[s->index].n_heads * (group / s->heads_per_task) * s->n_tiles;
    s->first_task = tasks * part / parts;
    pool_run(s->run->pool, tasks * (part + 1) / parts - s->first_task, attend, s);
}

/* Splits heads and tokens into tasks: all heads of a group together read a key once, but every thread must have work. finished: queries are rotated, keys and values are in the cache. */
static bool attend_begin(pass *s, bool finished) {
    if (!wait_for_layer(s)) return false;
    const kv_layer *kl = &s->m->kv.layers[s->index];
    int group = s->lp->n_heads / kl->n_heads, threads = pool_threads(s->run->pool);
    int rows = attention_rows(s);
    while (rows > ATTENTION_ROWS && (int64_t)kl->n_heads * s->n * group / rows < 4 * threads) rows /= 2;
    int most = group >= rows ? 1 : rows / group;
    s->n_tiles = 0;
    for (int i = 0, t = 0; i < s->n_parts; i++)
        for (int left = s->parts[i].n; left > 0;) {
            int n = left < most ? left : most;
            s->tiles[s->n_tiles++] = (tile){.first = t, .n = n};
            t += n;
            left -= n;
        }
    s->heads_per_task = group;
    while (s->heads_per_task % 2 == 0 && kl->n_heads * (group / s->heads_per_task) * s->n_tiles < 2 * threads) s->heads_per_task /= 2;
    /* One token's heads are finished by those who read them; with more tokens, others read their keys. */
    s->finishes = !finished && s->n == 1 && s->heads_per_task == group;
    if (s->finishes) norm_qkv(s, 0);
    else if (!finished) for_tokens(s, finish_qkv);
    return true;
}

/* h [n][n_embd] -> what attend_part reads */
static bool attention_begin(pass *s) {
    const model_layer *l = s->l;
    int64_t q = (int64_t)s->lp->n_heads * s->p->k_dim, k = (int64_t)s->lp->n_kv_heads * s->p->k_dim, v = (int64_t)s->lp->n_kv_heads * s->p->v_dim;
    expect(s, (const weight *const[]){&l->out}, 1);
    if (l->qkv.mat.data) {
        s->q = s->qkv, s->k = s->qkv + q, s->v = s->k + k;
        s->ldq = s->ldk = s->ldv = q + k + v;
        if (!multiply(s, &l->qkv, s->h, s->p->n_embd, s->qkv, s->ldq)) return false;
    } else {
        s->q = s->qkv, s->k = s->q + s->n * q, s->v = s->k + s->n * k;
        s->ldq = q, s->ldk = k, s->ldv = v;
        const weight *const w[3] = {&l->q, &l->k, &l->v};
        if (!model_multiply(s->m, s->run, w, 3, s->h, s->p->n_embd, s->n, (float *const[]){s->q, s->k, s->v}, (const int64_t[]){q, k, v}, s->e)) return false;
    }
    return attend_begin(s, false);
}

/* ---- latent attention: one compressed row per token serves all heads as key and as value ---- */

/* k holds [latent, rotated part] of the token; norm, rotate and keep it. The rotated part of every query is rotated too. */
static void finish_latent(void *context, int64_t t, int thread) {
    (void)thread;
    pass *s = context;
    int rank = s->p->kv_rank, rot = s->p->n_rot, nope = s->p->k_dim - rot;
    float *k = s->k + t * s->ldk;
    s->m->kern->rms_norm(k, k, s->l->kv_a_norm, rank, s->p->eps);
    rotate_head(s, k + rank, t);
    store_row(s->m->kern, s->m->kv.k_type, kv_key(s->places[t].part->kv, s->index, 0, (size_t)s->places[t].position), k, rank + rot);
    for (int i = 0; i < s->lp->n_heads; i++) {
        float *head = s->q + t * s->ldq + (int64_t)i * s->p->k_dim;
        rotate_head(s, head + nope, t);
        memcpy(s->wide + (t * s->lp->n_heads + i) * (rank + rot) + rank, head + nope, (size_t)rot * sizeof *head);
    }
}

static void norm_q_a(void *context, int64_t t, int thread) {
    (void)thread;
    pass *s = context;
    float *x = s->v + t * s->p->q_rank;
    s->m->kern->rms_norm(x, x, s->l->q_a_norm, s->p->q_rank, s->p->eps);
}

/* One matrix per head: y head i = w[i] . x head i, for all tokens. */
static bool multiply_heads(pass *s, const weight *w, const float *x, int64_t x_head, int64_t ldx, float *y, int64_t y_head, int64_t ldy) {
    int heads = s->lp->n_heads;
    kern_group *groups = mem_zalloc((size_t)heads, sizeof *groups, s->e);
    taken *mats = mem_alloc((size_t)heads, sizeof *mats, s->e);
    bool ok = groups && mats, held = ok;
    for (int i = 0; ok && i < heads; i++) {
        mats[i] = model_take(s->m, w, i);
        groups[i] = (kern_group){.w = {&mats[i].mat}, .count = 1, .x = x + i * x_head, .ldx = ldx, .n = s->n};
        groups[i].y[0] = y + i * y_head;
        groups[i].ldy[0] = ldy;
    }
    ok = ok && kern_mul_groups(s->m->kern, s->run->pool, groups, heads, &s->run->scratch, s->e);
    for (int i = 0; held && i < heads; i++) model_give(s->m, &mats[i]);
    mem_free(groups);
    mem_free(mats);
    return ok;
}

static bool latent_attention(pass *s) {
    const model_layer *l = s->l;
    const model_params *p = s->p;
    int64_t heads = s->lp->n_heads, q = heads * p->k_dim, wide = p->kv_rank + p->n_rot;
    s->q = s->qkv, s->k = s->q + s->n * q, s->v = s->k + s->n * wide;
    s->ldq = q, s->ldk = wide;
    if (p->q_rank) {
        const weight *const w[2] = {&l->q_a, &l->kv_a};
        if (!model_multiply(s->m, s->run, w, 2, s->h, p->n_embd, s->n, (float *const[]){s->v, s->k}, (const int64_t[]){p->q_rank, wide}, s->e)) return false;
        for_tokens(s, norm_q_a);
        if (!multiply(s, &l->q_b, s->v, p->q_rank, s->q, q)) return false;
    } else {
        const weight *const w[2] = {&l->q, &l->kv_a};
        if (!model_multiply(s->m, s->run, w, 2, s->h, p->n_embd, s->n, (float *const[]){s->q, s->k}, (const int64_t[]){q, wide}, s->e)) return false;
    }
    /* The key expansion is moved to the query: q . (B c) = (B' q) . c */
    if (!multiply_heads(s, &l->k_b, s->q, p->k_dim, q, s->wide, wide, heads * wide)) return false;
    for_tokens(s, finish_latent);
    /* Attention over the latent rows gives latent results, which the value expansion turns into heads. */
    float *heads_out = s->attn, *latent_out = s->wide + s->n * heads * wide;
    s->q = s->wide, s->ldq = heads * wide;
    s->attn = latent_out;
    const bool ok = attend_begin(s, true);
    if (ok) attend_part(s, 0, 1);
    s->attn = heads_out;
    return ok && multiply_heads(s, &l->v_b, latent_out, p->kv_rank, heads * p->kv_rank, s->attn, p->v_dim, heads * p->v_dim);
}

/* ---- feed-forward ---- */

static void activate_columns(void *context, int64_t t, int64_t first, int64_t n) {
    pass *s = context;
    const int64_t ff = s->lp->n_ff;
    float *gate = s->gate + t * ff + first;
    if (s->l->gate.mat.data) {
        model_join_columns(&(model_join){s->m, s->l->gate_bias, s->l->up_bias}, gate, s->up + t * ff + first, first, n);
        return;
    }
    float *both = s->up + t * 2 * ff + first; /* gate and up in one weight */
    for (int64_t i = 0; s->l->up_bias && i < 2 * ff; i += ff) s->m->kern->add(both + i, s->l->up_bias + first + i, 1, n);
    model_activate(s->m, gate, both, both + ff, n);
}

static bool gate_and_up(pass *s) {
    const model_layer *l = s->l;
    const int64_t ff = s->lp->n_ff, width = s->p->n_embd;
    expect(s, (const weight *const[]){&l->down}, 1);
    if (!l->gate.mat.data) return multiply(s, &l->up, s->h, width, s->up, 2 * ff);
    const weight *const w[2] = {&l->gate, &l->up};
    return model_multiply(s->m, s->run, w, 2, s->h, width, s->n, (float *const[]){s->gate, s->up}, (const int64_t[]){ff, ff}, s->e);
}

static bool down(pass *s) {
    const weight *w = &s->l->down;
    const int64_t width = s->p->n_embd;
    expect_layer(s, s->index + 1);
    return model_multiply_made(s->m, s->run, &w, 1, activate_columns, s, s->gate, s->lp->n_ff, s->n, &s->h, &width, s->e);
}

/* h [n][n_embd] -> h; part < 0: all of it, else one of KERN_GATED_PARTS */
static bool feed_forward(pass *s, int part) {
    const model_layer *l = s->l;
    const int64_t ff = s->lp->n_ff, width = s->p->n_embd;
    if (s->lp->experts) return model_experts(s->m, l, s->run, s->h, s->h, s->n, s->experts, s->expert_ints, s->e);
    if (l->gate.mat.data && ((part < 0 && kern_gated_one_pays(s->n)) || kern_gated_pays(s->run->pool, ff, s->n))) {
        model_join join = {s->m, l->gate_bias, l->up_bias};
        expect_layer(s, s->index + 1);
        return model_multiply_gated(s->m, s->run, (const weight *const[]){&l->gate, &l->up, &l->down}, &join, part, s->h, width, s->n, s->h, width, s->e);
    }
    if (part <= 0 && !gate_and_up(s)) return false;
    return (part >= 0 && part < KERN_GATED_PARTS - 1) || down(s);
}

/* ---- between the parts ---- */

static void add_part(const pass *s, int64_t t, const float *bias, const float *post_norm) {
    int64_t width = s->p->n_embd;
    float *h = s->h + t * width;
    if (bias) s->m->kern->add(h, bias, 1, width);
    if (post_norm) s->m->kern->rms_norm(h, h, post_norm, width, s->p->eps);
    s->m->kern->add(s->x + t * width, h, s->p->residual_scale, width);
}

/* Adds attention to the stream, and norms it for the feed-forward part. */
static void after_attention(void *context, int64_t t, int thread) {
    (void)thread;
    pass *s = context;
    add_part(s, t, s->l->out_bias, s->l->attn_post_norm);
    norm_token(s, t, s->l->ffn_norm);
}

/* The same for the next layer's attention. */
static void after_feed_forward(void *context, int64_t t, int thread) {
    (void)thread;
    pass *s = context;
    add_part(s, t, s->lp->experts ? NULL : s->l->down_bias, s->l->ffn_post_norm);
    if (s->index + 1 < s->p->n_layers) norm_token(s, t, s->l[1].attn_norm);
}

/* Queries, keys and values, and one of `parts` shares of attention. */
static bool attention_first(pass *s, int index, int parts) {
    s->index = index;
    s->l = &s->m->layers[index];
    s->lp = &s->p->layers[index];
    if (s->m->cache) weights_enter(s->m->cache, &s->run->walk, index);
    if (s->p->arch->traits & ARCH_LATENT) return latent_attention(s);
    if (!attention_begin(s)) return false;
    attend_part(s, 0, parts);
    return true;
}

/* The other one, if there are two, and what follows attention. */
static bool attention_last(pass *s, int parts) {
    if (parts == 2 && !(s->p->arch->traits & ARCH_LATENT)) attend_part(s, 1, 2);
    int64_t width = (int64_t)s->lp->n_heads * s->p->v_dim;
    if (!s->lp->experts) expect(s, (const weight *const[]){&s->l->gate, &s->l->up}, 2);
    if (!multiply(s, &s->l->out, s->attn, width, s->h, s->p->n_embd)) return false;
    for_tokens(s, after_attention);
    return true;
}

static bool feed_forward_part(pass *s, int part) {
    if (!feed_forward(s, part)) return false;
    if (part < 0 || part == KERN_GATED_PARTS - 1) for_tokens(s, after_feed_forward);
    return true;
}

/* A pass that rests so that others can be computed has a step for every fifth of a layer, more or less; but experts are computed in one. */
enum { STEPS = 2, FINE_STEPS = 2 + KERN_GATED_PARTS };
_Static_assert((int)FINE_STEPS <= (int)MODEL_LAYER_STEPS, "who counts them has places for all");

static bool layer_step(pass *s, int layer, int step) {
    if (s->layer_steps == STEPS) return step ? feed_forward_part(s, -1) : attention_first(s, layer, 1) && attention_last(s, 1);
    return step == 0 ? attention_first(s, layer, 2) : step == 1 ? attention_last(s, 2) : feed_forward_part(s, step - 2);
}

/* x of the tokens that want logits -> logits [wanted][n_vocab]; x of the parts that want them -> hidden states */
static bool write_logits(pass *s, float *logits) {
    const model_params *p = s->p;
    int64_t width = p->n_embd, rows = 0;
    for (int i = 0, t = 0; i < s->n_parts; i++) {
        float *hidden = s->parts[i].hidden;
        for (int k = 0; hidden && k < s->parts[i].n; k++) s->m->kern->rms_norm(hidden + k * width, s->x + (t + k) * width, s->m->output_norm, width, p->eps);
        t += s->parts[i].n;
        for (int k = t - s->parts[i].n_logits; k < t; k++, rows++)
            s->m->kern->rms_norm(s->h + rows * width, s->x + k * width, s->m->output_norm, width, p->eps);
    }
    if (rows == 0) return true;
    if (s->m->cache) weights_enter(s->m->cache, &s->run->walk, p->n_layers);
    if (!model_multiply_exact(s->m, s->run, &s->m->output, s->h, width, rows, logits, p->n_vocab, s->e)) return false;
    int64_t total = rows * p->n_vocab;
    if (p->logit_scale != 1)
        for (int64_t i = 0; i < total; i++) logits[i] *= p->logit_scale;
    if (p->logit_cap > 0)
        for (int64_t i = 0; i < total; i++) logits[i] = tanhf(logits[i] / p->logit_cap) * p->logit_cap;
    return true;
}

static bool check_tokens(const model *m, const model_part *part, err *e) {
    for (int i = 0; i < part->n; i++)
        if (part->tokens[i] < 0 || part->tokens[i] >= m->params.n_vocab)
            return err_set(e, HEARTH_ARGUMENT, "the token %d is not one of the model's %d", part->tokens[i], m->params.n_vocab);
    return true;
}

bool model_begin(const model *m, model_run *r, const model_part *parts, int n_parts, err *e) {
    if (!r->pass && !(r->pass = mem_alloc(1, sizeof *r->pass, e))) return false;
    pass *s = r->pass;
    *s = (pass){.m = m, .p = &m->params, .run = r, .parts = parts, .n_parts = n_parts, .layer_steps = model_layer_steps(m, r), .e = e};
    r->waited_ns = 0;
    for (int i = 0; i < n_parts; i++) {
        const bool arriving = parts[i].kv->arriving; /* a block that is to be copied must be there as a whole */
        const uint64_t start = arriving ? clock_ns() : 0;
        if (!check_tokens(m, &parts[i], e) || !kv_seq_reserve(parts[i].kv, (size_t)parts[i].n, e)) return false;
        if (arriving) r->waited_ns += clock_ns() - start;
        s->n += parts[i].n;
    }
    if (!make_buffers(s)) return false;
    place_tokens(s);
    for_tokens(s, embed_token);
    return true;
}

void model_go_on_with(model_run *r, int n_parts) {
    pass *s = r->pass;
    while (s->n_parts > n_parts) s->n -= s->parts[--s->n_parts].n;
}

int model_layer_steps(const model *m, const model_run *r) { return r->fine && m->params.n_experts == 0 ? FINE_STEPS : STEPS; }

int model_steps(const model *m, const model_run *r) { return model_layer_steps(m, r) * m->params.n_layers + 1; }

bool model_step(model_run *r, float *logits, bool *done, err *e) {
    pass *s = r->pass;
    const int step = s->step++;
    s->e = e;
    *done = step == s->layer_steps * s->p->n_layers;
    if (!*done) return layer_step(s, step / s->layer_steps, step % s->layer_steps);
    if (!write_logits(s, logits)) return false;
    for (int i = 0; i < s->n_parts; i++) s->parts[i].kv->length += (size_t)s->parts[i].n;
    return true;
}

bool model_forward(const model *m, model_run *r, const model_part *parts, int n_parts, float *logits, err *e) {
    bool done = false, ok = model_begin(m, r, parts, n_parts, e);
    while (ok && !done) ok = model_step(r, logits, &done, e);
    return ok;
}
