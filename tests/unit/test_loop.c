/* test_loop.c: the scheduler on its own, and the loop with the default model. */
#include "tools/support.h"

#include <math.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/loop_inner.h"
#include "engine/scheduler.h"
#include "engine/trace.h"

/* ---- the scheduler ---- */

enum { STEPS = 81 };

/* n prompts of `left` tokens behind so many streams. */
static void list_some(sched_item *items, int streams, int prompts, size_t left) {
    for (int i = 0; i < streams + prompts; i++) items[i] = i < streams ? (sched_item){.left = 1, .decoding = true} : (sched_item){.left = left};
}

static void test_decode_comes_first(void **state) {
    (void)state;
    scheduler s;
    scheduler_init(&s, 512, STEPS, 100000000);
    sched_item items[3] = {{.left = 1, .decoding = true}, {.left = 4000}, {.left = 1, .decoding = true}};
    int total = scheduler_plan(&s, items, 3);
    assert_int_equal(items[0].share, 1);
    assert_int_equal(items[2].share, 1);
    assert_true(items[1].share > 0 && items[1].share < 512);
    assert_int_equal(total, 2 + items[1].share);
    items[0].decoding = items[2].decoding = false; /* nobody to disturb: the whole pass */
    items[0].left = items[2].left = 3;
    assert_int_equal(scheduler_plan(&s, items, 3), 512);
    assert_int_equal(items[0].share, 3);
    assert_int_equal(items[1].share, 506);
}

static void test_shares_are_fair(void **state) {
    (void)state;
    scheduler s;
    scheduler_init(&s, 512, STEPS, 100000000);
    sched_item items[4] = {{.left = 4000}, {.left = 20}, {.left = 4000}, {.left = 4000, .priority = -1}};
    assert_int_equal(scheduler_plan(&s, items, 4), 512);
    assert_int_equal(items[1].share, 20);
    assert_true(abs(items[0].share - items[2].share) <= 2);
    assert_int_equal(items[3].share, 0); /* the lower priority gets what is left, here nothing */
    /* More prompts than tokens: over some passes each gets its turn. */
    enum { N = 40 };
    sched_item many[N];
    int got[N] = {0};
    for (int pass = 0; pass < 200; pass++) {
        for (int i = 0; i < N; i++) many[i] = (sched_item){.left = 1000};
        many[0] = (sched_item){.left = 1, .decoding = true};
        scheduler_plan(&s, many, N);
        for (int i = 0; i < N; i++) got[i] += many[i].share;
    }
    int all = 0;
    for (int i = 1; i < N; i++) all += got[i];
    assert_true(all >= 2 * 200); /* the first two beside one stream */
    for (int i = 1; i < N; i++) assert_true(got[i] >= all / (N - 1) - 1);
}

/* A machine whose pass costs a base and so much per token; the price rises with depth, as attention does. */
static void test_chunks_keep_the_pace(void **state) {
    (void)state;
    uint64_t seed = test_seed();
    const double limit = 100e6;
    for (int machine = 0; machine < 20; machine++) {
        double base = 1e6 + 30e6 * rng_double(&seed), each = 5e3 * pow(100, rng_double(&seed));
        scheduler s;
        scheduler_init(&s, 512, STEPS, (uint64_t)limit);
        size_t left = 60000;
        int late = 0, passes = 0;
        for (; left > 0 && passes < 20000; passes++) {
            sched_item items[3] = {{.left = 1, .decoding = true}, {.left = left}, {.left = 1, .decoding = true}};
            scheduler_plan(&s, items, 3);
            double depth = 1 + (double)(60000 - left) / 20000;
            double ns = base + each * depth * items[1].share * (0.95 + 0.1 * rng_double(&seed));
            late += ns > limit && passes > 3;
            scheduler_measure(&s, 2, items[1].share, (uint64_t)ns);
            if (passes % 7 == 0) scheduler_measure(&s, 2, 0, (uint64_t)base);
            left -= (size_t)items[1].share;
        }
        assert_int_equal(left, 0);
        assert_int_equal(late, 0);
        /* It uses the time it has: at least a third of the best possible chunk. */
        double best = fmin(510, (limit - base) / (each * 4));
        assert_true(60000.0 / passes > best / 3 || best < 24);
    }
}

/* Streams that leave time for a few tokens only, which share a part of their price: that of reading what they look at, which grows. Passes stay within the limit while one token does, but for
 * noise, and hold as many as fit, or nearly. */
static void test_a_few_tokens(void **state) {
    (void)state;
    uint64_t seed = test_seed();
    const double limit = 100e6;
    for (int machine = 0; machine < 20; machine++) {
        const double base = 45e6 + 20e6 * rng_double(&seed), each = 3e6 + 6e6 * rng_double(&seed), deepest = 8e6 + 8e6 * rng_double(&seed);
        scheduler s;
        scheduler_init(&s, 512, STEPS, (uint64_t)limit);
        scheduler_measure(&s, 4, 0, (uint64_t)base);
        size_t left = 4000;
        double fitting = 0;
        int passes = 0, late = 0;
        for (; left > 0 && passes < 5000; passes++) {
            sched_item items[5] = {{.left = left}};
            for (int i = 1; i < 5; i++) items[i] = (sched_item){.left = 1, .decoding = true};
            scheduler_plan(&s, items, 5);
            const double read = (double)(4000 - left) / 4000, own = base * (1 + 0.2 * read), shared = deepest * read, noise = 0.98 + 0.04 * rng_double(&seed);
            const int n = items[0].share;
            const double ns = (own + (n ? shared : 0) + each * n) * noise;
            late += ns > limit && n > 1 && passes > 3;
            if (n) fitting += fmax(1, floor((limit - own - fmin(0.2 * limit, 0.5 * (limit - own)) - shared) / each)); /* the rest is left for noise */
            scheduler_measure(&s, 4, n, (uint64_t)ns);
            left -= (size_t)n;
        }
        assert_int_equal(left, 0);
        assert_true(late * 100 <= passes); /* noise */
        assert_true(4000 > 0.75 * fitting);
    }
}

