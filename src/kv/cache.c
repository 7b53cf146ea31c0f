#include "kv/cache.h"

#include <pthread.h>
#include <sodium.h>

struct kv_cache {
    const kv_layout *layout;
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    kv_block **slots; /* by name */
    size_t n_slots, n_named;
    kv_block **heap;  /* those that may go, the one of least worth first; as large as slots */
    size_t n_heap;
    kv_block *passed_first, *passed_last; /* window parts that may go, the longest passed first */
    double clock;
    kv_stats stats;
};

static size_t bytes_of(const kv_layout *l) { return kv_rest_bytes(l) + KV_BLOCK * sizeof(int32_t); }

/* What a block is counted with. */
static size_t counted(const kv_layout *l, const kv_block *b) { return sizeof *b + (b->data ? bytes_of(l) : 0) + (b->window ? l->window_bytes : 0); }

kv_cache *kv_cache_new(const kv_layout *l, uint64_t budget, err *e) {
    if (sodium_init() < 0) {
        err_set(e, HEARTH_UNSUPPORTED, "the library for hashing cannot be started");
        return NULL;
    }
    kv_cache *c = mem_zalloc(1, sizeof *c, e);
    if (!c) return NULL;
    c->layout = l;
    c->n_slots = 64;
    c->slots = mem_zalloc(c->n_slots, sizeof *c->slots, e);
    c->heap = mem_alloc(c->n_slots, sizeof *c->heap, e);
    c->stats.budget = budget;
    c->stats.tree_bytes = c->stats.bytes = 2 * c->n_slots * sizeof(void *);
    if (!c->slots || !c->heap) {
        mem_free(c->slots), mem_free(c->heap), mem_free(c);
        return NULL;
    }
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->arrived, NULL);
    return c;
}

/* ---- those that may go: a heap by worth ---- */

static void heap_put(kv_cache *c, size_t at, kv_block *b) {
    c->heap[at] = b;
    b->heap_at = (uint32_t)at + 1;
}

static void heap_up(kv_cache *c, size_t at) {
    kv_block *b = c->heap[at];
    for (; at > 0 && c->heap[(at - 1) / 2]->worth > b->worth; at = (at - 1) / 2) heap_put(c, at, c->heap[(at - 1) / 2]);
    heap_put(c, at, b);
}

static void heap_down(kv_cache *c, size_t at) {
    kv_block *b = c->heap[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= c->n_heap) break;
        if (child + 1 < c->n_heap && c->heap[child + 1]->worth < c->heap[child]->worth) child++;
        if (c->heap[child]->worth >= b->worth) break;
        heap_put(c, at, c->heap[child]);
        at = child;
    }
    heap_put(c, at, b);
}

static void heap_remove(kv_cache *c, kv_block *b) {
    size_t at = b->heap_at - 1;
    b->heap_at = 0;
    kv_block *last = c->heap[--c->n_heap];
    if (last == b) return;
    heap_put(c, at, last);
    heap_up(c, at);
    heap_down(c, last->heap_at - 1);
}

/* Keeps the heap true after a change of refs, children or worth. */
static void reconsider(kv_cache *c, kv_block *b) {
    bool may_go = b->in_tree && b->data && b->refs == 0 && !b->first_child;
    if (b->heap_at) heap_remove(c, b);
    if (!may_go) return;
    heap_put(c, c->n_heap++, b);
    heap_up(c, c->n_heap - 1);
}

/* What computing the block again would cost, in blocks at the start of a text: attention makes later ones dearer. One on disk costs a read. All blocks have
 * the same size, so this is also the cost per byte. Use beyond a few times tells little. */
static void touch(kv_cache *c, kv_block *b) {
    if (b->hits < UINT16_MAX) b->hits++;
    double cost = (1 + (double)b->index * KV_BLOCK / 8192) * b->n_tokens / KV_BLOCK;
    if (b->durable) cost /= 16;
    b->worth = c->clock + cost * (b->hits < 8 ? b->hits : 8);
}

/* ---- the table and the tree ---- */

static size_t slot_of(const kv_cache *c, const kv_name *name) {
    uint64_t h;
    memcpy(&h, name, sizeof h);
    return (size_t)h & (c->n_slots - 1);
}

