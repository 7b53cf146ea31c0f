/* session.c: one conversation. */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "engine/recall.h"

static hearth_session *new_session(hearth_engine *en, const char *tenant, err *e) {
    if (!en->has_model) {
        err_set(e, HEARTH_ARGUMENT, "the engine was opened for its vocabulary only");
        return NULL;
    }
    hearth_session *s = mem_zalloc(1, sizeof *s, e);
    if (!s) return NULL;
    s->engine = en;
    s->run.pool = en->pool;
    s->lock = -1;
    if (tenant && *tenant) s->tenant = mem_strndup(tenant, strlen(tenant), e);
    recall_start(en, &s->kv, s->tenant, false);
    s->logits = mem_aligned((size_t)en->model.params.n_vocab, sizeof *s->logits, e);
    if (!s->logits || (tenant && *tenant && !s->tenant)) {
        hearth_session_free(s);
        return NULL;
    }
    return s;
}

hearth_session *hearth_session_new(hearth_engine *en, hearth_error *e) {
    err_clear(e);
    return new_session(en, NULL, e);
}

void hearth_session_free(hearth_session *s) {
    if (!s) return;
    if (s->agent) {
        /* Whoever opens the agent next must find what is being written. */
        if (s->changed) session_save(s, NULL);
        store_flush(s->engine->store, NULL);
        store_release(s->lock);
    }
    if (s->kv.length <= s->tokens.n) recall_end(s->engine, &s->kv, s->tokens.ids);
    kv_seq_free(&s->kv);
    model_run_free(&s->run);
    token_list_free(&s->tokens);
    mem_free(s->tenant);
    mem_free(s->agent);
    mem_free(s->note);
    mem_free(s->logits);
    mem_free(s);
}

/* Runs tokens [kv.length, tokens.n) through the model, logits of the last one. What turns out to be damaged on the way is computed too. */
static bool compute(hearth_session *s, err *e) {
    bool disk = true;
    while (s->kv.length < s->tokens.n) {
        size_t left = s->tokens.n - s->kv.length;
        int n = left > MODEL_CHUNK ? MODEL_CHUNK : (int)left;
        bool end = (size_t)n == left;
        model_part part = {.kv = &s->kv, .tokens = s->tokens.ids + s->kv.length, .n = n, .n_logits = end ? 1 : 0, .long_context = s->long_context};
        uint64_t start = clock_ns();
        const bool ok = model_forward(&s->engine->model, &s->run, &part, 1, s->logits, e);
        s->engine->kv_wait_ns += s->run.waited_ns;
        if (!ok) {
            if (!kv_seq_mend(&s->kv)) return false;
            err_clear(e);
            recall_find(s->engine, &s->kv, s->tokens.ids, s->tokens.n - 1, disk);
            disk = false;
            continue;
        }
        recall_computed(s->engine, (size_t)n, clock_ns() - start - s->run.waited_ns);
        recall_keep(s->engine, &s->kv, s->tokens.ids);
    }
    s->logits_valid = true;
    return true;
}

/* Models with two sets of rotation frequencies use the long one for the whole text once it outgrows the original context: what was
 * computed with the other is computed again. */
static void choose_frequencies(hearth_session *s) {
    const model *m = &s->engine->model;
    bool now = m->rope.full_long && s->tokens.n > (size_t)m->params.original_context;
    if (now == s->long_context) return;
    s->long_context = now;
    kv_seq_free(&s->kv);
    recall_start(s->engine, &s->kv, s->tenant, now);
}

bool hearth_session_append(hearth_session *s, const int32_t *tokens, size_t n, hearth_error *error) {
    err local = {0}, *e = error ? error : &local;
    err_clear(e);
    if (n == 0) return true;
    size_t before = s->tokens.n, room = (size_t)s->engine->n_context;
    if (n > room - before)
        return err_set(e, HEARTH_LIMIT, "the context is full: %zu tokens and %zu more do not fit into %zu", before, n, room);
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) ok = token_list_add(&s->tokens, tokens[i], e);
    if (ok) {
        choose_frequencies(s);
        /* The last token is computed in any case, for its logits. */
        recall_find(s->engine, &s->kv, s->tokens.ids, s->tokens.n - 1, true);
        ok = compute(s, e);
        s->changed = true;
    }
    if (!ok) {
        s->tokens.n = before;
        kv_seq_truncate(&s->kv, before);
        s->logits_valid = false;
        choose_frequencies(s);
    }
    return ok;
}

