/* agents_manage.c: looking at agents, making, rewinding, pinning, evicting and forgetting them. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/agents_inner.h"

/* ---- what this process counts ---- */

static known_agent *find_known(const agents *a, const char *name, const char *tag) {
    for (size_t i = 0; i < a->n_known; i++)
        if (strcmp(a->known[i].name, name) == 0 && strcmp(a->known[i].tag, tag) == 0) return &a->known[i];
    return NULL;
}

void agents_count_hit(agents *a, const agent_turn *t) {
    if (t->before.n_tokens == 0) return;
    known_agent *k = find_known(a, t->name, t->tag);
    if (!k && a->n_known == a->cap_known) {
        size_t cap = 2 * a->cap_known + 16;
        known_agent *known = mem_realloc(a->known, cap, sizeof *known, NULL);
        if (!known) return; /* only a count */
        a->known = known;
        a->cap_known = cap;
    }
    if (!k) {
        char *name = mem_strndup(t->name, strlen(t->name), NULL);
        if (!name) return;
        k = &a->known[a->n_known++];
        *k = (known_agent){.name = name};
        memcpy(k->tag, t->tag, sizeof k->tag);
    }
    k->hits++;
}

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
    const known_agent *k = find_known(a, r->name, r->tag);
    i->hits = k ? k->hits : 0;
    i->running = agents_is_running(a, r->name, r->tag);
    if (i->running && i->this_model) i->tier = AGENT_HOT;
    pthread_mutex_unlock(&a->lock);
}

agents_result agents_get(agents *a, const char *name, const char *tenant, agent_info *out, err *e) {
    char tag[17];
    file_id id;
    *out = (agent_info){0};
    agent_tag(tenant, tag);
    if (!agents_have_store(a, e)) return AGENTS_FAILED;
    agents_result there = agents_is_there(a, name, tag, e);
    if (there != AGENTS_OK) return there;
    const shelf *s = store_shelf(a->engine->store);
    char *path = shelf_agent_path(s, name, tag, ".safetensors", e), *pin = path ? shelf_agent_path(s, name, tag, ".pin", e) : NULL;
    bool ok = pin && agent_read(path, NULL, &out->record, e);
    if (ok) complete(a, tenant, file_examine(pin, &id, NULL), out);
    mem_free(path), mem_free(pin);
    return ok ? AGENTS_OK : AGENTS_FAILED;
}

typedef struct listing {
    agents *a;
    const char *tenant;
    char tag[17];
    bool (*each)(void *user, const agent_info *i);
    void *user;
} listing;

static bool list_one(void *user, const char *path, bool pinned) {
    listing *l = user;
    agent_info i = {0};
    bool go_on = true;
    /* One that is damaged or was deleted meanwhile is not there. */
    if (!agent_glance(path, &i.record, NULL)) return true;
    if (strcmp(i.record.tag, l->tag) == 0) {
        complete(l->a, l->tenant, pinned, &i);
        go_on = l->each(l->user, &i);
    }
    agent_info_free(&i);
    return go_on;
}

bool agents_list(agents *a, const char *tenant, bool (*each)(void *user, const agent_info *i), void *user, err *e) {
    listing l = {.a = a, .tenant = tenant, .each = each, .user = user};
    agent_tag(tenant, l.tag);
    return agents_have_store(a, e) && shelf_agents(store_shelf(a->engine->store), list_one, &l, e);
}

/* ---- changing ---- */

/* Writes the agent as it is to be, and returns when it is on disk. What is in memory of its tokens gives it a tail. */
static agents_result write_agent(agent_turn *t, const int32_t *tokens, size_t n, const char *note, size_t note_len, int64_t created, err *e) {
    hearth_engine *en = t->owner->engine;
    const model *m = &en->model;
    agent_record r = {.created = created, .note_len = note_len};
    memcpy(r.tag, t->tag, sizeof r.tag);
    r.name = mem_strndup(t->name, strlen(t->name), e);
    r.note = note_len ? mem_strndup(note, note_len, e) : NULL;
    if (!r.name || (note_len && !r.note)) {
        agent_free(&r);
        return AGENTS_FAILED;
    }
    kv_seq seq;
    recall_start(en, &seq, t->tenant, m->rope.full_long && n > (size_t)m->params.original_context);
    recall_find(en, &seq, tokens, n);
    bool ok = recall_save(en, &seq, tokens, n, &r, e) && store_flush(en->store, e);
    recall_end(en, &seq, tokens);
    return ok ? AGENTS_OK : AGENTS_FAILED;
}

agents_result agents_create(agents *a, const char *name, const char *from, const char *tenant, err *e) {
    agent_turn *t;
    agent_record source = {0};
    agents_result result = AGENTS_OK;
    if (from && agents_have_store(a, e)) {
        /* Where it was at the end of its last turn; one that runs is not waited for. */
        store_flush(a->engine->store, NULL);
        char tag[17];
        agent_tag(tenant, tag);
        result = agents_is_there(a, from, tag, e);
        char *path = result == AGENTS_OK ? shelf_agent_path(store_shelf(a->engine->store), from, tag, ".safetensors", e) : NULL;
        if (result == AGENTS_OK && (!path || !agent_read(path, &a->engine->model.kv, &source, e))) result = AGENTS_FAILED;
        mem_free(path);
        if (result == AGENTS_OK && strcmp(source.model, a->engine->kv_model) != 0) {
            err_set(e, HEARTH_ARGUMENT, "the agent '%s' belongs to another model", from);
            result = AGENTS_FAILED;
        }
    }
    if (result == AGENTS_OK) result = agents_take(a, name, tenant, true, 0, &t, e);
    if (result == AGENTS_OK) {
        if (t->before.name) {
            err_set(e, HEARTH_ARGUMENT, "the agent '%s' is there already", name);
            result = AGENTS_EXISTS;
        } else {
            if (from) recall_tail(a->engine, tenant, &source);
            result = write_agent(t, source.tokens, source.n_tokens, source.note, source.note_len, (int64_t)time(NULL), e);
        }
        agent_turn_drop(t);
    }
    agent_free(&source);
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
    file_id id;
    bool there = false;
    agent_tag(tenant, tag);
    if (!agents_have_store(a, e)) return AGENTS_FAILED;
    agents_result result = agents_is_there(a, name, tag, e);
    if (result != AGENTS_OK) return result;
    char *pin = shelf_agent_path(store_shelf(a->engine->store), name, tag, ".pin", e);
    bool ok = pin && file_look(pin, &there, &id, e);
    if (ok && there && !pinned) ok = file_remove(pin, e);
    if (ok && !there && pinned) {
        file_writer w;
        ok = file_writer_open(&w, pin, e) && file_writer_commit(&w, e);
    }
    mem_free(pin);
    return ok ? AGENTS_OK : AGENTS_FAILED;
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
    const shelf *s = store_shelf(a->engine->store);
    char *pin = shelf_agent_path(s, name, t->tag, ".pin", e), *lock = pin ? shelf_agent_path(s, name, t->tag, ".lock", e) : NULL;
    bool ok = lock && store_remove(a->engine->store, name, t->tag, e);
    if (ok) {
        file_remove(pin, NULL);
        file_remove(lock, NULL);
    }
    mem_free(pin), mem_free(lock);
    agent_turn_drop(t);
    return ok ? AGENTS_OK : AGENTS_FAILED;
}