static kv_block *lookup(const kv_cache *c, const kv_name *name) {
    kv_block *b = c->slots[slot_of(c, name)];
    while (b && !kv_name_equal(&b->name, name)) b = b->same_slot;
    return b;
}

static bool grow(kv_cache *c) {
    size_t n = 2 * c->n_slots;
    kv_block **slots = mem_zalloc(n, sizeof *slots, NULL), **heap = slots ? mem_realloc(c->heap, n, sizeof *heap, NULL) : NULL;
    if (!heap) {
        mem_free(slots);
        return false;
    }
    c->heap = heap;
    kv_block **old = c->slots;
    size_t n_old = c->n_slots;
    c->slots = slots, c->n_slots = n;
    for (size_t i = 0; i < n_old; i++)
        for (kv_block *b = old[i], *next; b; b = next) {
            next = b->same_slot;
            size_t at = slot_of(c, &b->name);
            b->same_slot = slots[at];
            slots[at] = b;
        }
    mem_free(old);
    c->stats.tree_bytes += 2 * n_old * sizeof(void *);
    c->stats.bytes += 2 * n_old * sizeof(void *);
    return true;
}

static void link_child(kv_block *parent, kv_block *b) {
    b->parent = parent;
    b->previous = NULL;
    b->next = parent->first_child;
    if (b->next) b->next->previous = b;
    parent->first_child = b;
}

static void unlink_child(kv_block *b) {
    if (b->previous) b->previous->next = b->next;
    else b->parent->first_child = b->next;
    if (b->next) b->next->previous = b->previous;
    b->parent = b->next = b->previous = NULL;
}

static void add_to_table(kv_cache *c, kv_block *b, const kv_name *name) {
    b->name = *name;
    size_t at = slot_of(c, name);
    b->same_slot = c->slots[at];
    c->slots[at] = b;
    b->in_tree = true;
    c->n_named++;
}

/* ---- window parts ---- */

static void unlist(kv_cache *c, kv_block *b) {
    if (!b->listed) return;
    *(b->older ? &b->older->newer : &c->passed_first) = b->newer;
    *(b->newer ? &b->newer->older : &c->passed_last) = b->older;
    b->older = b->newer = NULL;
    b->listed = false;
}

static void list_passed(kv_cache *c, kv_block *b) {
    if (b->listed || b->window_refs || !b->passed || !b->window) return;
    b->older = c->passed_last;
    *(c->passed_last ? &c->passed_last->newer : &c->passed_first) = b;
    c->passed_last = b;
    b->listed = true;
}

static void free_window(kv_block *b) {
    if (b->window_owner) b->window_owner->release(b->window_owner);
    else mem_free(b->window);
    b->window = NULL;
    b->window_owner = NULL;
}

static void drop_window(kv_cache *c, kv_block *b) {
    unlist(c, b);
    free_window(b);
    c->stats.bytes -= c->layout->window_bytes;
    c->stats.window_evictions++;
}

static bool is_lost(const kv_owner *owner) { return owner && owner->layers == KV_LOST; }

/* One that is damaged is of no use to anyone else, and goes with the last who holds it. */
static bool has_window(const kv_block *b) { return b->window && !is_lost(b->window_owner); }

static bool take_window(kv_cache *c, kv_block *b) {
    if (!has_window(b) && c->layout->window_bytes) return false;
    b->window_refs++;
    unlist(c, b);
    return true;
}

/* ---- letting go ---- */

static void free_block(kv_cache *c, const kv_layout *l, kv_block *b) {
    if (c) {
        c->stats.bytes -= counted(l, b);
        unlist(c, b);
    }
    if (b->owner) b->owner->release(b->owner);
    else mem_free(b->data);
    free_window(b);
    mem_free(b);
}

