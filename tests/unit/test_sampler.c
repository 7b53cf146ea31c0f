/* test_sampler.c: the sampler against plain, slow versions of the same rules. */
#include "tools/support.h"

#include <float.h>
#include <math.h>

#include "engine/choose.h"
#include "engine/logprobs.h"
#include "engine/sampler.h"

#define N 600

/* ---- the choice ---- */

static void exp_and_log_are_exact_enough(void **state) {
    (void)state;
    uint64_t r = test_seed();
    for (int i = 0; i < 20000; i++) {
        double x = (rng_double(&r) - 0.5) * 1400, y = exp(rng_double(&r) * 40 - 20);
        assert_true(fabs(choose_exp(x) - exp(x)) <= 4e-15 * exp(x));
        assert_true(fabs(choose_log(y) - log(y)) <= 4e-15 * (1 + fabs(log(y))));
    }
    assert_true(choose_exp(0) == 1 && fabs(choose_log(1)) < 1e-15);
    assert_true(choose_exp(-INFINITY) == 0 && choose_exp(NAN) == 0);
}

static void greedy_takes_the_lowest_of_equals(void **state) {
    (void)state;
    err e = {0};
    const float ties[] = {NAN, 1, 3, 3, -INFINITY, 3};
    assert_int_equal(choose_greedy(ties, 6, &e), 2);
    const float infinite[] = {1, INFINITY, INFINITY};
    candidate work[3];
    const choose_rules rules = {.top_p = 0.9f, .typical_p = 0.9f, .temperature = 1};
    assert_int_equal(choose_token(infinite, 3, &rules, 0.99, work, &e), 1);
    assert_int_equal(e.code, HEARTH_OK);
    const float nothing[] = {NAN, -INFINITY, NAN};
    assert_int_equal(choose_token(nothing, 3, &rules, 0.5, work, &e), HEARTH_TOKEN_NONE);
    assert_int_equal(e.code, HEARTH_FORMAT);
}

typedef struct item {
    double p, key;
    int id;
} item;

static int by_key(const void *a, const void *b) {
    const item *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key ? 1 : -1) : x->id - y->id;
}

/* Sorts by key and keeps the front part that reaches the share of the total probability. */
static int keep_share(item *list, int n, double share) {
    double total = 0, sum = 0;
    qsort(list, (size_t)n, sizeof *list, by_key);
    for (int i = 0; i < n; i++) total += list[i].p;
    int kept = 0;
    while (kept < n && (kept == 0 || sum < share * total)) sum += list[kept++].p;
    return kept;
}

/* The distribution that the rules ask for, computed the slow way; p[i] of every token. */
static void expected_distribution(const float *logits, int n, const choose_rules *r, double *p) {
    item list[N];
    int count = 0;
    double total = 0, entropy = 0;
    for (int i = 0; i < n; i++) {
        p[i] = 0;
        if (logits[i] > -INFINITY) list[count++] = (item){.p = exp((double)logits[i]), .key = logits[i], .id = i};
    }
    qsort(list, (size_t)count, sizeof *list, by_key);
    if (r->top_k > 0 && r->top_k < count) count = r->top_k;
    for (int i = 0; i < count; i++) total += list[i].p;
    if (r->typical_p < 1) {
        for (int i = 0; i < count; i++) entropy -= list[i].p / total * log(list[i].p / total);
        for (int i = 0; i < count; i++) list[i].key = -fabs(-log(list[i].p / total) - entropy);
        count = keep_share(list, count, r->typical_p);
    }
    for (int i = 0; i < count; i++) list[i].key = log(list[i].p);
    qsort(list, (size_t)count, sizeof *list, by_key);
    if (r->top_p < 1) count = keep_share(list, count, r->top_p);
    while (count > 1 && list[count - 1].p < (double)r->min_p * list[0].p) count--;
    total = 0;
    for (int i = 0; i < count; i++) total += pow(list[i].p / list[0].p, 1 / (double)r->temperature);
    for (int i = 0; i < count; i++) p[list[i].id] = pow(list[i].p / list[0].p, 1 / (double)r->temperature) / total;
}

