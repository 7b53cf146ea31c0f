/* choose.c: the filters and the draw. No filter sorts the whole vocabulary: a heap keeps the k best, and a cut by
 * probability mass looks for the right bin first and sorts only there. */
#include "engine/choose.h"

#include <math.h>
#include <string.h>

double choose_exp(double x) {
    if (!(x > -708)) return 0; /* also NaN; below this the result would be subnormal */
    if (x > 709) return INFINITY;
    const double log2_e = 1.44269504088896340736, ln2_high = 6.93147180369123816490e-01, ln2_low = 1.90821492927058770002e-10;
    int k = (int)(x * log2_e + (x < 0 ? -0.5 : 0.5));
    double r = (x - k * ln2_high) - k * ln2_low; /* |r| <= ln 2 / 2 */
    static const double inverse_factorial[] = {1.0,          1.0,           1.0 / 2,        1.0 / 6,         1.0 / 24,         1.0 / 120,        1.0 / 720,
                                               1.0 / 5040.0, 1.0 / 40320.0, 1.0 / 362880.0, 1.0 / 3628800.0, 1.0 / 39916800.0, 1.0 / 479001600.0};
    double sum = 1.0 / 6227020800.0;
    for (int i = 12; i >= 0; i--) sum = sum * r + inverse_factorial[i];
    uint64_t bits = (uint64_t)(k + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return sum * scale;
}

double choose_log(double x) {
    int exponent;
    double mantissa = frexp(x, &exponent);
    double y = exponent * 0.69314718055994530942 + (mantissa - 1);
    /* Halley's method: the error is cubed in every round, so four are plenty. */
    for (int i = 0; i < 4; i++) {
        double power = choose_exp(y);
        y += 2 * (x - power) / (x + power);
    }
    return y;
}

static int32_t no_usable_logit(err *e) {
    err_set(e, HEARTH_FORMAT, "no token can be chosen: every logit is NaN or minus infinity (a damaged model, or every token banned by bias)");
    return HEARTH_TOKEN_NONE;
}

int32_t choose_greedy(const float *logits, int32_t n, err *e) {
    int32_t best = HEARTH_TOKEN_NONE;
    float most = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        if (logits[i] > most) {
            most = logits[i];
            best = i;
        }
    }
    return best >= 0 ? best : no_usable_logit(e);
}

/* ---- the best few ---- */

static bool better(const candidate *a, const candidate *b) { return a->rank != b->rank ? a->rank > b->rank : a->id < b->id; }

static void swap(candidate *a, candidate *b) {
    candidate t = *a;
    *a = *b;
    *b = t;
}

/* c[0..n) is a heap with the worst on top, but for c[at], which may be too good for its place. */
static void sift_down(candidate *c, size_t n, size_t at) {
    for (;;) {
        size_t worst = at, left = 2 * at + 1, right = left + 1;
        if (left < n && better(&c[worst], &c[left])) worst = left;
        if (right < n && better(&c[worst], &c[right])) worst = right;
        if (worst == at) return;
        swap(&c[at], &c[worst]);
        at = worst;
    }
}

static void make_heap(candidate *c, size_t n) {
    for (size_t i = n / 2; i-- > 0;) sift_down(c, n, i);
}

/* Best first. */
static void sort_all(candidate *c, size_t n) {
    make_heap(c, n);
    for (size_t last = n; last-- > 1;) {
        swap(&c[0], &c[last]);
        sift_down(c, last, 0);
    }
}

/* Ranks fall into bins of 1/16 from the best one down; the last bin takes the rest. */
enum { BINS = 512 };
static int bin_of(const candidate *c, float best) {
    float below = (best - c->rank) * 16;
    return below < BINS - 1 ? (int)below : BINS - 1;
}

/* Moves those in the bins from first to last to the front; returns how many. */
static size_t bring_bins(candidate *c, size_t n, float best, int first, int last) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        int bin = bin_of(&c[i], best);
        if (bin >= first && bin <= last) swap(&c[i], &c[count++]);
    }
    return count;
}

