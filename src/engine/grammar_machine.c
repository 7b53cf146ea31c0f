#include "engine/grammar_machine.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_SEEN = 8192, /* places that one step may pass */
    SEEN_SLOTS = 4 * MAX_SEEN,
};

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u;
    return x ^ (x >> 32);
}

bool grammar_machine_make(grammar_machine *m, const grammar_net *net, err *e) {
    *m = (grammar_machine){.net = net, .max_effort = 1 << 24, .max_bytes = SIZE_MAX};
    m->seen = mem_alloc(SEEN_SLOTS, sizeof *m->seen, e);
    m->seen_when = mem_zalloc(SEEN_SLOTS, sizeof *m->seen_when, e);
    m->todo = mem_alloc(MAX_SEEN, sizeof *m->todo, e);
    m->found = mem_alloc(2 * MAX_SEEN, sizeof *m->found, e); /* a place may be kept and end its fragment */
    m->frame_slots = (grammar_slots){mem_zalloc(64, sizeof(uint32_t), e), 64};
    m->config_slots = (grammar_slots){mem_zalloc(64, sizeof(uint32_t), e), 64};
    bool ok = m->seen && m->seen_when && m->todo && m->found && m->frame_slots.slots && m->config_slots.slots;
    while (ok && m->n_frames < FRAME_FIRST) {
        ok = grammar_grow(&m->frames, &m->cap_frames, m->n_frames, sizeof *m->frames, e);
        if (ok) m->frames[m->n_frames++] = (grammar_frame){0};
    }
    if (!ok) grammar_machine_free(m);
    return ok;
}

void grammar_machine_free(grammar_machine *m) {
    mem_free(m->seen);
    mem_free(m->seen_when);
    mem_free(m->todo);
    mem_free(m->found);
    mem_free(m->frame_slots.slots);
    mem_free(m->config_slots.slots);
    mem_free(m->frames);
    mem_free(m->configs);
    mem_free(m->config_flags);
    mem_free(m->items);
    mem_free(m->steps);
    *m = (grammar_machine){0};
}

size_t grammar_machine_bytes(const grammar_machine *m) {
    return m->n_frames * sizeof *m->frames + m->n_configs * (sizeof *m->configs + 1 + m->net->n_classes * sizeof *m->steps) +
           m->n_items * sizeof *m->items + (m->frame_slots.cap + m->config_slots.cap) * sizeof(uint32_t);
}

static bool check_limits(const grammar_machine *m, err *e) {
    if (m->effort > m->max_effort || grammar_machine_bytes(m) > m->max_bytes)
        return err_set(
            e, HEARTH_LIMIT,
            "the grammar is too ambiguous: the text can be read in too many ways here; let its alternatives differ in how they begin");
    return true;
}

/* ---- frames ---- */

static uint64_t frame_hash(grammar_frame f) { return mix(((uint64_t)f.node << 32 | f.parent) ^ mix(f.count + 1)); }

static void frame_put(grammar_machine *m, uint32_t frame) {
    size_t at = frame_hash(m->frames[frame]) & (m->frame_slots.cap - 1);
    while (m->frame_slots.slots[at]) at = (at + 1) & (m->frame_slots.cap - 1);
    m->frame_slots.slots[at] = frame + 1;
}

/* Twice as many slots, empty; the caller fills them. */
static bool slots_grow(grammar_slots *s, err *e) {
    uint32_t *slots = mem_zalloc(2 * s->cap, sizeof *slots, e);
    if (!slots) return false;
    mem_free(s->slots);
    *s = (grammar_slots){slots, 2 * s->cap};
    return true;
}

