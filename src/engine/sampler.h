/* sampler.h: the sampler as the engine room sees it; hearth.h has the rest. */
#ifndef ENGINE_SAMPLER_H
#define ENGINE_SAMPLER_H

#include "base/err.h"

/* The bytes of a token, control tokens included; for the breakers of DRY. */
typedef const char *sampler_text(const void *context, int32_t token, size_t *len);

/* What hearth_sampler_new does for an engine, for any vocabulary. */
hearth_sampler *sampler_new(int32_t n_vocab, sampler_text *text, const void *context, const hearth_sampler_options *options, err *e);

/* Makes the sampler's history equal to these tokens; what is common with the history it has costs nothing. */
bool sampler_sync(hearth_sampler *s, const int32_t *tokens, size_t n, err *e);

/* The logits after bias, penalties and DRY: logits itself when there are none, else owned by the sampler until the next call. */
const float *sampler_adjust(hearth_sampler *s, const float *logits);

/* The engine it was made for; NULL when it was made by sampler_new. */
const hearth_engine *sampler_engine(const hearth_sampler *s);

bool sampler_has_grammar(const hearth_sampler *s);

#endif
