/* loop_inner.h: what loop.c, passes.c, admit.c and ticket.c share. */
#ifndef ENGINE_LOOP_INNER_H
#define ENGINE_LOOP_INNER_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/loop.h"
#include "engine/recall.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/stop.h"
#include "engine/trace.h"

/* What was made and not read yet of an answer. */
typedef struct outbox {
    buf text;
    int32_t *tokens;
    float *logprobs;
    hearth_logprob *top;
    size_t n, cap;
} outbox;

/* One answer: a sequence that waits, runs or is done. All but the box belongs to the loop's thread once submitted. */
typedef struct choice {
    loop_ticket *ticket;
    int index;
    uint64_t order;
    bool started;      /* ran before: it waits because it was preempted, or mended */
    int mended;        /* how often something of it was found to be damaged on disk */
    token_list tokens; /* the prompt, then what was picked */
    kv_seq kv;
    bool long_context;
    bool decoding;     /* a token was picked, and kv lacks only the last one */
    bool reading;      /* a part of its prompt is in the pass apart that is under way */
    loop_finish closing; /* why the answer has ended, when only the last token is to be computed still; else LOOP_RUNNING */
    buf told;          /* all text given out, where it is kept */
    bool end_told;
    hearth_sampler *sampler;
    stop_filter filter;
    int picked;
    bool in_thought;
    int forced;        /* tokens at the end of thoughts.close that are still to be put in */
    uint64_t last_ns;  /* when the last token was picked */
    int32_t pick;      /* of this pass */
    err pick_error;
    const float *logits;
    /* under the ticket's lock */
    outbox box;
    loop_finish finish;
    bool finish_told;
} choice;

struct loop_ticket {
    pthread_mutex_t lock;
    pthread_cond_t news;
    int refs;           /* the owner's and the loop's */
    bool cancelled;
    bool failed;
    err error;
    int open;           /* answers that are not done */
    loop_usage usage;
    int next;           /* the choice to look at first, so that none starves */
    outbox taken;       /* the piece that was given out last */
    loop_token *taken_tokens;
    size_t cap_taken;
    /* fixed */
    loop *loop;
    uint64_t arrival, deadline, owner;
    char *tenant;       /* or NULL */
    loop_ended *ended;
    void *ended_user;
    size_t loaded;      /* tokens read from disk when it came */
    int priority, max_tokens, n_logprobs;
    bool ignore_end, show_special;
    int32_t shown[LOOP_SHOWN];
    int n_shown;
    loop_thoughts thoughts;
    size_t n_prompt;
    float *hidden;      /* to embed: states of one pass */
    float *vector;      /* to embed: the result; else NULL */
    int n;
    choice choices[];
};

enum { MOST_RUNNING = 256 };

/* A pass: its parts and whose they are, and who wants logits. */
typedef struct loop_pass {
    model_part parts[MOST_RUNNING];
    choice *of[MOST_RUNNING], *pickers[MOST_RUNNING], *closers[MOST_RUNNING];
    int n, n_pickers, n_closers, n_tokens;
    int n_out;      /* parts behind these that it went on without ... */
    uint64_t would; /* ... with which it would have taken so long */
    bool under_way; /* begun, and resting now */
    int steps, layer_steps; /* computed of it; of a layer */
    uint64_t ns;    /* that took */
    /* What each step of a layer will take, by that of the layer before, for so many tokens; what the first of a pass takes, and has usually taken of what others do: its keys and values come to new
     * memory. */
    uint64_t step_ns[MODEL_LAYER_STEPS], first_ns;
    int step_tokens;
    double first_part;
    int waits;      /* turns that it has let go by */
} loop_pass;

typedef struct histogram {
    _Atomic uint64_t counts[LOOP_BUCKETS + 1], sum_ns;
} histogram;

struct loop {
    hearth_engine *engine;
    loop_options o;
    pthread_t thread;
    bool has_thread;
    /* under lock */
    pthread_mutex_t lock;
    pthread_cond_t wake, idle;
    bool draining, ending, ended;
    choice **inbox;     /* submitted, not seen by the thread yet */
    size_t n_inbox, cap_inbox;
    int n_waiting;      /* in the inbox and in the thread's queue */
    int n_live;         /* not done */
    double service_s;   /* how long an answer takes, lately */
    uint64_t order;
    /* the thread's */
    scheduler sched;
    model_run run, apart_run;
    loop_pass together, apart;
    uint64_t told_ns;   /* when streams got their last tokens */
    bool was_late;      /* the last pass with streams and prompts came late, and went on without the prompts */
    double last_step;   /* the part of such a pass that its last step takes, which makes logits */
    int again;          /* times that the pass of prompts that is computed was begun before */
    float *logits;
    choice **waiting, **running;
    size_t n_queue, cap_waiting;
    int n_running;
    /* counts */
    _Atomic uint64_t requests, refused, finished, failed, cancelled, prompt_tokens, computed_tokens, completion_tokens, passes, pass_tokens,
        late, preemptions, kv_bytes, hits, misses, hot_tokens, warm_tokens;
    _Atomic int running_now, chunk_now;
    histogram first_token, between_tokens, pass, total;
};

/* admit.c, called by the thread. */
bool admit_arrivals(loop *l);      /* waits until there is work; false when the loop ends */
void admit_drop_ended(loop *l);    /* whose owner left, whose sibling failed, whose time is over */
void admit_start(loop *l);         /* starts who may start */
bool admit_could_start(loop *l);   /* whether somebody has come who might be started now */
void admit_keep_budget(loop *l);   /* sends back who does not fit */
bool admit_preempt(loop *l);       /* sends the youngest back */
bool admit_mend(loop *l);          /* sends those back of which something turned out to be damaged on disk; false: there are none */
void admit_unqueue(loop *l, size_t i);
uint64_t admit_running_bytes(const loop *l);
bool admit_wants_long(const loop *l, size_t n_tokens);

/* passes.c, called by the thread. */
void passes_together(loop *l);     /* the next token of every running stream, and what is read of prompts together with them */
void passes_apart(loop *l);        /* what is read of prompts apart from them, as much as there is time for */
void passes_give_up(loop *l);      /* what was computed of a pass apart is forgotten */

/* loop.c */
void loop_finish_answer(loop *l, choice *c, loop_finish why);
void loop_fail(loop *l, choice *c, const err *e);
void loop_remove_running(loop *l, choice *c);
void loop_leave(loop *l, choice *c); /* the sequence is done, well or not */

/* ticket.c, called by the thread. */
/* Tells who wants to know how the first answer ended. */
void ticket_tell_end(choice *c, bool finished);
void ticket_unref(loop_ticket *t);
/* Tells the owner of a token and its text. */
bool ticket_token(choice *c, int32_t token, bool told, const char *text, size_t len, err *e);
/* The answer is complete; the last one completes the ticket. */
void ticket_finish(choice *c, loop_finish finish, const char *text, size_t len, uint64_t now);
void ticket_fail(loop_ticket *t, const err *e);
bool ticket_is_over(loop_ticket *t); /* cancelled or failed */

void histogram_add(histogram *h, uint64_t ns);
uint64_t loop_now(const loop *l);

#endif
