/* grammar_vocab.h: every token of a vocabulary as one trie over bytes. */
#ifndef ENGINE_GRAMMAR_VOCAB_H
#define ENGINE_GRAMMAR_VOCAB_H

#include "engine/grammar.h"

enum {
    GRAMMAR_MAX_TOKEN = 1024, /* bytes; longer tokens are never allowed */
    GRAMMAR_LENGTHS = 5,
};
static const uint32_t grammar_lengths[GRAMMAR_LENGTHS] = {64, 32, 16, 8, 4};

/* The nodes stand in the order of a walk: a node, then everything below it. The root is not among them. */
typedef struct grammar_trie {
    uint32_t skip;  /* the first node that is not below this one */
    int32_t token;  /* one that ends here, or -1; the others follow in same_bytes */
    uint16_t depth; /* bytes up to here */
    uint8_t byte;
} grammar_trie;

struct grammar_vocab {
    int32_t n_tokens;
    grammar_trie *nodes;
    size_t n_nodes, cap_nodes;
    uint16_t *deepest;                       /* for each node the depth of the longest token that ends there or below */
    uint64_t *short_tokens[GRAMMAR_LENGTHS]; /* masks of the tokens of at most so many bytes */
    int32_t *same_bytes;                     /* for each token the next with the same bytes, or -1 */
    unsigned char *bytes;
    size_t n_bytes, cap_bytes;
    size_t *at;     /* the bytes of token t are bytes[at[t]] up to bytes[at[t + 1]] */
    uint64_t *ends; /* a mask of the tokens that end an answer */
    uint32_t longest;
};

#endif
