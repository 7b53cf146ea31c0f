/* test_jinja_hostile.c: templates that want too much end with an error, on a small stack too; broken memory and broken templates
 * leave nothing behind; one parsed template serves many threads. */
#include "jinja_examples.h"

#include <pthread.h>

#include "base/clock.h"

/* ---- limits ---- */

static const char *const greedy[] = {
    /* text */
    "{{ 'a' * 10**9 }}",
    "{{ 'a' * 9223372036854775807 }}",
    "{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    "{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    "{% set ns = namespace(s='ab') %}{% for i in range(100) %}{% set ns.s = ns.s.replace('a', 'aaaaaaaaaaaaaaaa') %}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) %}{{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' }}{% endfor %}{% endfor %}",
    "{{ 'x'|center(9999999999) }}",
    "{{ 'x'.ljust(9999999999) }}{{ 'x'.zfill(9999999999) }}",
    "{{ 'a\nb'|indent(9999999999) }}",
    "{{ '%9999999999d' % 1 }}",
    "{{ '{:9999999999}'.format(1) }}",
    "{{ '%.999999999f' % 1.5 }}",
    "{{ '{:.999999999f}'.format(1.5) }}",
    "{{ '%*d' % (9999999999, 1) }}",
    "{{ [1,[2,[3]]]|tojson(indent=99999999) }}",
    "{{ 'a\tb'.expandtabs(9999999999) }}",
    "{{ ('x' * 60000).join(['a'] * 60000) }}",
    "{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{% set t = s|upper %}{% endfor %}",
    "{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}{% set ns = namespace(s='0123456789') %}"
    "{% for i in range(60) %}{% set ns.s %}{% call m() %}{{ ns.s }}{% endcall %}{% endset %}{% endfor %}",
    "{{ strftime_now('%9999999999d') }}",
    "{{ strftime_now('%Y' * 100000) }}",
    /* lists and numbers */
    "{{ [0] * 10**12 }}",
    "{{ range(10**12) }}",
    "{{ range(-9223372036854775807, 9223372036854775807)|list }}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
    "{% set l = [1] %}{% for i in l %}{% do l.append(i) %}{% endfor %}",
    "{% set l = [1] %}{% for i in range(100) %}{% do l.extend(l) %}{% endfor %}",
    "{% set ns = namespace(l=[]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
    "{% set ns = namespace(l=[], m=[]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ "
    "ns.l == ns.m }}",
    "{% set ns = namespace(l=[]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson }}",
    "{% set ns = namespace(t=()) %}{% for i in range(100) %}{% set ns.t = (ns.t, ns.t) %}{% endfor %}{{ {ns.t: 1} }}",
    "{% set l = [] %}{% do l.append(l) %}{{ l }}",
    "{% set l = [] %}{% do l.append(l) %}{{ l|tojson }}",
    "{% set l = [] %}{% set m = [l] %}{% do l.append(m) %}{{ l == m }}",
    "{% set d = {} %}{% do d.update(a=d) %}{{ d|string }}",
    "{{ 2 ** 64 }}",
    "{{ 9223372036854775807 + 1 }}",
    "{{ 9223372036854775807 * 2 }}",
    "{{ -9223372036854775807 - 2 }}",
    "{{ (-9223372036854775807 - 1) // -1 }}",
    "{{ -(-9223372036854775807 - 1) }}",
    "{{ (-9223372036854775807 - 1)|abs }}",
    "{{ 99999999999999999999 }}",
    "{{ 10.0 ** 400 }}",
    "{{ [1]|batch(9999999999, 0) }}",
    "{{ [1]|slice(9999999999)|list }}",
    /* time */
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% set s = 'a' * 10000000 %}{% for i in range(100000) %}{% if 'b' in s %}{% endif %}{% endfor %}",
    "{% set s = 'a' * 10000000 %}{% for i in range(100000) %}{% if s.find('b') > 0 %}{% endif %}{% endfor %}",
    "{% set s = 'a' * 10000000 %}{{ s.rfind('a' * 1000000 ~ 'b') }}{{ s.rfind('ba' * 4000000) }}{{ s.rsplit('a' * 5000000 ~ 'b') }}"
    "{% for i in range(100000) %}{% if s.rfind('a' * 3000000 ~ 'b') %}{% endif %}{% endfor %}",
    "{% set s = 'a' * 10000000 %}{% for i in range(100000) %}{% if s.strip('bcdefghijk') %}{% endif %}{% endfor %}",
    "{% set s = 'a' * 30000000 %}{{ s.strip(s) }}",
    "{% set s = 'é' * 10000000 %}{% for i in range(100000) %}{% if s[5000000] == 'x' %}{% endif %}{% endfor %}",
    "{% set s = 'é' * 10000000 %}{% set t = s ~ '' %}{% for i in range(100000) %}{% if s == t %}{% endif %}{% endfor %}",
    "{% set l = range(100000)|list %}{% for i in range(100000) %}{% if -1 in l %}{% endif %}{% endfor %}",
    "{% set l = range(100000)|list %}{% for i in range(100000) %}{% do l.insert(0, 1) %}{% endfor %}",
    "{% set d = {} %}{% for i in range(100000) %}{% do d.update({i: i}) %}{% endfor %}{% for i in range(100000) %}{% do d.pop(i) %}{% "
    "endfor %}",
    "{{ ('<' * 1000000)|striptags }}{{ ('<!--' * 1000000)|striptags }}",
    "{{ ('a' * 5000000).replace('a' * 100000 ~ 'b', '') }}",
    "{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    /* depth */
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{% macro m(x) %}{{ caller() }}{% call m(x) %}{{ x }}{% endcall %}{% endmacro %}{% call m(1) %}{% endcall %}",
    "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{% for i in [1] %}{% if true %}{{ a()|upper }}{% endif %}{% endfor %}{% endmacro "
    "%}{{ a() }}",
    "{% macro m(x=m()) %}{% endmacro %}{{ m() }}",
    NULL,
};

