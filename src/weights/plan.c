/* plan.c: who stays and what comes next. A pass asks for every layer in a circle, so the order of last use says nothing; how often a matrix was asked for
 * within a window of time does. Equal ones do not displace each other: a fixed part of the circle stays and is hit every time. */
#include <stdio.h>
#include <stdlib.h>

#include "weights/inner.h"

/* A miss has a price per byte and a price of its own: among equally used ones the small are worth slightly more per byte. */
#define MISS_BYTES 65536.0
/* What is to displace another must be worth this much more, so that chance does not move memory about. */
#define STAY 1.25

uint32_t ring_sum(const ring *r) {
    uint32_t sum = 0;
    for (int i = 0; i < RING; i++) sum += r->slots[i];
    return sum;
}

static void ring_add(ring *r, const ring_clock *c, uint32_t n) { r->slots[c->turn % RING] += n; }

static void ring_turn(ring *r, const ring_clock *c, uint64_t turn) {
    uint64_t steps = turn - c->turn;
    for (uint64_t i = 1; i <= steps && i <= RING; i++) r->slots[(c->turn + i) % RING] = 0;
}

/* Counts what was asked for since the last time, in the slots that were current then, and turns the rings to now. */
void plan_roll(weights *w) {
    uint64_t now = cache_now(w), minute = now / w->minute.slot_ns, window = now / w->window.slot_ns;
    for (int i = 0; i < w->n; i++) {
        entry *e = &w->entries[i];
        if (!e->product) continue;
        uint32_t uses = (uint32_t)(atomic_load_explicit(&e->state, memory_order_relaxed) >> 32), more = uses - e->uses_seen;
        e->uses_seen = uses;
        e->requests += more;
        ring_add(&e->minute, &w->minute, more);
        ring_add(&e->window, &w->window, more);
        ring_turn(&e->minute, &w->minute, minute);
        ring_turn(&e->window, &w->window, window);
    }
    w->minute.turn = minute;
    w->window.turn = window;
    uint64_t slot = w->window.slot_ns < w->minute.slot_ns ? w->window.slot_ns : w->minute.slot_ns;
    atomic_store(&w->next_roll, now + slot);
}

/* Most valuable first; equal ones in the order of use. */
static int by_value(const void *a, const void *b) {
    const rank *x = a, *y = b;
    if (x->value != y->value) return x->value > y->value ? -1 : 1;
    return x->id - y->id;
}

/* Marks what is worth most per byte until the room is full. */
static void choose(weights *w, int n, uint64_t room) {
    for (int i = 0; i < n; i++) {
        entry *e = &w->entries[w->ranks[i].id];
        e->keep = e->bytes <= room;
        if (e->keep) room -= e->bytes;
    }
}

/* Most requests of any matrix in a stage. */
static uint32_t stage_uses(const weights *w, const stage *s) {
    uint32_t most = 0;
    for (int i = 0; i < s->n; i++) {
        uint32_t n = ring_sum(&w->entries[s->ids[i]].window);
        if (n > most) most = n;
    }
    return most;
}

/* Made ahead is what at least every second pass through its stage asks for: experts that are rarely chosen are not. */
static bool worth_ahead(const weights *w, const entry *e, uint32_t stage_most) {
    uint32_t uses = ring_sum(&e->window);
    return e->bytes <= w->budget / 4 && uses * 2 >= stage_most && (uses > 0 || e->slice < 0);
}

/* Room that making ahead needs: what is not kept of ahead + 1 stages in a row, wherever they are; at most half. */
static uint64_t ahead_room(const weights *w) {
    uint64_t most = 0;
    for (int first = 0; first < w->n_stages; first++) {
        uint64_t sum = 0;
        for (int k = 0, s = first; k <= w->ahead; k++, s = w->stages[s].next) {
            const stage *at = &w->stages[s];
            uint32_t uses = stage_uses(w, at);
            for (int i = 0; i < at->n; i++) {
                const entry *e = &w->entries[at->ids[i]];
                if (!e->keep && worth_ahead(w, e, uses)) sum += e->bytes;
            }
        }
        if (sum > most) most = sum;
    }
    return most < w->budget / 2 ? most : w->budget / 2;
}

void plan_make(weights *w) {
    int n = 0;
    double all = 0;
    for (int i = 0; i < w->n; i++) {
        if (!w->entries[i].product) continue;
        w->ranks[n++] = (rank){.value = ring_sum(&w->entries[i].window), .id = i};
        all += w->ranks[n - 1].value;
    }
    bool first = w->used == 0 && all == 0;
    if (all == 0 && !first) return; /* nothing was asked for: nothing is known that was not */
    for (int i = 0; i < n; i++) {
        const entry *e = &w->entries[w->ranks[i].id];
        double per_byte = ((double)e->bytes + MISS_BYTES) / (double)e->bytes;
        w->ranks[i].value = (first ? 1 : w->ranks[i].value) * per_byte * (e->keep ? STAY : 1);
    }
    qsort(w->ranks, (size_t)n, sizeof *w->ranks, by_value);
    if (w->limited && w->ahead > 0) {
        /* What is kept needs no making ahead, and what is made ahead takes room from what is kept: twice is close enough. */
        for (int i = 0; i < n; i++) w->entries[w->ranks[i].id].keep = false;
        for (int round = 0; round < 2; round++) choose(w, n, w->budget - ahead_room(w));
    } else {
        choose(w, n, w->budget);
    }
    for (int i = 0; i < n; i++) {
        entry *e = &w->entries[w->ranks[i].id];
        if (e->keep || !cache_ready(e)) loose_unlink(w, e);
        else loose_link(w, e);
    }
}