/* However long the streams' own pass takes, and however many they are: prompts move on, and take no more than the streams leave of the limit or a twelfth of their time, or a quarter where there is no keeping the limit; unless one token alone takes longer. */
static void test_chunks_beside_slow_streams(void **state) {
    (void)state;
    const double limit = 100e6;
    for (double each = 2e6; each < 300e6; each *= 3)
        for (double one = 20e6; one < 500e6; one *= 1.5) {
            scheduler s;
            scheduler_init(&s, 512, STEPS, (uint64_t)limit);
            sched_item items[9] = {{.left = 4000}};
            scheduler_plan(&s, items, 1); /* nothing runs: all of it */
            scheduler_measure(&s, 0, items[0].share, (uint64_t)(20 * each * items[0].share)); /* together is the cheaper way */
            for (int n = 8; n >= 1; n--) {
                const double streams = one * (1 + 0.1 * n);
                for (int pass = 0; pass < 20; pass++) {
                    if (pass % 5 == 0) scheduler_measure(&s, n, 0, (uint64_t)streams);
                    for (int i = 0; i <= n; i++) items[i] = (sched_item){.left = i ? 1 : 4000, .decoding = i > 0};
                    const bool known = s.each_ns > 0; /* before that, a few tokens are tried */
                    scheduler_plan(&s, items, n + 1);
                    assert_true(items[0].share >= 1);
                    const double added = each * ((items[0].share + 3) / 4 * 4); /* a machine that takes prompts by fours of their own, dearer than the scheduler expects */
                    assert_true(each * items[0].share <= fmax(limit - streams, streams / (streams > 0.9 * limit ? 4 : 12)) || items[0].share == (known ? 1 : 2));
                    scheduler_measure(&s, n, items[0].share, (uint64_t)(streams + added));
                }
            }
        }
}

/* Streams that were slow when a long prompt joined and are fast now: prompts get what they leave now. And beside more streams than before, a smaller chunk is tried first. */
static void test_streams_change(void **state) {
    (void)state;
    scheduler s;
    scheduler_init(&s, 512, STEPS, 100000000);
    scheduler_measure(&s, 1, 0, 90000000);
    sched_item items[6] = {{.left = 100000}, {.left = 1, .decoding = true}};
    int last = 0;
    for (int pass = 0; pass < 400; pass++) {
        scheduler_plan(&s, items, 2);
        if (items[0].share > 0) last = items[0].share;
        scheduler_measure(&s, 1, items[0].share, (uint64_t)(10e6 + 0.5e6 * items[0].share));
    }
    assert_true(scheduler_decode_ns(&s, 1) < 15e6);
    assert_true(last > 100 && last < 180); /* of the 180 that fill the time */
    for (int i = 2; i < 6; i++) items[i] = (sched_item){.left = 1, .decoding = true};
    for (int pass = 0; pass < 2; pass++) scheduler_plan(&s, items, 6); /* one of them may be the streams' own */
    scheduler_measure(&s, 5, 0, 10000000);
    scheduler_plan(&s, items, 6);
    assert_true(items[0].share > 0 && items[0].share <= last / 2);
}

/* Five tokens would fit beside four streams; the fifth begins a new eight and is left out. */
static void test_chunks_end_with_an_eight(void **state) {
    (void)state;
    scheduler s;
    scheduler_init(&s, 512, STEPS, 100000000);
    sched_item items[5] = {{.left = 4000}};
    for (int i = 1; i < 5; i++) items[i] = (sched_item){.left = 1, .decoding = true};
    scheduler_measure(&s, 4, 0, 20000000);
    for (int pass = 0; pass < 20; pass++) {
        assert_true(scheduler_plan(&s, items, 5) % 8 != 1);
        scheduler_measure(&s, 4, items[0].share, (uint64_t)(20e6 + 14e6 * items[0].share));
    }
    assert_int_equal(items[0].share, 4);
}

/* A pass that went on without its prompts: the next holds half as many tokens at most, and after one that was in time as many as before can be tried. */
static void test_less_after_a_late_pass(void **state) {
    (void)state;
    scheduler s;
    scheduler_init(&s, 512, STEPS, 100000000);
    sched_item items[5];
    list_some(items, 4, 1, 4000);
    scheduler_measure(&s, 4, 0, 38000000);
    for (int pass = 0; pass < 12; pass++) {
        scheduler_plan(&s, items, 5);
        scheduler_measure(&s, 4, items[4].share, (uint64_t)(38e6 + 4e6 * items[4].share));
    }
    const int usual = items[4].share;
    assert_true(usual >= 10);
    assert_true(fabs(scheduler_expect_ns(&s, 4, usual) - (38e6 + 4e6 * usual)) < 4e6);
    assert_true(scheduler_expect_ns(&s, 3, usual) == 0); /* nobody knows */
    assert_true(scheduler_latest_ns(&s, 4) > 89000000 && scheduler_latest_ns(&s, 4) < 91000000);
    for (int n = usual; n > 1; n = items[4].share) {
        scheduler_measure_late(&s, 4, n, 120000000);
        scheduler_plan(&s, items, 5);
        assert_true(items[4].share >= 1 && items[4].share <= n / 2);
    }
    int passes = 0;
    for (; items[4].share < usual && passes < 60; passes++) {
        scheduler_measure(&s, 4, items[4].share, (uint64_t)(38e6 + 4e6 * items[4].share));
        scheduler_plan(&s, items, 5);
    }
    assert_true(passes < 60);
}

/* Streams that take longer than they may by themselves are not waited for in vain: a prompt may take its part. */
static void test_latest_beside_slow_streams(void **state) {
    (void)state;
    for (double alone = 1e6; alone < 500e6; alone *= 1.3) {
        scheduler s;
        scheduler_init(&s, 512, STEPS, 100000000);
        scheduler_measure(&s, 2, 0, (uint64_t)alone);
        const double latest = (double)scheduler_latest_ns(&s, 2);
        assert_true(latest >= alone * 13 / 12 - 3 && (latest < 100e6 || latest <= alone * 1.25));
    }
}

/* ---- prompts apart from streams ---- */

static const double LIMIT = 100e6;

