/* Blocks of keys and values: whatever is shared, copied, forked, rewound or evicted, a sequence reads what was computed for its own tokens. */
#include "tools/support.h"

#include <pthread.h>

#include "base/clock.h"
#include "unit/kv_talk.h"

static void fill(int32_t *tokens, size_t n, uint64_t *rng, uint32_t kinds) {
    for (size_t i = 0; i < n; i++) tokens[i] = (int32_t)(rng_next(rng) % kinds);
}

/* ---- tests ---- */

static void names_separate(void **state) {
    (void)state;
    int32_t tokens[64] = {1, 2, 3};
    kv_chain a = chain_of(NULL), b = chain_of("b"), empty = chain_of("");
    assert_true(kv_name_equal(&a.root, &empty.root));
    assert_false(kv_name_equal(&a.root, &b.root));
    kv_chain others[] = {kv_chain_make(NULL, "modem", 5, "f32", 0), kv_chain_make(NULL, "model", 5, "f16", 0), kv_chain_make(NULL, "model", 5, "f32", 1),
                         kv_chain_make(NULL, "mode", 4, "lf32", 0)};
    for (size_t i = 0; i < 4; i++) assert_false(kv_name_equal(&a.root, &others[i].root));
    kv_name x = kv_name_next(&a, &a.root, tokens, 64), y = kv_name_next(&a, &a.root, tokens, 63), z = kv_name_next(&b, &a.root, tokens, 64);
    assert_false(kv_name_equal(&x, &y));
    assert_false(kv_name_equal(&x, &z));
    tokens[63] = 1;
    y = kv_name_next(&a, &a.root, tokens, 64);
    assert_false(kv_name_equal(&x, &y));
    char text[65];
    kv_name_text(&x, text);
    assert_true(kv_name_parse(text, 64, &y) && kv_name_equal(&x, &y));
    assert_false(kv_name_parse(text, 63, &y));
    text[5] = 'G';
    assert_false(kv_name_parse(text, 64, &y));
}

static void packs_without_gaps(void **state) {
    (void)state;
    uint64_t rng = test_seed();
    kv_layout l = small_layout();
    size_t bytes = l.block_bytes;
    uint8_t *a = malloc(bytes), *b = malloc(bytes), *packed = malloc(bytes + 1);
    for (int n = 1; n <= KV_BLOCK; n++) {
        for (size_t i = 0; i < bytes; i++) a[i] = (uint8_t)rng_next(&rng);
        memset(b, 0, bytes);
        size_t size = kv_packed_bytes(&l, n);
        packed[size] = 77;
        kv_seq s = {.layout = &l, .blocks = (uint8_t *[]){a}}, t = {.layout = &l, .blocks = (uint8_t *[]){b}};
        kv_pack(&s, 0, n, packed);
        assert_int_equal(packed[size], 77);
        kv_unpack(&t, 0, n, packed);
        for (int p = 0; p < n; p++)
            for (int layer = 0; layer < 2; layer++)
                for (int h = 0; h < l.layers[layer].n_heads; h++) {
                    assert_memory_equal(kv_key(&s, layer, h, (size_t)p), kv_key(&t, layer, h, (size_t)p), l.layers[layer].k_stride);
                    assert_memory_equal(kv_value(&s, layer, h, (size_t)p), kv_value(&t, layer, h, (size_t)p), l.layers[layer].v_dim * 4u);
                }
    }
    free(a), free(b), free(packed);
    kv_layout_free(&l);
}