/* Templates nested by repeating a part before and after a middle. */
static const struct {
    const char *before, *middle, *after;
} nested[] = {
    {"(", "1", ")"},    {"[", "1", "]"},   {"{1:", "1", "}"},         {"f(", "1", ")"},     {"a[", "1", "]"},
    {"- ", "1", ""},    {"not ", "1", ""}, {"1 if ", "1", " else 2"}, {"1 + (", "1", ")"},  {"1 + ", "1", ""},
    {"1 ** ", "1", ""}, {"x ~ ", "1", ""}, {"1 and ", "1", ""},       {"x", "", "|upper"},  {"", "x", ".a"},
    {"", "x", "[0]"},   {"", "x", "()"},   {"", "x", " is defined"},  {"", "'x'", " if 1"}, {"1 if 1 else ", "1", ""},
};

static const struct {
    const char *before, *after;
} nested_blocks[] = {
    {"{% if 1 %}", "{% endif %}"},
    {"{% for i in [1] %}", "{% endfor %}"},
    {"{% set x %}", "{% endset %}"},
    {"{% filter upper %}", "{% endfilter %}"},
    {"{% with %}", "{% endwith %}"},
    {"{% macro m() %}", "{% endmacro %}"},
    {"{% call f() %}", "{% endcall %}"},
    {"{% generation %}", "{% endgeneration %}"},
    {"{% if 0 %}{% elif 1 %}", "{% endif %}"},
};

static void repeat(buf *b, const char *text, int times) {
    for (int i = 0; i < times; i++) assert_true(buf_adds(b, text, NULL));
}

/* Any outcome but a crash; an error must have words. Says what is wrong, as a thread cannot fail a test. */
static bool survives(const char *source, size_t len, const json_t *variables) {
    err e = {0};
    buf out = {0};
    bool fine = example_render(source, len, variables, &out, &e) || (e.code != HEARTH_OK && e.text[0]);
    if (!fine) printf("# failed without a message: %.*s\n", (int)len, source);
    buf_free(&out);
    return fine;
}

__attribute__((unused)) static bool run_greedy(void) {
    json_t *none = json_object();
    bool fine = true;
    for (const char *const *source = greedy; *source; source++) {
        err e = {0};
        buf out = {0};
        uint64_t start = clock_ns();
        bool ok = example_render(*source, strlen(*source), none, &out, &e);
        double seconds = (double)(clock_ns() - start) * 1e-9;
        if (ok || (e.code != HEARTH_LIMIT && e.code != HEARTH_FORMAT) || out.len) {
            printf("# was not stopped: %s: %s\n", *source, e.text);
            fine = false;
        }
        if (seconds > 5) printf("# %.1f seconds until \"%s\": %s\n", seconds, e.text, *source);
        buf_free(&out);
    }
    json_decref(none);
    return fine;
}

