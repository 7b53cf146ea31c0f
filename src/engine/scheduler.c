#include "engine/scheduler.h"

#include <math.h>

/* Products take tokens by eights: the first of a new eight is the dearest. Two are the first chunk, before anything was measured. */
enum { BY = 8, FIRST_CHUNK = 2 };
/* Up to so many tokens what all of them share is not small beside what each costs. */
enum { FEW = 16 };
/* Then every so many passes have one token less, which tells what one costs. */
enum { LESS = 8 };
/* Passes vary: left for that are so many times what they are off what was expected, and at least this part of max_stall_ns, also for tokens to get to who waits for them; but no more than this part of what streams leave. */
static const double OFF_TIMES = 8, LEAST_SPARE = 0.2, MOST_SPARE = 0.5;
/* Of the time that many tokens may take beside streams, whose price is known less well, this part is aimed at. */
static const double AIM = 0.75;
/* Prompts get at least this part of the streams' own time: beside streams that take nearly all of max_stall_ns they would otherwise not move. */
static const double LEAST_REST = 1.0 / 12;
/* Streams that take more than this part of it miss it without prompts too, and then leave a part of their own time. */
static const double MISSED = 0.9, MISSED_REST = 0.25;
static const double MOST_GROWTH = 1.25;
/* Beside a long prompt, every so many passes are the streams' own: what they alone take changes (weights settle, other programs come and go), and prompts get the rest. */
enum { OWN_PASS = 32 };

/* Apart: a pass holds a multiple of so many tokens, and at least LEAST_MANY, unless there are fewer. */
enum { BY_MANY = 16, LEAST_MANY = 32 };
/* It may take so long without its rests: who arrives when it has begun waits for its end, and what was computed of it is lost when one of its requests is cancelled. */
static const double LONGEST_NS = 0.5e9;
/* So many of its steps must fit between two passes of streams, at least. */
enum { STEPS_AT_ONCE = 2 };
/* Prompts are read apart where a token costs less than this part of what it costs together with streams, by at least so many passes, and where more than FEW are left. */
static const double APART_PAYS = 0.75;
enum { APART_AFTER = 3 };
/* By then passes together have grown to what they can be. */
enum { TRIED = 8 };

void scheduler_init(scheduler *s, int pass_tokens, int steps, uint64_t max_stall_ns) {
    *s = (scheduler){.pass_tokens = pass_tokens, .steps = steps, .max_stall_ns = max_stall_ns, .chunk = FIRST_CHUNK, .most = FIRST_CHUNK};
}

static sched_time decode_time(const scheduler *s, int n_decode) {
    const int n = n_decode < SCHED_COUNTS ? n_decode : SCHED_COUNTS - 1;
    for (int i = n; i > 0; i--)
        if (s->decode[i].mean > 0) return s->decode[i];
    for (int i = n; i < SCHED_COUNTS; i++)
        if (s->decode[i].mean > 0) return s->decode[i];
    return (sched_time){0};
}

double scheduler_decode_ns(const scheduler *s, int n_decode) { return n_decode ? decode_time(s, n_decode).mean : 0; }

/* What so many streams leave of max_stall_ns. */
static double left_ns(const scheduler *s, int n_decode) {
    const double alone = scheduler_decode_ns(s, n_decode), most = (double)s->max_stall_ns;
    return alone > MISSED * most ? MISSED_REST * alone : most - alone;
}

/* How much of that prompts may take, when passes are so much off what was expected. */
static double rest_ns(const scheduler *s, int n_decode, double off) {
    const double left = left_ns(s, n_decode), spare = fmax(OFF_TIMES * off, LEAST_SPARE * (double)s->max_stall_ns);
    return fmax(left - fmin(spare, MOST_SPARE * left), LEAST_REST * scheduler_decode_ns(s, n_decode));
}

/* Half of what is spared may be used: passes that are planned to take all of the rest would otherwise come late as often as not. */
uint64_t scheduler_latest_ns(const scheduler *s, int n_decode) {
    return (uint64_t)(scheduler_decode_ns(s, n_decode) + 0.5 * (rest_ns(s, n_decode, 0) + left_ns(s, n_decode)));
}

