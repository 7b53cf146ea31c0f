/* shelf.h: the folder of a store and the index of what is in it. It knows names and sizes, not what is in the files.
 *
 *   blocks/ab/NAME-PARENT-INDEX.safetensors   one block: its name (64 digits), the first 16 digits of its parent's name, its place in the conversation
 *   blocks/ab/NAME-PARENT-INDEX-wREACH.safetensors   its window part, and how many blocks before a place have window parts that are needed there
 *   agents/AGENT.safetensors                  one agent: its tokens and the tail that fills no block; AGENT is the name with %XX for special bytes, and @TAG for a tenant's
 *   agents/AGENT.lock, agents/AGENT.pin       who has it open; that it and its blocks are never evicted
 *   bad/                                      what did not check out, each with a .why
 *   usage, waiting                            the bytes of all of it, as counted by who held the folder's lock last; that someone waits for it
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

/* A file of blocks/: a block (reach 0), or a window part. */
typedef struct shelf_file {
    shelf_key key;
    unsigned reach;
} shelf_file;

#define SHELF_AUTO UINT64_MAX

/* Makes the folder when it is not there and scans it; reads no file. budget: most bytes on disk; SHELF_AUTO: half of what the disk would have without them. */
shelf *shelf_open(const char *folder, uint64_t budget, err *e);
void shelf_close(shelf *s); /* accepts NULL */
const char *shelf_folder(const shelf *s);
/* Scans anew: other processes may have written. */
bool shelf_scan(shelf *s, err *e);

/* Whether the block is there: by the index. */
bool shelf_known(shelf *s, const shelf_key *key);
/* The same, else by a look at the disk. */
bool shelf_has(shelf *s, const shelf_key *key);
/* By a look at the disk: another process may have deleted it. */
bool shelf_there(shelf *s, const shelf_key *key);
/* The same of a block's window part. wanted: it will be needed soon, so that it is not to be swept now. */
bool shelf_window_known(shelf *s, const shelf_key *key, bool wanted);
bool shelf_has_window(shelf *s, const shelf_key *key, unsigned reach);
/* The path of a block or window part; freed with mem_free. */
char *shelf_path(const shelf *s, const shelf_key *key, unsigned reach, err *e);
/* Makes the folder that path is to be written to. For one thread at a time. */
bool shelf_make_folder(shelf *s, const shelf_key *key, err *e);
/* Makes room for that many bytes of a block or window part (NULL: something else) and counts them as taken. False without an error when room cannot be made without taking
 * away what it builds on, or when that is gone. Nobody else writes to the folder until shelf_put_done or shelf_agent_bytes has told what became of it. */
bool shelf_reserve(shelf *s, uint64_t bytes, const shelf_file *f, err *e);
void shelf_put_done(shelf *s, const shelf_file *f, uint64_t bytes, bool written);
/* The block was used now. */
void shelf_used(shelf *s, const shelf_key *key);
/* It is gone or unreadable: the index forgets it. Who deletes a file counts its bytes. */
void shelf_forget(shelf *s, const shelf_key *key, bool window);
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
    uint64_t windows, window_bytes; /* window parts; their bytes are among those of the folder */
    uint64_t evictions, evicted_bytes, set_aside, orphans; /* evictions: of blocks and of agents' tails */
    double scan_seconds;
} shelf_stats;
shelf_stats shelf_get_stats(shelf *s);

/* Deletes what was set aside, then blocks and tails of agents, least worth first, until at most that many bytes are left; and blocks whose parent is gone, window parts that
 * nobody needs (shelf_sweep) and remains of interrupted writes. Waits for who writes to the folder: *busy is set, and nothing done, when that takes seconds. */
bool shelf_collect(shelf *s, uint64_t most, bool *busy, err *e);
/* Deletes window parts that conversations have moved past. Those that stay: before every end (a block on which none builds, the last block of an agent) the windows of the last two
 * places that have all of theirs, of the last one before every block on which several build, and what is behind these; and what was written or wanted in the last `grace`
 * seconds, for what needs it may not be on disk yet. Nothing is done while others hold the folder. */
bool shelf_sweep(shelf *s, uint32_t grace, err *e);
enum { SHELF_GRACE = 60 };
/* Whether a good part of the window parts is new since the last time. */
bool shelf_sweep_due(shelf *s);
/* Of the chain that ends with head, how many blocks from the end on have their window parts. */
size_t shelf_windows(shelf *s, const kv_name *head);
/* How many blocks far the window part of a block is needed; 0: it has none. */
unsigned shelf_reach(shelf *s, const kv_name *name);
/* Deletes all that was set aside. */
bool shelf_clear_bad(shelf *s, err *e);
/* How many blocks of the chain that ends with head are there, and their bytes, with window parts. */
size_t shelf_chain(shelf *s, const kv_name *head, uint64_t *bytes);
/* Calls each for every block in the index, which must not change meanwhile; bytes with its window part. */
void shelf_blocks(shelf *s, bool (*each)(void *user, const shelf_key *key, uint64_t bytes), void *user);

#endif
