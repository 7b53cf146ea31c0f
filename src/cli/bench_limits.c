/* bench_limits.c: `hearth bench --limits`: what this machine can do at most with so many threads. A limit is the best of several
 * tries: whatever else runs on the machine can only make a try slower. Every try is checked to have done its work. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/pool.h"
#include "cli/bench.h"
#include "weights/weights.h"

enum { MOST_TRIES = 12, LEAST_TRIES = 3, TASKS_PER_THREAD = 4 };
static const double try_seconds = 0.005; /* short, so that some try is not disturbed */
static const double enough_seconds = 0.15; /* for all tries, where a try takes long */
/* Of memory that is read: at least, when the size of the cache is unknown, at most; and what one task reads. */
static const size_t read_least = (size_t)64 << 20, read_unknown = (size_t)256 << 20, read_most = (size_t)1 << 30, read_task = (size_t)256 << 10;
static const size_t huge_page = (size_t)2 << 20;

/* ---- reading ---- */

typedef struct read_job {
    kern_probe_read *read;
    const char *data;
    uint64_t proof[1024]; /* per thread; pools have at most 1024 */
} read_job;

static void read_one(void *context, int64_t i, int thread) {
    read_job *j = context;
    j->proof[thread] ^= j->read(j->data + (size_t)i * read_task, read_task);
}

/* Every 64-bit word holds a different number. */
static void fill_one(void *context, int64_t i, int thread) {
    (void)thread;
    uint64_t *words = (uint64_t *)((char *)context + (size_t)i * read_task);
    for (size_t k = 0; k < read_task / 8; k++) words[k] = ((uint64_t)i * (read_task / 8) + k) * 0x9E3779B97F4A7C15u;
}

static uint64_t expected_proof(size_t bytes) {
    uint64_t all = 0;
    for (uint64_t i = 0; i < bytes / 8; i++) all ^= i * 0x9E3779B97F4A7C15u;
    return all;
}

/* Bytes per second over the first bytes of data, read at least once per try. */
static bool read_speed(pool *p, const char *data, size_t bytes, double *speed, err *e) {
    read_job j = {.read = kern_probe_reader(), .data = data};
    uint64_t expected = expected_proof(bytes);
    double spent = 0;
    *speed = 0;
    for (int t = 0; t < LEAST_TRIES || (t < MOST_TRIES && spent < enough_seconds); t++) {
        memset(j.proof, 0, sizeof j.proof);
        int64_t passes = 0;
        uint64_t start = clock_ns();
        double seconds;
        do {
            pool_run(p, (int64_t)(bytes / read_task), read_one, &j);
            passes++;
            seconds = (double)(clock_ns() - start) * 1e-9;
        } while (seconds < try_seconds);
        uint64_t proof = 0;
        for (int i = 0; i < pool_threads(p); i++) proof ^= j.proof[i];
        if (proof != (passes % 2 ? expected : 0)) return err_set(e, HEARTH_IO, "memory did not hold what was written to it: this machine cannot be measured");
        *speed = fmax(*speed, (double)bytes * (double)passes / seconds);
        spent += seconds;
    }
    return true;
}

/* The third level of cache, which cores share; 0 when the system does not tell. (The C library's answer is of all such caches
 * of the machine on some CPUs.) */
static uint64_t shared_cache_bytes(void) {
    buf text = {0};
    unsigned long size = 0;
    char unit = 0;
    if (file_read("/sys/devices/system/cpu/cpu0/cache/index3/size", 64, &text, NULL) && sscanf(text.data, "%lu%c", &size, &unit) < 1) size = 0;
    buf_free(&text);
    return (uint64_t)size * (unit == 'K' ? 1024 : unit == 'M' ? 1 << 20 : 1);
}

/* Memory to read, with numbers in it. It is kept until the end: memory that is given back occupies the system a while later, in the middle of a run. */
static bool make_block(bench_limits *l, pool *p, err *e) {
    l->shared_bytes = shared_cache_bytes();
    size_t bytes = l->shared_bytes ? (size_t)l->shared_bytes * 16 : read_unknown;
    if (bytes < read_least) bytes = read_least;
    if (bytes > read_most) bytes = read_most;
    const uint64_t memory = spare_memory(); /* files that the system keeps count: of free memory there may be little, and a block that fits into the cache would tell nothing of memory */
    if (bytes > memory / 4) bytes = (size_t)(memory / 4);
    bytes -= bytes % huge_page;
    if (bytes < huge_page) return err_set(e, HEARTH_MEMORY, "too little free memory to measure how fast it is read");
    l->block = mem_alloc(bytes + huge_page, 1, e);
    if (!l->block) return false;
    l->data = l->block + (huge_page - (uintptr_t)l->block % huge_page);
    l->bytes = bytes;
    madvise(l->data, bytes, MADV_HUGEPAGE); /* only a wish */
    pool_run(p, (int64_t)(bytes / read_task), fill_one, l->data);
    return true;
}

