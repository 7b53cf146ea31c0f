/* agents.c: one request at a time has an agent; the thread that saves turns. agents_manage.c has the rest. */
#include "engine/agents_inner.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static struct timespec time_after(uint64_t ns) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t nsec = (uint64_t)until.tv_nsec + ns % 1000000000u;
    until.tv_sec += (time_t)(ns / 1000000000u + nsec / 1000000000u);
    until.tv_nsec = (long)(nsec % 1000000000u);
    return until;
}

/* ---- turns ---- */

static bool is_of(const agent_turn *t, const char *name, const char *tag) { return strcmp(t->name, name) == 0 && strcmp(t->tag, tag) == 0; }

bool agents_is_running(const agents *a, const char *name, const char *tag) {
    for (const agent_turn *t = a->taken; t; t = t->next)
        if (is_of(t, name, tag)) return true;
    return false;
}

/* Its lock goes, and whoever waits for it may have it. Under the lock. */
static void release(agent_turn *t) {
    agent_turn **at = &t->owner->taken;
    while (*at && *at != t) at = &(*at)->next;
    if (!*at) return;
    *at = t->next;
    store_release(t->lock);
    t->lock = -1;
    pthread_cond_broadcast(&t->owner->changed);
}

static void forget_note(agent_turn *t) {
    if (t->note_free) t->note_free(t->note_user);
    t->note_free = NULL;
    t->note = NULL;
}

static void turn_free(agent_turn *t) {
    forget_note(t);
    recall_end(t->engine, &t->kv, t->tokens.ids);
    token_list_free(&t->tokens);
    buf_free(&t->text);
    agent_free(&t->before);
    mem_free(t->name);
    mem_free(t->tenant);
    mem_free(t);
}

void agent_turn_drop(agent_turn *t) {
    if (!t) return;
    agents *a = t->owner;
    pthread_mutex_lock(&a->lock);
    bool last = --t->refs == 0;
    if (last) release(t);
    pthread_mutex_unlock(&a->lock);
    if (last) turn_free(t);
}

static agent_turn *turn_new(agents *a, const char *name, const char *tenant, err *e) {
    agent_turn *t = mem_zalloc(1, sizeof *t, e);
    if (!t) return NULL;
    t->owner = a;
    t->engine = a->engine;
    t->refs = 1;
    t->lock = -1;
    agent_tag(tenant, t->tag);
    recall_start(a->engine, &t->kv, tenant, false);
    t->name = mem_strndup(name, strlen(name), e);
    t->tenant = tenant && *tenant ? mem_strndup(tenant, strlen(tenant), e) : NULL;
    if (t->name && (t->tenant || !tenant || !*tenant)) return t;
    turn_free(t);
    return NULL;
}

/* Another process tells nobody when it lets go of an agent: whoever waits looks again after a while. */
static void pause_for_others(uint64_t wait_ns) {
    const uint64_t ns = wait_ns < 20000000u ? wait_ns : 20000000u;
    const struct timespec pause = {.tv_nsec = (long)ns};
    nanosleep(&pause, NULL);
}

/* In this process it is this turn's from now on, unless others keep it too long. */
static bool wait_for(agents *a, agent_turn *t, uint64_t wait_ns) {
    struct timespec until = time_after(wait_ns);
    pthread_mutex_lock(&a->lock);
    bool free_now = true;
    while (agents_is_running(a, t->name, t->tag) && free_now) free_now = wait_ns > 0 && pthread_cond_timedwait(&a->changed, &a->lock, &until) != ETIMEDOUT;
    if (free_now) {
        t->next = a->taken;
        a->taken = t;
    }
    pthread_mutex_unlock(&a->lock);
    return free_now;
}

static agents_result read_turn(agents *a, agent_turn *t, bool make, err *e) {
    hearth_engine *en = a->engine;
    err why = {0};
    if (!make) {
        agents_result there = agents_is_there(a, t->name, t->tag, e);
        if (there != AGENTS_OK) return there;
    }
    if (!store_take(en->store, t->name, t->tag, &t->before, &t->lock, &why)) {
        if (e) *e = why;
        return why.code == HEARTH_LIMIT ? AGENTS_BUSY : AGENTS_FAILED;
    }
    return AGENTS_OK;
}

static bool is_ours(const agent_turn *t, err *e) {
    if (t->before.n_tokens == 0 || strcmp(t->before.model, t->engine->kv_model) == 0) return true;
    return err_set(e, HEARTH_ARGUMENT, "the agent '%s' belongs to another model: use that one, or another name", t->name);
}

bool agents_have_store(const agents *a, err *e) {
    const err *why = &a->engine->store_problem;
    if (a->engine->store) return true;
    return err_set(e, why->code ? why->code : HEARTH_ARGUMENT, "agents need a store on disk%s%s", why->code ? ": " : ", which is turned off here", why->text);
}

agents_result agents_take_any(agents *a, const char *name, const char *tenant, bool make, uint64_t wait_ns, agent_turn **out, err *e) {
    *out = NULL;
    if (!agents_have_store(a, e)) return AGENTS_FAILED;
    agent_turn *t = turn_new(a, name, tenant, e);
    if (!t) return AGENTS_FAILED;
    if (!wait_for(a, t, wait_ns)) {
        err_set(e, HEARTH_LIMIT, "another request has the agent '%s': wait until it is answered", name);
        agent_turn_drop(t);
        return AGENTS_BUSY;
    }
    agents_result result = read_turn(a, t, make, e);
    if (result == AGENTS_OK) *out = t;
    else agent_turn_drop(t);
    if (result == AGENTS_BUSY) pause_for_others(wait_ns);
    return result;
}

