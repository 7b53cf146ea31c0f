/* grammar_net.h: a compiled grammar. Read-only once made.
 *
 * A fragment is the part of the network of one rule, or of the body of one counted repetition. It begins at a node without edges into it
 * and ends at nodes marked NODE_LAST. Every node can reach the end of its fragment: what cannot is left out. */
#ifndef ENGINE_GRAMMAR_NET_H
#define ENGINE_GRAMMAR_NET_H

#include "engine/grammar_build.h"

typedef enum grammar_edge_kind {
    EDGE_BYTE, /* a byte from lo to hi leads to the target */
    EDGE_FREE, /* to the target without a byte */
    EDGE_CALL, /* through the fragment callee, then on at the target */
    EDGE_LOOP, /* the same, as often as the fragment's loop says */
} grammar_edge_kind;

typedef struct grammar_edge {
    uint32_t from, target, callee;
    uint8_t kind, lo, hi;
} grammar_edge;

typedef struct grammar_fragment {
    uint32_t start;
    uint32_t min, max, next; /* of a loop: how often, and where on */
    bool nullable;           /* matches the empty text */
} grammar_fragment;

enum {
    NODE_LAST = 1,  /* the fragment may end here */
    NODE_BYTES = 2, /* has edges over bytes */
    NODE_MOVES = 4, /* has other edges */
};

typedef struct grammar_net {
    grammar_edge *edges; /* ordered by the node they start from */
    size_t n_edges, cap_edges;
    uint32_t *first; /* the edges of node n are first[n] up to first[n + 1] */
    uint8_t *flags;
    size_t n_nodes, cap_flags;
    grammar_fragment *fragments; /* those of rules, then those of loops */
    size_t n_fragments, cap_fragments, n_rules;
    uint32_t root; /* the node where every text starts; its fragment is the whole text */
    /* Bytes that no edge tells apart are one class. */
    uint8_t class_of[256];
    uint8_t byte_of[256];
    uint32_t n_classes;
} grammar_net;

/* Compiles what root stands for. Refused in words: rules that are missing, that begin with themselves, that can never end. */
bool grammar_net_make(grammar_net *net, const grammar_build *b, uint32_t root, err *e);
void grammar_net_free(grammar_net *net);

#endif
