/* test_trace.c: what a loop decided is recorded, and decided again from the record; records that are none are refused. */
#include "tools/support.h"

#include "base/clock.h"
#include "engine/trace.h"
#include "unit/tiny_model.h"

#include "engine/loop_inner.h"

/* Requests of random sizes, priorities and owners, some with several answers, some cancelled. */
static void ask_some(loop *l, uint64_t *seed) {
    err e = {0};
    enum { N = 40 };
    loop_ticket *t[N];
    static int32_t tokens[2000];
    for (int i = 0; i < 2000; i++) tokens[i] = 3 + i * 7 % 250;
    for (int i = 0; i < N; i++) {
        loop_request r = loop_request_defaults();
        tokens[0] = 3 + (int32_t)(rng_next(seed) % 4); /* some share their beginning */
        r.tokens = tokens;
        r.n_tokens = 1 + rng_next(seed) % 900;
        r.n = 1 + (int)(rng_next(seed) % 3) / 2;
        r.max_tokens = 1 + (int)(rng_next(seed) % 120);
        r.priority = (int)(rng_next(seed) % 2);
        r.owner = rng_next(seed); /* a whole 64-bit number */
        r.ignore_end = true;
        t[i] = loop_submit(l, &r, &e);
        if (!t[i]) fail_msg("%s", e.text);
        if (rng_next(seed) % 8 == 0) loop_ticket_free(t[i]), t[i] = NULL;
    }
    for (int i = 0; i < N; i++) {
        loop_piece p;
        loop_news news = LOOP_PIECE;
        while (t[i] && news == LOOP_PIECE) news = loop_next(t[i], 60000000000u, &p, &e);
        if (t[i] && news != LOOP_DONE) fail_msg("a request ended with %d: %s", (int)news, e.text);
        loop_ticket_free(t[i]);
    }
}

/* Asks with too little memory for all, until one had to step back. */
static buf record_some(uint64_t seed, bool apart) {
    err e = {0};
    char path[200];
    snprintf(path, sizeof path, "%s/trace", temp_dir());
    tiny m = make_llama();
    for (int i = 0; i < m.n_keys; i++)
        if (strstr(m.keys[i].name, "context_length")) m.keys[i].number = 4000;
    hearth_engine_options eo = hearth_engine_defaults();
    eo.cache = false;
    eo.threads = 1;
    hearth_engine *en = hearth_engine_open(write_tiny(&m, false, NULL), &eo, &e);
    assert_non_null(en);
    eo.kv_memory = 26 * 64 * hearth_engine_info(en).kv_bytes_per_token;
    hearth_engine_close(en);
    en = hearth_engine_open(write_tiny(&m, false, NULL), &eo, &e);
    loop_options lo = loop_defaults();
    lo.max_running = 6;
    lo.trace = trace_open(path, &e);
    assert_true(en && lo.trace);
    loop *l = loop_new(en, &lo, &e);
    assert_non_null(l);
    l->sched.always_apart = apart;
    /* Whether it happens in one round depends on the machine's speed, and how many passes there are. */
    for (int round = 0; round < 50 && (round < 4 || loop_count(l).preemptions == 0); round++) ask_some(l, &seed);
    assert_true(loop_count(l).preemptions > 0);
    loop_free(l);
    hearth_engine_close(en);
    if (!trace_close(lo.trace, &e)) fail_msg("%s", e.text);
    return slurp(path);
}

static void repeats_exactly(void **state) {
    (void)state;
    err e = {0};
    trace_report r;
    buf text = record_some(test_seed(), false);
    if (!trace_replay(text.data, text.len, &r, &e)) fail_msg("%s", e.text);
    if (r.differ) fail_msg("%lu decisions differ, the first in line %lu", (unsigned long)r.differ, (unsigned long)r.first_line);
    assert_true(r.requests >= 40 && r.starts > 30 && r.passes > 100 && r.tokens > 1000);
    /* A share that was not decided so is found. */
    char *pass = strstr(text.data, "\npass ");
    size_t n = 0;
    for (char *p = pass; p && n < 20; p = strstr(p + 1, "\npass ")) n++, pass = p;
    char *end = strchr(pass + 1, '\n');
    assert_true(end[-1] >= '0' && end[-1] <= '9');
    end[-1] = end[-1] == '0' ? '1' : '0';
    e = (err){0};
    assert_true(!trace_replay(text.data, text.len, &r, &e) || r.differ > 0);
    buf_free(&text);
}