/* Out of the table and the tree; a root without children goes with its last child. */
static void take_out(kv_cache *c, kv_block *b) {
    kv_block **at = &c->slots[slot_of(c, &b->name)];
    while (*at != b) at = &(*at)->same_slot;
    *at = b->same_slot;
    if (b->heap_at) heap_remove(c, b);
    kv_block *parent = b->parent;
    if (parent) unlink_child(b);
    b->in_tree = false;
    c->n_named--;
    if (b->data) c->stats.blocks--;
    c->stats.tree_bytes -= sizeof *b;
    if (parent && !parent->first_child) {
        if (parent->data) reconsider(c, parent);
        else {
            take_out(c, parent);
            free_block(c, c->layout, parent);
        }
    }
}

static void evict(kv_cache *c, kv_block *b) {
    take_out(c, b);
    free_block(c, c->layout, b);
    c->stats.evictions++;
}

static void make_room(kv_cache *c) {
    while (c->stats.bytes > c->stats.budget && c->passed_first) drop_window(c, c->passed_first);
    while (c->stats.bytes > c->stats.budget && c->n_heap) {
        kv_block *b = c->heap[0];
        if (b->worth > c->clock) c->clock = b->worth;
        evict(c, b);
    }
}

bool kv_block_take_window(kv_cache *c, kv_block *b, bool reads) {
    if (!c) return true;
    pthread_mutex_lock(&c->lock);
    bool there = take_window(c, b);
    if (there && !reads) b->passed = false;
    make_room(c);
    pthread_mutex_unlock(&c->lock);
    return there;
}

bool kv_block_has_window(kv_cache *c, kv_block *b) {
    pthread_mutex_lock(&c->lock);
    bool there = has_window(b);
    pthread_mutex_unlock(&c->lock);
    return there;
}

void kv_block_put_window(kv_cache *c, kv_block *b, const uint8_t *window, kv_owner *owner) {
    pthread_mutex_lock(&c->lock);
    if (b->window) {
        owner->release(owner);
    } else {
        b->window = (uint8_t *)window;
        b->window_owner = owner;
        b->passed = false;
        c->stats.bytes += c->layout->window_bytes;
        make_room(c);
    }
    pthread_mutex_unlock(&c->lock);
}

size_t kv_cache_clear(kv_cache *c) {
    size_t n = 0;
    pthread_mutex_lock(&c->lock);
    for (; c->n_heap; n++) evict(c, c->heap[0]);
    pthread_mutex_unlock(&c->lock);
    return n;
}

void kv_cache_free(kv_cache *c) {
    if (!c) return;
    kv_cache_clear(c);
    pthread_cond_destroy(&c->arrived);
    pthread_mutex_destroy(&c->lock);
    mem_free(c->slots);
    mem_free(c->heap);
    mem_free(c);
}

/* ---- blocks ---- */

static kv_block *new_block(kv_cache *c, const kv_layout *l, uint8_t *data, uint8_t *window, kv_owner *owner, err *e) {
    kv_block *b = mem_zalloc(1, sizeof *b, e);
    if (!b) return NULL;
    b->data = data;
    b->window = window;
    b->owner = owner;
    b->refs = 1;
    if (!c) return b;
    pthread_mutex_lock(&c->lock);
    c->stats.bytes += counted(l, b);
    c->stats.in_use++;
    make_room(c);
    pthread_mutex_unlock(&c->lock);
    return b;
}

kv_block *kv_block_new(kv_cache *c, const kv_layout *l, err *e) {
    uint8_t *data = mem_aligned(1, bytes_of(l), e), *window = data && l->window_bytes ? mem_aligned(1, l->window_bytes, e) : NULL;
    kv_block *b = data && (window || !l->window_bytes) ? new_block(c, l, data, window, NULL, e) : NULL;
    if (b) {
        b->window_refs = 1;
    } else {
        mem_free(window);
        mem_free(data);
    }
    return b;
}

kv_block *kv_block_mapped(kv_cache *c, const kv_layout *l, const uint8_t *data, kv_owner *owner, err *e) {
    return new_block(c, l, (uint8_t *)data, NULL, owner, e);
}

static void hold(kv_cache *c, kv_block *b) {
    if (b->refs++ > 0) return;
    c->stats.in_use++;
    reconsider(c, b);
}