static void shares_prefixes(void **state) {
    (void)state;
    kv_layout l = small_layout();
    kv_cache *c = kv_cache_new(&l, 1 << 30, NULL);
    static talk t[9];
    int32_t prompt[640 + 30];
    uint64_t rng = test_seed();
    fill(prompt, 670, &rng, 1000);
    for (int i = 0; i < 9; i++) t[i] = (talk){.kv = {.layout = &l, .cache = c, .chain = chain_of(i == 8 ? "someone else" : NULL)}};
    assert_int_equal(append(&t[0], prompt, 650, 1), 0);
    uint64_t once = kv_cache_stats(c).bytes;
    for (int i = 1; i < 8; i++) assert_int_equal(append(&t[i], prompt, 650, 1), 640);
    /* One copy of the ten full blocks, and eight tails. */
    assert_int_equal(kv_cache_stats(c).blocks, 10);
    assert_true(kv_cache_stats(c).bytes < 2 * once);
    assert_int_equal(append(&t[8], prompt, 650, 2), 0); /* another tenant has other names, and here other numbers */
    for (int i = 0; i < 9; i++) check_or_write(&t[i], 0, false, i == 8 ? 2 : 1);
    /* A tail that was kept is found to the token, also when it is the start of something longer. */
    end(&t[0], true);
    assert_int_equal(append(&t[0], prompt, 670, 1), 650);
    end(&t[0], true);
    end(&t[1], false);
    assert_int_equal(append(&t[1], prompt, 645, 1), 644);
    check_or_write(&t[1], 0, false, 1);
    for (int i = 0; i < 9; i++) end(&t[i], false);
    assert_int_equal(kv_cache_stats(c).in_use, 0);
    kv_cache_free(c);
    kv_layout_free(&l);
}

static void forgets_with_tails(void **state) {
    (void)state;
    kv_layout l = small_layout();
    kv_cache *c = kv_cache_new(&l, 1 << 30, NULL);
    static talk one, other;
    int32_t prompt[200], another[200];
    uint64_t rng = test_seed();
    fill(prompt, 200, &rng, 1000);
    memcpy(another, prompt, sizeof prompt);
    another[150] ^= 1;
    one = (talk){.kv = {.layout = &l, .cache = c, .chain = chain_of(NULL)}};
    other = (talk){.kv = {.layout = &l, .cache = c, .chain = chain_of(NULL)}};
    append(&one, prompt, 140, 1);
    const kv_name first = kv_name_next(&one.kv.chain, &one.kv.chain.root, prompt, KV_BLOCK), head = kv_name_next(&one.kv.chain, &first, prompt + KV_BLOCK, KV_BLOCK);
    assert_true(kv_cache_has(c, &head));
    /* A tail that somebody holds keeps what it builds on, one that nobody holds does not. */
    append(&other, another, 160, 1);
    end(&one, true);
    kv_cache_forget(c, &head);
    assert_true(kv_cache_has(c, &head));
    check_or_write(&other, 0, false, 1);
    end(&other, true);
    assert_int_equal(kv_cache_forget(c, &head), 3);
    assert_int_equal(kv_cache_stats(c).blocks, 0);
    /* What was made beyond it goes too, but not what began before it. */
    append(&one, prompt, 200, 1);
    end(&one, true);
    append(&other, another, 200, 1);
    end(&other, true);
    another[70] ^= 1;
    append(&other, another, 200, 1);
    end(&other, false);
    assert_int_equal(kv_cache_forget(c, &head), 5); /* the head, and twice a full block and a tail below it */
    assert_false(kv_cache_has(c, &head));
    assert_true(kv_cache_has(c, &first));
    assert_int_equal(kv_cache_stats(c).blocks, 3); /* the first, and two below it that differ from the head on */
    kv_cache_free(c);
    kv_layout_free(&l);
}

static void forks_and_rewinds(void **state) {
    (void)state;
    kv_layout l = small_layout();
    for (int with = 0; with < 2; with++) {
        kv_cache *c = with ? kv_cache_new(&l, 1 << 30, NULL) : NULL;
        static talk a, b;
        int32_t tokens[300];
        for (int i = 0; i < 300; i++) tokens[i] = i;
        a = (talk){.kv = {.layout = &l, .cache = c, .chain = chain_of(NULL)}};
        append(&a, tokens, 200, 1);
        b = a;
        uint64_t before = with ? kv_cache_stats(c).bytes : 0;
        assert_true(kv_seq_fork(&b.kv, &a.kv, NULL));
        if (with) assert_int_equal(kv_cache_stats(c).bytes, before);
        append(&b, (int32_t[]){7, 7}, 2, 1);
        append(&a, (int32_t[]){9}, 1, 1);
        check_or_write(&a, 0, false, 1);
        check_or_write(&b, 0, false, 1);
        rewind_to(&b, 70); /* into a block that a shares */
        append(&b, (int32_t[]){5, 6, 7}, 3, 1);
        check_or_write(&a, 0, false, 1);
        check_or_write(&b, 0, false, 1);
        rewind_to(&b, 0);
        append(&b, tokens, 150, 1);
        check_or_write(&b, 0, false, 1);
        end(&a, true), end(&b, true);
        kv_cache_free(c);
    }
    kv_layout_free(&l);
}

