/* grammar.c: a grammar and the states of the texts that follow it. One lock covers what a grammar remembers. */
#include "engine/grammar.h"

#include <pthread.h>
#include <stdatomic.h>

#include "engine/grammar_mask.h"

struct grammar_state {
    hearth_grammar *grammar;
    int32_t config;
    grammar_state *previous, *next; /* the states of a grammar are a list, so that it knows what is in use */
};

struct hearth_grammar {
    atomic_int owners;
    const grammar_vocab *vocab;
    grammar_net net;
    pthread_mutex_t lock; /* of everything below */
    grammar_machine machine;
    grammar_masks masks;
    int32_t start;
    grammar_state *states;
    size_t budget;
};

/* ---- making ---- */

static uint32_t read_text(grammar_build *b, hearth_grammar_kind kind, const char *text, size_t len) {
    switch (kind) {
    case HEARTH_GRAMMAR_GBNF:
        return grammar_read_gbnf(b, text, len);
    case HEARTH_GRAMMAR_JSON_SCHEMA:
        return grammar_read_schema(b, text, len);
    case HEARTH_GRAMMAR_REGEX:
        return grammar_read_regex(b, text, len, GRAMMAR_REGEX_WHOLE).expr;
    case HEARTH_GRAMMAR_JSON:
        return grammar_read_json(b);
    }
    return err_set(b->e, HEARTH_ARGUMENT, "%d is no kind of grammar", (int)kind);
}

static bool make_net(grammar_net *net, hearth_grammar_kind kind, const char *text, size_t len, err *e) {
    grammar_build b = {.e = e};
    if (len > GRAMMAR_MAX_TEXT)
        return err_set(e, HEARTH_LIMIT, "a grammar may have at most %d bytes, and this one has %zu", GRAMMAR_MAX_TEXT, len);
    uint32_t root = read_text(&b, kind, text, len);
    bool ok = !grammar_failed(&b) && grammar_net_make(net, &b, root, e);
    grammar_build_free(&b);
    return ok;
}

hearth_grammar *grammar_new(const grammar_vocab *v, hearth_grammar_kind kind, const char *text, size_t len, err *error) {
    err local = {0}, *e = error ? error : &local;
    hearth_grammar *g = mem_zalloc(1, sizeof *g, e);
    if (!g) return NULL;
    pthread_mutex_init(&g->lock, NULL);
    atomic_init(&g->owners, 1);
    g->vocab = v;
    g->budget = (size_t)64 << 20;
    bool ok = make_net(&g->net, kind, text, len, e) && grammar_machine_make(&g->machine, &g->net, e) &&
              grammar_masks_make(&g->masks, v, &g->machine, e);
    if (ok) {
        g->machine.max_bytes = 4 * g->budget;
        g->start = grammar_machine_start(&g->machine, e);
        ok = g->start >= 0;
    }
    if (ok) return g;
    hearth_grammar_free(g);
    return NULL;
}

hearth_grammar *grammar_share(hearth_grammar *g) {
    if (g) atomic_fetch_add(&g->owners, 1);
    return g;
}

