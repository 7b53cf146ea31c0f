/* load.c: blocks and window parts from disk. */
#include "base/clock.h"
#include "store/blockfile.h"
#include "store/store_inner.h"

typedef struct loading {
    store *s;
    const kv_name *names;
    size_t first;
    kv_block **out;          /* blocks to be made ... */
    kv_block *const *blocks; /* ... or those that get their window parts */
} loading;

static shelf_key key_at(const loading *x, size_t i) { return shelf_key_make(&x->names[i + 1], &x->names[i], (uint32_t)(x->first + i)); }

/* A file that could not be used: it is forgotten, and set aside when it is damaged. */
static void set_aside(store *s, const shelf_key *key, bool window, const char *path, const err *why) {
    if (why->code == HEARTH_MEMORY) return;
    shelf_forget(s->shelf, key, window);
    if (why->code != HEARTH_FORMAT || !shelf_set_aside(s->shelf, path, why->text, NULL)) return;
    store_warn(s, "%s was set aside and is computed again: %s", path, why->text);
    pthread_mutex_lock(&s->lock);
    s->stats.damaged++;
    pthread_mutex_unlock(&s->lock);
}

static void load_one(void *context, int64_t at, int thread) {
    (void)thread;
    loading *x = context;
    store *s = x->s;
    err why = {0};
    const size_t i = (size_t)at;
    const shelf_key key = key_at(x, i);
    const bool window = x->blocks != NULL;
    if (window && kv_block_has_window(s->cache, x->blocks[i])) return;
    tensor_header h = {0};
    char *path = shelf_path(s->shelf, &key, window ? (unsigned)kv_window_reach(s->layout) : 0, &why);
    bool ok = path && blockfile_header(&h, s->layout, s->model, &key, &x->names[i], window, &why);
    if (ok && window) ok = blockfile_read_window(path, &h, s->cache, x->blocks[i], &why);
    else if (ok) ok = (x->out[i] = blockfile_read(path, &h, s->cache, s->layout, &why)) != NULL;
    buf_free(&h.text);
    if (ok && !window) {
        kv_cache_set_durable(s->cache, x->out[i]);
        shelf_used(s->shelf, &key);
    } else if (!ok && path) {
        set_aside(s, &key, window, path, &why);
    }
    mem_free(path);
}

static void load_all(const store_loader *loader, loading *x, size_t n) {
    if (loader->pool) pool_run(loader->pool, (int64_t)n, load_one, x);
    else
        for (size_t i = 0; i < n; i++) load_one(x, (int64_t)i, 0);
}

static size_t load_blocks(void *user, const kv_name *names, size_t first, size_t n, kv_block **out) {
    const store_loader *loader = user;
    store *s = loader->store;
    loading x = {.s = s, .names = names, .first = first, .out = out};
    size_t there = 0, got = 0;
    while (there < n) {
        const shelf_key key = key_at(&x, there);
        if (!shelf_has(s->shelf, &key)) break;
        there++;
    }
    double start = clock_seconds();
    if (there > 0) load_all(loader, &x, there);
    while (got < there && out[got]) got++;
    for (size_t i = got; i < there; i++)
        if (out[i]) kv_block_drop(s->cache, out[i]);
    double took = clock_seconds() - start;
    pthread_mutex_lock(&s->lock);
    s->stats.loads += got > 0;
    s->stats.misses += got == 0;
    if (took > s->stats.longest_load) s->stats.longest_load = took;
    s->stats.loaded_blocks += got;
    s->stats.loaded_bytes += got * kv_rest_bytes(s->layout);
    s->stats.load_seconds += took;
    pthread_mutex_unlock(&s->lock);
    return got;
}

static bool has_window(void *user, const kv_name *name, const kv_name *parent, size_t index) {
    const store_loader *loader = user;
    const shelf_key key = shelf_key_make(name, parent, (uint32_t)index);
    return shelf_has_window(loader->store->shelf, &key, (unsigned)kv_window_reach(loader->store->layout));
}

static void load_windows(void *user, const kv_name *names, size_t first, size_t n, kv_block *const *blocks) {
    const store_loader *loader = user;
    store *s = loader->store;
    size_t missing = 0;
    for (size_t i = 0; i < n; i++) missing += !kv_block_has_window(s->cache, blocks[i]);
    if (!missing) return;
    loading x = {.s = s, .names = names, .first = first, .blocks = blocks};
    double start = clock_seconds();
    load_all(loader, &x, n);
    double took = clock_seconds() - start;
    pthread_mutex_lock(&s->lock);
    if (took > s->stats.longest_load) s->stats.longest_load = took;
    s->stats.loaded_bytes += missing * s->layout->window_bytes;
    s->stats.load_seconds += took;
    pthread_mutex_unlock(&s->lock);
}

kv_source store_source(store_loader *loader) {
    return (kv_source){.user = loader, .load = load_blocks, .has_window = has_window, .load_windows = load_windows};
}