agents_result agents_take(agents *a, const char *name, const char *tenant, bool make, uint64_t wait_ns, agent_turn **out, err *e) {
    agents_result result = agents_take_any(a, name, tenant, make, wait_ns, out, e);
    if (result != AGENTS_OK) return result;
    agent_turn *t = *out;
    if (!is_ours(t, e)) {
        agent_turn_drop(t);
        *out = NULL;
        return AGENTS_FAILED;
    }
    t->loaded = recall_tail(a->engine, t->tenant, &t->before);
    return AGENTS_OK;
}

size_t agent_turn_loaded(const agent_turn *t) { return t->loaded; }

const agent_record *agent_turn_before(const agent_turn *t) { return &t->before; }

void agent_turn_keep(agent_turn *t, agent_note *note, void *user, void (*user_free)(void *user)) {
    forget_note(t);
    t->note = note;
    t->note_user = user;
    t->note_free = user_free;
}

void agent_turn_begin(agent_turn *t) {
    pthread_mutex_lock(&t->owner->lock);
    t->refs++;
    pthread_mutex_unlock(&t->owner->lock);
}

void agent_turn_take_back(agent_turn *t) { agent_turn_drop(t); }

void agent_turn_ended(void *user, loop_result *r) {
    agent_turn *t = user;
    agents *a = t->owner;
    if (!r->finished) {
        pthread_mutex_lock(&a->lock);
        t->done = true;
        pthread_cond_broadcast(&a->changed);
        pthread_mutex_unlock(&a->lock);
        agent_turn_drop(t);
        return;
    }
    t->kv = *r->kv;
    *r->kv = (kv_seq){.layout = t->kv.layout, .cache = t->kv.cache, .chain = t->kv.chain};
    t->tokens = *r->tokens;
    *r->tokens = (token_list){0};
    t->text = *r->text;
    *r->text = (buf){0};
    pthread_mutex_lock(&a->lock);
    agent_turn **at = &a->ended;
    while (*at) at = &(*at)->next_ended;
    *at = t;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

bool agent_turn_wait(agent_turn *t, uint64_t timeout_ns, err *e) {
    struct timespec until = time_after(timeout_ns);
    agents *a = t->owner;
    pthread_mutex_lock(&a->lock);
    while (!t->done && pthread_cond_timedwait(&a->changed, &a->lock, &until) != ETIMEDOUT) {}
    bool done = t->done;
    if (done && e && t->problem.code) *e = t->problem;
    pthread_mutex_unlock(&a->lock);
    return done;
}

/* ---- the thread that saves ---- */

/* Blocks that were not written when they became full because too many waited. */
static void put_all(agents *a, const agent_turn *t) {
    for (size_t i = 0; i < t->kv.n_sealed; i++)
        if (!store_put(a->engine->store, t->kv.held[i]) && (!store_flush(a->engine->store, NULL) || !store_put(a->engine->store, t->kv.held[i]))) return;
}

static void save(agents *a, agent_turn *t) {
    put_all(a, t);
    agent_record r = {.created = t->before.created ? t->before.created : (int64_t)time(NULL), .hits = t->before.hits + (t->before.n_tokens > 0)};
    memcpy(r.tag, t->tag, sizeof r.tag);
    if (t->note) r.note = t->note(t->note_user, t->text.data ? t->text.data : "", t->text.len, &r.note_len);
    forget_note(t);
    r.name = mem_strndup(t->name, strlen(t->name), &t->problem);
    if (!r.name) agent_free(&r);
    else recall_save(a->engine, &t->kv, t->tokens.ids, t->tokens.n, &r, &t->problem);
    recall_end(a->engine, &t->kv, t->tokens.ids);
}

/* Turns that ended together are written together, and each is done when all are on disk. */
static void save_all(agents *a, agent_turn *list) {
    err e = {0};
    for (agent_turn *t = list; t; t = t->next_ended) save(a, t);
    bool ok = store_flush(a->engine->store, &e);
    for (agent_turn *t = list, *next; t; t = next) {
        next = t->next_ended;
        pthread_mutex_lock(&a->lock);
        if (!ok && t->problem.code == HEARTH_OK) t->problem = e;
        release(t);
        t->done = true;
        pthread_cond_broadcast(&a->changed);
        pthread_mutex_unlock(&a->lock);
        agent_turn_drop(t);
    }
}

static void *save_main(void *user) {
    agents *a = user;
    pthread_mutex_lock(&a->lock);
    while (!a->stop || a->ended) {
        agent_turn *list = a->ended;
        a->ended = NULL;
        if (!list) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        pthread_mutex_unlock(&a->lock);
        save_all(a, list);
        pthread_mutex_lock(&a->lock);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

agents *agents_new(hearth_engine *engine, err *e) {
    agents *a = mem_zalloc(1, sizeof *a, e);
    if (!a) return NULL;
    a->engine = engine;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    a->has_thread = pthread_create(&a->thread, NULL, save_main, a) == 0;
    if (a->has_thread) return a;
    err_set(e, HEARTH_LIMIT, "the thread that saves agents cannot be started");
    agents_free(a);
    return NULL;
}

void agents_free(agents *a) {
    if (!a) return;
    if (a->has_thread) {
        pthread_mutex_lock(&a->lock);
        while (a->taken) pthread_cond_wait(&a->changed, &a->lock);
        a->stop = true;
        pthread_cond_broadcast(&a->changed);
        pthread_mutex_unlock(&a->lock);
        pthread_join(a->thread, NULL);
    }
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    mem_free(a);
}
