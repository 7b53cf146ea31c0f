/* sampler.c: what a token's logit becomes because of what was said before (bias, penalties, DRY), and the sampler's
 * own state: the history and the random numbers. The choice itself is in choose.c. */
#include "engine/sampler.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/choose.h"
#include "engine/engine.h"
#include "engine/grammar.h"

/* A token of the history. */
typedef struct said {
    int32_t token;
    bool breaks; /* an occurrence of a DRY breaker ends in this token's text */
} said;

struct hearth_sampler {
    const hearth_engine *engine;
    hearth_sampler_options o; /* its pointers are the caller's: the copies below count */
    hearth_logit_bias *bias;
    int32_t n_vocab;
    sampler_text *text;
    const void *text_context;
    char **breakers;
    size_t longest_breaker;
    said *history;
    size_t n, cap;
    int32_t *counts;  /* how often each token occurs in the penalties' window */
    int32_t *repeats; /* DRY: longest repeat that each token would continue; all 0 between picks */
    int32_t *matches; /* DRY: cap of them */
    float *logits;
    candidate *work;
    uint64_t random;
    grammar_state *grammar; /* NULL: anything goes */
    uint64_t *mask;
    bool answering;         /* the tokens from answer_start on were picked: the grammar's text */
    size_t answer_start;
};

hearth_sampler_options hearth_sampler_defaults(void) {
    return (hearth_sampler_options){
        .temperature = 0.8f,
        .top_k = 40,
        .top_p = 0.95f,
        .min_p = 0.05f,
        .typical_p = 1,
        .repeat_penalty = 1,
        .penalty_last_n = 64,
        .dry_base = 1.75f,
        .dry_allowed_length = 2,
        .dry_last_n = -1,
    };
}

static bool has_penalties(const hearth_sampler_options *o) {
    return o->penalty_last_n != 0 && (o->repeat_penalty != 1 || o->frequency_penalty != 0 || o->presence_penalty != 0);
}
static bool has_dry(const hearth_sampler_options *o) { return o->dry_multiplier > 0 && o->dry_last_n != 0; }

/* ---- options ---- */

static bool between(const char *name, float value, float min, float max, err *e) {
    if (value >= min && value <= max) return true;
    return err_set(e, HEARTH_ARGUMENT, "%s must be from %g to %g, not %g", name, min, max, value);
}
static bool at_least(const char *name, float value, float min, err *e) {
    if (isfinite(value) && value >= min) return true;
    return err_set(e, HEARTH_ARGUMENT, "%s must be a number of %g or more, not %g", name, min, value);
}
static bool any_number(const char *name, float value, err *e) {
    return isfinite(value) || err_set(e, HEARTH_ARGUMENT, "%s must be a number, not %g", name, value);
}
static bool whole(const char *name, int value, int min, err *e) {
    return value >= min || err_set(e, HEARTH_ARGUMENT, "%s must be %d or more, not %d", name, min, value);
}

static bool check_options(const hearth_sampler_options *o, int32_t n_vocab, err *e) {
    bool ok = at_least("temperature", o->temperature, 0, e) && whole("top_k", o->top_k, 0, e) && between("top_p", o->top_p, 0, 1, e) &&
              between("min_p", o->min_p, 0, 1, e) && between("typical_p", o->typical_p, 0, 1, e) &&
              any_number("frequency_penalty", o->frequency_penalty, e) && any_number("presence_penalty", o->presence_penalty, e) &&
              whole("penalty_last_n", o->penalty_last_n, -1, e) && at_least("dry_multiplier", o->dry_multiplier, 0, e) &&
              whole("dry_allowed_length", o->dry_allowed_length, 0, e) && whole("dry_last_n", o->dry_last_n, -1, e);
    if (!ok) return false;
    if (!isfinite(o->repeat_penalty) || o->repeat_penalty <= 0)
        return err_set(e, HEARTH_ARGUMENT, "repeat_penalty must be a number above 0, not %g", o->repeat_penalty);
    if (has_dry(o) && !at_least("dry_base", o->dry_base, 1, e)) return false;
    for (const char *const *b = o->dry_breakers; b && *b; b++)
        if (!**b) return err_set(e, HEARTH_ARGUMENT, "a DRY breaker must not be empty");
    for (size_t i = 0; i < o->n_logit_bias; i++) {
        const hearth_logit_bias *b = &o->logit_bias[i];
        if (b->token < 0 || b->token >= n_vocab)
            return err_set(e, HEARTH_ARGUMENT, "logit_bias names token %d, but the model has tokens 0 to %d", b->token, n_vocab - 1);
        if (isnan(b->bias) || b->bias == INFINITY)
            return err_set(e, HEARTH_ARGUMENT, "the logit_bias of token %d must be a number or minus infinity", b->token);
    }
    return true;
}

