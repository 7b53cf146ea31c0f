/* make.c: making ready forms. From the model file a matrix is packed, in ranges of rows; from the packed file it is compared with its checksum, once, and used
 * in place. Preload does this for many at once, over all threads, in the order of the file, reading ahead. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "quant/quant.h"
#include "weights/inner.h"

#define PIECE_BYTES ((size_t)1 << 20) /* of the raw form, about; one task */
#define PIECES_AHEAD 32               /* that are asked of the disk before they are needed */

static size_t raw_row_bytes(const entry *e) { return (size_t)quant_bytes(quant_find(e->raw.mat.type), (uint64_t)e->raw.mat.cols); }

/* Rows of a piece. */
static int64_t rows_at_once(const entry *e) {
    int64_t step = e->product->row_step, rows = (int64_t)(PIECE_BYTES / (raw_row_bytes(e) + 1)) / step * step;
    return rows > step ? rows : step;
}

static int64_t packing_pieces(const entry *e) {
    int64_t rows = rows_at_once(e);
    return (e->raw.mat.rows + rows - 1) / rows;
}

static void pack_piece(const entry *e, void *to, int64_t i) {
    int64_t rows = rows_at_once(e), r0 = i * rows, r1 = r0 + rows < e->raw.mat.rows ? r0 + rows : e->raw.mat.rows;
    e->product->pack(to, e->raw.mat.data, e->raw.mat.rows, e->raw.mat.cols, r0, r1);
}

typedef struct one {
    const entry *e;
    void *to;            /* packing */
    const uint8_t *file; /* checking */
    uint64_t *sums;
} one;

static void pack_task(void *context, int64_t i, int thread) {
    (void)thread;
    const one *o = context;
    pack_piece(o->e, o->to, i);
}

void make_packed(entry *e, void *to, pool *p) {
    one o = {.e = e, .to = to};
    if (p) pool_run(p, packing_pieces(e), pack_task, &o);
    else
        for (int64_t i = 0; i < packing_pieces(e); i++) pack_piece(e, to, i);
}

static void sum_task(void *context, int64_t i, int thread) {
    (void)thread;
    const one *o = context;
    o->sums[i] = pack_piece_sum(o->file, o->e->exact, (size_t)i);
}

/* The bytes in the packed file are those that were written. */
static bool file_holds(const entry *e, const uint8_t *file, pool *p) {
    size_t n = pack_pieces(e->exact);
    uint64_t *sums = p && n > 1 ? mem_alloc(n, sizeof *sums, NULL) : NULL;
    if (!sums) return pack_sum(file, e->exact) == e->sum;
    one o = {.e = e, .file = file, .sums = sums};
    pool_run(p, (int64_t)n, sum_task, &o);
    uint64_t sum = pack_join_sums(sums, n);
    mem_free(sums);
    return sum == e->sum;
}

void make_entry(weights *w, entry *e, pool *p) {
    uint64_t start = clock_ns();
    pthread_mutex_lock(&w->lock);
    const uint8_t *file = e->file;
    bool checked = e->checked;
    pthread_mutex_unlock(&w->lock);
    if (file && !p) file_map_ahead(file, e->exact); /* made ahead of use: let the disk begin */
    if (file && !checked) {
        checked = file_holds(e, file, p);
        if (!checked) persist_bad(w, e->name);
    }
    bool in_map = file && checked;
    if (!in_map) make_packed(e, (char *)w->arena + e->offset, p);
    e->packed.mat.packed = in_map ? (const void *)file : (char *)w->arena + e->offset;
    pthread_mutex_lock(&w->lock);
    e->checked = in_map;
    cache_publish(w, e, in_map, clock_ns() - start);
    pthread_mutex_unlock(&w->lock);
}

/* ---- preload ---- */

typedef struct piece {
    entry *e;
    bool check;      /* compare with the checksum, or pack */
    int64_t index;
    uint64_t sum, ns;
} piece;

typedef struct preload {
    weights *w;
    piece *pieces;
    int64_t n;
    atomic_uint_fast64_t done;
    uint64_t total;
    const char *what;
} preload;

static void piece_source(const piece *p, const uint8_t **data, size_t *len) {
    const entry *e = p->e;
    if (p->check) {
        *data = e->file + (size_t)p->index * PACK_CHUNK;
        *len = e->exact - (size_t)p->index * PACK_CHUNK < PACK_CHUNK ? e->exact - (size_t)p->index * PACK_CHUNK : PACK_CHUNK;
    } else {
        int64_t rows = rows_at_once(e), r0 = p->index * rows, r1 = r0 + rows < e->raw.mat.rows ? r0 + rows : e->raw.mat.rows;
        *data = (const uint8_t *)e->raw.mat.data + (size_t)r0 * raw_row_bytes(e);
        *len = (size_t)(r1 - r0) * raw_row_bytes(e);
    }
}

