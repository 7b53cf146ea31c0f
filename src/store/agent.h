/* agent.h: the file of an agent: all its tokens, the keys and values of the tail that fills no block, a note of the program, and where it belongs. Blocks may
 * be evicted; what an agent said is only lost when its file is deleted. */
#ifndef STORE_AGENT_H
#define STORE_AGENT_H

#include "kv/kv.h"
#include "store/shelf.h"

/* Owned by whoever made it; agent_free frees what it points to. Zero-initialised is empty. */
typedef struct agent_record {
    char *name;
    char tag[17];          /* of the tenant; "" for none */
    char model[65];        /* the fingerprint, in digits */
    kv_name root, head;    /* where its names start; the last full block (the root when there is none) */
    int64_t created, used; /* seconds since 1970 */
    uint64_t hits;         /* turns that found something of it and computed only the rest */
    int32_t *tokens;
    size_t n_tokens;
    uint8_t *tail;         /* packed keys and values of the last n_tail tokens, or NULL */
    int n_tail;
    size_t tail_bytes;
    char *note;            /* any bytes, or NULL */
    size_t note_len;
    uint64_t bytes;        /* of the file, when it was read */
} agent_record;
void agent_free(agent_record *a);
bool agent_copy(agent_record *to, const agent_record *from, err *e); /* to is overwritten, and empty on failure */

/* The digits that keep the agents of tenants apart; "" for none. */
void agent_tag(const char *tenant, char out[17]);

/* Writes the agent's file in place of the one that is there. Without room on disk for the tail it is left out. */
bool agent_write(shelf *s, const agent_record *a, const kv_layout *l, err *e);
/* Reads and checks a whole file. The tail is kept only when its shape is that of l (NULL: never). HEARTH_FORMAT when it is damaged. */
bool agent_read(const char *path, const kv_layout *l, agent_record *out, err *e);
/* The same without the tail and without comparing the checksum: for showing (messages, say), not for use. Its time does not depend on the tail. */
bool agent_glance(const char *path, agent_record *out, err *e);
/* Only what the start of the file tells, without a check of the rest: all but tokens, tail and note themselves (their numbers are set). */
bool agent_peek(const char *path, agent_record *out, err *e);
/* As agent_peek, of a file in memory (which is read and checked as a whole) and with the tokens. */
bool agent_parse(const file_map *m, agent_record *out, err *e);
/* Makes agent `to` a copy of `from`: a name for the same blocks. HEARTH_ARGUMENT when there is no `from` or a `to` already, HEARTH_LIMIT when `to` is open. Works
 * without knowing the model. */
bool agent_fork(shelf *s, const char *from, const char *to, const char *tag, err *e);
/* Takes the name of an agent that is not there yet: *path for its file, freed with mem_free, and *lock for file_unlock. */
bool agent_claim(shelf *s, const char *name, const char *tag, char **path, int *lock, err *e);
/* Writes an agent's file that lies in memory to a claimed path, under that name. fresh: as created now, with no hits. */
bool agent_place(shelf *s, const file_map *m, const char *path, const char *name, bool fresh, err *e);
/* Writes an agent's file again without the keys and values of its tail: they are computed again when it goes on. Nothing is done, and *freed stays 0, when it has
 * none, is open, or when its file without them is larger than room. */
bool agent_strip(const char *path, uint64_t room, uint64_t *freed);
/* Only the name of the head, without a check of the rest. */
bool agent_read_head(const char *path, kv_name *head, err *e);

#endif
