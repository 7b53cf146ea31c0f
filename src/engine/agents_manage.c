/* agents_manage.c: looking at agents, making, forking, rewinding, pinning, evicting and forgetting them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/agents_inner.h"

/* ---- looking ---- */

agents_result agents_is_there(agents *a, const char *name, const char *tag, err *e) {
    file_id id;
    bool there = false;
    char *path = shelf_agent_path(store_shelf(a->engine->store), name, tag, ".safetensors", e);
    bool ok = path && file_look(path, &there, &id, e);
    mem_free(path);
    if (ok && !there) err_set(e, HEARTH_ARGUMENT, "there is no agent '%s'", name);
    return !ok ? AGENTS_FAILED : there ? AGENTS_OK : AGENTS_UNKNOWN;
}

void agent_info_free(agent_info *i) { agent_free(&i->record); }

/* The name of the last thing that is kept of an agent: its head, or the tail of one that fills no block. */
static bool last_name(const agents *a, const char *tenant, const agent_record *r, kv_name *out) {
    kv_seq seq;
    recall_start(a->engine, &seq, tenant, false);
    *out = r->head;
    if (r->n_tokens >= KV_BLOCK) return true;
    if (r->n_tokens == 0 || !kv_name_equal(&r->root, &seq.chain.root)) return false;
    *out = kv_name_next(&seq.chain, &r->root, r->tokens, r->n_tokens);
    return true;
}

static agent_tier tier_of(const agents *a, const char *tenant, const agent_record *r, size_t n_blocks) {
    kv_name name;
    if (last_name(a, tenant, r, &name) && kv_cache_has(a->engine->kv_cache, &name)) return AGENT_HOT;
    if (!recall_fits(a->engine, tenant, r)) return AGENT_COLD;
    if (r->n_tokens >= KV_BLOCK) return n_blocks == r->n_tokens / KV_BLOCK ? AGENT_WARM : AGENT_COLD;
    return r->bytes >= kv_packed_bytes(&a->engine->model.kv, (int)r->n_tokens) ? AGENT_WARM : AGENT_COLD;
}

/* The rest of what is told of an agent whose record was read. */
static void complete(agents *a, const char *tenant, bool pinned, agent_info *i) {
    const agent_record *r = &i->record;
    size_t n_blocks = shelf_chain(store_shelf(a->engine->store), &r->head, &i->bytes);
    i->tier = tier_of(a, tenant, r, n_blocks);
    i->bytes += r->bytes;
    i->pinned = pinned;
    i->this_model = strcmp(r->model, a->engine->kv_model) == 0;
    pthread_mutex_lock(&a->lock);
    i->running = agents_is_running(a, r->name, r->tag);
    if (i->running && i->this_model) i->tier = AGENT_HOT;
    pthread_mutex_unlock(&a->lock);
}

agents_result agents_get(agents *a, const char *name, const char *tenant, agent_info *out, err *e) {
    char tag[17];
    *out = (agent_info){0};
    agent_tag(tenant, tag);
    if (!agents_have_store(a, e)) return AGENTS_FAILED;
    agents_result there = agents_is_there(a, name, tag, e);
    if (there != AGENTS_OK) return there;
    const shelf *s = store_shelf(a->engine->store);
    char *path = shelf_agent_path(s, name, tag, ".safetensors", e);
    bool ok = path && agent_read(path, NULL, &out->record, e);
    if (ok) complete(a, tenant, shelf_pinned(s, name, tag), out);
    mem_free(path);
    return ok ? AGENTS_OK : AGENTS_FAILED;
}

/* The files of a tenant's agents. */
typedef struct found {
    char *path;
    int64_t used_ns;
    bool pinned;
} found;

typedef struct listing {
    char tag[17];
    found *items;
    size_t n, cap;
    err *e;
    bool failed;
} listing;

/* Names are written so that the only @ stands before the tag. */
static bool has_tag(const char *path, const char *tag) {
    const char *slash = strrchr(path, '/'), *at = strchr(slash ? slash : path, '@');
    size_t n = strlen(tag);
    return at ? n && strncmp(at + 1, tag, n) == 0 && at[1 + n] == '.' : !n;
}

