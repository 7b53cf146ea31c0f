/* shelf_sweep.c: which window parts are needed, and deleting the others. A window part is of use only where all that a conversation's next token sees of windowed layers are there:
 * at a place. Places are made where turns and prompts end and where conversations part (store.c); who moves on leaves the old ones behind. */
#include <string.h>

#include "store/agent.h"
#include "store/shelf_inner.h"

typedef struct sweep {
    shelf *s;
    kv_name *heads; /* of agents */
    size_t n_heads, cap_heads;
    uint32_t *children; /* of each slot of the table of blocks */
    bool *needed;       /* each slot of the table of window parts */
    bool failed;
} sweep;

static bool add_head(void *user, const char *path, bool pinned) {
    (void)pinned;
    sweep *x = user;
    kv_name head;
    if (!agent_read_head(path, &head, NULL)) return true;
    if (x->n_heads == x->cap_heads) {
        size_t cap = 2 * x->cap_heads + 64;
        kv_name *more = mem_realloc(x->heads, cap, sizeof *more, NULL);
        if (!more) return !(x->failed = true);
        x->heads = more, x->cap_heads = cap;
    }
    x->heads[x->n_heads++] = head;
    return true;
}

/* From an end upward: what is there until so many places were found whole. What is before the last of them is not needed for this end; what is after it may be a place
 * that is being written. */
static void mark(sweep *x, const shelf_record *end, int places) {
    const shelf *s = x->s;
    uint32_t in_a_row = 0;
    for (const shelf_record *r = end; r && places > 0; r = index_above(s, r)) {
        const shelf_record *w = table_find(&s->windows, &r->key.name);
        in_a_row = w ? in_a_row + 1 : 0;
        if (w) x->needed[w - s->windows.slots] = true;
        if (w && in_a_row >= w->reach) in_a_row = 0, places--;
    }
}

/* An end keeps two places: its own, and the one before, which is where its last prompt ended. An answer may be made again, and the thoughts in it are often not part of the next
 * prompt. Under the lock. */
enum { PLACES = 2 };

static void mark_all(sweep *x) {
    const shelf *s = x->s;
    for (size_t i = 0; i < s->table.n_slots; i++) {
        const shelf_record *up = s->table.slots[i].bytes ? index_above(s, &s->table.slots[i]) : NULL;
        if (up) x->children[up - s->table.slots]++;
    }
    for (size_t i = 0; i < s->table.n_slots; i++) {
        if (s->table.slots[i].bytes && x->children[i] != 1) mark(x, &s->table.slots[i], x->children[i] ? 1 : PLACES);
    }
    for (size_t i = 0; i < x->n_heads; i++) mark(x, table_find(&s->table, &x->heads[i]), PLACES);
}

/* Copies of the records of all that is not needed. */
static shelf_record *list_others(const sweep *x, size_t *n, err *e) {
    const shelf_table *t = &x->s->windows;
    shelf_record *list = mem_alloc(t->n + 1, sizeof *list, e);
    *n = 0;
    for (size_t i = 0; list && i < t->n_slots; i++)
        if (t->slots[i].bytes && !x->needed[i]) list[(*n)++] = t->slots[i];
    return list;
}

bool room_sweep(shelf *s, err *e) {
    sweep x = {.s = s};
    size_t n = 0;
    if (shelf_get_stats(s).windows == 0) return true;
    bool ok = shelf_agents(s, add_head, &x, e);
    if (ok && x.failed) ok = err_nomem(e, 0);
    pthread_mutex_lock(&s->lock);
    x.children = ok ? mem_zalloc(s->table.n_slots + 1, sizeof *x.children, e) : NULL;
    x.needed = ok ? mem_zalloc(s->windows.n_slots + 1, sizeof *x.needed, e) : NULL;
    ok = x.children && x.needed;
    if (ok) mark_all(&x);
    shelf_record *list = ok ? list_others(&x, &n, e) : NULL;
    s->since_sweep = 0;
    pthread_mutex_unlock(&s->lock);
    ok = list != NULL;
    for (size_t i = 0; ok && i < n; i++) ok = room_delete(s, &list[i], e);
    mem_free(list), mem_free(x.heads), mem_free(x.children), mem_free(x.needed);
    return ok;
}

/* Looking through all of them is worth it when a good part of them is new. */
static bool is_due(shelf *s) {
    pthread_mutex_lock(&s->lock);
    bool due = s->since_sweep >= 4 && 4 * s->since_sweep >= s->windows.n && 64 * s->since_sweep >= s->stats.agents;
    pthread_mutex_unlock(&s->lock);
    return due;
}

bool shelf_sweep(shelf *s, bool now, err *e) {
    err why = {0};
    if (!now && !is_due(s)) return true;
    if (!room_enter(s, &why)) {
        if (why.code != HEARTH_OK && e) *e = why;
        return why.code == HEARTH_OK;
    }
    bool ok = !s->others || shelf_scan(s, e);
    s->others = s->others && !ok;
    ok = ok && room_sweep(s, e);
    room_leave(s);
    return ok;
}
