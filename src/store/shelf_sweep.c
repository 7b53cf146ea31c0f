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

static shelf_record *window_of(const shelf *s, const shelf_record *block) { return table_find(&s->windows, &block->key.name); }

static void need(sweep *x, const shelf_record *window) { x->needed[window - x->s->windows.slots] = true; }

/* From a block upward all that is there, until a place is whole: what comes before it may be a place that is being written. Returns the block above, or NULL. */
static const shelf_record *need_place(sweep *x, const shelf_record *r) {
    for (uint32_t in_a_row = 0; r; r = index_above(x->s, r)) {
        const shelf_record *w = window_of(x->s, r);
        in_a_row = w ? in_a_row + 1 : 0;
        if (w) need(x, w);
        if (w && in_a_row >= w->reach) return index_above(x->s, r);
    }
    return NULL;
}

/* The place before the one that ends above this block: what follows it without a gap, for the two overlap then; otherwise the next that is whole. */
static void need_one_before(sweep *x, const shelf_record *r) {
    const shelf_record *start = NULL;
    const bool overlaps = r && window_of(x->s, r);
    for (uint32_t in_a_row = 0; r; r = index_above(x->s, r)) {
        const shelf_record *w = window_of(x->s, r);
        if (!w && overlaps) return;
        in_a_row = w ? in_a_row + 1 : 0;
        if (in_a_row == 1) start = r;
        if (w && overlaps) need(x, w);
        if (!w || in_a_row < w->reach) continue;
        for (uint32_t i = 0; i < in_a_row; i++, start = index_above(x->s, start)) need(x, window_of(x->s, start));
        return;
    }
}

/* An end keeps two places: its own, and the one before, which is where its last prompt ended. An answer may be made again, and the thoughts in it are often not part of the next
 * prompt. Where conversations part one will do. Under the lock. */
static void need_all(sweep *x) {
    const shelf *s = x->s;
    for (size_t i = 0; i < s->table.n_slots; i++) {
        const shelf_record *up = s->table.slots[i].bytes ? index_above(s, &s->table.slots[i]) : NULL;
        if (up) x->children[up - s->table.slots]++;
    }
    for (size_t i = 0; i < s->table.n_slots; i++) {
        if (!s->table.slots[i].bytes || x->children[i] == 1) continue;
        const shelf_record *above = need_place(x, &s->table.slots[i]);
        if (!x->children[i]) need_one_before(x, above);
    }
    for (size_t i = 0; i < x->n_heads; i++) need_one_before(x, need_place(x, table_find(&s->table, &x->heads[i])));
}

/* Copies of the records of all that is not needed, nor was wanted since. */
static shelf_record *list_others(const sweep *x, uint32_t since, size_t *n, err *e) {
    const shelf_table *t = &x->s->windows;
    shelf_record *list = mem_alloc(t->n + 1, sizeof *list, e);
    *n = 0;
    for (size_t i = 0; list && i < t->n_slots; i++)
        if (t->slots[i].bytes && !x->needed[i] && t->slots[i].used < since) list[(*n)++] = t->slots[i];
    return list;
}

bool room_sweep(shelf *s, uint32_t grace, err *e) {
    sweep x = {.s = s};
    size_t n = 0;
    if (shelf_get_stats(s).windows == 0) return true;
    bool ok = shelf_agents(s, add_head, &x, e);
    if (ok && x.failed) ok = err_nomem(e, 0);
    pthread_mutex_lock(&s->lock);
    x.children = ok ? mem_zalloc(s->table.n_slots + 1, sizeof *x.children, e) : NULL;
    x.needed = ok ? mem_zalloc(s->windows.n_slots + 1, sizeof *x.needed, e) : NULL;
    ok = x.children && x.needed;
    if (ok) need_all(&x);
    shelf_record *list = ok ? list_others(&x, shelf_now() + 1 - grace, &n, e) : NULL;
    s->since_sweep = 0;
    pthread_mutex_unlock(&s->lock);
    ok = list != NULL;
    for (size_t i = 0; ok && i < n; i++) ok = room_delete(s, &list[i], e);
    mem_free(list), mem_free(x.heads), mem_free(x.children), mem_free(x.needed);
    return ok;
}

/* Looking through all of them is worth it when a good part of them is new. */
bool shelf_sweep_due(shelf *s) {
    pthread_mutex_lock(&s->lock);
    bool due = s->since_sweep >= 4 && 4 * s->since_sweep >= s->windows.n && 64 * s->since_sweep >= s->stats.agents;
    pthread_mutex_unlock(&s->lock);
    return due;
}

bool shelf_sweep(shelf *s, uint32_t grace, err *e) {
    err why = {0};
    if (!room_enter(s, &why)) {
        if (why.code != HEARTH_OK && e) *e = why;
        return why.code == HEARTH_OK;
    }
    bool ok = !s->others || shelf_scan(s, e);
    s->others = s->others && !ok;
    ok = ok && room_sweep(s, grace, e);
    room_leave(s);
    return ok;
}
