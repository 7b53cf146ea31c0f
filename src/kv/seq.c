/* seq.c: one conversation as a list of blocks. Blocks [0, n_sealed) are named and never written; after them comes at most one that is being filled, and
 * perhaps some that are reserved. A block that others hold or can find is copied before the first write. */
#include "kv/cache.h"

static void set_block(kv_seq *s, size_t i, kv_block *b) {
    s->held[i] = b;
    s->blocks[i] = b->data;
}

static bool make_list(kv_seq *s, size_t need, err *e) {
    if (need <= s->cap) return true;
    size_t cap = need + need / 2 + 4;
    uint8_t **blocks = mem_realloc(s->blocks, cap, sizeof *blocks, e);
    if (!blocks) return false;
    s->blocks = blocks;
    kv_block **held = mem_realloc(s->held, cap, sizeof *held, e);
    if (!held) return false;
    s->held = held;
    s->cap = cap;
    return true;
}

static kv_block *copy_block(const kv_seq *s, const kv_block *from, err *e) {
    kv_block *b = kv_block_new(s->cache, s->layout, e);
    if (b) memcpy(b->data, from->data, s->layout->block_bytes);
    return b;
}

bool kv_seq_reserve(kv_seq *s, size_t n, err *e) {
    size_t need = (s->length + n + KV_BLOCK - 1) / KV_BLOCK, tail = s->length / KV_BLOCK;
    if (!make_list(s, need, e)) return false;
    if (n > 0 && s->length % KV_BLOCK && !kv_block_writable(s->cache, s->held[tail], s->length % KV_BLOCK)) {
        kv_block *copy = copy_block(s, s->held[tail], e);
        if (!copy) return false;
        kv_block_drop(s->cache, s->held[tail]);
        set_block(s, tail, copy);
    }
    while (s->n_blocks < need) {
        kv_block *b = kv_block_new(s->cache, s->layout, e);
        if (!b) return false;
        set_block(s, s->n_blocks++, b);
    }
    return true;
}

static void shorten(kv_seq *s, size_t n_blocks) {
    while (s->n_blocks > n_blocks) kv_block_drop(s->cache, s->held[--s->n_blocks]);
}

void kv_seq_truncate(kv_seq *s, size_t length) {
    if (length >= s->length) return;
    s->length = length;
    if (s->n_sealed > length / KV_BLOCK) s->n_sealed = length / KV_BLOCK;
    shorten(s, (length + KV_BLOCK - 1) / KV_BLOCK);
}

void kv_seq_free(kv_seq *s) {
    shorten(s, 0);
    mem_free(s->blocks);
    mem_free(s->held);
    *s = (kv_seq){.layout = s->layout, .cache = s->cache, .chain = s->chain};
}

bool kv_seq_fork(kv_seq *to, const kv_seq *from, err *e) {
    *to = (kv_seq){.layout = from->layout, .cache = from->cache, .chain = from->chain};
    size_t n = (from->length + KV_BLOCK - 1) / KV_BLOCK;
    bool ok = make_list(to, n, e);
    for (size_t i = 0; ok && i < n; i++) {
        kv_block *b = from->held[i];
        /* Without a cache nothing guards a count that two threads change. */
        if (!to->cache) ok = (b = copy_block(to, b, e)) != NULL;
        else kv_block_hold(to->cache, b);
        if (ok) set_block(to, to->n_blocks++, b);
    }
    if (!ok) {
        kv_seq_free(to);
        return false;
    }
    to->length = from->length;
    to->n_sealed = from->n_sealed;
    return true;
}

static const kv_name *last_name(const kv_seq *s) { return s->n_sealed ? &s->held[s->n_sealed - 1]->name : &s->chain.root; }

/* Gives block i its tokens and shows it to others. */
static void show(kv_seq *s, size_t i, const int32_t *tokens, size_t n) {
    kv_block *b = s->held[i];
    const kv_name parent = *last_name(s), name = kv_name_next(&s->chain, &parent, tokens, n);
    memcpy(kv_block_tokens(s->layout, b), tokens, n * sizeof *tokens);
    kv_block *use = kv_cache_insert(s->cache, b, &name, &parent, (uint32_t)i, (int)n);
    if (!use->in_tree) use->name = name;
    set_block(s, i, use);
}

