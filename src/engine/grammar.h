/* grammar.h: what a model may say, as the engine room sees it; hearth.h has the rest.
 *
 * A grammar is compiled into a network of nodes with edges over bytes and calls between rules (grammar_net.c). Where a text is in it, is a
 * set of nodes, each with a stack of places to return to (grammar_machine.c). Which tokens may come next is found by walking the trie of
 * all tokens through the network (grammar_mask.c). docs/grammar.md tells the whole story. */
#ifndef ENGINE_GRAMMAR_H
#define ENGINE_GRAMMAR_H

#include "base/err.h"

/* The trie of every token's bytes, made once per tokenizer. Read-only once made. */
typedef struct grammar_vocab grammar_vocab;
/* The bytes of a token, none for control tokens; and whether it ends an answer. */
typedef const char *grammar_bytes(const void *context, int32_t token, size_t *len);
typedef bool grammar_ends(const void *context, int32_t token);
grammar_vocab *grammar_vocab_new(int32_t n_tokens, grammar_bytes *bytes, grammar_ends *ends, const void *context, err *e);
void grammar_vocab_free(grammar_vocab *v);
/* 64-bit words of a mask over this vocabulary. */
size_t grammar_mask_words(const grammar_vocab *v);

/* What hearth_grammar_new does for an engine. The vocabulary must outlive the grammar. */
hearth_grammar *grammar_new(const grammar_vocab *v, hearth_grammar_kind kind, const char *text, size_t len, err *e);
/* One more owner; hearth_grammar_free takes one away. */
hearth_grammar *grammar_share(hearth_grammar *g);
const grammar_vocab *grammar_vocab_of(const hearth_grammar *g);
/* Bytes of tables and masks kept beyond which those not in use are forgotten (64 MiB unless told). */
void grammar_set_budget(hearth_grammar *g, size_t bytes);

/* Where one text is in a grammar. States of one grammar may be used from several threads; one state from one at a time. */
typedef struct grammar_state grammar_state;
grammar_state *grammar_state_new(hearth_grammar *g, err *e);
grammar_state *grammar_state_copy(const grammar_state *s, err *e);
void grammar_state_free(grammar_state *s);
void grammar_state_restart(grammar_state *s);
/* Goes on by a token, or by bytes. On failure the state is as before: HEARTH_ARGUMENT when the grammar does not allow them here. A
 * token that ends the answer is allowed where the grammar can end and changes nothing. */
bool grammar_state_accept(grammar_state *s, int32_t token, err *e);
bool grammar_state_add(grammar_state *s, const char *bytes, size_t len, err *e);
bool grammar_state_can_end(const grammar_state *s);
/* Sets bit t of bits exactly when accepting token t would succeed. Fails also when no token is allowed. */
bool grammar_state_mask(grammar_state *s, uint64_t *bits, err *e);
/* Sets to minus infinity the logits of the tokens whose bit is not set, also of those beyond the vocabulary. */
void grammar_mask_apply(const grammar_vocab *v, const uint64_t *bits, float *logits, int32_t n);

#endif
