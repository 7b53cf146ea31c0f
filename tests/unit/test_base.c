#include "tools/support.h"

#include <stdatomic.h>
#include <unistd.h>

#include "base/pool.h"

static void quote_shows_control_characters(void **state) {
    (void)state;
    char out[32];
    assert_string_equal(err_quote(out, sizeof out, "a\n\xFF\xC3\xA9", 5), "a\\x0A\\xFF\xC3\xA9");
    assert_string_equal(err_quote(out, 12, "abcdefghijklmnop", 16), "abcdefgh...");
}

static void buffer_refuses_more_than_its_limit(void **state) {
    (void)state;
    err e = {0};
    buf b = {.limit = 4};
    assert_true(buf_add(&b, "abcd", 4, &e));
    assert_false(buf_addc(&b, 'e', &e));
    assert_int_equal(e.code, HEARTH_LIMIT);
    assert_string_equal(b.data, "abcd");
    buf_free(&b);
}

static void allocation_overflow_is_an_error(void **state) {
    (void)state;
    err e = {0};
    assert_null(mem_alloc(SIZE_MAX / 2, 4, &e));
    assert_int_equal(e.code, HEARTH_MEMORY);
}

static void writer_leaves_nothing_behind_when_any_call_fails(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/whole", temp_dir());
    for (long n = 1;; n++) {
        err e = {0};
        file_writer w;
        file_fail_nth(n);
        bool ok = file_writer_open(&w, path, &e);
        if (ok && !file_writer_add(&w, "hello", 5, &e)) {
            file_writer_abort(&w);
            ok = false;
        }
        ok = ok && file_writer_commit(&w, &e);
        file_fail_nth(0);
        if (ok) {
            assert_true(n > 4);
            break;
        }
        assert_int_equal(e.code, HEARTH_IO);
        if (access(path, F_OK) == 0) {
            buf b = slurp(path);
            assert_int_equal(b.len, 5);
            buf_free(&b);
            unlink(path);
        }
    }
    buf b = slurp(path);
    assert_string_equal(b.data, "hello");
    buf_free(&b);
}

typedef struct { atomic_int hits[1000]; } counts;
static void count_one(void *context, int64_t i, int thread) {
    (void)thread;
    atomic_fetch_add(&((counts *)context)->hits[i], 1);
}

static void pool_runs_every_task_once(void **state) {
    (void)state;
    err e = {0};
    pool *p = pool_new(4, &e);
    assert_non_null(p);
    static counts c;
    for (int round = 1; round <= 200; round++) {
        if (round % 50 == 0) usleep(20000); /* let the workers fall asleep */
        pool_run(p, 1000, count_one, &c);
        for (int i = 0; i < 1000; i++) assert_int_equal(atomic_load(&c.hits[i]), round);
    }
    pool_free(p);
}

/* Tasks of very different length and number: threads that are done help the others, and no task is lost or done twice on the way. */
static void uneven_task(void *context, int64_t i, int thread) {
    count_one(context, i, thread);
    volatile unsigned turns = (unsigned)(i * 2654435761u >> 7) % 64 == 0 ? 20000 : 20;
    while (turns > 0) turns = turns - 1;
}

static atomic_int range_calls, empty_calls; /* looked at by the test's own thread: an assertion must not fail in another */
static void uneven_range(void *context, int64_t first, int64_t end, int thread) {
    atomic_fetch_add(&range_calls, 1);
    if (first >= end) atomic_fetch_add(&empty_calls, 1);
    for (int64_t i = first; i < end; i++) uneven_task(context, i, thread);
}

static void check_done_once(const counts *c, int threads, int n) {
    for (int i = 0; i < 1000; i++)
        if (atomic_load(&c->hits[i]) != (i < n)) fail_msg("%d threads, %d tasks: task %d was done %d times", threads, n, i, atomic_load(&c->hits[i]));
}

static void pool_shares_uneven_tasks(void **state) {
    (void)state;
    srand((unsigned)test_seed());
    static counts c;
    for (int threads = 2; threads <= 5; threads++) {
        err e = {0};
        pool *p = pool_new(threads, &e);
        assert_non_null(p);
        for (int round = 0; round < 100; round++) {
            const int n = round < 8 ? round : 1 + rand() % 1000;
            memset(&c, 0, sizeof c);
            for (int t = 1; t < threads; t++) pool_ahead(p, t, round % 3 ? (const void *)((uintptr_t)rand() << 12) : NULL, (size_t)rand() % 3 << 20, (size_t)rand() % 10000); /* whatever lies there */
            pool_run(p, n, uneven_task, &c);
            check_done_once(&c, threads, n);
            memset(&c, 0, sizeof c);
            atomic_store(&range_calls, 0);
            pool_run_ranges(p, n, uneven_range, &c);
            check_done_once(&c, threads, n);
            assert_int_equal(atomic_load(&empty_calls), 0);
            if (n >= 500 && atomic_load(&range_calls) > n - 10) fail_msg("%d threads, %d tasks: %d calls, neighbours were not taken together", threads, n, atomic_load(&range_calls));
        }
        pool_free(p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quote_shows_control_characters),
        cmocka_unit_test(buffer_refuses_more_than_its_limit),
        cmocka_unit_test(allocation_overflow_is_an_error),
        cmocka_unit_test(writer_leaves_nothing_behind_when_any_call_fails),
        cmocka_unit_test(pool_runs_every_task_once),
        cmocka_unit_test(pool_shares_uneven_tasks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
