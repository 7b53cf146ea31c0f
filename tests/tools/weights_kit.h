/* weights_kit.h: small model files and kernels that only pack, for testing the weight cache on any CPU. Packing turns every byte around and adds a mark, so that a
 * packed form cannot be mistaken for a raw one or for another matrix. */
#ifndef TESTS_WEIGHTS_KIT_H
#define TESTS_WEIGHTS_KIT_H

#include <stdatomic.h>
#include <unistd.h>

#include "quant/quant.h"
#include "tools/support.h"
#include "weights/weights.h"

enum { KIT_COLS = 256, KIT_ROW = KIT_COLS * 4 };

static atomic_int kit_packed;      /* calls that packed row 0 of a matrix bigger than the layout probes */
static atomic_int kit_mark = 0x5A; /* another mark is another layout */
static atomic_int kit_slow_us;

static size_t kit_packed_bytes(int64_t rows, int64_t cols) { return (size_t)(rows * cols * 4); }
static void kit_pack(void *dst, const void *src, int64_t rows, int64_t cols, int64_t r0, int64_t r1) {
    size_t row = (size_t)cols * 4;
    /* Rows go from the bottom to the top, so that packing by ranges must get them right. */
    for (int64_t r = r0; r < r1; r++)
        for (size_t i = 0; i < row; i++)
            ((uint8_t *)dst)[(size_t)(rows - 1 - r) * row + i] = (uint8_t)(((const uint8_t *)src)[(size_t)r * row + i] ^ atomic_load(&kit_mark));
    if (r0 == 0 && rows % 4 == 0 && rows != 64) atomic_fetch_add(&kit_packed, 1);
    if (atomic_load(&kit_slow_us)) usleep((unsigned)atomic_load(&kit_slow_us));
}
static void kit_rows(float *y, int64_t ldy, const void *w, int64_t rows, int64_t cols, int64_t r0, int64_t r1, const void *act, int64_t n) {
    (void)y, (void)ldy, (void)w, (void)rows, (void)cols, (void)r0, (void)r1, (void)act, (void)n;
}
static const kern_matmul kit_product = {.rows = kit_rows, .row_step = 4, .packed_bytes = kit_packed_bytes, .pack = kit_pack, .rows_packed = kit_rows};
static const kern_matmul *kit_matmul(int type) { return type == QUANT_F32 ? &kit_product : NULL; }
static const kernels kit_kernels = {.name = "kit", .matmul = kit_matmul};

/* A model file: `layers` layers with `per_layer` matrices of `rows` rows each, and an output of 2 * rows. experts > 0: every layer also has a tensor of that many
 * small matrices (rows / 4). Contents follow from the seed. */
typedef struct kit_shape {
    int layers, per_layer, rows, experts;
    uint64_t seed;
} kit_shape;

static void kit_put(buf *b, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) assert_true(buf_addc(b, (char)(v >> 8 * i), NULL));
}

static void kit_tensor(buf *infos, buf *data, const char *name, int rows, int n, uint64_t *random) {
    kit_put(infos, strlen(name), 8);
    buf_adds(infos, name, NULL);
    kit_put(infos, n > 1 ? 3 : 2, 4);
    kit_put(infos, KIT_COLS, 8);
    kit_put(infos, (uint64_t)rows, 8);
    if (n > 1) kit_put(infos, (uint64_t)n, 8);
    kit_put(infos, QUANT_F32, 4);
    kit_put(infos, data->len, 8);
    for (int64_t i = 0; i < (int64_t)rows * n * KIT_COLS / 2; i++) {
        uint64_t v = rng_next(random);
        buf_add(data, &v, 8, NULL);
    }
}

