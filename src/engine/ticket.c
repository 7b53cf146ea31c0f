/* ticket.c: a request as its owner sees it. The loop's thread puts text and tokens into each answer's box, the owner takes them out;
 * a slow reader gets larger pieces, never slows the loop. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "engine/embed.h"
#include "engine/loop_inner.h"

static void outbox_free(outbox *b) {
    buf_free(&b->text);
    mem_free(b->tokens);
    mem_free(b->logprobs);
    mem_free(b->top);
}

static bool outbox_grow(outbox *b, int n_top, err *e) {
    if (b->n < b->cap) return true;
    size_t cap = b->cap ? 2 * b->cap : 32;
    int32_t *tokens = mem_realloc(b->tokens, cap, sizeof *tokens, e);
    if (tokens) b->tokens = tokens;
    float *logprobs = tokens ? mem_realloc(b->logprobs, cap, sizeof *logprobs, e) : NULL;
    if (logprobs) b->logprobs = logprobs;
    if (!logprobs) return false;
    if (n_top > 0) {
        hearth_logprob *top = mem_realloc(b->top, cap * (size_t)n_top, sizeof *top, e);
        if (!top) return false;
        b->top = top;
    }
    b->cap = cap;
    return true;
}

/* ---- the owner's side ---- */

static void choice_free(choice *c) {
    token_list_free(&c->tokens);
    kv_seq_free(&c->kv);
    buf_free(&c->told);
    hearth_sampler_free(c->sampler);
    stop_close(&c->filter);
    outbox_free(&c->box);
}

void ticket_tell_end(choice *c, bool finished) {
    loop_ticket *t = c->ticket;
    if (!t->ended || c->index > 0 || c->end_told) return;
    c->end_told = true;
    t->ended(t->ended_user, &(loop_result){.finished = finished, .kv = &c->kv, .tokens = &c->tokens, .n_prompt = t->n_prompt, .text = &c->told});
}

static void ticket_delete(loop_ticket *t) {
    for (int i = 0; i < t->n; i++) choice_free(&t->choices[i]);
    outbox_free(&t->taken);
    mem_free(t->taken_tokens);
    mem_free(t->hidden);
    mem_free(t->vector);
    mem_free(t->tenant);
    pthread_cond_destroy(&t->news);
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

void ticket_unref(loop_ticket *t) {
    pthread_mutex_lock(&t->lock);
    int left = --t->refs;
    pthread_mutex_unlock(&t->lock);
    if (left == 0) ticket_delete(t);
}

void loop_ticket_free(loop_ticket *t) {
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    t->cancelled = true;
    pthread_mutex_unlock(&t->lock);
    ticket_unref(t);
}

loop_request loop_request_defaults(void) {
    return (loop_request){.n = 1, .sampler = hearth_sampler_defaults(), .max_tokens = -1, .n_logprobs = -1};
}

static bool open_choice(choice *c, loop_ticket *t, int index, const loop_request *r, err *e) {
    hearth_sampler_options o = r->sampler;
    o.seed += (uint64_t)index;
    c->ticket = t;
    c->index = index;
    c->finish = c->closing = LOOP_RUNNING;
    recall_start(t->loop->engine, &c->kv, t->tenant, false);
    c->tokens.ids = mem_alloc(r->n_tokens, sizeof *c->tokens.ids, e);
    if (!c->tokens.ids) return false;
    memcpy(c->tokens.ids, r->tokens, r->n_tokens * sizeof *r->tokens);
    c->tokens.n = c->tokens.cap = r->n_tokens;
    c->in_thought = r->thoughts.inside;
    if (r->embed) return true;
    c->sampler = hearth_sampler_new(t->loop->engine, &o, e);
    if (!c->sampler || !stop_open(&c->filter, r->stop, e)) return false;
    return !r->penalise_prompt || sampler_sync(c->sampler, r->tokens, r->n_tokens, e);
}

static bool check_request(const loop *l, const loop_request *r, err *e) {
    const size_t context = (size_t)l->engine->n_context;
    if (r->n_tokens == 0) return err_set(e, HEARTH_ARGUMENT, "the prompt is empty: give it at least one token");
    if (r->embed && (r->n != 1 || !embed_possible(&l->engine->model.params, e)))
        return r->n == 1 ? false : err_set(e, HEARTH_ARGUMENT, "n must be 1 for a vector, not %d", r->n);
    if (r->n_tokens >= context + r->embed)
        return err_set(e, HEARTH_ARGUMENT, "the prompt has %zu tokens, and the context of %zu leaves no room for an answer", r->n_tokens, context);
    if (r->n < 1 || r->n > l->o.max_running) return err_set(e, HEARTH_ARGUMENT, "n must be from 1 to %d, not %d", l->o.max_running, r->n);
    assert(r->n_shown <= LOOP_SHOWN);
    if (r->max_tokens < -1 || r->n_logprobs > 100) return err_set(e, HEARTH_ARGUMENT, "max_tokens must be -1 or more, and log-probabilities 100 at most");
    for (size_t i = 0; i < r->n_tokens; i++)
        if (r->tokens[i] < 0 || r->tokens[i] >= l->engine->model.params.n_vocab)
            return err_set(e, HEARTH_ARGUMENT, "token %d is not in the vocabulary of %d tokens", r->tokens[i], l->engine->model.params.n_vocab);
    return true;
}

static loop_ticket *ticket_new(loop *l, const loop_request *r, err *e) {
    loop_ticket *t = mem_zalloc(1, sizeof *t + (size_t)r->n * sizeof *t->choices, e);
    if (!t) return NULL;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->news, &monotonic);
    pthread_condattr_destroy(&monotonic);
    t->loop = l;
    t->refs = 1;
    t->n = t->open = r->n;
    t->arrival = loop_now(l);
    t->deadline = r->limit_ns ? t->arrival + r->limit_ns : UINT64_MAX;
    t->owner = r->owner;
    t->ended = r->ended;
    t->ended_user = r->ended_user;
    t->priority = r->priority;
    t->max_tokens = r->max_tokens;
    t->n_logprobs = r->n_logprobs;
    t->ignore_end = r->ignore_end;
    t->show_special = r->show_special;
    t->n_shown = r->n_shown;
    for (int i = 0; i < r->n_shown; i++) t->shown[i] = r->shown[i];
    t->thoughts = r->thoughts;
    t->n_prompt = r->n_tokens;
    t->usage.prompt_tokens = (int)r->n_tokens;
    if (r->tenant && *r->tenant) t->tenant = mem_strndup(r->tenant, strlen(r->tenant), e);
    const size_t width = (size_t)l->engine->model.params.n_embd, rows = r->n_tokens < MODEL_CHUNK ? r->n_tokens : MODEL_CHUNK;
    bool ok = t->tenant || !r->tenant || !*r->tenant;
    if (r->embed) ok = ok && (t->vector = mem_zalloc(width, sizeof *t->vector, e)) && (t->hidden = mem_alloc(rows * width, sizeof *t->hidden, e));
    for (int i = 0; ok && i < r->n; i++) ok = open_choice(&t->choices[i], t, i, r, e);
    if (ok) return t;
    ticket_delete(t);
    return NULL;
}