static bool run_nested(int depth) {
    json_t *none = json_object();
    bool fine = true;
    for (size_t i = 0; i < sizeof nested / sizeof *nested; i++) {
        buf b = {0};
        repeat(&b, "{{ ", 1);
        repeat(&b, nested[i].before, depth);
        repeat(&b, nested[i].middle, 1);
        repeat(&b, nested[i].after, depth);
        repeat(&b, " }}", 1);
        fine &= survives(b.data, b.len, none);
        buf_free(&b);
    }
    for (size_t i = 0; i < sizeof nested_blocks / sizeof *nested_blocks; i++) {
        buf b = {0};
        repeat(&b, nested_blocks[i].before, depth);
        repeat(&b, "x", 1);
        fine &= survives(b.data, b.len, none);
        repeat(&b, nested_blocks[i].after, depth);
        fine &= survives(b.data, b.len, none);
        buf_free(&b);
    }
    json_decref(none);
    return fine;
}

static void *on_small_stack(void *fine) {
    *(bool *)fine = true;
#ifndef __SANITIZE_THREAD__ /* one thread, and very slow there */
    *(bool *)fine = run_greedy();
#endif
    for (int depth = 10; depth <= 10000; depth *= 10) *(bool *)fine &= run_nested(depth);
    return NULL;
}

static void greedy_templates_end_on_a_small_stack(void **state) {
    (void)state;
    pthread_attr_t attributes;
    pthread_t thread;
    bool fine = false;
    pthread_attr_init(&attributes);
#ifdef __SANITIZE_THREAD__ /* keeps its own state on the stack */
    const size_t stack = (size_t)2 << 20;
#else
    const size_t stack = (size_t)1 << 20;
#endif
    assert_int_equal(pthread_attr_setstacksize(&attributes, stack), 0);
    assert_int_equal(pthread_create(&thread, &attributes, on_small_stack, &fine), 0);
    pthread_join(thread, NULL);
    assert_true(fine);
    pthread_attr_destroy(&attributes);
}

static void modest_nesting_works(void **state) {
    (void)state;
    json_t *none = json_object();
    err e = {0};
    buf b = {0}, out = {0};
    repeat(&b, "{% if 1 %}", 50);
    repeat(&b, "{{ ", 1);
    repeat(&b, "(", 100);
    repeat(&b, "7", 1);
    repeat(&b, ")", 100);
    repeat(&b, " }}", 1);
    repeat(&b, "{% endif %}", 50);
    repeat(&b, "{% macro m(n) %}{% if n > 0 %}{% for i in [1] %}{{ m(n - 1) }}{% endfor %}{% else %}!{% endif %}{% endmacro %}{{ m(40) }}",
           1);
    if (!example_render(b.data, b.len, none, &out, &e)) fail_msg("%s", e.text);
    assert_string_equal(out.data, "7!");
    buf_free(&b);
    buf_free(&out);
    json_decref(none);
}

static void deep_data_is_no_trouble(void **state) {
    (void)state;
    json_t *v = json_array(), *variables = json_object();
    for (int i = 0; i < 100000; i++) {
        json_t *outer = json_array();
        json_array_append_new(outer, v);
        v = outer;
    }
    json_object_set_new(variables, "v", v);
    assert_true(survives("{{ v }}", 7, variables));
    assert_true(survives("{{ v|tojson }}", 14, variables));
    /* jansson frees recursively; take it apart by hand. */
    v = json_incref(v);
    json_decref(variables);
    while (json_array_size(v)) {
        json_t *inner = json_incref(json_array_get(v, 0));
        json_array_clear(v);
        json_decref(v);
        v = inner;
    }
    json_decref(v);
}

static void appending_in_a_loop_stays_linear(void **state) {
    (void)state;
    /* 20 MB built from 100,000 pieces would take a terabyte if every step were a copy that is kept. */
    const char *source = "{% set ns = namespace(s='') %}{% for i in range(100000) %}{% set ns.s = ns.s + p %}{% endfor %}{{ ns.s|length }}";
    json_t *variables = json_object();
    char piece[201];
    memset(piece, 'x', 200);
    piece[200] = 0;
    json_object_set_new(variables, "p", json_string(piece));
    err e = {0};
    buf out = {0};
    if (!example_render(source, strlen(source), variables, &out, &e)) fail_msg("%s", e.text);
    assert_string_equal(out.data, "20000000");
    buf_free(&out);
    json_decref(variables);
}

