/* A parallel loop starts in about a microsecond while the workers still spin from the last one, and in a futex
 * wake when they sleep. Spinning lasts some 50 microseconds, longer than the serial work between two loops of a forward
 * pass and short enough that an idle engine uses no CPU and a busy machine loses little. */
#include "base/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"

#define SPIN_ROUNDS 2000

/* The tasks that a thread has still to do: the first and the end, as two numbers of 32 bits. They lie together, so that what they read is read in one straight line; a thread
 * that has done its own takes from the far end of another's. */
typedef struct share {
    _Alignas(64) _Atomic uint64_t range;
    _Atomic(const char *) ahead; /* what it asks for while it waits, and how much of it */
    atomic_size_t ahead_bytes, ahead_apart;
} share;
#define MOST_TASKS (INT64_C(1) << 31) /* at once */

struct pool {
    int threads;
    pthread_t *workers;
    int started;
    struct pool_worker *args;

    pthread_mutex_t turn; /* one loop at a time */

    /* the loop being run */
    pool_range *task;
    void *context;
    uint64_t parts; /* a thread takes one of so many parts of what it has left; 0: a single task */
    int64_t first; /* task of the shares' number 0 */
    share *shares; /* of each thread */
    _Alignas(64) atomic_uint active; /* workers that have not finished this loop */
    atomic_bool caller_sleeps;       /* on active */
    _Alignas(64) atomic_uint round;  /* changes when a loop starts */
    atomic_int sleeping;             /* workers that sleep on round */
    atomic_bool stop;
};

typedef struct pool_worker {
    pool *owner;
    int index;
} pool_worker;

/* Sleeps while *word is value; returns early at times, as futexes do. */
static void sleep_while(atomic_uint *word, unsigned value) { syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0); }
static void wake_all(atomic_uint *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 0x7FFFFFFF, NULL, NULL, 0); }

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

int pool_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        int n = CPU_COUNT(&set);
        if (n > 0) return n;
    }
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

static uint64_t range_of(uint64_t first, uint64_t end) { return first << 32 | end; }
static uint64_t range_first(uint64_t range) { return range >> 32; }
static uint64_t range_left(uint64_t range) { return (range & UINT32_MAX) - range_first(range); }

/* The first tasks of the thread's own range; returns how many, 0 when there are none. */
static uint64_t take_own(share *s, uint64_t parts, uint64_t *first) {
    uint64_t range = atomic_load_explicit(&s->range, memory_order_relaxed);
    while (range_left(range) > 0) {
        const uint64_t n = parts && range_left(range) > parts ? range_left(range) / parts : 1;
        *first = range_first(range);
        if (atomic_compare_exchange_weak_explicit(&s->range, &range, range + range_of(n, 0), memory_order_relaxed, memory_order_relaxed)) return n;
    }
    return 0;
}

/* Makes half of what the thread that has most still has to do, its far end, the range of this one. */
static bool steal(pool *p, int thread) {
    for (;;) {
        share *from = NULL;
        uint64_t range = 0;
        for (int i = 0; i < p->threads; i++) {
            const uint64_t other = atomic_load_explicit(&p->shares[i].range, memory_order_relaxed);
            if (range_left(other) <= range_left(range)) continue;
            from = &p->shares[i];
            range = other;
        }
        if (!from) return false;
        const uint64_t end = range & UINT32_MAX, first = end - (range_left(range) + 1) / 2;
        if (!atomic_compare_exchange_weak_explicit(&from->range, &range, range_of(range_first(range), first), memory_order_relaxed, memory_order_relaxed)) continue;
        atomic_store_explicit(&p->shares[thread].range, range_of(first, end), memory_order_relaxed); /* it was empty, and others leave an empty one alone */
        return true;
    }
}

static void work(pool *p, int thread) {
    uint64_t first, n;
    do {
        while ((n = take_own(&p->shares[thread], p->parts, &first)) > 0) p->task(p->context, p->first + (int64_t)first, p->first + (int64_t)(first + n), thread);
    } while (steal(p, thread));
}

/* How far a thread has come with what it asks for. */
typedef struct asked {
    const char *from;
    size_t bytes;
} asked;

/* Asks for a few more lines of it, so that memory is not idle while one thread works alone. False when it has asked for all. */
static bool ask_ahead(const share *s, asked *a) {
    enum { LINE = 64, AT_ONCE = 4 };
    const char *from = atomic_load_explicit(&s->ahead, memory_order_relaxed);
    if (from != a->from) *a = (asked){.from = from};
    if (!from || a->bytes >= atomic_load_explicit(&s->ahead_bytes, memory_order_relaxed)) return false;
    const size_t apart = atomic_load_explicit(&s->ahead_apart, memory_order_relaxed);
    for (int i = 0; i < AT_ONCE; i += apart ? 2 : 1, a->bytes += LINE) { /* into the second cache */
        __builtin_prefetch(from + a->bytes, 0, 2);
        if (apart) __builtin_prefetch((const void *)((uintptr_t)from + apart + a->bytes), 0, 2);
    }
    return true;
}

/* Waits until the round differs from seen: spins, then sleeps. */
static unsigned wait_for_round(pool *p, unsigned seen, const share *own, asked *a) {
    for (int i = 0; i < SPIN_ROUNDS; i++) {
        unsigned now = atomic_load_explicit(&p->round, memory_order_acquire);
        if (now != seen) return now;
        if (!ask_ahead(own, a)) relax();
    }
    atomic_fetch_add(&p->sleeping, 1);
    unsigned now;
    while ((now = atomic_load(&p->round)) == seen) sleep_while(&p->round, seen);
    atomic_fetch_sub(&p->sleeping, 1);
    return now;
}