/* Where many tokens share a price, more of them are read at once: on a machine where a pass costs 150 ms and 2.4 for each token, not 16 at 12 ms each; fewer where streams leave hardly more than is spared. */
static void test_shared_prices(void **state) {
    (void)state;
    uint64_t seed = test_seed();
    scheduler s;
    scheduler_init(&s, 512, STEPS, 100000000);
    for (int i = 0; i < 10; i++) {
        const int n = 40 + (int)(rng_next(&seed) % 400);
        scheduler_measure(&s, 0, n, (uint64_t)(150e6 + 2.4e6 * n));
    }
    sched_item items[5] = {{.left = 4000}};
    for (int i = 1; i < 5; i++) items[i] = (sched_item){.left = 1, .decoding = true};
    for (double alone = 60e6; alone < 90e6; alone += 5e6) {
        for (int i = 0; i < 20; i++) scheduler_measure(&s, 4, 0, (uint64_t)alone);
        while (scheduler_plan(&s, items, 5) > 4) scheduler_measure(&s, 4, items[0].share, (uint64_t)(alone + 9e6 * items[0].share));
        const int n = scheduler_plan_apart(&s, items, 5);
        assert_true(n >= (alone > 80e6 ? 40 : 80) && n <= 160);
    }
}

/* A scheduler that was told what one stream alone takes, a token beside it, and one of many. */
static scheduler told(double alone, double beside, double many) {
    scheduler s;
    sched_item items[2];
    list_some(items, 1, 1, 4000);
    scheduler_init(&s, 512, STEPS, (uint64_t)LIMIT);
    scheduler_measure(&s, 0, 300, (uint64_t)(300 * many));
    scheduler_measure(&s, 1, 0, (uint64_t)alone);
    for (int i = 0; i < 4 && scheduler_plan(&s, items, 2) > 1; i++) scheduler_measure(&s, 1, items[1].share, (uint64_t)(alone + beside * items[1].share));
    return s;
}

/* The cheaper way is taken, and both are never under way at once. */
static void test_the_cheaper_way(void **state) {
    (void)state;
    sched_item items[5];
    for (int apart = 0; apart < 2; apart++) {
        scheduler s = told(20e6, 4e6, apart ? 1e6 : 4e6);
        list_some(items, 1, 2, 4000);
        assert_int_equal(scheduler_plan(&s, items, 3) == 1, apart);
        const int n = scheduler_plan_apart(&s, items, 3);
        assert_int_equal(n > 0, apart);
        assert_true(items[0].share == 0 && items[1].share + items[2].share == n);
        if (!apart) continue;
        items[1].reading = items[2].reading = true;
        assert_int_equal(scheduler_plan(&s, items, 3), 1);
        assert_int_equal(scheduler_plan_apart(&s, items, 3), 0);
        list_some(items, 1, 1, 10); /* a few are read with the streams, after these had a pass for themselves */
        assert_int_equal(scheduler_plan(&s, items, 2), 1);
        assert_true(scheduler_plan(&s, items, 2) > 1);
        assert_int_equal(scheduler_plan_apart(&s, items, 2), 0);
        list_some(items, 3, 1, 4000); /* beside more streams it is tried again */
        assert_true(scheduler_plan(&s, items, 4) > 3);
        list_some(items, 0, 1, 4000); /* without streams there is nothing to be apart from */
        assert_int_equal(scheduler_plan(&s, items, 1), 512);
        assert_int_equal(scheduler_plan_apart(&s, items, 1), 0);
        list_some(items, 1, 1, 4000);
        const int usual = scheduler_plan_apart(&s, items, 2);
        for (int more = 1; more <= usual; more++) { /* a few more than usual are not left for a pass with streams, nor are more in one that is hardly worth it */
            list_some(items, 1, 1, (size_t)(usual + more));
            const int now = scheduler_plan_apart(&s, items, 2), then = usual + more - now;
            assert_true(more <= 16 ? then == 0 : now <= usual && then <= now && then > now - 32);
        }
        assert_int_equal(scheduler_plan(&s, items, 2), 1); /* the streams' turn */
        for (int i = 0; i < 20; i++) scheduler_measure(&s, 0, 300, (uint64_t)(300 * 4e6)); /* it has become dearer */
        list_some(items, 1, 1, 4000);
        assert_int_equal(scheduler_plan_apart(&s, items, 2), 0);
        assert_true(scheduler_plan(&s, items, 2) > 1);
    }
}

/* Passes together that keep what their line promises go on; where every second comes late, and what it held is lost, prompts are soon read apart. */
static void test_promises_that_are_not_kept(void **state) {
    (void)state;
    for (int late = 0; late < 2; late++) {
        scheduler s;
        scheduler_init(&s, 512, STEPS, (uint64_t)LIMIT);
        scheduler_measure(&s, 0, 300, (uint64_t)(300 * 1.8e6));
        scheduler_measure(&s, 4, 0, 50000000);
        sched_item items[5];
        list_some(items, 4, 1, 4000);
        int pass = 0;
        for (; pass < 30 && scheduler_plan(&s, items, 5) > 4; pass++) {
            const int n = items[4].share;
            const uint64_t ns = (uint64_t)(62e6 + 1.2e6 * n);
            if (late && pass % 2) scheduler_measure_late(&s, 4, n, ns);
            else scheduler_measure(&s, 4, n, ns);
        }
        assert_true(late ? pass < 15 && scheduler_plan_apart(&s, items, 5) > 0 : pass == 30);
    }
}

/* A pass apart holds many tokens where there is time, but does not take too long, and several of its steps fit between two passes of streams. */
static void test_passes_apart_fit(void **state) {
    (void)state;
    for (double many = 1e3; many < 100e6; many *= 1.5)
        for (double alone = 1e6; alone < 300e6; alone *= 1.5) {
            scheduler s = told(alone, 1e3 * many, many);
            sched_item items[2];
            list_some(items, 1, 1, 4000);
            const double rest = (double)scheduler_rest_ns(&s, 1), n = scheduler_plan_apart(&s, items, 2);
            assert_true(rest >= alone / 12 - 1);                        /* prompts always move on */
            assert_true(rest <= alone / 12 || (alone > 0.94 * LIMIT ? rest <= alone / 4 : rest + alone < LIMIT)); /* and else leave streams their time */
            assert_true(n >= 32 && (n == 32 || (n * many <= 0.5e9 && n * many / STEPS <= rest / 2)));
            for (double other = 48; other <= 512; other += 16) /* no other size would be better */
                if (n * many < 0.5e9 && other * many < 0.5e9 && other * many / STEPS <= rest / 2) assert_true((rest * STEPS / (n * many) - 0.75) * n >= (rest * STEPS / (other * many) - 0.75) * other - 1e-6);
        }
}

/* A machine on which streams grow slower while a long prompt is read apart, whose tokens grow dearer, and on which everything varies: hardly a stream waits longer than the limit, and the time
 * that is there is used. */
