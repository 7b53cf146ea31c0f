/* loop.h: many conversations on one engine. A thread of its own computes pass after pass: the next token of every running stream, and of the prompts that joined a few
 * tokens with them or many in between, some layers at a time. Requests come and go at any moment from any thread.
 *
 *   scheduler.c   what a pass computes
 *   passes.c      computing it
 *   admit.c       who starts, steps back and leaves, within the budget for keys and values
 *   ticket.c      a request as its owner sees it: pieces of text as they are made
 *   loop.c        the thread
 *
 * What was computed is remembered by the engine (recall.h): a request finds the longest prefix of its tokens by itself, whoever computed it. */
#ifndef ENGINE_LOOP_H
#define ENGINE_LOOP_H

#include "hearth.h"
#include "kv/kv.h"
#include "text/tokenizer.h"

typedef struct loop loop;

typedef struct loop_options {
    int max_running;       /* sequences computed at once, 1 to 256 */
    int max_queue;         /* sequences that may wait; more are refused with HEARTH_LIMIT */
    uint64_t max_stall_ns; /* how long running streams may wait for a token while others' prompts are read */
    uint64_t (*now)(void *user); /* a clock in nanoseconds; NULL: the monotonic one */
    void *now_user;
    struct trace *trace;         /* where decisions are recorded (trace.h), or NULL; must outlive the loop */
} loop_options;
/* 16 running, 64 waiting, 100 ms. Keys and values stay within the engine's kv_memory; one conversation always runs, whatever its size. */
loop_options loop_defaults(void);

/* The engine must outlive the loop. */
loop *loop_new(hearth_engine *engine, const loop_options *options, err *e);
/* No new requests from now on; those that are there are finished when there is time until then. Returns at the latest after limit_ns. */
void loop_drain(loop *l, uint64_t limit_ns);
/* Ends what still runs. Every ticket must be freed before or be waited for by another thread that then frees it: see loop_end. */
void loop_free(loop *l);
/* Ends the thread; tickets that are not done fail with HEARTH_CANCELLED, and can still be read and freed. */
void loop_end(loop *l);

enum { LOOP_SHOWN = 8, LOOP_CLOSE = 16 };

/* A bound on thoughts: once an answer holds limit tokens and is in a thought still, the tokens of close are put in. */
typedef struct loop_thoughts {
    int limit;                 /* 0: none */
    bool inside;               /* the prompt ends in a thought */
    int32_t open, end;         /* tokens that begin and end one; HEARTH_TOKEN_NONE: there is no such token */
    int32_t close[LOOP_CLOSE];
    int n_close;
} loop_thoughts;
/* How the first answer of a request ended. Told once for every ticket, by the loop's thread or by who frees the ticket, before the owner hears of the end; it
 * must not wait. When finished the sequence holds all of the tokens, and kv, tokens and text (all that was given out) may be taken over: left empty. */
typedef struct loop_result {
    bool finished;
    kv_seq *kv;
    token_list *tokens;
    size_t n_prompt; /* tokens of the prompt */
    buf *text;
} loop_result;
typedef void loop_ended(void *user, loop_result *result);

typedef struct loop_request {
    const int32_t *tokens; /* the prompt, at least one; copied */
    size_t n_tokens;
    int n;                 /* answers to it, each with its own random numbers: seed, seed + 1, ... */
    hearth_sampler_options sampler;
    bool penalise_prompt;  /* penalties and DRY count the prompt too, not only the answer */
    int max_tokens;        /* -1: until the model ends or the context is full */
    const char *const *stop;
    bool ignore_end, show_special;
    const int32_t *shown;  /* control tokens whose text is given out too, LOOP_SHOWN at most */
    int n_shown;
    int n_logprobs;        /* likeliest tokens to report with each; -1: no log-probabilities */
    loop_thoughts thoughts;
    uint64_t limit_ns;     /* the request fails with HEARTH_LIMIT after this time; 0: no limit */
    uint64_t owner;        /* whose it is: owners share fairly. 0 is one owner too */
    const char *tenant;    /* only what was computed for the same one is found; NULL: none. Copied */
    size_t loaded;         /* tokens that were read from disk for it already; only counted */
    int priority;          /* higher goes first */
    bool embed;            /* no answer, but a vector of the prompt: loop_ticket_vector. n must be 1 */
    loop_ended *ended;     /* or NULL; see there */
    void *ended_user;
} loop_request;
loop_request loop_request_defaults(void);