uint32_t grammar_machine_frame(grammar_machine *m, grammar_frame f, err *e) {
    grammar_slots *s = &m->frame_slots;
    for (size_t at = frame_hash(f) & (s->cap - 1); s->slots[at]; at = (at + 1) & (s->cap - 1)) {
        const grammar_frame *g = &m->frames[s->slots[at] - 1];
        if (g->node == f.node && g->count == f.count && g->parent == f.parent) return s->slots[at] - 1;
    }
    if (m->n_frames >= INT32_MAX) return err_set(e, HEARTH_LIMIT, "the text nests too deep for its grammar"), UINT32_MAX;
    if (!grammar_grow(&m->frames, &m->cap_frames, m->n_frames, sizeof f, e)) return UINT32_MAX;
    if (2 * m->n_frames >= s->cap) {
        if (!slots_grow(s, e)) return UINT32_MAX;
        for (uint32_t i = FRAME_FIRST; i < m->n_frames; i++) frame_put(m, i);
    }
    m->frames[m->n_frames] = f;
    frame_put(m, (uint32_t)m->n_frames);
    return (uint32_t)m->n_frames++;
}

/* ---- configs ---- */

static uint64_t items_hash(const uint64_t *items, size_t n) {
    uint64_t h = n;
    for (size_t i = 0; i < n; i++) h = mix(h * 31 + items[i]);
    return h;
}

static void config_put(grammar_machine *m, uint32_t config) {
    const grammar_config *c = &m->configs[config];
    size_t at = items_hash(m->items + c->first, c->n) & (m->config_slots.cap - 1);
    while (m->config_slots.slots[at]) at = (at + 1) & (m->config_slots.cap - 1);
    m->config_slots.slots[at] = config + 1;
}