static void test_streams_keep_their_pace(void **state) {
    (void)state;
    uint64_t seed = test_seed();
    for (int machine = 0; machine < 40; machine++) {
        const double own = 1e6 + 65e6 * rng_double(&seed), each = 5e3 * pow(2000, rng_double(&seed)), noise = 0.04 * rng_double(&seed);
        scheduler s = told(own, 100 * each, each);
        double used = 0, in_pass = 0, step = 0;
        int chunk = 0, steps = 0, read = 0, late = 0, rounds = 0;
        for (; read < 4000 && rounds < 20000; rounds++) {
            const double depth = read / 4000.0, streams = own * (1 + fmin(0.2, 2e-4 * rounds)) * (1 + noise * (2 * rng_double(&seed) - 1));
            late += used + streams > LIMIT && rounds > 0;
            scheduler_measure(&s, 1, 0, (uint64_t)streams);
            const double rest = (double)scheduler_rest_ns(&s, 1);
            used = 0;
            do { /* as the loop does */
                if (chunk == 0) {
                    sched_item items[2];
                    list_some(items, 1, 1, 4000);
                    chunk = scheduler_plan_apart(&s, items, 2);
                    assert_true(chunk >= 32 && chunk % 16 == 0);
                    step = (double)scheduler_step_ns(&s, chunk);
                }
                if (used > 0 && used + step > rest) break;
                step = each * (1 + depth) * chunk / STEPS * (1 + noise * (2 * rng_double(&seed) - 1));
                used += step;
                in_pass += step;
                if (++steps < STEPS) continue;
                scheduler_measure(&s, 0, chunk, (uint64_t)in_pass);
                read += chunk;
                chunk = steps = 0, in_pass = 0;
            } while (read < 4000);
            assert_true(used >= 0.5 * rest || chunk == 32 || read >= 4000);
        }
        assert_true(read >= 4000);
        if (late * 100 > rounds) fail_msg("%d of %d passes came late with streams of %.0f ms, tokens of %.3f ms and %.1f %% noise", late, rounds, own * 1e-6, each * 1e-6, 100 * noise);
    }
}

/* What is known of other numbers of streams serves until their own is; streams that vary get more time. */
static void test_streams_are_learned(void **state) {
    (void)state;
    scheduler s;
    scheduler_init(&s, 512, STEPS, (uint64_t)LIMIT);
    scheduler_measure(&s, 2, 0, 30000000);
    assert_true(scheduler_rest_ns(&s, 4) == scheduler_rest_ns(&s, 2) && scheduler_rest_ns(&s, 1) == scheduler_rest_ns(&s, 2));
    scheduler_measure(&s, 4, 0, 60000000);
    assert_true(scheduler_rest_ns(&s, 4) < scheduler_rest_ns(&s, 2) && scheduler_rest_ns(&s, 1000) == scheduler_rest_ns(&s, 4));
    const uint64_t steady = scheduler_rest_ns(&s, 2);
    for (int i = 0; i < 40; i++) scheduler_measure(&s, 2, 0, i % 2 ? 35000000 : 25000000);
    assert_true(scheduler_rest_ns(&s, 2) < steady - 5000000);
    for (int i = 0; i < 100; i++) scheduler_measure(&s, 2, 0, 10000000);
    assert_true(scheduler_rest_ns(&s, 2) > 69000000);
}

/* Beside streams that do not vary a fifth of the limit is left for what may happen, or half of what there is. */
static void test_time_is_spared(void **state) {
    (void)state;
    for (double alone = 10e6; alone <= 90e6; alone += 10e6) {
        scheduler s;
        scheduler_init(&s, 512, STEPS, (uint64_t)LIMIT);
        for (int i = 0; i < 100; i++) scheduler_measure(&s, 2, 0, (uint64_t)alone);
        const double rest = (double)scheduler_rest_ns(&s, 2), least = alone / 12;
        assert_true(fabs(rest - fmax(least, alone < 60e6 ? 0.8 * LIMIT - alone : (LIMIT - alone) / 2)) < 1e3);
    }
}

static void test_who_starts_next(void **state) {
    (void)state;
    sched_waiting w[4] = {{.order = 5}, {.order = 2, .agent_running = 3}, {.order = 9, .priority = 1, .held = true}, {.order = 7}};
    assert_int_equal(scheduler_next(w, 4), 0);
    w[0].agent_running = 4;
    assert_int_equal(scheduler_next(w, 4), 3);
    w[2].held = false;
    assert_int_equal(scheduler_next(w, 4), 2);
    assert_int_equal(scheduler_next(w, 0), -1);
}

/* ---- the loop ---- */

/* Exact: the same bits in any company. Fast: where that does not matter. Forgetful: exact, and remembers nothing. */
static hearth_engine *engine, *exact, *fast, *forgetful;

static hearth_engine *open_with(const char *cpu, uint64_t kv_memory, const char *store_dir) {
    err e = {0};
    hearth_engine_options o = hearth_engine_defaults();
    o.cache = false;
    o.cpu = cpu;
    o.kv_memory = kv_memory;
    o.store = store_dir != NULL;
    o.store_dir = store_dir;
    hearth_engine *en = hearth_engine_open("models/ember-30m-q8_0.gguf", &o, &e);
    if (!en) print_error("%s\n", e.text);
    return en;
}

static int open_engine(void **state) {
    (void)state;
    fast = open_with(NULL, HEARTH_AUTO, NULL);
    exact = open_with(exact_cpu(), HEARTH_AUTO, NULL);
    forgetful = open_with(exact_cpu(), 0, NULL);
    return fast && exact && forgetful ? 0 : -1;
}
static int close_engine(void **state) {
    (void)state;
    hearth_engine_close(exact);
    hearth_engine_close(fast);
    hearth_engine_close(forgetful);
    return 0;
}
static bool always_apart; /* prompts are never read together with streams */

static int use(hearth_engine *en, bool apart) {
    engine = en;
    always_apart = apart;
    return 0;
}
static int use_exact(void **state) { return (void)state, use(exact, false); }
static int use_apart(void **state) { return (void)state, use(exact, true); }
static int use_fast(void **state) { return (void)state, use(fast, false); }

static loop *loop_of(int running, int queue) {
    err e = {0};
    loop_options o = loop_defaults();
    o.max_running = running;
    o.max_queue = queue;
    loop *l = loop_new(engine, &o, &e);
    assert_non_null(l);
    l->sched.always_apart = always_apart;
    return l;
}

