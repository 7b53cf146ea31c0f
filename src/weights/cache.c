/* cache.c: the table of matrices, and the life of a packed form: asked for, admitted under the budget, made once, published, held, evicted. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "weights/inner.h"

static size_t whole_pages(size_t n) { return (n + mem_page() - 1) / mem_page() * mem_page(); }

weights_options weights_defaults(void) {
    return (weights_options){.memory = WEIGHTS_AUTO, .preload = WEIGHTS_PRELOAD_ALL, .frequency = true, .window = 60, .prefetch = -1, .prefetch_async = true,
                             .persist = true, .cache_bytes = WEIGHTS_AUTO, .persist_least = 32u << 20, .move = true};
}

void cache_warn(weights *w, const char *format, ...) {
    if (!w->o.warn) return;
    char text[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    w->o.warn(w->o.warn_user, text);
}

/* ---- open, add, start, close ---- */

weights *weights_open(const gguf *g, const kernels *k, pool *p, const weights_options *o, err *e) {
    static atomic_int serial;
    weights *w = mem_aligned(1, sizeof *w, e);
    if (!w) return NULL;
    *w = (weights){.file = g, .kern = k, .pool = p, .o = *o, .prefetch_from = -1, .serial = atomic_fetch_add(&serial, 1) + 1};
    if (!w->o.now) w->o.now = clock_ns;
    if (!(w->o.window > 0)) w->o.window = 60;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->made, NULL);
    pthread_cond_init(&w->work, NULL);
    snprintf(w->state, sizeof w->state, "packed weights are not kept on disk");
    err why = {0};
    if (o->persist && !(w->folder = folder_path(o->cache_dir, &why))) {
        if (why.code == HEARTH_MEMORY) {
            if (e) *e = why;
            weights_close(w);
            return NULL;
        }
        cache_warn(w, "%s", why.text);
    }
    return w;
}

static bool grow(weights *w, int n, err *e) {
    if (w->n + n <= w->cap) return true;
    int cap = w->cap * 2 > w->n + n ? w->cap * 2 : w->n + n + 64;
    entry *more = mem_aligned((size_t)cap, sizeof *more, e);
    if (!more) return false;
    /* Nothing points at entries before start. */
    if (w->n) memcpy((void *)more, (const void *)w->entries, (size_t)w->n * sizeof *more);
    mem_free(w->entries);
    w->entries = more;
    w->cap = cap;
    return true;
}

static char *keep_name(weights *w, const char *name, err *e) {
    char **names = mem_realloc(w->names, (size_t)w->n_names + 1, sizeof *names, e);
    if (!names) return NULL;
    w->names = names;
    char *copy = mem_strndup(name, strlen(name), e);
    if (copy) w->names[w->n_names++] = copy;
    return copy;
}

int weights_add(weights *w, const char *name, int n, size_t stride, int when, const kern_weight *first, bool from_file, err *e) {
    char *copy = keep_name(w, name, e);
    if (!copy || !grow(w, n, e)) return -1;
    const kern_matmul *m = w->kern->matmul(first->type);
    if (!m) m = kernels_matmul(w->kern, first->type);
    bool packs = m && m->pack && m->packed_bytes && m->rows_packed;
    for (int i = 0; i < n; i++) {
        entry *x = &w->entries[w->n + i];
        *x = (entry){.name = copy, .slice = n > 1 ? i : -1, .stage = when, .from_file = from_file, .product = packs ? m : NULL};
        x->raw.mat = *first;
        x->raw.mat.data = (const char *)first->data + stride * (size_t)i;
        x->raw.mat.packed = NULL;
        x->packed.mat = x->raw.mat;
        if (!packs) continue;
        x->exact = m->packed_bytes(first->rows, first->cols);
        x->bytes = whole_pages(x->exact);
    }
    if (when >= w->n_stages) w->n_stages = when + 1;
    w->n += n;
    return w->n - n;
}

