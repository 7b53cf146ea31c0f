/* grammar_mask.h: which tokens may come next. */
#ifndef ENGINE_GRAMMAR_MASK_H
#define ENGINE_GRAMMAR_MASK_H

#include "engine/grammar_machine.h"
#include "engine/grammar_vocab.h"

/* What is known about a config whose stack is cut off: the tokens that it allows whatever lies below, and the nodes of the trie at which
 * its fragment may have been left, below which the rest decides. */
typedef struct grammar_known {
    uint64_t *bits;  /* of many tokens, */
    int32_t *tokens; /* or a list of few */
    uint32_t n_tokens;
    uint32_t *leaves;
    uint32_t n_leaves;
    bool too_open; /* too much is left to the rest: more of the stack is to be looked at */
} grammar_known;

typedef struct grammar_masks {
    const grammar_vocab *vocab;
    grammar_machine *machine;
    grammar_known *known; /* grammar_config.mask counts these */
    size_t n_known, cap_known;
    size_t bytes; /* of all of them */
    uint64_t *scratch;
    uint32_t *leaves;
    size_t cap_leaves;
} grammar_masks;

bool grammar_masks_make(grammar_masks *k, const grammar_vocab *v, grammar_machine *m, err *e);
void grammar_masks_free(grammar_masks *k);
/* To be called together with grammar_machine_forget. */
void grammar_masks_forget(grammar_masks *k);
/* Sets the bits of the tokens that config allows, ends included, and clears the others. */
bool grammar_masks_of(grammar_masks *k, int32_t config, uint64_t *bits, err *e);

#endif
