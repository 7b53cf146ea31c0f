/* response_state.c: responses that later requests may go on from, within a bound; those that were not used for longest go first. With a folder each is a file,
 * there before the client hears of the end and found again after a restart; without one, or while the disk fails, they are in memory.
 *
 *   ID.json   16 hexadecimal digits, the XXH3 of the rest; a newline; {"response": ..., "input": [items], "tenant": name, if any} */
#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "api/inner.h"
#include "base/file.h"

enum { MOST_RESPONSES = 20000, MOST_IN_MEMORY = 64 << 20, MOST_ON_DISK = 512 << 20, SUM = 17 };

typedef struct kept_response {
    char *id, *text; /* text: NULL when it is on disk */
    size_t len;
    uint64_t used;   /* in nanoseconds since 1970, as a file's time is */
} kept_response;

struct response_state {
    char *folder;    /* or NULL */
    pthread_mutex_t lock;
    kept_response *items;
    size_t n, cap, in_memory, on_disk;
};

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- files ---- */

/* Ids of requests may be anything; those of files are made here. */
static bool is_id(const char *id) {
    size_t n = strlen(id);
    return n > 0 && n < 80 && strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == n;
}

static char *path_of(const response_state *s, const char *id, err *e) {
    buf b = {0};
    if (buf_addf(&b, e, "%s/%s.json", s->folder, id)) return b.data;
    buf_free(&b);
    return NULL;
}

static bool write_file(const response_state *s, const char *id, const char *text, size_t len, err *e) {
    char sum[SUM + 1];
    snprintf(sum, sizeof sum, "%016" PRIx64 "\n", (uint64_t)XXH3_64bits(text, len));
    char *path = path_of(s, id, e);
    file_writer w;
    bool ok = path && file_writer_open(&w, path, e);
    if (ok && file_writer_add(&w, sum, SUM, e) && file_writer_add(&w, text, len, e)) ok = file_writer_commit(&w, e);
    else if (ok) file_writer_abort(&w), ok = false;
    mem_free(path);
    return ok;
}

/* What does not check out is not there. */
static json_t *read_file(const response_state *s, const char *id) {
    buf text = {0};
    json_t *record = NULL;
    char *path = path_of(s, id, NULL), sum[SUM + 1];
    if (path && file_read(path, MOST_ON_DISK, &text, NULL) && text.len > SUM) {
        snprintf(sum, sizeof sum, "%016" PRIx64 "\n", (uint64_t)XXH3_64bits(text.data + SUM, text.len - SUM));
        if (memcmp(sum, text.data, SUM) == 0) record = json_loadb(text.data + SUM, text.len - SUM, JSON_ALLOW_NUL, NULL);
        if (record) file_touch(path, NULL);
    }
    buf_free(&text);
    mem_free(path);
    return record;
}

/* ---- the index ---- */

static size_t find(const response_state *s, const char *id) {
    size_t i = 0;
    while (i < s->n && strcmp(s->items[i].id, id) != 0) i++;
    return i;
}

/* Takes it out of the index; its file stays. */
static void forget(response_state *s, size_t i) {
    kept_response *k = &s->items[i];
    *(k->text ? &s->in_memory : &s->on_disk) -= k->len;
    mem_free(k->id);
    mem_free(k->text);
    *k = s->items[--s->n];
}

static void drop(response_state *s, size_t i) {
    char *path = s->items[i].text ? NULL : path_of(s, s->items[i].id, NULL);
    if (path) file_remove(path, NULL);
    mem_free(path);
    forget(s, i);
}

static size_t oldest(const response_state *s) {
    size_t best = 0;
    for (size_t i = 1; i < s->n; i++)
        if (s->items[i].used < s->items[best].used) best = i;
    return best;
}