/* What tokens share is most of all reading the keys and values that they look at. Passes of one size do not tell it from what each costs: that is then kept as it was, and at first all is each one's. */
static void price_learn(sched_price *p, double n, double read, double ns) {
    const double keep = 0.9, old = 0.5; /* of the slope: weighs as much as passes whose sizes vary by that, squared */
    const bool known = p->each > 0;
    if (known) p->off += 0.2 * (fabs(ns - p->shared - n * p->each) - p->off);
    p->last = n;
    p->seen++;
    p->passes = keep * p->passes + 1;
    p->n = keep * p->n + n;
    p->read = keep * p->read + read;
    p->nn = keep * p->nn + n * n;
    p->ns = keep * p->ns + ns;
    p->n_ns = keep * p->n_ns + n * ns;
    const double mean = p->ns / p->n, spread = p->nn - p->n * p->n / p->passes, together = p->n_ns - p->n * p->ns / p->passes;
    const double each = (together + old * (known ? p->each : mean)) / (spread + old);
    p->each = fmin(fmax(each, mean / 8), mean); /* beyond is noise */
    p->shared = (p->ns - p->each * p->n) / p->passes;
}

double scheduler_expect_ns(const scheduler *s, int n_decode, int n_prompt) {
    const sched_price *p = &s->price;
    return p->each > 0 && p->streams == n_decode ? scheduler_decode_ns(s, n_decode) + p->shared + n_prompt * p->each : 0;
}

/* Prompt tokens that a pass may hold beside running streams: prompts always move on, if only by one. */
static double chunk_beside_streams(const scheduler *s, int n_decode) {
    double chunk = s->each_ns > 0 ? AIM * left_ns(s, n_decode) / s->each_ns : FIRST_CHUNK;
    if (chunk < FEW && s->price.each > 0) {
        const double line = (rest_ns(s, n_decode, s->price.off) - s->price.shared) / s->price.each;
        chunk = fmin(fmin(line, FEW), fmax(chunk, s->price.last + 2)); /* the line ends where products take another eight: it is followed step by step */
    }
    if (chunk > s->most) chunk = s->most;
    return chunk < 1 ? 1 : chunk;
}

/* ---- shares ---- */

/* The highest priority below `below` among the prompts that still lack tokens; false when there is none. */
static bool next_priority(const sched_item *items, int n, int64_t below, int *priority) {
    bool found = false;
    for (int i = 0; i < n; i++) {
        if (items[i].decoding || items[i].priority >= below || (found && items[i].priority <= *priority)) continue;
        *priority = items[i].priority;
        found = true;
    }
    return found;
}

static bool lacks(const sched_item *it, int priority) { return !it->decoding && it->priority == priority && (size_t)it->share < it->left; }

/* Shares room among the prompts of one priority; returns what is left of it. */
static int share_out(const scheduler *s, sched_item *items, int n, int priority, int room) {
    while (room > 0) {
        int hungry = 0;
        for (int i = 0; i < n; i++) hungry += lacks(&items[i], priority);
        if (hungry == 0) break;
        int fair = room / hungry > 0 ? room / hungry : 1;
        for (int k = 0; k < n && room > 0; k++) {
            sched_item *it = &items[((unsigned)k + s->turn) % (unsigned)n];
            if (!lacks(it, priority)) continue;
            size_t want = it->left - (size_t)it->share;
            int give = fair < room ? fair : room;
            if (want < (size_t)give) give = (int)want;
            it->share += give;
            room -= give;
        }
    }
    return room;
}

/* Shares room among all prompts; returns how much of it they take. */
static int share_all(scheduler *s, sched_item *items, int n, int room) {
    const int all = room;
    int priority = 0;
    for (int64_t below = INT64_MAX; room > 0 && next_priority(items, n, below, &priority); below = priority) room = share_out(s, items, n, priority, room);
    s->turn++;
    return all - room;
}

