/* logprobs.h: what hearth_logprobs does, for any vocabulary. */
#ifndef ENGINE_LOGPROBS_H
#define ENGINE_LOGPROBS_H

#include "base/err.h"

/* Returns the log-probability of token (minus infinity when out of range) and fills top; places beyond the usable
 * tokens get HEARTH_TOKEN_NONE. */
float logprobs_of(const float *logits, int32_t n_vocab, int32_t token, hearth_logprob *top, size_t n);

#endif
