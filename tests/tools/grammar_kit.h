/* grammar_kit.h: a small vocabulary for tests of grammars: every byte, pieces of JSON and words, control and ending tokens. */
#ifndef TESTS_GRAMMAR_KIT_H
#define TESTS_GRAMMAR_KIT_H

#include "tools/support.h"

#include "engine/grammar.h"

enum { KIT_MAX = 4096, KIT_END = 256, KIT_CONTROL = 257, KIT_END_TOO = 258, KIT_FIRST_PIECE = 259 };

typedef struct kit_vocab {
    char text[KIT_MAX][24];
    size_t len[KIT_MAX];
    int32_t n;
} kit_vocab;

static inline const char *kit_bytes(const void *context, int32_t token, size_t *len) {
    const kit_vocab *k = context;
    *len = k->len[token];
    return k->text[token];
}
static inline bool kit_ends(const void *context, int32_t token) {
    (void)context;
    return token == KIT_END || token == KIT_END_TOO;
}

static inline void kit_add(kit_vocab *k, const void *text, size_t len) {
    memcpy(k->text[k->n], text, len);
    k->len[k->n++] = len;
}

/* n_random more tokens are made of common pieces. */
static inline grammar_vocab *kit_make(kit_vocab *k, int n_random, uint64_t *seed, err *e) {
    static const char *const pieces[] = {"\"",       "\",",   "\":",  "\": ",     "\": \"",   "\", \"", "\"}",
                                         "{\"",      "[\"",   "[[",   "]]",       "}}",       "]}",     "},",
                                         "true",     "false", "null", " ",        "  ",       "\n",     "\n  ",
                                         "0",        "12",    "123",  "2024",     "-",        ".",      "0.",
                                         "e+",       "a",     "ab",   "abc",      "name",     "Hello",  " world",
                                         "\\u00",    "\\n",   "\\\"", "\xC3\xA9", "\xE2\x82", "\xAC",   "\xF0\x9F\x98\x80",
                                         "\xF0\x9F", "tag",   ": ",   ", ",       "{",        "}",      "age",
                                         "id"};
    memset(k, 0, sizeof *k);
    for (int i = 0; i < 256; i++) kit_add(k, &(unsigned char){(unsigned char)i}, 1);
    kit_add(k, "</end>", 6);
    kit_add(k, "", 0);
    kit_add(k, "", 0);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) kit_add(k, pieces[i], strlen(pieces[i]));
    /* Words of every length, closed and with something behind. */
    for (size_t len = 1; len <= 20; len++) {
        char text[24];
        memset(text, 'w', len);
        memcpy(text + len, "\"],[", 4);
        for (size_t more = 0; more <= 4; more++) kit_add(k, text, len + more);
    }
    for (int i = 0; i < n_random; i++) {
        char text[24];
        size_t len = 0;
        for (uint64_t parts = 1 + rng_next(seed) % 4; parts > 0; parts--) {
            const char *piece = pieces[rng_next(seed) % (sizeof pieces / sizeof *pieces)];
            if (len + strlen(piece) > sizeof text) break;
            memcpy(text + len, piece, strlen(piece));
            len += strlen(piece);
        }
        kit_add(k, text, len);
    }
    return grammar_vocab_new(k->n, kit_bytes, kit_ends, k, e);
}

#endif
