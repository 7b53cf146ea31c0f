/* Agents in the store: forks, pins, counts, and what their files tell without a model. */
#include "tools/support.h"

#include "unit/store_house.h"

static char *agent_path(house *h, const char *name) { return shelf_agent_path(store_shelf(h->store), name, "", ".safetensors", NULL); }

static void make_agent(house *h, const char *name, int who, size_t n) {
    static talk t;
    err e = {0};
    start_talk(h, &t, NULL);
    say(h, &t, who, n, 1);
    if (!save(h, &t, name, NULL, &e) || !store_flush(h->store, &e)) fail_msg("%s", e.text);
    end(&t, false);
}

static void forks_are_names_for_the_same_blocks(void **state) {
    (void)state;
    house h;
    err e = {0};
    static talk t;
    char *folder = fresh_folder();
    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    make_agent(&h, "a", 1, 300);
    uint64_t blocks = store_get_stats(h.store).disk.blocks;
    assert_true(store_fork(h.store, "a", "b \"c\"", "", &e));
    assert_int_equal(store_get_stats(h.store).disk.blocks, blocks);
    assert_int_equal(store_get_stats(h.store).disk.agents, 2);
    assert_false(store_fork(h.store, "a", "b \"c\"", "", &e));
    assert_true(e.code == HEARTH_ARGUMENT && strstr(e.text, "already"));
    assert_false(store_fork(h.store, "nobody", "d", "", clear(&e)));
    assert_true(e.code == HEARTH_ARGUMENT && strstr(e.text, "nobody"));
    assert_false(store_fork(h.store, "a", "", "", clear(&e)));
    /* One that is open is not replaced. */
    agent_record a;
    int lock;
    assert_true(store_take(h.store, "new", "", &a, &lock, clear(&e)));
    assert_false(store_fork(h.store, "a", "new", "", &e));
    assert_int_equal(e.code, HEARTH_LIMIT);
    store_release(lock);
    close_house(&h);
    /* The fork is all there, its tail too, and goes its own way. */
    assert_true(open_house(&h, folder, SHELF_AUTO, clear(&e)));
    char *path = agent_path(&h, "b \"c\"");
    agent_record peek;
    assert_true(agent_peek(path, &peek, &e));
    assert_string_equal(peek.name, "b \"c\"");
    assert_true(peek.n_tokens == 300 && peek.n_tail == 44 && peek.note_len == 4 && peek.hits == 0 && peek.created > 1700000000);
    agent_free(&peek);
    assert_true(agent_read(path, &h.layout, &peek, &e));
    assert_true(peek.n_tail == 44 && peek.tail_bytes == kv_packed_bytes(&h.layout, 44));
    peek.created = 1700000000; /* what restore checks */
    assert_true(agent_write(store_shelf(h.store), &peek, &h.layout, &e));
    agent_free(&peek);
    assert_int_equal(restore(&h, &t, "b \"c\"", NULL, 1, 1, &e), 300);
    end(&t, false);
    mem_free(path);
    close_house(&h);
}

static void a_damaged_agent_is_not_forked(void **state) {
    (void)state;
    uint64_t rng = test_seed();
    house h;
    err e = {0};
    assert_true(open_house(&h, fresh_folder(), SHELF_AUTO, &e));
    make_agent(&h, "a", 1, 100);
    char *path = agent_path(&h, "a");
    buf b = slurp(path);
    for (int i = 0; i < 200; i++) {
        size_t at = rng_next(&rng) % b.len;
        char was = b.data[at];
        b.data[at] = (char)(was ^ (1 << rng_next(&rng) % 8));
        spew(path, b.data, b.len);
        assert_false(store_fork(h.store, "a", "b", "", clear(&e)));
        assert_int_equal(e.code, HEARTH_FORMAT);
        b.data[at] = was;
    }
    spew(path, b.data, b.len);
    assert_true(store_fork(h.store, "a", "b", "", clear(&e)));
    buf_free(&b);
    mem_free(path);
    close_house(&h);
}

static void counts_and_pins_are_kept(void **state) {
    (void)state;
    house h;
    err e = {0};
    assert_true(open_house(&h, fresh_folder(), SHELF_AUTO, &e));
    make_agent(&h, "a", 1, 100);
    char *path = agent_path(&h, "a");
    agent_record a;
    assert_true(agent_read(path, &h.layout, &a, &e) && a.n_tail == 36 && a.hits == 0);
    a.hits = 123456789012;
    assert_true(agent_write(store_shelf(h.store), &a, &h.layout, &e));
    agent_free(&a);
    assert_true(agent_read(path, &h.layout, &a, &e) && a.n_tail == 36 && a.hits == 123456789012);
    agent_free(&a);
    shelf *s = store_shelf(h.store);
    assert_false(shelf_pinned(s, "a", ""));
    assert_true(shelf_pin(s, "a", "", false, &e) && shelf_pin(s, "a", "", true, &e) && shelf_pin(s, "a", "", true, &e));
    assert_true(shelf_pinned(s, "a", ""));
    assert_true(store_remove(h.store, "a", "", &e));
    assert_false(shelf_pinned(s, "a", ""));
    mem_free(path);
    close_house(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forks_are_names_for_the_same_blocks),
        cmocka_unit_test(a_damaged_agent_is_not_forked),
        cmocka_unit_test(counts_and_pins_are_kept),
    };
    return cmocka_run_group_tests(tests, make_base, remove_base);
}
