/* move.c: from the mapped file to huge pages. A mapping makes the first token quick, but on most systems it lies in pages of 4 KiB, through which a core reads a tenth to a third slower
 * than through huge ones. So where that is so, everything fits and memory is to spare, the keeper copies matrix by matrix to the place that packing would have used, while requests go on with the
 * mapping; the file stays for those that are made again. It takes its time: as long as it copied it rests, so that requests keep most of the memory's speed. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "weights/inner.h"

/* Whether the system gives huge pages to those who ask. */
static bool huge_pages(void) {
    buf b = {0};
    bool has = file_read("/sys/kernel/mm/transparent_hugepage/enabled", 4096, &b, NULL) && b.data && !strstr(b.data, "[never]");
    buf_free(&b);
    return has;
}

/* Whether most of the mapped file lies in huge pages already. */
static bool mapped_huge(const weights *w) {
    buf b = {0};
    bool here = false, huge = false;
    char *save = NULL;
    file_read("/proc/self/smaps", 64u << 20, &b, NULL);
    for (char *line = b.data ? strtok_r(b.data, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
        unsigned long from, to, kib;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) here = (uintptr_t)w->pack.map.data >= from && (uintptr_t)w->pack.map.data < to;
        else if (here && sscanf(line, "FilePmdMapped: %lu", &kib) == 1) huge = kib * 1024 > w->total / 2;
    }
    buf_free(&b);
    return huge;
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

/* false when the cache is about to close. */
static bool move_entry(weights *w, entry *e, const void *mapped) {
    uint64_t start = clock_ns();
    memcpy((char *)w->arena + e->offset, mapped, e->exact);
    rest(clock_ns() - start);
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

void move_to_memory(weights *w) {
    if (w->limited || !w->o.move || !huge_pages() || spare_memory() < w->total || mapped_huge(w)) return;
    for (int i = 0; i < w->n; i++) {
        entry *e = &w->entries[i];
        pthread_mutex_lock(&w->lock);
        const void *mapped = e->packed.mat.packed;
        bool stop = w->stop || w->pack_bad, todo = e->product && e->making == MAKING_NOT && cache_ready(e) && e->in_map && e->pins == 0;
        pthread_mutex_unlock(&w->lock);
        if (stop || (todo && !move_entry(w, e, mapped))) return;
    }
}
