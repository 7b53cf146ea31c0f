/* seq.c: one conversation as a list of blocks. Blocks [0, n_sealed) are named and never written; after them comes at most one that is being filled, and
 * perhaps some that are reserved. A block that others hold or can find is copied before the first write. Of the blocks that the windows of the next token
 * reach, the window parts are held too (taken); of others not. */
#include "kv/cache.h"

static void set_block(kv_seq *s, size_t i, kv_block *b, bool taken) {
    s->held[i] = b;
    s->blocks[i] = b->data;
    s->taken[i] = taken;
    s->windows[i] = taken ? b->window : NULL;
    s->arriving = true;
}

static void drop_block(kv_seq *s, size_t i) {
    if (s->taken[i]) kv_block_give_window(s->cache, s->held[i], KV_ENDS);
    kv_block_drop(s->cache, s->held[i]);
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
    uint8_t **windows = mem_realloc(s->windows, cap, sizeof *windows, e);
    if (!windows) return false;
    s->windows = windows;
    bool *taken = mem_realloc(s->taken, cap, sizeof *taken, e);
    if (!taken) return false;
    s->taken = taken;
    s->cap = cap;
    return true;
}

static bool is_damaged(err *e) { return err_set(e, HEARTH_FORMAT, "a block of the conversation was damaged on disk and is to be computed again"); }

/* from's window part is held, if there is any. */
static kv_block *copy_block(const kv_seq *s, kv_block *from, err *e) {
    if (kv_block_check(s->cache, from, true, KV_ALL - 1) == KV_LOST) {
        is_damaged(e);
        return NULL;
    }
    kv_block *b = kv_block_new(s->cache, s->layout, e);
    if (b) memcpy(b->data, from->data, kv_rest_bytes(s->layout));
    if (b && b->window) memcpy(b->window, from->window, s->layout->window_bytes);
    return b;
}

bool kv_seq_reserve(kv_seq *s, size_t n, err *e) {
    size_t need = (s->length + n + KV_BLOCK - 1) / KV_BLOCK, tail = s->length / KV_BLOCK;
    if (!make_list(s, need, e)) return false;
    if (n > 0 && s->length % KV_BLOCK && !kv_block_writable(s->cache, s->held[tail], s->length % KV_BLOCK)) {
        kv_block *copy = copy_block(s, s->held[tail], e);
        if (!copy) return false;
        drop_block(s, tail);
        set_block(s, tail, copy, true);
    }
    while (s->n_blocks < need) {
        kv_block *b = kv_block_new(s->cache, s->layout, e);
        if (!b) return false;
        set_block(s, s->n_blocks++, b, true);
    }
    return true;
}

static void shorten(kv_seq *s, size_t n_blocks) {
    while (s->n_blocks > n_blocks) drop_block(s, --s->n_blocks);
    if (s->first_taken > n_blocks) s->first_taken = n_blocks;
}

static void cut(kv_seq *s, size_t length) {
    s->length = length;
    if (s->n_sealed > length / KV_BLOCK) s->n_sealed = length / KV_BLOCK;
    shorten(s, (length + KV_BLOCK - 1) / KV_BLOCK);
    s->arriving = true; /* other window parts may be needed now */
}

static bool take(kv_seq *s, size_t i) {
    if (!s->taken[i]) s->taken[i] = kv_block_take_window(s->cache, s->held[i], false);
    if (!s->taken[i]) return false;
    s->windows[i] = s->held[i]->window;
    s->arriving = true;
    if (i < s->first_taken) s->first_taken = i;
    return true;
}

/* Takes the window parts that the next token needs, and those that are kept for who goes on from here if they are there; gives back those that it has moved past. Where a
 * needed one is gone, the sequence is cut before it, but not below `least`, whose window parts must be taken. Blocks beyond the length, which are reserved, are
 * left alone. */
static void settle(kv_seq *s, size_t least) {
    if (!s->cache || !s->layout->window) return;
    size_t low = 0;
    for (bool whole = false; !whole;) {
        low = kv_window_block(s->layout, s->length);
        whole = true;
        for (size_t i = (s->length + KV_BLOCK - 1) / KV_BLOCK; whole && i-- > low;) {
            whole = take(s, i);
            if (!whole) cut(s, i * KV_BLOCK > least ? i * KV_BLOCK : least);
        }
    }
    size_t kept = kv_window_kept(s->layout, s->length);
    while (low > kept && take(s, low - 1)) low--;
    for (; s->first_taken < kept; s->first_taken++) {
        if (s->taken[s->first_taken]) kv_block_give_window(s->cache, s->held[s->first_taken], KV_PASSED);
        s->taken[s->first_taken] = false;
        s->windows[s->first_taken] = NULL;
    }
}

