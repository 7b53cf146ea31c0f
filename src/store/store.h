/* store.h: conversations on disk. Blocks are written by a thread of its own as they fill, agents at the end of a turn; both come back mapped, checked before
 * their first use: blocks layer by layer, by another thread.
 *
 *   tensorfile.c     files with a checksum that other tools can read
 *   blockfile.c      the file of a block
 *   agent.c          the file of an agent
 *   shelf.c          the folder and its index; shelf_collect.c: eviction, orphans, what is set aside; shelf_sweep.c: window parts that are not needed any more
 *   store.c          the writer; load.c: finding and mapping; arrive.c: the reader
 *
 * docs/store.md tells the formats and the rules. A disk that fails or is full costs one warning: the store goes on in memory and tries again. All functions may
 * be called from several threads. */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include "kv/cache.h"
#include "store/agent.h"
#include "store/shelf.h"

typedef struct store store;

typedef struct store_options {
    const char *folder;
    uint64_t disk;        /* most bytes of the folder; SHELF_AUTO: half of what the disk would have without them */
    uint64_t queue_bytes; /* blocks that wait to be written hold at most this; 0: a gigabyte */
    double retry_seconds; /* until a failed write is tried again, doubled each time up to 32 times; 0: one second */
    double pause_seconds; /* between two blocks that are written gently; 0: a tenth */
    void (*warn)(void *user, const char *sentence); /* from any thread; may be NULL */
    void *warn_user;
} store_options;

/* model: the fingerprint in digits. The cache and the layout must outlive the store. NULL on failure. */
store *store_open(const store_options *o, kv_cache *c, const kv_layout *l, const char *model, err *e);
/* Writes what waits, then ends. Accepts NULL. */
void store_close(store *s);
shelf *store_shelf(store *s);
const char *store_model(const store *s);

/* Has a full block, which the caller holds, written soon. False when it is not taken: too many wait, or the disk fails. */
bool store_put(store *s, kv_block *b);
/* Has the window parts written that who goes on from there needs, when the sequence has come as far and they are all in memory or on disk: for where a turn or a prompt ends, or
 * conversations part. Nothing is done where no layer is windowed. */
void store_put_place(store *s, const kv_seq *seq, size_t length);
/* Has the agent written after all blocks that wait; takes what a points to. A later save of the same agent replaces one that waits. */
bool store_save(store *s, agent_record *a, err *e);
/* While streams run: blocks are written one at a time with pauses (option pause_seconds) while nobody waits for them, because writing several in a row keeps a core from computing for tens of milliseconds. */
void store_gently(store *s, bool gently);
/* Waits until all that was put and saved before is on disk; false when a write failed meanwhile. */
bool store_flush(store *s, err *e);

/* What is on disk, for kv_seq_find. Blocks are there at once, their layers arrive while others are computed (kv_seq_wait). */
kv_source store_source(store *s);

/* Takes the agent for this caller alone (*lock for store_release) and reads it; out is empty when there is none yet. */
bool store_take(store *s, const char *name, const char *tag, agent_record *out, int *lock, err *e);
void store_release(int lock);
/* Makes agent `to` a copy of `from` as it was last saved: a name for the same blocks. HEARTH_ARGUMENT when there is no `from` or a `to` already. Nobody may have
 * `to` open. */
bool store_fork(store *s, const char *from, const char *to, const char *tag, err *e);
/* Deletes an agent that the caller has taken, and its pin. Its blocks stay until their room is needed. */
bool store_remove(store *s, const char *name, const char *tag, err *e);

typedef struct store_stats {
    shelf_stats disk;
    uint64_t written_blocks, written_bytes, saves;  /* saves: of agents; bytes with window parts */
    uint64_t written_windows;
    uint64_t skipped;                               /* blocks not written: no room, or too many waited */
    uint64_t failures;                              /* of writes */
    uint64_t loads, misses;                         /* prompts of which blocks were loaded; of which none were there */
    uint64_t loaded_blocks, loaded_bytes, damaged;
    uint64_t waiting;                               /* jobs */
    double write_seconds, longest_write;
    double load_seconds, longest_load;              /* spent on reading and checking; from when a block was asked for until its last layer was there */
    double save_seconds, longest_save;              /* of agents, from store_save until it was on disk */
    bool degraded;                                  /* in memory only for now */
} store_stats;
store_stats store_get_stats(store *s);

#endif
