/* Sessions that are remembered: agents by name, prefixes by their tokens, forks, tenants; on a model made up here. */
#include "tools/support.h"

#include <unistd.h>

#include "unit/tiny_model.h"

static char base[] = "/dev/shm/hearth-test-XXXXXX";
static const char *folder; /* of the store of the running test */
static char warning[1000];
static const char *kv_type; /* of engines that are opened; NULL: the usual one */

static int start_folder(void **state) {
    (void)state;
    static int number;
    static char path[600];
    if (number == 0 && !mkdtemp(base)) strcpy(base, "");
    snprintf(path, sizeof path, "%s/store%d", base[0] ? base : temp_dir(), number++);
    folder = path;
    return 0;
}

static int remove_base(void **state) {
    (void)state;
    if (base[0]) run_program((const char *const[]){"rm", "-rf", base, NULL}, NULL, 0, NULL, NULL, 60);
    return 0;
}

static void take_warning(void *user, const char *sentence) {
    (void)user;
    snprintf(warning, sizeof warning, "%s", sentence);
}

static tiny tiny_with_room(uint64_t seed) {
    tiny m = make_llama();
    for (int i = 0; i < m.n_keys; i++)
        if (strstr(m.keys[i].name, "context_length")) m.keys[i].number = 1000;
    m.seed = seed;
    return m;
}

static hearth_engine *open_with(uint64_t seed, bool store, const char *cpu) {
    err e = {0};
    tiny m = tiny_with_room(seed);
    hearth_engine_options o = hearth_engine_defaults();
    o.cpu = cpu;
    o.threads = 2;
    o.cache = false;
    o.store = store;
    o.store_dir = folder;
    o.kv_type = kv_type;
    o.warn = take_warning;
    hearth_engine *en = hearth_engine_open(write_tiny(&m, false, NULL), &o, &e);
    if (!en) fail_msg("%s", e.text);
    return en;
}

static void say(hearth_session *s, int from, int n) {
    err e = {0};
    for (int i = 0; i < n; i += 50) {
        int32_t ids[50];
        int k = 0;
        for (; k < 50 && i + k < n; k++) ids[k] = (from + (i + k) * 7) % 250;
        if (!hearth_session_append(s, ids, (size_t)k, &e)) fail_msg("%s", e.text);
    }
}

static hearth_session *open_agent(hearth_engine *en, const char *name, const char *tenant) {
    err e = {0};
    hearth_session *s = hearth_session_open(en, name, tenant, &e);
    if (!s) fail_msg("%s", e.text);
    return s;
}

static void same_logits(hearth_session *a, hearth_session *b) {
    assert_int_equal(hearth_session_length(a), hearth_session_length(b));
    assert_memory_equal(hearth_session_logits(a), hearth_session_logits(b), VOCAB * sizeof(float));
}

static uint64_t found(hearth_engine *en) { return hearth_engine_kv(en).tokens_found; }

static void finds_prefixes_of_other_sessions(void **state) {
    (void)state;
    hearth_engine *en = open_with(1, false, "ref");
    hearth_session *a = open_agent(en, NULL, NULL), *b = open_agent(en, NULL, NULL), *other = open_agent(en, NULL, "someone");
    say(a, 1, 200);
    say(b, 1, 200);
    assert_int_equal(found(en), 3 * 49 + 42); /* all but the last token of each piece, and the last 8, which fill no block */
    same_logits(a, b);
    uint64_t before = found(en);
    say(other, 1, 200);
    assert_int_equal(found(en), before);
    same_logits(a, other);
    hearth_session_free(a), hearth_session_free(b), hearth_session_free(other);
    hearth_engine_close(en);
}

static void forks_are_independent(void **state) {
    (void)state;
    err e = {0};
    hearth_engine *en = open_with(1, false, "ref");
    hearth_session *a = hearth_session_new(en, &e), *plain = hearth_session_new(en, &e);
    say(a, 1, 100);
    uint64_t bytes = hearth_engine_kv(en).hot_bytes;
    hearth_session *f = hearth_session_fork(a, &e);
    assert_non_null(f);
    assert_int_equal(hearth_engine_kv(en).hot_bytes, bytes);
    same_logits(a, f);
    say(f, 3, 40), say(a, 9, 30);
    say(plain, 1, 100), say(plain, 3, 40);
    same_logits(f, plain);
    assert_true(hearth_session_rewind(f, 70, &e) && hearth_session_rewind(plain, 70, &e));
    same_logits(f, plain);
    say(f, 5, 5), say(plain, 5, 5);
    same_logits(f, plain);
    hearth_session_free(a), hearth_session_free(f), hearth_session_free(plain);
    hearth_engine_close(en);
}

