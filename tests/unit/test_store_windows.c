/* Window parts on disk: they are there where a conversation may go on, and nowhere else; what is missing or damaged of them is computed again. */
#include "tools/support.h"

#include <time.h>

#include "store/verify.h"
#include "unit/store_house.h"

enum { REACH = 2, PART = 16384 }; /* windowed_layout: a window of 100 positions, bytes of a window part's data */

static uint64_t windows_on_disk(const char *folder) {
    paths p = files_of(folder, "blocks");
    uint64_t n = 0;
    for (size_t i = 0; i < p.n; i++) n += strstr(p.items[i], "-w") != NULL;
    free_paths(&p);
    return n;
}

/* As if all of them were written some minutes ago. */
static void make_old(const char *folder) {
    paths p = files_of(folder, "blocks");
    for (size_t i = 0; i < p.n; i++) assert_true(file_set_time(p.items[i], ((int64_t)time(NULL) - 300) * 1000000000, NULL));
    free_paths(&p);
}

static void turn(house *h, talk *t, const char *name, int who, size_t n) {
    err e = {0};
    say(h, t, who, n, 1);
    if (!save(h, t, name, NULL, &e) || !store_flush(h->store, &e)) fail_msg("%s", e.text);
}

/* Many turns, short and long: what was passed does not stay. */
static void passed_parts_do_not_pile_up(void **state) {
    (void)state;
    uint64_t rng = test_seed();
    char *folder = fresh_folder();
    house h;
    err e = {0};
    static talk t;
    for (int round = 0; round < 2; round++) {
        assert_true(open_house(&h, folder, SHELF_AUTO, &e));
        restore(&h, &t, "a", NULL, 1, 1, &e);
        while (t.n < 1800 * ((size_t)round + 1)) turn(&h, &t, "a", 1, 1 + rng_next(&rng) % (rng_next(&rng) % 4 ? 40 : 250));
        /* What was written a moment ago may be needed in a moment; what was before is not there. */
        store_stats s = store_get_stats(h.store);
        assert_true(s.disk.windows <= s.written_windows + 2 * REACH && s.disk.windows >= REACH);
        assert_int_equal(windows_on_disk(folder), s.disk.windows);
        assert_true(s.disk.window_bytes >= s.disk.windows * PART && s.disk.window_bytes < s.disk.windows * (PART + 1000));
        assert_true(s.written_windows > 10);
        end(&t, false);
        close_house(&h);
        /* Later: looked through with the next turn, by itself. */
        make_old(folder);
        assert_true(open_house(&h, folder, SHELF_AUTO, &e));
        restore(&h, &t, "a", NULL, 1, 1, &e);
        turn(&h, &t, "a", 1, 100);
        s = store_get_stats(h.store);
        assert_true(s.written_windows > 0 && s.disk.windows <= 2 * REACH + s.written_windows);
        assert_true(shelf_sweep(store_shelf(h.store), 0, &e));
        assert_true(windows_on_disk(folder) <= 2 * REACH);
        end(&t, false);
        close_house(&h);
    }
    /* And it goes on, to the token. */
    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    size_t found = restore(&h, &t, "a", NULL, 1, 1, &e);
    assert_int_equal(found, t.n);
    end(&t, false);
    close_house(&h);
}

/* A third conversation starts from what two others share, after a restart; and so does one that makes an answer again. */
static void places_are_kept(void **state) {
    (void)state;
    char *folder = fresh_folder();
    house h;
    err e = {0};
    static talk t;
    static int32_t shared[1000], own[1000];
    for (int i = 0; i < 1000; i++) shared[i] = 9 * i;
    for (int who = 0; who < 3; who++) {
        assert_true(open_house(&h, folder, SHELF_AUTO, &e));
        const kv_source from = store_source(h.store);
        start_talk(&h, &t, NULL);
        for (int i = 0; i < 1000; i++) own[i] = i < 640 ? shared[i] : who * 1000 + i;
        size_t found = append_with(&t, own, 1000, 1, &from);
        /* The second finds the blocks, but none of the windows, and is the one that parts. */
        assert_int_equal(found, who < 2 ? 0 : 640);
        for (size_t i = 0; i < t.kv.n_sealed; i++) store_put(h.store, t.kv.held[i]);
        store_put_place(h.store, &t.kv, t.kv.found);
        store_put_place(h.store, &t.kv, t.kv.asked);
        check_or_write(&t, 0, false, 1);
        /* An answer of several windows. */
        for (int i = 0; i < 400; i++) append(&t, &(int32_t){who + i}, 1, 1);
        for (size_t i = 0; i < t.kv.n_sealed; i++) store_put(h.store, t.kv.held[i]);
        store_put_place(h.store, &t.kv, t.kv.length);
        assert_true(store_flush(h.store, &e) && shelf_sweep(store_shelf(h.store), 0, &e));
        end(&t, false);
        close_house(&h);
    }
    assert_int_equal(windows_on_disk(folder), 3 * 2 * REACH + REACH);
    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    const kv_source from = store_source(h.store);
    start_talk(&h, &t, NULL);
    own[999]++; /* the prompt of the last one with another end */
    assert_int_equal(append_with(&t, own, 1000, 1, &from), 1000 / KV_BLOCK * KV_BLOCK);
    check_or_write(&t, 0, false, 1);
    end(&t, false);
    close_house(&h);
}

