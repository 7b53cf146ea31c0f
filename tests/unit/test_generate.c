/* test_generate.c: the generate loop with the default model. */
#include "tools/support.h"

#include <unistd.h>

static hearth_engine *engine;

static const char *model_path(void) {
    static const char *const paths[] = {"models/ember-30m-q8_0.gguf", "models/ember-30m-q4_k_m.gguf", "models/ember-30m-f16.gguf"};
    for (int i = 0; i < 3; i++)
        if (access(paths[i], R_OK) == 0) return paths[i];
    fail_msg("the default model is not in models/");
    return NULL;
}

static int open_engine(void **state) {
    (void)state;
    err e = {0};
    engine = hearth_engine_open(model_path(), NULL, &e);
    if (!engine) print_error("%s\n", e.text);
    return engine ? 0 : -1;
}

static int close_engine(void **state) {
    (void)state;
    hearth_engine_close(engine);
    return 0;
}

/* What a generation gave. */
typedef struct heard {
    int32_t tokens[256];
    int n;
    buf text;
    int calls, stop_after; /* 0: never */
} heard;

static bool on_text(void *user, const char *text, size_t len) {
    heard *h = user;
    assert_true(buf_add(&h->text, text, len, NULL));
    return ++h->calls != h->stop_after;
}
static void on_token(void *user, int32_t token, const float *logits) {
    heard *h = user;
    assert_non_null(logits);
    h->tokens[h->n++] = token;
}

static hearth_session *asked(hearth_engine *en, const char *text) {
    err e = {0};
    int32_t tokens[256];
    int64_t n = hearth_tokenize(en, text, strlen(text), HEARTH_PARSE_SPECIAL, tokens, 256, &e);
    hearth_session *s = hearth_session_new(en, &e);
    assert_true(n > 0 && n < 256 && s && hearth_session_append(s, tokens, (size_t)n, &e));
    return s;
}
static const char question[] = "<|im_start|>user\nHello! Who are you?<|im_end|>\n<|im_start|>assistant\n";

static hearth_sampler *sampler_of(float temperature) {
    err e = {0};
    hearth_sampler_options o = hearth_sampler_defaults();
    o.temperature = temperature;
    o.seed = 7;
    o.repeat_penalty = 1.05f;
    hearth_sampler *s = hearth_sampler_new(engine, &o, &e);
    assert_non_null(s);
    return s;
}

static hearth_generate_options listen(heard *h, int max_tokens) {
    hearth_generate_options o = hearth_generate_defaults();
    o.max_tokens = max_tokens;
    o.on_text = on_text;
    o.on_token = on_token;
    o.user = h;
    return o;
}

/* Generates from the question; the session is returned. */
static hearth_session *ask(hearth_sampler *s, const hearth_generate_options *o, hearth_generated *result) {
    err e = {0};
    hearth_session *session = asked(engine, question);
    if (!hearth_generate(session, s, o, result, &e)) fail_msg("%s", e.text);
    hearth_sampler_free(s);
    return session;
}

static void an_answer_ends_before_its_ending_token(void **state) {
    (void)state;
    heard h = {0};
    hearth_generate_options o = listen(&h, 200);
    hearth_generated result;
    hearth_session *s = ask(sampler_of(0), &o, &result);
    assert_int_equal(result.finish, HEARTH_FINISH_END);
    assert_int_equal(h.n, result.n_tokens + 1);
    assert_true(hearth_token_ends(engine, h.tokens[h.n - 1]));
    size_t length = hearth_session_length(s), start = length - (size_t)result.n_tokens;
    assert_memory_equal(hearth_session_tokens(s) + start, h.tokens, (size_t)result.n_tokens * sizeof *h.tokens);
    assert_true(h.text.len > 0 && !strstr(h.text.data, "<|im_end|>"));
    buf_free(&h.text);
    hearth_session_free(s);
}

static void two_calls_are_as_good_as_one(void **state) {
    (void)state;
    for (int greedy = 0; greedy < 2; greedy++) {
        err e = {0};
        heard whole = {0}, parts = {0};
        hearth_generated result;
        hearth_generate_options o = listen(&whole, 7);
        o.ignore_end = true;
        hearth_session_free(ask(sampler_of(greedy ? 0 : 1.2f), &o, &result));
        assert_int_equal(result.finish, HEARTH_FINISH_LENGTH);
        assert_int_equal(result.n_tokens, 7);

        hearth_session *s = asked(engine, question);
        hearth_sampler *sampler = sampler_of(greedy ? 0 : 1.2f);
        for (int i = 0; i < 2; i++) {
            o = listen(&parts, i == 0 ? 3 : 4);
            o.ignore_end = true;
            assert_true(hearth_generate(s, sampler, &o, &result, &e));
        }
        assert_int_equal(parts.n, 7);
        assert_memory_equal(whole.tokens, parts.tokens, 7 * sizeof *whole.tokens);
        hearth_sampler_free(sampler);
        hearth_session_free(s);
        buf_free(&whole.text);
        buf_free(&parts.text);
    }
}

