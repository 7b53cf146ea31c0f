/* fingerprint.c: what a packed file is found by. The table is cheap and says what could match; the fingerprint covers every byte of every tensor, however
 * the file is named, split or annotated; the layout covers how this build packs, so that nobody has to remember to raise a version. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "quant/quant.h"
#include "weights/inner.h"

static hash128 mix(hash128 h, const void *data, size_t len) {
    XXH128_hash_t x = XXH3_128bits(data, len);
    uint64_t words[4] = {h.low, h.high, x.low64, x.high64};
    x = XXH3_128bits(words, sizeof words);
    return (hash128){x.low64, x.high64};
}

static int by_name(const void *a, const void *b) {
    const gguf_tensor *x = *(const gguf_tensor *const *)a, *y = *(const gguf_tensor *const *)b;
    size_t n = x->name.len < y->name.len ? x->name.len : y->name.len;
    int c = memcmp(x->name.data, y->name.data, n);
    return c ? c : (x->name.len > y->name.len) - (x->name.len < y->name.len);
}

static hash128 mix_shape(hash128 h, const gguf_tensor *t) {
    uint64_t shape[6] = {(uint64_t)t->type, (uint64_t)t->ne[0], (uint64_t)t->ne[1], (uint64_t)t->ne[2], (uint64_t)t->ne[3], t->n_bytes};
    return mix(mix(h, t->name.data, t->name.len), shape, sizeof shape);
}

hash128 fingerprint_table(const gguf *g) {
    /* Order does not count: a sum of each tensor's hash. */
    hash128 sum = {0};
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        hash128 h = mix_shape((hash128){0}, gguf_tensor_at(g, i));
        sum.low += h.low, sum.high += h.high;
    }
    return sum;
}

typedef struct hash_piece {
    const uint8_t *data;
    size_t len;
    hash128 hash;
} hash_piece;

static void hash_one(void *context, int64_t i, int thread) {
    (void)thread;
    hash_piece *p = (hash_piece *)context + i;
    p->hash = mix((hash128){0}, p->data, p->len);
}

bool fingerprint_weights(const gguf *g, pool *p, hash128 *out, err *e) {
    size_t n = gguf_n_tensors(g), pieces = 0, at = 0;
    for (size_t i = 0; i < n; i++) pieces += pack_pieces((size_t)gguf_tensor_at(g, i)->n_bytes);
    const gguf_tensor **tensors = mem_alloc(n, sizeof *tensors, e);
    hash_piece *list = mem_alloc(pieces, sizeof *list, e);
    bool ok = tensors && list;
    if (ok) {
        for (size_t i = 0; i < n; i++) tensors[i] = gguf_tensor_at(g, i);
        qsort(tensors, n, sizeof *tensors, by_name);
        for (size_t i = 0; i < n; i++) {
            size_t bytes = (size_t)tensors[i]->n_bytes;
            for (size_t from = 0; from < bytes || from == 0; from += PACK_CHUNK)
                list[at++] = (hash_piece){.data = tensors[i]->data + from, .len = bytes - from < PACK_CHUNK ? bytes - from : PACK_CHUNK};
        }
        if (p) pool_run(p, (int64_t)pieces, hash_one, list);
        else
            for (size_t i = 0; i < pieces; i++) hash_one(list, (int64_t)i, 0);
        hash128 h = {0};
        at = 0;
        for (size_t i = 0; i < n; i++) {
            h = mix_shape(h, tensors[i]);
            for (size_t k = pack_pieces((size_t)tensors[i]->n_bytes); k > 0; k--) h = mix(h, &list[at++].hash, sizeof h);
        }
        *out = h;
    }
    mem_free(tensors);
    mem_free(list);
    return ok;
}

/* Packs small matrices of known bytes: whatever changes in a layout changes the result. Odd and even numbers of rows, one and several blocks of columns. */
static bool probe(const kern_matmul *m, int type, hash128 *h, err *e) {
    static const struct { int64_t rows, cols; } shapes[] = {{37, 256}, {64, 512}, {131, 1280}};
    const quant_info *q = quant_find(type);
    bool ok = true;
    for (size_t s = 0; ok && s < sizeof shapes / sizeof *shapes; s++) {
        int64_t rows = shapes[s].rows, cols = shapes[s].cols;
        size_t raw = (size_t)rows * (size_t)quant_bytes(q, (uint64_t)cols), packed = m->packed_bytes(rows, cols);
        uint8_t *src = mem_aligned(raw, 1, e), *dst = mem_aligned(packed, 1, e);
        ok = src && dst;
        if (ok) {
            memset(dst, 0, packed);
            uint64_t random = 0x9E3779B97F4A7C15u;
            for (size_t i = 0; i < raw; i++) random = random * 6364136223846793005u + 1442695040888963407u, src[i] = (uint8_t)(random >> 56);
            m->pack(dst, src, rows, cols, 0, rows);
            *h = mix(*h, dst, packed);
        }
        mem_free(src);
        mem_free(dst);
    }
    return ok;
}

bool fingerprint_layout(weights *w, hash128 *out, err *e) {
    *out = (hash128){0};
    bool done[QUANT_TYPE_END] = {0};
    for (int type = 0; type < QUANT_TYPE_END; type++) {
        for (int i = 0; i < w->n && !done[type]; i++) {
            const entry *x = &w->entries[i];
            if (!x->product || x->raw.mat.type != type) continue;
            done[type] = true;
            *out = mix(*out, &type, sizeof type);
            if (!probe(x->product, type, out, e)) return false;
        }
    }
    return true;
}
