/* pool.h: a fixed set of threads that run one parallel loop at a time. */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include "base/err.h"

typedef struct pool pool;

/* threads includes the caller; 0 means one per core this process may use. */
pool *pool_new(int threads, err *e);
void pool_free(pool *p);
int pool_threads(const pool *p);
/* How many cores this process may run on. */
int pool_cores(void);

/* Calls task(context, i, thread) for every i in [0, n), in any order, on all threads, and returns when
 * all are done. Each thread begins with a range of its own, in order, and when that is done helps another, so uneven ones balance. Calls from several threads
 * at once take turns. A task must not call pool_run on the same pool. */
typedef void pool_task(void *context, int64_t i, int thread);
void pool_run(pool *p, int64_t n, pool_task *task, void *context);

/* The same with neighbours in one call, all i in [first, end): an eighth of what the thread has left, and at the end one. For tasks so short that beginning one
 * counts. */
typedef void pool_range(void *context, int64_t first, int64_t end, int thread);
void pool_run_ranges(pool *p, int64_t n, pool_range *range, void *context);

/* For a thread that computes for long: others that have little to do (who tells a token, who hears of it) need not wait until its turn ends, which on Linux since 6.6 is a few milliseconds. Its share of the core stays the
 * same. The pool's own threads have done it. */
void pool_give_way(void);

/* What a thread should ask memory for while it waits, the caller's (0) for the others: where it will begin to read in the loop after the next, and as much `apart` bytes later (0: only there). NULL: nothing. It need
 * not be there any more when it is asked for. */
void pool_ahead(pool *p, int thread, const void *from, size_t apart, size_t bytes);

#endif
