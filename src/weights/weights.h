/* weights.h: the weight cache. A matrix can lie in memory in two forms: raw (in the mapping of the model file) and packed (the same bits in the
 * order the kernels like). Packed forms are made once, kept under one budget of bytes, and written to a file that the next start maps.
 *
 *   cache.c        entries: request, make once, pin, evict
 *   plan.c         who stays: access counts over a time window; what comes next: prefetch
 *   make.c         packing, checking, preload
 *   fingerprint.c  what identifies the weights and the packed layout
 *   packfile.c     the file of packed forms
 *   folder.c       the cache folder: names, records, set aside, prune
 *   persist.c      finding the file at start, writing it behind the work
 *   stats.c        counts for people
 *   spare.c        how much memory the machine has to spare
 *
 * docs/weights.md tells the rules and the file format. Everything here may be called from several threads, except open, add, start and close. */
#ifndef WEIGHTS_WEIGHTS_H
#define WEIGHTS_WEIGHTS_H

#include "base/pool.h"
#include "gguf/gguf.h"
#include "kernels/matmul.h"

typedef struct weights weights;

typedef enum weights_preload {
    WEIGHTS_PRELOAD_NONE,
    WEIGHTS_PRELOAD_CRITICAL, /* the output matrix and the first quarter of the layers */
    WEIGHTS_PRELOAD_ALL,
} weights_preload;

#define WEIGHTS_AUTO HEARTH_AUTO

typedef struct weights_options {
    uint64_t memory;         /* bytes of all packed forms, mapped ones too; WEIGHTS_AUTO: what the machine has to spare */
    weights_preload preload;
    bool frequency;          /* who stays is who is used most; false: who was used last */
    double window;           /* seconds over which use is counted */
    int prefetch;            /* stages to make ready ahead; -1: one where a packed file makes it cheap, else none */
    bool prefetch_async;     /* on a thread of its own; false: by the caller, before it goes on */
    bool persist;
    const char *cache_dir;   /* NULL: $XDG_CACHE_HOME/hearth or ~/.cache/hearth */
    uint64_t cache_bytes;    /* of all packed files in the folder; WEIGHTS_AUTO: half of what the disk would have without them */
    uint64_t persist_least;  /* less than this is packed again rather than written */
    bool move;               /* from the mapped file to huge pages in the background, where memory is to spare */
    void (*progress)(void *user, const char *what, uint64_t done, uint64_t total); /* bytes; from the thread that calls start; may be NULL */
    void *progress_user;
    void (*warn)(void *user, const char *sentence); /* from any thread; may be NULL */
    void *warn_user;
    uint64_t (*now)(void);   /* monotonic nanoseconds; NULL: the clock. For tests */
} weights_options;
weights_options weights_defaults(void);

/* g, k and p must live as long as the cache. NULL on failure. Then weights_add for every matrix, then weights_start. */
weights *weights_open(const gguf *g, const kernels *k, pool *p, const weights_options *o, err *e);
/* Waits until a packed file that is being written is complete. Everything acquired must have been released. Accepts NULL. */
void weights_close(weights *w);

/* Registers n matrices of one shape, stride bytes apart (experts; n is 1 otherwise), under one name. They get n ids in a row; returns the first, or -1 on
 * failure. when is their stage, the part of a pass that uses them: the layer, and after the last one the output. from_file: the bytes are those of the file's tensor of
 * that name, so that the packed form may be kept on disk. */
int weights_add(weights *w, const char *name, int n, size_t stride, int when, const kern_weight *first, bool from_file, err *e);
/* Opens the packed file, plans, preloads. Fails only when memory for the tables is short. */
bool weights_start(weights *w, err *e);

/* The ready form of a matrix, making it first if it may be kept and is not ready. Never fails: at worst it is the raw form. Stays valid and in place
 * until released. */
const kern_weight *weights_acquire(weights *w, int id);
void weights_release(weights *w, const kern_weight *acquired);
/* Where the packed form of a matrix lies now, if it is ready; it may be gone the next moment, and this is no use of it: enough to ask memory for it. */
bool weights_peek(weights *w, int id, const char **at, size_t *bytes);
/* Makes it ready if the budget allows and keeps it so until unpinned. False when it could not. */
bool weights_pin(weights *w, int id);
void weights_unpin(weights *w, int id);

/* Tells where a pass is, before the first request of each stage. The walk is the caller's memory of where it was, from pass to pass. */
typedef struct weights_walk {
    int place; /* 1 + the stage; 0: none yet */
} weights_walk;
void weights_enter(weights *w, weights_walk *walk, int to);

/* ---- statistics ---- */

typedef hearth_weights_stats weights_stats;
weights_stats weights_get_stats(weights *w);

typedef hearth_weight_stats weights_entry_stats;
int weights_count(const weights *w);
weights_entry_stats weights_entry_get(weights *w, int id);
/* The most requested of the last minute, most first; returns how many were written to ids. */
int weights_hottest(weights *w, int *ids, int cap);

/* What was found at the first request when something that start had made ready no longer was: one sentence with the instance, its memory and the
 * entries. "" while all is well. */
const char *weights_self_check(weights *w);
/* Where the packed file lies, or why there is none: one sentence. */
void weights_describe(weights *w, char *out, size_t cap);
/* Blocks until background work (writing, prefetch) is done. For tests and for programs about to be measured. */
void weights_settle(weights *w);

/* Bytes that the machine has to spare; files that the system only keeps in memory count. */
uint64_t spare_memory(void);

#endif
