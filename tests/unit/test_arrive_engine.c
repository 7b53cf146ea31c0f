/* Sessions and the loop on blocks that arrive from disk layer by layer: whatever is damaged late, what comes out is what a run without interruption gives; on
 * models made up here, one of them with latent attention. */
#include "unit/loop_ask.h"
#include "unit/tiny_model.h"

#include <dirent.h>
#include <pthread.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/loop.h"

enum { TEXT = 300, BLOCKS = TEXT / KV_BLOCK, MORE = 30 };

static char base[] = "/dev/shm/hearth-test-XXXXXX";
static char folder[600];
static bool latent;
static int warnings;

static int start_folder(void **state) {
    (void)state;
    static int number;
    if (number == 0 && !mkdtemp(base)) strcpy(base, "");
    snprintf(folder, sizeof folder, "%s/store%d", base[0] ? base : temp_dir(), number++);
    warnings = 0;
    return 0;
}

static int remove_base(void **state) {
    (void)state;
    if (base[0]) run_program((const char *const[]){"rm", "-rf", base, NULL}, NULL, 0, NULL, NULL, 60);
    return 0;
}

static void count_warning(void *user, const char *sentence) {
    (void)user, (void)sentence;
    warnings++;
}

static hearth_engine *open_tiny(bool remembers) {
    err e = {0};
    tiny m = latent ? make_deepseek() : make_llama();
    for (int i = 0; i < m.n_keys; i++)
        if (strstr(m.keys[i].name, "context_length")) m.keys[i].number = 1000;
    hearth_engine_options o = hearth_engine_defaults();
    o.cpu = "ref";
    o.threads = 2;
    o.cache = false;
    o.store = remembers;
    o.store_dir = folder;
    o.warn = count_warning;
    hearth_engine *en = hearth_engine_open(write_tiny(&m, false, NULL), &o, &e);
    if (!en) fail_msg("%s", e.text);
    return en;
}

static void say(hearth_session *s, size_t n) {
    int32_t ids[TEXT + 300];
    err e = {0};
    for (size_t i = 0, at = hearth_session_length(s); i < n; i++) ids[i] = (int32_t)((at + i) * 7 % 250);
    if (!hearth_session_append(s, ids, n, &e)) fail_msg("%s", e.text);
}

static hearth_session *open_agent(hearth_engine *en) {
    err e = {0};
    hearth_session *s = hearth_session_open(en, "a", NULL, &e);
    if (!s) fail_msg("%s", e.text);
    return s;
}

static void same(hearth_session *a, hearth_session *b) {
    assert_int_equal(hearth_session_length(a), hearth_session_length(b));
    assert_memory_equal(hearth_session_logits(a), hearth_session_logits(b), VOCAB * sizeof(float));
}

/* An agent of that many tokens on disk. */
static void make_agent(size_t n) {
    hearth_engine *en = open_tiny(true);
    hearth_session *s = open_agent(en);
    say(s, n);
    hearth_session_free(s);
    hearth_engine_close(en);
}

static void each_block(const char *path, int index, bool (*each)(const char *path, int index)) {
    DIR *d = opendir(path);
    for (struct dirent *x; d && (x = readdir(d)) != NULL;) {
        char inner[1500], end[32];
        if (x->d_name[0] == '.') continue;
        snprintf(inner, sizeof inner, "%s/%s", path, x->d_name);
        snprintf(end, sizeof end, "-%d.safetensors", index);
        if (x->d_type == DT_DIR) each_block(inner, index, each);
        else if (strstr(x->d_name, end)) each(inner, index);
    }
    if (d) closedir(d);
}

/* Flips a bit of the last layer. */
static bool flip(const char *path, int index) {
    (void)index;
    buf b = slurp(path);
    b.data[b.len - 9 - KV_BLOCK * sizeof(int32_t)] ^= 16;
    spew(path, b.data, b.len);
    buf_free(&b);
    return true;
}

static void damage(int index) {
    char path[700];
    snprintf(path, sizeof path, "%s/blocks", folder);
    each_block(path, index, flip);
}