const float *hearth_session_logits(hearth_session *s) {
    if (s->tokens.n == 0) return NULL;
    if (!s->logits_valid) {
        kv_seq_truncate(&s->kv, s->tokens.n - 1);
        if (!compute(s, NULL)) return NULL;
    }
    return s->logits;
}

size_t hearth_session_length(const hearth_session *s) { return s->tokens.n; }
const int32_t *hearth_session_tokens(const hearth_session *s) { return s->tokens.ids; }

bool hearth_session_rewind(hearth_session *s, size_t position, hearth_error *e) {
    err_clear(e);
    if (position > s->tokens.n)
        return err_set(e, HEARTH_ARGUMENT, "cannot rewind to %zu: the session has only %zu tokens", position, s->tokens.n);
    if (position == s->tokens.n) return true;
    s->tokens.n = position;
    s->changed = true;
    kv_seq_truncate(&s->kv, position);
    s->logits_valid = false;
    choose_frequencies(s);
    return true;
}

/* ---- agents ---- */

/* Takes over what is stored: the tokens, and their keys and values as far as they are known. */
static bool take_over(hearth_session *s, agent_record *a, err *e) {
    const hearth_engine *en = s->engine;
    if (a->n_tokens && strcmp(a->model, en->kv_model) != 0)
        return err_set(e, HEARTH_ARGUMENT, "the agent '%s' belongs to another model: open it with that one, or use another name", s->agent);
    if (a->n_tokens > (size_t)en->n_context)
        return err_set(e, HEARTH_LIMIT, "the agent '%s' has %zu tokens, but the context is only %d", s->agent, a->n_tokens, en->n_context);
    for (size_t i = 0; i < a->n_tokens; i++) {
        if (a->tokens[i] < 0 || a->tokens[i] >= en->model.params.n_vocab)
            return err_set(e, HEARTH_FORMAT, "the agent '%s' holds a token that the model does not have", s->agent);
        if (!token_list_add(&s->tokens, a->tokens[i], e)) return false;
    }
    s->note = a->note, s->note_len = a->note_len;
    a->note = NULL;
    if (a->created) s->created = a->created;
    s->hits = a->hits;
    choose_frequencies(s);
    size_t full = s->tokens.n / KV_BLOCK * KV_BLOCK;
    bool tail = a->tail && kv_name_equal(&a->root, &s->kv.chain.root);
    recall_find(s->engine, &s->kv, s->tokens.ids, tail ? full : s->tokens.n, true);
    if (tail && s->kv.length == full) {
        if (!kv_seq_reserve(&s->kv, (size_t)a->n_tail, e)) return false;
        kv_unpack(&s->kv, full / KV_BLOCK, a->n_tail, a->tail);
        s->kv.length = s->tokens.n;
    }
    s->hits += s->kv.length > 0;
    return true;
}

hearth_session *hearth_session_open(hearth_engine *en, const char *name, const char *tenant, hearth_error *error) {
    err local = {0}, *e = error ? error : &local;
    err_clear(e);
    if (name && !en->store) {
        err_set(e, en->store_problem.code ? en->store_problem.code : HEARTH_ARGUMENT, "there is no store to keep the agent in%s%s", en->store_problem.code ? ": " : "",
                en->store_problem.text);
        return NULL;
    }
    hearth_session *s = new_session(en, tenant, e);
    if (!s || !name) return s;
    agent_record a = {0};
    agent_tag(tenant, s->tag);
    s->created = (int64_t)time(NULL);
    bool ok = store_take(en->store, name, s->tag, &a, &s->lock, e);
    if (ok) {
        s->agent = mem_strndup(name, strlen(name), e);
        ok = s->agent && take_over(s, &a, e);
    }
    s->changed = false;
    agent_free(&a);
    if (ok) return s;
    if (!s->agent) store_release(s->lock);
    hearth_session_free(s);
    return NULL;
}

hearth_session *hearth_session_fork(hearth_session *s, hearth_error *error) {
    err local = {0}, *e = error ? error : &local;
    err_clear(e);
    hearth_session *f = new_session(s->engine, s->tenant, e);
    if (!f) return NULL;
    bool ok = true;
    for (size_t i = 0; ok && i < s->tokens.n; i++) ok = token_list_add(&f->tokens, s->tokens.ids[i], e);
    kv_seq_free(&f->kv);
    if (!ok || !kv_seq_fork(&f->kv, &s->kv, e)) {
        hearth_session_free(f);
        return NULL;
    }
    f->long_context = s->long_context;
    f->logits_valid = s->logits_valid;
    if (s->logits_valid) memcpy(f->logits, s->logits, (size_t)s->engine->model.params.n_vocab * sizeof *f->logits);
    return f;
}

