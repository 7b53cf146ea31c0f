/* engine.h: the loaded model behind hearth_engine, for the files of this room and for `hearth debug`. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/grammar.h"
#include "hearth.h"
#include "kv/cache.h"
#include "model/model.h"
#include "store/store.h"
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
    /* conversations: recall.h */
    kv_cache *kv_cache;  /* NULL: nothing is kept */
    store *store;        /* NULL: not on disk, for the reason in store_problem if it was asked for */
    err store_problem;
    char kv_model[33];
    buf kv_format;
    _Atomic uint64_t kv_stall_ns, prefill_ns, prefill_tokens; /* spent on remembering by who makes tokens; on computing many tokens at once */
    _Atomic uint64_t kv_wait_ns; /* that passes waited for what the disk was bringing */
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
    char *tenant, *agent; /* or NULL */
    char tag[17];         /* of the tenant */
    int lock;             /* on the agent; -1: none */
    int64_t created;
    uint64_t hits;        /* of the agent: agent_record */
    char *note;
    size_t note_len;
    bool changed;         /* since the agent was last saved */
};

/* Has the agent of a session, if it has one, written soon. */
bool session_save(hearth_session *s, err *e);

#endif
