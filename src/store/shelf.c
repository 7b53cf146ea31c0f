/* shelf.c: names, the index, the scan. */
#include "store/shelf.h"

#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "store/shelf_inner.h"

#define END ".safetensors"
#define MARK "{\"format\":\"hearth-store\",\"version\":1}\n"

uint32_t shelf_now(void) { return (uint32_t)time(NULL); }

char *shelf_join(const char *folder, const char *name, err *e) {
    buf b = {0};
    if (buf_addf(&b, e, "%s/%s", folder, name)) return b.data;
    buf_free(&b);
    return NULL;
}

/* ---- the table ---- */

uint64_t name_start(const kv_name *name) {
    uint64_t h;
    memcpy(&h, name, sizeof h);
    return h;
}

static size_t home(const shelf_table *t, const shelf_record *r) { return (size_t)name_start(&r->key.name) & (t->n_slots - 1); }

shelf_record *table_find_start(const shelf_table *t, uint64_t start) {
    if (t->n == 0) return NULL;
    for (size_t i = (size_t)start & (t->n_slots - 1); t->slots[i].bytes; i = (i + 1) & (t->n_slots - 1))
        if (name_start(&t->slots[i].key.name) == start) return &t->slots[i];
    return NULL;
}

shelf_record *table_find(const shelf_table *t, const kv_name *name) {
    if (t->n == 0) return NULL;
    for (size_t i = (size_t)name_start(name) & (t->n_slots - 1); t->slots[i].bytes; i = (i + 1) & (t->n_slots - 1))
        if (kv_name_equal(&t->slots[i].key.name, name)) return &t->slots[i];
    return NULL;
}

static void put(shelf_table *t, const shelf_record *r) {
    size_t i = home(t, r);
    while (t->slots[i].bytes) i = (i + 1) & (t->n_slots - 1);
    t->slots[i] = *r;
    t->n++;
}

bool table_add(shelf_table *t, const shelf_record *r, err *e) {
    shelf_record *there = table_find(t, &r->key.name);
    if (there) {
        *there = *r;
        return true;
    }
    if (4 * (t->n + 1) > 3 * t->n_slots) {
        shelf_table more = {.n_slots = t->n_slots ? 2 * t->n_slots : 256};
        more.slots = mem_zalloc(more.n_slots, sizeof *more.slots, e);
        if (!more.slots) return false;
        for (size_t i = 0; i < t->n_slots; i++)
            if (t->slots[i].bytes) put(&more, &t->slots[i]);
        mem_free(t->slots);
        *t = more;
    }
    put(t, r);
    return true;
}

void table_remove(shelf_table *t, shelf_record *r) {
    size_t mask = t->n_slots - 1, hole = (size_t)(r - t->slots);
    t->n--;
    /* What follows without a gap moves up when the hole is between its home and its place. */
    for (size_t i = (hole + 1) & mask; t->slots[i].bytes; i = (i + 1) & mask) {
        size_t from = home(t, &t->slots[i]);
        if (((i - from) & mask) < ((i - hole) & mask)) continue;
        t->slots[hole] = t->slots[i];
        hole = i;
    }
    t->slots[hole] = (shelf_record){0};
}

/* ---- names of files ---- */

shelf_key shelf_key_make(const kv_name *name, const kv_name *parent, uint32_t index) {
    return (shelf_key){.name = *name, .parent = name_start(parent), .index = index};
}

/* Decimal digits as this writes them, up to `end`. */
static bool parse_number(const char *text, const char *end, size_t most, uint32_t *out) {
    const size_t n = (size_t)(end - text);
    if (n == 0 || n > most || strspn(text, "0123456789") < n || (n > 1 && *text == '0')) return false;
    *out = (uint32_t)strtoul(text, NULL, 10);
    return true;
}

static bool parse_block_name(const char *file, shelf_key *out, uint32_t *reach) {
    kv_name padded = {0};
    size_t len = strlen(file);
    if (len < 64 + 1 + 16 + 1 + 1 + strlen(END) || strcmp(file + len - strlen(END), END) != 0) return false;
    if (!kv_name_parse(file, 64, &out->name) || file[64] != '-' || file[81] != '-') return false;
    char parent[65];
    memset(parent, '0', 64);
    memcpy(parent, file + 65, 16);
    if (!kv_name_parse(parent, 64, &padded)) return false;
    out->parent = name_start(&padded);
    const char *end = file + len - strlen(END), *window = strstr(file + 82, "-w");
    *reach = 0;
    if (window && (!parse_number(window + 2, end, 6, reach) || *reach == 0)) return false;
    return parse_number(file + 82, window ? window : end, 8, &out->index);
}