typedef struct prompt {
    int32_t tokens[1024];
    size_t n;
} prompt;

static prompt asked(const char *question) {
    char text[4096];
    prompt p;
    snprintf(text, sizeof text, "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n", question);
    int64_t n = hearth_tokenize(engine, text, strlen(text), HEARTH_PARSE_SPECIAL, p.tokens, 1024, NULL);
    assert_true(n > 0 && n <= 1024);
    p.n = (size_t)n;
    return p;
}

static loop_request request_of(const prompt *p, int max_tokens) {
    loop_request r = loop_request_defaults();
    r.tokens = p->tokens;
    r.n_tokens = p->n;
    r.max_tokens = max_tokens;
    r.sampler.temperature = 0;
    return r;
}

/* The whole answer of each choice; the status is the last news. */
static loop_news collect(loop_ticket *t, buf *texts, loop_finish *finish) {
    for (;;) {
        loop_piece p;
        err e = {0};
        loop_news news = loop_next(t, 120000000000u, &p, &e);
        if (news != LOOP_PIECE) return news;
        assert_true(buf_add(&texts[p.choice], p.text, p.len, NULL));
        if (finish) finish[p.choice] = p.finish;
    }
}

/* What a session of that engine makes of it, alone. */
static bool keep_text(void *user, const char *text, size_t len) { return buf_add(user, text, len, NULL); }
static buf alone(hearth_engine *en, const prompt *p, int max_tokens) {
    err e = {0};
    buf text = {0};
    hearth_sampler_options so = hearth_sampler_defaults();
    so.temperature = 0;
    hearth_session *s = hearth_session_new(en, &e);
    hearth_sampler *sampler = hearth_sampler_new(en, &so, &e);
    hearth_generate_options o = hearth_generate_defaults();
    o.max_tokens = max_tokens;
    o.on_text = keep_text;
    o.user = &text;
    assert_true(s && sampler && hearth_session_append(s, p->tokens, p->n, &e) && hearth_generate(s, sampler, &o, NULL, &e));
    hearth_sampler_free(sampler);
    hearth_session_free(s);
    assert_true(buf_addc(&text, 0, NULL));
    text.len--;
    return text;
}

static const char *const questions[] = {"Hello! Who are you?", "My name is Ada. What is my name?", "Spell lamp.", "Tell me a story about a dog.",
                                        "I live in Turin. Where do I live?", "What is a book?", "Do you like music?", "Good morning!"};
enum { N_QUESTIONS = 6 };

static void check_together(loop *l) {
    enum { TOKENS = 5 };
    loop_ticket *t[N_QUESTIONS];
    prompt p[N_QUESTIONS];
    for (int i = 0; i < N_QUESTIONS; i++) {
        p[i] = asked(questions[i]);
        loop_request r = request_of(&p[i], TOKENS);
        r.owner = (uint64_t)i;
        assert_non_null(t[i] = loop_submit(l, &r, NULL));
    }
    for (int i = 0; i < N_QUESTIONS; i++) {
        buf text = {0}, expected = alone(forgetful, &p[i], TOKENS);
        assert_int_equal(collect(t[i], &text, NULL), LOOP_DONE);
        assert_true(buf_addc(&text, 0, NULL));
        assert_string_equal(text.data, expected.data);
        loop_usage u = loop_ticket_usage(t[i]);
        assert_int_equal(u.prompt_tokens, p[i].n);
        assert_true(u.completion_tokens > 0 && u.completion_tokens <= TOKENS && u.first_ns > 0 && u.total_ns >= u.first_ns);
        loop_ticket_free(t[i]);
        buf_free(&text);
        buf_free(&expected);
    }
}

static void test_company_changes_nothing(void **state) {
    (void)state;
    loop *l = loop_of(8, 8);
    check_together(l);
    loop_stats s = loop_count(l);
    assert_int_equal(s.requests, N_QUESTIONS);
    assert_int_equal(s.finished, N_QUESTIONS);
    assert_int_equal(s.running + s.waiting, 0);
    loop_free(l);
}

/* A clock on which every look takes a millisecond. */
static uint64_t count_looks(void *user) { return 1000000 * (1 + atomic_fetch_add((atomic_ullong *)user, 1)); }

static size_t count_words(const buf *text, const char *word) {
    size_t n = 0;
    for (const char *p = text->data; (p = strstr(p, word)); p++) n++;
    return n;
}

/* Said so often that it has n tokens. */
static prompt lengthened(prompt p, size_t n) {
    for (size_t i = 0; p.n < n; i++) p.tokens[p.n++] = p.tokens[i];
    return p;
}

/* A prompt joins a stream on a machine that has no time for prompts, and another that leaves after so many microseconds. */
static void join_in_pieces(const prompt *joining, const char *expected, const char *tenant, unsigned leaves_us) {
    err e = {0};
    char path[200];
    snprintf(path, sizeof path, "%s/pieces", temp_dir());
    atomic_ullong looks = 0;
    loop_options lo = loop_defaults();
    lo.max_stall_ns = 1;
    lo.now = count_looks;
    lo.now_user = &looks;
    lo.trace = trace_open(path, &e);
    loop *l = loop_new(exact, &lo, &e);
    assert_true(lo.trace && l);
    prompt first = lengthened(asked(questions[3]), 300), leaving = lengthened(asked(questions[2]), 90);
    loop_request r = request_of(&first, 400), joins = request_of(joining, 6), leaves = request_of(&leaving, 6);
    r.ignore_end = true;
    r.tenant = joins.tenant = leaves.tenant = tenant; /* nothing is known of them */
    loop_ticket *stream = loop_submit(l, &r, &e);
    loop_piece piece;
    assert_int_equal(loop_next(stream, 60000000000u, &piece, &e), LOOP_PIECE); /* it runs */
    loop_ticket *t = loop_submit(l, &joins, &e), *other = loop_submit(l, &leaves, &e);
    assert_true(t && other);
    usleep(leaves_us);
    loop_ticket_free(other);
    buf text = {0};
    assert_int_equal(collect(t, &text, NULL), LOOP_DONE);
    assert_true(buf_addc(&text, 0, NULL));
    assert_string_equal(text.data, expected);
    loop_ticket_free(t);
    loop_ticket_free(stream);
    loop_free(l);
    assert_true(trace_close(lo.trace, &e));
    buf_free(&text);
    text = slurp(path);
    assert_true(count_words(&text, "\napart ") >= 1 && count_words(&text, "\npiece ") > 8);
    trace_report report;
    assert_true(trace_replay(text.data, text.len, &report, &e));
    assert_int_equal(report.differ, 0);
    buf_free(&text);
}