void kv_block_hold(kv_cache *c, kv_block *b) {
    if (!c) {
        b->refs++;
        return;
    }
    pthread_mutex_lock(&c->lock);
    hold(c, b);
    pthread_mutex_unlock(&c->lock);
}

static void drop(kv_cache *c, kv_block *b) {
    if (--b->refs > 0) return;
    c->stats.in_use--;
    if (b->in_tree) reconsider(c, b);
    else free_block(c, c->layout, b);
    make_room(c);
}

void kv_block_give_window(kv_cache *c, kv_block *b, kv_leave why) {
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    b->window_refs--;
    if (why != KV_READ) b->passed = why == KV_PASSED;
    if (!b->window_refs && is_lost(b->window_owner)) drop_window(c, b);
    list_passed(c, b);
    make_room(c);
    pthread_mutex_unlock(&c->lock);
}

void kv_block_drop(kv_cache *c, kv_block *b) {
    if (!c) {
        if (--b->refs == 0) free_block(NULL, NULL, b);
        return;
    }
    pthread_mutex_lock(&c->lock);
    drop(c, b);
    pthread_mutex_unlock(&c->lock);
}

bool kv_block_writable(kv_cache *c, kv_block *b, size_t n) {
    if (b->owner || b->window_owner) return false;
    if (!c) return b->refs == 1;
    pthread_mutex_lock(&c->lock);
    bool mine = b->refs == 1 && (!b->in_tree || (b->n_tokens < KV_BLOCK && b->n_tokens <= n + 1 && !b->first_child));
    if (mine && b->in_tree) take_out(c, b);
    pthread_mutex_unlock(&c->lock);
    return mine;
}

/* The node below which blocks named from parent hang; made when it is a root that is not there yet. */
static kv_block *find_parent(kv_cache *c, const kv_name *name, bool is_root) {
    kv_block *p = lookup(c, name);
    if (p || !is_root) return p;
    if (c->n_named >= c->n_slots && !grow(c)) return NULL;
    p = mem_zalloc(1, sizeof *p, NULL);
    if (!p) return NULL;
    c->stats.bytes += sizeof *p;
    c->stats.tree_bytes += sizeof *p;
    add_to_table(c, p, name);
    return p;
}

/* A tail that the new block begins with is no longer of use. */
static void drop_shorter(kv_cache *c, const kv_block *b) {
    const int32_t *tokens = kv_block_tokens(c->layout, b);
    kv_block *s = b->next;
    for (int i = 0; s && i < KV_SIBLINGS; i++) {
        kv_block *next = s->next;
        if (s->n_tokens < b->n_tokens && s->refs == 0 && memcmp(kv_block_tokens(c->layout, s), tokens, s->n_tokens * sizeof *tokens) == 0) {
            take_out(c, s);
            free_block(c, c->layout, s);
        }
        s = next;
    }
}

kv_block *kv_cache_insert(kv_cache *c, kv_block *b, const kv_name *name, const kv_name *parent, uint32_t index, int n_tokens) {
    pthread_mutex_lock(&c->lock);
    kv_block *there = lookup(c, name);
    if (there && there != b && !has_window(there) && b->window_refs && (b->refs > 1 || there->window)) {
        b->name = *name; /* its window part is needed, and is another's too, or cannot be given on: both stay with it */
        pthread_mutex_unlock(&c->lock);
        return b;
    }
    if (there) {
        touch(c, there);
        if (there != b) {
            hold(c, there);
            if (!there->window && has_window(b) && b->refs == 1) {
                there->window = b->window, there->window_owner = b->window_owner;
                b->window = NULL, b->window_owner = NULL;
            }
            if (b->window_refs) take_window(c, there), there->passed = false;
            drop(c, b);
        }
        make_room(c);
        pthread_mutex_unlock(&c->lock);
        return there;
    }
    kv_block *p = b->in_tree ? NULL : find_parent(c, parent, index == 0);
    if (p && (c->n_named < c->n_slots || grow(c))) {
        b->index = index;
        b->n_tokens = (uint8_t)n_tokens;
        b->hits = 0;
        touch(c, b);
        add_to_table(c, b, name);
        c->stats.blocks++;
        c->stats.tree_bytes += sizeof *b;
        link_child(p, b);
        reconsider(c, p);
        drop_shorter(c, b);
    } else if (p && !p->data && !p->first_child) {
        take_out(c, p);
        free_block(c, c->layout, p);
    }
    b->name = *name;
    make_room(c); /* the tree and its tables may have grown */
    pthread_mutex_unlock(&c->lock);
    return b;
}