static void stop_strings_end_the_text_before_them(void **state) {
    (void)state;
    heard free_run = {0}, stopped = {0};
    hearth_generated result;
    hearth_generate_options o = listen(&free_run, 8);
    hearth_session_free(ask(sampler_of(0), &o, &result));
    assert_true(free_run.text.len > 8);
    char stop[4] = {0};
    memcpy(stop, free_run.text.data + 5, 3); /* across whatever border is there */
    const char *stops[] = {"never said", stop, NULL};
    o = listen(&stopped, 8);
    o.stop = stops;
    hearth_session_free(ask(sampler_of(0), &o, &result));
    assert_int_equal(result.finish, HEARTH_FINISH_STOP);
    size_t at = (size_t)(strstr(free_run.text.data, stop) - free_run.text.data);
    assert_int_equal(stopped.text.len, at);
    assert_memory_equal(stopped.text.data, free_run.text.data, at);
    buf_free(&free_run.text);
    buf_free(&stopped.text);
}

static void the_caller_can_stop_and_see_special_tokens(void **state) {
    (void)state;
    heard h = {.stop_after = 2};
    hearth_generated result;
    hearth_generate_options o = listen(&h, 50);
    hearth_session_free(ask(sampler_of(0), &o, &result));
    assert_int_equal(result.finish, HEARTH_FINISH_CALLER);
    assert_int_equal(result.n_tokens, 2);
    buf_free(&h.text);

    h = (heard){0};
    o = listen(&h, 200);
    o.show_special = true;
    hearth_session_free(ask(sampler_of(0), &o, &result));
    assert_int_equal(result.finish, HEARTH_FINISH_END);
    assert_non_null(strstr(h.text.data, "<|im_end|>"));
    buf_free(&h.text);
}

static void a_full_context_ends_the_answer(void **state) {
    (void)state;
    err e = {0};
    hearth_session *s = asked(engine, question);
    hearth_engine_options small = hearth_engine_defaults();
    small.context = (int)hearth_session_length(s) + 3;
    hearth_session_free(s);
    hearth_engine *tight = hearth_engine_open(model_path(), &small, &e);
    assert_non_null(tight);
    s = asked(tight, question);
    hearth_sampler *sampler = hearth_sampler_new(tight, NULL, &e);
    hearth_generated result;
    hearth_generate_options o = hearth_generate_defaults();
    o.ignore_end = true;
    for (int i = 0; i < 2; i++) {
        assert_true(hearth_generate(s, sampler, &o, &result, &e));
        assert_int_equal(result.finish, HEARTH_FINISH_LENGTH);
        assert_int_equal(result.n_tokens, i == 0 ? 3 : 0);
    }
    hearth_sampler *other = sampler_of(0);
    assert_false(hearth_generate(s, other, &o, &result, &e));
    assert_int_equal(e.code, HEARTH_ARGUMENT);
    hearth_sampler_free(other);
    hearth_sampler_free(sampler);
    hearth_session_free(s);
    hearth_engine_close(tight);
}

static void wrong_calls_fail_in_words(void **state) {
    (void)state;
    err e = {0};
    hearth_session *s = hearth_session_new(engine, &e);
    hearth_sampler *sampler = sampler_of(0);
    assert_false(hearth_generate(s, sampler, NULL, NULL, &e));
    assert_non_null(strstr(e.text, "append the prompt"));
    hearth_generate_options o = hearth_generate_defaults();
    o.max_tokens = -2;
    assert_false(hearth_generate(s, sampler, &o, NULL, &e));
    assert_non_null(strstr(e.text, "max_tokens"));
    o.max_tokens = 0;
    assert_true(hearth_generate(s, sampler, &o, NULL, &e));
    o.stop = (const char *[]){"", NULL};
    assert_false(hearth_generate(s, sampler, &o, NULL, NULL));
    hearth_sampler_free(sampler);
    hearth_session_free(s);
}

static void failed_allocations_leave_a_usable_session(void **state) {
    (void)state;
    hearth_session *s = asked(engine, question);
    size_t start = hearth_session_length(s);
    for (long nth = 1;; nth++) {
        err e = {0};
        heard h = {0};
        hearth_generate_options o = listen(&h, 1);
        o.on_text = NULL;
        o.ignore_end = true;
        o.stop = (const char *[]){"stop", NULL};
        hearth_sampler *sampler = sampler_of(0);
        assert_true(hearth_session_rewind(s, start, &e));
        mem_fail_nth(nth);
        bool ok = hearth_generate(s, sampler, &o, NULL, &e);
        mem_fail_nth(0);
        hearth_sampler_free(sampler);
        if (ok) break;
        assert_int_equal(e.code, HEARTH_MEMORY);
        assert_true(hearth_session_length(s) <= start + 1);
    }
    hearth_session_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_ends_before_its_ending_token),
        cmocka_unit_test(two_calls_are_as_good_as_one),
        cmocka_unit_test(stop_strings_end_the_text_before_them),
        cmocka_unit_test(the_caller_can_stop_and_see_special_tokens),
        cmocka_unit_test(a_full_context_ends_the_answer),
        cmocka_unit_test(wrong_calls_fail_in_words),
        cmocka_unit_test(failed_allocations_leave_a_usable_session),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
