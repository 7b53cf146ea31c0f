/* store_inner.h: the store, for the files of the store. */
#ifndef STORE_STORE_INNER_H
#define STORE_STORE_INNER_H

#include <pthread.h>

#include "store/blockfile.h"
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

/* A file that is mapped: what a block's bytes, or those of its window part, belong to. Its layers arrive one after the other. */
typedef struct arrival {
    kv_owner owner;
    store *store;
    atomic_int refs;              /* the block's, and the reader's while it arrives */
    struct arrival *next;
    file_map map;
    shelf_key key;
    bool window;
    size_t data_at, sums_at;
    blockfile_layer layer, fetch; /* the next one to be checked; to be read, which is the reader's */
    size_t ahead, step;           /* bytes that the disk was asked for; and how many next */
    bool unreadable;              /* reading ended there */
    double asked;                 /* when */
} arrival;

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
    bool writing, stop, hurry, gently;
    int flushing;           /* who waits for the queue */
    double wrote_at;        /* the end of the last write */
    uint64_t queued_bytes, n_jobs;
    err problem;            /* of the last write that failed */
    double retry_at, retry_after;
    store_stats stats;

    pthread_t reader;
    bool reader_runs;
    pthread_mutex_t arrive_lock;
    pthread_cond_t arrive_more;
    arrival *arriving, *arriving_last; /* the one whose turn is next first */
    bool arrive_stop;
};

/* Starts and ends the thread that reads. */
bool arrive_start(store *s, err *e);
void arrive_end(store *s);
/* Maps a file and asks the disk for its start; held once. */
arrival *arrive_open(store *s, const char *path, const shelf_key *key, bool window, err *e);
/* Checks all but the layers. */
bool arrive_check(arrival *a, const kv_name *parent, err *e);
/* Has its layers read. */
void arrive_begin(store *s, arrival *a);
/* A file that could not be used: it is forgotten, and set aside when it is damaged. id: which file it was, NULL when it could not be opened. */
void arrive_set_aside(store *s, const shelf_key *key, bool window, const file_id *id, const err *why);

void store_warn(store *s, const char *format, const char *a, const char *b);

#endif