/* Random use of one cache by one thread; budget small enough that most is evicted. */
typedef struct traffic {
    kv_cache *cache;
    const kv_layout *layout;
    uint64_t rng;
    int steps;
    bool alone;
} traffic;

static void *run_traffic(void *arg) {
    traffic *f = arg;
    enum { N = 6 };
    talk *t = calloc(N, sizeof *t);
    for (int i = 0; i < N; i++) t[i].kv = (kv_seq){.layout = f->layout, .cache = f->cache, .chain = chain_of(NULL)};
    for (int step = 0; step < f->steps; step++) {
        talk *x = &t[rng_next(&f->rng) % N], *y = &t[rng_next(&f->rng) % N];
        int32_t tokens[200];
        size_t n = 1 + rng_next(&f->rng) % 200;
        switch (rng_next(&f->rng) % 8) {
        case 0: rewind_to(x, rng_next(&f->rng) % (x->n + 1)); break;
        case 1: end(x, rng_next(&f->rng) % 2); break;
        case 2:
            if (x == y) break;
            end(x, true);
            memcpy(x->tokens, y->tokens, sizeof x->tokens);
            x->n = y->n;
            x->seed = y->seed;
            assert_true(kv_seq_fork(&x->kv, &y->kv, NULL));
            break;
        default:
            /* Long runs of the same tokens, so that prefixes often meet. */
            memset(tokens, 0, sizeof tokens);
            if (rng_next(&f->rng) % 2) fill(tokens, 1 + rng_next(&f->rng) % n, &f->rng, 2);
            if (rng_next(&f->rng) % 4 == 0) n = 1;
            if (x->n + n < 1000) append(x, tokens, n, 1);
        }
        if (x->n) check_or_write(x, 0, false, 1);
        if (!f->alone) continue;
        kv_stats s = kv_cache_stats(f->cache);
        uint64_t held = s.in_use * (f->layout->block_bytes + KV_BLOCK * 4 + sizeof(kv_block));
        uint64_t table = s.tree_bytes;
        if (s.bytes > s.budget && s.bytes > held + table) fail_msg("%lu bytes are more than the budget of %lu and than the %lu in use with %lu of tree", (unsigned long)s.bytes, (unsigned long)s.budget, (unsigned long)held, (unsigned long)table);
    }
    for (int i = 0; i < N; i++) end(&t[i], false);
    free(t);
    return NULL;
}

static void use_at_random(kv_layout l) {
    uint64_t seed = test_seed();
    for (int round = 0; round < 6; round++) {
        kv_cache *c = kv_cache_new(&l, (uint64_t)(round * 30) * (l.block_bytes + 400), NULL);
        traffic f = {.cache = c, .layout = &l, .rng = seed + (uint64_t)round, .steps = 250, .alone = true};
        run_traffic(&f);
        kv_stats s = kv_cache_stats(c);
        assert_int_equal(s.in_use, 0);
        assert_true(s.bytes <= s.budget || s.blocks == 0);
        if (round > 0) assert_true(s.hits > 0);
        if (round == 1) assert_true((s.window_evictions > 0) == (l.window > 0));
        kv_cache_free(c);
    }
    kv_layout_free(&l);
}

static void survives_random_use(void **state) {
    (void)state;
    use_at_random(small_layout());
    use_at_random(windowed_layout());
}