/* Every file in turn: damaged or gone, the text goes on as it should and nothing wrong is taken. */
static void damaged_and_missing_parts(void **state) {
    (void)state;
    uint64_t rng = test_seed();
    char *folder = fresh_folder();
    house h;
    err e = {0};
    static talk t;
    for (int round = 0; round < 24; round++) {
        assert_true(open_house(&h, folder, SHELF_AUTO, &e));
        restore(&h, &t, "a", NULL, 1, 1, &e);
        turn(&h, &t, "a", 1, round ? 30 : 700);
        end(&t, false);
        close_house(&h);
        paths files = files_of(folder, "blocks");
        const char *path = NULL;
        for (size_t i = 0, skip = rng_next(&rng) % 100; !path || skip-- > 0; i = (i + 1) % files.n)
            if (strstr(files.items[i], "-w")) path = files.items[i];
        buf b = slurp(path);
        if (round % 3 == 0) {
            assert_int_equal(unlink(path), 0);
        } else {
            size_t at = rng_next(&rng) % b.len;
            b.data[at] = (char)(b.data[at] ^ (1 << rng_next(&rng) % 8));
            spew(path, b.data, round % 3 == 1 ? b.len : at + 1);
        }
        buf_free(&b);
        free_paths(&files);
        assert_true(open_house(&h, folder, SHELF_AUTO, &e));
        size_t found = restore(&h, &t, "a", NULL, 1, 1, &e); /* compares all with what it should be */
        assert_true(found <= t.n && (round % 3 != 0 || found < t.n || h.warnings == 0));
        say(&h, &t, 1, 5, 1);
        check_or_write(&t, 0, false, 1);
        end(&t, false);
        close_house(&h);
    }
}

typedef struct seen {
    size_t whole, bad;
} seen;

static bool count(void *user, const char *path, uint64_t bytes, const err *why, bool set_aside) {
    (void)path, (void)bytes, (void)set_aside;
    seen *x = user;
    *(why->code ? &x->bad : &x->whole) += 1;
    return true;
}

/* Forks, deletion, verification and collection see window parts as part of their blocks. */
static void belong_to_their_blocks(void **state) {
    (void)state;
    char *folder = fresh_folder();
    house h;
    err e = {0};
    static talk t, u;
    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    start_talk(&h, &t, NULL);
    turn(&h, &t, "a", 1, 500);
    assert_true(store_fork(h.store, "a", "b", "", &e));
    for (int i = 0; i < 12; i++) turn(&h, &t, "a", 1, 90); /* a moves on, b stays */
    assert_true(shelf_sweep(store_shelf(h.store), 0, &e));
    kv_name head = t.kv.held[t.kv.n_sealed - 1]->name;
    assert_true(shelf_windows(store_shelf(h.store), &head) >= REACH);
    end(&t, false);
    seen x = {0};
    paths files = files_of(folder, "blocks");
    assert_true(shelf_verify(store_shelf(h.store), count, &x, &e));
    assert_true(x.whole == files.n + 2 && x.bad == 0);
    free_paths(&files);
    close_house(&h);
    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    start_talk(&h, &u, NULL);
    assert_int_equal(say(&h, &u, 1, 500, 1), 448); /* b's end, but for its tail */
    check_or_write(&u, 0, false, 1);
    assert_true(store_flush(h.store, &e));
    end(&u, false);
    /* With all blocks go all window parts, and the count is right. */
    bool busy;
    assert_true(shelf_collect(store_shelf(h.store), 0, &busy, &e) && !busy);
    assert_int_equal(windows_on_disk(folder), 0);
    store_stats s = store_get_stats(h.store);
    assert_true(s.disk.windows == 0 && s.disk.window_bytes == 0 && s.disk.blocks == 0);
    paths agents = files_of(folder, "agents");
    assert_int_equal(s.disk.bytes, agents.bytes);
    free_paths(&agents);
    restore(&h, &u, "a", NULL, 1, 1, &e);
    assert_int_equal(u.n, 500 + 12 * 90);
    end(&u, false);
    close_house(&h);
}

/* What one process has left behind another's agent may need: it is not deleted. */
static void others_keep_theirs(void **state) {
    (void)state;
    char *folder = fresh_folder();
    house one, two;
    err e = {0};
    static talk a, b;
    assert_true(open_house(&one, folder, SHELF_AUTO, &e) && open_house(&two, folder, SHELF_AUTO, &e));
    start_talk(&one, &a, NULL);
    turn(&one, &a, "a", 1, 400);
    start_talk(&two, &b, NULL);
    turn(&two, &b, "b", 1, 420); /* goes a little further on the same text */
    for (int i = 0; i < 20; i++) turn(&one, &a, "a", 1, 70);
    assert_true(shelf_sweep(store_shelf(one.store), 0, &e)); /* knows what the other wrote */
    assert_true(windows_on_disk(folder) <= 2 * 2 * REACH);
    end(&a, false), end(&b, false);
    close_house(&one), close_house(&two);
    assert_true(open_house(&one, folder, SHELF_AUTO, &e));
    assert_int_equal(restore(&one, &b, "b", NULL, 1, 1, &e), 420);
    assert_int_equal(restore(&one, &a, "a", NULL, 1, 1, &e), 1800);
    end(&a, false), end(&b, false);
    close_house(&one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passed_parts_do_not_pile_up), cmocka_unit_test(places_are_kept),    cmocka_unit_test(damaged_and_missing_parts),
        cmocka_unit_test(belong_to_their_blocks),      cmocka_unit_test(others_keep_theirs),
    };
    return cmocka_run_group_tests(tests, make_windowed_base, remove_base);
}
