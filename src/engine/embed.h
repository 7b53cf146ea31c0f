/* embed.h: one vector for a text, from the hidden states of its tokens. */
#ifndef ENGINE_EMBED_H
#define ENGINE_EMBED_H

#include "model/model.h"

bool embed_possible(const model_params *p, err *e);
/* Adds the states [n][n_embd] of tokens first .. first + n - 1 out of total; the first ones start the vector anew. The same bits come out
 * however the text was cut. */
void embed_add(const model_params *p, float *vector, const float *states, size_t first, size_t n, size_t total);
/* Makes its length 1. */
void embed_finish(const model_params *p, float *vector);

#endif