void kv_seq_truncate(kv_seq *s, size_t length) {
    if (length >= s->length) return;
    cut(s, length);
    settle(s, 0);
}

void kv_seq_free(kv_seq *s) {
    shorten(s, 0);
    mem_free(s->blocks);
    mem_free(s->windows);
    mem_free(s->held);
    mem_free(s->taken);
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
        if (ok) set_block(to, to->n_blocks++, b, !to->cache || (from->taken[i] && kv_block_take_window(to->cache, b, false)));
    }
    if (!ok) {
        kv_seq_free(to);
        return false;
    }
    to->length = from->length;
    to->n_sealed = from->n_sealed;
    to->first_taken = from->first_taken;
    to->found = from->length;
    to->asked = from->asked;
    return true;
}

static const kv_name *last_name(const kv_seq *s) { return s->n_sealed ? &s->held[s->n_sealed - 1]->name : &s->chain.root; }

/* Gives block i its tokens and shows it to others. */
static void show(kv_seq *s, size_t i, const int32_t *tokens, size_t n) {
    kv_block *b = s->held[i];
    const kv_name parent = *last_name(s), name = kv_name_next(&s->chain, &parent, tokens, n);
    memcpy(kv_block_tokens(s->layout, b), tokens, n * sizeof *tokens);
    kv_block *use = kv_cache_insert(s->cache, b, &name, &parent, (uint32_t)i, (int)n);
    set_block(s, i, use, s->taken[i]);
}

void kv_seq_seal(kv_seq *s, const int32_t *tokens) {
    if (!s->cache) return;
    for (; s->n_sealed < s->length / KV_BLOCK; s->n_sealed++) show(s, s->n_sealed, tokens + s->n_sealed * KV_BLOCK, KV_BLOCK);
    settle(s, 0);
}

void kv_seq_keep_tail(kv_seq *s, const int32_t *tokens) {
    size_t tail = s->length / KV_BLOCK, n = s->length % KV_BLOCK;
    if (!s->cache || n == 0 || s->n_sealed != tail || !kv_block_writable(s->cache, s->held[tail], n)) return;
    show(s, tail, tokens + tail * KV_BLOCK, n);
}

/* ---- what is still arriving ---- */

/* Of the window parts that are held only those that the next token sees matter. */
static bool sees_window(const kv_seq *s, size_t i) { return s->taken[i] && i >= kv_window_block(s->layout, s->length); }

typedef struct arriving {
    kv_seq *s;
    int layer;
    _Atomic int least; /* the layer below which all blocks may be read */
} arriving;

static void check_block(void *context, int64_t i, int thread) {
    (void)thread;
    arriving *a = context;
    const int layers = kv_block_check(a->s->cache, a->s->held[i], sees_window(a->s, (size_t)i), a->layer);
    int least = a->least;
    while (layers < least && !atomic_compare_exchange_weak(&a->least, &least, layers)) {}
}

bool kv_seq_wait(kv_seq *s, int layer, pool *p, err *e) {
    if (!s->arriving) return true;
    arriving a = {.s = s, .layer = layer, .least = KV_ALL};
    /* Others may compute while this waits for the disk, the last blocks come last. */
    for (size_t i = s->n_blocks; i-- > 0;) kv_block_await(s->cache, s->held[i], sees_window(s, i), layer);
    if (p) pool_run(p, (int64_t)s->n_blocks, check_block, &a);
    else
        for (size_t i = 0; i < s->n_blocks; i++) check_block(&a, (int64_t)i, 0);
    if (a.least == KV_LOST) return is_damaged(e);
    s->arriving = a.least < KV_ALL;
    return true;
}

bool kv_seq_mend(kv_seq *s) {
    size_t i = 0;
    while (i < s->n_blocks && kv_block_check(s->cache, s->held[i], sees_window(s, i), KV_LOST) != KV_LOST) i++;
    if (i == s->n_blocks) return false;
    cut(s, i * KV_BLOCK);
    settle(s, 0);
    return true;
}

/* ---- finding what is known ---- */

/* Puts b, which is held, at place n_sealed. In place of the sequence's own tail only with its window part: without, b is dropped. */
static bool replace(kv_seq *s, kv_block *b) {
    size_t i = s->n_sealed;
    bool own = i < s->n_blocks, taken = own && kv_block_take_window(s->cache, b, false);
    if (own && !taken) {
        kv_block_drop(s->cache, b);
        return false;
    }
    if (own) drop_block(s, i);
    else s->n_blocks++;
    set_block(s, i, b, taken);
    return true;
}