char *shelf_path(const shelf *s, const shelf_key *key, unsigned reach, err *e) {
    char name[65], parent[17], part[16] = "";
    kv_name_text(&key->name, name);
    sodium_bin2hex(parent, sizeof parent, (const unsigned char *)&key->parent, 8);
    buf b = {0};
    if (reach) snprintf(part, sizeof part, "-w%u", reach);
    if (buf_addf(&b, e, "%s/blocks/%.2s/%s-%s-%u%s" END, s->folder, name, name, parent, key->index, part)) return b.data;
    buf_free(&b);
    return NULL;
}

bool shelf_make_folder(shelf *s, const shelf_key *key, err *e) {
    uint8_t first = key->name.bytes[0];
    if (s->folder_made[first]) return true;
    buf b = {0};
    bool ok = buf_addf(&b, e, "%s/blocks/%02x", s->folder, first) && file_make_folder(b.data, e);
    buf_free(&b);
    s->folder_made[first] = ok;
    return ok;
}

bool shelf_is_remains(const char *name) { return strstr(name, ".tmp.") != NULL; }

char *shelf_agent_path(const shelf *s, const char *agent, const char *tag, const char *end, err *e) {
    size_t len = strlen(agent);
    json_t *text = json_stringn(agent, len);
    bool ok = text && len > 0 && len <= 64;
    json_decref(text);
    if (!ok) {
        err_set(e, HEARTH_ARGUMENT, "the name of an agent is 1 to 64 bytes of UTF-8");
        return NULL;
    }
    buf b = {0};
    ok = buf_addf(&b, e, "%s/agents/", s->folder);
    for (size_t i = 0; ok && i < len; i++) {
        unsigned char c = (unsigned char)agent[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
        ok = plain ? buf_addc(&b, (char)c, e) : buf_addf(&b, e, "%%%02X", c);
    }
    if (ok && tag && *tag) ok = buf_addf(&b, e, "@%s", tag);
    if (ok && buf_adds(&b, end, e)) return b.data;
    buf_free(&b);
    return NULL;
}

bool shelf_pinned(const shelf *s, const char *agent, const char *tag) {
    file_id id;
    char *path = shelf_agent_path(s, agent, tag, ".pin", NULL);
    bool there = path && file_examine(path, &id, NULL);
    mem_free(path);
    return there;
}

bool shelf_pin(shelf *s, const char *agent, const char *tag, bool pinned, err *e) {
    file_id id;
    file_writer w;
    char *path = shelf_agent_path(s, agent, tag, ".pin", e);
    bool there = false, ok = path && file_look(path, &there, &id, e);
    if (ok && pinned && !there) ok = file_writer_open(&w, path, e) && file_writer_commit(&w, e);
    else if (ok && !pinned && there) ok = file_remove(path, e);
    mem_free(path);
    return ok;
}

/* ---- the scan ---- */

typedef struct scan {
    shelf *s;
    const char *folder;
    shelf_table table, windows;
    uint64_t bytes, agents, window_bytes;
    char **foreign; /* paths that are none of ours */
    size_t n_foreign, cap_foreign;
    bool failed;
    err *e;
} scan;

static bool note_foreign(scan *x, char *path) {
    if (x->n_foreign == x->cap_foreign) {
        size_t cap = 2 * x->cap_foreign + 8;
        char **more = mem_realloc(x->foreign, cap, sizeof *more, x->e);
        if (!more) {
            mem_free(path);
            return false;
        }
        x->foreign = more, x->cap_foreign = cap;
    }
    x->foreign[x->n_foreign++] = path;
    return true;
}

static bool scan_block(void *user, const char *name) {
    scan *x = user;
    shelf_record r = {0};
    file_id id;
    char *path = shelf_join(x->folder, name, x->e);
    if (!path) return !(x->failed = true);
    bool ours = parse_block_name(name, &r.key, &r.reach), there = file_examine(path, &id, NULL);
    if (!ours && !shelf_is_remains(name)) return note_foreign(x, path) || !(x->failed = true);
    mem_free(path);
    if (!there) return true; /* another process deleted it */
    x->bytes += id.size;
    r.bytes = id.size;
    r.used = (uint32_t)(id.modified_ns / 1000000000);
    if (r.reach) x->window_bytes += id.size;
    if (ours && r.bytes && !table_add(r.reach ? &x->windows : &x->table, &r, x->e)) x->failed = true;
    return !x->failed;
}

static bool scan_agent(void *user, const char *name) {
    scan *x = user;
    size_t n = strlen(name), m = strlen(END);
    bool ref = n > m && strcmp(name + n - m, END) == 0;
    if (!ref && !shelf_is_remains(name)) return true;
    file_id id;
    char *path = shelf_join(x->folder, name, x->e);
    if (!path) return !(x->failed = true);
    if (file_examine(path, &id, NULL)) x->bytes += id.size, x->agents += ref;
    mem_free(path);
    return true;
}

static bool scan_bad(void *user, const char *name) {
    scan *x = user;
    file_id id;
    char *path = shelf_join(x->folder, name, x->e);
    if (!path) return !(x->failed = true);
    if (file_examine(path, &id, NULL)) x->bytes += id.size;
    mem_free(path);
    return true;
}

static bool scan_folder(scan *x, const char *folder, bool (*each)(void *, const char *)) {
    x->folder = folder;
    return file_list(folder, each, x, x->e) && !x->failed;
}

/* A folder of blocks: two digits. */
static bool scan_part(void *user, const char *name) {
    scan *x = user;
    char *path = shelf_join(x->folder, name, x->e);
    if (!path) return !(x->failed = true);
    if (strlen(name) != 2 || strspn(name, "0123456789abcdef") != 2) return note_foreign(x, path) || !(x->failed = true);
    const char *parent = x->folder;
    x->s->folder_made[strtoul(name, NULL, 16)] = true;
    bool ok = scan_folder(x, path, scan_block);
    x->folder = parent;
    mem_free(path);
    return ok || !(x->failed = true);
}

static uint64_t budget_of(const shelf *s, uint64_t bytes) {
    uint64_t room;
    if (s->budget_asked != SHELF_AUTO) return s->budget_asked;
    return file_room(s->folder, &room, NULL) ? (room + bytes) / 2 : s->stats.budget;
}

/* A file's time may be older than its last use. */
static void keep_times(shelf_table *now, const shelf_table *before) {
    for (size_t i = 0; i < now->n_slots; i++) {
        const shelf_record *old = now->slots[i].bytes ? table_find(before, &now->slots[i].key.name) : NULL;
        if (old && old->used > now->slots[i].used) now->slots[i].used = old->used;
    }
}

bool shelf_scan(shelf *s, err *e) {
    double start = clock_seconds();
    scan x = {.s = s, .e = e};
    char *blocks = shelf_join(s->folder, "blocks", e), *agents = shelf_join(s->folder, "agents", e), *bad = shelf_join(s->folder, "bad", e);
    bool ok = blocks && agents && bad && scan_folder(&x, blocks, scan_part) && scan_folder(&x, agents, scan_agent) && scan_folder(&x, bad, scan_bad);
    mem_free(blocks), mem_free(agents), mem_free(bad);
    for (size_t i = 0; i < x.n_foreign; i++) {
        if (ok) shelf_set_aside(s, x.foreign[i], "its name is none that hearth gives", NULL);
        mem_free(x.foreign[i]);
    }
    mem_free(x.foreign);
    if (!ok) {
        mem_free(x.table.slots), mem_free(x.windows.slots);
        return false;
    }
    pthread_mutex_lock(&s->lock);
    keep_times(&x.table, &s->table);
    keep_times(&x.windows, &s->windows);
    mem_free(s->table.slots), mem_free(s->windows.slots);
    s->table = x.table, s->windows = x.windows;
    s->stats.windows = x.windows.n, s->stats.window_bytes = x.window_bytes;
    s->stats.bytes = x.bytes;
    s->stats.blocks = x.table.n;
    s->stats.agents = x.agents;
    s->stats.budget = budget_of(s, x.bytes);
    s->stats.scan_seconds = clock_seconds() - start;
    pthread_mutex_unlock(&s->lock);
    return true;
}

/* The mark says which format the folder has, and writing it makes the folders beside it durable. */
static bool check_mark(shelf *s, err *e) {
    buf b = {0};
    file_id id;
    char *path = shelf_join(s->folder, "store.json", e);
    if (!path) return false;
    bool there, ok = file_look(path, &there, &id, e) && (!there || file_read(path, 4096, &b, e));
    if (ok && there && b.len > 0 && (b.len != strlen(MARK) || memcmp(b.data, MARK, b.len) != 0))
        ok = err_set(e, HEARTH_FORMAT, "%s: this store was made by another version of hearth; use another folder or delete it", s->folder);
    if (ok && (!there || b.len == 0)) {
        file_writer w;
        ok = file_writer_open(&w, path, e);
        if (ok && !file_writer_add(&w, MARK, strlen(MARK), e)) {
            file_writer_abort(&w);
            ok = false;
        } else if (ok) {
            ok = file_writer_commit(&w, e);
        }
    }
    buf_free(&b);
    mem_free(path);
    return ok;
}

shelf *shelf_open(const char *folder, uint64_t budget, err *e) {
    if (sodium_init() < 0) {
        err_set(e, HEARTH_UNSUPPORTED, "the library for hashing cannot be started");
        return NULL;
    }
    shelf *s = mem_zalloc(1, sizeof *s, e);
    if (!s) return NULL;
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->room, NULL);
    s->room_fd = -1;
    s->budget_asked = budget;
    randombytes_buf(&s->id, sizeof s->id);
    s->folder = mem_strndup(folder, strlen(folder), e);
    bool ok = s->folder != NULL;
    static const char *const parts[] = {"blocks", "agents", "bad"};
    for (size_t i = 0; ok && i < 3; i++) {
        char *path = shelf_join(folder, parts[i], e);
        ok = path && file_make_folder(path, e);
        mem_free(path);
    }
    ok = ok && check_mark(s, e) && shelf_scan(s, e);
    /* Counted anew while nobody writes; when others do all the time, their count will do. */
    if (ok && room_enter(s, e)) {
        ok = shelf_scan(s, e);
        room_leave(s);
    } else if (e && e->code != HEARTH_OK) {
        ok = false;
    }
    s->since_sweep = s->windows.n; /* a process that was killed has not looked through them */
    if (ok) return s;
    shelf_close(s);
    return NULL;
}