/* Whether n more may come. Under the lock. */
static bool has_room(const loop *l, int n, err *e) {
    if (l->draining || l->ending) return err_set(e, HEARTH_CANCELLED, "the server is stopping");
    if (l->n_waiting + n > l->o.max_queue + (l->o.max_running - (l->n_live - l->n_waiting)))
        return err_set(e, HEARTH_LIMIT, "too many requests wait already (%d): try again later", l->n_waiting);
    return true;
}

/* Puts the ticket's answers into the inbox, unless too many wait. */
static bool enqueue(loop *l, loop_ticket *t, err *e) {
    if (!has_room(l, t->n, e)) return false;
    if (l->n_inbox + (size_t)t->n > l->cap_inbox) {
        size_t cap = 2 * (l->n_inbox + (size_t)t->n);
        choice **inbox = mem_realloc(l->inbox, cap, sizeof *inbox, e);
        if (!inbox) return false;
        l->inbox = inbox;
        l->cap_inbox = cap;
    }
    for (int i = 0; i < t->n; i++) {
        t->choices[i].order = l->order++;
        l->inbox[l->n_inbox++] = &t->choices[i];
        t->refs++;
    }
    l->n_waiting += t->n;
    l->n_live += t->n;
    pthread_cond_signal(&l->wake);
    return true;
}

loop_ticket *loop_submit(loop *l, const loop_request *r, err *e) {
    err local = {0};
    if (!e) e = &local;
    loop_ticket *t = check_request(l, r, e) ? ticket_new(l, r, e) : NULL;
    if (!t) return NULL;
    pthread_mutex_lock(&l->lock);
    bool ok = has_room(l, t->n, e), others_compute = l->n_live > 0;
    pthread_mutex_unlock(&l->lock);
    /* The disk is read here, so that running streams do not wait for it. */
    if (ok) t->loaded = r->loaded + recall_warm(l->engine, t->tenant, admit_wants_long(l, r->n_tokens), r->tokens, r->n_tokens - 1, others_compute);
    pthread_mutex_lock(&l->lock);
    ok = ok && enqueue(l, t, e);
    pthread_mutex_unlock(&l->lock);
    if (!ok) {
        t->ended = NULL; /* it never began */
        if (e->code == HEARTH_LIMIT) l->refused++;
        ticket_delete(t);
        return NULL;
    }
    l->requests++;
    l->prompt_tokens += r->n_tokens;
    return t;
}

/* An answer with news, beginning with the one whose turn it is. */
static choice *find_news(loop_ticket *t) {
    for (int i = 0; i < t->n; i++) {
        choice *c = &t->choices[(t->next + i) % t->n];
        if (c->box.text.len || c->box.n || (c->finish != LOOP_RUNNING && !c->finish_told)) return c;
    }
    return NULL;
}