static bool copy_breakers(hearth_sampler *s, const char *const *from, err *e) {
    static const char *const usual[] = {"\n", ":", "\"", "*", NULL};
    if (!from) from = usual;
    size_t n = 0;
    while (from[n]) n++;
    s->breakers = mem_zalloc(n + 1, sizeof *s->breakers, e);
    if (!s->breakers) return false;
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(from[i]);
        s->breakers[i] = mem_strndup(from[i], len, e);
        if (!s->breakers[i]) return false;
        if (len > s->longest_breaker) s->longest_breaker = len;
    }
    return true;
}

static bool copy_bias(hearth_sampler *s, const hearth_logit_bias *from, err *e) {
    s->bias = mem_alloc(s->o.n_logit_bias, sizeof *s->bias, e);
    if (s->bias && s->o.n_logit_bias) memcpy(s->bias, from, s->o.n_logit_bias * sizeof *from);
    return s->bias != NULL;
}

/* SplitMix64. */
static uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

hearth_sampler *sampler_new(int32_t n_vocab, sampler_text *text, const void *context, const hearth_sampler_options *options, err *e) {
    const hearth_sampler_options o = options ? *options : hearth_sampler_defaults();
    if (!check_options(&o, n_vocab, e)) return NULL;
    hearth_sampler *s = mem_zalloc(1, sizeof *s, e);
    if (!s) return NULL;
    s->o = o;
    s->n_vocab = n_vocab;
    s->text = text;
    s->text_context = context;
    /* Neighbouring seeds must not be neighbouring states. */
    uint64_t seed = o.seed;
    s->random = next_random(&seed);
    bool ok = copy_bias(s, o.logit_bias, e) && copy_breakers(s, o.dry_breakers, e);
    ok = ok && (s->counts = mem_zalloc((size_t)n_vocab, sizeof *s->counts, e));
    ok = ok && (s->logits = mem_alloc((size_t)n_vocab, sizeof *s->logits, e));
    ok = ok && (s->work = mem_alloc((size_t)n_vocab, sizeof *s->work, e));
    if (has_dry(&o)) ok = ok && (s->repeats = mem_zalloc((size_t)n_vocab, sizeof *s->repeats, e));
    if (o.grammar) ok = ok && (s->grammar = grammar_state_new(o.grammar, e));
    if (o.grammar) ok = ok && (s->mask = mem_alloc(grammar_mask_words(grammar_vocab_of(o.grammar)), sizeof *s->mask, e));
    if (ok) return s;
    hearth_sampler_free(s);
    return NULL;
}

static const char *engine_text(const void *engine, int32_t token, size_t *len) { return hearth_token_bytes(engine, token, true, len); }

hearth_sampler *hearth_sampler_new(const hearth_engine *engine, const hearth_sampler_options *options, hearth_error *error) {
    err_clear(error);
    if (options && options->grammar && grammar_vocab_of(options->grammar) != engine->grammar_vocab) {
        err_set(error, HEARTH_ARGUMENT, "the grammar was made for another engine than the sampler");
        return NULL;
    }
    hearth_sampler *s = sampler_new(hearth_engine_info(engine).n_vocab, engine_text, engine, options, error);
    if (s) s->engine = engine;
    return s;
}

void hearth_sampler_free(hearth_sampler *s) {
    if (!s) return;
    for (char **b = s->breakers; b && *b; b++) mem_free(*b);
    mem_free(s->breakers);
    mem_free(s->bias);
    mem_free(s->history);
    mem_free(s->counts);
    mem_free(s->repeats);
    mem_free(s->matches);
    mem_free(s->logits);
    mem_free(s->work);
    grammar_state_free(s->grammar);
    mem_free(s->mask);
    mem_free(s);
}

const hearth_engine *sampler_engine(const hearth_sampler *s) { return s->engine; }
bool sampler_has_grammar(const hearth_sampler *s) { return s->grammar != NULL; }

/* ---- history ---- */