void shelf_close(shelf *s) {
    if (!s) return;
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->room);
    mem_free(s->table.slots), mem_free(s->windows.slots);
    mem_free(s->folder);
    mem_free(s);
}

const char *shelf_folder(const shelf *s) { return s->folder; }

/* ---- what is there ---- */

bool index_add(shelf *s, const shelf_record *r, err *e) {
    index_remove(s, &r->key.name, r->reach > 0);
    if (!table_add(r->reach ? &s->windows : &s->table, r, e)) return false;
    *(r->reach ? &s->stats.windows : &s->stats.blocks) += 1;
    if (r->reach) s->stats.window_bytes += r->bytes;
    return true;
}

void index_remove(shelf *s, const kv_name *name, bool window) {
    shelf_table *t = window ? &s->windows : &s->table;
    shelf_record *r = table_find(t, name);
    if (!r) return;
    *(window ? &s->stats.windows : &s->stats.blocks) -= 1;
    if (window) s->stats.window_bytes -= r->bytes;
    table_remove(t, r);
}

static bool look(shelf *s, const shelf_key *key, unsigned reach) {
    char *path = shelf_path(s, key, reach, NULL);
    file_id id;
    bool there = path && file_examine(path, &id, NULL) && id.size > 0;
    mem_free(path);
    if (!there) {
        shelf_forget(s, key, reach > 0);
        return false;
    }
    shelf_record r = {.key = *key, .reach = reach, .bytes = id.size, .used = (uint32_t)(id.modified_ns / 1000000000)};
    pthread_mutex_lock(&s->lock);
    if (!table_find(reach ? &s->windows : &s->table, &key->name)) index_add(s, &r, NULL);
    pthread_mutex_unlock(&s->lock);
    return true;
}

