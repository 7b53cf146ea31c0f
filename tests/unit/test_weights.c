/* The weight cache in memory: one budget, pinned while in use, scan-resistant, made once. */
#include "tools/support.h"

#include <pthread.h>

#include "tools/weights_kit.h"

static const kit_shape small = {.layers = 8, .per_layer = 4, .rows = 16, .seed = 1}; /* 32 matrices of 16 KiB, an output of 32 KiB */
enum { MATRIX = 16 * KIT_ROW, TOTAL = 32 * MATRIX + 2 * MATRIX };

static const char *model_path(const kit_shape *s, const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s.gguf", temp_dir(), name);
    if (access(path, R_OK) != 0) kit_write_model(path, s);
    return path;
}

static uint64_t test_time = 1000000000000u;
static uint64_t test_clock(void) { return test_time; }

typedef struct shared {
    kit *k;
    pthread_barrier_t *together;
    const void *got[64];
} shared;

static void *ask_for_all(void *arg) {
    shared *s = arg;
    pthread_barrier_wait(s->together);
    for (int i = 0; i < s->k->n; i++) {
        const kern_weight *m = weights_acquire(s->k->w, i);
        s->got[i] = m->packed;
        weights_release(s->k->w, m);
    }
    return NULL;
}

static void concurrent_first_uses_make_it_once(void **state) {
    (void)state;
    weights_options o = kit_options(TOTAL);
    o.preload = WEIGHTS_PRELOAD_NONE;
    kit k;
    kit_open(&k, model_path(&small, "small"), &o);
    atomic_store(&kit_packed, 0);
    atomic_store(&kit_slow_us, 200);
    enum { THREADS = 6 };
    pthread_t threads[THREADS];
    pthread_barrier_t together;
    pthread_barrier_init(&together, NULL, THREADS);
    static shared s[THREADS];
    for (int i = 0; i < THREADS; i++) {
        s[i] = (shared){.k = &k, .together = &together};
        pthread_create(&threads[i], NULL, ask_for_all, &s[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    atomic_store(&kit_slow_us, 0);
    assert_int_equal(atomic_load(&kit_packed), k.n);
    for (int t = 0; t < THREADS; t++)
        for (int i = 0; i < k.n; i++) {
            assert_non_null(s[t].got[i]);
            assert_ptr_equal(s[t].got[i], s[0].got[i]);
        }
    weights_stats st = weights_get_stats(k.w);
    assert_int_equal(st.requests, THREADS * k.n);
    assert_int_equal(st.hits + st.misses, st.requests);
    assert_true(st.misses >= (uint64_t)k.n);
    assert_int_equal(st.makes, k.n);
    assert_int_equal(st.used, TOTAL);
    weights_walk walk = {0};
    assert_int_equal(kit_pass(&k, &walk, true), k.n);
    kit_close(&k);
    pthread_barrier_destroy(&together);
}

static void preload_makes_what_it_says(void **state) {
    (void)state;
    for (int p = WEIGHTS_PRELOAD_NONE; p <= WEIGHTS_PRELOAD_ALL; p++) {
        weights_options o = kit_options(TOTAL);
        o.preload = (weights_preload)p;
        kit k;
        kit_open(&k, model_path(&small, "small"), &o);
        weights_stats st = weights_get_stats(k.w);
        /* critical: the output and the first quarter of eight layers */
        const int want[] = {0, 2 * 4 + 1, 33};
        assert_int_equal(st.preloaded, want[p]);
        assert_int_equal(st.ready, want[p]);
        weights_walk walk = {0};
        assert_int_equal(kit_pass(&k, &walk, true), k.n);
        st = weights_get_stats(k.w);
        assert_int_equal(st.misses, k.n - want[p]);
        assert_int_equal(st.lost, 0);
        assert_string_equal(weights_self_check(k.w), "");
        kit_close(&k);
    }
}

static void a_circle_that_does_not_fit_is_hit_in_proportion(void **state) {
    (void)state;
    for (int lru = 0; lru <= 1; lru++) {
        weights_options o = kit_options(TOTAL / 2);
        o.frequency = !lru;
        o.now = test_clock;
        kit k;
        kit_open(&k, model_path(&small, "small"), &o);
        weights_walk walk = {0};
        kit_pass(&k, &walk, false);
        weights_stats before = weights_get_stats(k.w);
        for (int i = 0; i < 20; i++) {
            kit_pass(&k, &walk, true);
            test_time += 1000000000;
        }
        weights_stats st = weights_get_stats(k.w);
        double rate = (double)(st.hits - before.hits) / (double)(st.requests - before.requests);
        if (lru) assert_true(rate == 0);
        else assert_true(rate >= 0.45 && st.evictions == 0);
        assert_true(st.used <= st.memory);
        kit_close(&k);
    }
}

static void larger_than_the_budget_is_used_and_not_kept(void **state) {
    (void)state;
    weights_options o = kit_options(MATRIX + MATRIX / 2);
    kit k;
    kit_open(&k, model_path(&small, "small"), &o);
    weights_walk walk = {0};
    assert_int_equal(kit_pass(&k, &walk, true), 1); /* the one that was preloaded; the output is larger than all there is */
    assert_false(weights_pin(k.w, k.n - 1));
    kit_close(&k);
    o.memory = 0;
    kit_open(&k, model_path(&small, "small"), &o);
    assert_int_equal(kit_pass(&k, &(weights_walk){0}, true), 0);
    assert_int_equal(k.warnings, 0);
    kit_close(&k);
}

static void what_is_held_or_pinned_stays(void **state) {
    (void)state;
    weights_options o = kit_options(3 * MATRIX);
    o.preload = WEIGHTS_PRELOAD_NONE;
    o.frequency = false;
    kit k;
    kit_open(&k, model_path(&small, "small"), &o);
    assert_true(weights_pin(k.w, 5));
    const kern_weight *held = weights_acquire(k.w, 7);
    assert_non_null(held->packed);
    weights_walk walk = {0};
    for (int i = 0; i < 3; i++) kit_pass(&k, &walk, true);
    assert_true(kit_holds(held));
    assert_true(weights_entry_get(k.w, 5).pinned);
    assert_int_equal(weights_entry_get(k.w, 5).packed, true);
    assert_int_equal(weights_entry_get(k.w, 5).evictions, 0);
    assert_int_equal(weights_entry_get(k.w, 7).evictions, 0);
    assert_true(weights_get_stats(k.w).evictions > 20);
    weights_unpin(k.w, 5);
    weights_unpin(k.w, 5); /* once too often is harmless */
    weights_release(k.w, held);
    for (int i = 0; i < 3; i++) kit_pass(&k, &walk, true);
    assert_true(weights_entry_get(k.w, 5).evictions > 0);
    kit_close(&k);
}

static void frequency_over_the_window_decides(void **state) {
    (void)state;
    const kit_shape moe = {.layers = 4, .per_layer = 1, .rows = 64, .experts = 16, .seed = 2}; /* experts of 16 KiB */
    weights_options o = kit_options(24 * MATRIX);
    o.now = test_clock;
    o.window = 6;
    kit k;
    kit_open(&k, model_path(&moe, "moe"), &o);
    /* Two of every layer's experts are hot, then two others; within some windows the plan has followed. */
    for (int phase = 0; phase < 2; phase++) {
        uint64_t hits = 0, asked = 0;
        weights_walk walk = {0};
        for (int pass = 0; pass < 60; pass++) {
            for (int layer = 0; layer < 4; layer++) {
                weights_enter(k.w, &walk, layer);
                for (int x = 0; x < 2; x++) {
                    int id = layer * 17 + 1 + phase * 8 + x;
                    const kern_weight *m = weights_acquire(k.w, id);
                    bool packed = kit_holds(m);
                    if (pass >= 40) hits += packed, asked++;
                    weights_release(k.w, m);
                }
            }
            test_time += 500000000;
        }
        assert_int_equal(hits, asked);
    }
    int hottest[4];
    assert_int_equal(weights_hottest(k.w, hottest, 4), 4);
    for (int i = 0; i < 4; i++) {
        weights_entry_stats s = weights_entry_get(k.w, hottest[i]);
        assert_true(s.last_minute > 0 && (s.slice == 8 || s.slice == 9));
        assert_true(s.make_seconds > 0);
    }
    test_time += 61000000000u;
    assert_int_equal(weights_hottest(k.w, hottest, 4), 0);
    kit_close(&k);
}

static void made_ahead_is_ready_in_time(void **state) {
    (void)state;
    for (int async = 0; async <= 1; async++) {
        weights_options o = kit_options(TOTAL / 2);
        o.prefetch = 1;
        o.prefetch_async = async;
        o.now = test_clock;
        kit k;
        kit_open(&k, model_path(&small, "small"), &o);
        weights_walk walk = {0};
        for (int pass = 0; pass < 6; pass++) {
            for (int i = 0; i < k.n; i++) {
                if (i % 4 == 0) {
                    weights_enter(k.w, &walk, i / 4);
                    weights_settle(k.w);
                }
                const kern_weight *m = weights_acquire(k.w, i);
                kit_holds(m);
                weights_release(k.w, m);
            }
        }
        weights_stats st = weights_get_stats(k.w);
        /* all but the first stage of the first pass */
        assert_true(st.hit_rate > 0.9);
        assert_true(st.prefetches > 40 && st.used <= st.memory);
        kit_close(&k);
    }
}

static void self_check_tells_what_was_lost(void **state) {
    (void)state;
    weights_options o = kit_options(TOTAL / 2);
    kit k;
    kit_open(&k, model_path(&small, "small"), &o);
    for (int i = 0; i < 33; i++)
        if (!weights_entry_get(k.w, i).packed) {
            assert_true(weights_pin(k.w, i)); /* pushes out a preloaded one */
            weights_enter(k.w, &(weights_walk){0}, 0);
            assert_non_null(strstr(weights_self_check(k.w), "of 17 matrices made ready at start 1"));
            assert_int_equal(k.warnings, 1);
            assert_true(weights_get_stats(k.w).lost > 0);
            weights_unpin(k.w, i);
            break;
        }
    kit_close(&k);
}

static void raw_only_kernels_cost_nothing(void **state) {
    (void)state;
    err e = {0};
    weights_options o = kit_options(TOTAL);
    kit k;
    assert_true(kit_open_with(&k, model_path(&small, "small"), &o, kernels_find("ref", &e), 2));
    weights_walk walk = {0};
    assert_int_equal(kit_pass(&k, &walk, true), 0);
    weights_stats st = weights_get_stats(k.w);
    assert_int_equal(st.entries, 0);
    assert_int_equal(st.requests, 0);
    assert_true(st.hit_rate == 1);
    assert_int_equal(st.raw_bytes, TOTAL);
    kit_close(&k);
}

/* Random requests, pins and holds from several threads under a small budget: every form that is handed out holds the right bits all the while it is held. */
typedef struct player {
    kit *k;
    uint64_t seed;
} player;

static void *play(void *arg) {
    player *p = arg;
    uint64_t r = p->seed;
    weights_walk walk = {0};
    const kern_weight *held[4] = {0};
    for (int i = 0; i < 400; i++) {
        uint64_t x = rng_next(&r);
        int id = (int)(x % (uint64_t)p->k->n), slot = (int)(x >> 32 & 3);
        if (x >> 40 & 1) weights_enter(p->k->w, &walk, (int)(x >> 48) % 9);
        if (held[slot]) {
            kit_holds(held[slot]);
            weights_release(p->k->w, held[slot]);
        }
        held[slot] = weights_acquire(p->k->w, id);
        if ((x >> 56) == 7 && weights_pin(p->k->w, id)) weights_unpin(p->k->w, id);
        if (i % 16 == 0) {
            weights_stats st = weights_get_stats(p->k->w);
            if (st.used > st.memory) kit_die("more is used than the budget allows");
        }
    }
    for (int i = 0; i < 4; i++)
        if (held[i]) kit_holds(held[i]), weights_release(p->k->w, held[i]);
    return NULL;
}

static void random_use_from_many_threads(void **state) {
    (void)state;
    uint64_t seed = test_seed();
    for (int round = 0; round < 4; round++) {
        weights_options o = kit_options((uint64_t)(4 + round * 6) * MATRIX);
        o.frequency = round != 1;
        o.prefetch = round % 3;
        o.window = 0.01;
        kit k;
        kit_open(&k, model_path(&small, "small"), &o);
        pthread_t threads[4];
        player players[4];
        for (int i = 0; i < 4; i++) {
            players[i] = (player){.k = &k, .seed = seed + (uint64_t)(round * 4 + i)};
            pthread_create(&threads[i], NULL, play, &players[i]);
        }
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        weights_stats st = weights_get_stats(k.w);
        assert_int_equal(st.hits + st.misses, st.requests);
        kit_close(&k);
    }
}

static void short_memory_is_an_error_or_costs_speed(void **state) {
    (void)state;
    weights_options o = kit_options(TOTAL);
    const char *path = model_path(&small, "small");
    for (long n = 1;; n++) {
        kit k;
        mem_fail_nth(n);
        bool ok = kit_open_with(&k, path, &o, &kit_kernels, 1);
        bool reached = mem_count() >= n;
        mem_fail_nth(0);
        if (ok) kit_pass(&k, &(weights_walk){0}, true);
        kit_close(&k);
        if (!reached) break;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(concurrent_first_uses_make_it_once),
        cmocka_unit_test(preload_makes_what_it_says),
        cmocka_unit_test(a_circle_that_does_not_fit_is_hit_in_proportion),
        cmocka_unit_test(larger_than_the_budget_is_used_and_not_kept),
        cmocka_unit_test(what_is_held_or_pinned_stays),
        cmocka_unit_test(frequency_over_the_window_decides),
        cmocka_unit_test(made_ahead_is_ready_in_time),
        cmocka_unit_test(self_check_tells_what_was_lost),
        cmocka_unit_test(raw_only_kernels_cost_nothing),
        cmocka_unit_test(random_use_from_many_threads),
        cmocka_unit_test(short_memory_is_an_error_or_costs_speed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
