/* admit.c: who starts, who steps back and who leaves, within the budget for keys and values.
 *
 * The budget is the engine's (kv_memory). What nobody holds is evicted by the cache when room is needed and is on disk where there is a store; what runs is held. So
 * it is enough that what runs fits: a sequence starts when its prompt and a block more fit beside the others, and when they outgrow the budget the
 * youngest steps back into the queue. It goes on from what is still remembered of it. */
#include <string.h>

#include "engine/loop_inner.h"

/* ---- arriving and leaving ---- */

void admit_unqueue(loop *l, size_t i) {
    memmove(l->waiting + i, l->waiting + i + 1, (l->n_queue - i - 1) * sizeof *l->waiting);
    l->n_queue--;
    pthread_mutex_lock(&l->lock);
    l->n_waiting--;
    pthread_mutex_unlock(&l->lock);
}

/* Room for n more in the queue. */
static bool grow_queue(loop *l, size_t n) {
    if (l->n_queue + n <= l->cap_waiting) return true;
    err ignored = {0};
    size_t cap = 2 * (l->n_queue + n);
    choice **waiting = mem_realloc(l->waiting, cap, sizeof *waiting, &ignored);
    if (!waiting) return false;
    l->waiting = waiting;
    l->cap_waiting = cap;
    return true;
}

bool admit_arrivals(loop *l) {
    pthread_mutex_lock(&l->lock);
    while (!l->ending && l->n_inbox == 0 && l->n_queue == 0 && l->n_running == 0) pthread_cond_wait(&l->wake, &l->lock);
    bool go_on = !l->ending;
    if (grow_queue(l, l->n_inbox)) { /* else they stay in the inbox until there is memory */
        if (l->n_inbox) memcpy(l->waiting + l->n_queue, l->inbox, l->n_inbox * sizeof *l->inbox);
        for (size_t i = 0; i < l->n_inbox; i++) {
            const choice *c = l->inbox[i];
            trace_arrive(l->o.trace, c->order, c->ticket->arrival, c->tokens.n, c->ticket->priority, c->ticket->owner);
        }
        l->n_queue += l->n_inbox;
        l->n_inbox = 0;
    }
    pthread_mutex_unlock(&l->lock);
    return go_on;
}

static bool is_over(loop *l, choice *c, uint64_t now) {
    if (now > c->ticket->deadline && !ticket_is_over(c->ticket)) {
        err e = {0};
        err_set(&e, HEARTH_LIMIT, "the request's time limit of %.0f s is over", (double)(c->ticket->deadline - c->ticket->arrival) * 1e-9);
        ticket_fail(c->ticket, &e);
        l->failed++;
        return true;
    }
    if (!ticket_is_over(c->ticket)) return false;
    l->cancelled++;
    return true;
}

void admit_drop_ended(loop *l) {
    uint64_t now = loop_now(l);
    for (size_t i = l->n_queue; i-- > 0;) {
        choice *c = l->waiting[i];
        if (!is_over(l, c, now)) continue;
        admit_unqueue(l, i);
        loop_leave(l, c);
    }
    for (int i = l->n_running; i-- > 0;) {
        choice *c = l->running[i];
        if (!is_over(l, c, now)) continue;
        loop_remove_running(l, c);
        loop_leave(l, c);
    }
}

/* ---- the budget ---- */

