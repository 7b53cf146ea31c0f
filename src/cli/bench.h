/* bench.h: what the files of `hearth bench` share.
 *
 *   cmd_bench.c      options, the order of events
 *   bench_options.c  lists of sizes, and the cases that they make
 *   bench_limits.c   what the machine can do at most
 *   bench_work.c     what a case has to read and multiply at least
 *   bench_runs.c     the timed runs
 *   bench_child.c    runs another program and listens
 *   bench_peer.c     another program's figures, taken in turns with ours
 *   bench_start.c    time from exec to the first token
 *   bench_weights.c  the weight cache under budgets and patterns
 *   bench_memory.c   conversations that are remembered: cold, warm, hot; bench_memory_step.c what is started for it, bench_memory_report.c table, JSON, drawing
 *   bench_report.c   the table and the JSON; bench_plot.c the drawing */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include <jansson.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "kernels/probe.h"

enum { BENCH_VALUES = 16, BENCH_BATCH = 256, BENCH_CASES = 256, BENCH_SAMPLES = 100, BENCH_UNITS = 16, BENCH_ARGUMENTS = 200 };

/* The values of one option: "128,512". */
typedef struct bench_list {
    int items[BENCH_VALUES];
    int n;
} bench_list;
bool bench_list_parse(bench_list *l, const char *option, const char *text, int min, int max, err *e);

typedef struct bench_samples {
    double items[BENCH_SAMPLES];
    int n;
} bench_samples;
double bench_median(const bench_samples *s); /* NaN when empty */
double bench_spread(const bench_samples *s); /* (max - min) / median */

/* One line of the result: n_prompt tokens taken in, or n_gen tokens made one by one, after depth others, by batch sequences at once. One
 * of n_prompt and n_gen is 0. */
typedef struct bench_case {
    int n_prompt, n_gen, depth, batch;
    bench_samples ours, theirs;  /* tokens per second, of all sequences together */
    double bytes, operations;    /* least work of one run: read, multiplied */
    double limit;                /* tokens per second that the machine's limit allows; 0 when it is unknown */
    const char *limit_name;
} bench_case;

typedef struct bench_unit {
    const kern_probe *probe;
    double per_second;
} bench_unit;

typedef struct bench_limits {
    int threads;
    double read;         /* bytes per second from memory, all threads */
    double read_shared;  /* from the last cache they share; 0 when its size is unknown */
    uint64_t shared_bytes; /* that cache's size */
    bench_unit units[BENCH_UNITS];
    int n_units;
    char *block, *data;  /* what is read; data: from where its pages are huge */
    size_t bytes;
} bench_limits;
/* The units that a set of kernels may use (NULL: all). Takes about a second. threads 0: one per core. */
bool bench_limits_measure(bench_limits *l, const char *set, int threads, err *e);
/* Reading only, once more: memory that others use too is not equally fast from minute to minute. */
bool bench_limits_read_again(bench_limits *l, err *e);
void bench_limits_free(bench_limits *l);
/* The fastest unit. */
const bench_unit *bench_limits_best(const bench_limits *l);

typedef struct bench_start {
    bool done;
    bench_samples cold, warm; /* seconds */
    double resident;          /* largest part of the file that stayed in memory before a cold start, 0 to 1 */
} bench_start;

/* Products with matrices asked for in a pattern, under a budget. */
typedef struct bench_weights_trial {
    const char *pattern;
    double budget;          /* of what all packed weights take, 0 to 1 */
    uint64_t memory;        /* the same in bytes */
    double hit_rate, uses_per_second;
    uint64_t evictions;
} bench_weights_trial;

enum { BENCH_TRIALS = 20 };
typedef struct bench_weights {
    bool done;
    int entries;
    uint64_t packed_bytes;
    double cold_access, warm_access; /* mean seconds of asking for a matrix that has to be packed, and for one that is */
    bench_weights_trial trials[BENCH_TRIALS];
    int n_trials;
} bench_weights;