static bool grow(hearth_sampler *s, err *e) {
    if (s->n < s->cap) return true;
    size_t cap = s->cap ? s->cap * 2 : 256;
    said *history = mem_realloc(s->history, cap, sizeof *history, e);
    if (!history) return false;
    s->history = history;
    if (has_dry(&s->o)) {
        int32_t *matches = mem_realloc(s->matches, cap, sizeof *matches, e);
        if (!matches) return false;
        s->matches = matches;
    }
    s->cap = cap;
    return true;
}

/* Whether an occurrence of a breaker ends in the text of the token at position at; it may begin in the tokens before. */
static bool ends_breaker(const hearth_sampler *s, size_t at, bool *found, err *e) {
    size_t before = 0, len = 0;
    size_t first = at;
    while (first > 0 && before + 1 < s->longest_breaker) {
        first--;
        if (s->text(s->text_context, s->history[first].token, &len)) before += len;
    }
    buf text = {0};
    bool ok = true;
    size_t own = 0;
    for (size_t i = first; ok && i <= at; i++) {
        const char *bytes = s->text(s->text_context, s->history[i].token, &len);
        own = text.len;
        if (bytes) ok = buf_add(&text, bytes, len, e);
    }
    *found = false;
    for (char **b = s->breakers; ok && *b && !*found; b++) {
        size_t n = strlen(*b), from = own + 1 > n ? own + 1 - n : 0; /* the earliest place from which it ends in the token's own text */
        *found = text.len > from && memmem(text.data + from, text.len - from, *b, n) != NULL;
    }
    buf_free(&text);
    return ok;
}

static size_t window(const hearth_sampler *s, int last_n) { return last_n < 0 || (size_t)last_n > s->n ? s->n : (size_t)last_n; }

bool hearth_sampler_accept(hearth_sampler *s, int32_t token, hearth_error *error) {
    err_clear(error);
    if (token < 0 || token >= s->n_vocab)
        return err_set(error, HEARTH_ARGUMENT, "token %d is not in the vocabulary of %d tokens", token, s->n_vocab);
    if (!grow(s, error)) return false;
    s->history[s->n] = (said){.token = token};
    if (has_dry(&s->o) && s->text && !ends_breaker(s, s->n, &s->history[s->n].breaks, error)) return false;
    if (s->grammar && s->answering && !grammar_state_accept(s->grammar, token, error)) return false;
    size_t old = window(s, s->o.penalty_last_n);
    s->n++;
    if (s->o.penalty_last_n == 0) return true;
    s->counts[token]++;
    if (window(s, s->o.penalty_last_n) == old) s->counts[s->history[s->n - 1 - old].token]--;
    return true;
}

static void forget_from(hearth_sampler *s, size_t n) {
    s->n = n;
    memset(s->counts, 0, (size_t)s->n_vocab * sizeof *s->counts);
    for (size_t i = n - window(s, s->o.penalty_last_n); i < n; i++) s->counts[s->history[i].token]++;
}

/* Takes the grammar back to where the text is after tokens were forgotten. */
static bool replay_grammar(hearth_sampler *s, err *e) {
    if (!s->grammar || !s->answering) return true;
    grammar_state_restart(s->grammar);
    for (size_t i = s->answer_start; i < s->n; i++)
        if (!grammar_state_accept(s->grammar, s->history[i].token, e)) return false;
    return true;
}

bool sampler_sync(hearth_sampler *s, const int32_t *tokens, size_t n, err *e) {
    size_t common = 0;
    while (common < n && common < s->n && s->history[common].token == tokens[common]) common++;
    const bool shorter = common < s->n;
    if (shorter) forget_from(s, common);
    /* What others added is a new prompt. */
    if (common < n || n < s->answer_start) s->answering = false;
    else if (shorter && !replay_grammar(s, e)) return false;
    for (size_t i = common; i < n; i++)
        if (!hearth_sampler_accept(s, tokens[i], e)) return false;
    return true;
}

/* ---- penalties ---- */

static void add_penalties(const hearth_sampler *s) {
    for (int32_t i = 0; i < s->n_vocab; i++) {
        if (s->counts[i] == 0) continue;
        float logit = s->logits[i];
        /* Division makes a negative logit more likely, so those are multiplied. */
        logit = logit > 0 ? logit / s->o.repeat_penalty : logit * s->o.repeat_penalty;
        s->logits[i] = logit - ((float)s->counts[i] * s->o.frequency_penalty + s->o.presence_penalty);
    }
}

/* matches[k], 0 < k < n: how many tokens before the kth last one, it included, equal the last ones of the text
 * (the Z-function of the reversed window: each token is compared a constant number of times). */