static void kit_write_model(const char *path, const kit_shape *s) {
    buf infos = {0}, data = {0}, file = {0};
    uint64_t random = s->seed;
    char name[64];
    int n = 0;
    for (int l = 0; l < s->layers; l++) {
        for (int i = 0; i < s->per_layer; i++, n++) {
            snprintf(name, sizeof name, "blk.%d.m%d.weight", l, i);
            kit_tensor(&infos, &data, name, s->rows, 1, &random);
        }
        if (s->experts) {
            snprintf(name, sizeof name, "blk.%d.exps.weight", l);
            kit_tensor(&infos, &data, name, s->rows / 4, s->experts, &random);
            n++;
        }
    }
    kit_tensor(&infos, &data, "output.weight", s->rows * 2, 1, &random);
    buf_adds(&file, "GGUF", NULL);
    kit_put(&file, 3, 4);
    kit_put(&file, (uint64_t)n + 1, 8);
    kit_put(&file, 0, 8);
    buf_add(&file, infos.data, infos.len, NULL);
    while (file.len % 32) buf_addc(&file, 0, NULL);
    buf_add(&file, data.data, data.len, NULL);
    spew(path, file.data, file.len);
    buf_free(&infos), buf_free(&data), buf_free(&file);
}

/* The model opened with a cache over it. */
typedef struct kit {
    gguf *g;
    pool *pool;
    weights *w;
    int n; /* matrices */
    char warning[600];
    atomic_int warnings;
} kit;

static void kit_warn(void *user, const char *sentence) {
    kit *k = user;
    if (atomic_fetch_add(&k->warnings, 1) == 0) snprintf(k->warning, sizeof k->warning, "%s", sentence);
}

/* False when gguf_open, weights_open, add or start fails, which only happens when a test makes it. */
static bool kit_open_with(kit *k, const char *model, const weights_options *options, const kernels *set, int threads) {
    *k = (kit){0};
    err e = {0};
    weights_options o = *options;
    o.warn = kit_warn, o.warn_user = k;
    k->g = gguf_open(model, &e);
    k->pool = k->g ? pool_new(threads, &e) : NULL;
    k->w = k->pool ? weights_open(k->g, set, k->pool, &o, &e) : NULL;
    bool ok = k->w != NULL;
    int last = 0;
    for (size_t i = 0; ok && i < gguf_n_tensors(k->g); i++) {
        const gguf_tensor *t = gguf_tensor_at(k->g, i);
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
        int layer, id;
        if (sscanf(name, "blk.%d.", &layer) == 1) last = layer + 1;
        else layer = last;
        kern_weight m = {.type = t->type, .rows = t->ne[1], .cols = t->ne[0], .data = t->data};
        id = weights_add(k->w, name, (int)t->ne[2], (size_t)(t->ne[1] * KIT_ROW), layer, &m, true, &e);
        ok = id >= 0;
        k->n += (int)t->ne[2];
    }
    return ok && weights_start(k->w, &e);
}

static void kit_open(kit *k, const char *model, const weights_options *o) { assert_true(kit_open_with(k, model, o, &kit_kernels, 2)); }

static void kit_close(kit *k) {
    weights_close(k->w);
    pool_free(k->pool);
    gguf_close(k->g);
}

static weights_options kit_options(uint64_t memory) {
    weights_options o = weights_defaults();
    o.memory = memory;
    o.persist = false;
    o.persist_least = 0;
    o.prefetch = 0;
    o.move = false;
    return o;
}

/* Fails from any thread. */
static void kit_die(const char *what) {
    printf("not ok - %s\n", what);
    fflush(stdout);
    abort();
}

/* Whatever form a request gets, it must hold the matrix's bits. Returns whether it was packed. */
static bool kit_holds(const kern_weight *m) {
    const uint8_t *raw = m->data, *packed = m->packed;
    size_t rows = (size_t)m->rows;
    uint8_t mark = (uint8_t)atomic_load(&kit_mark);
    for (size_t r = 0; packed && r < rows; r++)
        for (size_t i = 0; i < KIT_ROW; i++)
            if (packed[(rows - 1 - r) * KIT_ROW + i] != (raw[r * KIT_ROW + i] ^ mark)) kit_die("a packed form holds wrong bits");
    return packed != NULL;
}

/* One pass over all matrices, in order. Returns how many were packed. */
static int kit_pass(kit *k, weights_walk *walk, bool check) {
    int packed = 0;
    for (int i = 0; i < k->n; i++) {
        int to = weights_entry_get(k->w, i).layer;
        if (to + 1 != walk->place || i == 0) weights_enter(k->w, walk, to);
        const kern_weight *m = weights_acquire(k->w, i);
        packed += check ? kit_holds(m) : m->packed != NULL;
        weights_release(k->w, m);
    }
    return packed;
}

#endif