static int count_streams(const sched_item *items, int n) {
    int n_decode = 0;
    for (int i = 0; i < n; i++) n_decode += items[i].decoding;
    return n_decode;
}

static bool is_reading(const sched_item *items, int n) {
    for (int i = 0; i < n; i++)
        if (items[i].reading) return true;
    return false;
}

/* ---- apart ---- */

static double many_ns(const scheduler *s, int n) { return s->many.shared + n * s->many.each; }

uint64_t scheduler_step_ns(const scheduler *s, int n) { return (uint64_t)(many_ns(s, n) / s->steps); }

uint64_t scheduler_rest_ns(const scheduler *s, int n_decode) {
    return (uint64_t)rest_ns(s, n_decode, decode_time(s, n_decode).off);
}

/* How many tokens a pass apart from so many streams should hold: with which most are read in a rest, of which about three quarters of a step remain unused, because one that does not fit is not begun. */
static int chunk_apart(const scheduler *s, int n_decode) {
    const double rest = (double)scheduler_rest_ns(s, n_decode);
    double most = 0;
    int best = LEAST_MANY;
    for (int n = LEAST_MANY; n <= s->pass_tokens && many_ns(s, n) < LONGEST_NS; n += BY_MANY) {
        const double fit = rest * s->steps / many_ns(s, n);
        if (fit < STEPS_AT_ONCE) break;
        if ((fit - 0.75) * n <= most) continue;
        most = (fit - 0.75) * n;
        best = n;
    }
    return best < s->pass_tokens ? best : s->pass_tokens;
}

/* What a prompt token costs together with so many streams, of which the price is known: as many of them share theirs as fit. Where not even one does, streams have to wait for it, which counts twice. But what they
 * have cost lately counts when it is more: a line promises what does not come, where passes vary much. */
static double beside_ns(const scheduler *s, int n_decode) {
    const sched_price *p = &s->price;
    const double fit = floor((rest_ns(s, n_decode, p->off) - p->shared) / p->each);
    const double promised = fit > FEW ? p->ns / p->n : fit >= 1 ? p->shared / fit + p->each : 2 * (p->shared + p->each);
    return p->seen >= TRIED ? fmax(promised, p->ns / fmax(p->read, 1)) : promised;
}

/* How many of the tokens that are left: the last few, one by one beside streams, would be the dearest. */
static int chunk_of(const scheduler *s, size_t left, int usual) {
    if (left <= (size_t)(usual + FEW)) return left < (size_t)s->pass_tokens ? (int)left : s->pass_tokens;
    return left < 2 * (size_t)usual ? ((int)left / 2 + BY_MANY - 1) / BY_MANY * BY_MANY : usual;
}

/* How many tokens of the prompts are to be read apart from so many streams next; 0: they are read together. */
static int wants_apart(const scheduler *s, const sched_item *items, int n, int n_decode) {
    const sched_price *p = &s->price;
    const bool known = s->many.seen > 0 && p->streams == n_decode && p->seen >= APART_AFTER;
    if (n_decode == 0 || !(known || s->always_apart)) return 0;
    size_t left = 0;
    for (int i = 0; i < n; i++) left += items[i].decoding ? 0 : items[i].left;
    const int chunk = chunk_of(s, left, chunk_apart(s, n_decode));
    if (s->always_apart) return chunk;
    return chunk > FEW && many_ns(s, chunk) / chunk < APART_PAYS * beside_ns(s, n_decode) ? chunk : 0;
}

/* ---- plans ---- */

