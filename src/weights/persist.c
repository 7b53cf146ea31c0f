/* persist.c: the packed file of this model and kernel set: found and mapped at start, written behind the work by a thread of low priority (the keeper). Nothing
 * that goes wrong here is an error: it costs the file, one warning, and no more. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "weights/inner.h"

static void set_state(weights *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&w->lock);
    vsnprintf(w->state, sizeof w->state, format, args);
    pthread_mutex_unlock(&w->lock);
    va_end(args);
}

static pack_key key_of(const weights *w) {
    pack_key k = {.table = w->table, .fingerprint = w->fingerprint, .layout = w->layout};
    snprintf(k.variant, sizeof k.variant, "%s", w->kern->name);
    return k;
}

static bool same_key(const pack_key *a, const pack_key *b) {
    return hash_equal(a->table, b->table) && hash_equal(a->fingerprint, b->fingerprint) && hash_equal(a->layout, b->layout) && strcmp(a->variant, b->variant) == 0;
}

/* ---- at start ---- */

static bool same_matrix(const entry *e, const pack_item *i) {
    return e->from_file && e->product && e->slice == i->slice && e->raw.mat.type == i->type && e->raw.mat.rows == i->rows && e->raw.mat.cols == i->cols &&
           e->exact == i->bytes && strlen(e->name) == i->name_len && memcmp(e->name, i->name, i->name_len) == 0;
}

/* Gives every matrix its place in the file. Both lists are in the same order unless hearth has changed, so the search starts after the last find. */
static void match_items(weights *w, const packfile *p, bool trusted) {
    size_t at = 0;
    for (int i = 0; i < w->n; i++) {
        entry *e = &w->entries[i];
        if (!e->product || !e->from_file) continue;
        for (size_t k = 0; k < p->n; k++) {
            const pack_item *item = &p->items[(at + k) % p->n];
            if (!same_matrix(e, item)) continue;
            e->file = p->map.data + item->offset;
            e->sum = item->sum;
            e->file_make_ns = item->make_ns;
            e->checked = trusted;
            at = (at + k + 1) % p->n;
            break;
        }
    }
}

/* Opens the packed file at w->pack_path if it is there, is whole and is of these weights. What is damaged is set aside. */
static bool open_pack(weights *w, packfile *p) {
    file_id id;
    err e = {0};
    if (!file_examine(w->pack_path, &id, NULL)) return false;
    pack_key want = key_of(w);
    bool ok = packfile_open(p, w->pack_path, &e);
    if (ok && !same_key(&want, &p->key)) {
        packfile_close(p);
        ok = err_set(&e, HEARTH_FORMAT, "it holds other weights than its name says");
    }
    if (!ok && e.code == HEARTH_FORMAT) {
        bool aside = folder_set_aside(w->pack_path, &id, NULL);
        cache_warn(w, "%s is damaged (%s)%s; the weights are packed again", w->pack_path, e.text, aside ? " and was set aside" : "");
    }
    return ok;
}

void persist_find(weights *w) {
    w->table = fingerprint_table(w->file);
    if (!fingerprint_layout(w, &w->layout, NULL)) return;
    pack_key key = key_of(w);
    w->source_known = w->fingerprint_known = folder_source_find(w->folder, w->file, w->table, &w->fingerprint);
    if (!w->fingerprint_known && folder_has_candidate(w->folder, &key)) {
        /* There may be a packed file of these weights: only reading them all can tell. */
        w->hashed_from_ns = folder_now_ns();
        w->fingerprint_known = fingerprint_weights(w->file, w->pool, &w->fingerprint, NULL);
    }
    if (!w->fingerprint_known) return;
    key = key_of(w);
    w->pack_path = folder_pack_path(w->folder, &key, NULL);
    if (!w->pack_path || !open_pack(w, &w->pack)) return;
    w->pack_trusted = folder_checked_find(w->pack_path, &w->pack.map.id);
    match_items(w, &w->pack, w->pack_trusted);
    set_state(w, "packed weights are mapped from %s", w->pack_path);
}

/* A matrix differs from its checksum: nothing of the file that has not been compared already is used. */
void persist_bad(weights *w, const char *name) {
    pthread_mutex_lock(&w->lock);
    bool known = w->pack_bad;
    w->pack_bad = true;
    for (int i = 0; i < w->n; i++)
        if (!w->entries[i].checked) w->entries[i].file = NULL;
    pthread_mutex_unlock(&w->lock);
    if (known) return;
    bool aside = folder_set_aside(w->pack_path, &w->pack.map.id, NULL);
    cache_warn(w, "%s is damaged (the checksum of %s is wrong)%s; the weights are packed again", w->pack_path, name, aside ? " and was set aside" : "");
    pthread_mutex_lock(&w->lock);
    w->persist_wanted = true;
    pthread_cond_broadcast(&w->work);
    pthread_mutex_unlock(&w->lock);
}

/* ---- the keeper ---- */

