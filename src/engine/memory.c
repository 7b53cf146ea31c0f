#include "engine/memory.h"

#include <string.h>

typedef struct kept {
    kv_seq kv;
    int32_t *tokens; /* kv.length */
    bool long_context;
    uint64_t used;   /* when, in calls */
} kept;

struct memory {
    const kv_layout *layout;
    kept *items;
    size_t n, cap;
    uint64_t clock;
    _Atomic uint64_t hits, misses, tokens_reused, evictions, bytes, conversations;
};

memory *memory_new(const kv_layout *layout, err *e) {
    memory *m = mem_zalloc(1, sizeof *m, e);
    if (m) m->layout = layout;
    return m;
}

static uint64_t bytes_of(const kv_seq *kv) { return (uint64_t)kv->n_blocks * kv->layout->block_bytes; }

/* Takes item i out of the table; its kv and tokens are the caller's. */
static kept take_out(memory *m, size_t i) {
    kept k = m->items[i];
    m->items[i] = m->items[--m->n];
    m->bytes -= bytes_of(&k.kv);
    m->conversations = m->n;
    return k;
}

static void drop(memory *m, size_t i) {
    kept k = take_out(m, i);
    kv_seq_free(&k.kv);
    mem_free(k.tokens);
}

void memory_free(memory *m) {
    if (!m) return;
    while (m->n > 0) drop(m, m->n - 1);
    mem_free(m->items);
    mem_free(m);
}

static size_t common(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b) {
    size_t n = n_a < n_b ? n_a : n_b, i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

/* A copy of the first n tokens, by whole blocks. */
static bool copy_prefix(kv_seq *to, const kv_seq *from, size_t n) {
    err ignored = {0};
    if (!kv_seq_reserve(to, n, &ignored)) {
        kv_seq_free(to);
        return false;
    }
    for (size_t b = 0; b < to->n_blocks; b++) memcpy(to->blocks[b], from->blocks[b], from->layout->block_bytes);
    to->length = n;
    return true;
}

/* Shorter ones are computed as fast as they are copied. */
enum { LEAST_PREFIX = 4 };

void memory_recall(memory *m, const int32_t *tokens, size_t n, bool long_context, const memory_lender *also, int n_also, kv_seq *kv) {
    size_t best = 0, item = 0;
    const kv_seq *lender = NULL;
    if (n == 0) return;
    for (size_t i = 0; i < m->n; i++) {
        const kept *k = &m->items[i];
        size_t c = k->long_context == long_context ? common(k->tokens, k->kv.length, tokens, n - 1) : 0;
        if (c > best) best = c, item = i;
    }
    for (int i = 0; i < n_also; i++) {
        size_t c = also[i].long_context == long_context ? common(also[i].tokens, also[i].kv->length, tokens, n - 1) : 0;
        if (c > best) best = c, lender = also[i].kv;
    }
    bool found = best >= LEAST_PREFIX;
    if (found && lender) {
        found = copy_prefix(kv, lender, best);
    } else if (found) {
        kept *k = &m->items[item];
        k->used = ++m->clock;
        /* A conversation that goes on takes its memory with it; a fork leaves it to the other branch. */
        if (best + 1 >= k->kv.length) {
            kept whole = take_out(m, item);
            mem_free(whole.tokens);
            kv_seq_free(kv);
            *kv = whole.kv;
            kv_seq_truncate(kv, best);
        } else {
            found = copy_prefix(kv, &k->kv, best);
        }
    }
    if (found) {
        m->hits++;
        m->tokens_reused += best;
    } else {
        m->misses++;
    }
}

/* Drops what the new conversation contains already. */
static void drop_contained(memory *m, const int32_t *tokens, size_t n, bool long_context) {
    for (size_t i = m->n; i-- > 0;) {
        const kept *k = &m->items[i];
        if (k->long_context == long_context && k->kv.length <= n && common(k->tokens, k->kv.length, tokens, n) == k->kv.length) drop(m, i);
    }
}

void memory_keep(memory *m, kv_seq *kv, const int32_t *tokens, bool long_context) {
    size_t n = kv->length;
    err ignored = {0};
    drop_contained(m, tokens, n, long_context);
    if (m->n == m->cap) {
        size_t cap = m->cap ? 2 * m->cap : 16;
        kept *items = mem_realloc(m->items, cap, sizeof *items, &ignored);
        if (items) m->items = items, m->cap = cap;
    }
    int32_t *copy = n > 0 && m->n < m->cap ? mem_alloc(n, sizeof *copy, &ignored) : NULL;
    if (!copy) {
        kv_seq_free(kv);
        return;
    }
    memcpy(copy, tokens, n * sizeof *copy);
    m->items[m->n++] = (kept){.kv = *kv, .tokens = copy, .long_context = long_context, .used = ++m->clock};
    m->bytes += bytes_of(kv);
    m->conversations = m->n;
    *kv = (kv_seq){.layout = m->layout};
}

void memory_shrink(memory *m, uint64_t bytes) {
    while (m->n > 0 && m->bytes > bytes) {
        size_t oldest = 0;
        for (size_t i = 1; i < m->n; i++)
            if (m->items[i].used < m->items[oldest].used) oldest = i;
        drop(m, oldest);
        m->evictions++;
    }
}

uint64_t memory_bytes(const memory *m) { return m->bytes; }

memory_stats memory_count(const memory *m) {
    return (memory_stats){.hits = m->hits, .misses = m->misses, .tokens_reused = m->tokens_reused, .evictions = m->evictions, .bytes = m->bytes,
                          .conversations = m->conversations};
}
