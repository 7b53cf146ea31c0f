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

/* The digits that keep the agents of tenants apart; "" for none. */
void agent_tag(const char *tenant, char out[17]);

/* Writes the agent's file in place of the one that is there. Without room on disk for the tail it is left out. */
bool agent_write(shelf *s, const agent_record *a, const kv_layout *l, err *e);
/* Reads and checks a whole file. The tail is kept only when its shape is that of l (NULL: never). HEARTH_FORMAT when it is damaged. */
bool agent_read(const char *path, const kv_layout *l, agent_record *out, err *e);
/* Only what the start of the file tells, without a check of the rest: all but tokens, tail and note themselves (their numbers are set). */
bool agent_peek(const char *path, agent_record *out, err *e);
/* Checks a file and writes it again under another name, as created now, with no hits; it must not be there. Works without knowing the model. */
bool agent_copy(shelf *s, const char *path, const char *name, err *e);
/* Only the name of the head, without a check of the rest. */
bool agent_read_head(const char *path, kv_name *head, err *e);

#endif