static void no_file(weights *w, const char *format, ...) {
    char why[360];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    set_state(w, "packed weights are not kept on disk: %s", why);
    cache_warn(w, "packed weights are not kept on disk, so the next start packs again: %s", why);
}

/* Checks the rest of a file in the background, so that the next start need not. */
static bool check_rest(weights *w) {
    for (int i = 0; i < w->n; i++) {
        entry *e = &w->entries[i];
        pthread_mutex_lock(&w->lock);
        bool stop = w->stop || w->pack_bad, todo = e->file && !e->checked;
        const uint8_t *file = e->file;
        pthread_mutex_unlock(&w->lock);
        if (!todo) continue;
        if (stop || w->limited) return false;
        if (pack_sum(file, e->exact) != e->sum) {
            persist_bad(w, e->name);
            return false;
        }
        pthread_mutex_lock(&w->lock);
        e->checked = true;
        pthread_mutex_unlock(&w->lock);
    }
    return true;
}

/* Notes that the file was used and, once all of it was compared with its checksums, in which state. A folder that cannot be written to costs only this. */
static void write_records(weights *w) {
    folder_used(w->pack_path);
    if (!w->source_known && w->hashed_from_ns) w->source_known = folder_source_record(w->folder, w->file, w->table, w->fingerprint, w->hashed_from_ns, NULL);
    if (!w->pack_trusted && check_rest(w)) w->pack_trusted = folder_checked_record(w->pack_path, &w->pack.map.id, NULL);
}

/* What goes into the file, in the order of the entries: all that come from the model file and fit into the budget one by one. */
static pack_item *list_items(weights *w, size_t *count, int **ids, err *e) {
    size_t n = 0;
    pack_item *items = mem_zalloc((size_t)w->n, sizeof *items, e);
    *ids = mem_alloc((size_t)w->n, sizeof **ids, e);
    for (int i = 0; items && *ids && i < w->n; i++) {
        const entry *x = &w->entries[i];
        if (!x->product || !x->from_file || x->bytes > w->budget) continue;
        (*ids)[n] = i;
        items[n++] = (pack_item){.name = x->name, .name_len = (uint32_t)strlen(x->name), .slice = x->slice, .type = x->raw.mat.type, .rows = x->raw.mat.rows,
                                 .cols = x->raw.mat.cols, .bytes = x->exact};
    }
    *count = n;
    if (items && *ids) return items;
    mem_free(items);
    mem_free(*ids);
    *ids = NULL;
    return NULL;
}

/* Memory to pack one matrix at a time in, for those that are not ready. It is part of the budget like everything else. */
typedef struct bench {
    void *memory;
    size_t bytes;
} bench;

static bool bench_get(weights *w, bench *b, size_t bytes, err *e) {
    if (bytes <= b->bytes) return true;
    pthread_mutex_lock(&w->lock);
    w->used -= b->bytes;
    bool room = cache_make_room(w, bytes);
    w->used += room ? bytes : 0;
    pthread_mutex_unlock(&w->lock);
    mem_reserve_free(b->memory, b->bytes);
    *b = (bench){0};
    if (!room) return err_set(e, HEARTH_LIMIT, "the memory for weights is too small to pack them one by one");
    b->memory = mem_reserve(bytes, e);
    b->bytes = bytes; /* counted, whether it is there or not */
    return b->memory != NULL;
}

static void bench_free(weights *w, bench *b) {
    pthread_mutex_lock(&w->lock);
    w->used -= b->bytes;
    pthread_mutex_unlock(&w->lock);
    mem_reserve_free(b->memory, b->bytes);
}

/* Makes an entry ready for good if the budget has room for it, or waits for whoever does. */
static void make_if_room(weights *w, entry *x) {
    pthread_mutex_lock(&w->lock);
    while (x->making != MAKING_NOT) pthread_cond_wait(&w->made, &w->lock);
    bool make = !cache_ready(x) && cache_admit(w, x, ADMIT_PREFETCH);
    if (make) x->making = MAKING_BACK;
    pthread_mutex_unlock(&w->lock);
    if (make) make_entry(w, x, NULL);
}

static bool write_item(weights *w, packwriter *out, entry *x, bench *b, err *e) {
    atomic_fetch_add(&x->state, 1); /* once ready it stays so while it is read */
    if (!cache_ready(x)) make_if_room(w, x);
    bool ready = cache_ready(x), ok = true;
    pthread_mutex_lock(&w->lock);
    uint64_t cost = x->file_make_ns ? x->file_make_ns : x->makes ? x->make_ns / x->makes : 0;
    pthread_mutex_unlock(&w->lock);
    if (!ready) {
        ok = bench_get(w, b, x->bytes, e);
        uint64_t start = clock_ns();
        if (ok) make_packed(x, b->memory, NULL);
        if (!cost) cost = clock_ns() - start;
    }
    ok = ok && packwriter_add(out, ready ? x->packed.mat.packed : b->memory, cost, e);
    atomic_fetch_sub(&x->state, 1);
    return ok;
}

