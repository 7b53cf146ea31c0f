#include "store/verify.h"

#include "store/agent.h"
#include "store/blockfile.h"
#include "store/shelf_inner.h"

typedef struct verifying {
    shelf *s;
    verify_each *each;
    void *user;
    bool stopped;
} verifying;

static bool tell(verifying *v, const char *path, uint64_t bytes, const err *why) {
    bool aside = why->code == HEARTH_FORMAT && shelf_set_aside(v->s, path, why->text, NULL);
    v->stopped = !v->each(v->user, path, bytes, why, aside);
    return !v->stopped;
}

/* Gone since it was listed: that is no damage. */
static bool gone(const char *path) {
    file_id id;
    bool there = true;
    return file_look(path, &there, &id, NULL) && !there;
}

static bool verify_block(verifying *v, const shelf_record *r, err *e) {
    err why = {0};
    char *path = shelf_path(v->s, &r->key, r->reach, e);
    if (!path) return false;
    bool whole = blockfile_verify(path, &r->key, r->reach > 0, &why);
    if (why.code == HEARTH_FORMAT) shelf_forget(v->s, &r->key, r->reach > 0);
    bool go_on = (!whole && gone(path)) || tell(v, path, r->bytes, &why);
    mem_free(path);
    return go_on;
}

static bool verify_agent(void *user, const char *path, bool pinned) {
    (void)pinned;
    agent_record a;
    err why = {0};
    uint64_t bytes = 0;
    if (agent_read(path, NULL, &a, &why)) {
        bytes = a.bytes;
        agent_free(&a);
    } else if (gone(path)) {
        return true;
    }
    return tell(user, path, bytes, &why);
}

bool shelf_verify(shelf *s, verify_each *each, void *user, err *e) {
    verifying v = {.s = s, .each = each, .user = user};
    pthread_mutex_lock(&s->lock);
    shelf_record *list = mem_alloc(s->table.n + s->windows.n + 1, sizeof *list, e);
    const shelf_table *const tables[] = {&s->table, &s->windows};
    size_t n = 0;
    for (size_t t = 0; list && t < 2; t++)
        for (size_t i = 0; i < tables[t]->n_slots; i++)
            if (tables[t]->slots[i].bytes) list[n++] = tables[t]->slots[i];
    pthread_mutex_unlock(&s->lock);
    bool ok = list != NULL;
    for (size_t i = 0; ok && !v.stopped && i < n; i++) ok = verify_block(&v, &list[i], e) || v.stopped;
    mem_free(list);
    return ok && (v.stopped || shelf_agents(s, verify_agent, &v, e));
}
