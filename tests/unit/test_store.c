/* Conversations on disk: what was saved comes back bit for bit, whatever is damaged, missing or killed in between; and never anything else. */
#include "tools/support.h"

#include <dirent.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/blockfile.h"
#include "store/bundle.h"
#include "store/store.h"
#include "unit/store_house.h"

/* ---- tests ---- */

static void comes_back_after_a_restart(void **state) {
    (void)state;
    char *folder = fresh_folder();
    house h;
    static talk a, b;
    err e = {0};
    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    start_talk(&h, &a, NULL), start_talk(&h, &b, NULL);
    say(&h, &a, 1, 300, 1);
    say(&h, &b, 2, 200, 1);
    assert_true(save(&h, &a, "first", NULL, &e) && save(&h, &b, "second: a/b.c", NULL, &e));
    assert_true(store_flush(h.store, &e));
    say(&h, &b, 2, 30, 1); /* never saved */
    end(&a, true), end(&b, true);
    close_house(&h);

    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    assert_int_equal(restore(&h, &a, "first", NULL, 1, 1, &e), 300);
    assert_int_equal(restore(&h, &b, "second: a/b.c", NULL, 2, 1, &e), 200);
    assert_int_equal(store_get_stats(h.store).loaded_blocks, 4 + 2); /* the common block once */
    /* It goes on as if nothing had happened; another process's text is found without an agent. */
    say(&h, &a, 1, 100, 1);
    check_or_write(&a, 0, false, 1);
    end(&a, false), end(&b, false);
    start_talk(&h, &a, NULL);
    assert_int_equal(say(&h, &a, 1, 320, 1), 319);
    end(&a, false);
    /* Other tenants do not find it, nor do they see the agent. */
    assert_int_equal(restore(&h, &b, "first", "someone", 1, 9, &e), 0);
    assert_int_equal(b.n, 0);
    start_talk(&h, &a, "someone");
    assert_int_equal(say(&h, &a, 1, 300, 9), 0);
    end(&a, false), end(&b, false);
    assert_int_equal(h.warnings, 0);
    close_house(&h);
}

