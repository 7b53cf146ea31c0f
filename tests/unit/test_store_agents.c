/* Agents in the store: forks, pins, counts, and what their files tell without a model. */
#include "tools/support.h"

#include <jansson.h>

#include "store/bundle.h"
#include "store/tensorfile.h"
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

/* ---- an agent in one file ---- */

static char *bundle_path(void) {
    static char path[700];
    snprintf(path, sizeof path, "%s/bundle.hearth", base_dir);
    return path;
}

static void moves_to_another_store(void **state) {
    (void)state;
    house h;
    err e = {0};
    bundle_info info;
    static talk t;
    assert_true(open_house(&h, fresh_folder(), SHELF_AUTO, &e));
    make_agent(&h, "a", 1, 300);
    assert_true(bundle_export(store_shelf(h.store), "a", NULL, bundle_path(), &info, &e));
    assert_true(info.tokens == 300 && info.blocks == 4 && info.missing == 0 && strcmp(info.name, "a") == 0 && strcmp(info.model, store_model(h.store)) == 0);
    assert_false(bundle_export(store_shelf(h.store), "nobody", NULL, "/dev/null", &info, &e));
    assert_int_equal(e.code, HEARTH_ARGUMENT);
    close_house(&h);

    assert_true(open_house(&h, fresh_folder(), SHELF_AUTO, clear(&e)));
    assert_false(bundle_import(store_shelf(h.store), bundle_path(), NULL, "someone", &info, &e));
    assert_true(e.code == HEARTH_ARGUMENT && strstr(e.text, "no tenant"));
    assert_true(bundle_import(store_shelf(h.store), bundle_path(), NULL, NULL, &info, clear(&e)));
    assert_true(info.tokens == 300 && info.blocks == 4 && info.missing == 0 && strcmp(info.name, "a") == 0);
    assert_int_equal(restore(&h, &t, "a", NULL, 1, 1, &e), 300);
    end(&t, false);
    assert_int_equal(store_get_stats(h.store).loaded_blocks, 4);
    assert_false(bundle_import(store_shelf(h.store), bundle_path(), NULL, NULL, &info, &e));
    assert_true(e.code == HEARTH_ARGUMENT && strstr(e.text, "already"));
    uint64_t bytes = store_get_stats(h.store).disk.bytes;
    assert_true(bundle_import(store_shelf(h.store), bundle_path(), "b", NULL, &info, clear(&e)));
    assert_int_equal(store_get_stats(h.store).disk.blocks, 4); /* shared with a */
    assert_true(store_get_stats(h.store).disk.bytes < bytes + kv_packed_bytes(&h.layout, 44) + 2500);
    assert_int_equal(restore(&h, &t, "b", NULL, 1, 1, &e), 300);
    end(&t, false);
    paths files = files_of(shelf_folder(store_shelf(h.store)), "");
    uint64_t counted = store_get_stats(h.store).disk.bytes;
    assert_true(files.bytes >= counted && files.bytes < counted + 100); /* but for the mark */
    free_paths(&files);
    close_house(&h);

    /* Without room for all its blocks the text is there, and as many blocks as fit. */
    assert_true(open_house(&h, fresh_folder(), is_windowed() ? 20000 : 13000, clear(&e)));
    assert_true(bundle_import(store_shelf(h.store), bundle_path(), NULL, NULL, &info, &e));
    assert_true(info.blocks > 0 && info.blocks + info.missing == 4 && (is_windowed() ? info.windows < 2 : info.missing > 0));
    size_t found = restore(&h, &t, "a", NULL, 1, 1, &e);
    assert_true(t.n == 300 && found < 300 && (found >= 64 || is_windowed()));
    end(&t, false);
    close_house(&h);
}

static void tenants_stay_apart_when_moved(void **state) {
    (void)state;
    house h;
    err e = {0};
    bundle_info info;
    static talk t;
    assert_true(open_house(&h, fresh_folder(), SHELF_AUTO, &e));
    start_talk(&h, &t, "me");
    say(&h, &t, 1, 200, 5);
    assert_true(save(&h, &t, "a", "me", &e) && store_flush(h.store, &e));
    end(&t, false);
    assert_false(bundle_export(store_shelf(h.store), "a", NULL, bundle_path(), &info, &e));
    assert_true(bundle_export(store_shelf(h.store), "a", "me", bundle_path(), &info, clear(&e)));
    assert_int_equal(info.blocks, 3);
    close_house(&h);
    assert_true(open_house(&h, fresh_folder(), SHELF_AUTO, &e));
    assert_false(bundle_import(store_shelf(h.store), bundle_path(), NULL, NULL, &info, &e));
    assert_true(e.code == HEARTH_ARGUMENT && strstr(e.text, "tenant"));
    assert_false(bundle_import(store_shelf(h.store), bundle_path(), NULL, "you", &info, clear(&e)));
    assert_true(bundle_import(store_shelf(h.store), bundle_path(), NULL, "me", &info, clear(&e)));
    assert_int_equal(restore(&h, &t, "a", "me", 1, 5, &e), 200);
    end(&t, false);
    close_house(&h);
}

