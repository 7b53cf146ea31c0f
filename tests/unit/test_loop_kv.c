/* test_loop_kv.c: what the loop remembers and shares, counted in blocks, bytes and tokens; on a model made up here. */
#include "tools/support.h"

#include <unistd.h>

#include "engine/loop.h"
#include "unit/loop_ask.h"
#include "unit/tiny_model.h"

enum { SYSTEM = 4096, AGENTS = 8, CONTEXT = 8000 };

static char base[] = "/dev/shm/hearth-test-XXXXXX";
static char folder[600];

static int start_folder(void **state) {
    (void)state;
    static int number;
    if (number == 0 && !mkdtemp(base)) strcpy(base, "");
    snprintf(folder, sizeof folder, "%s/store%d", base[0] ? base : temp_dir(), number++);
    return 0;
}

static int remove_base(void **state) {
    (void)state;
    if (base[0]) run_program((const char *const[]){"rm", "-rf", base, NULL}, NULL, 0, NULL, NULL, 60);
    return 0;
}

static hearth_engine *open_tiny(uint64_t kv_memory, bool with_store) {
    err e = {0};
    tiny m = make_llama();
    for (int i = 0; i < m.n_keys; i++)
        if (strstr(m.keys[i].name, "context_length")) m.keys[i].number = CONTEXT;
    hearth_engine_options o = hearth_engine_defaults();
    o.threads = 2;
    o.cache = false;
    o.kv_memory = kv_memory;
    o.store = with_store;
    o.store_dir = folder;
    o.cpu = "ref";
    hearth_engine *en = hearth_engine_open(write_tiny(&m, false, NULL), &o, &e);
    if (!en) fail_msg("%s", e.text);
    return en;
}

static loop *open_loop(hearth_engine *en, int running) {
    err e = {0};
    loop_options o = loop_defaults();
    o.max_running = running;
    loop *l = loop_new(en, &o, &e);
    if (!l) fail_msg("%s", e.text);
    return l;
}

/* A prompt: `shared` tokens that all have, then `own` ones. */
static int32_t *prompt_of(int who, size_t shared, size_t own) {
    static int32_t tokens[AGENTS + 1][CONTEXT];
    int32_t *t = tokens[who % (AGENTS + 1)];
    for (size_t i = 0; i < shared; i++) t[i] = (int32_t)(3 + i * 7 % 250);
    for (size_t i = 0; i < own; i++) t[shared + i] = (int32_t)(3 + ((size_t)who * 31 + i * 11) % 250);
    return t;
}

/* Waits until the thread has let go of everything: an answer's owner hears of its end a moment before. */
static loop_stats settled(loop *l) {
    loop_drain(l, 10000000000u);
    return loop_count(l);
}

/* Eight agents with one long system prompt, at once: it is computed once, lies in memory once and on disk once. */
static void one_prompt_once(void **state) {
    (void)state;
    hearth_engine *en = open_tiny(HEARTH_AUTO, true);
    loop *l = open_loop(en, AGENTS);
    loop_ticket *t[AGENTS];
    enum { OWN = 20, MORE = 6, BLOCKS = SYSTEM / 64 };
    int cached = 0;
    for (int i = 0; i < AGENTS; i++) t[i] = ask(l, prompt_of(i, SYSTEM, OWN), SYSTEM + OWN, MORE, 1, NULL);
    for (int i = 0; i < AGENTS; i++) cached += wait_for(t[i], NULL).cached_tokens;
    loop_stats s = settled(l);
    assert_int_equal(cached, (AGENTS - 1) * SYSTEM);
    assert_int_equal(s.hot_tokens + s.warm_tokens, cached);
    assert_int_equal(s.computed_tokens, SYSTEM + AGENTS * OWN);
    loop_free(l);
    hearth_kv_stats k = hearth_engine_kv(en);
    assert_int_equal(k.hot_blocks, BLOCKS + AGENTS);
    uint64_t block = 64 * hearth_engine_info(en).kv_bytes_per_token;
    assert_true(k.hot_bytes < (BLOCKS + AGENTS) * (block + 64 * 4 + 512) + 65536);
    hearth_engine_close(en);
    /* Another process finds the prompt on disk, once. */
    en = open_tiny(HEARTH_AUTO, true);
    k = hearth_engine_kv(en);
    assert_int_equal(k.warm_blocks, BLOCKS);
    assert_true(k.warm_bytes < BLOCKS * (block + 64 * 4 + 4096));
    l = open_loop(en, AGENTS);
    loop_usage u = wait_for(ask(l, prompt_of(AGENTS, SYSTEM, OWN), SYSTEM + OWN, 2, 1, NULL), NULL);
    assert_int_equal(u.cached_tokens, SYSTEM);
    assert_int_equal(u.warm_tokens, SYSTEM);
    u = wait_for(ask(l, prompt_of(0, SYSTEM, OWN), SYSTEM + OWN, 2, 1, NULL), NULL);
    assert_int_equal(u.cached_tokens, SYSTEM);
    assert_int_equal(u.warm_tokens, 0);
    s = settled(l);
    assert_int_equal(s.hot_tokens, SYSTEM);
    assert_int_equal(s.warm_tokens, SYSTEM);
    assert_true(s.warm_saved_s > 0);
    /* The engine tells the same. */
    k = hearth_engine_kv(en);
    assert_true(k.warm_saved_seconds > 0.999 * s.warm_saved_s && k.warm_saved_seconds < 1.001 * s.warm_saved_s);
    loop_free(l);
    hearth_engine_close(en);
}

