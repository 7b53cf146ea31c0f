/* Blocks that arrive from disk layer by layer: what may be used when, and what becomes of those that are damaged, unreadable or not wanted any more on the way. */
#include "tools/support.h"

#include <pthread.h>

#include "unit/store_house.h"

enum { BLOCKS = 5, TOKENS = BLOCKS * KV_BLOCK + 20 };

/* A folder with a conversation of that many tokens. */
static char *make_store(void) {
    char *folder = fresh_folder();
    house h;
    static talk t;
    err e = {0};
    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    start_talk(&h, &t, NULL);
    say(&h, &t, 1, TOKENS, 1);
    assert_true(save(&h, &t, "x", NULL, &e) && store_flush(h.store, &e));
    end(&t, false);
    close_house(&h);
    return folder;
}

/* Finds the blocks, none of whose layers can arrive yet. */
static void find_behind_gate(house *h, talk *t) {
    const kv_source from = store_source(h->store);
    file_let_fetch(0);
    start_talk(h, t, NULL);
    t->n = BLOCKS * KV_BLOCK;
    t->seed = 1;
    for (size_t i = 0; i < t->n; i++) t->tokens[i] = token_at(1, i);
    assert_int_equal(kv_seq_find(&t->kv, t->tokens, t->n, &from), t->n);
    for (size_t i = 0; i < BLOCKS; i++) assert_int_equal(t->kv.held[i]->owner->layers, 0);
}

/* The file of a block, or of its window part. */
static void find_file(const char *folder, int index, bool window, char *out, size_t room) {
    paths p = files_of(folder, "blocks");
    char end[32];
    snprintf(end, sizeof end, window ? "-%d-w2.safetensors" : "-%d.safetensors", index);
    *out = 0;
    for (size_t i = 0; i < p.n; i++)
        if (strcmp(p.items[i] + strlen(p.items[i]) - strlen(end), end) == 0) snprintf(out, room, "%s", p.items[i]);
    assert_true(*out);
    free_paths(&p);
}

/* Flips a bit of the last layer: just before the tokens, which end a block. */
static void flip_last_layer(const char *folder, int index, bool window) {
    char path[900];
    find_file(folder, index, window, path, sizeof path);
    buf b = slurp(path);
    b.data[b.len - 1 - (window ? 0 : KV_BLOCK * sizeof(int32_t))] ^= 4;
    spew(path, b.data, b.len);
    buf_free(&b);
}

static bool is_on_disk(const char *folder, const char *part, int index) {
    char name[32];
    snprintf(name, sizeof name, "-%d.safetensors", index);
    paths p = files_of(folder, part);
    bool there = false;
    for (size_t i = 0; i < p.n; i++) there = there || strstr(p.items[i], name);
    free_paths(&p);
    return there;
}

static void first_layer_before_the_last(void **state) {
    (void)state;
    house h;
    static talk t;
    err e = {0};
    assert_true(open_house(&h, make_store(), SHELF_AUTO, &e));
    find_behind_gate(&h, &t);
    file_let_fetch(BLOCKS);
    assert_true(kv_seq_wait(&t.kv, 0, NULL, &e));
    for (size_t i = 0; i < BLOCKS; i++) assert_int_equal(t.kv.held[i]->owner->layers, 1);
    for (size_t p = 0; p < t.n; p += 13) {
        const uint32_t *k = (const uint32_t *)(const void *)kv_key(&t.kv, 0, 0, p);
        uint32_t hash = 1;
        for (size_t i = 0; i <= p; i++) hash = mix(hash, (uint32_t)t.tokens[i]);
        assert_int_equal(k[0], mix(hash, 0));
    }
    assert_true(t.kv.arriving);
    file_let_fetch(-1);
    assert_true(kv_seq_wait(&t.kv, 1, NULL, &e));
    assert_false(t.kv.arriving);
    check_or_write(&t, 0, false, 1);
    assert_true(store_get_stats(h.store).load_seconds > 0);
    end(&t, false);
    close_house(&h);
}