/* Swaps the box with the one that was read before. */
static bool take(loop_ticket *t, choice *c, loop_piece *piece, err *e) {
    outbox box = c->box;
    c->box = t->taken;
    c->box.text.len = c->box.n = 0;
    t->taken = box;
    if (box.n > t->cap_taken) {
        loop_token *tokens = mem_realloc(t->taken_tokens, box.cap, sizeof *tokens, e);
        if (!tokens) return false;
        t->taken_tokens = tokens;
        t->cap_taken = box.cap;
    }
    const int n_top = t->n_logprobs > 0 ? t->n_logprobs : 0;
    for (size_t i = 0; i < box.n; i++)
        t->taken_tokens[i] = (loop_token){.token = box.tokens[i], .logprob = box.logprobs[i], .top = n_top ? box.top + i * (size_t)n_top : NULL};
    *piece = (loop_piece){.choice = c->index, .text = box.text.data ? box.text.data : "", .len = box.text.len, .tokens = t->taken_tokens, .n_tokens = box.n,
                          .finish = c->finish};
    if (box.text.data) box.text.data[box.text.len] = 0;
    for (size_t i = 0; c->finish == LOOP_STOP && i < c->filter.n; i++)
        if (c->filter.strings[i].matched == c->filter.strings[i].len) piece->stop = c->filter.strings[i].text;
    if (c->finish != LOOP_RUNNING) c->finish_told = true;
    t->next = (c->index + 1) % t->n;
    return true;
}

static struct timespec time_after(uint64_t ns) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    uint64_t nsec = (uint64_t)until.tv_nsec + ns % 1000000000u;
    until.tv_sec += (time_t)(ns / 1000000000u + nsec / 1000000000u);
    until.tv_nsec = (long)(nsec % 1000000000u);
    return until;
}

loop_news loop_next(loop_ticket *t, uint64_t timeout_ns, loop_piece *piece, err *e) {
    struct timespec until = time_after(timeout_ns);
    loop_news news = LOOP_IDLE;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        choice *c = find_news(t);
        if (c) {
            news = take(t, c, piece, e) ? LOOP_PIECE : LOOP_FAILED;
        } else if (t->failed) {
            if (e) *e = t->error;
            news = LOOP_FAILED;
        } else if (t->open == 0) {
            news = LOOP_DONE;
        } else if (pthread_cond_timedwait(&t->news, &t->lock, &until) != ETIMEDOUT) {
            continue;
        }
        break;
    }
    pthread_mutex_unlock(&t->lock);
    return news;
}

loop_usage loop_ticket_usage(loop_ticket *t) {
    pthread_mutex_lock(&t->lock);
    loop_usage u = t->usage;
    pthread_mutex_unlock(&t->lock);
    return u;
}

const float *loop_ticket_vector(const loop_ticket *t) { return t->vector; }

/* ---- the thread's side ---- */

bool ticket_is_over(loop_ticket *t) {
    pthread_mutex_lock(&t->lock);
    bool over = t->cancelled || t->failed;
    pthread_mutex_unlock(&t->lock);
    return over;
}

static bool put(choice *c, int32_t token, const char *text, size_t len, err *e) {
    const int n_top = c->ticket->n_logprobs > 0 ? c->ticket->n_logprobs : 0;
    outbox *b = &c->box;
    if (!buf_add(&b->text, text, len, e) || !outbox_grow(b, n_top, e)) return false;
    b->tokens[b->n] = token;
    b->logprobs[b->n] = 0;
    if (c->ticket->n_logprobs >= 0)
        b->logprobs[b->n] = hearth_logprobs(c->ticket->loop->engine, c->logits, token, n_top ? b->top + b->n * (size_t)n_top : NULL, (size_t)n_top);
    b->n++;
    return true;
}

bool ticket_token(choice *c, int32_t token, bool told, const char *text, size_t len, err *e) {
    loop_ticket *t = c->ticket;
    pthread_mutex_lock(&t->lock);
    t->usage.completion_tokens++;
    if (!t->usage.first_ns) t->usage.first_ns = c->last_ns - t->arrival;
    bool ok = told ? put(c, token, text, len, e) : buf_add(&c->box.text, text, len, e);
    if (ok && t->ended) ok = buf_add(&c->told, text, len, e);
    if (c->box.n || c->box.text.len) pthread_cond_signal(&t->news);
    pthread_mutex_unlock(&t->lock);
    return ok;
}

void ticket_finish(choice *c, loop_finish finish, const char *text, size_t len, uint64_t now) {
    loop_ticket *t = c->ticket;
    pthread_mutex_lock(&t->lock);
    err e = {0};
    if (!buf_add(&c->box.text, text, len, &e) && !t->failed) {
        t->failed = true;
        t->error = e;
    }
    c->finish = finish;
    if (--t->open == 0) t->usage.total_ns = now - t->arrival;
    pthread_cond_signal(&t->news);
    pthread_mutex_unlock(&t->lock);
}

void ticket_fail(loop_ticket *t, const err *e) {
    pthread_mutex_lock(&t->lock);
    if (!t->failed) {
        t->failed = true;
        t->error = *e;
    }
    pthread_cond_signal(&t->news);
    pthread_mutex_unlock(&t->lock);
}
