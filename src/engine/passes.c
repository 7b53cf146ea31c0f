/* passes.c: what the loop's thread computes: passes of streams and prompts together, and of prompts apart, which rest between layers as often as the streams want their next tokens. */
#include <math.h>

#include "engine/embed.h"
#include "engine/loop_inner.h"

/* ---- a token ---- */

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
        loop_fail(l, c, &e);
    } else if (why == LOOP_LENGTH && c->ticket->ended && c->index == 0) {
        c->decoding = true;
        c->closing = why;
    } else if (why != LOOP_RUNNING) {
        loop_finish_answer(l, c, why);
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

/* ---- a pass ---- */

static void add_part(loop *l, loop_pass *p, choice *c, int share) {
    const bool last = c->kv.length + (size_t)share == c->tokens.n, closes = c->closing != LOOP_RUNNING, picks = last && !closes && !c->ticket->vector;
    p->parts[p->n] = (model_part){.kv = &c->kv, .tokens = c->tokens.ids + c->kv.length, .n = share, .n_logits = picks ? 1 : 0,
                                  .hidden = c->ticket->hidden, .long_context = c->long_context};
    p->of[p->n++] = c;
    p->n_tokens += share;
    if (last && closes) p->closers[p->n_closers++] = c;
    if (!picks) return;
    c->logits = l->logits + (size_t)p->n_pickers * (size_t)l->engine->model.params.n_vocab;
    p->pickers[p->n_pickers++] = c;
}

static void pick_all(loop *l, loop_pass *p) {
    if (p->n_pickers > 1) pool_run(l->engine->pool, p->n_pickers, pick, p->pickers);
    else if (p->n_pickers == 1) pick(p->pickers, 0, 0);
}

/* Adds the states of a pass's tokens to the vectors, and ends those that are complete. */
static void embed(loop *l, loop_pass *p) {
    for (int i = 0; i < p->n; i++) {
        choice *c = p->of[i];
        loop_ticket *t = c->ticket;
        if (!t->vector) continue;
        embed_add(&l->engine->model.params, t->vector, t->hidden, c->kv.length - (size_t)p->parts[i].n, (size_t)p->parts[i].n, t->n_prompt);
        if (c->kv.length < t->n_prompt) continue;
        embed_finish(&l->engine->model.params, t->vector);
        loop_finish_answer(l, c, LOOP_END);
    }
}

/* A pass is computed, and its tokens were picked at `now`. ns: how long it took, without its rests and what it waited for the disk. */
static void end_pass(loop *l, loop_pass *p, int n_decode, int n_prompt, uint64_t ns, uint64_t now) {
    const double streams_ns = scheduler_decode_ns(&l->sched, n_decode);
    if (n_prompt && (double)ns > streams_ns) recall_computed(l->engine, (size_t)n_prompt, ns - (uint64_t)streams_ns);
    histogram_add(&l->pass, ns);
    l->passes++;
    l->pass_tokens += (uint64_t)p->n_tokens;
    l->computed_tokens += (uint64_t)n_prompt;
    l->chunk_now = (int)l->sched.chunk;
    for (int i = 0; i < p->n; i++) recall_keep(l->engine, &p->of[i]->kv, p->of[i]->tokens.ids);
    embed(l, p);
    for (int i = 0; i < p->n_pickers; i++) proceed(l, p->pickers[i], now);
    for (int i = 0; i < p->n_closers; i++) loop_finish_answer(l, p->closers[i], p->closers[i]->closing);
    l->kv_bytes = admit_running_bytes(l);
}

/* A pass that meets a damaged block: those who have it find again what is known of them, the others just go on. One that finds no memory: forget everything
 * that does not run, then send back the youngest, then give up on the only one. */
static void relieve(loop *l, const err *e) {
    if (admit_mend(l)) return;
    kv_cache *cache = l->engine->kv_cache;
    if (e->code == HEARTH_MEMORY && ((cache && kv_cache_clear(cache) > 0) || (l->n_running > 1 && admit_preempt(l)))) return;
    while (l->n_running > 0) loop_fail(l, l->running[0], e);
}

static uint64_t without(uint64_t took, uint64_t waited) { return took > waited ? took - waited : 1; }

/* What the scheduler is asked about. */
static void list_items(const loop *l, sched_item *items) {
    for (int i = 0; i < l->n_running; i++) {
        const choice *c = l->running[i];
        items[i] = (sched_item){.left = c->tokens.n - c->kv.length, .decoding = c->decoding, .reading = c->reading, .priority = c->ticket->priority};
    }
}

static void record(loop *l, const loop_pass *p, bool apart, uint64_t began, uint64_t ns) {
    uint64_t orders[MOST_RUNNING];
    int shares[MOST_RUNNING];
    if (!l->o.trace) return;
    const int n = p->n + p->n_out;
    for (int i = 0; i < n; i++) orders[i] = p->of[i]->order, shares[i] = p->parts[i].n;
    if (apart) trace_apart(l->o.trace, orders, shares, n);
    else if (p->n_out && ns) trace_late(l->o.trace, began, ns, p->would, orders, shares, n);
    else trace_pass(l->o.trace, began, ns, orders, shares, n);
}

/* ---- together ---- */

static int steps_together(const loop *l) { return model_steps(&l->engine->model, &l->run); }

/* Requests that come one just behind the other should be read in one pass: read one by one, all but the first would have to fit into what its stream leaves of the time. So a pass of prompts alone that has
 * computed no more than this part of its steps is given up and begun again with them, but not for ever. */
enum { EARLY = 16, MOST_AGAIN = 4 };

static bool begin_again(loop *l, const loop_pass *p, int step) {
    return step * EARLY <= steps_together(l) && l->again < MOST_AGAIN && p->n_tokens < l->sched.pass_tokens && admit_could_start(l);
}

/* A pass that turns out to take longer than its streams may wait goes on without its prompts; but not near its end, when nearly all of their work is done, nor without a single token twice in a row: prompts always move on. What is left of it
 * is taken to go as was expected (layers are much alike): a pause is over when it is seen, and who is slow throughout is found out while that still helps, as streams alone take much less. */
enum { NEAR_END = 8 };

static bool comes_late(loop *l, loop_pass *p, int n_decode, int step, uint64_t began) {
    const int steps = steps_together(l) - 1; /* without the last, which makes logits */
    if (step == 0 || step % model_layer_steps(&l->engine->model, &l->run) || (steps - step) * NEAR_END < steps || (l->was_late && p->n_tokens == n_decode + 1)) return false;
    const double left = 1 - (1 - l->last_step) * step / steps;
    const uint64_t now = loop_now(l), ends = now + (uint64_t)(left * scheduler_expect_ns(&l->sched, n_decode, p->n_tokens - n_decode));
    if (ends <= l->told_ns + scheduler_latest_ns(&l->sched, n_decode)) return false;
    p->would = without(ends - began, l->run.waited_ns);
    return true;
}

/* The prompts stand behind the streams. */
static void go_on_without_prompts(loop *l, loop_pass *p, int n_decode) {
    model_go_on_with(&l->run, n_decode);
    p->n_out = p->n - n_decode;
    p->n = p->n_tokens = n_decode;
    while (p->n_pickers > 0 && !p->pickers[p->n_pickers - 1]->decoding) p->n_pickers--;
    while (p->n_closers > 0 && !p->closers[p->n_closers - 1]->decoding) p->n_closers--;
}

/* *again: it was given up. */
static bool compute(loop *l, loop_pass *p, int n_decode, uint64_t began, bool *again, err *e) {
    bool done = false, ok = model_begin(&l->engine->model, &l->run, p->parts, p->n, e);
    uint64_t last_began = 0;
    for (int step = 0; ok && !done; step++) {
        *again = n_decode == 0 && begin_again(l, p, step);
        if (*again) break;
        const bool both = n_decode > 0 && p->n > n_decode;
        if (both && comes_late(l, p, n_decode, step, began)) go_on_without_prompts(l, p, n_decode);
        if (both && step == steps_together(l) - 1) last_began = loop_now(l);
        ok = model_step(&l->run, l->logits, &done, e);
    }
    l->engine->kv_wait_ns += l->run.waited_ns;
    if (ok && last_began) {
        const uint64_t now = loop_now(l);
        l->last_step += 0.2 * ((double)(now - last_began) / (double)(now - began + 1) - l->last_step);
    }
    return ok;
}

/* Returns how many streams there are. */
static int fill(loop *l, loop_pass *p, const sched_item *items) {
    p->n = p->n_out = p->n_pickers = p->n_closers = p->n_tokens = 0;
    for (int i = 0; i < l->n_running; i++)
        if (items[i].decoding) add_part(l, p, l->running[i], items[i].share);
    const int n_decode = p->n;
    for (int i = 0; i < l->n_running; i++)
        if (!items[i].decoding && items[i].share > 0) add_part(l, p, l->running[i], items[i].share);
    return n_decode;
}

void passes_together(loop *l) {
    loop_pass *p = &l->together;
    sched_item items[MOST_RUNNING];
    list_items(l, items);
    const int n_tokens = l->n_running ? scheduler_plan(&l->sched, items, l->n_running) : 0;
    if (n_tokens == 0) return;
    const int n_decode = fill(l, p, items), n_prompt = n_tokens - n_decode;
    err e = {0};
    const uint64_t began = loop_now(l);
    bool again = false;
    const bool ok = compute(l, p, n_decode, began, &again, &e);
    l->again = again ? l->again + 1 : 0;
    if (again || !ok) {
        record(l, p, false, began, 0);
        if (!ok) relieve(l, &e);
        return;
    }
    pick_all(l, p);
    l->told_ns = loop_now(l);
    const uint64_t ns = without(l->told_ns - began, l->run.waited_ns); /* how long the disk took says nothing of the next pass */
    const bool late = p->n_out > 0;
    record(l, p, false, began, ns);
    if (late) scheduler_measure_late(&l->sched, n_decode, n_prompt, p->would);
    else scheduler_measure(&l->sched, n_decode, n_prompt, ns);
    end_pass(l, p, n_decode, late ? 0 : n_prompt, ns, l->told_ns);
    if (n_prompt) l->was_late = late;
    l->late += late;
}

/* ---- apart ---- */

static void stop_reading(loop_pass *p) {
    for (int i = 0; i < p->n; i++) p->of[i]->reading = false;
    p->under_way = false;
}

void passes_give_up(loop *l) {
    if (l->apart.under_way) stop_reading(&l->apart);
}

/* False when there is none to begin, or with e set when it failed. */
static bool begin_apart(loop *l, err *e) {
    loop_pass *p = &l->apart;
    sched_item items[MOST_RUNNING];
    list_items(l, items);
    if (scheduler_plan_apart(&l->sched, items, l->n_running) == 0) return false;
    p->n = p->n_pickers = p->n_closers = p->n_tokens = p->steps = 0;
    p->ns = 0;
    p->under_way = true;
    for (int i = 0; i < l->n_running; i++) {
        if (items[i].share == 0) continue;
        l->running[i]->reading = true;
        add_part(l, p, l->running[i], items[i].share);
    }
    p->layer_steps = model_layer_steps(&l->engine->model, &l->apart_run);
    for (int i = 0; i < p->layer_steps; i++)
        p->step_ns[i] = p->step_tokens ? p->step_ns[i] * (uint64_t)p->n_tokens / (uint64_t)p->step_tokens : scheduler_step_ns(&l->sched, p->n_tokens);
    p->step_tokens = p->n_tokens;
    record(l, p, true, 0, 0);
    return model_begin(&l->engine->model, &l->apart_run, p->parts, p->n, e);
}

static uint64_t next_step_ns(const loop_pass *p) {
    const uint64_t ns = p->step_ns[p->steps % p->layer_steps];
    return p->steps ? ns : (uint64_t)(p->first_part * (double)ns);
}

/* The last step, which makes logits if any, says nothing of others. */
static void learn_step(loop_pass *p, bool last, uint64_t ns) {
    const int step = p->steps++;
    if (step == 0) p->first_ns = ns;
    else if (!last) p->step_ns[step % p->layer_steps] = ns;
    if (step == p->layer_steps && ns > 0) p->first_part += 0.3 * (fmin(fmax((double)p->first_ns / (double)ns, 1), 4) - p->first_part);
}

/* After the last step a prompt is one more stream, and one that has much to look at takes its time: then there is nothing left for others to have used before. */
enum { DEEP = 1024 };

static bool adds_deep_stream(const loop *l) {
    const loop_pass *p = &l->apart;
    if (p->steps < l->sched.steps - 1) return false;
    for (int i = 0; i < p->n_pickers; i++)
        if (p->pickers[i]->tokens.n >= DEEP) return true;
    return false;
}

/* Steps of a pass that is under way as long as there is time, and if must at least one. *ns: what they took. */
static bool step_on(loop *l, uint64_t until, bool must, uint64_t *ns, err *e) {
    loop_pass *p = &l->apart;
    const uint64_t began = loop_now(l), waited_before = l->apart_run.waited_ns;
    uint64_t now = began;
    bool ok = true;
    while (ok && p->under_way && (must || (now + next_step_ns(p) <= until && !adds_deep_stream(l)))) {
        const uint64_t from = now;
        bool done = false;
        ok = model_step(&l->apart_run, l->logits, &done, e);
        if (ok && done) pick_all(l, p);
        now = loop_now(l);
        learn_step(p, done, now - from);
        p->under_way = !done;
        must = false;
    }
    *ns = without(now - began, l->apart_run.waited_ns - waited_before);
    p->ns += *ns;
    return ok;
}

/* A step that does not fit waits for a turn in which it does (passes that vary leave little time for a while), but not for ever: prompts always move on. */
enum { MOST_WAITS = 3 };

static bool waits_for_time(loop_pass *p, uint64_t now, uint64_t until) {
    const bool waits = p->under_way && now + next_step_ns(p) > until && p->waits < MOST_WAITS;
    p->waits = waits ? p->waits + 1 : 0;
    return waits;
}

/* A piece of the pass that is under way, or of a new one. False when nothing more is to be done for now. */
static bool run_piece(loop *l, int n_decode, bool must) {
    loop_pass *p = &l->apart;
    err e = {0};
    const uint64_t rest = n_decode ? scheduler_rest_ns(&l->sched, n_decode) : 0, until = n_decode ? l->told_ns + rest : UINT64_MAX, began = loop_now(l);
    if (must ? waits_for_time(p, began, until) : began >= until) return false;
    uint64_t ns = 0;
    const bool begun = p->under_way || begin_apart(l, &e), ok = begun && step_on(l, until, must, &ns, &e);
    if (!begun && e.code == HEARTH_OK) return false;
    if (!ok || p->steps) trace_piece(l->o.trace, began, ok ? ns : 0, ok ? l->sched.steps - p->steps : 0, rest);
    if (ok && p->under_way) return false;
    l->engine->kv_wait_ns += l->apart_run.waited_ns;
    stop_reading(p);
    if (!ok) {
        relieve(l, &e);
        return false;
    }
    scheduler_measure(&l->sched, 0, p->n_tokens, p->ns);
    end_pass(l, p, 0, p->n_tokens, p->ns, loop_now(l));
    return true;
}

void passes_apart(loop *l) {
    for (bool must = true, more = true; more; must = false) {
        int n_decode = 0;
        for (int i = 0; i < l->n_running; i++) n_decode += l->running[i]->decoding;
        more = run_piece(l, n_decode, must) && n_decode > 0;
    }
}
