/* load.c: blocks and window parts from disk. All files are opened before the first is looked at, so that the disk has all of them to bring; then all but the
 * layers is checked, and these arrive later (arrive.c). */
#include "base/clock.h"
#include "store/store_inner.h"

typedef struct loading {
    store *s;
    const kv_name *names;
    size_t first, n;
    kv_block *const *blocks; /* those that get their window parts; NULL: they are to be made */
    arrival **files;         /* of those that could be opened, held */
} loading;

static shelf_key key_at(const loading *x, size_t i) { return shelf_key_make(&x->names[i + 1], &x->names[i], (uint32_t)(x->first + i)); }

static void open_one(const loading *x, size_t i) {
    store *s = x->s;
    err why = {0};
    const shelf_key key = key_at(x, i);
    const bool window = x->blocks != NULL;
    if (window && kv_block_has_window(s->cache, x->blocks[i])) return;
    char *path = shelf_path(s->shelf, &key, window ? (unsigned)kv_window_reach(s->layout) : 0, &why);
    if (path) x->files[i] = arrive_open(s, path, &key, window, &why);
    if (!x->files[i]) arrive_set_aside(s, &key, window, NULL, &why);
    mem_free(path);
}

/* The file, if it is what it should be; else it goes. */
static arrival *check_one(const loading *x, size_t i) {
    arrival *a = x->files[i];
    err why = {0};
    if (!a || arrive_check(a, &x->names[i], &why)) return a;
    arrive_set_aside(x->s, &a->key, a->window, &a->map.id, &why);
    a->owner.release(&a->owner);
    return x->files[i] = NULL;
}

static kv_block *make_block(const loading *x, size_t i) {
    store *s = x->s;
    arrival *a = check_one(x, i);
    kv_block *b = a ? kv_block_mapped(s->cache, s->layout, a->map.data + a->data_at, &a->owner, NULL) : NULL;
    if (!b) return NULL;
    atomic_fetch_add(&a->refs, 1); /* the block's */
    kv_cache_set_durable(s->cache, b);
    shelf_used(s->shelf, &a->key);
    return b;
}

static bool give_window(const loading *x, size_t i) {
    store *s = x->s;
    arrival *a = check_one(x, i);
    if (!a) return false;
    atomic_fetch_add(&a->refs, 1); /* the block's; it may have got one meanwhile, and releases this */
    kv_block_put_window(s->cache, x->blocks[i], a->map.data + a->data_at, &a->owner);
    return true;
}

/* Opens all files; false: there is no memory for the list. */
static bool open_all(loading *x) {
    x->files = mem_zalloc(x->n, sizeof(arrival *), NULL);
    for (size_t i = 0; x->files && i < x->n; i++) open_one(x, i);
    return x->files != NULL;
}

/* Has the layers of the first n files read, now that the disk has brought all headers, and lets go of all. */
static void begin(loading *x, size_t n) {
    for (size_t i = 0; i < x->n; i++) {
        arrival *a = x->files[i];
        if (a && i < n) arrive_begin(x->s, a);
        if (a) a->owner.release(&a->owner);
    }
    mem_free(x->files);
}

static size_t load_blocks(void *user, const kv_name *names, size_t first, size_t n, kv_block **out) {
    store *s = user;
    loading x = {.s = s, .names = names, .first = first};
    size_t got = 0;
    while (x.n < n) {
        const shelf_key key = key_at(&x, x.n);
        if (!shelf_has(s->shelf, &key)) break;
        x.n++;
    }
    const double start = clock_seconds();
    if (x.n > 0 && open_all(&x)) {
        while (got < x.n && (out[got] = make_block(&x, got)) != NULL) got++;
        begin(&x, got);
    }
    pthread_mutex_lock(&s->lock);
    s->stats.loads += got > 0;
    s->stats.misses += got == 0;
    s->stats.loaded_blocks += got;
    s->stats.loaded_bytes += got * kv_rest_bytes(s->layout);
    s->stats.load_seconds += clock_seconds() - start;
    pthread_mutex_unlock(&s->lock);
    return got;
}

static bool has_window(void *user, const kv_name *name, const kv_name *parent, size_t index) {
    store *s = user;
    const shelf_key key = shelf_key_make(name, parent, (uint32_t)index);
    return shelf_has_window(s->shelf, &key, (unsigned)kv_window_reach(s->layout));
}

static void load_windows(void *user, const kv_name *names, size_t first, size_t n, kv_block *const *blocks) {
    store *s = user;
    size_t got = 0;
    loading x = {.s = s, .names = names, .first = first, .n = n, .blocks = blocks};
    const double start = clock_seconds();
    if (open_all(&x)) {
        for (size_t i = 0; i < n; i++) got += give_window(&x, i);
        begin(&x, n);
    }
    pthread_mutex_lock(&s->lock);
    s->stats.loaded_bytes += got * s->layout->window_bytes;
    s->stats.load_seconds += clock_seconds() - start;
    pthread_mutex_unlock(&s->lock);
}

kv_source store_source(store *s) { return (kv_source){.user = s, .load = load_blocks, .has_window = has_window, .load_windows = load_windows}; }
