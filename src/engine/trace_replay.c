/* trace_replay.c: decides again what a trace says was decided. */
#include <stdlib.h>
#include <string.h>

#include "engine/trace.h"

enum { MOST_RUNNING = 256, MOST_NUMBERS = 3 + 2 * MOST_RUNNING };

/* A sequence that waits or runs. */
typedef struct sequence {
    uint64_t order, owner;
    size_t tokens, left;
    int priority;
    int share; /* of the pass of prompts that is under way */
    bool decoding, started, held;
} sequence;

typedef struct replay {
    scheduler sched;
    bool begun;
    sequence *waiting;
    size_t n_waiting, cap_waiting;
    sequence running[MOST_RUNNING];
    int n_running;
    bool reading;         /* a pass of prompts is under way ... */
    uint64_t reading_ns;  /* ... and took so long */
    uint64_t line, first_time, last_time;
    trace_report *report;
    err *e;
} replay;

static bool unsound(const replay *r, const char *why) { return err_set(r->e, HEARTH_FORMAT, "line %llu of the trace is unsound: %s", (unsigned long long)r->line, why); }

static void differs(replay *r) {
    if (r->report->differ++ == 0) r->report->first_line = r->line;
}

static void pass_time(replay *r, uint64_t time) {
    if (r->first_time == 0 || time < r->first_time) r->first_time = time;
    if (time > r->last_time) r->last_time = time;
}

static sequence *find_waiting(replay *r, uint64_t order) {
    for (size_t i = 0; i < r->n_waiting; i++)
        if (r->waiting[i].order == order) return &r->waiting[i];
    return NULL;
}

static sequence *find_running(replay *r, uint64_t order) {
    for (int i = 0; i < r->n_running; i++)
        if (r->running[i].order == order) return &r->running[i];
    return NULL;
}

static bool add_waiting(replay *r, const sequence *s) {
    if (r->n_waiting == r->cap_waiting) {
        size_t cap = 2 * r->cap_waiting + 64;
        sequence *more = mem_realloc(r->waiting, cap, sizeof *more, r->e);
        if (!more) return false;
        r->waiting = more;
        r->cap_waiting = cap;
    }
    r->waiting[r->n_waiting++] = *s;
    return true;
}

static void remove_waiting(replay *r, sequence *s) {
    memmove(s, s + 1, (size_t)(r->waiting + r->n_waiting - s - 1) * sizeof *s);
    r->n_waiting--;
}

static void give_up(replay *r) {
    for (int i = 0; i < r->n_running; i++) r->running[i].share = 0;
    r->reading = false;
    r->reading_ns = 0;
}

static void remove_running(replay *r, sequence *s) {
    if (s->share) give_up(r);
    memmove(s, s + 1, (size_t)(r->running + r->n_running - s - 1) * sizeof *s);
    r->n_running--;
}

/* ---- events: n numbers each ---- */

static bool on_begin(replay *r, const int64_t *v, size_t n) {
    if (n != 4 || v[0] != 2 || v[1] < 1 || v[1] > 1 << 20 || v[2] < 1 || v[2] > 1 << 20 || v[3] < 0 || r->n_running || r->n_waiting) return unsound(r, "it does not begin a trace of version 2");
    scheduler_init(&r->sched, (int)v[1], (int)v[2], (uint64_t)v[3]);
    r->begun = true;
    return true;
}

static bool on_arrive(replay *r, const int64_t *v, size_t n) {
    if (n != 5 || v[2] < 1 || v[3] < INT32_MIN || v[3] > INT32_MAX) return unsound(r, "it is no arrival");
    const sequence s = {.order = (uint64_t)v[0], .tokens = (size_t)v[2], .priority = (int)v[3], .owner = (uint64_t)v[4]};
    if (find_waiting(r, s.order) || find_running(r, s.order)) return unsound(r, "the sequence is there already");
    pass_time(r, (uint64_t)v[1]);
    r->report->requests++;
    return add_waiting(r, &s);
}

/* Who would start now. */
static sequence *choose(replay *r) {
    sequence *best = NULL;
    sched_waiting pair[2];
    for (size_t i = 0; i < r->n_waiting; i++) {
        sequence *s = &r->waiting[i];
        sched_waiting w = {.priority = s->priority, .order = s->order, .held = s->held};
        for (int k = 0; k < r->n_running && !s->started; k++) w.agent_running += r->running[k].owner == s->owner;
        pair[best != NULL] = w;
        int first = scheduler_next(pair, best ? 2 : 1);
        if (first < 0 || (best && first == 0)) continue;
        pair[0] = w;
        best = s;
    }
    return best;
}