typedef struct loop_ticket loop_ticket;
/* NULL with HEARTH_LIMIT when too many wait (then loop_retry_s says when to try again), HEARTH_ARGUMENT when the prompt does not fit
 * the context or an option is wrong, HEARTH_CANCELLED when the loop ends. */
loop_ticket *loop_submit(loop *l, const loop_request *r, err *e);
/* Cancels what still runs. */
void loop_ticket_free(loop_ticket *t);

typedef struct loop_token {
    int32_t token;
    float logprob;             /* 0 unless asked for */
    const hearth_logprob *top; /* n_logprobs of them; places beyond the vocabulary hold HEARTH_TOKEN_NONE */
} loop_token;

typedef enum loop_finish { LOOP_RUNNING = -1, LOOP_LENGTH = HEARTH_FINISH_LENGTH, LOOP_END = HEARTH_FINISH_END, LOOP_STOP = HEARTH_FINISH_STOP } loop_finish;

/* What is new of one answer. Owned by the ticket until the next call on it. */
typedef struct loop_piece {
    int choice;          /* 0 to n - 1 */
    const char *text;    /* NUL-terminated; whole characters where the model's bytes make any */
    size_t len;
    const loop_token *tokens; /* those picked since the last piece, the one that ended the answer not included */
    size_t n_tokens;
    loop_finish finish;  /* LOOP_RUNNING, or why this answer ends with this piece */
    const char *stop;    /* LOOP_STOP: the stop string that was found */
} loop_piece;

typedef enum loop_news { LOOP_IDLE, LOOP_PIECE, LOOP_DONE, LOOP_FAILED } loop_news;
/* Waits for news at most timeout_ns: LOOP_IDLE when there were none, LOOP_DONE after the last piece of the last answer, LOOP_FAILED with e set. */
loop_news loop_next(loop_ticket *t, uint64_t timeout_ns, loop_piece *piece, err *e);

typedef struct loop_usage {
    int prompt_tokens;
    int cached_tokens;     /* of the prompt, remembered and not computed ... */
    int warm_tokens;       /* ... of these, read from disk */
    int completion_tokens; /* picked in all answers, those that ended one included */
    uint64_t queued_ns, first_ns, total_ns; /* from submission to the start, the first token and the end; 0: not yet */
} loop_usage;
loop_usage loop_ticket_usage(loop_ticket *t);

/* What hearth_embed gives for the prompt of a request to embed, n_embd floats, once loop_next said LOOP_DONE. Owned by the ticket. */
const float *loop_ticket_vector(const loop_ticket *t);

/* Seconds after which a refused request has a chance, at least 1. */
int loop_retry_s(loop *l);

/* ---- counts, for any thread ---- */

enum { LOOP_BUCKETS = 14 };
/* counts[i]: observations up to bounds[i] seconds (and above the bound before); the last one has no bound. */
typedef struct loop_histogram {
    uint64_t counts[LOOP_BUCKETS + 1];
    double sum;
} loop_histogram;
extern const double loop_bounds[LOOP_BUCKETS];

typedef struct loop_stats {
    uint64_t requests, refused, finished, failed, cancelled;
    uint64_t prompt_tokens, computed_tokens, completion_tokens; /* asked, computed of those, picked */
    uint64_t passes, pass_tokens, late, preemptions;
    int running, waiting;
    int chunk;            /* prompt tokens that are read at once beside running streams, as adapted */
    uint64_t kv_bytes, kv_budget; /* of what runs, what is shared counted once; all that may be in memory */
    uint64_t hits, misses;        /* requests that found a prefix, or none */
    uint64_t hot_tokens, warm_tokens;    /* found: in memory, on disk. Their sum is that of all cached_tokens */
    double hot_saved_s, warm_saved_s;    /* what computing them would have taken, at the mean speed of the prompts that were computed */
    loop_histogram first_token, between_tokens, pass, total;
} loop_stats;
loop_stats loop_count(loop *l);

#endif