static bool known(shelf *s, const shelf_key *key, bool window) {
    pthread_mutex_lock(&s->lock);
    bool is = table_find(window ? &s->windows : &s->table, &key->name) != NULL;
    pthread_mutex_unlock(&s->lock);
    return is;
}

bool shelf_there(shelf *s, const shelf_key *key) { return look(s, key, 0); }
bool shelf_known(shelf *s, const shelf_key *key) { return known(s, key, false); }

bool shelf_window_known(shelf *s, const shelf_key *key, bool wanted) {
    const uint32_t now = shelf_now();
    pthread_mutex_lock(&s->lock);
    shelf_record *r = table_find(&s->windows, &key->name);
    const unsigned reach = r ? r->reach : 0;
    const bool tell = r && wanted && r->used + SHELF_GRACE / 2 < now;
    if (tell) r->used = now;
    pthread_mutex_unlock(&s->lock);
    char *path = tell ? shelf_path(s, key, reach, NULL) : NULL; /* other processes see the file's time */
    if (path) file_touch(path, NULL);
    mem_free(path);
    return reach > 0;
}

bool shelf_has_window(shelf *s, const shelf_key *key, unsigned reach) { return known(s, key, true) || look(s, key, reach); }

/* Another process may have written it since the scan. */
bool shelf_has(shelf *s, const shelf_key *key) { return shelf_known(s, key) || shelf_there(s, key); }