/* Takes text, which is NULL for what is on disk. */
static bool add(response_state *s, const char *id, char *text, size_t len, uint64_t used, err *e) {
    char *name = mem_strndup(id, strlen(id), e);
    if (name && s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 64;
        kept_response *items = mem_realloc(s->items, cap, sizeof *items, e);
        if (items) s->items = items, s->cap = cap;
    }
    if (!name || s->n == s->cap) {
        mem_free(name);
        mem_free(text);
        return false;
    }
    *(text ? &s->in_memory : &s->on_disk) += len;
    s->items[s->n++] = (kept_response){.id = name, .text = text, .len = len, .used = used};
    return true;
}

static void make_room(response_state *s) {
    while (s->n > 1 && (s->n > MOST_RESPONSES || s->in_memory > MOST_IN_MEMORY || s->on_disk > MOST_ON_DISK)) drop(s, oldest(s));
}

static bool add_file(void *user, const char *name) {
    response_state *s = user;
    char id[96];
    const char *dot = strrchr(name, '.');
    if (!dot || strcmp(dot, ".json") != 0 || (size_t)(dot - name) >= sizeof id) return true;
    snprintf(id, sizeof id, "%.*s", (int)(dot - name), name);
    char *path = is_id(id) ? path_of(s, id, NULL) : NULL;
    file_id f;
    if (path && file_examine(path, &f, NULL)) add(s, id, NULL, f.size, (uint64_t)f.modified_ns, NULL);
    mem_free(path);
    return true;
}

/* ---- for others ---- */

response_state *response_state_new(const char *folder, err *e) {
    response_state *s = mem_zalloc(1, sizeof *s, e);
    if (!s) return NULL;
    pthread_mutex_init(&s->lock, NULL);
    if (folder && !(s->folder = mem_strndup(folder, strlen(folder), e))) {
        response_state_free(s);
        return NULL;
    }
    /* A folder that cannot be made is found out again at the first write, and costs only what would be in it. */
    if (folder && file_make_folder(folder, NULL)) file_list(folder, add_file, s, NULL);
    make_room(s);
    return s;
}

void response_state_free(response_state *s) {
    if (!s) return;
    while (s->n > 0) forget(s, s->n - 1);
    mem_free(s->items);
    mem_free(s->folder);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

bool response_state_put(response_state *s, const char *id, const char *tenant, json_t *record, err *e) {
    if (tenant && json_object_set_new(record, "tenant", text_json(tenant, strlen(tenant))) != 0) return err_nomem(e, 0);
    char *json = json_dumps(record, JSON_COMPACT), *text = NULL;
    if (!json) return err_nomem(e, 0);
    size_t len = strlen(json);
    bool ok = (s->folder && write_file(s, id, json, len, NULL)) || (text = mem_strndup(json, len, e));
    free(json);
    if (!ok) return false;
    pthread_mutex_lock(&s->lock);
    ok = add(s, id, text, len, now_ns(), e);
    make_room(s);
    pthread_mutex_unlock(&s->lock);
    return ok;
}

/* The record, unless it belongs to another tenant. */
static json_t *own(json_t *record, const char *tenant) {
    const char *of = json_string_value(json_object_get(record, "tenant"));
    if (tenant ? of && strcmp(of, tenant) == 0 : !of) return record;
    json_decref(record);
    return NULL;
}

json_t *response_state_get(response_state *s, const char *id, const char *tenant) {
    json_t *record = NULL;
    pthread_mutex_lock(&s->lock);
    size_t i = find(s, id);
    bool on_disk = s->folder && is_id(id) && (i == s->n || !s->items[i].text); /* one that is not known here may be another server's */
    if (i < s->n) s->items[i].used = now_ns();
    if (i < s->n && s->items[i].text) record = json_loadb(s->items[i].text, s->items[i].len, JSON_ALLOW_NUL, NULL);
    pthread_mutex_unlock(&s->lock);
    return own(on_disk ? read_file(s, id) : record, tenant);
}

bool response_state_drop(response_state *s, const char *id, const char *tenant) {
    json_t *record = response_state_get(s, id, tenant);
    if (!record) return false;
    json_decref(record);
    pthread_mutex_lock(&s->lock);
    size_t i = find(s, id);
    bool found = i < s->n;
    if (found) drop(s, i);
    pthread_mutex_unlock(&s->lock);
    return found;
}