int scheduler_plan(scheduler *s, sched_item *items, int n) {
    const int n_decode = count_streams(items, n);
    for (int i = 0; i < n; i++) items[i].share = items[i].decoding ? 1 : 0;
    if (is_reading(items, n)) return n_decode;
    int room = s->pass_tokens - n_decode;
    if (n_decode > s->streams) {
        s->most = s->most / 4 > FIRST_CHUNK ? s->most / 4 : FIRST_CHUNK;
        s->streams = n_decode;
    }
    if (n_decode > 0) {
        const bool had_time = s->was_apart;
        s->was_apart = false;
        if (had_time || wants_apart(s, items, n, n_decode)) return n_decode;
        s->chunk = chunk_beside_streams(s, n_decode);
        if (s->chunk < room) room = (int)s->chunk;
        if (room > 1 && room < FEW && s->shared % LESS == LESS - 1) room--;
        if (room > 1 && (n_decode + room) % BY == 1) room--;
        if (s->shared >= OWN_PASS) room = 0;
    }
    return n_decode + share_all(s, items, n, room);
}

int scheduler_plan_apart(scheduler *s, sched_item *items, int n) {
    const int n_decode = count_streams(items, n), chunk = is_reading(items, n) ? 0 : wants_apart(s, items, n, n_decode);
    for (int i = 0; i < n; i++) items[i].share = 0;
    if (chunk == 0) return 0;
    s->chunk = chunk;
    s->was_apart = true;
    return share_all(s, items, n, chunk);
}

/* ---- learning ---- */

static void measure_streams(scheduler *s, int n, double ns) {
    sched_time *t = &s->decode[n < SCHED_COUNTS ? n : SCHED_COUNTS - 1];
    const double off = ns - t->mean, part = s->shared > 0 ? 0.5 : 0.2; /* measured seldom, it has to follow quickly */
    if (t->mean == 0) *t = (sched_time){.mean = ns, .off = ns / 16}; /* how much it varies is not known */
    else *t = (sched_time){.mean = t->mean + part * off, .off = t->off + part * (fabs(off) - t->off)};
    s->shared = 0;
}

static void measure_beside(scheduler *s, int n_decode, int n_prompt, int n_read, double ns) {
    s->shared++;
    double prompt_ns = ns - scheduler_decode_ns(s, n_decode);
    const bool late = prompt_ns > left_ns(s, n_decode);
    /* The short end of a prompt says little about the price of a token. */
    if (n_prompt * 2 < (int)s->chunk && !late) return;
    if (prompt_ns < 0.05 * ns) prompt_ns = 0.05 * ns; /* hidden behind the streams; a twentieth is noise */
    if (s->price.streams != n_decode) s->price = (sched_price){.streams = n_decode};
    price_learn(&s->price, n_prompt, n_read, prompt_ns);
    double each = prompt_ns / n_prompt;
    /* The further a prompt is read, the dearer its tokens become: what rose will rise again. */
    const double growth = s->seen_ns > 0 && each > s->seen_ns ? each / s->seen_ns : 1;
    s->seen_ns = each;
    each *= growth < MOST_GROWTH ? growth : MOST_GROWTH;
    /* Dearer at once, cheaper slowly; and no leaps beyond what was tried. */
    s->each_ns = each > s->each_ns ? each : s->each_ns + 0.5 * (each - s->each_ns);
    s->most = 2.0 * n_prompt;
    s->streams = n_decode;
}

void scheduler_measure(scheduler *s, int n_decode, int n_prompt, uint64_t ns) {
    if (n_prompt == 0) measure_streams(s, n_decode, (double)ns);
    else if (n_decode == 0) price_learn(&s->many, n_prompt, n_prompt, (double)ns);
    else measure_beside(s, n_decode, n_prompt, n_prompt, (double)ns);
}

void scheduler_measure_late(scheduler *s, int n_decode, int n_prompt, uint64_t ns) {
    measure_beside(s, n_decode, n_prompt, 0, (double)ns);
    s->most = n_prompt / 2;
}

static bool goes_before(const sched_waiting *a, const sched_waiting *b) {
    if (a->priority != b->priority) return a->priority > b->priority;
    if (a->agent_running != b->agent_running) return a->agent_running < b->agent_running;
    return a->order < b->order;
}

int scheduler_next(const sched_waiting *waiting, int n) {
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!waiting[i].held && (best < 0 || goes_before(&waiting[i], &waiting[best]))) best = i;
    return best;
}
