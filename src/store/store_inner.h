/* store_inner.h: the store, for the files of the store. */
#ifndef STORE_STORE_INNER_H
#define STORE_STORE_INNER_H

#include <pthread.h>

#include "store/store.h"

/* Something to be written: a block, its window part, or an agent. */
typedef struct job {
    struct job *next;
    kv_block *block;
    bool window;
    agent_record agent;
    uint64_t number;
    double asked; /* when */
} job;

struct store {
    store_options o;
    kv_cache *cache;
    const kv_layout *layout;
    shelf *shelf;
    char model[65];

    pthread_t writer;
    bool writer_runs;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* the queue, or how writing goes */
    job *first, *last;      /* the first is being written */
    bool writing, stop, hurry;
    uint64_t queued_bytes, n_jobs;
    err problem;            /* of the last write that failed */
    double retry_at, retry_after;
    store_stats stats;
};

void store_warn(store *s, const char *format, const char *a, const char *b);

#endif