/* Block n_sealed becomes this one, which is full and named. */
static bool attach(kv_seq *s, kv_block *b) {
    if (!replace(s, b)) return false;
    s->n_sealed++;
    if (s->length < s->n_sealed * KV_BLOCK) s->length = s->n_sealed * KV_BLOCK;
    return true;
}

/* From disk: names of all that is missing, then as many blocks from the start as there are. */
static size_t attach_loaded(kv_seq *s, const int32_t *tokens, size_t n_full, const kv_source *from) {
    size_t first = s->n_sealed, n = n_full - first, got = 0;
    kv_name *names = mem_alloc(n + 1, sizeof *names, NULL);
    kv_block **blocks = mem_zalloc(n, sizeof *blocks, NULL);
    if (names && blocks) {
        names[0] = *last_name(s);
        for (size_t i = 0; i < n; i++) names[i + 1] = kv_name_next(&s->chain, &names[i], tokens + (first + i) * KV_BLOCK, KV_BLOCK);
        got = from->load(from->user, names, first, n, blocks);
        /* In place of the sequence's own tail a block must have its window part. */
        if (got && s->layout->window && first < s->n_blocks) from->load_windows(from->user, names, first, 1, blocks);
        bool fits = true;
        for (size_t i = 0; i < got; i++) {
            kv_block *b = kv_cache_insert(s->cache, blocks[i], &names[i + 1], &names[i], (uint32_t)(first + i), KV_BLOCK);
            if (fits) fits = attach(s, b);
            else kv_block_drop(s->cache, b);
        }
        if (!fits) got = 0;
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
    if (replace(s, b)) s->length = at + matched;
}

/* Whether window part i is there, or can be. */
static bool is_at_hand(const kv_seq *s, size_t i, const kv_source *from) {
    const kv_name *parent = i ? &s->held[i - 1]->name : &s->chain.root;
    return s->taken[i] || kv_block_has_window(s->cache, s->held[i]) || (i < s->n_sealed && from->has_window(from->user, &s->held[i]->name, parent, i));
}

/* Reads window parts [first, n_sealed) that are not in memory. */
static void load_windows(kv_seq *s, size_t first, const kv_source *from) {
    size_t n = s->n_sealed - first;
    kv_name *names = n ? mem_alloc(n + 1, sizeof *names, NULL) : NULL;
    if (!names) return;
    names[0] = first ? s->held[first - 1]->name : s->chain.root;
    for (size_t i = 0; i < n; i++) names[i + 1] = s->held[first + i]->name;
    from->load_windows(from->user, names, first, n, s->held + first);
    mem_free(names);
}

/* Goes back to the last place, but not below `least`, whose windows are in memory or on disk, and reads what is missing of them. */
static void refill(kv_seq *s, size_t least, const kv_source *from) {
    bool loaded = false;
    while (s->length > least) {
        size_t low = kv_window_block(s->layout, s->length), i = (s->length + KV_BLOCK - 1) / KV_BLOCK;
        while (i > low && is_at_hand(s, i - 1, from)) i--;
        if (i > low) {
            cut(s, (i - 1) * KV_BLOCK > least ? (i - 1) * KV_BLOCK : least);
            loaded = false;
            continue;
        }
        if (loaded) return;
        load_windows(s, kv_window_kept(s->layout, s->length), from);
        loaded = true; /* and look again: one may have been damaged */
    }
}

size_t kv_seq_match(kv_seq *s, const int32_t *tokens, size_t n, const kv_source *from, size_t *loaded) {
    size_t before = s->length, n_full = n / KV_BLOCK;
    *loaded = 0;
    if (!s->cache || n <= before || s->n_sealed != before / KV_BLOCK || !make_list(s, n_full + 1, NULL)) return 0;
    bool hot = true;
    while (hot && s->n_sealed < n_full) {
        kv_name name = kv_name_next(&s->chain, last_name(s), tokens + s->n_sealed * KV_BLOCK, KV_BLOCK);
        kv_block *b = kv_cache_find(s->cache, &name);
        hot = b && attach(s, b);
    }
    if (!hot && from) *loaded = attach_loaded(s, tokens, n_full, from);
    attach_part(s, tokens, n);
    s->found = s->length; /* also where windows are missing: those who part there will want them */
    s->asked = n;
    if (from && s->layout->window) refill(s, before, from);
    settle(s, before);
    return s->length - before;
}

size_t kv_seq_find(kv_seq *s, const int32_t *tokens, size_t n, const kv_source *from) {
    size_t before = s->length, loaded;
    if (!s->cache || n <= before || s->n_sealed != before / KV_BLOCK) return 0;
    size_t found = kv_seq_match(s, tokens, n, from, &loaded);
    kv_cache_count(s->cache, n - before, found, loaded * KV_BLOCK < found ? loaded * KV_BLOCK : found);
    return found;
}