/* Keeps the best by rank until their weights reach mass; returns how many. Only the bin in which that happens is sorted. */
static size_t keep_mass(candidate *c, size_t n, double mass) {
    double in_bin[BINS] = {0}, sum = 0;
    float best = -INFINITY;
    for (size_t i = 0; i < n; i++)
        if (c[i].rank > best) best = c[i].rank;
    for (size_t i = 0; i < n; i++) in_bin[bin_of(&c[i], best)] += c[i].weight;
    int cut = 0;
    while (cut < BINS - 1 && sum + in_bin[cut] < mass) sum += in_bin[cut++];
    size_t above = bring_bins(c, n, best, 0, cut - 1);
    size_t within = bring_bins(c + above, n - above, best, cut, cut);
    sort_all(c + above, within);
    for (size_t i = above; i < above + within; i++) {
        sum += c[i].weight;
        if (sum >= mass) return i + 1;
    }
    return above + within;
}

/* ---- filters ---- */

/* Takes the usable logits, only the k best of them when k > 0. */
static size_t gather(const float *logits, int32_t n, size_t k, candidate *c) {
    size_t count = 0;
    for (int32_t i = 0; i < n; i++) {
        float logit = logits[i];
        if (!(logit > -INFINITY)) continue;
        if (k == 0 || count < k) {
            c[count++] = (candidate){.logit = logit, .rank = logit, .id = i};
            if (count == k) make_heap(c, k);
        } else if (logit > c[0].logit) { /* equal ones lose: their id is higher */
            c[0] = (candidate){.logit = logit, .rank = logit, .id = i};
            sift_down(c, k, 0);
        }
    }
    return count;
}

/* Sets weights relative to the best, which gets 1, and returns their sum. */
static double weigh(candidate *c, size_t n, double temperature) {
    float most = -INFINITY;
    for (size_t i = 0; i < n; i++)
        if (c[i].logit > most) most = c[i].logit;
    double total = 0;
    for (size_t i = 0; i < n; i++) {
        c[i].weight = choose_exp(((double)c[i].logit - most) / temperature);
        total += c[i].weight;
    }
    return total;
}

/* Locally typical: keeps the tokens whose surprise is nearest to the expected surprise. */
static size_t keep_typical(candidate *c, size_t n, double p) {
    double total = weigh(c, n, 1), log_total = choose_log(total), entropy = 0;
    float most = -INFINITY;
    for (size_t i = 0; i < n; i++)
        if (c[i].logit > most) most = c[i].logit;
    for (size_t i = 0; i < n; i++) entropy += c[i].weight / total * (log_total - ((double)c[i].logit - most));
    for (size_t i = 0; i < n; i++) c[i].rank = (float)-fabs(log_total - ((double)c[i].logit - most) - entropy);
    n = keep_mass(c, n, p * total);
    for (size_t i = 0; i < n; i++) c[i].rank = c[i].logit;
    return n;
}

/* Top-p, then min-p. Both keep a front part of the list sorted by probability, so the cheap one goes first; the mass
 * that top-p counts is that of the whole list all the same. */
static size_t keep_nucleus(candidate *c, size_t n, double top_p, double min_p) {
    double total = weigh(c, n, 1);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (c[i].weight >= min_p) c[kept++] = c[i];
    return top_p < 1 ? keep_mass(c, kept, top_p * total) : kept;
}

int32_t choose_token(const float *logits, int32_t n, const choose_rules *rules, double u, candidate *work, err *e) {
    int32_t best = choose_greedy(logits, n, e);
    if (best < 0 || rules->temperature == 0 || logits[best] == INFINITY) return best;
    size_t k = rules->top_k > 0 && rules->top_k < n ? (size_t)rules->top_k : 0;
    size_t count = gather(logits, n, k, work);
    if (rules->typical_p < 1) count = keep_typical(work, count, rules->typical_p);
    if (rules->top_p < 1 || rules->min_p > 0) count = keep_nucleus(work, count, rules->top_p, rules->min_p);
    double target = u * weigh(work, count, rules->temperature), sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += work[i].weight;
        if (target < sum) return work[i].id;
    }
    return best; /* only rounding at the very end of the sum can lead here */
}
