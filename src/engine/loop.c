/* loop.c: the thread that computes. Each round: take in what arrived, drop what was cancelled or is out of time, start what may start,
 * compute the next token of every running stream and as much of the prompts as there is time for. */
#include "engine/loop.h"

#include <string.h>

#include "base/clock.h"
#include "engine/loop_inner.h"

const double loop_bounds[LOOP_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60};

loop_options loop_defaults(void) {
    return (loop_options){.max_running = 16, .max_queue = 64, .max_stall_ns = 100000000u};
}

uint64_t loop_now(const loop *l) { return l->o.now ? l->o.now(l->o.now_user) : clock_ns(); }

void histogram_add(histogram *h, uint64_t ns) {
    int i = 0;
    while (i < LOOP_BUCKETS && (double)ns * 1e-9 > loop_bounds[i]) i++;
    h->counts[i]++;
    h->sum_ns += ns;
}

/* ---- leaving ---- */

void loop_remove_running(loop *l, choice *c) {
    if (c->reading) passes_give_up(l);
    for (int i = 0; i < l->n_running; i++) {
        if (l->running[i] != c) continue;
        memmove(l->running + i, l->running + i + 1, (size_t)(l->n_running - i - 1) * sizeof *l->running);
        l->n_running--;
        break;
    }
    l->running_now = l->n_running;
}

/* What it computed is remembered, and the loop's hold on its ticket ends. */
void loop_leave(loop *l, choice *c) {
    trace_changed(l->o.trace, TRACE_END, c->order);
    ticket_tell_end(c, false);
    if (c->kv.length > 0) recall_end(l->engine, &c->kv, c->tokens.ids);
    l->kv_bytes = admit_running_bytes(l);
    pthread_mutex_lock(&l->lock);
    l->n_live--;
    if (l->n_live == 0) pthread_cond_broadcast(&l->idle);
    pthread_mutex_unlock(&l->lock);
    ticket_unref(c->ticket);
}

void loop_finish_answer(loop *l, choice *c, loop_finish why) {
    buf rest = {0};
    err e = {0};
    if (!c->filter.found && !stop_end(&c->filter, &rest, &e)) ticket_fail(c->ticket, &e);
    if (e.code == HEARTH_OK && c->ticket->ended && !buf_add(&c->told, rest.data ? rest.data : "", rest.len, &e)) ticket_fail(c->ticket, &e);
    ticket_tell_end(c, e.code == HEARTH_OK);
    uint64_t now = loop_now(l), took = now - c->ticket->arrival;
    ticket_finish(c, why, rest.data ? rest.data : "", rest.len, now);
    buf_free(&rest);
    histogram_add(&l->total, took);
    l->finished++;
    pthread_mutex_lock(&l->lock);
    l->service_s += 0.2 * ((double)took * 1e-9 - l->service_s);
    pthread_mutex_unlock(&l->lock);
    loop_remove_running(l, c);
    loop_leave(l, c);
}

void loop_fail(loop *l, choice *c, const err *e) {
    ticket_fail(c->ticket, e);
    l->failed++;
    loop_remove_running(l, c);
    loop_leave(l, c);
}

static void tell_store(loop *l) {
    bool streams = false;
    for (int i = 0; i < l->n_running; i++) streams |= l->running[i]->decoding;
    if (l->engine->store) store_gently(l->engine->store, streams);
}

static void *loop_main(void *user) {
    loop *l = user;
    pool_give_way();
    while (admit_arrivals(l)) {
        admit_drop_ended(l);
        admit_start(l);
        admit_keep_budget(l);
        passes_together(l);
        passes_apart(l);
        tell_store(l);
    }
    err e = {0};
    err_set(&e, HEARTH_CANCELLED, "the server is stopping");
    while (l->n_running > 0) loop_fail(l, l->running[0], &e);
    while (l->n_queue > 0) {
        choice *c = l->waiting[l->n_queue - 1];
        ticket_fail(c->ticket, &e);
        admit_unqueue(l, l->n_queue - 1);
        loop_leave(l, c);
    }
    while (l->n_inbox > 0) { /* nothing is added any more */
        choice *c = l->inbox[--l->n_inbox];
        trace_arrive(l->o.trace, c->order, c->ticket->arrival, c->tokens.n, c->ticket->priority, c->ticket->owner);
        ticket_fail(c->ticket, &e);
        loop_leave(l, c);
    }
    return NULL;
}

/* ---- the owner's side ---- */