void shelf_used(shelf *s, const shelf_key *key) {
    uint32_t now = shelf_now(), before = now;
    pthread_mutex_lock(&s->lock);
    shelf_record *r = table_find(&s->table, &key->name);
    if (r) before = r->used, r->used = now;
    pthread_mutex_unlock(&s->lock);
    if (now - before < 600) return; /* the file's time need not be exact */
    char *path = shelf_path(s, key, 0, NULL);
    if (path) file_touch(path, NULL);
    mem_free(path);
}

void shelf_forget(shelf *s, const shelf_key *key, bool window) {
    pthread_mutex_lock(&s->lock);
    index_remove(s, &key->name, window);
    pthread_mutex_unlock(&s->lock);
}

shelf_stats shelf_get_stats(shelf *s) {
    pthread_mutex_lock(&s->lock);
    shelf_stats out = s->stats;
    pthread_mutex_unlock(&s->lock);
    return out;
}

void shelf_blocks(shelf *s, bool (*each)(void *user, const shelf_key *key, uint64_t bytes), void *user) {
    for (size_t i = 0; i < s->table.n_slots; i++) {
        const shelf_record *r = &s->table.slots[i], *window = r->bytes ? table_find(&s->windows, &r->key.name) : NULL;
        if (r->bytes && !each(user, &r->key, r->bytes + (window ? window->bytes : 0))) return;
    }
}

/* Each step goes to a smaller index, so that names that lie cannot make it a circle. */
const shelf_record *index_above(const shelf *s, const shelf_record *r) {
    const shelf_record *up = r->key.index ? table_find_start(&s->table, r->key.parent) : NULL;
    return up && up->key.index + 1 == r->key.index ? up : NULL;
}

size_t shelf_chain(shelf *s, const kv_name *head, uint64_t *bytes) {
    size_t n = 0;
    *bytes = 0;
    pthread_mutex_lock(&s->lock);
    for (const shelf_record *r = table_find(&s->table, head); r; r = index_above(s, r)) {
        const shelf_record *window = table_find(&s->windows, &r->key.name);
        n++;
        *bytes += r->bytes + (window ? window->bytes : 0);
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

unsigned shelf_reach(shelf *s, const kv_name *name) {
    pthread_mutex_lock(&s->lock);
    const shelf_record *w = table_find(&s->windows, name);
    unsigned reach = w ? w->reach : 0;
    pthread_mutex_unlock(&s->lock);
    return reach;
}

size_t shelf_windows(shelf *s, const kv_name *head) {
    size_t n = 0;
    pthread_mutex_lock(&s->lock);
    for (const shelf_record *r = table_find(&s->table, head); r && table_find(&s->windows, &r->key.name); r = index_above(s, r)) n++;
    pthread_mutex_unlock(&s->lock);
    return n;
}

typedef struct agent_walk {
    const char *folder;
    bool (*each)(void *user, const char *path, bool pinned);
    void *user;
    bool failed;
    err *e;
} agent_walk;

static bool walk_agent(void *user, const char *name) {
    agent_walk *w = user;
    size_t n = strlen(name), m = strlen(END);
    if (n <= m || strcmp(name + n - m, END) != 0) return true;
    file_id id;
    char *path = shelf_join(w->folder, name, w->e), *pin = path ? mem_strndup(path, strlen(path), w->e) : NULL;
    bool go_on = pin != NULL;
    if (pin) {
        strcpy(pin + strlen(pin) - m, ".pin");
        go_on = w->each(w->user, path, file_examine(pin, &id, NULL));
    } else {
        w->failed = true;
    }
    mem_free(path), mem_free(pin);
    return go_on;
}

bool shelf_agents(const shelf *s, bool (*each)(void *user, const char *path, bool pinned), void *user, err *e) {
    char *folder = shelf_join(s->folder, "agents", e);
    agent_walk w = {.folder = folder, .each = each, .user = user, .e = e};
    bool ok = folder && file_list(folder, walk_agent, &w, e) && !w.failed;
    mem_free(folder);
    return ok;
}