/* Room on the disk within the folder's budget. */
static bool make_disk_room(weights *w, uint64_t need, err *e) {
    folder_files f;
    uint64_t room, freed, most = w->o.cache_bytes;
    if (!file_room(w->folder, &room, e) || !folder_files_list(&f, w->folder, e)) return false;
    if (most == WEIGHTS_AUTO) most = (room + f.bytes) / 2;
    folder_files_free(&f);
    if (need > most) return err_set(e, HEARTH_LIMIT, "they need %" PRIu64 " bytes where %" PRIu64 " are allowed for all models", need, most);
    if (!folder_prune(w->folder, most - need, NULL, &freed, e) || !file_room(w->folder, &room, e)) return false;
    if (need > room) return err_set(e, HEARTH_IO, "%s: %" PRIu64 " bytes are needed and %" PRIu64 " are free", w->folder, need, room);
    return true;
}

static bool write_pack(weights *w, err *e) {
    size_t n;
    int *ids;
    pack_item *items = list_items(w, &n, &ids, e);
    if (!items) return false;
    pack_key key = key_of(w);
    packwriter out;
    bench b = {0};
    bool ok = make_disk_room(w, packwriter_bytes(items, n), e) && packwriter_begin(&out, w->pack_path, &key, items, n, e);
    if (ok) {
        for (size_t i = 0; ok && i < n; i++) ok = write_item(w, &out, &w->entries[ids[i]], &b, e);
        /* The model file must still be the one whose fingerprint names the packed file. */
        if (ok && !gguf_unchanged(w->file)) ok = err_set(e, HEARTH_IO, "the model file has changed since it was opened");
        if (ok) ok = packwriter_end(&out, e);
        else packwriter_abort(&out);
    }
    bench_free(w, &b);
    mem_free(items);
    mem_free(ids);
    return ok;
}

static bool name_pack(weights *w, err *e) {
    if (!w->fingerprint_known) {
        w->hashed_from_ns = folder_now_ns();
        if (!fingerprint_weights(w->file, NULL, &w->fingerprint, e)) return false;
        w->fingerprint_known = true;
    }
    if (!gguf_unchanged(w->file)) return err_set(e, HEARTH_IO, "the model file has changed since it was opened");
    if (w->pack_path) return true;
    pack_key key = key_of(w);
    char *path = folder_pack_path(w->folder, &key, e);
    pthread_mutex_lock(&w->lock);
    w->pack_path = path;
    pthread_mutex_unlock(&w->lock);
    return path != NULL;
}

/* Another process may have written it since we looked. */
static bool already_there(weights *w) {
    packfile p;
    file_id id;
    if (w->pack_bad && file_examine(w->pack_path, &id, NULL) && file_id_equal(&id, &w->pack.map.id)) return false;
    if (!open_pack(w, &p)) return false;
    packfile_close(&p);
    return true;
}

/* When not everything fits, a mapping is worth having at once: making from it is nearly free. */
static void map_written(weights *w) {
    packfile p;
    if (!w->limited || w->pack.map.data || !open_pack(w, &p)) return;
    pthread_mutex_lock(&w->lock);
    w->pack = p;
    match_items(w, &w->pack, false);
    pthread_mutex_unlock(&w->lock);
}

static void persist(weights *w) {
    err e = {0};
    int lock = -1;
    if (w->total < w->o.persist_least) {
        set_state(w, "packed weights are not kept on disk: they are quicker to pack than to read");
        return;
    }
    bool ok = file_make_folder(w->folder, &e) && file_lock(w->folder, &lock, &e);
    if (ok && lock < 0) {
        set_state(w, "packed weights are being written by another process");
        return;
    }
    ok = ok && name_pack(w, &e);
    if (ok && !already_there(w)) {
        ok = write_pack(w, &e);
        if (ok) {
            pthread_mutex_lock(&w->lock);
            w->written = true;
            pthread_mutex_unlock(&w->lock);
        }
    }
    if (ok) {
        set_state(w, "packed weights are kept in %s", w->pack_path);
        folder_used(w->pack_path);
        if (w->hashed_from_ns) folder_source_record(w->folder, w->file, w->table, w->fingerprint, w->hashed_from_ns, NULL);
        map_written(w);
    }
    file_unlock(lock);
    if (!ok) no_file(w, "%s", e.text);
}

void *keeper_main(void *arg) {
    weights *w = arg;
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 10);
    pthread_mutex_lock(&w->lock);
    for (;;) {
        bool records = w->records_wanted, write = w->persist_wanted;
        if (!records && !write) {
            w->keeper_busy = false;
            pthread_cond_broadcast(&w->made);
            if (w->stop) break;
            pthread_cond_wait(&w->work, &w->lock);
            continue;
        }
        w->keeper_busy = true;
        w->records_wanted = w->persist_wanted = false;
        w->persist_tried |= write;
        w->writing = write;
        pthread_mutex_unlock(&w->lock);
        if (records) {
            write_records(w);
            move_to_memory(w);
        }
        if (write) persist(w);
        pthread_mutex_lock(&w->lock);
        w->writing = false;
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}