/* Answers are those of prompts that are read at once, and a request that leaves half-way disturbs nobody. */
static void test_prompts_are_read_in_pieces(void **state) {
    (void)state;
    prompt p = lengthened(asked(questions[1]), 120);
    buf expected = alone(forgetful, &p, 6);
    for (unsigned i = 0; i < 6; i++) join_in_pieces(&p, expected.data, (const char *const[]){"a", "b", "c", "d", "e", "f"}[i], 500 * i);
    buf_free(&expected);
}

/* A clock on which every look takes a millisecond, and every so many of them the machine stands still. */
typedef struct halting_clock {
    atomic_ullong looks;
    unsigned every;
} halting_clock;

static uint64_t look_and_halt(void *user) {
    halting_clock *c = user;
    const uint64_t look = 1 + atomic_fetch_add(&c->looks, 1);
    return 1000000 * (look + 95 * (look / c->every));
}

/* How often a pass went on without its prompts while one joined a stream. */
static size_t times_late(unsigned every, const char *tenant) {
    err e = {0};
    char path[200];
    snprintf(path, sizeof path, "%s/late", temp_dir());
    halting_clock clock = {.every = every};
    loop_options lo = loop_defaults();
    lo.now = look_and_halt;
    lo.now_user = &clock;
    lo.trace = trace_open(path, &e);
    loop *l = loop_new(exact, &lo, &e);
    assert_true(lo.trace && l);
    prompt p[2] = {asked(questions[3]), lengthened(asked(questions[1]), 400)};
    loop_request r[2];
    for (int i = 0; i < 2; i++) {
        r[i] = request_of(&p[i], i ? 6 : 400);
        r[i].ignore_end = true;
        r[i].tenant = tenant; /* nothing is known of them */
    }
    loop_piece piece;
    loop_ticket *stream = loop_submit(l, &r[0], &e);
    assert_int_equal(loop_next(stream, 60000000000u, &piece, &e), LOOP_PIECE); /* it runs */
    buf text = {0}, expected = alone(forgetful, &p[1], 6);
    for (int i = 0; i < 8; i++) { /* from the second time on all but its last token is remembered */
        loop_ticket *t = loop_submit(l, &r[1], &e);
        text.len = 0;
        assert_int_equal(collect(t, &text, NULL), LOOP_DONE);
        assert_true(text.len >= expected.len && memcmp(text.data, expected.data, expected.len) == 0);
        loop_ticket_free(t);
    }
    buf_free(&text), buf_free(&expected);
    loop_ticket_free(stream);
    const uint64_t late = loop_count(l).late;
    loop_free(l);
    assert_true(trace_close(lo.trace, &e));
    text = slurp(path);
    trace_report report;
    if (!trace_replay(text.data, text.len, &report, &e)) fail_msg("%s", e.text);
    assert_int_equal(report.differ, 0);
    assert_int_equal(count_words(&text, "\nlate "), late);
    buf_free(&text);
    return late;
}

/* A pass that would keep streams waiting too long goes on without its prompts; these are read all the same, and no answer changes. */
static void test_passes_that_come_late(void **state) {
    (void)state;
    assert_int_equal(times_late(1000000, "never"), 0);
    size_t late = 0;
    for (unsigned every = 11; every < 60; every += 12) late += times_late(every, (const char *const[]){"a", "b", "c", "d", "e"}[every / 12]);
    assert_true(late > 0);
}

/* Somebody who comes when the loop's thread has taken in what came, and before it computes. */
typedef struct visitor {
    loop *l;
    loop_request r;
    loop_ticket *ticket;
    atomic_int looks;
} visitor;

static uint64_t look_and_come(void *user) {
    visitor *v = user;
    const int look = atomic_fetch_add(&v->looks, 1); /* the first is of who submits, the second the thread's */
    if (look == 1) v->ticket = loop_submit(v->l, &v->r, NULL);
    return 1000u * (1 + (uint64_t)look);
}

/* How often a pass was given up while one who comes late is served with the first. */
static size_t times_given_up(const prompt *p, const prompt *late, const char *tenant) {
    err e = {0};
    char path[200];
    snprintf(path, sizeof path, "%s/visit", temp_dir());
    visitor v = {.r = request_of(late, 4)};
    loop_options lo = loop_defaults();
    lo.now = look_and_come;
    lo.now_user = &v;
    lo.trace = trace_open(path, &e);
    v.l = loop_new(exact, &lo, &e);
    assert_true(lo.trace && v.l);
    loop_request r = request_of(p, 4);
    r.tenant = v.r.tenant = tenant; /* nothing is known of them */
    loop_ticket *t = loop_submit(v.l, &r, &e);
    const prompt *of[2] = {p, late};
    for (int i = 0; i < 2; i++) {
        buf text = {0}, expected = alone(forgetful, of[i], 4);
        loop_ticket *asked_of = i ? v.ticket : t;
        assert_non_null(asked_of);
        assert_int_equal(collect(asked_of, &text, NULL), LOOP_DONE);
        assert_true(buf_addc(&text, 0, NULL));
        assert_string_equal(text.data, expected.data);
        buf_free(&text), buf_free(&expected);
        loop_ticket_free(asked_of);
    }
    loop_free(v.l);
    assert_true(trace_close(lo.trace, &e));
    buf text = slurp(path);
    trace_report report;
    assert_true(trace_replay(text.data, text.len, &report, &e));
    assert_int_equal(report.differ, 0);
    size_t n = 0;
    for (const char *at = text.data; (at = strstr(at, "\npass ")) != NULL;) {
        at += 6;
        n += strncmp(strchr(at, ' '), " 0 ", 3) == 0;
    }
    buf_free(&text);
    return n;
}

/* Who comes when a pass of prompts has hardly begun is read in it, but not where it would wait for what that pass computes, or finds no room in it. */
static void test_who_comes_just_behind(void **state) {
    (void)state;
    prompt p = lengthened(asked(questions[0]), 100), other = lengthened(asked(questions[1]), 100), full = lengthened(asked(questions[2]), 600);
    assert_int_equal(times_given_up(&p, &other, "other"), 1);
    assert_int_equal(times_given_up(&p, &p, "same"), 0);
    assert_int_equal(times_given_up(&full, &other, "full"), 0);
}

