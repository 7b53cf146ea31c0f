/* agents_inner.h: what agents.c and agents_manage.c share. */
#ifndef ENGINE_AGENTS_INNER_H
#define ENGINE_AGENTS_INNER_H

#include <pthread.h>

#include "engine/agents.h"
#include "engine/recall.h"

struct agent_turn {
    agents *owner;
    hearth_engine *engine;
    char *name, *tenant; /* tenant: or NULL */
    char tag[17];
    int lock;            /* on the agent's file */
    agent_record before;
    size_t loaded;       /* tokens that were read from disk for it */
    agent_note *note;
    void *note_user;
    void (*note_free)(void *user);
    /* what the answer left */
    kv_seq kv;
    token_list tokens;
    buf text;
    /* under the agents' lock */
    int refs;
    bool done;
    err problem;
    agent_turn *next, *next_ended;
};

struct agents {
    hearth_engine *engine;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;
    agent_turn *taken; /* all that someone has */
    agent_turn *ended; /* to be saved, the first to end first */
};

/* Of whichever model. */
agents_result agents_take_any(agents *a, const char *name, const char *tenant, bool make, uint64_t wait_ns, agent_turn **out, err *e);
bool agents_have_store(const agents *a, err *e);
/* AGENTS_OK, AGENTS_UNKNOWN or AGENTS_FAILED. */
agents_result agents_is_there(agents *a, const char *name, const char *tag, err *e);
/* Under the lock. */
bool agents_is_running(const agents *a, const char *name, const char *tag);

#endif
