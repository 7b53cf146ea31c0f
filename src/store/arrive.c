/* arrive.c: what was mapped comes from the disk layer after layer, while who asked for it computes the first ones. One thread reads: it takes the files in
 * turn, a layer of each, so that all of a prompt (and of several prompts) get as far together; the disk is asked ahead for more than a layer of each file at a
 * time, so that it need not jump much. What nobody wants any more is not read. Checksums are compared by who needs a layer first, shortly before it is used:
 * then its bytes are in the processor's caches. A layer that is damaged ends the whole file: it is set aside. */
#include "base/clock.h"
#include "store/store_inner.h"

enum { FIRST_AHEAD = 128 << 10, MOST_AHEAD = 1 << 20 }; /* bytes */

static void release(kv_owner *owner) {
    arrival *a = (arrival *)owner;
    if (atomic_fetch_sub(&a->refs, 1) > 1) return;
    file_map_close(&a->map);
    mem_free(a);
}

/* Whether the path still names that file: it may have been computed and written again since. */
static bool is_file(const char *path, const file_id *id) {
    file_id now;
    bool there = false;
    return !id || (file_look(path, &there, &now, NULL) && there && now.device == id->device && now.inode == id->inode);
}

void arrive_set_aside(store *s, const shelf_key *key, bool window, const file_id *id, const err *why) {
    if (why->code == HEARTH_MEMORY) return;
    char *path = shelf_path(s->shelf, key, window ? (unsigned)kv_window_reach(s->layout) : 0, NULL);
    const bool still = path && is_file(path, id);
    if (still) shelf_forget(s->shelf, key, window);
    if (still && why->code == HEARTH_FORMAT && shelf_set_aside(s->shelf, path, why->text, NULL)) {
        store_warn(s, "%s was set aside and is computed again: %s", path, why->text);
        pthread_mutex_lock(&s->lock);
        s->stats.damaged++;
        pthread_mutex_unlock(&s->lock);
    }
    mem_free(path);
}

static int check_layer(kv_owner *owner) {
    arrival *a = (arrival *)owner;
    store *s = a->store;
    const double start = clock_seconds();
    err why = {0};
    const bool unread = owner->come == KV_ALL && a->unreadable && a->layer.place >= a->fetch.place;
    bool ok = unread ? err_set(&why, HEARTH_IO, "layer %d cannot be read", a->layer.layer)
                     : blockfile_check_layer(a->map.data + a->data_at, (const char *)a->map.data + a->sums_at, &a->layer, &why);
    bool more = false;
    if (ok) more = blockfile_next(s->layout, a->window, &a->layer);
    else arrive_set_aside(s, &a->key, a->window, &a->map.id, &why);
    pthread_mutex_lock(&s->lock);
    s->stats.load_seconds += clock_seconds() - start;
    if (!ok && !a->window) s->stats.loaded_blocks--;
    if (!ok) s->stats.loaded_bytes -= a->window ? s->layout->window_bytes : kv_rest_bytes(s->layout);
    pthread_mutex_unlock(&s->lock);
    return !ok ? KV_LOST : more ? a->layer.layer : KV_ALL;
}

/* Asks the disk for the next part of a file: for little at first, so that the first layers of all files come soon, then for more at a time. */
static void ask_next(arrival *a) {
    const size_t left = a->map.size - a->ahead, n = left < a->step ? left : a->step;
    file_map_ahead(a->map.data + a->ahead, n);
    a->ahead += n;
    if (a->step < MOST_AHEAD) a->step *= 2;
}

arrival *arrive_open(store *s, const char *path, const shelf_key *key, bool window, err *e) {
    arrival *a = mem_zalloc(1, sizeof *a, e);
    if (!a) return NULL;
    a->owner.release = release;
    a->owner.check = check_layer;
    a->store = s;
    a->refs = 1;
    a->key = *key;
    a->window = window;
    a->asked = clock_seconds();
    if (!file_map_open(&a->map, path, e)) {
        mem_free(a);
        return NULL;
    }
    a->step = FIRST_AHEAD;
    ask_next(a);
    const size_t tokens = KV_BLOCK * sizeof(int32_t); /* at the end */
    if (!window && a->map.size > tokens) file_map_ahead(a->map.data + a->map.size - tokens, tokens);
    return a;
}