static void preload_task(void *context, int64_t i, int thread) {
    preload *l = context;
    piece *p = &l->pieces[i];
    uint64_t start = clock_ns();
    const uint8_t *data;
    size_t len;
    if (i + PIECES_AHEAD < l->n) {
        piece_source(&l->pieces[i + PIECES_AHEAD], &data, &len);
        file_map_ahead(data, len);
    }
    piece_source(p, &data, &len);
    if (p->check) p->sum = pack_piece_sum(p->e->file, p->e->exact, (size_t)p->index);
    else pack_piece(p->e, (char *)l->w->arena + p->e->offset, p->index);
    p->ns = clock_ns() - start;
    uint64_t done = atomic_fetch_add(&l->done, len) + len;
    /* Thread 0 is the caller's, and the end is told once everything is published. */
    if (thread == 0 && l->w->o.progress && done < l->total) l->w->o.progress(l->w->o.progress_user, l->what, done, l->total);
}

static bool wanted(const weights *w, const entry *e) {
    if (!e->product || !e->keep || w->o.preload == WEIGHTS_PRELOAD_NONE) return false;
    if (w->o.preload == WEIGHTS_PRELOAD_ALL || e->stage == w->n_stages - 1) return true;
    int first = (w->n_stages - 1) / 4;
    return e->stage < (first > 0 ? first : 1);
}

static int by_place(const void *a, const void *b) {
    const piece *x = a, *y = b;
    const uint8_t *p, *q;
    size_t len;
    piece_source(x, &p, &len), piece_source(y, &q, &len);
    return (uintptr_t)p < (uintptr_t)q ? -1 : (uintptr_t)p > (uintptr_t)q;
}

/* Pieces of all that must be worked on. What lies in a trusted file is ready as it is. */
static bool list_pieces(preload *l) {
    weights *w = l->w;
    int64_t n = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1 && !(l->pieces = mem_alloc((size_t)n, sizeof *l->pieces, NULL))) return false;
        for (int i = 0; i < w->n; i++) {
            entry *e = &w->entries[i];
            if (!wanted(w, e) || (e->file && e->checked)) continue;
            bool check = e->file != NULL;
            int64_t count = check ? (int64_t)pack_pieces(e->exact) : packing_pieces(e);
            if (pass == 0) n += count;
            for (int64_t k = 0; pass == 1 && k < count; k++) {
                piece *p = &l->pieces[l->n++];
                *p = (piece){.e = e, .check = check, .index = k};
                const uint8_t *data;
                size_t len;
                piece_source(p, &data, &len);
                l->total += len;
            }
        }
    }
    return true;
}

static int by_entry(const void *a, const void *b) {
    const piece *x = a, *y = b;
    if (x->e != y->e) return x->e < y->e ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Adds up the pieces of every entry and publishes it. */
static void finish(preload *l) {
    weights *w = l->w;
    qsort(l->pieces, (size_t)l->n, sizeof *l->pieces, by_entry);
    for (int64_t i = 0; i < l->n;) {
        entry *e = l->pieces[i].e;
        bool check = l->pieces[i].check;
        int64_t count = check ? (int64_t)pack_pieces(e->exact) : packing_pieces(e);
        uint64_t sum = l->pieces[i].sum, ns = 0;
        for (int64_t k = 0; k < count; k++) {
            const uint64_t pair[2] = {sum, l->pieces[i + k].sum};
            if (k > 0) sum = pack_join_sums(pair, 2);
            ns += l->pieces[i + k].ns;
        }
        i += count;
        bool in_map = check && e->file && sum == e->sum;
        if (check && sum != e->sum) persist_bad(w, e->name);
        if (!in_map && check) make_packed(e, (char *)w->arena + e->offset, w->pool);
        e->checked = in_map;
        e->packed.mat.packed = in_map ? (const void *)e->file : (char *)w->arena + e->offset;
        pthread_mutex_lock(&w->lock);
        cache_publish(w, e, in_map, ns);
        pthread_mutex_unlock(&w->lock);
    }
}

void make_preload(weights *w) {
    uint64_t start = clock_ns();
    preload l = {.w = w, .what = w->pack.map.data ? "checking packed weights" : "packing weights"};
    if (!list_pieces(&l)) return; /* memory is short: they are made when they are asked for */
    for (int i = 0; i < w->n; i++) {
        entry *e = &w->entries[i];
        if (!wanted(w, e)) continue;
        e->preloaded = true;
        w->preloaded++;
        w->used += e->bytes;
        if (!e->file || !e->checked) continue;
        e->packed.mat.packed = e->file;
        pthread_mutex_lock(&w->lock);
        cache_publish(w, e, true, 0);
        pthread_mutex_unlock(&w->lock);
    }
    if (l.n) {
        qsort(l.pieces, (size_t)l.n, sizeof *l.pieces, by_place);
        pool_run(w->pool, l.n, preload_task, &l);
        finish(&l);
        if (w->o.progress) w->o.progress(w->o.progress_user, l.what, l.total, l.total);
    }
    mem_free(l.pieces);
    w->preload_seconds = (double)(clock_ns() - start) * 1e-9;
}