static bool note_file(void *user, const char *path, bool pinned) {
    listing *l = user;
    file_id id;
    if (!has_tag(path, l->tag) || !file_examine(path, &id, NULL)) return true;
    if (l->n == l->cap) {
        size_t cap = 2 * l->cap + 64;
        found *items = mem_realloc(l->items, cap, sizeof *items, l->e);
        if (items) l->items = items, l->cap = cap;
    }
    char *copy = l->n < l->cap ? mem_strndup(path, strlen(path), l->e) : NULL;
    l->failed = !copy;
    if (copy) l->items[l->n++] = (found){.path = copy, .used_ns = id.modified_ns, .pinned = pinned};
    return copy != NULL;
}

static int by_use(const void *a, const void *b) {
    const found *x = a, *y = b;
    return x->used_ns != y->used_ns ? (x->used_ns < y->used_ns) - (x->used_ns > y->used_ns) : strcmp(x->path, y->path);
}

/* Where the list begins: at its start, or behind the agent of this name. */
static bool find_start(const agents *a, const listing *l, const char *after, size_t *from, err *e) {
    *from = 0;
    if (!after) return true;
    char *path = shelf_agent_path(store_shelf(a->engine->store), after, l->tag, ".safetensors", e);
    if (!path) return false;
    while (*from < l->n && strcmp(l->items[*from].path, path) != 0) ++*from;
    mem_free(path);
    return ++*from <= l->n || err_set(e, HEARTH_ARGUMENT, "there is no agent '%s' for others to come after", after);
}

bool agents_list(agents *a, const char *tenant, const agents_range *range, bool *more, bool (*each)(void *user, const agent_info *i), void *user, err *e) {
    listing l = {.e = e};
    size_t i = 0, given = 0;
    agent_tag(tenant, l.tag);
    bool ok = agents_have_store(a, e) && shelf_agents(store_shelf(a->engine->store), note_file, &l, e) && !l.failed;
    if (ok && l.n) qsort(l.items, l.n, sizeof *l.items, by_use);
    ok = ok && find_start(a, &l, range->after, &i, e);
    for (bool go_on = true; ok && go_on && i < l.n && given < range->most; i++) {
        agent_info info = {0};
        /* One that is damaged or was deleted meanwhile is not there. */
        if (!agent_glance(l.items[i].path, &info.record, NULL)) continue;
        complete(a, tenant, l.items[i].pinned, &info);
        go_on = each(user, &info);
        given++;
        agent_info_free(&info);
    }
    *more = ok && i < l.n;
    for (size_t k = 0; k < l.n; k++) mem_free(l.items[k].path);
    mem_free(l.items);
    return ok;
}

/* ---- changing ---- */

/* Writes the agent as it is to be, and returns when it is on disk. What is in memory of its tokens gives it a tail. */
static agents_result write_agent(agent_turn *t, const int32_t *tokens, size_t n, const char *note, size_t note_len, int64_t created, err *e) {
    hearth_engine *en = t->owner->engine;
    const model *m = &en->model;
    agent_record r = {.created = created, .hits = t->before.hits, .note_len = note_len};
    memcpy(r.tag, t->tag, sizeof r.tag);
    r.name = mem_strndup(t->name, strlen(t->name), e);
    r.note = note_len ? mem_strndup(note, note_len, e) : NULL;
    if (!r.name || (note_len && !r.note)) {
        agent_free(&r);
        return AGENTS_FAILED;
    }
    kv_seq seq;
    recall_start(en, &seq, t->tenant, m->rope.full_long && n > (size_t)m->params.original_context);
    recall_find(en, &seq, tokens, n, true);
    bool ok = recall_save(en, &seq, tokens, n, &r, e) && store_flush(en->store, e);
    recall_end(en, &seq, tokens);
    return ok ? AGENTS_OK : AGENTS_FAILED;
}

