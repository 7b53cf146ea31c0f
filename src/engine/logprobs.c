/* logprobs.c: log-probabilities as the model gives them, before any sampling option. */
#include <math.h>
#include <string.h>

#include "engine/choose.h"
#include "engine/logprobs.h"

static double log_of_sum(const float *logits, int32_t n, float most) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += choose_exp((double)logits[i] - most); /* NaN counts as nothing */
    return choose_log(sum);
}

/* Puts the n best into top, best first; equal ones by id. Few get in once the list is full, so inserting is cheap. */
static void find_top(const float *logits, int32_t n_vocab, hearth_logprob *top, size_t n) {
    size_t count = 0;
    for (int32_t i = 0; i < n_vocab; i++) {
        if (!(logits[i] > -INFINITY) || (count == n && logits[i] <= top[n - 1].logprob)) continue;
        if (count < n) count++;
        size_t at = count - 1;
        for (; at > 0 && logits[i] > top[at - 1].logprob; at--) top[at] = top[at - 1];
        top[at] = (hearth_logprob){.token = i, .logprob = logits[i]};
    }
    for (; count < n; count++) top[count] = (hearth_logprob){.token = HEARTH_TOKEN_NONE, .logprob = -INFINITY};
}

float logprobs_of(const float *logits, int32_t n_vocab, int32_t token, hearth_logprob *top, size_t n) {
    if (n) find_top(logits, n_vocab, top, n);
    int32_t best = choose_greedy(logits, n_vocab, NULL);
    bool known = token >= 0 && token < n_vocab && best >= 0 && logits[token] > -INFINITY;
    if (best < 0) return -INFINITY;
    float most = logits[best];
    if (most == INFINITY) { /* certainty: everything else is impossible */
        for (size_t i = 0; i < n; i++) top[i].logprob = top[i].logprob == INFINITY ? 0 : -INFINITY;
        return known && logits[token] == INFINITY ? 0 : -INFINITY;
    }
    double total = log_of_sum(logits, n_vocab, most);
    for (size_t i = 0; i < n; i++) top[i].logprob = (float)((double)top[i].logprob - most - total);
    return known ? (float)((double)logits[token] - most - total) : -INFINITY;
}

float hearth_logprobs(const hearth_engine *engine, const float *logits, int32_t token, hearth_logprob *top, size_t n) {
    return logprobs_of(logits, hearth_engine_info(engine).n_vocab, token, top, n);
}