/* Opening and forking wait for nothing; then the last layer of a middle block is found to be damaged in the middle of a pass. */
static void late_damage(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        err e = {0};
        latent = i % 2;
        const size_t text = i < 2 ? TEXT : BLOCKS * KV_BLOCK; /* without a tail, the first pass goes on within a block */
        start_folder(NULL);
        make_agent(text);
        damage(2);
        hearth_engine *never = open_tiny(false), *en = open_tiny(true);
        hearth_session *want = hearth_session_new(never, &e), *want_short = hearth_session_new(never, &e);
        say(want, text);
        say(want_short, 100);
        file_let_fetch(0);
        hearth_session *a = open_agent(en), *fork = hearth_session_fork(a, &e), *back = hearth_session_fork(a, &e), *gone = hearth_session_fork(a, &e);
        assert_true(a->kv.length == text && hearth_session_rewind(back, 100, &e));
        hearth_session_free(gone);
        file_let_fetch(-1);
        same(back, want_short);
        if (i >= 2) same(fork, want);
        say(a, MORE), say(want, MORE);
        same(a, want);
        say(fork, MORE);
        same(fork, want);
        say(back, 200), say(want_short, 200);
        same(back, want_short);
        hearth_kv_stats k = hearth_engine_kv(en);
        assert_int_equal(k.damaged, 1);
        assert_true(k.load_seconds > 0 && k.load_wait_seconds > 0 && k.longest_load > 0);
        hearth_session_free(fork), hearth_session_free(back), hearth_session_free(a);
        hearth_engine_close(en);
        assert_int_equal(warnings, 1);
        /* And it is whole again. */
        en = open_tiny(true);
        a = open_agent(en);
        assert_int_equal(a->kv.length, text + MORE);
        say(a, 1), say(want, 1);
        same(a, want);
        hearth_kv_check check;
        assert_true(hearth_engine_kv_check(en, &check, &e) && !check.damaged);
        hearth_session_free(a), hearth_session_free(want), hearth_session_free(want_short);
        hearth_engine_close(en), hearth_engine_close(never);
    }
    latent = false;
}

/* A file that is damaged and cannot be set aside is damaged every time it is asked for. */
static void damage_that_stays(void **state) {
    (void)state;
    err e = {0};
    char bad[700];
    make_agent(TEXT);
    damage(0), damage(1);
    hearth_engine *never = open_tiny(false), *en = open_tiny(true);
    snprintf(bad, sizeof bad, "%s/bad", folder);
    rmdir(bad);
    spew(bad, "", 0);
    hearth_session *a = open_agent(en), *want = hearth_session_new(never, &e);
    say(a, MORE), say(want, TEXT + MORE);
    same(a, want);
    assert_int_equal(hearth_engine_kv(en).damaged, 0);
    hearth_session_free(a), hearth_session_free(want);
    hearth_engine_close(en), hearth_engine_close(never);
}

/* Every read fails once. */
static void bears_any_failing_read(void **state) {
    (void)state;
    err e = {0};
    hearth_engine *never = open_tiny(false);
    hearth_session *want = hearth_session_new(never, &e);
    say(want, TEXT + MORE);
    make_agent(TEXT);
    bool done = false;
    for (long n = 1; !done && n < 100; n++) {
        hearth_engine *en = open_tiny(true);
        file_let_fetch(0);
        hearth_session *a = open_agent(en);
        file_fail_nth(n);
        file_let_fetch(-1);
        say(a, MORE);
        done = file_count() < n;
        file_fail_nth(0);
        same(a, want);
        assert_true(hearth_session_rewind(a, TEXT, &e));
        hearth_session_free(a);
        hearth_engine_close(en);
    }
    assert_true(done);
    hearth_session_free(want);
    hearth_engine_close(never);
}

/* A pass of two conversations, of which one meets damage: the other is as before and does it again. */
static void company_in_a_pass(void **state) {
    (void)state;
    err e = {0};
    make_agent(TEXT);
    damage(BLOCKS - 1);
    hearth_engine *never = open_tiny(false), *en = open_tiny(true);
    hearth_session *other = hearth_session_new(en, &e), *want = hearth_session_new(never, &e), *a = open_agent(en);
    const int32_t two[2] = {5, 9}, one[1] = {200};
    int32_t own[50];
    for (int i = 0; i < 50; i++) own[i] = 200 - i;
    assert_true(hearth_session_append(other, own, 50, &e) && hearth_session_append(want, own, 50, &e) && hearth_session_append(want, two, 2, &e));
    const model_part parts[2] = {{.kv = &other->kv, .tokens = two, .n = 2, .n_logits = 1}, {.kv = &a->kv, .tokens = one, .n = 1, .n_logits = 1}};
    static float logits[2 * VOCAB];
    assert_false(model_forward(&en->model, &a->run, parts, 2, logits, &e));
    assert_int_equal(e.code, HEARTH_FORMAT);
    assert_true(other->kv.length == 50 && a->kv.length == TEXT);
    assert_true(!kv_seq_mend(&other->kv) && kv_seq_mend(&a->kv) && a->kv.length == (BLOCKS - 1) * KV_BLOCK);
    err_clear(&e);
    assert_true(model_forward(&en->model, &a->run, parts, 1, logits, &e));
    assert_memory_equal(logits, hearth_session_logits(want), VOCAB * sizeof(float));
    other->kv.length = 50;
    hearth_session_free(other), hearth_session_free(want), hearth_session_free(a);
    hearth_engine_close(en), hearth_engine_close(never);
}