static bool measure_reading(bench_limits *l, pool *p, err *e) {
    if (!l->block && !make_block(l, p, e)) return false;
    size_t inside = l->shared_bytes / 2 / read_task * read_task;
    return read_speed(p, l->data, l->bytes, &l->read, e) && (inside == 0 || inside >= l->bytes || read_speed(p, l->data, inside, &l->read_shared, e));
}

/* ---- multiplying ---- */

typedef struct multiply_job {
    const kern_probe *probe;
    int64_t rounds;
    double operations[1024], proof[1024];
} multiply_job;

static void multiply_one(void *context, int64_t i, int thread) {
    (void)i;
    multiply_job *j = context;
    double proof;
    j->operations[thread] += j->probe->multiply(j->rounds, &proof);
    j->proof[thread] += proof;
}

/* Rounds that take one thread about a task's time. */
static int64_t find_rounds(const kern_probe *p) {
    for (int64_t rounds = 256;; rounds *= 2) {
        double proof;
        uint64_t start = clock_ns();
        p->multiply(rounds, &proof);
        if ((double)(clock_ns() - start) * 1e-9 * TASKS_PER_THREAD >= try_seconds || rounds > (int64_t)1 << 40) return rounds;
    }
}

static bool multiply_speed(pool *p, const kern_probe *probe, double *speed, err *e) {
    int64_t rounds = find_rounds(probe), tasks = (int64_t)pool_threads(p) * TASKS_PER_THREAD;
    double spent = 0;
    *speed = 0;
    for (int t = 0; t < LEAST_TRIES || (t < MOST_TRIES && spent < enough_seconds); t++) {
        multiply_job j = {.probe = probe, .rounds = rounds};
        uint64_t start = clock_ns();
        pool_run(p, tasks, multiply_one, &j);
        double seconds = (double)(clock_ns() - start) * 1e-9, operations = 0, proof = 0;
        for (int i = 0; i < pool_threads(p); i++) operations += j.operations[i], proof += j.proof[i];
        if (proof != probe->expect * (double)rounds * (double)tasks)
            return err_set(e, HEARTH_UNSUPPORTED, "the probe of %s computed %g in place of %g: this machine cannot be measured", probe->name, proof,
                           probe->expect * (double)rounds * (double)tasks);
        *speed = fmax(*speed, operations / seconds);
        spent += seconds;
    }
    return true;
}

bool bench_limits_measure(bench_limits *l, const char *set, int threads, err *e) {
    /* A pool of its own: kernels may keep state in their threads that a probe would undo. */
    pool *p = pool_new(threads, e);
    if (!p) return false;
    *l = (bench_limits){.threads = pool_threads(p)};
    const kern_probe *probes[BENCH_UNITS];
    int n = kern_probes(set, probes, BENCH_UNITS);
    bench_status("measuring the machine: reading");
    bool ok = measure_reading(l, p, e);
    for (int i = 0; ok && i < n; i++) {
        bench_status("measuring the machine: %s", probes[i]->name);
        bench_unit *u = &l->units[l->n_units++];
        u->probe = probes[i];
        ok = multiply_speed(p, probes[i], &u->per_second, e);
    }
    bench_status(NULL);
    pool_free(p);
    return ok;
}

bool bench_limits_read_again(bench_limits *l, err *e) {
    pool *p = pool_new(l->threads, e);
    bool ok = p && measure_reading(l, p, e);
    pool_free(p);
    return ok;
}

void bench_limits_free(bench_limits *l) {
    mem_free(l->block);
    *l = (bench_limits){0};
}

const bench_unit *bench_limits_best(const bench_limits *l) {
    const bench_unit *best = NULL;
    for (int i = 0; i < l->n_units; i++)
        if (!best || l->units[i].per_second > best->per_second) best = &l->units[i];
    return best;
}