static void filters_give_the_expected_distribution(void **state) {
    (void)state;
    uint64_t r = test_seed();
    static const choose_rules rules[] = {
        {.top_k = 0, .typical_p = 1, .top_p = 1, .min_p = 0, .temperature = 1},
        {.top_k = 0, .typical_p = 1, .top_p = 1, .min_p = 0, .temperature = 0.3f},
        {.top_k = 7, .typical_p = 1, .top_p = 1, .min_p = 0, .temperature = 1.5f},
        {.top_k = 1, .typical_p = 1, .top_p = 1, .min_p = 0, .temperature = 1},
        {.top_k = 0, .typical_p = 1, .top_p = 0.6f, .min_p = 0, .temperature = 1},
        {.top_k = 0, .typical_p = 1, .top_p = 0.995f, .min_p = 0, .temperature = 1},
        {.top_k = 0, .typical_p = 1, .top_p = 0, .min_p = 0, .temperature = 2},
        {.top_k = 0, .typical_p = 1, .top_p = 1, .min_p = 0.07f, .temperature = 1},
        {.top_k = 0, .typical_p = 1, .top_p = 1, .min_p = 1, .temperature = 1},
        {.top_k = 0, .typical_p = 0.5f, .top_p = 1, .min_p = 0, .temperature = 1},
        {.top_k = 200, .typical_p = 0.9f, .top_p = 0.8f, .min_p = 0.02f, .temperature = 0.7f},
        {.top_k = 40, .typical_p = 1, .top_p = 0.95f, .min_p = 0.05f, .temperature = 0.8f},
    };
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
        for (int round = 0; round < 4; round++) {
            float logits[N];
            double p[N];
            int n = round == 0 ? 3 : round == 1 ? 65 : N, hits[N] = {0}, draws = 2000;
            candidate work[N];
            err e = {0};
            for (int i = 0; i < n; i++) logits[i] = (float)(rng_normal(&r) * (round + 1));
            if (round == 3) logits[5] = NAN, logits[6] = -INFINITY;
            expected_distribution(logits, n, &rules[k], p);
            /* u walks evenly over [0, 1): every token gets its share to within one step. */
            for (int i = 0; i < draws; i++) hits[choose_token(logits, n, &rules[k], (i + 0.5) / draws, work, &e)]++;
            assert_int_equal(e.code, HEARTH_OK);
            for (int i = 0; i < n; i++) {
                if (p[i] == 0) assert_int_equal(hits[i], 0);
                else assert_true(fabs(hits[i] - p[i] * draws) <= 1.01);
            }
        }
    }
}

/* ---- history: bias, penalties, DRY ---- */

static const char *const words[] = {"a", "b", "c", "end\n", ": x", "<|", "|>", "y"};
static const char *word(const void *context, int32_t token, size_t *len) {
    (void)context;
    *len = strlen(words[token]);
    return words[token];
}

static hearth_sampler *make(const hearth_sampler_options *o) {
    err e = {0};
    hearth_sampler *s = sampler_new(8, word, NULL, o, &e);
    if (!s) fail_msg("%s", e.text);
    return s;
}

static void say(hearth_sampler *s, const char *digits) {
    err e = {0};
    for (; *digits; digits++) assert_true(hearth_sampler_accept(s, *digits - '0', &e));
}

static void near(float got, double want) {
    if (fabs(got - want) > 1e-5 * (1 + fabs(want))) fail_msg("got %g, want %g", got, want);
}

static void penalties_follow_their_formulas(void **state) {
    (void)state;
    const float logits[8] = {2, -1, 3, 0.5f, 0, 0, 0, 0};
    hearth_logit_bias bias[] = {{3, 1.5f}, {4, -INFINITY}};
    hearth_sampler_options o = hearth_sampler_defaults();
    o.repeat_penalty = 2, o.frequency_penalty = 0.25f, o.presence_penalty = 0.125f, o.penalty_last_n = 4;
    o.logit_bias = bias, o.n_logit_bias = 2;
    hearth_sampler *s = make(&o);
    bias[0].bias = 100; /* options were copied */
    say(s, "2220011");
    const float *out = sampler_adjust(s, logits);
    near(out[0], 2 / 2.0 - 2 * 0.25 - 0.125);
    near(out[1], -1 * 2.0 - 2 * 0.25 - 0.125);
    near(out[2], 3); /* left the window */
    near(out[3], 2);
    assert_true(out[4] == -INFINITY);
    near(out[5], 0);
    hearth_sampler_free(s);

    o.penalty_last_n = -1;
    s = make(&o);
    say(s, "2220011");
    near(sampler_adjust(s, logits)[2], 3 / 2.0 - 3 * 0.25 - 0.125);
    hearth_sampler_free(s);

    o.penalty_last_n = 0, o.n_logit_bias = 0;
    s = make(&o);
    say(s, "2220011");
    assert_ptr_equal(sampler_adjust(s, logits), logits);
    hearth_sampler_free(s);
}