typedef struct talker {
    hearth_engine *engine;
    size_t length;
    float logits[VOCAB];
} talker;

static void *talk(void *arg) {
    talker *t = arg;
    hearth_session *s = hearth_session_new(t->engine, NULL);
    say(s, t->length);
    memcpy(t->logits, hearth_session_logits(s), sizeof t->logits);
    hearth_session_free(s);
    return NULL;
}

/* Several threads with the same text, which arrives for all of them at once. */
static void sessions_at_once(void **state) {
    (void)state;
    enum { N = 4 };
    static talker want[N], got[N];
    hearth_engine *never = open_tiny(false);
    for (int i = 0; i < N; i++) {
        want[i] = (talker){.engine = never, .length = (size_t)(TEXT - 50 * i)};
        talk(&want[i]);
    }
    hearth_engine_close(never);
    make_agent(TEXT);
    for (int round = 0; round < 8; round++) {
        hearth_engine *en = open_tiny(true);
        pthread_t threads[N];
        if (round % 2) damage(round / 2);
        for (int i = 0; i < N; i++) {
            got[i] = (talker){.engine = en, .length = want[i].length};
            assert_int_equal(pthread_create(&threads[i], NULL, talk, &got[i]), 0);
        }
        for (int i = 0; i < N; i++) pthread_join(threads[i], NULL);
        for (int i = 0; i < N; i++) assert_memory_equal(got[i].logits, want[i].logits, sizeof got[i].logits);
        hearth_engine_close(en);
    }
    assert_int_equal(warnings, 4);
}

/* ---- the loop ---- */

/* The first request meets the damage in its pass; others come while it waits, with the same text and with another; one leaves before anything has arrived. */
static void late_damage_in_the_loop(void **state) {
    (void)state;
    enum { N = 4, SHARED = 150 };
    int32_t text[N][TEXT], want[N][MORE], got[N][MORE];
    for (int i = 0; i < N; i++)
        for (int k = 0; k < TEXT; k++) text[i][k] = (k < SHARED || i == 0 ? k * 7 : k * (9 + i)) % 250;
    err e = {0};
    for (int damaged = 0; damaged <= BLOCKS; damaged++) {
        start_folder(NULL);
        hearth_engine *en = open_tiny(true);
        loop *l = loop_new(en, NULL, &e);
        for (int i = 0; i < N; i++) wait_for(ask(l, text[i], TEXT, MORE, 1, NULL), want[i]);
        loop_free(l);
        hearth_engine_close(en);
        if (damaged < BLOCKS) damage(damaged); /* in the last round nothing is */
        en = open_tiny(true);
        l = loop_new(en, NULL, &e);
        file_let_fetch(0);
        loop_ticket *t = ask(l, text[0], TEXT, MORE, 1, NULL);
        loop_ticket_free(ask(l, text[0], KV_BLOCK, MORE, 1, NULL)); /* known to nobody: too short to be looked for on disk */
        file_let_fetch(-1);
        loop_ticket *others[N];
        for (int i = 1; i < N; i++) others[i] = ask(l, text[i], TEXT, MORE, 1, NULL);
        int cached = wait_for(t, got[0]).cached_tokens;
        for (int i = 1; i < N; i++) {
            const int of_other = wait_for(others[i], got[i]).cached_tokens;
            if ((damaged + 1) * KV_BLOCK <= SHARED && of_other < cached) cached = of_other; /* whoever is first computes it for the others */
        }
        assert_memory_equal(got, want, sizeof got);
        if (cached > (damaged < BLOCKS ? damaged : BLOCKS) * KV_BLOCK) fail_msg("%d tokens were cached with block %d damaged", cached, damaged);
        loop_drain(l, 10000000000u);
        loop_stats s = loop_count(l);
        assert_int_equal(s.failed, 0);
        assert_true(s.warm_tokens <= N * TEXT && s.hot_tokens <= N * TEXT);
        loop_free(l);
        hearth_engine_close(en);
    }
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup(f, start_folder)
    const struct CMUnitTest tests[] = {
        TEST(late_damage), TEST(damage_that_stays), TEST(bears_any_failing_read), TEST(company_in_a_pass), TEST(sessions_at_once),
        TEST(late_damage_in_the_loop),
    };
    return cmocka_run_group_tests(tests, NULL, remove_base);
}
