/* bpe.h: byte-level byte-pair encoding of one word: starting from single bytes, the pair whose merge comes first in
 * the file's list is joined until no pair can be. */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include "text/heap.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

typedef struct bpe_merge {
    int32_t left, right, result;
} bpe_merge;

typedef struct bpe {
    const vocab *v;
    bpe_merge *merges; /* in order of urgency */
    uint32_t n;
    uint32_t *slots;   /* open addressing over (left, right): index + 1, 0 is free */
    int slot_bits;
    int32_t byte_ids[256]; /* -1: the vocabulary has no token for this byte */
    char letters[256][2];
    uint8_t letter_len[256];
    bool whole_words;
} bpe;

bool bpe_load(bpe *b, const gguf *g, const vocab *v, bool whole_words, err *e);
void bpe_free(bpe *b);

/* What one thread needs; grows to the longest word seen. Zero-initialised is empty. */
typedef struct bpe_symbol {
    int32_t id, previous, next; /* id is -1 once it was merged into the one before */
} bpe_symbol;
typedef struct bpe_scratch {
    bpe_symbol *symbols;
    size_t cap;
    heap queue;
} bpe_scratch;
void bpe_scratch_free(bpe_scratch *s);

/* Appends the tokens of word. Bytes that the vocabulary has no token for are left out. len is at most INT32_MAX. */
bool bpe_encode(const bpe *b, bpe_scratch *s, const char *word, size_t len, token_list *out, err *e);

#endif