static bool make_tables(weights *w, err *e) {
    w->stages = mem_zalloc((size_t)w->n_stages, sizeof *w->stages, e);
    w->ranks = mem_alloc((size_t)w->n, sizeof *w->ranks, e);
    if (!w->stages || !w->ranks) return false;
    for (int i = 0; i < w->n; i++) {
        entry *x = &w->entries[i];
        x->packed.owner = x;
        x->offset = w->arena_bytes;
        w->arena_bytes += x->bytes;
        if (x->product) w->stages[x->stage].n++;
    }
    w->total = w->arena_bytes;
    for (int s = 0; s < w->n_stages; s++) {
        stage *at = &w->stages[s];
        at->next = (s + 1) % w->n_stages;
        at->ids = mem_alloc((size_t)at->n, sizeof *at->ids, e);
        if (!at->ids) return false;
        at->n = 0;
    }
    for (int i = 0; i < w->n; i++) {
        stage *at = &w->stages[w->entries[i].stage];
        if (w->entries[i].product) at->ids[at->n++] = i, w->unready++;
    }
    return true;
}

static void start_threads(weights *w) {
    /* Without them the work is left undone or done by the caller; nothing depends on them. */
    if (w->ahead > 0 && w->o.prefetch_async) w->prefetcher_runs = pthread_create(&w->prefetcher, NULL, prefetch_main, w) == 0;
    if (w->folder) w->keeper_runs = pthread_create(&w->keeper, NULL, keeper_main, w) == 0;
}

bool weights_start(weights *w, err *e) {
    if (!make_tables(w, e)) return false;
    w->budget_auto = w->o.memory == WEIGHTS_AUTO;
    w->budget = w->budget_auto ? spare_memory() : w->o.memory;
    uint64_t now = cache_now(w);
    w->minute = (ring_clock){.slot_ns = 60000000000u / RING};
    w->window = (ring_clock){.slot_ns = (uint64_t)(w->o.window * 1e9 / RING) + 1};
    w->minute.turn = now / w->minute.slot_ns;
    w->window.turn = now / w->window.slot_ns;
    if (w->total == 0) {
        /* Nothing can be packed, so nothing is to be kept. */
        mem_free(w->folder);
        w->folder = NULL;
        return true;
    }
    w->arena = mem_reserve(w->arena_bytes, NULL);
    if (!w->arena) {
        w->budget = 0;
        cache_warn(w, "there is no address space for packed weights, so they are used as they lie in the model file, which is slower");
    }
    w->limited = w->total > w->budget;
    if (w->folder) persist_find(w);
    w->ahead = w->o.prefetch >= 0 ? w->o.prefetch : w->pack.map.data || !w->limited ? 1 : 0;
    if (w->ahead >= w->n_stages) w->ahead = w->n_stages - 1;
    plan_make(w);
    make_preload(w);
    atomic_store(&w->next_roll, now + w->window.slot_ns);
    if (w->folder && !w->pack.map.data && w->o.preload != WEIGHTS_PRELOAD_NONE) w->persist_wanted = true;
    w->records_wanted = w->folder && w->pack.map.data;
    start_threads(w);
    return true;
}

void weights_close(weights *w) {
    if (!w) return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_broadcast(&w->work);
    pthread_mutex_unlock(&w->lock);
    if (w->prefetcher_runs) pthread_join(w->prefetcher, NULL);
    if (w->keeper_runs) pthread_join(w->keeper, NULL);
    packfile_close(&w->pack);
    mem_reserve_free(w->arena, w->arena_bytes);
    for (int i = 0; i < w->n_stages && w->stages; i++) mem_free(w->stages[i].ids);
    for (int i = 0; i < w->n_names; i++) mem_free(w->names[i]);
    mem_free(w->stages);
    mem_free(w->names);
    mem_free(w->entries);
    mem_free(w->ranks);
    mem_free(w->folder);
    mem_free(w->pack_path);
    pthread_cond_destroy(&w->made);
    pthread_cond_destroy(&w->work);
    pthread_mutex_destroy(&w->lock);
    mem_free(w);
}

/* ---- ready forms ---- */