/* Fills in the checksum of a file that was tampered with, so that only what it says can give it away. */
static void seal(buf *b) {
    uint64_t n;
    memcpy(&n, b->data, 8);
    tensor_header h = {.offset = b->len - 8 - n};
    char path[700];
    snprintf(path, sizeof path, "%s/sealed", base_dir);
    assert_true(buf_add(&h.text, b->data, 8 + n, NULL) && tensor_write(path, &h, b->data + 8 + n, NULL));
    buf_free(&h.text);
    buf_free(b);
    *b = slurp(path);
}

static void every_damaged_byte_is_refused(void **state) {
    (void)state;
    uint64_t rng = test_seed();
    house h;
    err e = {0};
    bundle_info info;
    assert_true(open_house(&h, fresh_folder(), SHELF_AUTO, &e));
    make_agent(&h, "a", 1, 200);
    assert_true(bundle_export(store_shelf(h.store), "a", NULL, bundle_path(), &info, &e));
    close_house(&h);
    buf whole = slurp(bundle_path());
    char *folder = fresh_folder();
    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    for (int i = 0; i < 600; i++) {
        buf b = {0};
        size_t at = rng_next(&rng) % (i % 2 ? whole.len : 900);
        if (i % 7 == 6) assert_true(buf_add(&b, whole.data, at, NULL)); /* cut off */
        else {
            assert_true(buf_add(&b, whole.data, whole.len, NULL));
            b.data[at] = (char)(b.data[at] ^ (1 << rng_next(&rng) % 8));
        }
        bool sealed = i % 3 == 0 && at > 60 && b.len == whole.len;
        if (sealed) seal(&b);
        spew(bundle_path(), b.data ? b.data : "", b.len);
        /* What the outer checksum does not give away, those inside do; but for the bundle's own words on name and model, which nothing is taken from. */
        bool ok = bundle_import(store_shelf(h.store), bundle_path(), "x", NULL, &info, clear(&e));
        if (ok && !sealed) fail_msg("byte %zu changed and nobody noticed", at);
        if (ok) {
            static talk t;
            assert_int_equal(restore(&h, &t, "x", NULL, 1, 1, &e), 200);
            end(&t, false);
            assert_true(store_remove(h.store, "x", "", &e));
        } else {
            assert_int_equal(e.code, HEARTH_FORMAT);
        }
        buf_free(&b);
    }
    /* A header that lies about its shapes. */
    static const char *const lies[][2] = {{"\"agent\":{", "\"agenT\":{"}, {"\"blocks.0\"", "\"blocks.7\""}, {"\"version\":\"1\"", "\"version\":\"2\""},
                                          {"hearth-bundle", "hearth-bungle"}, {"\"U8\"", "\"U9\""}, {"\"shape\":[", "\"shape\":[["}, {"data_offsets", "data_offset5"}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        buf b = {0};
        assert_true(buf_add(&b, whole.data, whole.len, NULL));
        char *at = memmem(b.data, b.len, lies[i][0], strlen(lies[i][0]));
        assert_non_null(at);
        memcpy(at, lies[i][1], strlen(lies[i][1]));
        seal(&b);
        spew(bundle_path(), b.data, b.len);
        assert_false(bundle_import(store_shelf(h.store), bundle_path(), "x", NULL, &info, clear(&e)));
        assert_int_equal(e.code, HEARTH_FORMAT);
        buf_free(&b);
    }
    buf_free(&whole);
    close_house(&h);
}

/* A block whose keys and values belong to other tokens: its checksum is right, its name is not. */
static void blocks_of_other_tokens_are_refused(void **state) {
    (void)state;
    house h;
    err e = {0};
    bundle_info info;
    assert_true(open_house(&h, fresh_folder(), SHELF_AUTO, &e));
    make_agent(&h, "a", 1, 192);
    make_agent(&h, "b", 2, 192);
    assert_true(bundle_export(store_shelf(h.store), "a", NULL, bundle_path(), &info, &e));
    buf a = slurp(bundle_path());
    assert_true(bundle_export(store_shelf(h.store), "b", NULL, bundle_path(), &info, &e));
    buf b = slurp(bundle_path());
    close_house(&h);
    assert_int_equal(a.len, b.len);
    /* The last block of b in place of that of a. */
    char *last_a = NULL, *last_b = NULL;
    for (char *p = a.data; (p = memmem(p, (size_t)(a.data + a.len - p), "\"hearth-kv\"", 11)); p++) last_a = p;
    for (char *p = b.data; (p = memmem(p, (size_t)(b.data + b.len - p), "\"hearth-kv\"", 11)); p++) last_b = p;
    assert_int_equal(last_a - a.data, last_b - b.data);
    size_t from = (size_t)(last_b - b.data) - 64; /* where that file starts */
    memcpy(a.data + from, b.data + from, b.len - from);
    seal(&a);
    spew(bundle_path(), a.data, a.len);
    assert_true(open_house(&h, fresh_folder(), SHELF_AUTO, &e));
    assert_false(bundle_import(store_shelf(h.store), bundle_path(), NULL, NULL, &info, &e));
    assert_true(e.code == HEARTH_FORMAT && strstr(e.text, is_windowed() ? "the window part of block 1" : "block 2")); /* window parts come last in the file */
    assert_int_equal(store_get_stats(h.store).disk.blocks, 0); /* nothing of it was taken */
    buf_free(&a), buf_free(&b);
    close_house(&h);
}

