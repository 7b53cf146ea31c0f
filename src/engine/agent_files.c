/* agent_files.c: agents as files of the store, for programs: listed, forked, pinned, moved between machines, checked. */
#include <stdio.h>
#include <string.h>

#include "engine/recall.h"
#include "store/bundle.h"
#include "store/verify.h"

static bool need_store(const hearth_engine *en, err *e) {
    if (en->store) return true;
    return err_set(e, en->store_problem.code ? en->store_problem.code : HEARTH_ARGUMENT, "there is no store of agents%s%s", en->store_problem.code ? ": " : "",
                   en->store_problem.text);
}

/* ---- listing ---- */

typedef struct listing {
    hearth_engine *engine;
    const char *tenant;
    char tag[17];
    bool (*each)(void *user, const hearth_agent *agent);
    void *user;
} listing;

static hearth_tier tier_of(hearth_engine *en, const char *tenant, const agent_record *a, size_t blocks) {
    size_t full = a->n_tokens / KV_BLOCK;
    kv_block *head = full ? kv_cache_find(en->kv_cache, &a->head) : NULL; /* what is in memory has all before it in memory too */
    if (head) kv_block_drop(en->kv_cache, head);
    return head ? HEARTH_TIER_HOT : blocks == full && (full || a->n_tail) && recall_fits(en, tenant, a) ? HEARTH_TIER_WARM : HEARTH_TIER_COLD;
}

static bool list_one(void *user, const char *path, bool pinned) {
    listing *l = user;
    agent_record a;
    if (!agent_peek(path, &a, NULL)) return true; /* damaged: hearth_engine_check tells */
    bool go_on = true;
    if (strcmp(a.tag, l->tag) == 0) {
        uint64_t bytes;
        size_t blocks = shelf_chain(store_shelf(l->engine->store), &a.head, &bytes);
        const hearth_agent out = {.name = a.name, .tokens = a.n_tokens, .bytes = a.bytes, .block_bytes = bytes, .blocks = blocks, .tier = tier_of(l->engine, l->tenant, &a, blocks),
                                  .created = a.created, .used = a.used, .hits = a.hits, .pinned = pinned, .this_model = strcmp(a.model, l->engine->kv_model) == 0};
        go_on = l->each(l->user, &out);
    }
    agent_free(&a);
    return go_on;
}

bool hearth_agents(hearth_engine *en, const char *tenant, bool (*each)(void *user, const hearth_agent *agent), void *user, hearth_error *error) {
    err local = {0}, *e = error ? error : &local;
    err_clear(e);
    listing l = {.engine = en, .tenant = tenant, .each = each, .user = user};
    agent_tag(tenant, l.tag);
    return need_store(en, e) && shelf_agents(store_shelf(en->store), list_one, &l, e);
}

/* ---- changing ---- */

bool hearth_agent_fork(hearth_engine *en, const char *from, const char *to, const char *tenant, hearth_error *error) {
    err local = {0}, *e = error ? error : &local;
    char tag[17];
    err_clear(e);
    agent_tag(tenant, tag);
    return need_store(en, e) && store_fork(en->store, from, to, tag, e);
}

bool hearth_agent_pin(hearth_engine *en, const char *name, const char *tenant, bool pinned, hearth_error *error) {
    err local = {0}, *e = error ? error : &local;
    char tag[17], quoted[200];
    file_id id;
    err_clear(e);
    agent_tag(tenant, tag);
    if (!need_store(en, e)) return false;
    char *path = shelf_agent_path(store_shelf(en->store), name, tag, ".safetensors", e);
    bool there = false, ok = path && file_look(path, &there, &id, e);
    if (ok && !there) ok = err_set(e, HEARTH_ARGUMENT, "there is no agent '%s'", err_quote(quoted, sizeof quoted, name, strlen(name)));
    mem_free(path);
    return ok && shelf_pin(store_shelf(en->store), name, tag, pinned, e);
}

/* ---- moving ---- */

bool hearth_agent_export(hearth_engine *en, const char *name, const char *tenant, const char *path, hearth_error *error) {
    err local = {0}, *e = error ? error : &local;
    bundle_info unused;
    err_clear(e);
    return need_store(en, e) && store_flush(en->store, e) && bundle_export(store_shelf(en->store), name, tenant, path, &unused, e);
}

bool hearth_agent_import(hearth_engine *en, const char *path, const char *name, const char *tenant, hearth_error *error) {
    err local = {0}, *e = error ? error : &local;
    bundle_info unused;
    err_clear(e);
    return need_store(en, e) && bundle_import(store_shelf(en->store), path, name, tenant, &unused, e);
}

/* ---- the self-check ---- */

static bool count_file(void *user, const char *path, uint64_t bytes, const err *why, bool set_aside) {
    (void)path, (void)bytes;
    hearth_kv_check *out = user;
    out->whole += why->code == HEARTH_OK;
    out->damaged += why->code == HEARTH_FORMAT;
    out->unreadable += why->code != HEARTH_OK && why->code != HEARTH_FORMAT;
    out->set_aside += set_aside;
    return true;
}

bool hearth_engine_kv_check(hearth_engine *en, hearth_kv_check *out, hearth_error *error) {
    err local = {0}, *e = error ? error : &local;
    err_clear(e);
    *out = (hearth_kv_check){0};
    return need_store(en, e) && shelf_verify(store_shelf(en->store), count_file, out, e);
}