bool cache_ready(const entry *e) { return (atomic_load(&((entry *)e)->state) & STATE_READY) != 0; }

static uint32_t uses_of(entry *e) { return (uint32_t)(atomic_load_explicit(&e->state, memory_order_relaxed) >> 32); }

void loose_unlink(weights *w, entry *e) {
    if (!e->linked) return;
    *(e->before ? &e->before->after : &w->loose_first) = e->after;
    *(e->after ? &e->after->before : &w->loose_last) = e->before;
    e->before = e->after = NULL;
    e->linked = false;
}

void loose_link(weights *w, entry *e) {
    if (e->linked) return;
    e->before = w->loose_last;
    *(w->loose_last ? &w->loose_last->after : &w->loose_first) = e;
    w->loose_last = e;
    e->linked = true;
}

void cache_publish(weights *w, entry *e, bool in_map, uint64_t ns) {
    e->in_map = in_map;
    e->makes++;
    e->make_ns += ns;
    e->making = MAKING_NOT;
    e->uses_made = uses_of(e);
    if (!e->keep) loose_link(w, e);
    atomic_fetch_or_explicit(&e->state, STATE_READY, memory_order_release);
    atomic_fetch_sub(&w->unready, 1);
    pthread_cond_broadcast(&w->made);
}

/* Takes the ready form away unless someone holds it. */
bool cache_evict(weights *w, entry *e) {
    uint_fast64_t s = atomic_load(&e->state);
    do {
        if (!(s & STATE_READY) || (s & STATE_REFS)) return false;
    } while (!atomic_compare_exchange_weak_explicit(&e->state, &s, s & ~STATE_READY, memory_order_acq_rel, memory_order_relaxed));
    loose_unlink(w, e);
    atomic_fetch_add(&w->unready, 1);
    if (e->in_map) file_map_drop(e->packed.mat.packed, e->exact);
    else mem_reserve_drop(w->arena, e->offset, e->bytes);
    e->packed.mat.packed = NULL;
    e->evictions++;
    w->used -= e->bytes;
    return true;
}

/* ---- the budget ---- */

static bool fits(const weights *w, size_t bytes) { return bytes <= w->budget && w->used <= w->budget - bytes; }

static void evict_oldest_uses(weights *w, size_t bytes) {
    while (!fits(w, bytes)) {
        entry *oldest = NULL;
        for (int i = 0; i < w->n; i++) {
            entry *x = &w->entries[i];
            uint64_t s = x->product ? atomic_load(&x->state) : 0;
            if (!(s & STATE_READY) || (s & STATE_REFS)) continue;
            if (!oldest || atomic_load(&x->stamp) < atomic_load(&oldest->stamp)) oldest = x;
        }
        if (!oldest) return;
        cache_evict(w, oldest); /* may fail when it was just asked for; then it is no longer the oldest */
    }
}

/* Forms that the plan does not want go first-made first. Those that were made ahead and have not been used yet stay, unless force. */
static void evict_loose(weights *w, size_t bytes, bool force) {
    for (entry *x = w->loose_first, *next; x && !fits(w, bytes); x = next) {
        next = x->after;
        if (force || uses_of(x) != x->uses_made) cache_evict(w, x);
    }
}

bool cache_make_room(weights *w, size_t bytes) {
    evict_loose(w, bytes, true);
    for (int i = w->n - 1; i >= 0 && !fits(w, bytes); i--)
        if (w->entries[i].product) cache_evict(w, &w->entries[i]);
    return fits(w, bytes);
}

/* Whether e may be made now; if so its bytes are taken from the budget. */
bool cache_admit(weights *w, entry *e, enum admit_why why) {
    if (e->bytes > w->budget) return false;
    if (!fits(w, e->bytes)) {
        bool cheap = e->file && e->checked;
        if (why == ADMIT_PIN) cache_make_room(w, e->bytes);
        else if (!w->o.frequency) evict_oldest_uses(w, e->bytes);
        else if (why == ADMIT_PREFETCH) evict_loose(w, e->bytes, false);
        else if (e->keep) evict_loose(w, e->bytes, true);
        else if (cheap) evict_loose(w, e->bytes, false);
        if (!fits(w, e->bytes)) return false;
    }
    w->used += e->bytes;
    return true;
}

