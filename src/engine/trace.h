/* trace.h: a record of what the scheduler was told and what it decided, and its repetition. The scheduler is pure: told the same, it decides the same. So a trace shows
 * what a server did, and a changed scheduler can be run on what happened to an unchanged one.
 *
 * One line for each event, numbers only; S is a sequence by its number of arrival, times are in nanoseconds:
 *
 *   hearth-trace 2 PASS_TOKENS STEPS MAX_STALL
 *   arrive S TIME TOKENS PRIORITY OWNER   a request (one line for each answer)
 *   start S TIME TOKENS KNOWN [S ...]     goes from the queue to those that run; KNOWN of its TOKENS need not be computed. Then those that wait but must not start yet
 *   pass TIME DURATION [S SHARE ...]      computed: how many tokens of whom; without what it waited for the disk. DURATION 0: it failed or was given up for others that came, and nothing was computed
 *   late TIME DURATION WOULD [S SHARE ...] the same, but it came late and went on without the prompts, of which nothing was computed. With them it WOULD have taken so long
 *   apart S SHARE [S SHARE ...]           a pass of prompts is begun that is computed in pieces: how many tokens of whom
 *   piece TIME DURATION LEFT REST         some steps of it were computed, and LEFT remain: 0, it is done. DURATION 0: it failed, and is given up. REST: how long it might take at most after the
 *                                         streams' last tokens, 0 without streams. It is given up, too, when one of its sequences goes back or ends
 *   again S                               all of it is to be computed once more
 *   back S                                from those that run to the queue
 *   end S                                 from those that run, or from the queue */
#ifndef ENGINE_TRACE_H
#define ENGINE_TRACE_H

#include "base/mem.h"
#include "engine/scheduler.h"

typedef struct trace trace;
/* The file is complete when the trace is closed. */
trace *trace_open(const char *path, err *e);
/* Accepts NULL. False when something could not be written, of now or of before. */
bool trace_close(trace *t, err *e);

/* All accept NULL, and are called by one thread at a time. */
void trace_begin(trace *t, int pass_tokens, int steps, uint64_t max_stall_ns);
void trace_arrive(trace *t, uint64_t order, uint64_t time, size_t tokens, int priority, uint64_t owner);
void trace_start(trace *t, uint64_t order, uint64_t time, size_t tokens, size_t known, const uint64_t *held, size_t n_held);
void trace_pass(trace *t, uint64_t time, uint64_t duration, const uint64_t *orders, const int *shares, int n);
void trace_late(trace *t, uint64_t time, uint64_t duration, uint64_t would, const uint64_t *orders, const int *shares, int n);
void trace_apart(trace *t, const uint64_t *orders, const int *shares, int n);
void trace_piece(trace *t, uint64_t time, uint64_t duration, int left, uint64_t rest);
typedef enum trace_change { TRACE_AGAIN, TRACE_BACK, TRACE_END } trace_change;
void trace_changed(trace *t, trace_change what, uint64_t order);

/* What a repetition found. */
typedef struct trace_report {
    uint64_t requests, starts, passes, tokens; /* repeated */
    uint64_t differ;                           /* decisions that came out otherwise */
    uint64_t first_line;                       /* of those: where the first one stands */
    double seconds;                            /* from the first event to the last */
} trace_report;
/* Decides again what was decided. False with e set when the text is no sound trace. */
bool trace_replay(const char *text, size_t len, trace_report *out, err *e);

#endif