/* ---- making ahead ---- */

static entry *next_to_make(weights *w, const stage *s, uint32_t uses) {
    for (int i = 0; i < s->n; i++) {
        entry *e = &w->entries[s->ids[i]];
        if (cache_ready(e) || e->making != MAKING_NOT || (w->limited && !e->keep && !worth_ahead(w, e, uses))) continue;
        if (!cache_admit(w, e, ADMIT_PREFETCH)) continue;
        return e;
    }
    return NULL;
}

/* Makes the stages after `from` ready. A newer place to start from ends it: p is NULL on the thread, which is told of new places. */
void prefetch_run(weights *w, int from, pool *p) {
    int s = from;
    pthread_mutex_lock(&w->lock);
    for (int k = 0; k < w->ahead; k++) {
        s = w->stages[s].next;
        uint32_t uses = stage_uses(w, &w->stages[s]);
        entry *e;
        while (!w->stop && (p || w->prefetch_from < 0) && (e = next_to_make(w, &w->stages[s], uses))) {
            e->making = p ? MAKING_FRONT : MAKING_BACK;
            w->prefetches++;
            pthread_mutex_unlock(&w->lock);
            make_entry(w, e, p);
            pthread_mutex_lock(&w->lock);
        }
    }
    pthread_mutex_unlock(&w->lock);
}

void *prefetch_main(void *arg) {
    weights *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        if (w->prefetch_from < 0) {
            w->prefetch_busy = false;
            pthread_cond_broadcast(&w->made);
            pthread_cond_wait(&w->work, &w->lock);
            continue;
        }
        int from = w->prefetch_from;
        w->prefetch_from = -1;
        w->prefetch_busy = true;
        pthread_mutex_unlock(&w->lock);
        prefetch_run(w, from, NULL);
        pthread_mutex_lock(&w->lock);
    }
    w->prefetch_busy = false;
    pthread_cond_broadcast(&w->made);
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- where a pass is ---- */

/* The first request: is all that was made ready at start still there? */
static void check_preloaded(weights *w) {
    int found = 0;
    const entry *one = NULL;
    for (int i = 0; i < w->n; i++) {
        const entry *e = &w->entries[i];
        if (!e->preloaded) continue;
        if (cache_ready(e)) found++;
        else if (!one) one = e;
    }
    w->lost = w->preloaded - found;
    if (!one) return;
    snprintf(w->self_check, sizeof w->self_check,
             "weight cache %d (%s kernels): of %d matrices made ready at start %d are left at the first request; %s is not one of them; "
             "%llu of %llu bytes are in use",
             w->serial, w->kern->name, w->preloaded, found, one->name, (unsigned long long)w->used, (unsigned long long)w->budget);
    cache_warn(w, "%s", w->self_check);
}

void weights_enter(weights *w, weights_walk *walk, int to) {
    int from = walk->place - 1;
    walk->place = to + 1;
    if (!w->total || to < 0 || to >= w->n_stages) return;
    bool first = !atomic_load_explicit(&w->first_seen, memory_order_relaxed) && !atomic_exchange(&w->first_seen, true);
    bool again = from >= 0 && to <= from; /* a pass has ended and the next begins */
    bool roll = (again || from < 0) && cache_now(w) >= atomic_load_explicit(&w->next_roll, memory_order_relaxed);
    if (!first && !roll && !again && atomic_load_explicit(&w->unready, memory_order_relaxed) == 0) return;
    pthread_mutex_lock(&w->lock);
    if (first) check_preloaded(w);
    if (roll) plan_roll(w);
    if (roll && w->limited && w->o.frequency) plan_make(w);
    if (again && w->folder && !w->persist_tried && !w->persist_wanted && !w->pack.map.data) {
        /* Without a preload it is now that everything has been made. */
        w->persist_wanted = true;
        pthread_cond_broadcast(&w->work);
    }
    if (from >= 0 && from < w->n_stages) w->stages[from].next = to;
    bool prefetch = w->ahead > 0 && atomic_load(&w->unready) > 0;
    if (prefetch && w->prefetcher_runs) {
        w->prefetch_from = to;
        w->prefetch_busy = true;
        pthread_cond_broadcast(&w->work);
    }
    pthread_mutex_unlock(&w->lock);
    if (prefetch && !w->prefetcher_runs) prefetch_run(w, to, w->pool);
}