/* A middle block is damaged in its last layer: the first ones may be used, then all who hold it lose it and what follows, and nobody finds it again. */
static void late_damage(void **state) {
    (void)state;
    char *folder = make_store();
    house h;
    static talk t, fork, other;
    err e = {0};
    flip_last_layer(folder, 2, false);
    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    find_behind_gate(&h, &t);
    fork = t;
    assert_true(kv_seq_fork(&fork.kv, &t.kv, &e));
    kv_seq_truncate(&fork.kv, 2 * KV_BLOCK + 9), fork.n = 2 * KV_BLOCK + 9; /* goes on within the damaged block */
    start_talk(&h, &other, NULL);
    if (!is_windowed()) { /* the first layer of all */
        file_let_fetch(BLOCKS);
        assert_true(kv_seq_wait(&t.kv, 0, NULL, &e));
    }
    file_let_fetch(-1);
    assert_false(kv_seq_wait(&t.kv, 1, NULL, &e));
    assert_int_equal(e.code, HEARTH_FORMAT);
    assert_true(is_on_disk(folder, "bad", 2) && !is_on_disk(folder, "blocks", 2) && is_on_disk(folder, "blocks", 3));
    assert_true(strstr(h.warning, "layer 1 is wrong") != NULL);
    /* Others find only what is before it. */
    for (size_t i = 0; i < t.n; i++) other.tokens[i] = t.tokens[i];
    assert_true(kv_seq_find(&other.kv, other.tokens, t.n, NULL) <= 2 * KV_BLOCK);
    assert_true(kv_seq_mend(&t.kv));
    assert_int_equal(t.kv.length, is_windowed() ? 0 : 2 * KV_BLOCK);
    assert_false(kv_seq_mend(&t.kv));
    compute_rest(&t);
    check_or_write(&t, 0, false, 1);
    /* A copy is made only of what has arrived. */
    if (fork.kv.length % KV_BLOCK) {
        assert_false(kv_seq_reserve(&fork.kv, 1, clear(&e)));
        assert_true(e.code == HEARTH_FORMAT && kv_seq_mend(&fork.kv));
    }
    compute_rest(&fork);
    check_or_write(&fork, 0, false, 1);
    assert_true(kv_seq_find(&other.kv, other.tokens, t.n, NULL) + other.kv.length >= t.n);
    other.n = t.n;
    check_or_write(&other, 0, false, 1);
    /* It is written again and found by the next process. */
    for (size_t i = 0; i < t.kv.n_sealed; i++) store_put(h.store, t.kv.held[i]);
    assert_true(store_flush(h.store, &e));
    end(&t, false), end(&fork, false), end(&other, false);
    store_stats s = store_get_stats(h.store);
    assert_true(s.damaged == 1 && s.loaded_blocks == BLOCKS - 1);
    close_house(&h);
    assert_int_equal(h.warnings, 1);
    assert_true(is_on_disk(folder, "blocks", 2));
}

/* The same of a window part: the block itself stays. */
static void late_damage_in_a_window(void **state) {
    (void)state;
    if (!is_windowed()) return;
    char *folder = make_store();
    house h;
    static talk t;
    err e = {0};
    flip_last_layer(folder, BLOCKS - 1, true);
    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    find_behind_gate(&h, &t);
    file_let_fetch(-1);
    assert_false(kv_seq_wait(&t.kv, 0, NULL, &e));
    kv_block *last = t.kv.held[BLOCKS - 1];
    kv_block_hold(h.cache, last);
    assert_true(!kv_block_has_window(h.cache, last) && !kv_block_take_window(h.cache, last, false));
    assert_true(kv_seq_mend(&t.kv));
    assert_null(last->window);
    kv_block_drop(h.cache, last);
    assert_true(is_on_disk(folder, "blocks", BLOCKS - 1));
    compute_rest(&t);
    check_or_write(&t, 0, false, 1);
    end(&t, false);
    close_house(&h);
}

/* Who leaves does not wait, and the reader lets go of what nobody wants; what is only in the cache may be evicted. */
static void leaving_early(void **state) {
    (void)state;
    house h;
    static talk t;
    err e = {0};
    char *folder = make_store();
    for (int way = 0; way < 4; way++) {
        assert_true(open_house(&h, folder, SHELF_AUTO, &e));
        find_behind_gate(&h, &t);
        const kv_name head = t.kv.held[BLOCKS - 1]->name;
        if (way == 3) kv_seq_truncate(&t.kv, KV_BLOCK), t.n = KV_BLOCK;
        else end(&t, false);
        if (way == 0) assert_int_equal(kv_cache_clear(h.cache), BLOCKS);
        if (way == 1) assert_int_equal(kv_cache_forget(h.cache, &head), BLOCKS);
        if (way < 2) assert_int_equal(kv_cache_stats(h.cache).blocks, 0);
        file_let_fetch(-1);
        if (way == 3) {
            if (t.kv.length < t.n) compute_rest(&t);
            assert_true(kv_seq_wait(&t.kv, 1, NULL, &e));
            check_or_write(&t, 0, false, 1);
            end(&t, false);
        }
        if (way < 2) assert_int_equal(restore(&h, &t, "x", NULL, 1, 1, &e), TOKENS), end(&t, false);
        close_house(&h); /* in the others: before all has arrived, perhaps */
        assert_int_equal(h.warnings, 0);
    }
}

