/* loop.c: the thread that computes. Each round: take in what arrived, drop what was cancelled or is out of time, start what may start,
 * compute one pass, pick a token for every sequence whose prompt is read. */
#include "engine/loop.h"

#include <string.h>

#include "base/clock.h"
#include "engine/embed.h"
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

static void finish(loop *l, choice *c, loop_finish why) {
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

static void fail(loop *l, choice *c, const err *e) {
    ticket_fail(c->ticket, e);
    l->failed++;
    loop_remove_running(l, c);
    loop_leave(l, c);
}

/* ---- a pass ---- */

/* Keeps an eye on how long the answer's thoughts become. */
static void watch_thoughts(choice *c, int32_t token) {
    const loop_thoughts *h = &c->ticket->thoughts;
    if (h->limit == 0) return;
    if (c->forced) c->forced--;
    if (token == h->open) c->in_thought = true;
    if (token == h->end) c->in_thought = false;
    else if (c->in_thought && !c->forced && c->picked >= h->limit) c->forced = h->n_close;
}

static bool is_shown(const loop_ticket *t, int32_t token) {
    for (int i = 0; i < t->n_shown; i++)
        if (t->shown[i] == token) return true;
    return t->show_special;
}

/* The token's text, and whether the answer ends here. */
static loop_finish add_token(loop *l, choice *c, int32_t token, err *e) {
    loop_ticket *t = c->ticket;
    const bool ends = hearth_token_ends(l->engine, token) && !t->ignore_end;
    buf text = {0};
    size_t len = 0;
    const char *bytes = !ends || t->show_special ? hearth_token_bytes(l->engine, token, is_shown(t, token), &len) : NULL;
    bool ok = !bytes || stop_add(&c->filter, bytes, len, &text, e);
    loop_finish why = c->filter.found ? LOOP_STOP : ends ? LOOP_END : LOOP_RUNNING;
    ok = ok && ticket_token(c, token, why == LOOP_RUNNING, text.data ? text.data : "", text.len, e);
    buf_free(&text);
    if (ok && why == LOOP_RUNNING) {
        ok = token_list_add(&c->tokens, token, e) && hearth_sampler_accept(c->sampler, token, e);
        watch_thoughts(c, token);
        if ((t->max_tokens >= 0 && c->picked >= t->max_tokens) || c->tokens.n >= (size_t)l->engine->n_context) why = LOOP_LENGTH;
    }
    return why;
}

/* After a pick: tell it, and end the answer or go on. */
static void proceed(loop *l, choice *c, uint64_t now) {
    err e = c->pick_error;
    histogram_add(c->picked ? &l->between_tokens : &l->first_token, now - (c->picked ? c->last_ns : c->ticket->arrival));
    c->last_ns = now;
    c->picked++;
    l->completion_tokens++;
    loop_finish why = e.code == HEARTH_OK ? add_token(l, c, c->pick, &e) : LOOP_RUNNING;
    if (e.code != HEARTH_OK) {
        fail(l, c, &e);
    } else if (why == LOOP_LENGTH && c->ticket->ended && c->index == 0) {
        c->decoding = true;
        c->closing = why;
    } else if (why != LOOP_RUNNING) {
        finish(l, c, why);
    } else {
        c->decoding = true;
        if (admit_wants_long(l, c->tokens.n) != c->long_context) { /* all of it is computed again with the other frequencies */
            c->long_context = !c->long_context;
            c->decoding = false;
            trace_changed(l->o.trace, TRACE_AGAIN, c->order);
            recall_end(l->engine, &c->kv, c->tokens.ids);
            recall_start(l->engine, &c->kv, c->ticket->tenant, c->long_context);
        }
    }
}

static void pick(void *context, int64_t i, int thread) {
    (void)thread;
    choice *c = ((choice **)context)[i];
    c->pick_error = (err){0};
    const loop_thoughts *h = &c->ticket->thoughts;
    c->pick = c->forced ? h->close[h->n_close - c->forced] : hearth_sampler_pick(c->sampler, c->logits, &c->pick_error);
}

/* Parts of the next pass, and who wants logits. */
typedef struct pass {
    model_part parts[MOST_RUNNING];
    choice *of[MOST_RUNNING], *pickers[MOST_RUNNING], *closers[MOST_RUNNING];
    int n, n_pickers, n_closers, n_decode, n_prompt;
} pass;

static void plan(loop *l, pass *p) {
    sched_item items[MOST_RUNNING];
    for (int i = 0; i < l->n_running; i++) {
        const choice *c = l->running[i];
        items[i] = (sched_item){.left = c->tokens.n - c->kv.length, .decoding = c->decoding, .priority = c->ticket->priority};
    }
    scheduler_plan(&l->sched, items, l->n_running);
    p->n = p->n_pickers = p->n_closers = p->n_decode = p->n_prompt = 0;
    for (int i = 0; i < l->n_running; i++) {
        choice *c = l->running[i];
        if (items[i].share == 0) continue;
        bool last = (size_t)items[i].share == items[i].left, closes = c->closing != LOOP_RUNNING, picks = last && !closes && !c->ticket->vector;
        p->parts[p->n] = (model_part){.kv = &c->kv, .tokens = c->tokens.ids + c->kv.length, .n = items[i].share, .n_logits = picks ? 1 : 0,
                                      .hidden = c->ticket->hidden, .long_context = c->long_context};
        p->of[p->n++] = c;
        *(c->decoding ? &p->n_decode : &p->n_prompt) += items[i].share;
        if (last && closes) p->closers[p->n_closers++] = c;
        if (!picks) continue;
        c->logits = l->logits + (size_t)p->n_pickers * (size_t)l->engine->model.params.n_vocab;
        p->pickers[p->n_pickers++] = c;
    }
}

/* A pass that meets a damaged block: those who have it find again what is known of them, the others just go on. One that finds no memory: forget everything
 * that does not run, then send back the youngest, then give up on the only one. */
static void relieve(loop *l, const err *e) {
    if (admit_mend(l)) return;
    kv_cache *cache = l->engine->kv_cache;
    if (e->code == HEARTH_MEMORY && ((cache && kv_cache_clear(cache) > 0) || (l->n_running > 1 && admit_preempt(l)))) return;
    while (l->n_running > 0) fail(l, l->running[0], e);
}

/* What the pass cost, for the scheduler and for those who want to know. */
static void measure(loop *l, const pass *p, uint64_t ns) {
    const double streams_ns = scheduler_decode_ns(&l->sched, p->n_decode);
    if (p->n_prompt && (double)ns > streams_ns) recall_computed(l->engine, (size_t)p->n_prompt, ns - (uint64_t)streams_ns);
    scheduler_measure(&l->sched, p->n_decode, p->n_prompt, ns);
    l->passes++;
    l->pass_tokens += (uint64_t)(p->n_decode + p->n_prompt);
    l->computed_tokens += (uint64_t)p->n_prompt;
    l->chunk_now = (int)l->sched.chunk;
    l->kv_bytes = admit_running_bytes(l);
}

static void record_pass(loop *l, const pass *p, uint64_t began, uint64_t ns) {
    uint64_t orders[MOST_RUNNING];
    int shares[MOST_RUNNING];
    if (!l->o.trace) return;
    for (int i = 0; i < p->n; i++) orders[i] = p->of[i]->order, shares[i] = p->parts[i].n;
    trace_pass(l->o.trace, began, ns, orders, shares, p->n);
}

/* After a pass: adds the states of its tokens to the vectors, and ends those that are complete. */
static void embed(loop *l, pass *p) {
    for (int i = 0; i < p->n; i++) {
        choice *c = p->of[i];
        loop_ticket *t = c->ticket;
        if (!t->vector) continue;
        embed_add(&l->engine->model.params, t->vector, t->hidden, c->kv.length - (size_t)p->parts[i].n, (size_t)p->parts[i].n, t->n_prompt);
        if (c->kv.length < t->n_prompt) continue;
        embed_finish(&l->engine->model.params, t->vector);
        finish(l, c, LOOP_END);
    }
}

static void run_pass(loop *l, pass *p) {
    plan(l, p);
    err e = {0};
    uint64_t began = loop_now(l);
    const bool ok = model_forward(&l->engine->model, &l->run, p->parts, p->n, l->logits, &e);
    l->engine->kv_wait_ns += l->run.waited_ns;
    if (!ok) {
        record_pass(l, p, began, 0);
        relieve(l, &e);
        return;
    }
    if (p->n_pickers > 1) pool_run(l->engine->pool, p->n_pickers, pick, p->pickers);
    else if (p->n_pickers == 1) pick(p->pickers, 0, 0);
    uint64_t now = loop_now(l), took = now > began ? now - began : 1;
    histogram_add(&l->pass, took);
    took = took > l->run.waited_ns ? took - l->run.waited_ns : 1; /* how long the disk took says nothing of the next pass */
    record_pass(l, p, began, took);
    measure(l, p, took);
    for (int i = 0; i < p->n; i++) recall_keep(l->engine, &p->of[i]->kv, p->of[i]->tokens.ids);
    embed(l, p);
    for (int i = 0; i < p->n_pickers; i++) proceed(l, p->pickers[i], now);
    for (int i = 0; i < p->n_closers; i++) finish(l, p->closers[i], p->closers[i]->closing);
}

static void *loop_main(void *user) {
    loop *l = user;
    pass p;
    while (admit_arrivals(l)) {
        admit_drop_ended(l);
        admit_start(l);
        admit_keep_budget(l);
        if (l->n_running > 0) run_pass(l, &p);
    }
    err e = {0};
    err_set(&e, HEARTH_CANCELLED, "the server is stopping");
    while (l->n_running > 0) fail(l, l->running[0], &e);
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
    l->run.pool = engine->pool;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->wake, NULL);
    pthread_cond_init(&l->idle, &monotonic);
    pthread_condattr_destroy(&monotonic);
    scheduler_init(&l->sched, MODEL_CHUNK, o.max_stall_ns);
    l->chunk_now = (int)l->sched.chunk;
    trace_begin(o.trace, MODEL_CHUNK, o.max_stall_ns);
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