static void sync_makes_the_history_what_is_said(void **state) {
    (void)state;
    uint64_t r = test_seed();
    hearth_sampler_options o = hearth_sampler_defaults();
    o.frequency_penalty = 0.5f, o.penalty_last_n = 5, o.dry_multiplier = 1, o.dry_allowed_length = 1;
    hearth_sampler *kept = make(&o);
    int32_t tokens[40];
    for (int i = 0; i < 40; i++) tokens[i] = (int32_t)(rng_next(&r) % 3);
    for (int round = 0; round < 200; round++) {
        size_t n = rng_next(&r) % 41;
        for (size_t i = rng_next(&r) % 40; i < n; i++) tokens[i] = (int32_t)(rng_next(&r) % 4);
        hearth_sampler *fresh = make(&o);
        err e = {0};
        assert_true(sampler_sync(kept, tokens, n, &e));
        for (size_t i = 0; i < n; i++) assert_true(hearth_sampler_accept(fresh, tokens[i], &e));
        const float zero[8] = {0};
        assert_memory_equal(sampler_adjust(kept, zero), sampler_adjust(fresh, zero), sizeof zero);
        hearth_sampler_free(fresh);
    }
    hearth_sampler_free(kept);
}

/* DRY as described in words: for every earlier place where the text's end occurs, the token that followed it. */
static void slow_dry(const int32_t *t, int n, const hearth_sampler_options *o, double *penalty) {
    bool breaks[8] = {[3] = true, [4] = true}; /* newline and colon */
    int first = o->dry_last_n >= 0 && o->dry_last_n < n ? n - o->dry_last_n : 0;
    memset(penalty, 0, 8 * sizeof *penalty);
    for (int at = first; at < n - 1; at++) {
        int length = 0;
        while (at - length >= first && t[at - length] == t[n - 1 - length] && !breaks[t[n - 1 - length]]) length++;
        if (length < 1 || length < o->dry_allowed_length || breaks[t[at + 1]]) continue;
        double p = o->dry_multiplier * pow((double)o->dry_base, length - o->dry_allowed_length);
        if (p > penalty[t[at + 1]]) penalty[t[at + 1]] = p;
    }
}

static void dry_equals_its_description(void **state) {
    (void)state;
    uint64_t r = test_seed();
    for (int round = 0; round < 3000; round++) {
        hearth_sampler_options o = hearth_sampler_defaults();
        o.dry_multiplier = 0.8f, o.dry_base = 1.5f, o.dry_allowed_length = (int)(rng_next(&r) % 4);
        o.dry_last_n = rng_next(&r) % 2 ? -1 : (int)(1 + rng_next(&r) % 12);
        hearth_sampler *s = make(&o);
        int32_t tokens[30];
        int n = (int)(rng_next(&r) % 30);
        for (int i = 0; i < n; i++) tokens[i] = rng_next(&r) % 8 ? (int32_t)(rng_next(&r) % 2) : (int32_t)(rng_next(&r) % 5);
        err e = {0};
        for (int i = 0; i < n; i++) assert_true(hearth_sampler_accept(s, tokens[i], &e));
        const float logits[8] = {1, 2, 3, 4, 5, 6, 7, 8};
        double want[8];
        slow_dry(tokens, n, &o, want);
        for (int twice = 0; twice < 2; twice++) { /* nothing is left over from the first pick */
            const float *out = sampler_adjust(s, logits);
            for (int i = 0; i < 8; i++) near(out[i], logits[i] - want[i]);
        }
        hearth_sampler_free(s);
    }
}