static bool on_start(replay *r, const int64_t *v, size_t n) {
    sequence *s = n >= 4 ? find_waiting(r, (uint64_t)v[0]) : NULL;
    if (!s || v[2] < 1 || v[3] < 0 || v[3] >= v[2] || r->n_running == MOST_RUNNING) return unsound(r, "nothing that waits can start so");
    pass_time(r, (uint64_t)v[1]);
    for (size_t i = 0; i < r->n_waiting; i++) r->waiting[i].held = false;
    for (size_t i = 4; i < n; i++) {
        sequence *h = find_waiting(r, (uint64_t)v[i]);
        if (h) h->held = true;
    }
    r->report->starts++;
    if (choose(r) != s) differs(r);
    sequence now = *s;
    now.tokens = (size_t)v[2];
    now.left = (size_t)(v[2] - v[3]);
    now.decoding = false;
    now.share = 0;
    remove_waiting(r, s);
    r->running[r->n_running++] = now;
    return true;
}

/* So many of its tokens were computed; after the last one another is picked. */
static void advance(sequence *s, int n) {
    s->left -= (size_t)n;
    if (n == 0 || s->left > 0) return;
    s->left = 1;
    s->tokens++;
    s->decoding = true;
}

static int n_streams(const replay *r) {
    int n = 0;
    for (int i = 0; i < r->n_running; i++) n += r->running[i].decoding;
    return n;
}

static void list_items(const replay *r, sched_item *items) {
    for (int i = 0; i < r->n_running; i++) {
        const sequence *s = &r->running[i];
        items[i] = (sched_item){.left = s->left, .decoding = s->decoding, .reading = s->share > 0, .priority = s->priority};
    }
}

/* What the record gave a sequence. */
static int64_t recorded_share(const int64_t *v, size_t n, uint64_t order) {
    for (size_t i = 0; i + 1 < n; i += 2)
        if ((uint64_t)v[i] == order) return v[i + 1];
    return 0;
}

/* Takes the recorded shares over, and compares them with those that were decided now: it goes on with what happened, so that one difference does not make all that follows differ. */
static bool take_shares(replay *r, const int64_t *v, size_t n, const sched_item *items, int *shares) {
    bool same = true;
    for (int i = 0; i < r->n_running; i++) {
        const sequence *s = &r->running[i];
        const int64_t share = recorded_share(v, n, s->order);
        same &= share == items[i].share;
        if (share < 0 || (uint64_t)share > s->left || share > r->sched.pass_tokens || (share > 0 && s->share > 0)) return unsound(r, "more is computed than there is");
        shares[i] = (int)share;
    }
    if (!same) differs(r);
    return true;
}

/* v: shares. told: how long it took, or with the prompts would have taken; 0: nothing was computed. */
static bool repeat_pass(replay *r, const int64_t *v, size_t n, int64_t time, int64_t told, bool late) {
    sched_item items[MOST_RUNNING];
    int shares[MOST_RUNNING], n_decode = 0, n_prompt = 0;
    if (n % 2 || told < 0 || r->n_running == 0 || r->n_running > r->sched.pass_tokens) return unsound(r, "nothing can be computed so");
    list_items(r, items);
    scheduler_plan(&r->sched, items, r->n_running);
    if (!take_shares(r, v, n, items, shares)) return false;
    for (int i = 0; i < r->n_running; i++) {
        sequence *s = &r->running[i];
        *(s->decoding ? &n_decode : &n_prompt) += shares[i];
        if (told > 0 && (s->decoding || !late)) advance(s, shares[i]);
    }
    if (late && (n_decode == 0 || n_prompt == 0 || told == 0)) return unsound(r, "there is nothing to go on without");
    pass_time(r, (uint64_t)time);
    if (late) scheduler_measure_late(&r->sched, n_decode, n_prompt, (uint64_t)told);
    else if (told > 0) scheduler_measure(&r->sched, n_decode, n_prompt, (uint64_t)told);
    r->report->passes++;
    r->report->tokens += (uint64_t)(late ? n_decode : n_decode + n_prompt);
    return true;
}

static bool on_pass(replay *r, const int64_t *v, size_t n) { return n < 2 ? unsound(r, "it is no pass") : repeat_pass(r, v + 2, n - 2, v[0], v[1], false); }

static bool on_late(replay *r, const int64_t *v, size_t n) { return n < 3 ? unsound(r, "it is no pass") : repeat_pass(r, v + 3, n - 3, v[0], v[2], true); }

static bool on_apart(replay *r, const int64_t *v, size_t n) {
    sched_item items[MOST_RUNNING];
    int shares[MOST_RUNNING];
    if (n < 2 || n % 2 || r->reading || r->n_running > r->sched.pass_tokens) return unsound(r, "nothing can be computed so");
    list_items(r, items);
    scheduler_plan_apart(&r->sched, items, r->n_running);
    if (!take_shares(r, v, n, items, shares)) return false;
    for (int i = 0; i < r->n_running; i++) {
        if (shares[i] > 0 && r->running[i].decoding) return unsound(r, "a running stream is no prompt");
        r->running[i].share = shares[i];
    }
    r->reading = true;
    r->reading_ns = 0;
    return true;
}

