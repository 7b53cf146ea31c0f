/* shelf_collect.c: making room, and taking away what is of no use. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/agent.h"
#include "store/shelf_inner.h"

enum { GRACE = 60, ORPHAN_GRACE = 600, MOST_BAD = 16 }; /* seconds: others may be about to finish what looks unfinished */

/* A block that may go. */
typedef struct victim {
    shelf_key key;
    uint64_t bytes, window_bytes;
    double worth;
    uint32_t used, children, reach; /* reach: of its window part; 0: there is none */
    bool pinned;
} victim;

/* An agent's file, of which the tail may go. */
typedef struct tail {
    char *path;
    double worth;
} tail;

typedef struct victims {
    victim *items; /* by the start of the name */
    size_t n;
    tail *tails;
    size_t n_tails, cap_tails;
    size_t *heap;  /* those that nothing builds on, least worth first: places in items, then in tails */
    size_t n_heap;
    bool failed;
} victims;

static void free_victims(victims *v) {
    for (size_t i = 0; i < v->n_tails; i++) mem_free(v->tails[i].path);
    mem_free(v->items), mem_free(v->tails), mem_free(v->heap);
    *v = (victims){0};
}

static int by_start(const void *a, const void *b) {
    uint64_t x = name_start(&((const victim *)a)->key.name), y = name_start(&((const victim *)b)->key.name);
    return (x > y) - (x < y);
}

static victim *find(const victims *v, uint64_t start) {
    victim wanted = {0};
    memcpy(&wanted.key.name, &start, sizeof start);
    return bsearch(&wanted, v->items, v->n, sizeof wanted, by_start);
}

static victim *parent_of(const victims *v, const victim *x) { return x->key.index ? find(v, x->key.parent) : NULL; }

/* Compute saved per byte, aged: every block holds as many tokens, and those later in a text cost more attention. */
static double worth_of(uint32_t index, uint32_t used, uint32_t now) {
    double age = now > used ? now - used : 0;
    return (1 + (double)index * 64 / 8192) / (age + 60);
}

static void pin_from(const victims *v, uint64_t start) {
    for (victim *x = find(v, start); x && !x->pinned; x = parent_of(v, x)) x->pinned = true;
}

/* Pinned agents keep what they have; of the others the tail may go. */
static bool take_agent(void *user, const char *path, bool pinned) {
    victims *v = user;
    kv_name head;
    file_id id;
    if (pinned) {
        if (agent_read_head(path, &head, NULL)) pin_from(v, name_start(&head));
        return true;
    }
    if (!file_examine(path, &id, NULL)) return true;
    if (v->n_tails == v->cap_tails) {
        size_t cap = 2 * v->cap_tails + 64;
        tail *more = mem_realloc(v->tails, cap, sizeof *more, NULL);
        if (!more) return !(v->failed = true);
        v->tails = more, v->cap_tails = cap;
    }
    char *copy = mem_strndup(path, strlen(path), NULL);
    if (!copy) return !(v->failed = true);
    v->tails[v->n_tails++] = (tail){.path = copy, .worth = worth_of(0, (uint32_t)(id.modified_ns / 1000000000), shelf_now())};
    return true;
}

static bool take_list(shelf *s, victims *v, err *e) {
    pthread_mutex_lock(&s->lock);
    v->items = mem_alloc(s->table.n + 1, sizeof *v->items, e);
    uint32_t now = shelf_now();
    for (size_t i = 0; v->items && i < s->table.n_slots; i++) {
        const shelf_record *r = &s->table.slots[i], *w = r->bytes ? table_find(&s->windows, &r->key.name) : NULL;
        if (!r->bytes) continue;
        v->items[v->n] = (victim){.key = r->key, .bytes = r->bytes, .used = r->used, .worth = worth_of(r->key.index, r->used, now)};
        if (w) v->items[v->n].reach = w->reach, v->items[v->n].window_bytes = w->bytes;
        v->n++;
    }
    pthread_mutex_unlock(&s->lock);
    if (!v->items) return false;
    qsort(v->items, v->n, sizeof *v->items, by_start);
    for (size_t i = 0; i < v->n; i++) {
        victim *p = parent_of(v, &v->items[i]);
        if (p) p->children++;
    }
    return true;
}

static double worth_at(const victims *v, size_t i) { return i < v->n ? v->items[i].worth : v->tails[i - v->n].worth; }