/* The published rules of the format, by a reader that knows nothing of hearth, and the alignment that attention wants. Returns the number of tensors. */
static size_t check_safetensors(const char *path) {
    static const struct {
        const char *name;
        size_t bytes;
    } types[] = {{"BOOL", 1}, {"U8", 1}, {"I8", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2}, {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4}, {"F64", 8}, {"I64", 8}, {"U64", 8}};
    buf b = slurp(path);
    uint64_t n = 0;
    assert_true(b.len >= 8);
    for (int i = 0; i < 8; i++) n |= (uint64_t)(uint8_t)b.data[i] << (8 * i);
    assert_true(n <= 100000000 && b.len >= 8 + n && (8 + n) % 64 == 0 && b.data[8] == '{');
    json_t *root = json_loadb(b.data + 8, n, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    const char *name, *key;
    json_t *t, *value;
    size_t covered = 0, n_tensors = 0;
    json_object_foreach(root, name, t) {
        if (strcmp(name, "__metadata__") == 0) {
            json_object_foreach(t, key, value) assert_true(json_is_string(value));
            continue;
        }
        assert_true(json_object_size(t) == 3 && *name);
        json_t *offsets = json_object_get(t, "data_offsets"), *shape = json_object_get(t, "shape");
        const char *type = json_string_value(json_object_get(t, "dtype"));
        assert_true(json_array_size(offsets) == 2 && json_is_array(shape) && type);
        size_t from = (size_t)json_integer_value(json_array_get(offsets, 0)), to = (size_t)json_integer_value(json_array_get(offsets, 1)), want = 0;
        for (size_t i = 0; i < sizeof types / sizeof *types; i++)
            if (strcmp(types[i].name, type) == 0) want = types[i].bytes;
        if (!want) fail_msg("%s: %s has the type %s, which the format does not know", path, name, type);
        for (size_t i = 0; i < json_array_size(shape); i++) {
            assert_true(json_is_integer(json_array_get(shape, i)) && json_integer_value(json_array_get(shape, i)) >= 0);
            want *= (size_t)json_integer_value(json_array_get(shape, i));
        }
        assert_int_equal(to - from, want);
        assert_int_equal(from, covered); /* jansson keeps the order of the file */
        covered = to;
        n_tensors++;
    }
    assert_int_equal(covered, b.len - 8 - n);
    json_decref(root);
    buf_free(&b);
    return n_tensors;
}

static void files_are_safetensors(void **state) {
    (void)state;
    char *folder = fresh_folder();
    house h;
    static talk a;
    err e = {0};
    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    start_talk(&h, &a, NULL);
    say(&h, &a, 1, 150, 1);
    assert_true(save(&h, &a, "quote\"\xc3\xa9", NULL, &e) && store_flush(h.store, &e));
    end(&a, false);
    close_house(&h);
    paths blocks = files_of(folder, "blocks"), agents = files_of(folder, "agents");
    assert_int_equal(blocks.n, is_windowed() ? 4 : 2);
    /* Two layers, one of them with shared values; tokens. When the other is windowed it has a file of its own. */
    for (size_t i = 0; i < blocks.n; i++) assert_int_equal(check_safetensors(blocks.items[i]), is_windowed() ? 2 : 4);
    for (size_t i = 0; i < agents.n; i++) assert_int_equal(check_safetensors(agents.items[i]), 5);
    bundle_info info;
    char path[700];
    snprintf(path, sizeof path, "%s.bundle", folder);
    shelf *s = shelf_open(folder, SHELF_AUTO, &e);
    assert_true(s && bundle_export(s, "quote\"\xc3\xa9", NULL, path, &info, &e));
    assert_int_equal(check_safetensors(path), is_windowed() ? 5 : 3);
    shelf_close(s);
    free_paths(&blocks), free_paths(&agents);
}

static void finds_every_flipped_bit(void **state) {
    (void)state;
    uint64_t rng = test_seed();
    char *folder = fresh_folder();
    house h;
    static talk a;
    err e = {0};
    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    start_talk(&h, &a, NULL);
    say(&h, &a, 1, 170, 1);
    assert_true(save(&h, &a, "x", NULL, &e) && store_flush(h.store, &e));
    end(&a, false);
    close_house(&h);
    for (int round = 0; round < 60; round++) {
        paths files = files_of(folder, "blocks");
        files.items[files.n] = malloc(700);
        snprintf(files.items[files.n++], 700, "%s/agents/x.safetensors", folder);
        const char *path = files.items[(size_t)round % files.n];
        bool is_agent = strstr(path, "/agents/") != NULL;
        buf b = slurp(path);
        size_t at = rng_next(&rng) % b.len, header = 700;
        if (round % 3 == 0) at = rng_next(&rng) % (b.len < header ? b.len : header);
        b.data[at] = (char)(b.data[at] ^ (1 << rng_next(&rng) % 8));
        size_t len = round % 10 == 9 ? at : b.len; /* now and then it is cut off */
        spew(path, b.data, len);
        assert_true(open_house(&h, folder, SHELF_AUTO, &e));
        size_t found = restore(&h, &a, "x", NULL, 1, 1, &e);
        for (size_t i = 0; i < a.kv.n_sealed; i++) kv_block_check(h.cache, a.kv.held[i], a.kv.taken[i], KV_ALL - 1);
        if (is_agent) assert_int_equal(a.n, 0);
        else assert_true(a.n == 170 && (found < 170 || strstr(path, "-0-w"))); /* the windows of token 171 do not reach the first block */
        end(&a, false);
        /* Whole again, so that the next round has all files. */
        start_talk(&h, &a, NULL);
        say(&h, &a, 1, 170, 1);
        assert_true(save(&h, &a, "x", NULL, &e) && store_flush(h.store, &e));
        check_or_write(&a, 0, false, 1);
        end(&a, false);
        close_house(&h);
        assert_int_equal(h.warnings, len == 0 && !is_agent ? 0 : 1);
        buf_free(&b);
        free_paths(&files);
    }
    paths bad = files_of(folder, "bad");
    assert_true(bad.n > 2 && bad.n <= 34); /* a bounded number is kept */
    free_paths(&bad);
}

static void sets_aside_what_is_foreign(void **state) {
    (void)state;
    char *folder = fresh_folder(), path[800];
    house h;
    err e = {0};
    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    static talk a;
    start_talk(&h, &a, NULL);
    say(&h, &a, 1, 64, 1);
    assert_true(store_flush(h.store, &e));
    end(&a, false);
    close_house(&h);
    paths blocks = files_of(folder, "blocks");
    assert_int_equal(blocks.n, 1);
    /* A file of another version under the right name, its checksum right. */
    buf b = slurp(blocks.items[0]);
    char *version = strstr(b.data + 8, "\"version\":\"2\"");
    version[11] = '0';
    spew(blocks.items[0], b.data, b.len);
    buf_free(&b);
    char *slash = strrchr(blocks.items[0], '/');
    snprintf(path, sizeof path, "%.*s/holiday.jpg", (int)(slash - blocks.items[0]), blocks.items[0]);
    spew(path, "x", 1);
    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    start_talk(&h, &a, NULL);
    assert_int_equal(say(&h, &a, 1, 100, 1), 0);
    end(&a, false);
    close_house(&h);
    paths bad = files_of(folder, "bad");
    assert_int_equal(bad.n, 4); /* two files, two reasons */
    free_paths(&bad), free_paths(&blocks);
    /* A whole folder of another version is not touched. */
    snprintf(path, sizeof path, "%s/store.json", folder);
    spew(path, "{\"version\":2}", 13);
    assert_false(open_house(&h, folder, SHELF_AUTO, &e));
    assert_true(e.code == HEARTH_FORMAT && strstr(e.text, "another version"));
    close_house(&h);
}

/* The nth call to the disk fails, for every n: what was reported as saved is there, all that is there is right. */
static void bears_any_failing_call(void **state) {
    (void)state;
    bool done = false;
    long n = 1;
    for (; !done && n < 3000; n++) {
        char *folder = fresh_folder();
        house h;
        static talk a;
        err e = {0};
        file_fail_nth(n);
        size_t saved = 0;
        bool opened = open_house(&h, folder, SHELF_AUTO, &e);
        start_talk(&h, &a, NULL);
        for (int turn = 0; opened && turn < 3; turn++) {
            say(&h, &a, 1, 100, 1);
            err te = {0};
            if (save(&h, &a, "x", NULL, &te) && store_flush(h.store, &te)) saved = a.n;
            else if (save(&h, &a, "x", NULL, clear(&te)) && store_flush(h.store, &te)) saved = a.n; /* only one call fails */
        }
        end(&a, false);
        close_house(&h);
        /* Once more with the failure still to come while reading. */
        if (open_house(&h, folder, SHELF_AUTO, &e)) {
            err re = {0};
            restore(&h, &a, "x", NULL, 1, 1, &re);
            assert_true(re.code != HEARTH_OK || a.n >= saved);
            end(&a, false);
        }
        close_house(&h);
        done = file_count() < n;
        file_fail_nth(0);
        assert_true(open_house(&h, folder, SHELF_AUTO, clear(&e)));
        restore(&h, &a, "x", NULL, 1, 1, &e);
        assert_true(a.n >= saved);
        if (opened) assert_int_equal(saved, 300);
        end(&a, false);
        close_house(&h);
    }
    assert_true(done);
    print_message("# every one of %ld calls failed once\n", n);
}

/* ---- kill -9 ---- */

enum { AGENTS = 3 };
/* Told before a turn is saved, and again when it is. */
typedef struct turn {
    int who;
    bool saved;
    size_t length;
} turn;

/* What may be found of an agent: the last turn that was reported as saved, or one of those that were begun since, for a turn may be on disk before it is reported. */
typedef struct candidates {
    size_t lengths[256];
    int n;
} candidates;

static void note_turn(candidates *c, const turn *t) {
    if (t->saved) c->n = 0;
    assert_true(c->n < 256);
    c->lengths[c->n++] = t->length;
}

static bool is_candidate(const candidates *c, size_t length) {
    for (int i = 0; i < c->n; i++)
        if (c->lengths[i] == length) return true;
    return false;
}

static void run_child(const char *folder, int pipe_fd, uint64_t rng) {
    house h;
    err e = {0};
    static talk t[AGENTS];
    if (!open_house(&h, folder, SHELF_AUTO, &e)) _exit(3);
    for (int i = 0; i < AGENTS; i++) {
        char name[8];
        snprintf(name, sizeof name, "a%d", i);
        restore(&h, &t[i], name, NULL, i, 1, &e);
    }
    for (;;) {
        int who = (int)(rng_next(&rng) % AGENTS);
        talk *x = &t[who];
        char name[8];
        snprintf(name, sizeof name, "a%d", who);
        if (x->n > 1500) { /* start over: another text */
            x->n = 0;
            kv_seq_truncate(&x->kv, 0);
        }
        say(&h, x, who, 1 + rng_next(&rng) % 150, 1);
        turn t1 = {who, false, x->n}, t2 = {who, true, x->n};
        if (write(pipe_fd, &t1, sizeof t1) != sizeof t1) _exit(5);
        if (!save(&h, x, name, NULL, &e) || !store_flush(h.store, &e)) _exit(4);
        if (write(pipe_fd, &t2, sizeof t2) != sizeof t2) _exit(5);
    }
}

static void survives_kill_9(void **state) {
    (void)state;
    uint64_t rng = test_seed();
    char *folder = fresh_folder();
    static candidates may_be[AGENTS];
    size_t turns = 0;
    for (int i = 0; i < AGENTS; i++) may_be[i] = (candidates){.n = 1}; /* nothing */
    for (int round = 0; round < 200; round++) {
        int fds[2];
        assert_int_equal(pipe(fds), 0);
        uint64_t seed = rng_next(&rng);
        pid_t child = fork();
        if (child == 0) {
            close(fds[0]);
            run_child(folder, fds[1], seed);
        }
        close(fds[1]);
        usleep((useconds_t)(500 + rng_next(&rng) % 15000));
        kill(child, SIGKILL);
        int status;
        waitpid(child, &status, 0);
        if (!WIFSIGNALED(status)) fail_msg("the writer ended by itself with status %d", status);
        turn told;
        while (read(fds[0], &told, sizeof told) == sizeof told) note_turn(&may_be[told.who], &told), turns += told.saved;
        close(fds[0]);
        if (round % 4 && round < 196) continue; /* opening is the child's work too */
        house h;
        err e = {0};
        assert_true(open_house(&h, folder, SHELF_AUTO, &e));
        for (int i = 0; i < AGENTS; i++) {
            static talk t;
            char name[8];
            snprintf(name, sizeof name, "a%d", i);
            size_t found = restore(&h, &t, name, NULL, i, 1, &e);
            assert_int_equal(e.code, HEARTH_OK);
            if (!is_candidate(&may_be[i], t.n)) fail_msg("agent %d has %zu tokens, but %zu were saved", i, t.n, may_be[i].lengths[0]);
            assert_int_equal(found, t.n);
            end(&t, false);
        }
        assert_int_equal(h.warnings, 0);
        close_house(&h);
    }
    print_message("# 200 rounds, %zu turns\n", turns);
    assert_true(turns > 20);
}

/* ---- budgets, several processes, a failing disk ---- */

static void stays_within_its_budget(void **state) {
    (void)state;
    uint64_t rng = test_seed();
    char *folder = fresh_folder();
    house h;
    err e = {0};
    assert_true(open_house(&h, folder, 150000, &e));
    static talk t;
    uint64_t most = 0, written = 0;
    for (int i = 0; i < 120; i++) {
        start_talk(&h, &t, NULL);
        char name[16];
        int who = (int)(rng_next(&rng) % 30);
        snprintf(name, sizeof name, "agent%d", who % 5);
        say(&h, &t, who, 1 + rng_next(&rng) % 600, 1);
        check_or_write(&t, 0, false, 1);
        if (i % 4 == 0) assert_true(save(&h, &t, name, NULL, &e));
        assert_true(store_flush(h.store, &e));
        end(&t, true);
        paths all = files_of(folder, ""), blocks = files_of(folder, "blocks"), agents = files_of(folder, "agents");
        if (all.bytes > most) most = all.bytes;
        assert_int_equal(store_get_stats(h.store).disk.bytes, blocks.bytes + agents.bytes); /* every time: the next eviction would count anew */
        free_paths(&all), free_paths(&blocks), free_paths(&agents);
        written = store_get_stats(h.store).written_bytes;
    }
    store_stats s = store_get_stats(h.store);
    print_message("# %lu bytes written, at most %lu there, %lu evictions\n", (unsigned long)written, (unsigned long)most, (unsigned long)s.disk.evictions);
    assert_true(written > 2 * 150000 && s.disk.evictions > 0);
    assert_true(most <= 150000 + 100); /* the mark of the folder is not counted */
    paths all = files_of(folder, "blocks"), agents = files_of(folder, "agents");
    assert_int_equal(s.disk.bytes, all.bytes + agents.bytes);
    free_paths(&all), free_paths(&agents);
    close_house(&h);
}

static void keeps_pinned_agents(void **state) {
    (void)state;
    char *folder = fresh_folder();
    house h;
    err e = {0};
    assert_true(open_house(&h, folder, 150000, &e));
    static talk t;
    start_talk(&h, &t, NULL);
    say(&h, &t, 1, 300, 1);
    assert_true(save(&h, &t, "dear", NULL, &e) && store_flush(h.store, &e));
    assert_true(shelf_pin(store_shelf(h.store), "dear", "", true, &e));
    end(&t, false);
    for (int i = 2; i < 20; i++) {
        start_talk(&h, &t, NULL);
        say(&h, &t, i, 600, 1);
        assert_true(store_flush(h.store, &e));
        end(&t, false);
    }
    assert_true(store_get_stats(h.store).disk.evictions > 0);
    close_house(&h);
    assert_true(open_house(&h, folder, 150000, &e));
    assert_int_equal(restore(&h, &t, "dear", NULL, 1, 1, &e), 300);
    end(&t, false);
    close_house(&h);
}

static void shares_a_folder(void **state) {
    (void)state;
    char *folder = fresh_folder();
    house one, two;
    err e = {0};
    assert_true(open_house(&one, folder, SHELF_AUTO, &e) && open_house(&two, folder, SHELF_AUTO, &e));
    static talk a, b;
    start_talk(&one, &a, NULL);
    say(&one, &a, 1, 300, 1);
    assert_true(save(&one, &a, "x", NULL, &e) && store_flush(one.store, &e));
    start_talk(&two, &b, NULL);
    assert_int_equal(say(&two, &b, 1, 300, 1), 256); /* written after the other's scan */
    check_or_write(&b, 0, false, 1);
    end(&b, false);
    agent_record x, y;
    int lock, other;
    assert_true(store_take(one.store, "x", "", &x, &lock, &e));
    assert_false(store_take(two.store, "x", "", &y, &other, &e));
    assert_true(e.code == HEARTH_LIMIT && strstr(e.text, "elsewhere"));
    store_release(lock);
    assert_true(store_take(two.store, "x", "", &y, &other, clear(&e)));
    agent_free(&x), agent_free(&y);
    store_release(other);
    /* One deletes while the other uses: what is mapped stays, what is gone is computed again. */
    start_talk(&two, &b, NULL);
    say(&two, &b, 1, 300, 1);
    bool busy;
    assert_true(shelf_collect(store_shelf(one.store), 0, &busy, &e) && !busy);
    check_or_write(&b, 0, false, 1);
    end(&a, false), end(&b, false);
    close_house(&two);
    assert_true(open_house(&two, folder, SHELF_AUTO, &e));
    restore(&two, &b, "x", NULL, 1, 1, &e);
    assert_int_equal(b.n, 300); /* the text is kept */
    end(&b, false);
    assert_true(store_remove(two.store, "x", "", &e));
    close_house(&one), close_house(&two);
}

static void goes_on_without_a_disk(void **state) {
    (void)state;
    char *folder = fresh_folder(), away[700];
    snprintf(away, sizeof away, "%s-away", folder);
    house h;
    err e = {0};
    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    static talk t;
    start_talk(&h, &t, NULL);
    say(&h, &t, 1, 100, 1);
    assert_true(store_flush(h.store, &e));
    assert_int_equal(rename(folder, away), 0);
    spew(folder, "", 0); /* nothing can be made there */
    say(&h, &t, 1, 200, 1);
    assert_true(save(&h, &t, "x", NULL, &e));
    assert_false(store_flush(h.store, &e));
    assert_true(e.code == HEARTH_IO && store_get_stats(h.store).degraded);
    say(&h, &t, 1, 100, 1);
    check_or_write(&t, 0, false, 1);
    assert_int_equal(h.warnings, 1);
    assert_true(strstr(h.warning, "memory only") != NULL);
    assert_int_equal(unlink(folder), 0);
    assert_int_equal(rename(away, folder), 0);
    assert_true(store_flush(h.store, clear(&e)));
    assert_false(store_get_stats(h.store).degraded);
    assert_true(strstr(h.warning, "on disk again") != NULL);
    for (size_t i = 0; i < t.kv.n_sealed; i++) store_put(h.store, t.kv.held[i]);
    assert_true(save(&h, &t, "x", NULL, &e) && store_flush(h.store, &e));
    end(&t, false);
    close_house(&h);
    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    assert_int_equal(restore(&h, &t, "x", NULL, 1, 1, &e), 400);
    end(&t, false);
    close_house(&h);
}

/* Until `blocks` of them are written. */
static void await_blocks(house *h, uint64_t blocks) {
    for (int i = 0; i < 60000 && store_get_stats(h->store).written_blocks < blocks; i++) usleep(1000);
    assert_int_equal(store_get_stats(h->store).written_blocks, blocks);
}

/* Gently, a block is written and the next one waits; but not when an agent is saved after it, when someone waits, or when streams have ended. */
static void writes_gently(void **state) {
    (void)state;
    house h = {.layout = house_layout()};
    err e = {0};
    h.cache = kv_cache_new(&h.layout, 1 << 30, &e);
    h.store = store_open(&(store_options){.folder = fresh_folder(), .disk = SHELF_AUTO, .pause_seconds = 1e6}, h.cache, &h.layout, "0123456789abcdef", &e);
    assert_non_null(h.store);
    static talk t;
    start_talk(&h, &t, NULL);
    for (uint64_t round = 0; round < 3; round++) {
        const uint64_t before = store_get_stats(h.store).written_blocks;
        store_gently(h.store, true);
        say(&h, &t, 1, 4 * KV_BLOCK, 1);
        await_blocks(&h, before + (round == 0)); /* the first of all has nothing to wait for */
        usleep(20000);
        assert_true(store_get_stats(h.store).written_blocks == before + (round == 0) && store_get_stats(h.store).waiting >= 3);
        if (round == 0) assert_true(store_flush(h.store, &e));
        if (round == 1) assert_true(save(&h, &t, "x", NULL, &e));
        if (round == 2) store_gently(h.store, false);
        await_blocks(&h, 4 * (round + 1));
    }
    store_gently(h.store, true);
    say(&h, &t, 1, 4 * KV_BLOCK, 1);
    end(&t, false);
    close_house(&h); /* nor at the end */
}

typedef struct user {
    house *h;
    int who;
} user;

static void *use(void *arg) {
    user *u = arg;
    talk *t = calloc(1, sizeof *t);
    for (int i = 0; i < 6; i++) {
        err e = {0};
        char name[8];
        snprintf(name, sizeof name, "u%d", u->who);
        restore(u->h, t, name, NULL, u->who, 1, &e);
        assert_int_equal(e.code, HEARTH_OK);
        say(u->h, t, u->who, 120, 1);
        assert_true(save(u->h, t, name, NULL, &e));
        if (i % 2) assert_true(store_flush(u->h->store, &e));
        check_or_write(t, 0, false, 1);
        assert_true(store_flush(u->h->store, &e));
        end(t, i % 2);
    }
    free(t);
    return NULL;
}

static void serves_several_threads(void **state) {
    (void)state;
    house h;
    err e = {0};
    assert_true(open_house(&h, fresh_folder(), 400000, &e));
    pthread_t threads[4];
    user users[4];
    for (int i = 0; i < 4; i++) {
        users[i] = (user){&h, i};
        pthread_create(&threads[i], NULL, use, &users[i]);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    close_house(&h);
}

/* Ten thousand agents: the figure is printed. */
static void scans_quickly(void **state) {
    (void)state;
    char *folder = fresh_folder(), path[800];
    house h;
    err e = {0};
    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    static talk t;
    start_talk(&h, &t, NULL);
    say(&h, &t, 1, 100, 1);
    assert_true(save(&h, &t, "x", NULL, &e) && store_flush(h.store, &e));
    end(&t, false);
    close_house(&h);
    paths agents = files_of(folder, "agents"), blocks = files_of(folder, "blocks");
    buf ref = slurp(agents.items[0]), block = slurp(blocks.items[0]);
    int n = 10000;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    n = 500;
#endif
    uint64_t rng = 1;
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/agents/agent%d.safetensors", folder, i);
        FILE *f = fopen(path, "w");
        fwrite(ref.data, 1, ref.len, f), fclose(f);
        for (int k = 0; k < 3; k++) {
            kv_name name;
            for (size_t b = 0; b < 32; b++) name.bytes[b] = (uint8_t)rng_next(&rng);
            name.bytes[0] = (uint8_t)(k * 16); /* few folders, quick to make */
            char text[65];
            kv_name_text(&name, text);
            snprintf(path, sizeof path, "%s/blocks/%.2s", folder, text);
            mkdir(path, 0755);
            snprintf(path + strlen(path), sizeof path - strlen(path), "/%s-0000000000000000-%d.safetensors", text, k);
            f = fopen(path, "w");
            fwrite(block.data, 1, 100, f), fclose(f);
        }
    }
    assert_true(open_house(&h, folder, SHELF_AUTO, &e));
    store_stats s = store_get_stats(h.store);
    assert_true(s.disk.agents >= (uint64_t)n && s.disk.blocks >= 3 * (uint64_t)n);
    print_message("# %lu agents and %lu blocks scanned in %.3f s\n", (unsigned long)s.disk.agents, (unsigned long)s.disk.blocks, s.disk.scan_seconds);
    close_house(&h);
    buf_free(&ref), buf_free(&block);
    free_paths(&agents), free_paths(&blocks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_back_after_a_restart),
        cmocka_unit_test(files_are_safetensors),
        cmocka_unit_test(finds_every_flipped_bit),
        cmocka_unit_test(sets_aside_what_is_foreign),
        cmocka_unit_test(bears_any_failing_call),
        cmocka_unit_test(survives_kill_9),
        cmocka_unit_test(stays_within_its_budget),
        cmocka_unit_test(keeps_pinned_agents),
        cmocka_unit_test(shares_a_folder),
        cmocka_unit_test(goes_on_without_a_disk),
        cmocka_unit_test(writes_gently),
        cmocka_unit_test(serves_several_threads),
        cmocka_unit_test(scans_quickly),
    };
    return cmocka_run_group_tests(tests, make_base, remove_base) + cmocka_run_group_tests_name("windowed", tests, make_windowed_base, remove_base);
}