static void match_ends(const said *h, size_t n, int32_t *matches) {
    const said *last = h + n - 1; /* last[-i] is the ith token of the reversed window */
    ptrdiff_t left = 0, right = 0, count = (ptrdiff_t)n;
    for (ptrdiff_t k = 1; k < count; k++) {
        ptrdiff_t z = 0;
        if (k < right) z = matches[k - left] < right - k ? matches[k - left] : right - k;
        while (k + z < count && last[-z].token == last[-(k + z)].token) z++;
        if (k + z > right) {
            left = k;
            right = k + z;
        }
        matches[k] = (int32_t)z;
    }
}

static double dry_penalty(const hearth_sampler_options *o, int32_t length) {
    double penalty = o->dry_multiplier;
    for (int32_t i = o->dry_allowed_length; i < length && penalty < 1e30; i++) penalty *= o->dry_base;
    return penalty < 1e30 ? penalty : 1e30;
}

/* DRY ("don't repeat yourself"): a token that would continue a repetition of the last tokens loses
 * multiplier * base^(length - allowed). A repetition does not reach across a breaker, and a breaker is never penalised. */
static void add_dry(hearth_sampler *s) {
    size_t n = window(s, s->o.dry_last_n);
    if (n == 0) return;
    const said *h = s->history + (s->n - n);
    int32_t limit = 0; /* tokens since the last breaker */
    while ((size_t)limit < n && !h[n - 1 - (size_t)limit].breaks) limit++;
    int32_t least = s->o.dry_allowed_length > 1 ? s->o.dry_allowed_length : 1;
    if (limit < least) return;
    match_ends(h, n, s->matches);
    for (size_t k = 1; k < n; k++) {
        const said *next = &h[n - k];
        int32_t length = s->matches[k] < limit ? s->matches[k] : limit;
        if (length >= least && !next->breaks && length > s->repeats[next->token]) s->repeats[next->token] = length;
    }
    for (size_t k = 1; k < n; k++) {
        int32_t token = h[n - k].token;
        if (s->repeats[token] == 0) continue;
        s->logits[token] = (float)(s->logits[token] - dry_penalty(&s->o, s->repeats[token]));
        s->repeats[token] = 0;
    }
}

const float *sampler_adjust(hearth_sampler *s, const float *logits) {
    const hearth_sampler_options *o = &s->o;
    if (o->n_logit_bias == 0 && !has_penalties(o) && !has_dry(o)) return logits;
    memcpy(s->logits, logits, (size_t)s->n_vocab * sizeof *logits);
    for (size_t i = 0; i < o->n_logit_bias; i++) s->logits[s->bias[i].token] += s->bias[i].bias;
    if (has_penalties(o)) add_penalties(s);
    if (has_dry(o)) add_dry(s);
    return s->logits;
}

/* The grammar starts where the first token of an answer is picked. */
static const float *apply_grammar(hearth_sampler *s, const float *logits, err *e) {
    if (!s->answering) {
        s->answering = true;
        s->answer_start = s->n;
        grammar_state_restart(s->grammar);
    }
    if (!grammar_state_mask(s->grammar, s->mask, e)) return NULL;
    if (logits != s->logits) memcpy(s->logits, logits, (size_t)s->n_vocab * sizeof *logits);
    grammar_mask_apply(grammar_vocab_of(s->o.grammar), s->mask, s->logits, s->n_vocab);
    for (int32_t i = 0; i < s->n_vocab; i++)
        if (s->logits[i] > -INFINITY) return s->logits;
    err_set(e, HEARTH_ARGUMENT, "the grammar allows only tokens here that the model or the logit bias rules out");
    return NULL;
}

int32_t hearth_sampler_pick(hearth_sampler *s, const float *logits, hearth_error *error) {
    err_clear(error);
    const hearth_sampler_options *o = &s->o;
    logits = sampler_adjust(s, logits);
    if (s->grammar && !(logits = apply_grammar(s, logits, error))) return HEARTH_TOKEN_NONE;
    if (o->temperature == 0) return choose_greedy(logits, s->n_vocab, error);
    const choose_rules rules = {
        .top_k = o->top_k, .typical_p = o->typical_p, .top_p = o->top_p, .min_p = o->min_p, .temperature = o->temperature};
    double u = (double)(next_random(&s->random) >> 11) * 0x1p-53;
    return choose_token(logits, s->n_vocab, &rules, u, s->work, error);
}