static void extreme_numbers_do_no_harm(void **state) {
    (void)state;
    static const char *const uses[] = {
        "s.replace('a', 'b', N)",
        "s.replace('', 'b', N)",
        "s.split('a', N)",
        "s.split(none, N)",
        "s.rsplit('a', N)",
        "s.rsplit(none, N)",
        "s[N]",
        "s[N:]",
        "s[:N]",
        "s[::N]",
        "s[N:N:N]",
        "l[N]",
        "l[N:N:N]",
        "l[::N]",
        "range(N)",
        "range(N, N, N)",
        "range(3)[N:N:N]",
        "s|center(N)",
        "s.ljust(N)",
        "s.rjust(N)",
        "s.zfill(N)",
        "s.expandtabs(N)",
        "s.find('a', N, N)",
        "s.rfind('a', N)",
        "s.count('a', N, N)",
        "s.startswith('a', N, N)",
        "l.pop(N)",
        "l.insert(N, 1)",
        "s|truncate(N)",
        "s|truncate(3, true, '', N)",
        "s|indent(N)",
        "l|tojson(indent=N)",
        "s|wordwrap(N)",
        "l|batch(N)",
        "l|slice(N)",
        "2.5|round(N)",
        "25|round(N)",
        "2.5|round(N, 'ceil')",
        "N|round(-3)",
        "N|abs",
        "-N",
        "N // -1",
        "N % -1",
        "N ** N",
        "N * N",
        "N + N",
        "N - N",
        "N|int",
        "N|float|int",
        "'7'|int(0, N)",
        "N|filesizeformat",
        "'%d' % N",
        "'%*d' % (N, 1)",
        "'%.*f' % (N, 1.5)",
        "'%c' % N",
        "'{:c}'.format(N)",
        "'{:,}'.format(N)",
        "'{:x}'.format(N)",
        "N is divisibleby(-1)",
        "N is odd",
        "N in range(5)",
        "1e308 * 10 // N",
        "1e308|int",
        "(1e308 * 10)|round(2)",
        "(1e308 * 10)|int",
        "N == N + 0.5",
        "N < 1e308",
        "[N, 1.5, -N]|sort",
        "{N: 1, N + 0.0: 2}",
    };
    static const char *const numbers[] = {"(-9223372036854775807 - 1)", "9223372036854775807", "-1", "0", "4294967296"};
    json_t *variables = example_variables("{'s': 'banana é', 'l': [1, 2, 3]}");
    for (size_t u = 0; u < sizeof uses / sizeof *uses; u++) {
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            buf b = {0};
            assert_true(buf_adds(&b, "{{ ", NULL));
            for (const char *p = uses[u]; *p; p++) assert_true(*p == 'N' ? buf_adds(&b, numbers[k], NULL) : buf_addc(&b, *p, NULL));
            assert_true(buf_adds(&b, " }}", NULL));
            assert_true(survives(b.data, b.len, variables));
            buf_free(&b);
        }
    }
    json_decref(variables);
}

static void odd_sources_are_refused(void **state) {
    (void)state;
    err e = {0};
    assert_null(jinja_parse("a\xFFz", 3, &e));
    assert_string_equal(e.text, "the template is not valid UTF-8");
    e = (err){0};
    size_t len = (size_t)2 << 20;
    char *big = calloc(len, 1);
    assert_null(jinja_parse(big, len, &e));
    assert_int_equal(e.code, HEARTH_LIMIT);
    free(big);
    assert_null(jinja_parse("{{", 2, NULL)); /* nobody listens */
    jinja_free(NULL);
    e = (err){0};
    buf out = {0};
    json_t *variables = json_pack("{s:s%}", "s", "a\0b", (size_t)3);
    if (!example_render("{{ s }}\0{{ s|length }}", 22, variables, &out, &e)) fail_msg("%s", e.text);
    assert_int_equal(out.len, 5);
    assert_memory_equal(out.data,
                        "a\0b\0"
                        "3",
                        5);
    buf_free(&out);
    json_decref(variables);
}

static void raised_messages_are_cut_between_characters(void **state) {
    (void)state;
    json_t *none = json_object();
    err e = {0};
    buf out = {0};
    const char *source = "x{{ raise_exception('a' ~ 'é' * 1000) }}";
    assert_false(example_render(source, strlen(source), none, &out, &e));
    assert_int_equal(strlen(e.text), 511);
    assert_int_equal((unsigned char)e.text[510], 0xA9);
    assert_int_equal(out.len, 0);
    json_decref(none);
}