void kv_seq_seal(kv_seq *s, const int32_t *tokens) {
    if (!s->cache) return;
    for (; s->n_sealed < s->length / KV_BLOCK; s->n_sealed++) show(s, s->n_sealed, tokens + s->n_sealed * KV_BLOCK, KV_BLOCK);
}

void kv_seq_keep_tail(kv_seq *s, const int32_t *tokens) {
    size_t tail = s->length / KV_BLOCK, n = s->length % KV_BLOCK;
    if (!s->cache || n == 0 || s->n_sealed != tail || !kv_block_writable(s->cache, s->held[tail], n)) return;
    show(s, tail, tokens + tail * KV_BLOCK, n);
}

/* ---- finding what is known ---- */

/* Block n_sealed becomes this one, which is full and named. */
static void attach(kv_seq *s, kv_block *b) {
    size_t i = s->n_sealed;
    if (i < s->n_blocks) kv_block_drop(s->cache, s->held[i]);
    else s->n_blocks++;
    set_block(s, i, b);
    s->n_sealed++;
    if (s->length < s->n_sealed * KV_BLOCK) s->length = s->n_sealed * KV_BLOCK;
}

/* From disk: names of all that is missing, then as many blocks from the start as there are. */
static size_t attach_loaded(kv_seq *s, const int32_t *tokens, size_t n_full, kv_load *load, void *user) {
    size_t first = s->n_sealed, n = n_full - first, got = 0;
    kv_name *names = mem_alloc(n + 1, sizeof *names, NULL);
    kv_block **blocks = mem_zalloc(n, sizeof *blocks, NULL);
    if (names && blocks) {
        names[0] = *last_name(s);
        for (size_t i = 0; i < n; i++) names[i + 1] = kv_name_next(&s->chain, &names[i], tokens + (first + i) * KV_BLOCK, KV_BLOCK);
        got = load(user, names, first, n, blocks);
        for (size_t i = 0; i < got; i++) {
            kv_block *b = kv_cache_insert(s->cache, blocks[i], &names[i + 1], &names[i], (uint32_t)(first + i), KV_BLOCK);
            if (!b->in_tree) b->name = names[i + 1];
            attach(s, b);
        }
    }
    mem_free(names);
    mem_free(blocks);
    return got;
}

/* The start of a block, or of an ended conversation's tail, in place of this sequence's own shorter tail. */
static void attach_part(kv_seq *s, const int32_t *tokens, size_t n) {
    size_t at = s->n_sealed * KV_BLOCK, own = s->length - at, rest = n - at < KV_BLOCK ? n - at : KV_BLOCK, matched;
    if (rest <= own) return;
    kv_block *b = kv_cache_find_part(s->cache, last_name(s), tokens + at, rest, own + 1, &matched);
    if (!b) return;
    if (s->n_sealed < s->n_blocks) kv_block_drop(s->cache, s->held[s->n_sealed]);
    else s->n_blocks++;
    set_block(s, s->n_sealed, b);
    s->length = at + matched;
}

size_t kv_seq_find(kv_seq *s, const int32_t *tokens, size_t n, kv_load *load, void *user) {
    size_t before = s->length, n_full = n / KV_BLOCK, loaded = 0;
    if (!s->cache || n <= before || s->n_sealed != before / KV_BLOCK || !make_list(s, n_full + 1, NULL)) return 0;
    bool hot = true;
    while (hot && s->n_sealed < n_full) {
        kv_name name = kv_name_next(&s->chain, last_name(s), tokens + s->n_sealed * KV_BLOCK, KV_BLOCK);
        kv_block *b = kv_cache_find(s->cache, &name);
        if (b) attach(s, b);
        hot = b != NULL;
    }
    if (!hot && load) loaded = attach_loaded(s, tokens, n_full, load, user);
    attach_part(s, tokens, n);
    kv_cache_count(s->cache, n - before, s->length - before, loaded * KV_BLOCK);
    return s->length - before;
}