void hearth_grammar_free(hearth_grammar *g) {
    if (!g || atomic_fetch_sub(&g->owners, 1) > 1) return;
    grammar_masks_free(&g->masks);
    grammar_machine_free(&g->machine);
    grammar_net_free(&g->net);
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

const grammar_vocab *grammar_vocab_of(const hearth_grammar *g) { return g->vocab; }

void grammar_set_budget(hearth_grammar *g, size_t bytes) {
    pthread_mutex_lock(&g->lock);
    g->budget = bytes;
    g->machine.max_bytes = bytes > SIZE_MAX / 4 ? SIZE_MAX : 4 * bytes;
    pthread_mutex_unlock(&g->lock);
}

/* ---- states ---- */

static grammar_state *add_state(hearth_grammar *g, const grammar_state *like, err *e) {
    grammar_state *s = mem_zalloc(1, sizeof *s, e);
    if (!s) return NULL;
    s->grammar = grammar_share(g);
    pthread_mutex_lock(&g->lock);
    s->config = like ? like->config : g->start;
    s->next = g->states;
    if (s->next) s->next->previous = s;
    g->states = s;
    pthread_mutex_unlock(&g->lock);
    return s;
}

grammar_state *grammar_state_new(hearth_grammar *g, err *e) { return add_state(g, NULL, e); }
grammar_state *grammar_state_copy(const grammar_state *s, err *e) { return add_state(s->grammar, s, e); }

void grammar_state_free(grammar_state *s) {
    if (!s) return;
    hearth_grammar *g = s->grammar;
    pthread_mutex_lock(&g->lock);
    if (s->previous) s->previous->next = s->next;
    else g->states = s->next;
    if (s->next) s->next->previous = s->previous;
    pthread_mutex_unlock(&g->lock);
    mem_free(s);
    hearth_grammar_free(g);
}

/* Within the lock: makes room when more is remembered than the budget allows. */
static bool make_room(hearth_grammar *g, err *e) {
    g->machine.effort = 0;
    if (grammar_machine_bytes(&g->machine) + g->masks.bytes <= g->budget) return true;
    size_t n = 1;
    for (const grammar_state *s = g->states; s; s = s->next) n++;
    int32_t **keep = mem_alloc(n, sizeof *keep, e);
    if (!keep) return false;
    n = 0;
    keep[n++] = &g->start;
    for (grammar_state *s = g->states; s; s = s->next) keep[n++] = &s->config;
    bool ok = grammar_machine_forget(&g->machine, keep, n, e);
    if (ok) grammar_masks_forget(&g->masks);
    mem_free(keep);
    return ok;
}

void grammar_state_restart(grammar_state *s) {
    pthread_mutex_lock(&s->grammar->lock);
    s->config = s->grammar->start;
    pthread_mutex_unlock(&s->grammar->lock);
}

/* Within the lock. */
static bool add_bytes(grammar_state *s, const unsigned char *bytes, size_t len, err *e) {
    hearth_grammar *g = s->grammar;
    if (!make_room(g, e)) return false;
    int32_t config = s->config;
    for (size_t i = 0; i < len && config >= 0; i++) config = grammar_machine_step(&g->machine, config, g->net.class_of[bytes[i]], e);
    if (config == CONFIG_FAILED) return false;
    if (config == CONFIG_DEAD) {
        char quoted[128];
        return err_set(e, HEARTH_ARGUMENT, "the grammar does not allow '%s' here",
                       err_quote(quoted, sizeof quoted, (const char *)bytes, len));
    }
    s->config = config;
    return true;
}

bool grammar_state_add(grammar_state *s, const char *bytes, size_t len, err *e) {
    pthread_mutex_lock(&s->grammar->lock);
    bool ok = add_bytes(s, (const unsigned char *)bytes, len, e);
    pthread_mutex_unlock(&s->grammar->lock);
    return ok;
}

static bool can_end(const grammar_state *s) { return (s->grammar->machine.config_flags[s->config] & CONFIG_ENDS) != 0; }

bool grammar_state_can_end(const grammar_state *s) {
    pthread_mutex_lock(&s->grammar->lock);
    bool yes = can_end(s);
    pthread_mutex_unlock(&s->grammar->lock);
    return yes;
}

bool grammar_state_accept(grammar_state *s, int32_t token, err *e) {
    hearth_grammar *g = s->grammar;
    const grammar_vocab *v = g->vocab;
    if (token < 0 || token >= v->n_tokens)
        return err_set(e, HEARTH_ARGUMENT, "token %d is not in the vocabulary of %d tokens", token, v->n_tokens);
    if (v->ends[token / 64] >> (token % 64) & 1)
        return grammar_state_can_end(s) || err_set(e, HEARTH_ARGUMENT, "the grammar does not allow the answer to end here");
    const size_t len = v->at[token + 1] - v->at[token];
    if (len == 0) return err_set(e, HEARTH_ARGUMENT, "the grammar does not allow token %d, which has no text", token);
    return grammar_state_add(s, (const char *)v->bytes + v->at[token], len, e);
}

bool grammar_state_mask(grammar_state *s, uint64_t *bits, err *e) {
    hearth_grammar *g = s->grammar;
    pthread_mutex_lock(&g->lock);
    bool ok = make_room(g, e) && grammar_masks_of(&g->masks, s->config, bits, e);
    pthread_mutex_unlock(&g->lock);
    if (!ok) return false;
    for (size_t i = 0, n = grammar_mask_words(g->vocab); i < n; i++)
        if (bits[i]) return true;
    return err_set(e, HEARTH_UNSUPPORTED, "the grammar asks for bytes that no token of this model's vocabulary can continue with");
}