/* ---- memory ---- */

static void every_allocation_may_fail(void **state) {
    (void)state;
    const char *source = "{% macro m(x) %}<{{ x|tojson }}>{% endmacro %}{% for i in l|sort %}{{ m(i) ~ i * 2000 }}{% endfor %}{{ {'a': "
                         "l}|string|upper * 3000 }}";
    json_t *variables = example_variables("{'l': [3, 1, 2]}");
    for (long n = 1;; n++) {
        err e = {0};
        buf out = {0};
        mem_fail_nth(n);
        bool ok = example_render(source, strlen(source), variables, &out, &e);
        mem_fail_nth(0);
        buf_free(&out);
        if (ok) {
            assert_true(n > 4);
            break;
        }
        assert_int_equal(e.code, HEARTH_MEMORY);
    }
    json_decref(variables);
}

/* ---- threads ---- */

typedef struct shared {
    const jinja *t;
    const json_t *variables;
    const char *expected;
} shared;

static void *render_many(void *context) {
    const shared *s = context;
    const struct tm now = {.tm_year = 126, .tm_mday = 15, .tm_wday = 4, .tm_yday = 14};
    for (int i = 0; i < 200; i++) {
        buf out = {0};
        err e = {0};
        bool same = jinja_render(s->t, s->variables, &now, &out, &e) && strcmp(out.data, s->expected) == 0;
        buf_free(&out);
        if (!same) return "differs";
    }
    return NULL;
}

static void threads_share_a_template(void **state) {
    (void)state;
    const char *source = "{% macro m(a, b='é') %}{{ a }}{{ b|length }}{{ '日本'|upper }}{% endmacro %}"
                         "{% for x in l if x.n %}{{ m(x.n) }}{{ loop.last }}{{ strftime_now('%A') }}{{ 'é'[0] }}{{ x.n / 4 }} {% endfor %}";
    err e = {0};
    jinja *t = jinja_parse(source, strlen(source), &e);
    if (!t) fail_msg("%s", e.text);
    json_t *variables = example_variables("{'l': [{'n': 1}, {'n': 0}, {'n': 2}]}");
    shared s = {t, variables, "11日本FalseThursdayé0.25 21日本TrueThursdayé0.5 "};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, render_many, &s), 0);
    for (int i = 0; i < 4; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_null(result);
    }
    json_decref(variables);
    jinja_free(t);
}

/* ---- mutation ---- */

static const char *const seeds[] = {
    "{%- for m in messages if m.role != 'system' -%}{{ '<|' ~ m.role ~ '|>' + m['content'] | trim }}{% if loop.last %}{{ eos }}{% endif "
    "%}{%- endfor %}",
    "{% set ns = namespace(a=0, l=[]) %}{% for k, v in d.items() %}{% set ns.a = ns.a + v|int %}{{ k[::-1] }}{% endfor %}{{ ns.a }}",
    "{% macro show(x, depth=0) %}{% if x is mapping %}{% for k, v in x|dictsort %}{{ k }}: {{ show(v, depth + 1) }}{% endfor %}{% else "
    "%}{{ x }}"
    "{% endif %}{% endmacro %}{{ show(d) }}",
    "{{ '%s-%5.2f' % ('a', 3.5) }}{{ '{0:>{1}}|{x!r}'.format('b', 6, x=[1]) }}{{ [3,1,2]|sort(reverse=true)|join(', ') }}",
    "{% filter upper %}{% call(x) show() %}{{ x|tojson(indent=2) }}{% endcall %}{% endfilter %}{% raw %}{{ }}{% endraw %}{# c #}",
    "{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|list|length if messages is iterable else -1 ** 2 // 3 }}",
    "{% with a = (1, 2.5, none, \"x\\u00e9\") %}{{ a[1:] ~ a|batch(2)|list }}{% endwith %}{% generation %}{{ cycler(1, 2).next() }}{% "
    "endgeneration %}",
};

