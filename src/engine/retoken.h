/* retoken.h: tokens of a text that goes on from known ones. */
#ifndef ENGINE_RETOKEN_H
#define ENGINE_RETOKEN_H

#include "hearth.h"
#include "text/tokenizer.h"

/* The tokens of text, control tokens recognised. As far as the text begins with what the known tokens spell, those are kept up to the last place where a control token
 * follows, so that what a model generated is not tokenized anew: it may have spelled a word with other tokens than the tokenizer would. */
bool retoken(const hearth_engine *engine, const int32_t *known, size_t n_known, const char *text, size_t len, token_list *out, err *e);

#endif