bool kv_block_place(kv_cache *c, const kv_block *b, kv_name *parent) {
    pthread_mutex_lock(&c->lock);
    bool is = b->in_tree && b->n_tokens == KV_BLOCK;
    if (is) *parent = b->parent->name;
    pthread_mutex_unlock(&c->lock);
    return is;
}

kv_block *kv_block_above(kv_cache *c, const kv_block *b) {
    pthread_mutex_lock(&c->lock);
    kv_block *above = b->in_tree && b->parent->data ? b->parent : NULL;
    if (above) hold(c, above);
    pthread_mutex_unlock(&c->lock);
    return above;
}

/* The last used one comes first among its siblings. */
static kv_block *found(kv_cache *c, kv_block *b) {
    if (b->parent && b->previous) {
        kv_block *p = b->parent;
        unlink_child(b);
        link_child(p, b);
    }
    touch(c, b);
    hold(c, b);
    return b;
}

kv_block *kv_cache_find(kv_cache *c, const kv_name *name) {
    pthread_mutex_lock(&c->lock);
    kv_block *b = lookup(c, name);
    if (b) b = b->data && b->n_tokens == KV_BLOCK ? found(c, b) : NULL;
    pthread_mutex_unlock(&c->lock);
    return b;
}

kv_block *kv_cache_find_part(kv_cache *c, const kv_name *parent, const int32_t *tokens, size_t n, size_t least, size_t *matched) {
    pthread_mutex_lock(&c->lock);
    kv_block *p = lookup(c, parent), *best = NULL;
    int looked = 0;
    *matched = 0;
    for (kv_block *b = p ? p->first_child : NULL; b && looked < KV_SIBLINGS; b = b->next, looked++) {
        const int32_t *have = kv_block_tokens(c->layout, b);
        size_t same = 0;
        while (same < n && same < b->n_tokens && have[same] == tokens[same]) same++;
        if (same > *matched) *matched = same, best = b;
    }
    if (best && *matched >= least) best = found(c, best);
    else best = NULL, *matched = 0;
    pthread_mutex_unlock(&c->lock);
    return best;
}

bool kv_cache_has(kv_cache *c, const kv_name *name) {
    pthread_mutex_lock(&c->lock);
    const kv_block *b = lookup(c, name);
    bool there = b && b->data;
    pthread_mutex_unlock(&c->lock);
    return there;
}

static kv_block *first_leaf(kv_block *b) {
    while (b->first_child) b = b->first_child;
    return b;
}

/* All that builds on a block and that nobody holds, leaves first; not by recursion, because conversations are long. */
static size_t forget_below(kv_cache *c, kv_block *b) {
    size_t n = 0;
    for (kv_block *at = first_leaf(b), *next; at != b; at = next) {
        next = at->next ? first_leaf(at->next) : at->parent;
        if (!at->heap_at) continue;
        evict(c, at);
        n++;
    }
    return n;
}

/* Tails that build on a block and that nobody holds. */
static size_t forget_tails(kv_cache *c, kv_block *b) {
    size_t n = 0;
    for (kv_block *tail = b->first_child, *next; tail; tail = next) {
        next = tail->next;
        if (!tail->heap_at || tail->n_tokens == KV_BLOCK) continue;
        evict(c, tail);
        n++;
    }
    return n;
}

size_t kv_cache_forget(kv_cache *c, const kv_name *name) {
    size_t n = 0;
    pthread_mutex_lock(&c->lock);
    kv_block *b = lookup(c, name);
    if (b) n += forget_below(c, b);
    for (kv_block *parent; b; b = parent, n++) {
        n += forget_tails(c, b);
        if (!b->heap_at) break;
        parent = b->parent->data ? b->parent : NULL; /* a root goes with its last child */
        evict(c, b);
    }
    pthread_mutex_unlock(&c->lock);
    return n;
}