static int by_number(const void *a, const void *b) {
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

static void sort_items(uint64_t *items, size_t n) {
    if (n > 32) {
        qsort(items, n, sizeof *items, by_number);
        return;
    }
    for (size_t i = 1; i < n; i++) {
        uint64_t x = items[i];
        size_t k = i;
        for (; k > 0 && items[k - 1] > x; k--) items[k] = items[k - 1];
        items[k] = x;
    }
}

/* Room for one more config of n items. */
static bool config_room(grammar_machine *m, size_t n, err *e) {
    const size_t classes = m->net->n_classes;
    if (m->n_configs >= INT32_MAX - 1) return err_set(e, HEARTH_LIMIT, "the grammar has too many states");
    while (m->cap_items < m->n_items + n)
        if (!grammar_grow(&m->items, &m->cap_items, m->cap_items, sizeof *m->items, e)) return false;
    while (m->cap_steps < (m->n_configs + 1) * classes)
        if (!grammar_grow(&m->steps, &m->cap_steps, m->cap_steps, sizeof *m->steps, e)) return false;
    if (!grammar_grow(&m->configs, &m->cap_configs, m->n_configs, sizeof *m->configs, e)) return false;
    if (!grammar_grow(&m->config_flags, &m->cap_config_flags, m->n_configs, 1, e)) return false;
    if (2 * (m->n_configs + 1) >= m->config_slots.cap) {
        if (!slots_grow(&m->config_slots, e)) return false;
        for (uint32_t i = 0; i < m->n_configs; i++) config_put(m, i);
    }
    return true;
}

int32_t grammar_machine_config(grammar_machine *m, uint64_t *items, size_t n, err *e) {
    if (n == 0) return CONFIG_DEAD;
    sort_items(items, n);
    size_t kept = 1;
    for (size_t i = 1; i < n; i++)
        if (items[i] != items[kept - 1]) items[kept++] = items[i];
    n = kept;
    const grammar_slots *s = &m->config_slots;
    for (size_t at = items_hash(items, n) & (s->cap - 1); s->slots[at]; at = (at + 1) & (s->cap - 1)) {
        const grammar_config *c = &m->configs[s->slots[at] - 1];
        if (c->n == n && memcmp(m->items + c->first, items, n * sizeof *items) == 0) return (int32_t)(s->slots[at] - 1);
    }
    if (!config_room(m, n, e) || !check_limits(m, e)) return CONFIG_FAILED;
    const uint32_t number = (uint32_t)m->n_configs;
    m->configs[number] = (grammar_config){.first = m->n_items, .n = (uint32_t)n, .mask = -1};
    memcpy(m->items + m->n_items, items, n * sizeof *items);
    m->n_items += n;
    m->config_flags[number] = 0;
    for (size_t i = 0; i < n; i++)
        if (item_node(items[i]) == ITEM_DONE) m->config_flags[number] |= item_frame(items[i]) == FRAME_END ? CONFIG_ENDS : CONFIG_LEAVES;
    int32_t *steps = m->steps + (size_t)number * m->net->n_classes;
    for (uint32_t i = 0; i < m->net->n_classes; i++) steps[i] = CONFIG_UNTRIED;
    m->n_configs++;
    config_put(m, number);
    return (int32_t)number;
}

/* ---- steps ---- */

static void begin_step(grammar_machine *m) {
    m->n_seen = m->n_todo = m->n_found = 0;
    if (++m->now == 0) {
        memset(m->seen_when, 0, SEEN_SLOTS * sizeof *m->seen_when);
        m->now = 1;
    }
}

/* Notes a place to go on from, unless it was noted before in this step. */
static bool reach(grammar_machine *m, uint32_t node, uint32_t frame, err *e) {
    const uint64_t item = item_of(node, frame);
    size_t at = mix(item) & (SEEN_SLOTS - 1);
    for (; m->seen_when[at] == m->now; at = (at + 1) & (SEEN_SLOTS - 1))
        if (m->seen[at] == item) return true;
    if (m->n_seen >= MAX_SEEN) {
        m->effort = m->max_effort + 1;
        return check_limits(m, e);
    }
    m->seen[at] = item;
    m->seen_when[at] = m->now;
    m->n_seen++;
    m->todo[m->n_todo++] = item;
    return true;
}

/* At a loop whose body has been passed count times. */
static bool reach_loop(grammar_machine *m, uint32_t fragment, uint32_t count, uint32_t frame, err *e) {
    const grammar_fragment *f = &m->net->fragments[fragment];
    if (count >= f->min || f->nullable) {
        if (!reach(m, f->next, frame, e)) return false;
    }
    if (count >= f->max) return true;
    uint32_t after = count + 1;
    if (f->max >= GRAMMAR_MANY && after > f->min) after = f->min; /* from here on all are alike */
    frame = grammar_machine_frame(m, (grammar_frame){FRAME_LOOP | fragment, after, frame}, e);
    return frame != UINT32_MAX && reach(m, f->start, frame, e);
}

static bool return_to(grammar_machine *m, uint32_t frame, err *e) {
    if (frame < FRAME_FIRST) {
        m->found[m->n_found++] = item_of(ITEM_DONE, frame);
        return true;
    }
    grammar_frame f = m->frames[frame];
    return f.node & FRAME_LOOP ? reach_loop(m, f.node & ~FRAME_LOOP, f.count, f.parent, e) : reach(m, f.node, f.parent, e);
}

static bool follow(grammar_machine *m, const grammar_edge *x, uint32_t frame, err *e) {
    if (x->kind == EDGE_FREE) return reach(m, x->target, frame, e);
    if (x->kind == EDGE_LOOP) return reach_loop(m, x->callee, 0, frame, e);
    /* A call at the end of its fragment returns where the fragment would: lists written as right recursion need no deep stack. */
    if (m->net->flags[x->target] != NODE_LAST) frame = grammar_machine_frame(m, (grammar_frame){x->target, 0, frame}, e);
    return frame != UINT32_MAX && reach(m, m->net->fragments[x->callee].start, frame, e);
}

/* Follows everything that needs no byte, and makes the config of what was found. */
static int32_t finish_step(grammar_machine *m, err *e) {
    const grammar_net *net = m->net;
    while (m->n_todo > 0) {
        uint64_t item = m->todo[--m->n_todo];
        uint32_t node = item_node(item), frame = item_frame(item);
        uint8_t flags = net->flags[node];
        m->effort++;
        if (flags & NODE_BYTES) m->found[m->n_found++] = item;
        if ((flags & NODE_LAST) && !return_to(m, frame, e)) return CONFIG_FAILED;
        if (!(flags & NODE_MOVES)) continue;
        for (uint32_t i = net->first[node]; i < net->first[node + 1]; i++)
            if (net->edges[i].kind != EDGE_BYTE && !follow(m, &net->edges[i], frame, e)) return CONFIG_FAILED;
    }
    return check_limits(m, e) ? grammar_machine_config(m, m->found, m->n_found, e) : CONFIG_FAILED;
}

int32_t grammar_machine_start(grammar_machine *m, err *e) {
    begin_step(m);
    return reach(m, m->net->root, FRAME_END, e) ? finish_step(m, e) : CONFIG_FAILED;
}

int32_t grammar_machine_return(grammar_machine *m, uint32_t frame, err *e) {
    begin_step(m);
    return return_to(m, frame, e) ? finish_step(m, e) : CONFIG_FAILED;
}

int32_t grammar_machine_step_new(grammar_machine *m, int32_t config, uint32_t byte_class, err *e) {
    const grammar_net *net = m->net;
    const grammar_config *c = &m->configs[config];
    const uint8_t byte = net->byte_of[byte_class];
    begin_step(m);
    for (uint32_t i = 0; i < c->n; i++) {
        uint64_t item = m->items[c->first + i];
        uint32_t node = item_node(item);
        m->effort++;
        if (node == ITEM_DONE) continue;
        m->effort += (net->first[node + 1] - net->first[node]) / 8;
        for (uint32_t k = net->first[node]; k < net->first[node + 1] && net->edges[k].kind == EDGE_BYTE; k++)
            if (net->edges[k].lo <= byte && byte <= net->edges[k].hi && !reach(m, net->edges[k].target, item_frame(item), e))
                return CONFIG_FAILED;
    }
    int32_t next = finish_step(m, e);
    if (next != CONFIG_FAILED) m->steps[(size_t)config * net->n_classes + byte_class] = next;
    return next;
}

/* ---- forgetting ---- */

/* Numbers the frames in use anew, keeping their order. to[f] is the new number of frame f. */
static void keep_frames(grammar_machine *m, uint32_t *to) {
    size_t n = FRAME_FIRST;
    for (size_t i = FRAME_FIRST; i < m->n_frames; i++) {
        if (!to[i]) continue;
        grammar_frame f = m->frames[i];
        f.parent = f.parent < FRAME_FIRST ? f.parent : to[f.parent];
        m->frames[n] = f;
        to[i] = (uint32_t)n++;
    }
    m->n_frames = n;
    memset(m->frame_slots.slots, 0, m->frame_slots.cap * sizeof *m->frame_slots.slots);
    for (uint32_t i = FRAME_FIRST; i < n; i++) frame_put(m, i);
}

bool grammar_machine_forget(grammar_machine *m, int32_t **keep, size_t n, err *e) {
    size_t total = 0;
    for (size_t i = 0; i < n; i++) total += m->configs[*keep[i]].n;
    uint32_t *to = mem_zalloc(m->n_frames, sizeof *to, e);
    uint64_t *items = mem_alloc(total, sizeof *items, e);
    uint32_t *counts = mem_alloc(n, sizeof *counts, e);
    bool ok = to && items && counts;
    size_t at = 0;
    for (size_t i = 0; ok && i < n; i++) {
        const grammar_config *c = &m->configs[*keep[i]];
        counts[i] = c->n;
        memcpy(items + at, m->items + c->first, c->n * sizeof *items);
        for (uint32_t k = 0; k < c->n; k++)
            for (uint32_t f = item_frame(items[at + k]); f >= FRAME_FIRST && !to[f]; f = m->frames[f].parent) to[f] = 1;
        at += c->n;
    }
    if (ok) {
        const size_t max_bytes = m->max_bytes;
        m->max_bytes = SIZE_MAX;
        m->effort = 0;
        keep_frames(m, to);
        m->n_configs = m->n_items = 0;
        memset(m->config_slots.slots, 0, m->config_slots.cap * sizeof *m->config_slots.slots);
        at = 0;
        for (size_t i = 0; i < n; i++) {
            for (uint32_t k = 0; k < counts[i]; k++) {
                uint32_t frame = item_frame(items[at + k]);
                items[at + k] = item_of(item_node(items[at + k]), frame < FRAME_FIRST ? frame : to[frame]);
            }
            /* There was room for all of these before. */
            *keep[i] = grammar_machine_config(m, items + at, counts[i], e);
            at += counts[i];
        }
        m->max_bytes = max_bytes;
    }
    mem_free(to);
    mem_free(items);
    mem_free(counts);
    return ok;
}