static void use_by_threads(kv_layout l) {
    kv_cache *c = kv_cache_new(&l, 60 * l.block_bytes, NULL);
    uint64_t seed = test_seed();
    traffic f[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        f[i] = (traffic){.cache = c, .layout = &l, .rng = seed + (uint64_t)i * 77, .steps = 100};
        assert_int_equal(pthread_create(&threads[i], NULL, run_traffic, &f[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_int_equal(kv_cache_stats(c).in_use, 0);
    kv_cache_free(c);
    kv_layout_free(&l);
}

static void serves_several_threads(void **state) {
    (void)state;
    use_by_threads(small_layout());
    use_by_threads(windowed_layout());
}

/* With little memory a long conversation has its windows and no more; with enough all is there to go back to. */
static void keeps_only_windows(void **state) {
    (void)state;
    kv_layout l = windowed_layout();
    uint64_t rng = test_seed();
    static talk t;
    int32_t tokens[3000];
    fill(tokens, 3000, &rng, 1000);
    for (int roomy = 0; roomy < 2; roomy++) {
        kv_cache *c = kv_cache_new(&l, roomy ? 1 << 30 : 1, NULL);
        t = (talk){.kv = {.layout = &l, .cache = c, .chain = chain_of(NULL)}};
        for (int i = 0; i < 3000; i += 250) append(&t, tokens + i, 250, 1);
        kv_stats s = kv_cache_stats(c);
        uint64_t rest = l.block_bytes - l.window_bytes + KV_BLOCK * 4 + sizeof(kv_block);
        /* The last 99 positions lie in three blocks at most. */
        if (!roomy) assert_true(s.bytes <= 47 * rest + 3 * l.window_bytes + s.tree_bytes);
        else assert_true(s.bytes >= 47 * (rest + l.window_bytes));
        check_or_write(&t, 0, false, 1);
        kv_seq_truncate(&t.kv, 2990);
        assert_int_equal(t.kv.length, 2990);
        kv_seq_truncate(&t.kv, 2000);
        assert_int_equal(t.kv.length, roomy ? 2000 : 0);
        t.n = 2000;
        if (t.kv.length < t.n) compute_rest(&t);
        check_or_write(&t, 0, false, 1);
        /* Another conversation joins where the windows are. */
        static talk u;
        u = (talk){.kv = {.layout = &l, .cache = c, .chain = chain_of(NULL)}};
        assert_int_equal(append(&u, tokens, 1990, 1), roomy ? 1989 : 1984);
        check_or_write(&u, 0, false, 1);
        rewind_to(&u, 0);
        assert_int_equal(append(&u, tokens, 1000, 1), roomy ? 999 : 0);
        check_or_write(&u, 0, false, 1);
        end(&u, true), end(&t, true);
        kv_cache_free(c);
    }
    kv_layout_free(&l);
}

/* What is dear to compute and often used stays; what is on disk goes before what is not. */
static void evicts_by_worth(void **state) {
    (void)state;
    kv_layout l = small_layout();
    size_t one = l.block_bytes + KV_BLOCK * 4 + sizeof(kv_block);
    kv_cache *c = kv_cache_new(&l, 40 * one, NULL);
    static talk often, saved, other;
    int32_t tokens[512];
    kv_seq empty = {.layout = &l, .cache = c, .chain = chain_of(NULL)};
    often.kv = saved.kv = other.kv = empty;
    for (int i = 0; i < 512; i++) tokens[i] = 1000 + i;
    for (int i = 0; i < 5; i++) {
        append(&often, tokens, 512, 1);
        end(&often, true);
    }
    for (int i = 0; i < 512; i++) tokens[i] = 5000 + i;
    append(&saved, tokens, 512, 1);
    for (size_t i = 0; i < 8; i++) kv_cache_set_durable(c, saved.kv.held[i]);
    kv_block *last = saved.kv.held[7];
    kv_block_hold(c, last), kv_block_drop(c, last);
    /* Durable counts from the next use on. */
    end(&saved, false);
    append(&saved, tokens, 512, 1);
    end(&saved, false);
    for (int i = 0; i < 30; i++) {
        for (int k = 0; k < 512; k++) tokens[k] = i * 600 + 10000 + k;
        append(&other, tokens, 64, 1);
        end(&other, false);
    }
    for (int i = 0; i < 512; i++) tokens[i] = 1000 + i;
    assert_int_equal(append(&often, tokens, 512, 1), 511);
    end(&often, false);
    kv_stats s = kv_cache_stats(c);
    assert_true(s.evictions > 0 && s.bytes <= s.budget);
    kv_cache_free(c);
    kv_layout_free(&l);
}

static void bears_any_failing_allocation(void **state) {
    (void)state;
    kv_layout l = small_layout();
    bool done = false;
    for (long nth = 1; !done && nth < 500; nth++) {
        mem_fail_nth(nth);
        kv_cache *c = kv_cache_new(&l, 1 << 20, NULL);
        static talk t, u;
        t = (talk){.kv = {.layout = &l, .cache = c, .chain = chain_of(NULL)}};
        bool ok = c != NULL;
        for (int i = 0; ok && i < 200; i++) {
            t.tokens[t.n++] = i;
            kv_seq_find(&t.kv, t.tokens, t.n - 1, NULL);
            size_t from = t.kv.length, blocks = t.kv.n_blocks;
            ok = kv_seq_reserve(&t.kv, t.n - from, NULL);
            if (!ok) {
                assert_true(t.kv.length == from && t.kv.n_blocks >= blocks);
                t.n--;
                break;
            }
            check_or_write(&t, from, true, 1);
            t.kv.length = t.n;
            kv_seq_seal(&t.kv, t.tokens);
        }
        if (c) {
            check_or_write(&t, 0, false, 1);
            u = t;
            if (kv_seq_fork(&u.kv, &t.kv, NULL)) check_or_write(&u, 0, false, 1);
            end(&u, true), end(&t, true);
        }
        done = mem_count() < nth;
        mem_fail_nth(0);
        kv_cache_free(c);
    }
    assert_true(done);
    kv_layout_free(&l);
}

/* A million blocks: the figures are printed, only memory is judged. */
static void holds_a_million_blocks(void **state) {
    (void)state;
    kv_layout l;
    assert_true(kv_layout_init(&l, 1, QUANT_F16, QUANT_F16, NULL) && kv_layout_set(&l, 0, 1, 1, 1, true, NULL));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    size_t total = 50000;
#else
    size_t total = 1000000;
#endif
    enum { DEEP = 512 };
    kv_cache *c = kv_cache_new(&l, UINT64_MAX, NULL);
    kv_seq s = {.layout = &l, .cache = c, .chain = chain_of(NULL)};
    int32_t *tokens = calloc(DEEP * KV_BLOCK + 1, sizeof *tokens);
    double start = clock_seconds();
    for (size_t n = 0; n < total; n += DEEP) {
        tokens[0] = (int32_t)n;
        kv_seq_find(&s, tokens, DEEP * KV_BLOCK, NULL);
        assert_true(kv_seq_reserve(&s, DEEP * KV_BLOCK - s.length, NULL));
        s.length = DEEP * KV_BLOCK;
        kv_seq_seal(&s, tokens);
        kv_seq_free(&s);
    }
    double built = clock_seconds();
    kv_stats st = kv_cache_stats(c);
    double found_s = 0;
    for (int i = 0; i < 10; i++) {
        tokens[0] = (int32_t)((total / DEEP - 1 - (size_t)i * 7 % (total / DEEP)) * DEEP);
        double from = clock_seconds();
        size_t found = kv_seq_find(&s, tokens, DEEP * KV_BLOCK, NULL);
        found_s += clock_seconds() - from;
        assert_int_equal(found, DEEP * KV_BLOCK);
        kv_seq_free(&s);
    }
    double per_block = (double)st.tree_bytes / (double)st.blocks;
    print_message("# %lu blocks in %.1f s, %.0f bytes of tree each, lookup of 32768 tokens %.2f ms\n", (unsigned long)st.blocks, built - start, per_block,
                  found_s / 10 * 1e3);
    assert_true(st.blocks >= total && per_block < 200);
    free(tokens);
    kv_cache_free(c);
    kv_layout_free(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_separate),
        cmocka_unit_test(packs_without_gaps),
        cmocka_unit_test(shares_prefixes),
        cmocka_unit_test(forgets_with_tails),
        cmocka_unit_test(forks_and_rewinds),
        cmocka_unit_test(survives_random_use),
        cmocka_unit_test(serves_several_threads),
        cmocka_unit_test(keeps_only_windows),
        cmocka_unit_test(evicts_by_worth),
        cmocka_unit_test(bears_any_failing_allocation),
        cmocka_unit_test(holds_a_million_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
