/* engine.h: the loaded model behind hearth_engine, for the files of this room and for `hearth debug`. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <pthread.h>

#include "engine/grammar.h"
#include "hearth.h"
#include "model/model.h"
#include "text/jinja.h"
#include "text/tokenizer.h"

struct hearth_engine {
    gguf *file;
    tokenizer *tok;
    jinja *template;     /* NULL: the file has none, or one that does not parse */
    err template_error;  /* why it does not parse */
    bool has_model;
    model model;
    weights *cache;
    pool *pool;
    int n_context;
    char *architecture, *name, *template_text;
    pthread_mutex_t grammar_lock;
    grammar_vocab *grammar_vocab; /* made with the first grammar */
};

struct hearth_session {
    hearth_engine *engine;
    model_run run;
    kv_seq kv;
    token_list tokens;
    float *logits;
    bool logits_valid;
    bool long_context; /* which rotation frequencies kv was computed with */
};

#endif