/* Too little memory for all: some are sent back and go on later, none fails, no answer changes. */
static void test_little_memory(void **state) {
    (void)state;
    const uint64_t budgets[] = {hearth_engine_info(exact).kv_bytes_per_token * 64 * 5, 0};
    for (int i = 0; i < 2; i++) {
        engine = budgets[i] ? open_with(exact_cpu(), budgets[i], NULL) : forgetful;
        loop *l = loop_of(8, 8);
        check_together(l);
        assert_int_equal(loop_count(l).failed, 0);
        loop_free(l);
        if (engine != forgetful) hearth_engine_close(engine);
    }
}

static void test_prefixes_are_remembered(void **state) {
    (void)state;
    loop *l = loop_of(4, 4);
    prompt p = asked(questions[0]);
    buf first = {0}, second = {0};
    loop_request r = request_of(&p, 8);
    loop_ticket *t = loop_submit(l, &r, NULL);
    assert_int_equal(collect(t, &first, NULL), LOOP_DONE);
    loop_ticket_free(t);
    t = loop_submit(l, &r, NULL);
    assert_int_equal(collect(t, &second, NULL), LOOP_DONE);
    assert_int_equal(loop_ticket_usage(t).cached_tokens, p.n - 1);
    assert_int_equal(first.len, second.len);
    assert_memory_equal(first.data, second.data, first.len);
    loop_ticket_free(t);
    /* The next turn holds the answer too: all but the new words is there. */
    prompt next = p;
    int64_t n = hearth_tokenize(engine, first.data, first.len, 0, next.tokens + next.n, 200, NULL);
    next.n += (size_t)n;
    size_t before = next.n;
    n = hearth_tokenize(engine, "<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n", 66, HEARTH_PARSE_SPECIAL, next.tokens + next.n, 200, NULL);
    next.n += (size_t)n;
    r = request_of(&next, 4);
    t = loop_submit(l, &r, NULL);
    second.len = 0;
    assert_int_equal(collect(t, &second, NULL), LOOP_DONE);
    assert_true((size_t)loop_ticket_usage(t).cached_tokens + 1 >= before);
    loop_ticket_free(t);
    assert_true(loop_count(l).hits >= 2);
    buf_free(&first);
    buf_free(&second);
    loop_free(l);
}

static void test_several_answers(void **state) {
    (void)state;
    loop *l = loop_of(4, 8);
    prompt p = asked(questions[3]);
    loop_request r = request_of(&p, 6);
    r.n = 4;
    r.n_logprobs = 2;
    r.sampler.temperature = 1.2f;
    r.sampler.seed = 11;
    buf texts[4] = {0}, again[4] = {0};
    loop_finish finish[4];
    loop_ticket *t = loop_submit(l, &r, NULL);
    assert_int_equal(collect(t, texts, finish), LOOP_DONE);
    assert_int_equal(loop_ticket_usage(t).prompt_tokens, p.n);
    loop_ticket_free(t);
    t = loop_submit(l, &r, NULL);
    assert_int_equal(collect(t, again, NULL), LOOP_DONE);
    loop_ticket_free(t);
    bool differ = false;
    for (int i = 0; i < 4; i++) {
        assert_true(finish[i] != LOOP_RUNNING);
        assert_int_equal(texts[i].len, again[i].len);
        assert_memory_equal(texts[i].data, again[i].data, texts[i].len);
        differ |= texts[i].len != texts[0].len || memcmp(texts[i].data, texts[0].data, texts[0].len) != 0;
    }
    assert_true(differ);
    for (int i = 0; i < 4; i++) buf_free(&texts[i]), buf_free(&again[i]);
    loop_free(l);
}

static void test_stop_strings_and_pieces(void **state) {
    (void)state;
    loop *l = loop_of(2, 2);
    prompt p = asked(questions[0]);
    loop_request r = request_of(&p, 30);
    const char *const stop[] = {"little", NULL};
    r.stop = stop;
    r.n_logprobs = 1;
    loop_ticket *t = loop_submit(l, &r, NULL);
    buf text = {0};
    loop_piece piece;
    loop_news news;
    size_t tokens = 0;
    const char *found = NULL;
    while ((news = loop_next(t, 20000000000u, &piece, NULL)) == LOOP_PIECE) {
        assert_true(buf_add(&text, piece.text, piece.len, NULL));
        for (size_t i = 0; i < piece.n_tokens; i++) assert_true(piece.tokens[i].logprob <= 0 && piece.tokens[i].top[0].logprob >= piece.tokens[i].logprob);
        tokens += piece.n_tokens;
        if (piece.finish == LOOP_STOP) found = piece.stop;
    }
    assert_int_equal(news, LOOP_DONE);
    assert_true(buf_addc(&text, 0, NULL));
    assert_null(strstr(text.data, "little"));
    assert_non_null(found);
    assert_string_equal(found, "little");
    assert_true(tokens > 0);
    loop_ticket_free(t);
    buf_free(&text);
    loop_free(l);
}

static void test_queue_has_a_bound(void **state) {
    (void)state;
    loop *l = loop_of(1, 2);
    prompt p = asked(questions[3]);
    loop_request r = request_of(&p, 400);
    r.ignore_end = true;
    loop_ticket *t[8] = {0};
    err e = {0};
    int n = 0;
    while (n < 8 && (t[n] = loop_submit(l, &r, &e))) n++;
    assert_int_equal(n, 3);
    assert_int_equal(e.code, HEARTH_LIMIT);
    assert_true(loop_retry_s(l) >= 1);
    assert_int_equal(loop_count(l).refused, 1);
    /* Those who leave make room. */
    for (int i = 0; i < n; i++) loop_ticket_free(t[i]);
    uint64_t until = clock_ns() + 20000000000u;
    while (loop_count(l).running + loop_count(l).waiting > 0 && clock_ns() < until) usleep(1000);
    assert_int_equal(loop_count(l).cancelled, 3);
    r.max_tokens = 2;
    t[0] = loop_submit(l, &r, &e);
    buf text = {0};
    assert_int_equal(collect(t[0], &text, NULL), LOOP_DONE);
    loop_ticket_free(t[0]);
    buf_free(&text);
    loop_free(l);
}

static uint64_t slow_clock(void *user) { return atomic_fetch_add((_Atomic uint64_t *)user, 1000000000u); }