/* ---- hearth cache ---- */

static buf out, errors;

static int hearth_cache(const char *const *args) {
    const char *argv[20] = {hearth_program(), "cache"};
    int n = 2;
    for (; args[n - 2]; n++) argv[n] = args[n - 2];
    out.len = errors.len = 0;
    int status = run_program(argv, NULL, 0, &out, &errors, 60);
    buf_add(&out, "", 0, NULL), buf_add(&errors, "", 0, NULL);
    return status;
}
#define CACHE(...) hearth_cache((const char *[]){__VA_ARGS__, NULL})

static json_t *output(void) {
    json_t *o = json_loadb(out.data, out.len, 0, NULL);
    if (!o) fail_msg("no JSON in '%s'; stderr: %s", out.data, errors.data);
    return o;
}

static int64_t number(const json_t *o, const char *name) { return json_integer_value(json_object_get(o, name)); }

static void commands_manage_agents(void **state) {
    (void)state;
    house h;
    err e = {0};
    char *here = fresh_folder(), *there = fresh_folder();
    assert_true(open_house(&h, here, SHELF_AUTO, &e));
    make_agent(&h, "a", 1, 300);
    close_house(&h);
    assert_int_equal(CACHE("fork", "a", "b", "--store-dir", here), 0);
    assert_int_equal(CACHE("fork", "a", "b", "--store-dir", here), 1);
    assert_non_null(strstr(errors.data, "already"));
    assert_int_equal(CACHE("fork", "a", "--store-dir", here), 2);
    assert_int_equal(CACHE("pin", "b", "--store-dir", here, "--json"), 0);
    assert_int_equal(CACHE("pin", "c", "--store-dir", here), 1);
    assert_int_equal(CACHE("export", "b", bundle_path(), "--store-dir", here, "--json"), 0);
    json_t *o = output();
    assert_true(number(o, "tokens") == 300 && number(o, "blocks") == 4 && number(o, "missing") == 0);
    json_decref(o);
    assert_int_equal(CACHE("export", "nobody", bundle_path(), "--store-dir", here), 1);
    assert_int_equal(CACHE("import", bundle_path(), "--store-dir", there), 0);
    assert_int_equal(CACHE("import", bundle_path(), "--store-dir", there), 1);
    assert_int_equal(CACHE("import", bundle_path(), "c", "--store-dir", there, "--json"), 0);
    assert_int_equal(CACHE("import", "/dev/null", "--store-dir", there), 1);
    assert_int_equal(CACHE("ls", "--store-dir", here, "--json"), 0);
    o = output();
    const json_t *list = json_object_get(o, "agents");
    assert_int_equal(json_array_size(list), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *a = json_array_get(list, i);
        bool is_b = strcmp(json_string_value(json_object_get(a, "name")), "b") == 0;
        assert_true(number(a, "tokens") == 300 && number(a, "blocks") == 4 && number(a, "hits") == 0);
        assert_string_equal(json_string_value(json_object_get(a, "tier")), "warm");
        assert_int_equal(json_is_true(json_object_get(a, "pinned")), is_b);
    }
    json_decref(o);
    assert_int_equal(CACHE("unpin", "b", "--store-dir", here), 0);
    assert_int_equal(CACHE("stats", "--store-dir", here, "--json"), 0);
    o = output();
    assert_true(number(o, "agents") == 2 && number(o, "pinned") == 0 && number(o, "blocks") == 4 && number(o, "tokens") == 600);
    assert_int_equal(number(o, "bytes"), number(o, "block_bytes") + number(o, "agent_bytes"));
    json_decref(o);
    assert_int_equal(CACHE("rm", "b", "--store-dir", here), 0);
    assert_int_equal(CACHE("verify", "--store-dir", there, "--json"), 0);
    o = output();
    assert_int_equal(number(o, "whole"), is_windowed() ? 8 : 6);
    json_decref(o);
    assert_int_equal(CACHE("gc", "--kv-disk", "0", "--store-dir", there), 0); /* texts stay, and so do their names */
    assert_int_equal(CACHE("ls", "--store-dir", there), 0);
    assert_non_null(strstr(out.data, "0 of     4 blocks"));
    assert_non_null(strstr(out.data, "cold"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forks_are_names_for_the_same_blocks),
        cmocka_unit_test(a_damaged_agent_is_not_forked),
        cmocka_unit_test(counts_and_pins_are_kept),
        cmocka_unit_test(moves_to_another_store),
        cmocka_unit_test(tenants_stay_apart_when_moved),
        cmocka_unit_test(every_damaged_byte_is_refused),
        cmocka_unit_test(commands_manage_agents),
        cmocka_unit_test(blocks_of_other_tokens_are_refused),
    };
    return cmocka_run_group_tests(tests, make_base, remove_base) + cmocka_run_group_tests_name("windowed", tests, make_windowed_base, remove_base);
}