static void answers_share_the_prompt(void **state) {
    (void)state;
    hearth_engine *en = open_tiny(HEARTH_AUTO, false);
    loop *l = open_loop(en, AGENTS);
    enum { N = 1000 };
    wait_for(ask(l, prompt_of(0, N, 0), N, 30, AGENTS, NULL), NULL);
    loop_stats s = settled(l);
    assert_int_equal(s.computed_tokens, N + AGENTS - 1); /* the last token of each, for its logits */
    assert_int_equal(s.hot_tokens, 0);
    loop_free(l);
    assert_true(hearth_engine_kv(en).hot_blocks <= N / 64 + AGENTS);
    hearth_engine_close(en);
}

/* What is shared counts once against the budget: all run, none steps back. */
static void sharing_saves_the_budget(void **state) {
    (void)state;
    hearth_engine *plain = open_tiny(HEARTH_AUTO, false);
    uint64_t block = 64 * hearth_engine_info(plain).kv_bytes_per_token + 1024;
    hearth_engine_close(plain);
    hearth_engine *en = open_tiny((SYSTEM / 64 + 4 * AGENTS) * block, false);
    loop *l = open_loop(en, AGENTS);
    loop_ticket *t[AGENTS];
    for (int i = 0; i < AGENTS; i++) t[i] = ask(l, prompt_of(i, SYSTEM, 10), SYSTEM + 10, 20, 1, NULL);
    for (int i = 0; i < AGENTS; i++) wait_for(t[i], NULL);
    loop_stats s = settled(l);
    assert_int_equal(s.preemptions, 0);
    assert_int_equal(s.computed_tokens, SYSTEM + AGENTS * 10);
    loop_free(l);
    assert_true(hearth_engine_kv(en).hot_bytes <= hearth_engine_kv(en).hot_budget);
    hearth_engine_close(en);
}

/* Far too little memory: sequences step back and go on; the tokens are those of an engine with plenty. */
static void steps_back_and_goes_on(void **state) {
    (void)state;
    enum { N = 300, MORE = 200 };
    int32_t want[AGENTS][MORE], got[AGENTS][MORE];
    hearth_engine *en = open_tiny(HEARTH_AUTO, false);
    uint64_t block = 64 * hearth_engine_info(en).kv_bytes_per_token + 512;
    loop *l = open_loop(en, 1);
    for (int i = 0; i < AGENTS; i++) wait_for(ask(l, prompt_of(i, 0, N), N, MORE, 1, NULL), want[i]);
    loop_free(l);
    hearth_engine_close(en);
    for (int with_store = 0; with_store < 2; with_store++) {
        en = open_tiny(20 * block, with_store);
        l = open_loop(en, AGENTS);
        loop_ticket *t[AGENTS];
        memset(got, 0, sizeof got);
        for (int i = 0; i < AGENTS; i++) t[i] = ask(l, prompt_of(i, 0, N), N, MORE, 1, NULL);
        for (int i = 0; i < AGENTS; i++) wait_for(t[i], got[i]);
        loop_stats s = settled(l);
        assert_int_equal(s.failed, 0);
        assert_true(s.preemptions > 0);
        assert_memory_equal(got, want, sizeof got);
        loop_free(l);
        hearth_engine_close(en);
    }
}

/* A branch leaves the other branch what it has. */
static void branches_leave_each_other_alone(void **state) {
    (void)state;
    hearth_engine *en = open_tiny(HEARTH_AUTO, false);
    loop *l = open_loop(en, 2);
    enum { N = 100, MORE = 10 };
    int32_t text[N + MORE + 1], branch[N];
    memcpy(text, prompt_of(0, N, 0), N * sizeof *text);
    wait_for(ask(l, text, N, MORE, 1, NULL), text + N);
    memcpy(branch, text, sizeof branch);
    for (int i = 80; i < N; i++) branch[i] = 5;
    assert_int_equal(wait_for(ask(l, branch, N, MORE, 1, NULL), NULL).cached_tokens, 80);
    text[N + MORE] = 7;
    /* All but the last token of the answer, which nothing was computed from. */
    assert_int_equal(wait_for(ask(l, text, N + MORE + 1, 1, 1, NULL), NULL).cached_tokens, N + MORE - 1);
    loop_free(l);
    hearth_engine_close(en);
}

static void tenants_do_not_meet(void **state) {
    (void)state;
    hearth_engine *en = open_tiny(HEARTH_AUTO, true);
    loop *l = open_loop(en, 4);
    const int32_t *p = prompt_of(0, 500, 0);
    const char *const tenants[] = {NULL, "anna", "berta", "anna", ""};
    const int cached[] = {0, 0, 0, 499, 499};
    for (int i = 0; i < 5; i++) assert_int_equal(wait_for(ask(l, p, 500, 2, 1, tenants[i]), NULL).cached_tokens, cached[i]);
    /* Nor while they read the same text at once. */
    loop_ticket *a = ask(l, prompt_of(1, 0, 500), 500, 2, 1, "anna"), *b = ask(l, prompt_of(1, 0, 500), 500, 2, 1, "berta");
    assert_int_equal(wait_for(a, NULL).cached_tokens + wait_for(b, NULL).cached_tokens, 0);
    loop_free(l);
    hearth_engine_close(en);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup(f, start_folder)
    const struct CMUnitTest tests[] = {
        TEST(one_prompt_once), TEST(answers_share_the_prompt), TEST(sharing_saves_the_budget), TEST(steps_back_and_goes_on),
        TEST(branches_leave_each_other_alone), TEST(tenants_do_not_meet),
    };
    return cmocka_run_group_tests(tests, NULL, remove_base);
}