static void heap_add(victims *v, size_t item) {
    size_t at = v->n_heap++;
    for (; at > 0 && worth_at(v, v->heap[(at - 1) / 2]) > worth_at(v, item); at = (at - 1) / 2) v->heap[at] = v->heap[(at - 1) / 2];
    v->heap[at] = item;
}

static size_t heap_take(victims *v) {
    size_t out = v->heap[0], last = v->heap[--v->n_heap], at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= v->n_heap) break;
        if (child + 1 < v->n_heap && worth_at(v, v->heap[child + 1]) < worth_at(v, v->heap[child])) child++;
        if (worth_at(v, v->heap[child]) >= worth_at(v, last)) break;
        v->heap[at] = v->heap[child];
        at = child;
    }
    v->heap[at] = last;
    return out;
}

static void count_evicted(shelf *s, uint64_t bytes, uint64_t evictions) {
    pthread_mutex_lock(&s->lock);
    s->stats.bytes -= bytes < s->stats.bytes ? bytes : s->stats.bytes;
    s->stats.evictions += evictions;
    if (evictions) s->stats.evicted_bytes += bytes;
    pthread_mutex_unlock(&s->lock);
}

/* A file that another process has deleted already is as good as deleted. */
bool room_delete(shelf *s, const shelf_record *r, err *e) {
    file_id id;
    char *path = shelf_path(s, &r->key, r->reach, e);
    bool ok = path && (file_remove(path, NULL) || !file_examine(path, &id, NULL));
    if (path && !ok) err_set(e, HEARTH_IO, "%s: cannot be deleted", path);
    mem_free(path);
    if (ok) {
        shelf_forget(s, &r->key, r->reach > 0);
        count_evicted(s, r->bytes, 0);
    }
    return ok;
}

/* A block goes with its window part. */
static bool delete_block(shelf *s, const victim *x, err *e) {
    const shelf_record block = {.key = x->key, .bytes = x->bytes}, window = {.key = x->key, .reach = x->reach, .bytes = x->window_bytes};
    return (!x->reach || room_delete(s, &window, e)) && room_delete(s, &block, e);
}

static void evict_tail(shelf *s, const tail *t) {
    shelf_stats now = shelf_get_stats(s);
    uint64_t freed = 0;
    if (agent_strip(t->path, now.budget > now.bytes ? now.budget - now.bytes : 0, &freed) && freed) count_evicted(s, freed, 1);
}

static bool evict(shelf *s, victims *v, uint64_t most, err *e) {
    v->heap = mem_alloc(v->n + v->n_tails + 1, sizeof *v->heap, e);
    if (!v->heap) return false;
    for (size_t i = 0; i < v->n; i++)
        if (v->items[i].children == 0 && !v->items[i].pinned) heap_add(v, i);
    for (size_t i = 0; i < v->n_tails; i++) heap_add(v, v->n + i);
    while (v->n_heap && shelf_get_stats(s).bytes > most) {
        size_t i = heap_take(v);
        if (i >= v->n) {
            evict_tail(s, &v->tails[i - v->n]);
            continue;
        }
        victim *x = &v->items[i], *p = parent_of(v, x);
        if (!delete_block(s, x, e)) return false;
        count_evicted(s, 0, 1);
        pthread_mutex_lock(&s->lock);
        s->stats.evicted_bytes += x->bytes + x->window_bytes;
        pthread_mutex_unlock(&s->lock);
        if (p && --p->children == 0 && !p->pinned) heap_add(v, (size_t)(p - v->items));
    }
    return true;
}

static int by_index(const void *a, const void *b) {
    const victim *x = *(victim *const *)a, *y = *(victim *const *)b;
    return (x->key.index > y->key.index) - (x->key.index < y->key.index);
}

/* Blocks whose parent is gone cannot be reached. Parents are looked at before children, so that whole branches go. */
static bool collect_orphans(shelf *s, victims *v, err *e) {
    victim **order = mem_alloc(v->n + 1, sizeof *order, e);
    if (!order) return false;
    uint32_t now = shelf_now();
    for (size_t i = 0; i < v->n; i++) order[i] = &v->items[i];
    qsort(order, v->n, sizeof *order, by_index);
    bool ok = true;
    for (size_t i = 0; ok && i < v->n; i++) {
        if (order[i]->key.index == 0 || order[i]->used + ORPHAN_GRACE > now) continue;
        pthread_mutex_lock(&s->lock);
        bool orphan = !table_find_start(&s->table, order[i]->key.parent);
        s->stats.orphans += orphan;
        pthread_mutex_unlock(&s->lock);
        if (orphan) ok = delete_block(s, order[i], e);
    }
    mem_free(order);
    return ok;
}