bool arrive_check(arrival *a, const kv_name *parent, err *e) {
    const store *s = a->store;
    tensor_header h = {0};
    bool ok = blockfile_header(&h, s->layout, s->model, &a->key, parent, a->window, e) && blockfile_is(&a->map, &h, s->layout, a->window, e);
    a->data_at = h.text.len;
    a->sums_at = h.sums_at;
    a->layer = a->fetch = blockfile_first(s->layout, a->window);
    if (a->layer.place == s->layout->n_layers) a->owner.come = a->owner.layers = KV_ALL;
    buf_free(&h.text);
    return ok;
}

/* ---- the thread ---- */

/* The next layer of a file; false: it was the last, or it is of no use. */
static bool fetch_layer(store *s, arrival *a) {
    if (atomic_load(&a->refs) == 1 || a->owner.layers == KV_LOST) return false; /* nobody else has it, and nobody can get it */
    const double start = clock_seconds();
    const size_t from = a->data_at + a->fetch.start, bytes = a->fetch.k_bytes + a->fetch.v_bytes;
    while (a->ahead < a->map.size && a->ahead < from + bytes + a->step / 2) ask_next(a);
    a->unreadable = !file_map_fetch(a->map.data + from, bytes, NULL);
    const bool more = !a->unreadable && blockfile_next(s->layout, a->window, &a->fetch);
    const double now = clock_seconds();
    pthread_mutex_lock(&s->lock);
    s->stats.load_seconds += now - start;
    if (!more && now - a->asked > s->stats.longest_load) s->stats.longest_load = now - a->asked;
    pthread_mutex_unlock(&s->lock);
    kv_cache_come(s->cache, &a->owner, more ? a->fetch.layer : KV_ALL);
    return more;
}

/* Under the lock, as arrive_take. */
static void arrive_put(store *s, arrival *a) {
    a->next = NULL;
    *(s->arriving_last ? &s->arriving_last->next : &s->arriving) = a;
    s->arriving_last = a;
}

static arrival *arrive_take(store *s) {
    arrival *a = s->arriving;
    if (a) s->arriving = a->next;
    if (!s->arriving) s->arriving_last = NULL;
    return a;
}

static void *reader_main(void *arg) {
    store *s = arg;
    pthread_mutex_lock(&s->arrive_lock);
    while (!s->arrive_stop) {
        arrival *a = arrive_take(s);
        if (!a) {
            pthread_cond_wait(&s->arrive_more, &s->arrive_lock);
            continue;
        }
        pthread_mutex_unlock(&s->arrive_lock);
        const bool more = fetch_layer(s, a);
        if (!more) release(&a->owner);
        pthread_mutex_lock(&s->arrive_lock);
        if (more) arrive_put(s, a);
    }
    for (arrival *a; (a = arrive_take(s)) != NULL;) release(&a->owner);
    pthread_mutex_unlock(&s->arrive_lock);
    return NULL;
}

void arrive_begin(store *s, arrival *a) {
    if (a->owner.come == KV_ALL) return;
    atomic_fetch_add(&a->refs, 1);
    pthread_mutex_lock(&s->arrive_lock);
    arrive_put(s, a);
    pthread_cond_signal(&s->arrive_more);
    pthread_mutex_unlock(&s->arrive_lock);
}

bool arrive_start(store *s, err *e) {
    s->reader_runs = pthread_create(&s->reader, NULL, reader_main, s) == 0;
    return s->reader_runs || err_set(e, HEARTH_MEMORY, "the thread that reads conversations cannot be started");
}

void arrive_end(store *s) {
    if (!s->reader_runs) return;
    pthread_mutex_lock(&s->arrive_lock);
    s->arrive_stop = true;
    pthread_cond_signal(&s->arrive_more);
    pthread_mutex_unlock(&s->arrive_lock);
    pthread_join(s->reader, NULL);
}