static void finish_round(pool *p) {
    if (atomic_fetch_sub(&p->active, 1) == 1 && atomic_load(&p->caller_sleeps)) wake_all(&p->active);
}

/* The tail is short, unless a worker lost its core. */
static void wait_for_workers(pool *p) {
    asked a = {0};
    for (int i = 0; i < SPIN_ROUNDS; i++) {
        if (atomic_load_explicit(&p->active, memory_order_acquire) == 0) return;
        if (!ask_ahead(&p->shares[0], &a)) relax();
    }
    atomic_store(&p->caller_sleeps, true);
    unsigned left;
    while ((left = atomic_load(&p->active)) > 0) sleep_while(&p->active, left);
    atomic_store(&p->caller_sleeps, false);
}

/* As Linux has it since 3.14; what C libraries call it differs. */
typedef struct turn_length {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} turn_length;

/* Of two that want a core the one with the shorter turns goes first, since 6.12; older ones do not look at it. */
void pool_give_way(void) {
    enum { LONG_NS = 20000000 };
    turn_length t = {.size = sizeof t};
    if (syscall(SYS_sched_getattr, 0, &t, sizeof t, 0) != 0 || t.policy != SCHED_OTHER) return;
    t.runtime = LONG_NS;
    syscall(SYS_sched_setattr, 0, &t, 0);
}

static void *worker_main(void *arg) {
    pool_give_way();
    pool_worker *w = arg;
    pool *p = w->owner;
    unsigned seen = 0;
    asked a = {0};
    for (;;) {
        seen = wait_for_round(p, seen, &p->shares[w->index], &a);
        if (atomic_load(&p->stop)) return NULL;
        work(p, w->index);
        finish_round(p);
    }
}

static void start_round(pool *p) {
    atomic_fetch_add(&p->round, 1);
    if (atomic_load(&p->sleeping) > 0) wake_all(&p->round);
}

pool *pool_new(int threads, err *e) {
    if (threads <= 0) threads = pool_cores();
    if (threads > 1024) {
        err_set(e, HEARTH_ARGUMENT, "%d threads are too many: use at most 1024", threads);
        return NULL;
    }
    pool *p = mem_aligned(1, sizeof *p, e);
    if (!p) return NULL;
    *p = (pool){.threads = threads};
    pthread_mutex_init(&p->turn, NULL);
    p->workers = mem_zalloc((size_t)threads, sizeof *p->workers, e);
    p->args = mem_zalloc((size_t)threads, sizeof *p->args, e);
    p->shares = mem_aligned((size_t)threads, sizeof *p->shares, e);
    bool ok = p->workers && p->args && p->shares;
    for (int i = 0; ok && i < threads; i++) p->shares[i] = (share){0};
    /* Signals are the business of the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 1; ok && i < threads; i++) {
        p->args[i] = (pool_worker){.owner = p, .index = i};
        if (pthread_create(&p->workers[i], NULL, worker_main, &p->args[i]) != 0)
            ok = err_set(e, HEARTH_MEMORY, "thread %d of %d could not be started: use fewer with --threads", i + 1, threads);
        else p->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!ok) {
        pool_free(p);
        return NULL;
    }
    return p;
}

void pool_free(pool *p) {
    if (!p) return;
    atomic_store(&p->stop, true);
    start_round(p);
    for (int i = 1; i <= p->started; i++) pthread_join(p->workers[i], NULL);
    pthread_mutex_destroy(&p->turn);
    mem_free(p->workers);
    mem_free(p->args);
    mem_free(p->shares);
    mem_free(p);
}

int pool_threads(const pool *p) { return p->threads; }

void pool_ahead(pool *p, int thread, const void *from, size_t apart, size_t bytes) {
    atomic_store_explicit(&p->shares[thread].ahead_apart, apart, memory_order_relaxed);
    atomic_store_explicit(&p->shares[thread].ahead_bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&p->shares[thread].ahead, from, memory_order_relaxed);
}

static void run_round(pool *p, int64_t n) {
    for (int i = 0; i < p->threads; i++)
        atomic_store_explicit(&p->shares[i].range, range_of((uint64_t)(n * i / p->threads), (uint64_t)(n * (i + 1) / p->threads)), memory_order_relaxed);
    atomic_store_explicit(&p->active, (unsigned)p->threads - 1, memory_order_relaxed);
    start_round(p);
    work(p, 0);
    wait_for_workers(p);
}

static void run(pool *p, int64_t n, pool_range *task, void *context, uint64_t parts) {
    if (n <= 0) return;
    pthread_mutex_lock(&p->turn);
    if (p->threads == 1 || n == 1) {
        task(context, 0, n, 0);
    } else {
        p->task = task;
        p->context = context;
        p->parts = parts;
        for (p->first = 0; p->first < n; p->first += MOST_TASKS) run_round(p, n - p->first < MOST_TASKS ? n - p->first : MOST_TASKS);
    }
    pthread_mutex_unlock(&p->turn);
}

void pool_run_ranges(pool *p, int64_t n, pool_range *range, void *context) { run(p, n, range, context, 8); }

typedef struct each {
    pool_task *task;
    void *context;
} each;

static void run_each(void *context, int64_t first, int64_t end, int thread) {
    const each *e = context;
    for (int64_t i = first; i < end; i++) e->task(e->context, i, thread);
}

void pool_run(pool *p, int64_t n, pool_task *task, void *context) { run(p, n, run_each, &(each){task, context}, 0); }
