/* move.c: from the mapped file to huge pages. A mapping makes the first token quick, but on most systems it lies in pages of 4 KiB, through which a core reads a tenth to a third slower
 * than through huge ones. So where everything fits and memory is to spare, the keeper copies those matrices that lie in small ones, one by one, to the place that packing would have used, while requests go on with the
 * mapping; the file stays for those that are made again. It takes its time: it copies a little and rests as long, so that requests keep most of the memory's speed and never wait long for a core. */
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#include "base/clock.h"
#include "weights/inner.h"

/* Whether the system gives huge pages to those who ask. */
static bool huge_pages(void) {
    buf b = {0};
    bool has = file_read("/sys/kernel/mm/transparent_hugepage/enabled", 4096, &b, NULL) && b.data && !strstr(b.data, "[never]");
    buf_free(&b);
    return has;
}

/* What the kernel tells of a process's pages, as Linux has it since 6.7; headers may be older. */
typedef struct page_scan {
    uint64_t size, flags, start, end, stopped, runs, n_runs, most, inverted, wanted, any, told;
} page_scan;
typedef struct page_run {
    uint64_t start, end, kinds;
} page_run;
#define PAGES_SCAN _IOWR('f', 16, page_scan)
enum { PAGES_HUGE = 1 << 6 };

/* How many bytes of it lie in huge pages already. A kernel that cannot tell has none in files, or hardly ever. */
static uint64_t huge_bytes(int pagemap, const void *data, size_t bytes) {
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    page_run runs[64];
    page_scan s = {.size = sizeof s, .start = (uintptr_t)data / page * page, .end = ((uintptr_t)data + bytes + page - 1) / page * page, .runs = (uintptr_t)runs,
                   .n_runs = sizeof runs / sizeof *runs, .wanted = PAGES_HUGE, .told = PAGES_HUGE};
    uint64_t huge = 0;
    while (s.start < s.end) {
        const int n = ioctl(pagemap, PAGES_SCAN, &s);
        if (n < 0 || s.stopped <= s.start) return 0;
        for (int i = 0; i < n; i++) huge += runs[i].end - runs[i].start;
        s.start = s.stopped;
    }
    return huge < bytes ? huge : bytes;
}

/* Whether another system gives this one its memory. What lies in a huge page here may lie in small ones there: pages of a file that came from the disk often do, and are read a tenth slower; those that a process asks for hardly
 * ever. Nothing tells which. */
static bool in_guest(void) {
#if defined(__x86_64__) || defined(__i386__)
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && c >> 31;
#else
    return false;
#endif
}

/* Exchanges the form unless somebody holds it. It is taken away and put back under the lock: a request that comes in between waits for the lock and finds it ready. */
static bool exchange(weights *w, entry *e) {
    uint_fast64_t s = atomic_load(&e->state);
    do {
        if (!(s & STATE_READY) || (s & STATE_REFS)) return false;
    } while (!atomic_compare_exchange_weak_explicit(&e->state, &s, s & ~STATE_READY, memory_order_acq_rel, memory_order_relaxed));
    const void *mapped = e->packed.mat.packed;
    e->packed.mat.packed = (char *)w->arena + e->offset;
    e->in_map = false;
    atomic_fetch_or_explicit(&e->state, STATE_READY, memory_order_release);
    file_map_drop(mapped, e->exact);
    return true;
}

static void rest(uint64_t ns) { nanosleep(&(struct timespec){.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)}, NULL); }

/* Nothing of it is read any more where it was copied to. */
static void give_up(weights *w, entry *e) {
    pthread_mutex_lock(&w->lock);
    if (e->in_map && e->making == MAKING_NOT) mem_reserve_drop(w->arena, e->offset, e->bytes);
    pthread_mutex_unlock(&w->lock);
}

static bool is_stopped(weights *w) {
    pthread_mutex_lock(&w->lock);
    const bool stop = w->stop || w->pack_bad || w->persist_wanted;
    pthread_mutex_unlock(&w->lock);
    return stop;
}

enum { PIECE = 1 << 20 };

/* false when the cache is about to close. */
static bool move_entry(weights *w, entry *e, const void *mapped) {
    for (size_t at = 0; at < e->exact; at += PIECE) {
        if (is_stopped(w)) {
            give_up(w, e);
            return false;
        }
        const uint64_t start = clock_ns();
        memcpy((char *)w->arena + e->offset + at, (const char *)mapped + at, e->exact - at < PIECE ? e->exact - at : PIECE);
        rest(clock_ns() - start);
    }
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&w->lock);
        bool done = e->packed.mat.packed != mapped || exchange(w, e), stop = w->stop;
        pthread_mutex_unlock(&w->lock);
        if (done || stop) return !stop;
        rest(200000); /* a pass uses it just now */
    }
    give_up(w, e); /* somebody has pinned it */
    return true;
}

/* Where the matrix lies in the mapping, if it does and may be moved; else NULL. */
static const void *in_mapping(weights *w, const entry *e) {
    pthread_mutex_lock(&w->lock);
    const bool may = e->product && e->making == MAKING_NOT && cache_ready(e) && e->in_map && e->pins == 0;
    const void *mapped = may ? e->packed.mat.packed : NULL;
    pthread_mutex_unlock(&w->lock);
    return mapped;
}

/* How often requests have used any of them. */
static uint64_t uses(entry *const *list, int n) {
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) sum += atomic_load(&list[i]->state) / STATE_USE;
    return sum;
}

/* Waits for a second in which no request uses any of them, unless none has since the last time. false when the cache is about to close. */
static bool wait_until_idle(weights *w, entry *const *list, int n, uint64_t *seen) {
    enum { ROUNDS = 100, ROUND_NS = 10000000 };
    for (int quiet = ROUNDS; quiet < ROUNDS || uses(list, n) != *seen; quiet++) {
        const uint64_t now = uses(list, n);
        if (now != *seen) quiet = 0;
        *seen = now;
        rest(ROUND_NS);
        if (is_stopped(w)) return false;
    }
    return true;
}

/* Where little is to be gained, requests are not disturbed for it. */
static void move_listed(weights *w, entry *const *list, int n, bool patient) {
    uint64_t seen = UINT64_MAX;
    for (int i = 0; i < n && !is_stopped(w); i++) {
        if (patient && !wait_until_idle(w, list, n, &seen)) return;
        const void *mapped = in_mapping(w, list[i]);
        if (mapped && !move_entry(w, list[i], mapped)) return;
    }
}

void move_to_memory(weights *w) {
    if (w->limited || !w->o.move || !huge_pages() || spare_memory() < w->total) return;
    entry **list = mem_alloc((size_t)w->n, sizeof *list, NULL);
    const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    const bool guest = in_guest() && spare_memory() / 2 >= w->total; /* less is to be gained, and what is mapped can be taken back when others need memory */
    uint64_t small = 0;
    int n = 0;
    for (int i = 0; list && i < w->n && !is_stopped(w); i++) {
        entry *e = &w->entries[i];
        const void *mapped = in_mapping(w, e);
        if (!mapped) continue;
        file_map_touch(mapped, e->exact); /* only what is in the page table shows how it lies */
        const uint64_t huge = huge_bytes(pagemap, mapped, e->exact);
        small += e->exact - huge;
        if (guest || huge < e->exact / 4 * 3) list[n++] = e;
    }
    if (pagemap >= 0) close(pagemap);
    if (list) move_listed(w, list, n, small < w->total / 2);
    mem_free(list);
}