static const char *const fragments[] = {
    "{{",
    "}}",
    "{%",
    "%}",
    "{#",
    "#}",
    "-%}",
    "{%-",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "|",
    ".",
    ",",
    ":",
    "~",
    "**",
    "//",
    "'",
    "\"",
    "\\",
    " is ",
    " in ",
    " not ",
    " if ",
    " else ",
    "{% endif %}",
    "{% endfor %}",
    "{% for x in y recursive %}",
    "{% set x %}",
    "{% macro m(a, b=1) %}",
    "loop(",
    "caller()",
    "*",
    "9223372036854775807",
    "-1",
    "0",
    "1e308",
    "|tojson",
    "|sort",
    "|map('",
    "namespace(",
    "range(",
    ".format(",
    "[::-1]",
    "é",
    "\xF0\x9F\x98\x80",
};

static void mutate(buf *b, uint64_t *rng) {
    for (uint64_t edits = 1 + rng_next(rng) % 4; edits > 0; edits--) {
        size_t at = b->len ? rng_next(rng) % b->len : 0, n = rng_next(rng) % 12;
        if (n > b->len - at) n = b->len - at;
        switch (rng_next(rng) % 4) {
        case 0: /* cut */
            memmove(b->data + at, b->data + at + n, b->len - at - n);
            b->len -= n;
            break;
        case 1: /* another byte */
            if (b->len) b->data[at] = (char)(rng_next(rng) % 127 + 1);
            break;
        default: { /* put in a fragment, or a piece of itself */
            const char *f = fragments[rng_next(rng) % (sizeof fragments / sizeof *fragments)];
            char piece[32];
            size_t len = strlen(f);
            memcpy(piece, f, len);
            if (rng_next(rng) % 3 == 0 && n) memcpy(piece, b->data + at, len = n);
            size_t to = b->len ? rng_next(rng) % b->len : 0;
            assert_true(buf_reserve(b, len, NULL));
            memmove(b->data + to + len, b->data + to, b->len - to);
            memcpy(b->data + to, piece, len);
            b->len += len;
        }
        }
    }
}

static json_t *sample_variables(void) {
    return example_variables(
        "{'messages': [{'role': 'system', 'content': 'be good'}, {'role': 'user', 'content': ' hi é '}], 'eos': '</s>',"
        " 'd': {'b': 1, 'a': {'x': [1, 2.5, null]}, 'c': '7'}, 'tools': null, 'add_generation_prompt': true,"
        " 'bos_token': '<s>', 'eos_token': '</s>'}");
}

static void mutated_templates_do_no_harm(void **state) {
    (void)state;
    uint64_t rng = test_seed(), deadline = clock_ns() + 1500000000u;
    json_t *variables = sample_variables();
    for (int round = 0; round < 20000 && clock_ns() < deadline; round++) {
        const char *seed = seeds[rng_next(&rng) % (sizeof seeds / sizeof *seeds)];
        buf b = {0};
        assert_true(buf_adds(&b, seed, NULL));
        mutate(&b, &rng);
        assert_true(survives(b.data, b.len, variables));
        buf_free(&b);
    }
    json_decref(variables);
}

static void mutated_model_templates_do_no_harm(void **state) {
    (void)state;
    need_kit();
    static const char *const names[] = {
        "google-gemma-4-31B-it", "openai-gpt-oss-120b", "Kimi-K3", "Qwen-Qwen3-0.6B", "meta-llama-Llama-3.1-8B-Instruct", "tencent-Hy3"};
    uint64_t rng = test_seed() ^ 1, deadline = clock_ns() + 1500000000u;
    json_t *variables = sample_variables();
    for (int round = 0; round < 6000 && clock_ns() < deadline; round++) {
        char relative[200];
        snprintf(relative, sizeof relative, "templates/%s.jinja", names[rng_next(&rng) % (sizeof names / sizeof *names)]);
        buf b = slurp(kit_path(relative));
        mutate(&b, &rng);
        assert_true(survives(b.data, b.len, variables));
        buf_free(&b);
    }
    json_decref(variables);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_templates_end_on_a_small_stack),
        cmocka_unit_test(modest_nesting_works),
        cmocka_unit_test(deep_data_is_no_trouble),
        cmocka_unit_test(appending_in_a_loop_stays_linear),
        cmocka_unit_test(extreme_numbers_do_no_harm),
        cmocka_unit_test(odd_sources_are_refused),
        cmocka_unit_test(raised_messages_are_cut_between_characters),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(threads_share_a_template),
        cmocka_unit_test(mutated_templates_do_no_harm),
        cmocka_unit_test(mutated_model_templates_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
