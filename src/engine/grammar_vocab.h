/* grammar_vocab.h: every token of a vocabulary as one trie over bytes. */
#ifndef ENGINE_GRAMMAR_VOCAB_H
#define ENGINE_GRAMMAR_VOCAB_H

#include "engine/grammar.h"

enum { GRAMMAR_MAX_TOKEN = 1024 }; /* bytes; longer tokens are never allowed */

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
    int32_t *same_bytes; /* for each token the next with the same bytes, or -1 */
    unsigned char *bytes;
    size_t n_bytes, cap_bytes;
    size_t *at; /* the bytes of token t are bytes[at[t]] up to bytes[at[t + 1]] */
    uint64_t *ends; /* a mask of the tokens that end an answer */
    uint32_t longest;
};

#endif
