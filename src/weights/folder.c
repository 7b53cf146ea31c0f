#include "weights/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

#define PACK_END ".weights"
#define USED_END ".weights.used"
#define BAD_END ".weights.bad"
#define SOURCE_END ".source"

int64_t folder_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static bool ends(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static char *joined(const char *folder, const char *name, const char *end, err *e) {
    buf b = {0};
    if (buf_addf(&b, e, "%s/%s%s", folder, name, end)) return b.data;
    buf_free(&b);
    return NULL;
}

char *folder_path(const char *given, err *e) {
    if (given && *given) return mem_strndup(given, strlen(given), e);
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache == '/') return joined(cache, "hearth", "", e);
    if (home && *home == '/') return joined(home, ".cache/hearth", "", e);
    err_set(e, HEARTH_IO, "there is no folder for packed weights: neither XDG_CACHE_HOME nor HOME is set");
    return NULL;
}

/* ---- names ---- */

static void name_start(const pack_key *k, char out[24]) { snprintf(out, 24, "%016llx-", (unsigned long long)k->table.low); }

static void name_end(const pack_key *k, char out[96]) {
    snprintf(out, 96, "-%s-%016llx%s", k->variant, (unsigned long long)k->layout.low, PACK_END);
}

static void hash_text(hash128 h, char out[33]) { snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.high, (unsigned long long)h.low); }

char *folder_pack_path(const char *folder, const pack_key *key, err *e) {
    char start[24], end[96], print[33], name[160];
    name_start(key, start), name_end(key, end), hash_text(key->fingerprint, print);
    snprintf(name, sizeof name, "%s%s%s", start, print, end);
    return joined(folder, name, "", e);
}

typedef struct candidate {
    char start[24], end[96];
    bool found;
} candidate;

static bool look_for_candidate(void *user, const char *name) {
    candidate *c = user;
    c->found = strncmp(name, c->start, strlen(c->start)) == 0 && ends(name, c->end);
    return !c->found;
}

bool folder_has_candidate(const char *folder, const pack_key *key) {
    candidate c = {0};
    name_start(key, c.start), name_end(key, c.end);
    file_list(folder, look_for_candidate, &c, NULL);
    return c.found;
}

/* ---- records: eight-byte words, the last one a checksum of those before ---- */

#define SOURCE_MAGIC 0x3143525348545248u
#define CHECKED_MAGIC 0x3143484348545248u

static bool record_read(const char *path, uint64_t *words, size_t n) {
    buf b = {0};
    bool ok = file_read(path, 4096, &b, NULL) && b.len == n * 8;
    if (ok) memcpy(words, b.data, b.len);
    buf_free(&b);
    return ok && words[n - 1] == XXH3_64bits(words, (n - 1) * 8);
}

static bool record_write(const char *path, uint64_t *words, size_t n, err *e) {
    words[n - 1] = XXH3_64bits(words, (n - 1) * 8);
    file_writer w;
    if (!file_writer_open(&w, path, e)) return false;
    if (file_writer_add(&w, words, n * 8, e)) return file_writer_commit(&w, e);
    file_writer_abort(&w);
    return false;
}

static void put_id(uint64_t *words, const file_id *id) {
    words[0] = id->device, words[1] = id->inode, words[2] = id->size;
    words[3] = (uint64_t)id->modified_ns, words[4] = (uint64_t)id->changed_ns;
}

/* All parts' states as one number. */
static hash128 identity(const gguf *g) {
    hash128 h = {0};
    for (int i = 0; i < gguf_n_parts(g); i++) {
        uint64_t words[7] = {h.low, h.high};
        put_id(words + 2, gguf_part_id(g, i));
        XXH128_hash_t x = XXH3_128bits(words, sizeof words);
        h = (hash128){x.low64, x.high64};
    }
    return h;
}

static char *source_path(const char *folder, hash128 id, err *e) {
    char name[33];
    hash_text(id, name);
    return joined(folder, name, SOURCE_END, e);
}

enum { SOURCE_WORDS = 8 };

bool folder_source_find(const char *folder, const gguf *g, hash128 table, hash128 *fingerprint) {
    hash128 id = identity(g);
    uint64_t r[SOURCE_WORDS];
    char *path = source_path(folder, id, NULL);
    bool ok = path && record_read(path, r, SOURCE_WORDS) && r[0] == SOURCE_MAGIC && r[1] == id.low && r[2] == id.high && r[3] == table.low && r[4] == table.high;
    if (ok) *fingerprint = (hash128){r[5], r[6]};
    mem_free(path);
    return ok;
}