static void dry_breakers_are_found_across_tokens(void **state) {
    (void)state;
    const float zero[8] = {0};
    const char *breakers[] = {"<||>", "nothing like it", NULL};
    hearth_sampler_options o = hearth_sampler_defaults();
    o.dry_multiplier = 1, o.dry_base = 2, o.dry_allowed_length = 1;
    o.dry_breakers = breakers;
    hearth_sampler *s = make(&o);
    say(s, "01562015620"); /* a b <| |> c, twice, then a */
    /* Without the breaker the match would reach back over all of "b <| |> c a": here only "c a" counts. */
    near(sampler_adjust(s, zero)[1], -2);
    say(s, "15");
    near(sampler_adjust(s, zero)[6], 0); /* |> completes a breaker: never penalised */
    hearth_sampler_free(s);
}

static void dry_stays_finite_in_long_repetitions(void **state) {
    (void)state;
    hearth_sampler_options o = hearth_sampler_defaults();
    o.dry_multiplier = 5, o.dry_base = 4;
    hearth_sampler *s = make(&o);
    for (int i = 0; i < 3000; i++) say(s, "0");
    const float zero[8] = {0};
    assert_true(isfinite(sampler_adjust(s, zero)[0]) && sampler_adjust(s, zero)[0] < -1e29f);
    hearth_sampler_free(s);
}

/* ---- the sampler as a whole ---- */

static uint64_t fingerprint(uint64_t seed) {
    enum { vocab = 512 };
    float logits[vocab];
    hearth_sampler_options o = hearth_sampler_defaults();
    o.seed = seed, o.top_k = 100, o.typical_p = 0.97f, o.repeat_penalty = 1.1f, o.temperature = 1.3f;
    err e = {0};
    hearth_sampler *s = sampler_new(vocab, NULL, NULL, &o, &e);
    uint64_t r = 7, hash = 0;
    for (int i = 0; i < 500; i++) {
        for (int k = 0; k < vocab; k++) logits[k] = (float)(int64_t)(rng_next(&r) >> 44) / 131072; /* exact: no libm in here */
        int32_t token = hearth_sampler_pick(s, logits, &e);
        assert_true(token >= 0 && hearth_sampler_accept(s, token, &e));
        hash = hash * 1099511628211u + (uint64_t)token + 1;
    }
    hearth_sampler_free(s);
    return hash;
}

static void a_seed_means_the_same_tokens_everywhere(void **state) {
    (void)state;
    assert_true(fingerprint(1) == fingerprint(1));
    assert_true(fingerprint(1) != fingerprint(2));
    assert_int_equal(fingerprint(1), 0x1c76b50e44835f61u);
}