agents_result agents_fork(agents *a, const char *from, const char *name, const char *tenant, err *e) {
    char tag[17];
    err why = {0};
    agent_tag(tenant, tag);
    if (!agents_have_store(a, e)) return AGENTS_FAILED;
    agents_result result = agents_is_there(a, from, tag, e);
    if (result != AGENTS_OK) return result;
    if (agents_is_there(a, name, tag, NULL) == AGENTS_OK) {
        err_set(e, HEARTH_ARGUMENT, "the agent '%s' is there already", name);
        return AGENTS_EXISTS;
    }
    if (store_fork(a->engine->store, from, name, tag, &why)) return AGENTS_OK;
    if (e) *e = why;
    return why.code == HEARTH_LIMIT ? AGENTS_BUSY : AGENTS_FAILED;
}

agents_result agents_create(agents *a, const char *name, const char *tenant, err *e) {
    agent_turn *t;
    agents_result result = agents_take_any(a, name, tenant, true, 0, &t, e);
    if (result != AGENTS_OK) return result;
    if (t->before.name) {
        err_set(e, HEARTH_ARGUMENT, "the agent '%s' is there already", name);
        result = AGENTS_EXISTS;
    } else {
        result = write_agent(t, NULL, 0, NULL, 0, (int64_t)time(NULL), e);
    }
    agent_turn_drop(t);
    return result;
}

agents_result agents_rewind(agents *a, const char *name, const char *tenant, size_t n_tokens, const char *note, size_t note_len, err *e) {
    agent_turn *t;
    agents_result result = agents_take(a, name, tenant, false, 0, &t, e);
    if (result != AGENTS_OK) return result;
    if (n_tokens > t->before.n_tokens) {
        err_set(e, HEARTH_ARGUMENT, "the agent '%s' has only %zu tokens, so that it cannot go back to %zu", name, t->before.n_tokens, n_tokens);
        result = AGENTS_FAILED;
    } else {
        result = write_agent(t, t->before.tokens, n_tokens, note, note_len, t->before.created, e);
    }
    agent_turn_drop(t);
    return result;
}

agents_result agents_pin(agents *a, const char *name, const char *tenant, bool pinned, err *e) {
    char tag[17];
    agent_tag(tenant, tag);
    if (!agents_have_store(a, e)) return AGENTS_FAILED;
    agents_result result = agents_is_there(a, name, tag, e);
    if (result == AGENTS_OK && !shelf_pin(store_shelf(a->engine->store), name, tag, pinned, e)) result = AGENTS_FAILED;
    return result;
}

agents_result agents_evict(agents *a, const char *name, const char *tenant, err *e) {
    agent_info i;
    kv_name last;
    agents_result result = agents_get(a, name, tenant, &i, e);
    if (result != AGENTS_OK) return result;
    kv_cache *cache = a->engine->kv_cache;
    kv_seq seq;
    recall_start(a->engine, &seq, tenant, false);
    const agent_record *r = &i.record;
    size_t tail = r->n_tokens % KV_BLOCK;
    /* Blocks that wait to be written are held until they are. */
    if (!store_flush(a->engine->store, e)) result = AGENTS_FAILED;
    if (result == AGENTS_OK && tail && r->n_tokens >= KV_BLOCK && kv_name_equal(&r->root, &seq.chain.root)) {
        last = kv_name_next(&seq.chain, &r->head, r->tokens + r->n_tokens - tail, tail);
        kv_cache_forget(cache, &last);
    }
    if (result == AGENTS_OK && last_name(a, tenant, r, &last)) kv_cache_forget(cache, &last);
    agent_info_free(&i);
    return result;
}

agents_result agents_remove(agents *a, const char *name, const char *tenant, err *e) {
    agent_turn *t;
    agents_result result = agents_take_any(a, name, tenant, false, 0, &t, e);
    if (result != AGENTS_OK) return result;
    bool ok = store_remove(a->engine->store, name, t->tag, e);
    agent_turn_drop(t);
    return ok ? AGENTS_OK : AGENTS_FAILED;
}
