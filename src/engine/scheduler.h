/* scheduler.h: what the next pass computes, and which waiting request starts next. Pure: no threads, no clock; times are told to it, so a
 * recorded run repeats exactly.
 *
 * Beside running streams prompts are read in one of two ways, whichever is cheaper by what was measured. Together: a pass holds the next token of every stream and a few of the prompts', which cost little
 * while the pass waits for memory. Apart: prompts have a pass of their own with many tokens, which are cheaper each where a tile unit computes them or experts are shared by them; it is computed
 * some steps at a time, in what the streams leave of max_stall_ns. */
#ifndef ENGINE_SCHEDULER_H
#define ENGINE_SCHEDULER_H

#include "base/err.h"

enum { SCHED_COUNTS = 33 };

/* What n prompt tokens cost: shared + n * each. The line through the last passes, of which each counts a tenth less than the next. */
typedef struct sched_price {
    double shared, each; /* nanoseconds; each 0: nothing is known */
    double passes, n, nn, ns, n_ns; /* sums */
    double read;   /* another: tokens without those that passes went on without */
    int seen;      /* passes that told it */
    double last;   /* tokens of the last */
    double off;    /* how far from the line they are */
    int streams;   /* beside so many */
} sched_price;

/* How long something takes, lately, and how far from that it is at times; nanoseconds. 0: not known. */
typedef struct sched_time {
    double mean, off;
} sched_time;

typedef struct scheduler {
    int pass_tokens;       /* most tokens of one pass */
    int steps;             /* of a pass: it can rest after each */
    uint64_t max_stall_ns; /* how long a running stream may wait for a token while others' prompts are read */
    sched_time decode[SCHED_COUNTS]; /* a pass of so many streams without prompts. The last is for all larger numbers */
    double each_ns;        /* what a prompt token in the next pass will cost; 0: not known */
    sched_price price;     /* of a few tokens beside streams, which share a part of it */
    sched_price many;      /* of passes of prompts alone */
    double seen_ns;        /* what one cost in the last */
    double most;           /* prompt tokens that a pass may grow to */
    int streams;           /* beside so many streams that was found; beside more of them less is tried first */
    double chunk;          /* prompt tokens that fitted into the last pass beside running streams */
    int shared;            /* passes that held streams and prompts since the last of streams alone */
    bool always_apart;     /* whatever it costs: for tests */
    bool was_apart;        /* prompts were read apart since the last pass of streams began, and have had their time */
    unsigned turn;
} scheduler;

void scheduler_init(scheduler *s, int pass_tokens, int steps, uint64_t max_stall_ns);

/* One running sequence. */
typedef struct sched_item {
    size_t left;   /* tokens to compute before the next one can be picked; at least 1 */
    bool decoding; /* its stream is running, and left is 1 */
    int priority;  /* higher goes first */
    bool reading;  /* it is in a pass that was planned apart and is not done yet */
    int share;     /* out: tokens of the next pass */
} sched_item;

/* Gives every decoding sequence its token and shares the rest among the prompts: higher priorities first, equal ones equally, whoever
 * needs less leaves the rest to the others. Returns the tokens of the pass. n is at most pass_tokens. */
int scheduler_plan(scheduler *s, sched_item *items, int n);

/* Where prompts are read apart, the pass above leaves them out, and this one is shared out among them; 0: there is none to begin, because they are not, or one is under way. */
int scheduler_plan_apart(scheduler *s, sched_item *items, int n);
/* How long such a pass may be computed between two passes of so many streams, from the moment when these got their tokens. A step is not begun that would end later, but one is always computed. */
uint64_t scheduler_rest_ns(const scheduler *s, int n_decode);
/* How long a step of one with n tokens takes; 0: not known. */
uint64_t scheduler_step_ns(const scheduler *s, int n);

/* How long the pass took that held n_decode single tokens of streams and n_prompt tokens of prompts; of one apart, without its rests. */
void scheduler_measure(scheduler *s, int n_decode, int n_prompt, uint64_t ns);

/* How long so many streams may wait for the end of a pass that holds prompts too, from the moment when they got their tokens: one that would take longer goes on without the prompts. */
uint64_t scheduler_latest_ns(const scheduler *s, int n_decode);

/* Of such a pass: how long it would have taken. The next holds half as many tokens at most, so that prompts move on whatever happens. */
void scheduler_measure_late(scheduler *s, int n_decode, int n_prompt, uint64_t ns);

/* How long a pass of so many streams and a few tokens of prompts will take; 0: not known. */
double scheduler_expect_ns(const scheduler *s, int n_decode, int n_prompt);

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