static void wrong_options_are_refused_in_a_sentence(void **state) {
    (void)state;
    static const hearth_logit_bias outside = {8, 1}, not_a_number = {1, NAN};
    static const char *const empty[] = {"", NULL};
#define WRONG(field, value, name)                                                                  \
    do {                                                                                           \
        hearth_sampler_options o = hearth_sampler_defaults();                                      \
        o.dry_multiplier = 1;                                                                      \
        o.n_logit_bias = strcmp(#field, "logit_bias") == 0;                                        \
        o.field = value;                                                                           \
        err e = {0};                                                                               \
        assert_null(sampler_new(8, word, NULL, &o, &e));                                        \
        assert_int_equal(e.code, HEARTH_ARGUMENT);                                                 \
        if (!strstr(e.text, name)) fail_msg("'%s' does not name %s", e.text, name);                \
    } while (0)
    WRONG(temperature, -0.5f, "temperature");
    WRONG(temperature, NAN, "temperature");
    WRONG(temperature, INFINITY, "temperature");
    WRONG(top_k, -1, "top_k");
    WRONG(top_p, 1.5f, "top_p");
    WRONG(top_p, NAN, "top_p");
    WRONG(min_p, -0.1f, "min_p");
    WRONG(typical_p, 2, "typical_p");
    WRONG(repeat_penalty, 0, "repeat_penalty");
    WRONG(repeat_penalty, NAN, "repeat_penalty");
    WRONG(frequency_penalty, INFINITY, "frequency_penalty");
    WRONG(presence_penalty, NAN, "presence_penalty");
    WRONG(penalty_last_n, -2, "penalty_last_n");
    WRONG(dry_multiplier, -1, "dry_multiplier");
    WRONG(dry_base, 0.5f, "dry_base");
    WRONG(dry_allowed_length, -1, "dry_allowed_length");
    WRONG(dry_last_n, -2, "dry_last_n");
    WRONG(dry_breakers, empty, "DRY breaker");
    WRONG(logit_bias, &outside, "token 8");
    WRONG(logit_bias, &not_a_number, "token 1");
    err e = {0};
    hearth_sampler *s = make(NULL);
    assert_false(hearth_sampler_accept(s, 8, &e));
    assert_int_equal(e.code, HEARTH_ARGUMENT);
    assert_false(hearth_sampler_accept(s, -1, NULL));
    hearth_sampler_free(s);
}

static void running_out_of_memory_is_an_error(void **state) {
    (void)state;
    const char *breakers[] = {"<||>", NULL};
    hearth_sampler_options o = hearth_sampler_defaults();
    o.dry_multiplier = 1, o.dry_breakers = breakers, o.repeat_penalty = 1.1f;
    const float logits[8] = {1, 2, 3};
    for (long nth = 1;; nth++) {
        err e = {0};
        mem_fail_nth(nth);
        hearth_sampler *s = sampler_new(8, word, NULL, &o, &e);
        bool ok = s != NULL;
        for (int i = 0; ok && i < 300; i++) ok = hearth_sampler_accept(s, i % 8, &e) && hearth_sampler_pick(s, logits, &e) >= 0;
        mem_fail_nth(0);
        hearth_sampler_free(s);
        if (ok) {
            assert_true(nth > 300);
            break;
        }
        assert_int_equal(e.code, HEARTH_MEMORY);
    }
}

/* ---- log-probabilities ---- */

static void logprobs_are_a_log_softmax(void **state) {
    (void)state;
    uint64_t r = test_seed();
    float logits[N];
    for (int i = 0; i < N; i++) logits[i] = (float)(rng_normal(&r) * 5 + 1000); /* far from 0: the naive sum would overflow */
    logits[10] = logits[20], logits[30] = NAN, logits[40] = -INFINITY;
    hearth_logprob all[N + 2];
    double sum = 0;
    for (int i = 0; i < N; i++) sum += exp((double)logprobs_of(logits, N, i, NULL, 0));
    assert_true(fabs(sum - 1) < 1e-5);
    float one = logprobs_of(logits, N, 10, all, N + 2);
    assert_true(one == logprobs_of(logits, N, 20, NULL, 0));
    for (int i = 1; i < N - 2; i++) {
        bool in_order = all[i - 1].logprob > all[i].logprob || (all[i - 1].logprob == all[i].logprob && all[i - 1].token < all[i].token);
        assert_true(in_order);
        assert_true(all[i].logprob == logprobs_of(logits, N, all[i].token, NULL, 0));
    }
    for (int i = N - 2; i < N + 2; i++) assert_true(all[i].token == HEARTH_TOKEN_NONE && all[i].logprob == -INFINITY);
    hearth_logprob top[5];
    logprobs_of(logits, N, HEARTH_TOKEN_NONE, top, 5);
    assert_memory_equal(top, all, sizeof top);
    assert_true(logprobs_of(logits, N, 30, NULL, 0) == -INFINITY && logprobs_of(logits, N, N, NULL, 0) == -INFINITY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_and_log_are_exact_enough),
        cmocka_unit_test(greedy_takes_the_lowest_of_equals),
        cmocka_unit_test(filters_give_the_expected_distribution),
        cmocka_unit_test(penalties_follow_their_formulas),
        cmocka_unit_test(sync_makes_the_history_what_is_said),
        cmocka_unit_test(dry_equals_its_description),
        cmocka_unit_test(dry_breakers_are_found_across_tokens),
        cmocka_unit_test(dry_stays_finite_in_long_repetitions),
        cmocka_unit_test(a_seed_means_the_same_tokens_everywhere),
        cmocka_unit_test(wrong_options_are_refused_in_a_sentence),
        cmocka_unit_test(running_out_of_memory_is_an_error),
        cmocka_unit_test(logprobs_are_a_log_softmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