loop *loop_new(hearth_engine *engine, const loop_options *options, err *e) {
    loop_options o = options ? *options : loop_defaults();
    if (o.max_running < 1 || o.max_running > MOST_RUNNING || o.max_queue < 0) {
        err_set(e, HEARTH_ARGUMENT, "a loop runs 1 to %d sequences, not %d, and its queue is not negative", MOST_RUNNING, o.max_running);
        return NULL;
    }
    if (!engine->has_model) {
        err_set(e, HEARTH_ARGUMENT, "the engine was opened for its vocabulary only");
        return NULL;
    }
    loop *l = mem_zalloc(1, sizeof *l, e);
    if (!l) return NULL;
    l->engine = engine;
    l->o = o;
    l->run.pool = l->apart_run.pool = engine->pool;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->wake, NULL);
    pthread_cond_init(&l->idle, &monotonic);
    pthread_condattr_destroy(&monotonic);
    l->apart.first_part = 1.5; /* until one was measured */
    l->apart_run.fine = true;
    scheduler_init(&l->sched, MODEL_CHUNK, model_steps(&engine->model, &l->apart_run), o.max_stall_ns);
    l->chunk_now = (int)l->sched.chunk;
    trace_begin(o.trace, MODEL_CHUNK, l->sched.steps, o.max_stall_ns);
    bool ok = (l->running = mem_zalloc((size_t)o.max_running, sizeof *l->running, e)) &&
              (l->logits = mem_aligned((size_t)o.max_running * (size_t)engine->model.params.n_vocab, sizeof *l->logits, e));
    if (ok && pthread_create(&l->thread, NULL, loop_main, l) != 0) ok = err_set(e, HEARTH_LIMIT, "no thread could be started");
    l->has_thread = ok;
    if (ok) return l;
    loop_free(l);
    return NULL;
}

void loop_drain(loop *l, uint64_t limit_ns) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t nsec = (uint64_t)until.tv_nsec + limit_ns % 1000000000u;
    until.tv_sec += (time_t)(limit_ns / 1000000000u + nsec / 1000000000u);
    until.tv_nsec = (long)(nsec % 1000000000u);
    pthread_mutex_lock(&l->lock);
    l->draining = true;
    while (l->n_live > 0 && pthread_cond_timedwait(&l->idle, &l->lock, &until) == 0) {}
    pthread_mutex_unlock(&l->lock);
}

void loop_end(loop *l) {
    if (!l || !l->has_thread) return;
    pthread_mutex_lock(&l->lock);
    l->draining = l->ending = true;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    l->has_thread = false;
}

void loop_free(loop *l) {
    if (!l) return;
    loop_end(l);
    model_run_free(&l->run);
    model_run_free(&l->apart_run);
    mem_free(l->logits);
    mem_free(l->inbox);
    mem_free(l->waiting);
    mem_free(l->running);
    pthread_cond_destroy(&l->wake);
    pthread_cond_destroy(&l->idle);
    pthread_mutex_destroy(&l->lock);
    mem_free(l);
}

int loop_retry_s(loop *l) {
    pthread_mutex_lock(&l->lock);
    double s = l->service_s * (double)(l->n_live + 1) / (double)l->o.max_running;
    pthread_mutex_unlock(&l->lock);
    return s < 1 ? 1 : s > 600 ? 600 : (int)(s + 0.5);
}

static loop_histogram copy_histogram(histogram *h) {
    loop_histogram out = {.sum = (double)h->sum_ns * 1e-9};
    for (int i = 0; i <= LOOP_BUCKETS; i++) out.counts[i] = h->counts[i];
    return out;
}

loop_stats loop_count(loop *l) {
    loop_stats s = {.requests = l->requests, .refused = l->refused, .finished = l->finished, .failed = l->failed, .cancelled = l->cancelled};
    s.prompt_tokens = l->prompt_tokens;
    s.computed_tokens = l->computed_tokens;
    s.completion_tokens = l->completion_tokens;
    s.passes = l->passes;
    s.pass_tokens = l->pass_tokens;
    s.late = l->late;
    s.preemptions = l->preemptions;
    s.running = l->running_now;
    s.chunk = l->chunk_now;
    s.kv_bytes = l->kv_bytes;
    s.kv_budget = l->engine->kv_cache ? kv_cache_stats(l->engine->kv_cache).budget : 0;
    s.first_token = copy_histogram(&l->first_token);
    s.between_tokens = copy_histogram(&l->between_tokens);
    s.pass = copy_histogram(&l->pass);
    s.total = copy_histogram(&l->total);
    s.hits = l->hits;
    s.misses = l->misses;
    s.hot_tokens = l->hot_tokens;
    s.warm_tokens = l->warm_tokens;
    double each = recall_token_seconds(l->engine);
    s.hot_saved_s = each * (double)s.hot_tokens;
    s.warm_saved_s = each * (double)s.warm_tokens;
    pthread_mutex_lock(&l->lock);
    s.waiting = l->n_waiting;
    pthread_mutex_unlock(&l->lock);
    return s;
}
