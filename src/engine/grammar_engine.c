/* grammar_engine.c: grammars over the vocabulary of an engine. */
#include "engine/engine.h"

static const char *engine_bytes(const void *engine, int32_t token, size_t *len) { return hearth_token_bytes(engine, token, false, len); }
static bool engine_ends(const void *engine, int32_t token) { return hearth_token_ends(engine, token); }

hearth_grammar *hearth_grammar_new(hearth_engine *engine, hearth_grammar_kind kind, const char *text, size_t len, hearth_error *error) {
    err_clear(error);
    pthread_mutex_lock(&engine->grammar_lock);
    if (!engine->grammar_vocab)
        engine->grammar_vocab = grammar_vocab_new(tokenizer_size(engine->tok), engine_bytes, engine_ends, engine, error);
    const grammar_vocab *v = engine->grammar_vocab;
    pthread_mutex_unlock(&engine->grammar_lock);
    return v ? grammar_new(v, kind, text, len, error) : NULL;
}
