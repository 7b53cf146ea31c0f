/* agents.h: conversations by name, for a program that serves many at once through the loop. One request at a time has an agent: it takes it, goes on from it, and when the
 * answer is complete a thread of its own saves tokens and note, whether or not anybody reads the answer still.
 *
 * All functions may be called from several threads. */
#ifndef ENGINE_AGENTS_H
#define ENGINE_AGENTS_H

#include "engine/loop.h"
#include "store/agent.h"

typedef struct agents agents;
/* The engine must outlive it. Without a store everything is refused in words. */
agents *agents_new(hearth_engine *engine, err *e);
/* Waits until every turn is dropped, by the loop too, and saved. Accepts NULL. */
void agents_free(agents *a);

typedef enum agents_result { AGENTS_OK, AGENTS_UNKNOWN, AGENTS_EXISTS, AGENTS_BUSY, AGENTS_FAILED } agents_result;

/* ---- a turn ---- */

typedef struct agent_turn agent_turn;
/* Waits at most wait_ns for whoever has it. AGENTS_BUSY when that was too short or another process has it, AGENTS_UNKNOWN when it is not there and need not be
 * made, AGENTS_FAILED with e set: also when it belongs to another model. */
agents_result agents_take(agents *a, const char *name, const char *tenant, bool make, uint64_t wait_ns, agent_turn **out, err *e);
/* As it was when it was taken. */
const agent_record *agent_turn_before(const agent_turn *t);
/* Tokens whose keys and values were read from disk for it, for loop_request.loaded. */
size_t agent_turn_loaded(const agent_turn *t);

/* Makes the note to be kept with the answer's text, from a thread of the agents': freed with mem_free; NULL for none. */
typedef char *agent_note(void *user, const char *text, size_t len, size_t *note_len);
/* user_free is called once, when the note is made or not needed any more. */
void agent_turn_keep(agent_turn *t, agent_note *note, void *user, void (*user_free)(void *user));

/* Before it is given to the loop: agent_turn_ended is what loop_request.ended wants, with the turn as its user. Taken back when the loop refused the request. */
void agent_turn_begin(agent_turn *t);
void agent_turn_take_back(agent_turn *t);
loop_ended agent_turn_ended;
/* After the loop has told the end: waits at most timeout_ns until the turn is on disk and the agent free for the next; false when it is not. *e is set when it
 * could not be saved. */
bool agent_turn_wait(agent_turn *t, uint64_t timeout_ns, err *e);
/* The caller needs it no more. An agent whose turn did not end well is as before. Accepts NULL. */
void agent_turn_drop(agent_turn *t);

/* ---- looking at them, and changing them ---- */

typedef enum agent_tier { AGENT_HOT, AGENT_WARM, AGENT_COLD } agent_tier;
typedef struct agent_info {
    agent_record record; /* without the tail */
    agent_tier tier;     /* hot: its keys and values are in memory; warm: on disk; cold: they must be computed again */
    uint64_t bytes;      /* on disk: its file and its blocks, shared ones too */
    bool pinned, running, this_model;
} agent_info;
void agent_info_free(agent_info *i);

agents_result agents_get(agents *a, const char *name, const char *tenant, agent_info *out, err *e);
typedef struct agents_range {
    size_t most;       /* agents; only their files are read */
    const char *after; /* the name of the one before the first, or NULL */
} agents_range;
/* Calls each for the agents of the tenant, the last used first, until it returns false; what it is given is freed afterwards. *more: there are others behind them. */
bool agents_list(agents *a, const char *tenant, const agents_range *range, bool *more, bool (*each)(void *user, const agent_info *i), void *user, err *e);
/* A new agent: empty, or where another one was at the end of its last turn (one that runs is not waited for). */
agents_result agents_create(agents *a, const char *name, const char *tenant, err *e);
agents_result agents_fork(agents *a, const char *from, const char *name, const char *tenant, err *e);
/* Forgets tokens from n_tokens on; the note is replaced. */
agents_result agents_rewind(agents *a, const char *name, const char *tenant, size_t n_tokens, const char *note, size_t note_len, err *e);
agents_result agents_pin(agents *a, const char *name, const char *tenant, bool pinned, err *e);
/* Out of memory, as far as no other agent and nothing that runs needs it. */
agents_result agents_evict(agents *a, const char *name, const char *tenant, err *e);
agents_result agents_remove(agents *a, const char *name, const char *tenant, err *e);

#endif