static void agents_go_on(void **state) {
    (void)state;
    err e = {0};
    hearth_engine *en = open_with(1, true, NULL), *never = open_with(1, false, NULL);
    hearth_session *a = open_agent(en, "anna", NULL), *whole = hearth_session_new(never, &e);
    say(a, 1, 151), say(whole, 1, 151);
    assert_true(hearth_session_set_note(a, "hello", 5, &e) && hearth_session_save(a, &e));
    /* Nobody else has it meanwhile. */
    assert_null(hearth_session_open(en, "anna", NULL, &e));
    assert_non_null(strstr(e.text, "elsewhere"));
    say(a, 2, 33), say(whole, 2, 33);
    hearth_session_free(a); /* saves what is new */
    hearth_engine_close(en);

    en = open_with(1, true, NULL);
    a = open_agent(en, "anna", NULL);
    size_t len;
    const char *note = hearth_session_note(a, &len);
    assert_true(len == 5 && memcmp(note, "hello", 5) == 0);
    assert_int_equal(hearth_session_length(a), 184);
    say(a, 3, 20), say(whole, 3, 20);
    same_logits(a, whole);
    assert_int_equal(hearth_engine_kv(en).tokens_loaded, 128);
    /* Rewinding moves the agent. */
    assert_true(hearth_session_rewind(a, 100, &e) && hearth_session_rewind(whole, 100, &e) && hearth_session_save(a, &e));
    hearth_session_free(a);
    a = open_agent(en, "anna", NULL);
    assert_int_equal(hearth_session_length(a), 100);
    same_logits(a, whole);
    hearth_session *stranger = open_agent(en, "anna", "someone");
    assert_int_equal(hearth_session_length(stranger), 0);
    hearth_session_free(stranger);
    assert_true(hearth_session_drop(a, &e));
    hearth_session_free(a);
    a = open_agent(en, "anna", NULL);
    assert_int_equal(hearth_session_length(a), 0);
    hearth_session_free(a), hearth_session_free(whole);
    hearth_engine_close(en), hearth_engine_close(never);
}

static void models_do_not_mix(void **state) {
    (void)state;
    err e = {0};
    hearth_engine *en = open_with(1, true, "ref");
    hearth_session *a = open_agent(en, "anna", NULL);
    say(a, 1, 200);
    hearth_session_free(a);
    hearth_engine_close(en);
    /* Another model of the same dimensions. */
    en = open_with(2, true, "ref");
    assert_null(hearth_session_open(en, "anna", NULL, &e));
    assert_non_null(strstr(e.text, "another model"));
    a = open_agent(en, "berta", NULL);
    say(a, 1, 200);
    assert_int_equal(found(en), 0);
    hearth_session_free(a);
    hearth_engine_close(en);
    /* The same model with other numbers in its keys and values: the text is known, the rest computed. */
    en = open_with(1, true, NULL);
    if (strcmp(hearth_engine_info(en).cpu, "ref") != 0) {
        a = open_agent(en, "anna", NULL);
        assert_int_equal(hearth_session_length(a), 200);
        assert_int_equal(hearth_engine_kv(en).tokens_loaded, 0);
        say(a, 1, 3);
        hearth_session_free(a);
    }
    hearth_engine_close(en);
}

static bool take_agent(void *user, const hearth_agent *a) {
    ((hearth_agent *)user)[strcmp(a->name, "copy") == 0] = *a;
    return true;
}

