#include "engine/scheduler.h"

#include <math.h>

/* Products take tokens by eights: the first of a new eight is the dearest. Four are the first chunk, before anything was measured. */
enum { BY = 8, FIRST_CHUNK = 4 };
/* Up to so many tokens what all of them share is not small beside what each costs. */
enum { FEW = 16 };
/* Then every so many passes have one token less, which tells what one costs. */
enum { LESS = 8 };
/* Passes vary; this part of the time that prompts may take is aimed at. The price of a few tokens is known better. (Less is no gain: while a prompt is read more slowly, streams grow longer and slower.) */
static const double AIM = 0.75, AIM_FEW = 0.9;
static const double MOST_GROWTH = 1.25;
/* Beside a long prompt, every so many passes are the streams' own: what they alone take changes (weights settle, other programs come and go), and prompts get the rest. */
enum { OWN_PASS = 32 };

void scheduler_init(scheduler *s, int pass_tokens, uint64_t max_stall_ns) {
    *s = (scheduler){.pass_tokens = pass_tokens, .max_stall_ns = max_stall_ns, .chunk = FIRST_CHUNK, .most = FIRST_CHUNK};
}

static double *slot(scheduler *s, int n_decode) { return &s->decode_ns[n_decode < SCHED_COUNTS ? n_decode : SCHED_COUNTS - 1]; }

double scheduler_decode_ns(const scheduler *s, int n_decode) {
    if (n_decode == 0) return 0;
    const int n = n_decode < SCHED_COUNTS ? n_decode : SCHED_COUNTS - 1;
    for (int i = n; i > 0; i--)
        if (s->decode_ns[i] > 0) return s->decode_ns[i];
    for (int i = n; i < SCHED_COUNTS; i++)
        if (s->decode_ns[i] > 0) return s->decode_ns[i];
    return 0;
}

/* How long prompts may take of a pass beside so many streams: what these leave of max_stall_ns. Streams that leave less than a quarter of their own time leave that: they are slow because they are
 * many, and prompts that join them would otherwise hardly move. */
static double prompt_limit_ns(const scheduler *s, int n_decode) {
    const double alone = scheduler_decode_ns(s, n_decode), rest = (double)s->max_stall_ns - alone, least = alone / 4;
    return rest > least ? rest : least;
}

/* What tokens share is most of all reading the keys and values that they look at. Passes of one size do not tell it from what each costs: that is then kept as it was, and at first all is each one's. */
static void price_learn(sched_price *p, double n, double ns, bool late) {
    const double keep = 0.9, old = 0.5; /* of the slope: weighs as much as passes whose sizes vary by that, squared */
    const bool known = p->each > 0;
    p->dearer = known && late ? fmax(1, ns / (p->shared + n * p->each)) : 1;
    p->last = n;
    p->passes = keep * p->passes + 1;
    p->n = keep * p->n + n;
    p->nn = keep * p->nn + n * n;
    p->ns = keep * p->ns + ns;
    p->n_ns = keep * p->n_ns + n * ns;
    const double mean = p->ns / p->n, spread = p->nn - p->n * p->n / p->passes, together = p->n_ns - p->n * p->ns / p->passes;
    const double each = (together + old * (known ? p->each : mean)) / (spread + old);
    p->each = fmin(fmax(each, mean / 8), mean); /* beyond is noise */
    p->shared = (p->ns - p->each * p->n) / p->passes;
}

/* Prompt tokens that a pass may hold beside running streams: prompts always move on, if only by one. */
static double chunk_beside_streams(const scheduler *s, int n_decode) {
    const double most_ns = prompt_limit_ns(s, n_decode);
    double chunk = s->each_ns > 0 ? AIM * most_ns / s->each_ns : FIRST_CHUNK;
    if (chunk < FEW && s->price.each > 0) {
        const double line = (AIM_FEW * most_ns / s->price.dearer - s->price.shared) / s->price.each; /* what came late may come late again */
        chunk = fmin(fmin(line, FEW), fmax(chunk, s->price.last + 2)); /* the line ends where products take another eight: it is followed step by step */
    }
    if (chunk > s->most) chunk = s->most;
    return chunk < 1 ? 1 : chunk;
}

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

int scheduler_plan(scheduler *s, sched_item *items, int n) {
    int n_decode = 0;
    for (int i = 0; i < n; i++) {
        items[i].share = items[i].decoding ? 1 : 0;
        n_decode += items[i].decoding;
    }
    int all = s->pass_tokens - n_decode;
    int room = all;
    if (n_decode > s->streams) {
        s->most = s->most / 4 > FIRST_CHUNK ? s->most / 4 : FIRST_CHUNK;
        s->streams = n_decode;
    }
    if (n_decode > 0) {
        s->chunk = chunk_beside_streams(s, n_decode);
        if (s->chunk < room) room = (int)s->chunk;
        if (room > 1 && room < FEW && s->shared % LESS == LESS - 1) room--;
        if (room > 1 && (n_decode + room) % BY == 1) room--;
        if (s->shared >= OWN_PASS) room = 0;
    }
    int given = room, priority = 0;
    for (int64_t below = INT64_MAX; room > 0 && next_priority(items, n, below, &priority); below = priority) room = share_out(s, items, n, priority, room);
    s->turn++;
    return n_decode + given - room;
}

void scheduler_measure(scheduler *s, int n_decode, int n_prompt, uint64_t ns) {
    if (n_prompt == 0) {
        double *known = slot(s, n_decode);
        if (n_decode > 0) *known += *known == 0 ? (double)ns : (s->shared > 0 ? 0.5 : 0.2) * ((double)ns - *known); /* measured seldom, it has to follow quickly */
        s->shared = 0;
        return;
    }
    if (n_decode == 0) return; /* many tokens at once are cheaper than a few beside streams */
    s->shared++;
    double prompt_ns = (double)ns - scheduler_decode_ns(s, n_decode);
    const bool late = prompt_ns > prompt_limit_ns(s, n_decode);
    /* The short end of a prompt says little about the price of a token. */
    if (n_prompt * 2 < (int)s->chunk && !late) return;
    if (prompt_ns < 0.1 * (double)ns) prompt_ns = 0.1 * (double)ns; /* hidden behind the streams; a tenth is noise */
    if (s->price.streams != n_decode) s->price = (sched_price){.streams = n_decode};
    price_learn(&s->price, n_prompt, prompt_ns, late);
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