bool session_save(hearth_session *s, err *e) {
    if (!s->agent) return true;
    const uint64_t start = clock_ns();
    agent_record a = {.created = s->created, .hits = s->hits, .note_len = s->note_len};
    memcpy(a.tag, s->tag, sizeof a.tag);
    a.name = mem_strndup(s->agent, strlen(s->agent), e);
    a.note = s->note_len ? mem_strndup(s->note, s->note_len, e) : NULL;
    if (!a.name || (s->note_len && !a.note)) {
        agent_free(&a);
        return false;
    }
    bool ok = recall_save(s->engine, &s->kv, s->tokens.ids, s->tokens.n, &a, e);
    if (ok) s->changed = false;
    s->engine->kv_stall_ns += clock_ns() - start;
    return ok;
}

bool hearth_session_save(hearth_session *s, hearth_error *error) {
    err local = {0}, *e = error ? error : &local;
    err_clear(e);
    if (!s->agent) return err_set(e, HEARTH_ARGUMENT, "the session has no agent's name to be saved under");
    return session_save(s, e) && store_flush(s->engine->store, e);
}

bool hearth_session_drop(hearth_session *s, hearth_error *error) {
    err local = {0}, *e = error ? error : &local;
    err_clear(e);
    if (!s->agent) return err_set(e, HEARTH_ARGUMENT, "the session has no agent's name");
    if (!store_remove(s->engine->store, s->agent, s->tag, e)) return false;
    store_release(s->lock);
    s->lock = -1;
    mem_free(s->agent);
    s->agent = NULL;
    return true;
}

const char *hearth_session_note(const hearth_session *s, size_t *len) {
    if (len) *len = s->note_len;
    return s->note;
}

bool hearth_session_set_note(hearth_session *s, const char *note, size_t len, hearth_error *error) {
    err local = {0}, *e = error ? error : &local;
    err_clear(e);
    char *copy = len ? mem_strndup(note, len, e) : NULL;
    if (len && !copy) return false;
    mem_free(s->note);
    s->note = copy;
    s->note_len = len;
    s->changed = true;
    return session_save(s, e);
}

hearth_kv_stats hearth_engine_kv(const hearth_engine *en) {
    hearth_kv_stats o = {0};
    if (en->kv_cache) {
        kv_stats k = kv_cache_stats(en->kv_cache);
        o = (hearth_kv_stats){.hot_blocks = k.blocks, .hot_bytes = k.bytes, .hot_budget = k.budget, .hot_evictions = k.evictions, .blocks_in_use = k.in_use,
                              .lookups = k.lookups, .hits = k.hits, .hot_hits = k.hot_hits, .tokens_asked = k.tokens_asked, .tokens_found = k.tokens_found, .tokens_loaded = k.tokens_loaded};
    }
    const store_stats s = en->store ? store_get_stats(en->store) : (store_stats){0};
    const double per_token = recall_token_seconds(en);
    /* Whoever read them, they were found in memory afterwards. */
    if (en->store) o.tokens_loaded = s.loaded_blocks * KV_BLOCK;
    o.hot_tokens = o.tokens_found > o.tokens_loaded ? o.tokens_found - o.tokens_loaded : 0;
    o.hot_misses = o.lookups - o.hot_hits;
    o.prefill_speed = per_token > 0 ? 1 / per_token : 0;
    o.hot_saved_seconds = per_token * (double)o.hot_tokens;
    o.warm_saved_seconds = per_token * (double)o.tokens_loaded;
    o.stall_seconds = (double)en->kv_stall_ns * 1e-9;
    if (!en->store) return o;
    o.store = true, o.degraded = s.degraded;
    o.warm_blocks = s.disk.blocks, o.warm_bytes = s.disk.bytes, o.warm_budget = s.disk.budget, o.warm_evictions = s.disk.evictions, o.agents = s.disk.agents;
    o.written_blocks = s.written_blocks, o.written_bytes = s.written_bytes, o.saves = s.saves, o.waiting = s.waiting, o.skipped = s.skipped;
    o.failures = s.failures, o.damaged = s.damaged;
    o.warm_hits = s.loads, o.warm_misses = s.misses, o.longest_load = s.longest_load, o.save_seconds = s.save_seconds, o.longest_save = s.longest_save;
    o.load_seconds = s.load_seconds, o.load_wait_seconds = (double)en->kv_wait_ns * 1e-9;
    o.write_seconds = s.write_seconds, o.longest_write = s.longest_write, o.scan_seconds = s.disk.scan_seconds;
    return o;
}
