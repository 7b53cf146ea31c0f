/* test_generate_stop.c: stop strings and whole characters, without a model. */
#include "tools/support.h"

#include "engine/stop.h"

/* Feeds text in pieces that end at random places; returns what comes out. */
static buf feed(const char *const *stops, const char *text, size_t len, uint64_t *r, size_t most, bool *found) {
    stop_filter f;
    buf out = {0};
    err e = {0};
    assert_true(stop_open(&f, stops, &e));
    for (size_t at = 0; at < len && !f.found;) {
        size_t n = 1 + rng_next(r) % most;
        if (n > len - at) n = len - at;
        assert_true(stop_add(&f, text + at, n, &out, &e));
        at += n;
    }
    *found = f.found;
    if (!f.found) assert_true(stop_end(&f, &out, &e));
    assert_true(buf_addc(&out, '|', &e));
    stop_close(&f);
    return out;
}

static void check(const char *const *stops, const char *text, const char *want, bool want_found) {
    uint64_t r = test_seed();
    for (int round = 0; round < 50; round++) {
        bool found;
        buf out = feed(stops, text, strlen(text), &r, 1 + (size_t)round % 9, &found);
        out.data[out.len - 1] = 0;
        assert_string_equal(out.data, want);
        assert_int_equal(found, want_found);
        buf_free(&out);
    }
}

static void stop_strings_are_cut_across_borders(void **state) {
    (void)state;
    check((const char *[]){"\n\nUser:", NULL}, "hello\n\nUser: hi", "hello", true);
    check((const char *[]){"\n\nUser:", NULL}, "hello\n\nUse it", "hello\n\nUse it", false);
    check((const char *[]){"aab", NULL}, "xaaab", "xa", true);
    check((const char *[]){"abab", NULL}, "abaabab!", "aba", true);
    check((const char *[]){"END", "STOP", NULL}, "a STO END", "a STO ", true);
    check((const char *[]){"abcd", "bc", NULL}, "abcd", "a", true); /* complete first wins */
    check((const char *[]){"c", "abc", NULL}, "xabc", "x", true);    /* complete at once: the longer */
    check((const char *[]){"abc", "c", NULL}, "xabc", "x", true);
    check((const char *[]){"x", NULL}, "x", "", true);
    check((const char *[]){NULL}, "anything", "anything", false);
    check(NULL, "anything", "anything", false);
    check((const char *[]){"\xE2\x82\xAC", NULL}, "1 \xE2\x82\xAD 2 \xE2\x82\xAC 3", "1 \xE2\x82\xAD 2 ", true);
}

static void only_what_is_uncertain_is_held_back(void **state) {
    (void)state;
    stop_filter f;
    buf out = {0};
    err e = {0};
    assert_true(stop_open(&f, (const char *[]){"stop", "topaz", NULL}, &e));
    static const struct { const char *piece, *shown; } steps[] = {
        {"no", "no"}, {"s", "no"}, {"to", "no"}, {"na", "nostona"}, {"t", "nostona"}, {"opa", "nostona"}, {"x", "nostonatopax"},
        {"\xC3", "nostonatopax"}, {"\xA9", "nostonatopax\xC3\xA9"}, {"\xF0\x9F", "nostonatopax\xC3\xA9"},
        {"z", "nostonatopax\xC3\xA9\xF0\x9Fz"}, {"\xE2\x82", "nostonatopax\xC3\xA9\xF0\x9Fz"},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_true(stop_add(&f, steps[i].piece, strlen(steps[i].piece), &out, &e));
        assert_string_equal(out.data, steps[i].shown);
    }
    assert_true(stop_end(&f, &out, &e));
    assert_string_equal(out.data, "nostonatopax\xC3\xA9\xF0\x9Fz\xE2\x82");
    buf_free(&out);
    stop_close(&f);
}

/* Every text and every set of stop strings over two letters: against a search in the whole text. */
static void borders_do_not_matter(void **state) {
    (void)state;
    uint64_t r = test_seed();
    for (int round = 0; round < 4000; round++) {
        char stops[3][6] = {"", "", ""}, text[24];
        const char *list[4] = {stops[0], stops[1], stops[2], NULL};
        for (int i = 0; i < 3; i++)
            for (uint64_t k = 0, n = 1 + rng_next(&r) % 5; k < n; k++) stops[i][k] = (char)('a' + rng_next(&r) % 2);
        size_t len = rng_next(&r) % 24, cut = SIZE_MAX;
        for (size_t i = 0; i < len; i++) text[i] = (char)('a' + rng_next(&r) % 2);
        for (size_t end = 1; end <= len && cut == SIZE_MAX; end++)
            for (int i = 0; i < 3; i++) {
                size_t n = strlen(stops[i]);
                if (n <= end && memcmp(text + end - n, stops[i], n) == 0 && (cut == SIZE_MAX || end - n < cut)) cut = end - n;
            }
        bool found;
        buf out = feed(list, text, len, &r, 4, &found);
        assert_int_equal(found, cut != SIZE_MAX);
        assert_int_equal(out.len - 1, found ? cut : len);
        assert_memory_equal(out.data, text, out.len - 1);
        buf_free(&out);
    }
}

static void empty_stop_strings_and_failed_allocations_are_errors(void **state) {
    (void)state;
    stop_filter f;
    err e = {0};
    assert_false(stop_open(&f, (const char *[]){"a", "", NULL}, &e));
    assert_int_equal(e.code, HEARTH_ARGUMENT);
    for (long nth = 1;; nth++) {
        err_clear(&e);
        buf out = {0};
        mem_fail_nth(nth);
        bool ok = stop_open(&f, (const char *[]){"stop", "halt", NULL}, &e);
        bool opened = ok;
        ok = ok && stop_add(&f, "a long text with a st", 21, &out, &e) && stop_end(&f, &out, &e);
        mem_fail_nth(0);
        if (opened) stop_close(&f);
        buf_free(&out);
        if (ok) break;
        assert_int_equal(e.code, HEARTH_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stop_strings_are_cut_across_borders),
        cmocka_unit_test(only_what_is_uncertain_is_held_back),
        cmocka_unit_test(borders_do_not_matter),
        cmocka_unit_test(empty_stop_strings_and_failed_allocations_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