static void test_time_limits(void **state) {
    (void)state;
    err e = {0};
    _Atomic uint64_t now = 0;
    loop_options o = loop_defaults();
    o.now = slow_clock; /* every look at the clock is a second later */
    o.now_user = &now;
    loop *l = loop_new(engine, &o, &e);
    prompt p = asked(questions[3]);
    loop_request r = request_of(&p, 1000);
    r.ignore_end = true;
    r.limit_ns = 30000000000u;
    loop_ticket *t = loop_submit(l, &r, &e);
    loop_piece piece;
    loop_news news;
    while ((news = loop_next(t, 20000000000u, &piece, &e)) == LOOP_PIECE) {}
    assert_int_equal(news, LOOP_FAILED);
    assert_int_equal(e.code, HEARTH_LIMIT);
    assert_non_null(strstr(e.text, "30 s"));
    loop_ticket_free(t);
    loop_free(l);
}

static void test_wrong_requests(void **state) {
    (void)state;
    loop *l = loop_of(2, 2);
    static int32_t many[4096];
    loop_request r = loop_request_defaults();
    err e = {0};
    r.tokens = many;
    assert_null(loop_submit(l, &r, &e)); /* empty */
    assert_int_equal(e.code, HEARTH_ARGUMENT);
    r.n_tokens = 4096;
    e = (err){0};
    assert_null(loop_submit(l, &r, &e)); /* too long */
    assert_int_equal(e.code, HEARTH_ARGUMENT);
    many[0] = 1 << 30;
    r.n_tokens = 1;
    assert_null(loop_submit(l, &r, NULL));
    many[0] = 5;
    r.n = 3;
    assert_null(loop_submit(l, &r, NULL));
    r.n = 1;
    r.sampler.top_p = 7;
    assert_null(loop_submit(l, &r, NULL));
    loop_free(l);
}

/* Ends with requests in every state: all are told. */
static void test_end_tells_everyone(void **state) {
    (void)state;
    loop *l = loop_of(2, 8);
    prompt p = asked(questions[3]);
    loop_request r = request_of(&p, 1000);
    r.ignore_end = true;
    loop_ticket *t[6];
    for (int i = 0; i < 6; i++) assert_non_null(t[i] = loop_submit(l, &r, NULL));
    loop_drain(l, 1000000);
    err e = {0};
    assert_null(loop_submit(l, &r, &e));
    assert_int_equal(e.code, HEARTH_CANCELLED);
    loop_end(l);
    for (int i = 0; i < 6; i++) {
        loop_piece piece;
        loop_news news;
        while ((news = loop_next(t[i], 1000000000u, &piece, &e)) == LOOP_PIECE) {}
        assert_int_equal(news, LOOP_FAILED);
        assert_int_equal(e.code, HEARTH_CANCELLED);
        loop_ticket_free(t[i]);
    }
    loop_free(l);
}

/* Every allocation in turn fails: an error or the right answer, never a crash or a hang. */
static void test_no_memory(void **state) {
    (void)state;
    prompt p = asked("Hello!");
    loop_request r = request_of(&p, 3);
    buf expected = alone(engine, &p, 3);
    int failed = 0;
    for (long nth = 1; nth < 40; nth++) {
        loop *l = loop_of(2, 2);
        mem_fail_nth(nth);
        err e = {0};
        loop_ticket *t = loop_submit(l, &r, &e);
        loop_news news = LOOP_FAILED;
        buf text = {0};
        loop_piece piece;
        if (t) {
            while ((news = loop_next(t, 20000000000u, &piece, &e)) == LOOP_PIECE) {
                mem_fail_nth(0);
                assert_true(buf_add(&text, piece.text, piece.len, NULL));
            }
        }
        mem_fail_nth(0);
        assert_int_not_equal(news, LOOP_IDLE);
        if (news == LOOP_DONE) assert_true(text.len == expected.len && memcmp(text.data, expected.data, text.len) == 0);
        else assert_int_equal(e.code, HEARTH_MEMORY);
        failed += news != LOOP_DONE;
        buf_free(&text);
        loop_ticket_free(t);
        loop_free(l);
    }
    assert_true(failed > 0);
    buf_free(&expected);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode_comes_first),
        cmocka_unit_test(test_shares_are_fair),
        cmocka_unit_test(test_chunks_keep_the_pace),
        cmocka_unit_test(test_a_few_tokens),
        cmocka_unit_test(test_chunks_beside_slow_streams), cmocka_unit_test(test_streams_change), cmocka_unit_test(test_chunks_end_with_an_eight), cmocka_unit_test(test_less_after_a_late_pass), cmocka_unit_test(test_latest_beside_slow_streams),
        cmocka_unit_test(test_the_cheaper_way),
        cmocka_unit_test(test_promises_that_are_not_kept),
        cmocka_unit_test(test_shared_prices),
        cmocka_unit_test(test_passes_apart_fit),
        cmocka_unit_test(test_streams_keep_their_pace),
        cmocka_unit_test(test_streams_are_learned), cmocka_unit_test(test_time_is_spared),
        cmocka_unit_test(test_who_starts_next),
        cmocka_unit_test_setup(test_company_changes_nothing, use_exact),
        cmocka_unit_test_setup(test_company_changes_nothing, use_apart),
        cmocka_unit_test_setup(test_prompts_are_read_in_pieces, use_exact),
        cmocka_unit_test_setup(test_passes_that_come_late, use_exact),
        cmocka_unit_test_setup(test_who_comes_just_behind, use_exact),
        cmocka_unit_test_setup(test_little_memory, use_exact),
        cmocka_unit_test_setup(test_little_memory, use_apart),
        cmocka_unit_test_setup(test_prefixes_are_remembered, use_exact),
        cmocka_unit_test_setup(test_prefixes_are_remembered, use_apart),
        cmocka_unit_test_setup(test_several_answers, use_exact),
        cmocka_unit_test_setup(test_several_answers, use_apart),
        cmocka_unit_test_setup(test_stop_strings_and_pieces, use_fast),
        cmocka_unit_test_setup(test_queue_has_a_bound, use_fast),
        cmocka_unit_test_setup(test_time_limits, use_fast),
        cmocka_unit_test_setup(test_wrong_requests, use_fast),
        cmocka_unit_test_setup(test_end_tells_everyone, use_fast),
        cmocka_unit_test_setup(test_no_memory, use_fast),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