/* Passes that rest while requests come and go and step back for want of memory: every request ends well. */
static void much_happens_meanwhile(void **state) {
    (void)state;
    buf text = record_some(test_seed(), true);
    assert_true(strstr(text.data, "\napart ") && strstr(text.data, "\nback "));
    size_t pieces = 0, passes = 0;
    for (const char *p = text.data; (p = strstr(p, "\npiece ")); p++) pieces++;
    for (const char *p = text.data; (p = strstr(p, "\napart ")); p++) passes++;
    assert_true(pieces >= passes / 2 && passes > 20);
    buf_free(&text);
}

static void refuses_what_is_none(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "", "hello\n", "pass 1 2\n", "hearth-trace 1 512 9 100\n", "hearth-trace 2 512 100\n", "hearth-trace 2 512 9 100\npass 1 2 3\n", "hearth-trace 2 512 9 100\nstart 1 2 3 4\n",
        "hearth-trace 2 512 9 100\narrive 1 2 3 4\n", "hearth-trace 2 512 9 100\narrive 1 2 3 4 x\n", "hearth-trace 2 512 9 100\narrive 1 1 9 0 0\narrive 1 1 9 0 0\n",
        "hearth-trace 2 512 9 100\narrive 1 1 9 0 0\nstart 1 1 9 9\n", "hearth-trace 2 512 9 100\narrive 1 1 9 0 0\nstart 1 1 9 1\npass 1 1 1 10\n",
        "hearth-trace 2 512 9 100\nend 1\n", "hearth-trace 2 512 9 100\nback 1\n", "hearth-trace 2 512 9 100\nagain 1\n", "hearth-trace 2 512 9 99999999999999999999999\n",
        "hearth-trace 2 512 9 100\npiece 1 1 1 1\n", "hearth-trace 2 512 9 100\nlate 1 1\n", "hearth-trace 2 512 9 100\narrive 1 1 9 0 0\nstart 1 1 9 1\nlate 1 1 1 1 8\n", "hearth-trace 2 512 9 100\napart\n", "hearth-trace 2 512 9 100\narrive 1 1 9 0 0\nstart 1 1 9 1\napart 1 9\n",
        "hearth-trace 2 512 9 100\narrive 1 1 9 0 0\nstart 1 1 9 1\napart 1 8\npiece 1 1 9 0\n", "hearth-trace 2 512 9 100\narrive 1 1 9 0 0\nstart 1 1 9 1\napart 1 4\npass 1 1 1 4\n",
    };
    trace_report r;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err e = {0};
        if (trace_replay(wrong[i], strlen(wrong[i]), &r, &e)) fail_msg("%s was taken for a trace", wrong[i]);
        assert_int_equal(e.code, HEARTH_FORMAT);
    }
    /* Random damage never does harm. */
    uint64_t seed = test_seed();
    static const char sound[] = "hearth-trace 2 512 9 100000000\narrive 0 10 100 0 7\narrive 1 11 30 1 7\nstart 1 12 30 0\nstart 0 13 100 64\npass 14 1000 1 30 0 36\npass 16 900 1 1 0 1\nend 1\n"
                                "back 0\nstart 0 20 102 64\npass 30 500 0 38\nend 0\narrive 2 40 50 0 1\nstart 2 40 50 0\napart 2 50\npiece 41 500 3 0\npiece 42 500 0 0\npass 43 9 2 1\nend 2\n";
    for (int i = 0; i < 20000; i++) {
        char text[sizeof sound];
        memcpy(text, sound, sizeof sound);
        for (int k = 0; k < 3; k++) text[rng_next(&seed) % (sizeof sound - 1)] = "0123456789 -\nabcdeprst"[rng_next(&seed) % 22];
        trace_replay(text, sizeof sound - 1, &r, NULL);
    }
    assert_true(trace_replay(sound, sizeof sound - 1, &r, NULL));
    assert_int_equal(r.differ, 1); /* without streams nothing goes apart */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(repeats_exactly), cmocka_unit_test(much_happens_meanwhile), cmocka_unit_test(refuses_what_is_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