/* ---- what is still arriving ---- */

/* Out of the tree with all that builds on it, leaves first; what somebody holds stays in memory until it is dropped. */
static void uproot(kv_cache *c, kv_block *b) {
    for (kv_block *at = first_leaf(b), *next; at; at = next) {
        next = at == b ? NULL : at->next ? first_leaf(at->next) : at->parent;
        take_out(c, at);
        if (at->refs == 0) free_block(c, c->layout, at);
    }
}

static void tell(kv_cache *c, kv_owner *owner) {
    if (owner->awaited) pthread_cond_broadcast(&c->arrived);
    owner->awaited = false;
}

static void wait_for_news(kv_cache *c, kv_owner *owner) {
    owner->awaited = true;
    pthread_cond_wait(&c->arrived, &c->lock);
}

void kv_cache_come(kv_cache *c, kv_owner *owner, int layers) {
    pthread_mutex_lock(&c->lock);
    owner->come = layers;
    tell(c, owner);
    pthread_mutex_unlock(&c->lock);
}

static bool is_ready(const kv_owner *owner, int layer) { return !owner || owner->layers > layer || owner->layers == KV_LOST; }

static void await(kv_cache *c, kv_owner *owner, int layer) {
    if (is_ready(owner, layer) || owner->come > layer) return;
    pthread_mutex_lock(&c->lock);
    while (!is_ready(owner, layer) && owner->come <= layer) wait_for_news(c, owner);
    pthread_mutex_unlock(&c->lock);
}

void kv_block_await(kv_cache *c, const kv_block *b, bool window, int layer) {
    await(c, b->owner, layer);
    if (window) await(c, b->window_owner, layer);
}

/* Under the lock. */
static void lose(kv_cache *c, kv_block *b, const kv_owner *owner) {
    if (owner == b->owner && b->in_tree) uproot(c, b);
    if (owner == b->window_owner && !b->window_refs) drop_window(c, b);
}

static int check(kv_cache *c, kv_block *b, kv_owner *owner, int layer) {
    if (!owner) return KV_ALL;
    if (is_ready(owner, layer)) return owner->layers;
    pthread_mutex_lock(&c->lock);
    while (!is_ready(owner, layer)) {
        if (owner->checking || owner->come <= owner->layers) {
            wait_for_news(c, owner);
            continue;
        }
        owner->checking = true;
        pthread_mutex_unlock(&c->lock);
        const int next = owner->check(owner);
        pthread_mutex_lock(&c->lock);
        owner->checking = false;
        owner->layers = next;
        if (next == KV_LOST) lose(c, b, owner);
        tell(c, owner);
    }
    const int layers = owner->layers;
    pthread_mutex_unlock(&c->lock);
    return layers;
}

int kv_block_check(kv_cache *c, kv_block *b, bool window, int layer) {
    const int block = check(c, b, b->owner, layer), part = window && block != KV_LOST ? check(c, b, b->window_owner, layer) : KV_ALL;
    return block < part ? block : part;
}

void kv_cache_set_durable(kv_cache *c, kv_block *b) {
    pthread_mutex_lock(&c->lock);
    b->durable = true;
    pthread_mutex_unlock(&c->lock);
}

bool kv_cache_durable(kv_cache *c, const kv_block *b) {
    pthread_mutex_lock(&c->lock);
    bool is = b->durable;
    pthread_mutex_unlock(&c->lock);
    return is;
}

kv_stats kv_cache_stats(kv_cache *c) {
    pthread_mutex_lock(&c->lock);
    kv_stats s = c->stats;
    pthread_mutex_unlock(&c->lock);
    return s;
}

void kv_cache_count(kv_cache *c, size_t asked, size_t n_found, size_t loaded) {
    pthread_mutex_lock(&c->lock);
    c->stats.lookups++;
    c->stats.hits += n_found > 0;
    c->stats.hot_hits += n_found > loaded;
    c->stats.tokens_asked += asked;
    c->stats.tokens_found += n_found;
    c->stats.tokens_loaded += loaded;
    pthread_mutex_unlock(&c->lock);
}
