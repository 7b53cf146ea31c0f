#include "engine/grammar_vocab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/grammar_build.h"

static bool copy_tokens(grammar_vocab *v, grammar_bytes *bytes, grammar_ends *ends, const void *context, err *e) {
    for (int32_t t = 0; t < v->n_tokens; t++) {
        size_t len = 0;
        const char *text = bytes(context, t, &len);
        v->at[t] = v->n_bytes;
        v->same_bytes[t] = -1;
        if (ends(context, t)) {
            v->ends[t / 64] |= 1ull << (t % 64);
            continue; /* it has no text of its own here */
        }
        if (!text || len > GRAMMAR_MAX_TOKEN) continue;
        while (v->cap_bytes < v->n_bytes + len)
            if (!grammar_grow(&v->bytes, &v->cap_bytes, v->cap_bytes, 1, e)) return false;
        if (len) memcpy(v->bytes + v->n_bytes, text, len);
        v->n_bytes += len;
        if (len > v->longest) v->longest = (uint32_t)len;
    }
    v->at[v->n_tokens] = v->n_bytes;
    return true;
}

/* A token to be sorted; its first bytes as a number decide most comparisons. */
typedef struct sorted_token {
    uint64_t head;
    const unsigned char *bytes;
    uint32_t len;
    int32_t token;
} sorted_token;

static int by_bytes(const void *a, const void *b) {
    const sorted_token *x = a, *y = b;
    if (x->head != y->head) return x->head < y->head ? -1 : 1;
    int order = memcmp(x->bytes, y->bytes, x->len < y->len ? x->len : y->len);
    if (order != 0) return order;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return x->token - y->token;
}

static sorted_token *sort_tokens(const grammar_vocab *v, size_t *n, err *e) {
    sorted_token *list = mem_alloc((size_t)v->n_tokens, sizeof *list, e);
    *n = 0;
    for (int32_t t = 0; list && t < v->n_tokens; t++) {
        sorted_token s = {.bytes = v->bytes + v->at[t], .len = (uint32_t)(v->at[t + 1] - v->at[t]), .token = t};
        for (uint32_t i = 0; i < 8; i++) s.head = s.head << 8 | (i < s.len ? s.bytes[i] : 0);
        if (s.len) list[(*n)++] = s;
    }
    if (list) qsort(list, *n, sizeof *list, by_bytes);
    return list;
}

static bool build_trie(grammar_vocab *v, const sorted_token *list, size_t n, err *e) {
    uint32_t open[GRAMMAR_MAX_TOKEN + 1]; /* the nodes from the root to the newest one */
    uint32_t depth = 0;
    for (size_t i = 0; i < n; i++) {
        const sorted_token *s = &list[i];
        uint32_t common = 0;
        if (i > 0)
            while (common < s->len && common < list[i - 1].len && s->bytes[common] == list[i - 1].bytes[common]) common++;
        while (depth > common) v->nodes[open[--depth]].skip = (uint32_t)v->n_nodes;
        if (common == s->len) { /* the same bytes as the one before */
            v->same_bytes[s->token] = v->nodes[open[depth - 1]].token;
            v->nodes[open[depth - 1]].token = s->token;
            continue;
        }
        while (depth < s->len) {
            if (!grammar_grow(&v->nodes, &v->cap_nodes, v->n_nodes, sizeof *v->nodes, e)) return false;
            open[depth] = (uint32_t)v->n_nodes;
            v->nodes[v->n_nodes++] = (grammar_trie){.token = -1, .depth = (uint16_t)(depth + 1), .byte = s->bytes[depth]};
            depth++;
        }
        v->nodes[open[depth - 1]].token = s->token;
    }
    while (depth > 0) v->nodes[open[--depth]].skip = (uint32_t)v->n_nodes;
    return true;
}

static bool index_lengths(grammar_vocab *v, err *e) {
    v->deepest = mem_alloc(v->n_nodes, sizeof *v->deepest, e);
    if (!v->deepest) return false;
    for (size_t i = v->n_nodes; i-- > 0;) {
        v->deepest[i] = v->nodes[i].depth;
        for (size_t below = i + 1; below < v->nodes[i].skip; below = v->nodes[below].skip)
            if (v->deepest[below] > v->deepest[i]) v->deepest[i] = v->deepest[below];
    }
    for (int k = 0; k < GRAMMAR_LENGTHS; k++) {
        uint64_t *bits = v->short_tokens[k] = mem_zalloc(grammar_mask_words(v), sizeof *bits, e);
        if (!bits) return false;
        for (int32_t t = 0; t < v->n_tokens; t++)
            if (v->at[t + 1] - v->at[t] <= grammar_lengths[k]) bits[t / 64] |= 1ull << (t % 64);
    }
    return true;
}

grammar_vocab *grammar_vocab_new(int32_t n_tokens, grammar_bytes *bytes, grammar_ends *ends, const void *context, err *e) {
    grammar_vocab *v = mem_zalloc(1, sizeof *v, e);
    if (!v) return NULL;
    v->n_tokens = n_tokens;
    v->at = mem_alloc((size_t)n_tokens + 1, sizeof *v->at, e);
    v->same_bytes = mem_alloc((size_t)n_tokens, sizeof *v->same_bytes, e);
    v->ends = mem_zalloc(grammar_mask_words(v), sizeof *v->ends, e);
    bool ok = v->at && v->same_bytes && v->ends && copy_tokens(v, bytes, ends, context, e);
    size_t n = 0;
    sorted_token *list = ok ? sort_tokens(v, &n, e) : NULL;
    ok = list && build_trie(v, list, n, e) && index_lengths(v, e);
    mem_free(list);
    if (ok) return v;
    grammar_vocab_free(v);
    return NULL;
}

void grammar_vocab_free(grammar_vocab *v) {
    if (!v) return;
    mem_free(v->nodes);
    mem_free(v->deepest);
    for (int k = 0; k < GRAMMAR_LENGTHS; k++) mem_free(v->short_tokens[k]);
    mem_free(v->same_bytes);
    mem_free(v->bytes);
    mem_free(v->at);
    mem_free(v->ends);
    mem_free(v);
}

size_t grammar_mask_words(const grammar_vocab *v) { return ((size_t)v->n_tokens + 63) / 64; }

void grammar_mask_apply(const grammar_vocab *v, const uint64_t *bits, float *logits, int32_t n) {
    for (int32_t i = 0; i < n; i += 64) {
        const int32_t end = n - i < 64 ? n - i : 64;
        const uint64_t word = i < v->n_tokens ? bits[i / 64] : 0;
        if (word == UINT64_MAX) continue;
        for (int32_t k = 0; k < end; k++)
            if (!(word >> k & 1)) logits[i + k] = -INFINITY;
    }
}