bool folder_source_record(const char *folder, const gguf *g, hash128 table, hash128 fingerprint, int64_t hashed_from_ns, err *e) {
    for (int i = 0; i < gguf_n_parts(g); i++) {
        const file_id *id = gguf_part_id(g, i);
        int64_t last = id->modified_ns > id->changed_ns ? id->modified_ns : id->changed_ns;
        if (last > hashed_from_ns - 1000000000) return true;
    }
    if (!gguf_unchanged(g)) return true;
    hash128 id = identity(g);
    char *path = source_path(folder, id, e);
    uint64_t r[SOURCE_WORDS] = {SOURCE_MAGIC, id.low, id.high, table.low, table.high, fingerprint.low, fingerprint.high};
    bool ok = path && record_write(path, r, SOURCE_WORDS, e);
    mem_free(path);
    return ok;
}

/* Which start of the machine this is; 0 when it cannot be told, which matches nothing. */
static uint64_t boot_number(void) {
    buf b = {0};
    uint64_t boot = file_read("/proc/sys/kernel/random/boot_id", 256, &b, NULL) && b.len > 30 ? XXH3_64bits(b.data, b.len) | 1 : 0;
    buf_free(&b);
    return boot;
}

enum { CHECKED_WORDS = 8 };

static char *used_path(const char *pack_path, err *e) {
    buf b = {0};
    if (buf_addf(&b, e, "%s.used", pack_path)) return b.data;
    buf_free(&b);
    return NULL;
}

bool folder_checked_find(const char *pack_path, const file_id *id) {
    uint64_t r[CHECKED_WORDS], want[CHECKED_WORDS] = {CHECKED_MAGIC};
    put_id(want + 1, id);
    want[6] = boot_number();
    char *path = used_path(pack_path, NULL);
    bool ok = path && want[6] && record_read(path, r, CHECKED_WORDS) && memcmp(r, want, 7 * 8) == 0;
    mem_free(path);
    return ok;
}

bool folder_checked_record(const char *pack_path, const file_id *id, err *e) {
    uint64_t r[CHECKED_WORDS] = {CHECKED_MAGIC};
    /* As for sources: a state this young could change without looking different. */
    if (id->changed_ns > folder_now_ns() - 1000000000) return true;
    put_id(r + 1, id);
    if (!(r[6] = boot_number())) return true;
    char *path = used_path(pack_path, e);
    bool ok = path && record_write(path, r, CHECKED_WORDS, e);
    mem_free(path);
    return ok;
}

void folder_used(const char *pack_path) {
    char *path = used_path(pack_path, NULL);
    uint64_t empty[2] = {0};
    if (path && !file_touch(path, NULL)) record_write(path, empty, 2, NULL);
    mem_free(path);
}

bool folder_set_aside(const char *pack_path, const file_id *id, err *e) {
    file_id now;
    if (!file_examine(pack_path, &now, e)) return false;
    if (!file_id_equal(&now, id)) return true; /* someone has replaced it already */
    buf bad = {0};
    bool ok = buf_addf(&bad, e, "%s.bad", pack_path) && file_rename(pack_path, bad.data, e);
    buf_free(&bad);
    return ok;
}

/* ---- what is there ---- */

typedef struct listing {
    folder_files *files;
    const char *folder;
    err *e;
    bool ok;
} listing;

static bool list_one(void *user, const char *name) {
    listing *l = user;
    folder_files *f = l->files;
    bool bad = ends(name, BAD_END);
    if (!bad && !ends(name, PACK_END)) return true;
    l->ok = false;
    if (f->n == f->cap) {
        size_t cap = f->cap * 2 + 8;
        folder_file *items = mem_realloc(f->items, cap, sizeof *items, l->e);
        if (!items) return false;
        f->items = items, f->cap = cap;
    }
    char *path = joined(l->folder, name, "", l->e), *copy = mem_strndup(name, strlen(name), l->e), *used = path ? used_path(path, l->e) : NULL;
    file_id id, when;
    l->ok = path && copy && used;
    if (l->ok && file_examine(path, &id, NULL)) {
        if (!file_examine(used, &when, NULL)) when = id;
        f->items[f->n++] = (folder_file){.name = copy, .bytes = id.size, .used_ns = when.modified_ns, .bad = bad};
        f->bytes += id.size;
        copy = NULL;
    }
    mem_free(path), mem_free(copy), mem_free(used);
    return l->ok;
}

