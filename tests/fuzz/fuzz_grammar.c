/* fuzz_grammar.c: the readers of grammars, the network and the masks under libFuzzer. The first byte of an input picks the kind, the second
 * steers which of the allowed tokens are taken. A mask and a step that disagree are a finding. */
#include <stdlib.h>
#include <string.h>

#include "engine/grammar.h"

enum { N_TOKENS = 256 + 1 + 12, END = 256 };
static const char *const pieces[] = {"\",", "\": \"", "{\"", "}}", "]]", "true", " a", "abc", "\n  ", "\xC3\xA9", "\\u00", "12"};

static const char *bytes(const void *context, int32_t token, size_t *len) {
    static char single[256];
    (void)context;
    if (token < 256) {
        single[token] = (char)token;
        return *len = 1, single + token;
    }
    *len = token == END ? 0 : strlen(pieces[token - END - 1]);
    return token == END ? "" : pieces[token - END - 1];
}
static bool ends(const void *context, int32_t token) { return (void)context, token == END; }

/* An allowed token, the steering number deciding where the search starts. */
static int32_t choose(const uint64_t *bits, uint32_t steer) {
    for (uint32_t i = 0; i < N_TOKENS; i++) {
        int32_t t = (int32_t)((steer + i) % N_TOKENS);
        if (bits[t / 64] >> (t % 64) & 1) return t;
    }
    return END;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static grammar_vocab *vocab;
    uint64_t bits[(N_TOKENS + 63) / 64];
    err e = {0};
    if (!vocab) vocab = grammar_vocab_new(N_TOKENS, bytes, ends, NULL, NULL);
    if (size < 2) return 0;
    hearth_grammar *g = grammar_new(vocab, (hearth_grammar_kind)(data[0] % 3), (const char *)data + 2, size - 2, &e);
    if (!g) {
        if (e.code == HEARTH_OK) abort(); /* a failure says why */
        return 0;
    }
    grammar_set_budget(g, 1 << 20);
    grammar_state *s = grammar_state_new(g, &e);
    uint32_t steer = data[1];
    for (int i = 0; i < 16 && grammar_state_mask(s, bits, &e); i++) {
        int32_t t = choose(bits, steer);
        grammar_state *copy = grammar_state_copy(s, &e);
        for (int32_t k = 0; k < N_TOKENS; k += 7) { /* spot checks */
            err no = {0};
            bool allowed = grammar_state_accept(copy, k, &no);
            if (no.code != HEARTH_LIMIT && allowed != (bits[k / 64] >> (k % 64) & 1)) abort();
            if (!allowed) continue;
            grammar_state_free(copy);
            copy = grammar_state_copy(s, &e);
        }
        grammar_state_free(copy);
        if (t == END || !grammar_state_accept(s, t, &e)) break;
        steer = steer * 31 + 7;
    }
    grammar_state_free(s);
    hearth_grammar_free(g);
    return 0;
}
