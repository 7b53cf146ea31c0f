/* scheduler.h: what the next pass computes, and which waiting request starts next. Pure: no threads, no clock; times are told to it, so a
 * recorded run repeats exactly. */
#ifndef ENGINE_SCHEDULER_H
#define ENGINE_SCHEDULER_H

#include "base/err.h"

enum { SCHED_COUNTS = 33 };

/* What n prompt tokens add to a pass beside streams: shared + n * each. The line through the last passes, of which each counts a tenth less than the next. */
typedef struct sched_price {
    double shared, each; /* nanoseconds; each 0: nothing is known */
    double passes, n, nn, ns, n_ns; /* sums */
    double dearer; /* than expected was the last, so many times, if it was late; else 1 */
    double last;   /* tokens of the last */
    int streams;   /* beside so many */
} sched_price;

typedef struct scheduler {
    int pass_tokens;       /* most tokens of one pass */
    uint64_t max_stall_ns; /* how long a running stream may wait for a token while others' prompts are read */
    double decode_ns[SCHED_COUNTS]; /* a pass of so many streams without prompts, lately; 0: not known. The last is for all larger numbers */
    double each_ns;        /* what a prompt token in the next pass will cost; 0: not known */
    sched_price price;     /* of a few tokens, which share a part of it */
    double seen_ns;        /* what one cost in the last */
    double most;           /* prompt tokens that a pass may grow to */
    int streams;           /* beside so many streams that was found; beside more of them less is tried first */
    double chunk;          /* prompt tokens that fitted into the last pass beside running streams */
    int shared;            /* passes that held streams and prompts since the last of streams alone */
    unsigned turn;
} scheduler;

void scheduler_init(scheduler *s, int pass_tokens, uint64_t max_stall_ns);

/* One running sequence. */
typedef struct sched_item {
    size_t left;   /* tokens to compute before the next one can be picked; at least 1 */
    bool decoding; /* its stream is running, and left is 1 */
    int priority;  /* higher goes first */
    int share;     /* out: tokens of the next pass */
} sched_item;

/* Gives every decoding sequence its token and shares the rest among the prompts: higher priorities first, equal ones equally, whoever
 * needs less leaves the rest to the others. Returns the tokens of the pass. n is at most pass_tokens. */
int scheduler_plan(scheduler *s, sched_item *items, int n);

/* How long the pass took that held n_decode single tokens of streams and n_prompt tokens of prompts. */
void scheduler_measure(scheduler *s, int n_decode, int n_prompt, uint64_t ns);

/* How long a pass of so many streams takes without prompts; 0: not known. */
double scheduler_decode_ns(const scheduler *s, int n_decode);

/* One waiting sequence. */
typedef struct sched_waiting {
    int priority;
    int agent_running; /* sequences of the same agent that run now */
    uint64_t order;    /* of arrival */
    bool held;         /* must not start yet */
} sched_waiting;

/* The one to start next: the highest priority, then the agent with the least running, then the first to come. -1: none may. */
int scheduler_next(const sched_waiting *waiting, int n);

#endif