/* ---- requests ---- */

static inline const kern_weight *take_raw(weights *w, entry *e, bool count) {
    if (count) e->misses++;
    pthread_mutex_unlock(&w->lock);
    return &e->raw.mat;
}

/* Not ready at the first look. The miss is counted unless count is false (pinning). */
static const kern_weight *acquire_slowly(weights *w, entry *e, enum admit_why why, bool count) {
    pthread_mutex_lock(&w->lock);
    bool waited = false;
    while (e->making == MAKING_FRONT) {
        waited = true;
        pthread_cond_wait(&w->made, &w->lock);
    }
    w->waits += waited;
    bool missed = waited;
    if (e->making == MAKING_BACK) return take_raw(w, e, count); /* the raw form is there at once and gives the same bits */
    uint64_t s = atomic_fetch_add_explicit(&e->state, 1, memory_order_acquire);
    if (!(s & STATE_READY)) {
        missed = true;
        atomic_fetch_sub_explicit(&e->state, 1, memory_order_relaxed);
        if (!cache_admit(w, e, why)) return take_raw(w, e, count);
        e->making = MAKING_FRONT;
        pthread_mutex_unlock(&w->lock);
        make_entry(w, e, w->pool); /* publishes it */
        pthread_mutex_lock(&w->lock);
        /* Between publishing and here it may have been evicted again. */
        s = atomic_fetch_add_explicit(&e->state, 1, memory_order_acquire);
        if (!(s & STATE_READY)) {
            atomic_fetch_sub_explicit(&e->state, 1, memory_order_relaxed);
            return take_raw(w, e, count);
        }
    }
    if (count && missed) e->misses++;
    pthread_mutex_unlock(&w->lock);
    return &e->packed.mat;
}

const kern_weight *weights_acquire(weights *w, int id) {
    entry *e = &w->entries[id];
    if (!e->product) return &e->raw.mat;
    uint64_t s = atomic_fetch_add_explicit(&e->state, STATE_USE + 1, memory_order_acquire);
    if (!w->o.frequency) atomic_store_explicit(&e->stamp, atomic_fetch_add_explicit(&w->tick, 1, memory_order_relaxed), memory_order_relaxed);
    if (s & STATE_READY) return &e->packed.mat;
    atomic_fetch_sub_explicit(&e->state, 1, memory_order_relaxed);
    return acquire_slowly(w, e, ADMIT_REQUEST, true);
}

void weights_release(weights *w, const kern_weight *acquired) {
    (void)w;
    entry *e = ((const view *)(const void *)acquired)->owner;
    if (e) atomic_fetch_sub_explicit(&e->state, 1, memory_order_release);
}

bool weights_peek(weights *w, int id, const char **at, size_t *bytes) {
    entry *e = &w->entries[id];
    if (!e->product) return false;
    const bool ready = atomic_fetch_add_explicit(&e->state, 1, memory_order_acquire) & STATE_READY;
    if (ready) {
        *at = e->packed.mat.packed;
        *bytes = e->exact;
    }
    atomic_fetch_sub_explicit(&e->state, 1, memory_order_release);
    return ready;
}

bool weights_pin(weights *w, int id) {
    entry *e = &w->entries[id];
    if (!e->product) return true; /* raw is all there is, and it stays */
    const kern_weight *got = acquire_slowly(w, e, ADMIT_PIN, false);
    if (got != &e->packed.mat) return false;
    pthread_mutex_lock(&w->lock);
    e->pins++;
    pthread_mutex_unlock(&w->lock);
    return true;
}

void weights_unpin(weights *w, int id) {
    entry *e = &w->entries[id];
    if (!e->product) return;
    pthread_mutex_lock(&w->lock);
    bool held = e->pins > 0;
    e->pins -= held;
    pthread_mutex_unlock(&w->lock);
    if (held) weights_release(w, &e->packed.mat);
}
