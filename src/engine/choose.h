/* choose.h: from logits to one token. Pure functions: the random number is passed in, and exp and log are
 * computed here with plain IEEE arithmetic, so that the same logits and seed give the same token everywhere. */
#ifndef ENGINE_CHOOSE_H
#define ENGINE_CHOOSE_H

#include "base/err.h"

typedef struct choose_rules {
    int top_k;       /* 0: off */
    float typical_p; /* 1: off */
    float top_p;     /* 1: off */
    float min_p;     /* 0: off */
    float temperature;
} choose_rules;

/* One token that may still be chosen. Rank is what the filter at work sorts by. */
typedef struct candidate {
    double weight;
    float logit, rank;
    int32_t id;
} candidate;

/* The token with the highest logit, the lowest id among equals. NaN is never chosen. HEARTH_TOKEN_NONE with e set
 * when every logit is NaN or minus infinity. */
int32_t choose_greedy(const float *logits, int32_t n, err *e);

/* Applies top-k, typical, top-p, min-p and temperature in this order, then draws with u in [0, 1). work has room for n. */
int32_t choose_token(const float *logits, int32_t n, const choose_rules *rules, double u, candidate *work, err *e);

/* The same on every machine, within a few units in the last place of the truth. choose_log takes x > 0. */
double choose_exp(double x);
double choose_log(double x);

#endif
