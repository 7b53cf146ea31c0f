/* shelf.h: the folder of a store and the index of what is in it. It knows names and sizes, not what is in the files.
 *
 *   blocks/ab/NAME-PARENT-INDEX.safetensors   one block: its name (64 digits), the first 16 digits of its parent's name, its place in the conversation
 *   agents/AGENT.safetensors                  one agent: its tokens and the tail that fills no block; AGENT is the name with %XX for special bytes, and @TAG for a tenant's
 *   agents/AGENT.lock, agents/AGENT.pin       who has it open; that it and its blocks are never evicted
 *   bad/                                      what did not check out, each with a .why
 *   usage                                     the bytes of all of it, as counted by who held the folder's lock last
 *
 * Several processes may share the folder: files appear and disappear only as a whole, blocks never change, and only who holds the folder's lock writes, or
 * deletes to make room. All functions may be called from several threads. */
#ifndef STORE_SHELF_H
#define STORE_SHELF_H

#include "base/file.h"
#include "kv/name.h"

typedef struct shelf shelf;

/* A block as its file's name tells. */
typedef struct shelf_key {
    kv_name name;
    uint64_t parent; /* the first 8 bytes of the parent's name */
    uint32_t index;
} shelf_key;
shelf_key shelf_key_make(const kv_name *name, const kv_name *parent, uint32_t index);

#define SHELF_AUTO UINT64_MAX

/* Makes the folder when it is not there and scans it; reads no file. budget: most bytes on disk; SHELF_AUTO: half of what the disk would have without them. */
shelf *shelf_open(const char *folder, uint64_t budget, err *e);
void shelf_close(shelf *s); /* accepts NULL */
const char *shelf_folder(const shelf *s);
/* Scans anew: other processes may have written. */
bool shelf_scan(shelf *s, err *e);

/* Whether the block is there: by the index, else by a look at the disk. */
bool shelf_has(shelf *s, const shelf_key *key);
/* The same by a look at the disk: another process may have deleted it. */
bool shelf_there(shelf *s, const shelf_key *key);
/* The path of a block; freed with mem_free. */
char *shelf_block_path(const shelf *s, const shelf_key *key, err *e);
/* Makes the folder that path is to be written to. For one thread at a time. */
bool shelf_make_folder(shelf *s, const shelf_key *key, err *e);
/* Makes room for that many bytes of a block (NULL: something else) and counts them as taken. False without an error when room cannot be made without taking away
 * what the block builds on, or when that is gone. Nobody else writes to the folder until shelf_put_done or shelf_agent_bytes has told what became of it. */
bool shelf_reserve(shelf *s, uint64_t bytes, const shelf_key *block, err *e);
void shelf_put_done(shelf *s, const shelf_key *block, uint64_t bytes, bool written);
/* The block was used now. */
void shelf_used(shelf *s, const shelf_key *key);
/* It is gone or unreadable: the index forgets it. Who deletes a file counts its bytes. */
void shelf_forget(shelf *s, const shelf_key *key);
/* Moves a file out of the way and writes down why. */
bool shelf_set_aside(shelf *s, const char *path, const char *why, err *e);

/* The path of an agent's file: end is ".safetensors", ".lock" or ".pin". NULL with e set when the name is none: empty, longer than 64 bytes or no UTF-8. */
char *shelf_agent_path(const shelf *s, const char *agent, const char *tag, const char *end, err *e);
/* Whether the agent's blocks are never evicted. */
bool shelf_pinned(const shelf *s, const char *agent, const char *tag);
bool shelf_pin(shelf *s, const char *agent, const char *tag, bool pinned, err *e);
/* Counts an agent's file that was written (old bytes are those of the one it replaced; reserved: what shelf_reserve counted for it, 0 when it was not asked) or
 * removed. */
void shelf_agent_bytes(shelf *s, uint64_t old_bytes, uint64_t new_bytes, uint64_t reserved);
/* Calls each for every agent with the path of its file, until it returns false. */
bool shelf_agents(const shelf *s, bool (*each)(void *user, const char *path, bool pinned), void *user, err *e);

typedef struct shelf_stats {
    uint64_t budget, bytes, blocks, agents;
    uint64_t evictions, evicted_bytes, set_aside, orphans; /* evictions: of blocks and of agents' tails */
    double scan_seconds;
} shelf_stats;
shelf_stats shelf_get_stats(shelf *s);

/* Deletes what was set aside, then blocks and tails of agents, least worth first, until at most that many bytes are left; and blocks whose parent is gone, and
 * remains of interrupted writes. Waits for who writes to the folder: *busy is set, and nothing done, when that takes seconds. */
bool shelf_collect(shelf *s, uint64_t most, bool *busy, err *e);
/* Deletes all that was set aside. */
bool shelf_clear_bad(shelf *s, err *e);
/* How many blocks of the chain that ends with head are there, and their bytes. */
size_t shelf_chain(shelf *s, const kv_name *head, uint64_t *bytes);
/* Calls each for every block in the index, which must not change meanwhile. */
void shelf_blocks(shelf *s, bool (*each)(void *user, const shelf_key *key, uint64_t bytes), void *user);

#endif