/* ---- remains of interrupted writes ---- */

static bool remove_remains(void *user, const char *name) {
    const char *folder = user;
    if (!shelf_is_remains(name)) return true;
    file_id id;
    char *path = shelf_join(folder, name, NULL);
    if (path && file_examine(path, &id, NULL) && id.modified_ns / 1000000000 + GRACE < shelf_now()) file_remove(path, NULL);
    mem_free(path);
    return true;
}

static bool remove_remains_below(void *user, const char *name) {
    char *path = shelf_join(user, name, NULL);
    if (path && strlen(name) == 2) file_list(path, remove_remains, path, NULL);
    mem_free(path);
    return true;
}

bool room_collect(shelf *s, uint64_t most, const shelf_file *spare, err *e) {
    char *blocks = shelf_join(s->folder, "blocks", e), *agents = shelf_join(s->folder, "agents", e);
    bool ok = blocks && agents;
    if (ok) file_list(blocks, remove_remains_below, blocks, NULL), file_list(agents, remove_remains, agents, NULL);
    mem_free(blocks), mem_free(agents);
    victims v = {0};
    ok = ok && shelf_scan(s, e) && take_list(s, &v, e) && collect_orphans(s, &v, e);
    s->others = s->others && !ok;
    free_victims(&v);
    ok = ok && room_sweep(s, SHELF_GRACE, e);
    if (ok && shelf_get_stats(s).bytes > most) ok = shelf_clear_bad(s, e) && shelf_scan(s, e);
    ok = ok && take_list(s, &v, e) && shelf_agents(s, take_agent, &v, e);
    if (ok && v.failed) ok = err_nomem(e, 0);
    if (ok && spare && spare->reach) pin_from(&v, name_start(&spare->key.name));
    else if (ok && spare && spare->key.index) pin_from(&v, spare->key.parent);
    ok = ok && evict(s, &v, most, e);
    free_victims(&v);
    return ok;
}

/* ---- what did not check out ---- */

static bool count_one(void *user, const char *name) {
    (void)name;
    ++*(size_t *)user;
    return true;
}

bool shelf_set_aside(shelf *s, const char *path, const char *why, err *e) {
    char *bad = shelf_join(s->folder, "bad", e), *to = NULL, *reason = NULL;
    const char *slash = strrchr(path, '/');
    size_t there = 0;
    bool ok = bad != NULL;
    if (ok) {
        to = shelf_join(bad, slash ? slash + 1 : path, e);
        reason = to ? mem_alloc(strlen(to) + 5, 1, e) : NULL;
        ok = reason != NULL;
    }
    if (ok) {
        file_list(bad, count_one, &there, NULL);
        strcat(strcpy(reason, to), ".why");
        /* A failing disk must not fill up with what it damaged. */
        ok = there >= 2 * MOST_BAD ? file_remove(path, e) : file_rename(path, to, e);
        file_writer w;
        if (ok && there < 2 * MOST_BAD && file_writer_open(&w, reason, NULL)) {
            if (file_writer_add(&w, why, strlen(why), NULL) && file_writer_add(&w, "\n", 1, NULL)) file_writer_commit(&w, NULL);
            else file_writer_abort(&w);
        }
        pthread_mutex_lock(&s->lock);
        s->stats.set_aside += ok;
        if (ok && strstr(path, "/agents/") && s->stats.agents) s->stats.agents--;
        pthread_mutex_unlock(&s->lock);
    }
    mem_free(bad), mem_free(to), mem_free(reason);
    return ok;
}

static bool remove_any(void *user, const char *name) {
    char *path = shelf_join(user, name, NULL);
    if (path) file_remove(path, NULL);
    mem_free(path);
    return true;
}

bool shelf_clear_bad(shelf *s, err *e) {
    char *bad = shelf_join(s->folder, "bad", e);
    bool ok = bad && file_list(bad, remove_any, bad, e);
    mem_free(bad);
    return ok;
}