static bool on_piece(replay *r, const int64_t *v, size_t n) {
    if (n != 4 || !r->reading || v[1] < 0 || v[2] < 0 || v[2] >= r->sched.steps) return unsound(r, "nothing can be computed so");
    const int streams = n_streams(r);
    if ((uint64_t)v[3] != (streams ? scheduler_rest_ns(&r->sched, streams) : 0)) differs(r);
    pass_time(r, (uint64_t)v[0]);
    r->reading_ns += (uint64_t)v[1];
    if (v[1] > 0 && v[2] > 0) return true;
    int tokens = 0;
    for (int i = 0; v[1] > 0 && i < r->n_running; i++) {
        tokens += r->running[i].share;
        advance(&r->running[i], r->running[i].share);
    }
    if (tokens) scheduler_measure(&r->sched, 0, tokens, r->reading_ns);
    give_up(r);
    r->report->passes++;
    r->report->tokens += (uint64_t)tokens;
    return true;
}

static bool on_again(replay *r, const int64_t *v, size_t n) {
    sequence *s = n == 1 ? find_running(r, (uint64_t)v[0]) : NULL;
    if (!s) return unsound(r, "it does not run");
    s->left = s->tokens;
    s->decoding = false;
    return true;
}

static bool on_back(replay *r, const int64_t *v, size_t n) {
    sequence *s = n == 1 ? find_running(r, (uint64_t)v[0]) : NULL;
    if (!s) return unsound(r, "it does not run");
    s->started = true;
    sequence back = *s;
    remove_running(r, s);
    return add_waiting(r, &back);
}

static bool on_end(replay *r, const int64_t *v, size_t n) {
    sequence *s = n == 1 ? find_running(r, (uint64_t)v[0]) : NULL;
    if (s) {
        remove_running(r, s);
        return true;
    }
    s = n == 1 ? find_waiting(r, (uint64_t)v[0]) : NULL;
    if (!s) return unsound(r, "there is no such sequence");
    remove_waiting(r, s);
    return true;
}

/* ---- lines ---- */

/* Whole numbers between blanks up to the end of the line. False when there is anything else. */
static bool read_numbers(const char *p, const char *end, int64_t *out, size_t *n) {
    for (*n = 0; p < end;) {
        while (p < end && *p == ' ') p++;
        if (p == end) break;
        size_t len = 0, digits = 0;
        bool negative = *p == '-';
        uint64_t value = 0;
        for (len = negative; p + len < end && p[len] >= '0' && p[len] <= '9' && digits < 20; len++, digits++) value = value * 10 + (uint64_t)(p[len] - '0');
        if (digits == 0 || digits > 20 || (p + len < end && p[len] != ' ') || *n == MOST_NUMBERS) return false;
        out[(*n)++] = negative ? -(int64_t)(value & INT64_MAX) : (int64_t)value;
        p += len;
    }
    return true;
}

static bool on_line(replay *r, const char *line, const char *end) {
    static const struct {
        const char *word;
        bool (*run)(replay *r, const int64_t *v, size_t n);
    } events[] = {{"hearth-trace", on_begin}, {"arrive", on_arrive}, {"start", on_start}, {"pass", on_pass}, {"late", on_late}, {"apart", on_apart}, {"piece", on_piece}, {"again", on_again}, {"back", on_back}, {"end", on_end}};
    int64_t numbers[MOST_NUMBERS];
    size_t n, len = 0;
    while (line + len < end && line[len] != ' ') len++;
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        if (strlen(events[i].word) != len || memcmp(events[i].word, line, len) != 0) continue;
        if (!read_numbers(line + len, end, numbers, &n)) return unsound(r, "its numbers cannot be read");
        if (!r->begun && i > 0) return unsound(r, "a trace begins with hearth-trace");
        return events[i].run(r, numbers, n);
    }
    return unsound(r, "its first word is none that is known");
}

bool trace_replay(const char *text, size_t len, trace_report *out, err *e) {
    *out = (trace_report){0};
    replay *r = mem_zalloc(1, sizeof *r, e);
    if (!r) return false;
    r->report = out;
    r->e = e;
    bool ok = true;
    for (const char *p = text, *end = text + len; ok && p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        if (!stop) stop = end;
        r->line++;
        ok = on_line(r, p, stop);
        p = stop + 1;
    }
    if (ok && !r->begun) ok = unsound(r, "it is empty");
    out->seconds = (double)(r->last_time - r->first_time) * 1e-9;
    mem_free(r->waiting);
    mem_free(r);
    return ok;
}