/* What was not checked yet is never written again, under a checksum that would be right. */
static void writes_only_what_is_whole(void **state) {
    (void)state;
    char *folder = make_store(), path[900];
    house h;
    static talk t;
    err e = {0};
    flip_last_layer(folder, 1, false);
    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    find_behind_gate(&h, &t);
    for (int i = 0; i < BLOCKS; i++) {
        find_file(folder, i, false, path, sizeof path);
        assert_int_equal(unlink(path), 0);
    }
    assert_true(shelf_scan(store_shelf(h.store), &e));
    for (size_t i = 0; i < BLOCKS; i++) assert_true(store_put(h.store, t.kv.held[i]));
    file_let_fetch(-1);
    assert_true(store_flush(h.store, &e));
    for (int i = 0; i < BLOCKS; i++) assert_int_equal(is_on_disk(folder, "blocks", i), i == 0);
    compute_rest(&t);
    for (size_t i = 0; i < t.kv.n_sealed; i++) assert_true(store_put(h.store, t.kv.held[i]));
    assert_true(store_flush(h.store, &e));
    check_or_write(&t, 0, false, 1);
    end(&t, false);
    close_house(&h);
    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    assert_true(restore(&h, &t, "x", NULL, 1, 1, &e) == TOKENS || is_windowed());
    end(&t, false);
    close_house(&h);
}

/* The nth read fails: it is computed again, and the file stays for the next time. */
static void bears_any_failing_read(void **state) {
    (void)state;
    char *folder = make_store();
    bool done = false;
    int failed = 0;
    for (long n = 1; !done && n < 200; n++) {
        house h;
        static talk t;
        err e = {0};
        assert_true(open_house(&h, folder, SHELF_AUTO, &e));
        find_behind_gate(&h, &t);
        file_fail_nth(n);
        file_let_fetch(-1);
        bool whole = kv_seq_wait(&t.kv, 1, NULL, &e);
        failed += !whole;
        for (size_t i = 0; i < t.kv.n_blocks; i++) kv_block_check(h.cache, t.kv.held[i], t.kv.taken[i], KV_ALL - 1);
        done = file_count() < n;
        file_fail_nth(0);
        if (!whole) assert_true(kv_seq_mend(&t.kv));
        if (t.kv.length < t.n) compute_rest(&t);
        check_or_write(&t, 0, false, 1);
        end(&t, false);
        close_house(&h);
        for (int i = 0; i < BLOCKS; i++) assert_true(is_on_disk(folder, "blocks", i));
    }
    assert_true(done && failed >= BLOCKS);
}

typedef struct crowd {
    house *h;
    const char *folder;
    uint64_t seed;
} crowd;

/* Finds, waits, forks, leaves and evicts, as it comes. */
static void *mill_about(void *arg) {
    crowd *c = arg;
    uint64_t rng = c->seed;
    talk *t = calloc(2, sizeof *t);
    const kv_source from = store_source(c->h->store);
    for (int round = 0; round < 150; round++) {
        start_talk(c->h, t, NULL);
        t->n = 1 + rng_next(&rng) % TOKENS;
        t->seed = 1;
        for (size_t i = 0; i < t->n; i++) t->tokens[i] = token_at(1, i);
        kv_seq_find(&t->kv, t->tokens, t->n, &from);
        const int what = (int)(rng_next(&rng) % 6);
        if (what == 0) kv_cache_clear(c->h->cache);
        if (what == 1) kv_seq_truncate(&t->kv, t->kv.length / 2), t->n = t->n / 2;
        t[1] = t[0];
        bool forked = what == 2 && kv_seq_fork(&t[1].kv, &t->kv, NULL);
        if (what > 2 && t->n) compute_rest(t), check_or_write(t, 0, false, 1);
        for (size_t i = 0; what == 5 && i < t->kv.n_sealed; i++) store_put(c->h->store, t->kv.held[i]);
        end(t, what % 2);
        if (forked) compute_rest(t + 1), check_or_write(t + 1, 0, false, 1), end(t + 1, false);
    }
    free(t);
    return NULL;
}

static void many_at_once(void **state) {
    (void)state;
    uint64_t rng = test_seed();
    char *folder = make_store();
    for (int round = 0; round < 6; round++) {
        house h;
        err e = {0};
        for (int i = 0; i < BLOCKS; i++)
            if (is_on_disk(folder, "blocks", i) && rng_next(&rng) % 3 == 0) flip_last_layer(folder, i, false);
        assert_true(open_house(&h, folder, SHELF_AUTO, &e));
        pthread_t threads[4];
        crowd c[4];
        for (int i = 0; i < 4; i++) {
            c[i] = (crowd){&h, folder, rng_next(&rng)};
            assert_int_equal(pthread_create(&threads[i], NULL, mill_about, &c[i]), 0);
        }
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        close_house(&h);
    }
}

int main(void) {
    const struct CMUnitTest plain[] = {cmocka_unit_test(first_layer_before_the_last)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_damage),       cmocka_unit_test(late_damage_in_a_window), cmocka_unit_test(leaving_early), cmocka_unit_test(writes_only_what_is_whole),
        cmocka_unit_test(bears_any_failing_read), cmocka_unit_test(many_at_once),
    };
    return cmocka_run_group_tests(plain, make_base, remove_base) + cmocka_run_group_tests(tests, make_windowed_base, remove_base) +
           (house_layout = small_layout, strcpy(base + strlen(base) - 6, "XXXXXX"), cmocka_run_group_tests_name("plain", tests, make_base, remove_base));
}