static void agents_are_managed(void **state) {
    (void)state;
    err e = {0};
    char path[700];
    snprintf(path, sizeof path, "%s.bundle", folder);
    hearth_engine *en = open_with(1, true, "ref");
    hearth_session *s = open_agent(en, "a", NULL);
    say(s, 3, 300);
    hearth_session_free(s);
    assert_true(hearth_agent_fork(en, "a", "copy", NULL, &e));
    assert_false(hearth_agent_fork(en, "a", "copy", NULL, &e));
    assert_int_equal(e.code, HEARTH_ARGUMENT);
    assert_true(hearth_agent_pin(en, "copy", NULL, true, &e));
    assert_false(hearth_agent_pin(en, "nobody", NULL, true, &e));
    hearth_session_free(open_agent(en, "a", NULL));
    hearth_agent seen[2] = {0};
    assert_true(hearth_agents(en, NULL, take_agent, seen, &e));
    for (int i = 0; i < 2; i++) assert_true(seen[i].tokens == 300 && seen[i].blocks == 4 && seen[i].tier == HEARTH_TIER_HOT && seen[i].this_model && seen[i].block_bytes > 0);
    assert_true(!seen[0].pinned && seen[1].pinned);
    assert_true(hearth_agent_export(en, "a", NULL, path, &e));
    hearth_session *alone = hearth_session_new(en, &e);
    say(alone, 3, 310);
    /* On another machine. */
    start_folder(NULL);
    hearth_engine *other = open_with(1, true, "ref");
    assert_true(hearth_agent_import(other, path, "copy", NULL, &e));
    assert_true(hearth_agents(other, NULL, take_agent, seen, &e) && seen[1].tier == HEARTH_TIER_WARM && !seen[1].pinned);
    s = open_agent(other, "copy", NULL);
    assert_int_equal(hearth_engine_kv(other).tokens_loaded, 256);
    int32_t ids[10];
    for (int i = 0; i < 10; i++) ids[i] = (3 + (300 + i) * 7) % 250;
    assert_true(hearth_session_append(s, ids, 10, &e));
    same_logits(s, alone);
    hearth_session_free(s), hearth_session_free(alone);
    hearth_kv_check check;
    assert_true(hearth_engine_kv_check(other, &check, &e) && check.whole == 5 && !check.damaged && !check.unreadable);
    hearth_kv_stats k = hearth_engine_kv(other);
    assert_true(k.warm_hits == 1 && k.warm_saved_seconds >= 0 && k.longest_load > 0 && k.saves > 0 && k.save_seconds > 0 && k.longest_save <= k.save_seconds);
    hearth_engine_close(other);
    /* With other types of keys and values its text is there, and the rest must be computed. */
    kv_type = "q8_0";
    other = open_with(1, true, "ref");
    assert_true(hearth_agents(other, NULL, take_agent, seen, &e) && seen[1].this_model && seen[1].blocks == 4 && seen[1].tier == HEARTH_TIER_COLD);
    s = open_agent(other, "copy", NULL);
    assert_int_equal(hearth_session_length(s), 310);
    assert_int_equal(hearth_engine_kv(other).tokens_loaded, 0);
    hearth_session_free(s);
    hearth_engine_close(other);
    kv_type = NULL;
    /* Another model does not take it up. */
    hearth_engine *stranger = open_with(2, true, "ref");
    assert_true(hearth_agents(stranger, NULL, take_agent, seen, &e) && !seen[1].this_model);
    assert_null(hearth_session_open(stranger, "copy", NULL, &e));
    assert_true(strstr(e.text, "another model") != NULL);
    hearth_engine_close(stranger);
    hearth_engine_close(en);
}

static void refuses_in_words(void **state) {
    (void)state;
    err e = {0};
    hearth_engine *en = open_with(1, false, "ref");
    assert_null(hearth_session_open(en, "anna", NULL, &e));
    assert_non_null(strstr(e.text, "no store"));
    hearth_session *s = hearth_session_new(en, &e);
    assert_false(hearth_session_save(s, &e));
    assert_false(hearth_session_drop(s, &e));
    hearth_session_free(s);
    hearth_engine_close(en);
    spew(folder, "", 0); /* no folder can be made there */
    warning[0] = 0;
    en = open_with(1, true, "ref");
    assert_non_null(strstr(warning, "memory only"));
    assert_null(hearth_session_open(en, "anna", NULL, &e));
    assert_int_equal(e.code, HEARTH_IO);
    s = open_agent(en, NULL, NULL);
    say(s, 1, 100);
    hearth_session_free(s);
    hearth_engine_close(en);
    unlink(folder);
    en = open_with(1, true, "ref");
    char long_name[80];
    memset(long_name, 'x', 79), long_name[79] = 0;
    assert_null(hearth_session_open(en, long_name, NULL, &e));
    assert_null(hearth_session_open(en, "", NULL, &e));
    assert_null(hearth_session_open(en, "\xff", NULL, &e));
    hearth_engine_close(en);
}

/* The nth allocation fails: a session says so or does without, and what it computes is right. */
static void bears_any_failing_allocation(void **state) {
    (void)state;
    hearth_engine *en = open_with(1, true, "ref");
    err e = {0};
    hearth_session *want = hearth_session_new(en, &e);
    say(want, 1, 140);
    hearth_session_logits(want);
    bool done = false;
    for (long n = 1; !done && n < 400; n++) {
        mem_fail_nth(n);
        hearth_session *a = hearth_session_open(en, "x", NULL, &e);
        int32_t ids[140];
        for (int i = 0; i < 140; i++) ids[i] = (1 + i % 50 * 7 + i / 50 * 350) % 250;
        bool ok = a && (hearth_session_length(a) == 140 || hearth_session_append(a, ids, 140, &e)) && hearth_session_save(a, &e);
        done = mem_count() < n;
        mem_fail_nth(0);
        if (ok) same_logits(a, want);
        hearth_session_free(a);
    }
    assert_true(done);
    hearth_session_free(want);
    hearth_engine_close(en);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup(f, start_folder)
    const struct CMUnitTest tests[] = {
        TEST(finds_prefixes_of_other_sessions), TEST(forks_are_independent), TEST(agents_go_on), TEST(models_do_not_mix), TEST(agents_are_managed), TEST(refuses_in_words),
        TEST(bears_any_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, remove_base);
}