static int by_use(const void *a, const void *b) {
    const folder_file *x = a, *y = b;
    if (x->bad != y->bad) return x->bad ? -1 : 1;
    return x->used_ns < y->used_ns ? -1 : x->used_ns > y->used_ns;
}

bool folder_files_list(folder_files *f, const char *folder, err *e) {
    *f = (folder_files){0};
    file_id id;
    if (!file_examine(folder, &id, NULL)) return true;
    listing l = {.files = f, .folder = folder, .e = e, .ok = true};
    bool ok = file_list(folder, list_one, &l, e) && l.ok;
    if (!ok) folder_files_free(f);
    else if (f->n) qsort(f->items, f->n, sizeof *f->items, by_use);
    return ok;
}

void folder_files_free(folder_files *f) {
    for (size_t i = 0; i < f->n; i++) mem_free(f->items[i].name);
    mem_free(f->items);
    *f = (folder_files){0};
}

/* ---- pruning ---- */

static bool remove_named(const char *folder, const char *name, const char *end, err *e) {
    char *path = joined(folder, name, end, e);
    bool ok = path && file_remove(path, e);
    mem_free(path);
    return ok;
}

bool folder_remove(const char *folder, const char *name, err *e) {
    if (!remove_named(folder, name, "", e)) return false;
    if (ends(name, PACK_END)) remove_named(folder, name, ".used", NULL);
    return true;
}

typedef struct sweep {
    const char *folder;
    const folder_files *files;
    buf names; /* to delete, each with its NUL */
    err *e;
    bool ok;
} sweep;

static bool belongs(const sweep *s, const char *name, size_t len) {
    for (size_t i = 0; i < s->files->n; i++)
        if (strlen(s->files->items[i].name) == len && memcmp(s->files->items[i].name, name, len) == 0) return true;
    return false;
}

static bool has_fingerprint(const sweep *s, const char *source) {
    char *path = joined(s->folder, source, "", NULL);
    uint64_t r[SOURCE_WORDS];
    bool found = !path;
    if (path && record_read(path, r, SOURCE_WORDS)) {
        char print[33];
        hash_text((hash128){r[5], r[6]}, print);
        for (size_t i = 0; i < s->files->n && !found; i++) found = strstr(s->files->items[i].name, print) != NULL;
    }
    mem_free(path);
    return found;
}

static bool sweep_one(void *user, const char *name) {
    sweep *s = user;
    bool orphan = strstr(name, PACK_END ".tmp.") || strstr(name, USED_END ".tmp.") || strstr(name, SOURCE_END ".tmp.") ||
                  (ends(name, USED_END) && !belongs(s, name, strlen(name) - strlen(".used"))) || (ends(name, SOURCE_END) && !has_fingerprint(s, name));
    if (orphan) s->ok = buf_add(&s->names, name, strlen(name) + 1, s->e);
    return s->ok;
}

/* Temporary files belong to whoever holds the folder's lock; since that is us and we write none now, a crash left them. Those of records are
 * written without the lock: taking one away costs that process only its record. */
static bool sweep_orphans(const char *folder, const folder_files *files, err *e) {
    sweep s = {.folder = folder, .files = files, .e = e, .ok = true};
    bool ok = file_list(folder, sweep_one, &s, e) && s.ok;
    for (size_t at = 0; ok && at < s.names.len; at += strlen(s.names.data + at) + 1) remove_named(folder, s.names.data + at, "", NULL);
    buf_free(&s.names);
    return ok;
}

bool folder_prune(const char *folder, uint64_t most, const char *spare, uint64_t *freed, err *e) {
    folder_files f;
    *freed = 0;
    if (!folder_files_list(&f, folder, e)) return false;
    bool ok = true;
    uint64_t left = f.bytes;
    for (size_t i = 0; ok && i < f.n && left > most; i++) {
        if (spare && strcmp(f.items[i].name, spare) == 0) continue;
        ok = folder_remove(folder, f.items[i].name, e);
        if (ok) left -= f.items[i].bytes, *freed += f.items[i].bytes;
    }
    folder_files_free(&f);
    ok = ok && folder_files_list(&f, folder, e);
    if (ok) {
        ok = sweep_orphans(folder, &f, e);
        folder_files_free(&f);
    }
    return ok;
}