/* Sequences share only what they begin with, so how many blocks two have in common is found by halving. */
static size_t common_blocks(const kv_seq *a, const kv_seq *b) {
    size_t low = 0, high = a->n_blocks < b->n_blocks ? a->n_blocks : b->n_blocks;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (a->blocks[middle] == b->blocks[middle]) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Blocks that the running sequences hold, shared ones counted once, and those they will need until their prompts are read and a block more is made. */
static size_t running_blocks(const loop *l, size_t *promised) {
    size_t n = 0;
    *promised = 0;
    for (int i = 0; i < l->n_running; i++) {
        const kv_seq *kv = &l->running[i]->kv;
        size_t shared = 0, all = (l->running[i]->tokens.n + 2 * KV_BLOCK - 1) / KV_BLOCK;
        for (int k = 0; k < i; k++) {
            size_t common = common_blocks(kv, &l->running[k]->kv);
            if (common > shared) shared = common;
        }
        n += kv->n_blocks - shared;
        if (all > kv->n_blocks) *promised += all - kv->n_blocks;
    }
    return n;
}

/* A block with its tokens and its place in the tree. */
static uint64_t block_bytes(const loop *l) { return l->engine->model.kv.block_bytes + KV_BLOCK * sizeof(int32_t) + 2 * sizeof(kv_block); }

uint64_t admit_running_bytes(const loop *l) {
    size_t promised;
    return (uint64_t)running_blocks(l, &promised) * block_bytes(l);
}

/* Whether so many more blocks fit beside what runs. */
static bool fits(const loop *l, size_t more) {
    size_t promised, held = running_blocks(l, &promised);
    uint64_t budget = l->engine->kv_cache ? kv_cache_stats(l->engine->kv_cache).budget : 0;
    return (uint64_t)(held + promised + more) * block_bytes(l) <= budget;
}

/* From those that run to the queue. */
static bool step_back(loop *l, choice *c) {
    if (!grow_queue(l, 1)) return false;
    loop_remove_running(l, c);
    recall_end(l->engine, &c->kv, c->tokens.ids);
    c->started = true;
    c->decoding = false;
    l->waiting[l->n_queue++] = c;
    trace_changed(l->o.trace, TRACE_BACK, c->order);
    pthread_mutex_lock(&l->lock);
    l->n_waiting++;
    pthread_mutex_unlock(&l->lock);
    return true;
}

bool admit_preempt(loop *l) {
    choice *youngest = l->running[0];
    for (int i = 1; i < l->n_running; i++)
        if (l->running[i]->order > youngest->order) youngest = l->running[i];
    if (!step_back(l, youngest)) return false;
    l->preemptions++;
    return true;
}

bool admit_mend(loop *l) {
    bool any = false;
    for (int i = l->n_running; i-- > 0;) {
        choice *c = l->running[i];
        if (!kv_seq_mend(&c->kv)) continue;
        any = true;
        c->mended++;
        c->decoding = false;
        step_back(l, c);
    }
    return any;
}

void admit_keep_budget(loop *l) {
    while (l->n_running > 1 && !fits(l, 0))
        if (!admit_preempt(l)) return;
}

/* ---- starting ---- */

bool admit_wants_long(const loop *l, size_t n_tokens) {
    const model *m = &l->engine->model;
    return m->rope.full_long && n_tokens > (size_t)m->params.original_context;
}

/* What the first answer has read of the prompt is shared with the others. */
static bool fork_first(choice *c) {
    const loop_ticket *t = c->ticket;
    const choice *first = &t->choices[0];
    if (c->index == 0 || c->started || first->long_context != c->long_context || first->kv.length < t->n_prompt) return false;
    kv_seq fork;
    if (!kv_seq_fork(&fork, &first->kv, NULL)) return false;
    kv_seq_truncate(&fork, t->n_prompt - 1);
    kv_seq_free(&c->kv);
    c->kv = fork;
    return true;
}

/* What is remembered of a sequence's tokens; the last one is computed in any case, for its logits. */
static void recall(loop *l, choice *c) {
    c->long_context = admit_wants_long(l, c->tokens.n);
    if (fork_first(c)) return;
    kv_seq_free(&c->kv);
    if (c->ticket->vector) { /* every token's state is wanted, and nothing is kept */
        c->kv = (kv_seq){.layout = &l->engine->model.kv};
        return;
    }
    recall_start(l->engine, &c->kv, c->ticket->tenant, c->long_context);
    recall_find(l->engine, &c->kv, c->tokens.ids, c->tokens.n - 1, c->mended < 2);
}

/* The first answer's start is the request's. */
static void count_start(loop *l, const choice *c) {
    loop_ticket *t = c->ticket;
    size_t warm = t->loaded < c->kv.length ? t->loaded : c->kv.length;
    *(c->kv.length ? &l->hits : &l->misses) += 1;
    l->warm_tokens += warm;
    l->hot_tokens += c->kv.length - warm;
    pthread_mutex_lock(&t->lock);
    t->usage.cached_tokens = (int)c->kv.length;
    t->usage.warm_tokens = (int)warm;
    t->usage.queued_ns = loop_now(l) - t->arrival;
    pthread_mutex_unlock(&t->lock);
}

/* What was thought to be known was damaged. */
static void count_less(loop *l, const choice *c) {
    loop_ticket *t = c->ticket;
    pthread_mutex_lock(&t->lock);
    const int lost = t->usage.cached_tokens - (int)c->kv.length, warm = lost < t->usage.warm_tokens ? lost : t->usage.warm_tokens;
    if (lost > 0) {
        t->usage.cached_tokens -= lost;
        t->usage.warm_tokens -= warm;
        l->warm_tokens -= (uint64_t)warm;
        l->hot_tokens -= (uint64_t)(lost - warm);
    }
    pthread_mutex_unlock(&t->lock);
}

static bool same_tenant(const loop_ticket *a, const loop_ticket *b) { return a->tenant ? b->tenant && strcmp(a->tenant, b->tenant) == 0 : !b->tenant; }

/* Whether a running sequence is about to compute a block that this one needs too: then it is read once. */
static bool is_being_read(const loop *l, const choice *c) {
    for (int i = 0; l->engine->kv_cache && i < l->n_running; i++) {
        const choice *r = l->running[i];
        size_t next = (r->kv.length / KV_BLOCK + 1) * KV_BLOCK;
        if (r->decoding || r->tokens.n <= next || c->tokens.n <= next || c->ticket->priority > r->ticket->priority) continue;
        if (admit_wants_long(l, c->tokens.n) != r->long_context || !same_tenant(c->ticket, r->ticket)) continue;
        if (memcmp(c->tokens.ids, r->tokens.ids, next * sizeof *c->tokens.ids) == 0) return true;
    }
    return false;
}

/* The other answers to a prompt start when the first one has read it. */
static bool is_held(const loop *l, const choice *c) {
    const choice *first = &c->ticket->choices[0];
    return (c->index > 0 && first->picked == 0 && first->finish == LOOP_RUNNING) || is_being_read(l, c);
}

bool admit_could_start(loop *l) {
    bool any = false;
    pthread_mutex_lock(&l->lock);
    for (size_t i = 0; i < l->n_inbox && l->n_running < l->o.max_running && !any; i++) any = !is_held(l, l->inbox[i]);
    pthread_mutex_unlock(&l->lock);
    return any;
}

static int running_of(const loop *l, uint64_t owner) {
    int n = 0;
    for (int i = 0; i < l->n_running; i++) n += l->running[i]->ticket->owner == owner;
    return n;
}

static int next_waiting(loop *l) {
    int best = -1;
    sched_waiting pair[2];
    for (size_t i = 0; i < l->n_queue; i++) {
        const choice *c = l->waiting[i];
        sched_waiting w = {.priority = c->ticket->priority, .agent_running = running_of(l, c->ticket->owner), .order = c->order, .held = is_held(l, c)};
        if (c->started) w.agent_running = 0; /* its turn had come before */
        pair[best >= 0] = w;
        int first = scheduler_next(pair, best >= 0 ? 2 : 1);
        if (first < 0 || (best >= 0 && first == 0)) continue;
        pair[0] = w;
        best = (int)i;
    }
    return best;
}

/* Those that wait and must not start yet, as far as there is room for them. */
static size_t list_held(const loop *l, uint64_t *out, size_t cap) {
    size_t n = 0;
    for (size_t i = 0; l->o.trace && i < l->n_queue && n < cap; i++)
        if (is_held(l, l->waiting[i])) out[n++] = l->waiting[i]->order;
    return n;
}

void admit_start(loop *l) {
    uint64_t held[MOST_RUNNING];
    while (l->n_running < l->o.max_running && l->n_queue > 0) {
        int i = next_waiting(l);
        if (i < 0 || (l->n_running > 0 && !fits(l, 2))) return;
        choice *c = l->waiting[i];
        size_t n_held = list_held(l, held, MOST_RUNNING);
        recall(l, c);
        l->running[l->n_running++] = c;
        /* What it shares is known only now. */
        if (l->n_running > 1 && !fits(l, 1)) {
            l->n_running--;
            recall_end(l->engine, &c->kv, c->tokens.ids);
            return;
        }
        l->running_now = l->n_running;
        admit_unqueue(l, (size_t)i);
        if (l->o.trace) trace_start(l->o.trace, c->order, loop_now(l), c->tokens.n, c->kv.length, held, n_held);
        if (!c->started && c->index == 0) count_start(l, c);
        else if (c->mended && c->picked == 0 && c->index == 0) count_less(l, c);
    }
}