/* Agents with `context` tokens each that get a new turn, `batch` of them at once. Times are until every one of them has its first token. */
typedef struct bench_memory_case {
    int context, batch;
    bench_samples cold, hot, warm, dropped; /* seconds; warm: a fresh process, the page cache kept, and dropped */
    bench_samples alone, saving; /* seconds of prefill: without a store, and while saving */
    bench_samples stall;         /* seconds that computing waited for saving, of the same runs as saving */
    bench_samples durable;       /* seconds from the last token of the prefill until all is on disk */
    bench_samples turn_durable;  /* the same of a turn */
    double resident;             /* largest part of the files that stayed in memory when dropped, 0 to 1 */
    uint64_t disk_bytes;         /* of an agent */
} bench_memory_case;

enum { BENCH_MEMORY_CASES = 32 };
typedef struct bench_memory {
    bool asked;
    const char *step, *store_dir; /* step: what a process that was started for this has to do */
    int turn;                     /* new tokens */
    float factor;                 /* warm must be faster than cold by this; 0: no matter */
    bench_list contexts, batches;
    bench_memory_case cases[BENCH_MEMORY_CASES];
    int n_cases;
} bench_memory;

typedef struct bench {
    /* asked for */
    int argc;
    char **argv;
    const char *model;
    bench_list prompts, gens, depths, batches;
    int repetitions, warmup;
    hearth_engine_options engine_options;
    const char *peer, *plot, *report;
    bool json, only_limits, start_too, weights_too;
    /* found */
    hearth_engine *engine;
    hearth_model_info info;
    bench_limits limits;       /* what reading reached: with cases the median of reads */
    bench_samples reads, reads_shared; /* bytes per second, taken beside every repetition */
    bench_start start;
    bench_weights weights;
    bench_memory memory;
    bench_case cases[BENCH_CASES];
    int n_cases;
    err peer_error; /* why the peer's figures are missing */
} bench;

bool bench_make_cases(bench *b, err *e);
/* Fills in bytes, operations and limit of a case. */
void bench_work(const bench *b, bench_case *c);
bool bench_run_all(bench *b, err *e);
/* What is going on, on stderr when it is a terminal; NULL wipes it. */
void bench_status(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Another program's run. Zero-initialised is empty. */
typedef struct bench_child {
    void (*hear)(const char *line); /* gets the last line on its stderr whenever there is one; may be NULL, set before it runs */
    buf out;            /* all that it printed */
    char complaint[256];/* the last line on its stderr */
    int status;         /* of exit, or 128 + the signal */
    double first_byte;  /* seconds until it printed something; NaN when it did not */
} bench_child;
/* False only when the program could not be started or heard; a status other than 0 is the caller's to judge. */
bool bench_child_run(const char *const *argv, bench_child *c, err *e);
void bench_child_free(bench_child *c);

/* One repetition of every case from first to last (same depth) by the peer. */
bool bench_peer_run(const bench *b, bench_case *first, const bench_case *last, err *e);

bool bench_weights_measure(bench *b, err *e);

bool bench_memory_measure(bench *b, err *e);
/* What is started: prints one JSON object. */
bool bench_memory_step(const bench *b, err *e);
void bench_memory_table(const bench *b);
json_t *bench_memory_json(const bench *b);
bool bench_memory_plot(const bench *b, const char *path, err *e);
/* False with a sentence when warm is not faster than cold by the factor asked for. */
bool bench_memory_validate(const bench *b, err *e);

/* Starts hearth again and again. The model must not be open here: mapped pages cannot be dropped. */
bool bench_start_measure(bench *b, err *e);
/* Takes a file out of the page cache; *resident becomes the part that stayed when that is more than it was. */
bool bench_drop_file(const char *path, double *resident, err *e);
/* Tokens by chance, always the same ones for a seed. */
void bench_random_tokens(int32_t *out, size_t n, uint64_t seed, int n_vocab);
/* What is started: opens the model, computes one token, prints the most likely next. */
bool bench_first_token(const bench *b, err *e);

void bench_report_table(const bench *b);
/* Freed with free. */
char *bench_report_json(const bench *b, err *e);
json_t *bench_samples_json(const bench_samples *s);
bool bench_plot(const bench *b, const char *path, err *e);
/* Parts of drawings. */
bool bench_svg_text(buf *out, int x, int y, const char *style, const char *s, err *e);
bool bench_svg_write(const bench *b, const char *path, const buf *body, int width, int height, err *e);

#endif
