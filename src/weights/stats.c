/* stats.c: counts for people. */
#include <stdio.h>

#include "quant/quant.h"
#include "weights/inner.h"

/* Mean cost of making: measured now, or when the packed file was written. */
static uint64_t mean_cost(const entry *e) {
    if (e->file_make_ns && (e->in_map || !e->makes)) return e->file_make_ns;
    return e->makes ? e->make_ns / e->makes : 0;
}

static uint64_t raw_bytes(const entry *e) {
    const kern_weight *m = &e->raw.mat;
    return quant_bytes(quant_find(m->type), (uint64_t)m->cols) * (uint64_t)m->rows;
}

/* One entry, counted up to the last roll. */
static weights_entry_stats entry_stats(const entry *e) {
    bool ready = e->product && cache_ready(e);
    weights_entry_stats s = {.name = e->name, .slice = e->slice, .layer = e->stage, .packed = ready,
                             .mapped = ready && e->in_map, .pinned = e->pins > 0, .bytes = ready ? e->bytes : raw_bytes(e), .requests = e->requests,
                             .misses = e->misses, .evictions = e->evictions, .makes = e->makes, .last_minute = ring_sum(&e->minute)};
    /* A request that is on its way is counted as one before it may be counted as a miss. */
    s.hits = s.requests > s.misses ? s.requests - s.misses : 0;
    s.make_seconds = (double)mean_cost(e) * 1e-9;
    s.saved_seconds = (double)s.hits * s.make_seconds;
    return s;
}

weights_stats weights_get_stats(weights *w) {
    pthread_mutex_lock(&w->lock);
    if (w->total) plan_roll(w);
    weights_stats s = {.packed_total = w->total, .memory = w->budget, .used = w->used, .memory_auto = w->budget_auto, .waits = w->waits,
                       .prefetches = w->prefetches, .preload_seconds = w->preload_seconds, .preloaded = w->preloaded, .lost = w->lost,
                       .mapped = w->pack.map.data && !w->pack_bad, .written = w->written,
                       .writing = w->persist_wanted || w->writing};
    for (int i = 0; i < w->n; i++) {
        const entry *e = &w->entries[i];
        weights_entry_stats one = entry_stats(e);
        *(one.packed ? &s.packed_bytes : &s.raw_bytes) += one.bytes;
        if (one.mapped) s.mapped_bytes += one.bytes;
        if (!e->product) continue;
        s.entries++;
        s.ready += one.packed;
        s.requests += one.requests;
        s.hits += one.hits;
        s.misses += one.misses;
        s.evictions += one.evictions;
        s.makes += one.makes;
        s.make_seconds += (double)e->make_ns * 1e-9;
        s.saved_seconds += one.saved_seconds;
    }
    s.hit_rate = s.requests ? (double)s.hits / (double)s.requests : 1;
    pthread_mutex_unlock(&w->lock);
    return s;
}

int weights_count(const weights *w) { return w->n; }

weights_entry_stats weights_entry_get(weights *w, int id) {
    pthread_mutex_lock(&w->lock);
    if (w->total) plan_roll(w);
    weights_entry_stats s = entry_stats(&w->entries[id]);
    pthread_mutex_unlock(&w->lock);
    return s;
}

int weights_hottest(weights *w, int *ids, int cap) {
    int n = 0;
    pthread_mutex_lock(&w->lock);
    if (w->total) plan_roll(w);
    for (int i = 0; i < w->n; i++) {
        uint32_t uses = ring_sum(&w->entries[i].minute);
        if (uses == 0) continue;
        int at = n < cap ? n++ : cap;
        for (; at > 0 && ring_sum(&w->entries[ids[at - 1]].minute) < uses; at--)
            if (at < cap) ids[at] = ids[at - 1];
        if (at < cap) ids[at] = i;
    }
    pthread_mutex_unlock(&w->lock);
    return n;
}

const char *weights_self_check(weights *w) {
    /* Written once, at the first request, before this can be asked about it. */
    pthread_mutex_lock(&w->lock);
    pthread_mutex_unlock(&w->lock);
    return w->self_check;
}

void weights_describe(weights *w, char *out, size_t cap) {
    pthread_mutex_lock(&w->lock);
    snprintf(out, cap, "%s", w->state);
    pthread_mutex_unlock(&w->lock);
}

void weights_settle(weights *w) {
    pthread_mutex_lock(&w->lock);
    while ((w->prefetcher_runs && (w->prefetch_busy || w->prefetch_from >= 0)) ||
           (w->keeper_runs && (w->keeper_busy || w->persist_wanted || w->records_wanted)))
        pthread_cond_wait(&w->made, &w->lock);
    pthread_mutex_unlock(&w->lock);
}
