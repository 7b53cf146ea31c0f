/* test_http.c: the HTTP server with a handler that knows nothing. */
#include "tools/support.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "http/http.h"
#include "unit/http_client.h"

static _Atomic int streams_done, handled;
static _Atomic int hold; /* handlers wait while this is set */

static http_more next_number(void *user, http_request *r, uint64_t timeout_ns, buf *out) {
    (void)r;
    int *n = user;
    if (--*n > 1) { /* silence at first, for the heartbeat */
        usleep((useconds_t)(timeout_ns / 1000));
        return HTTP_IDLE;
    }
    buf_addf(out, NULL, "data: %d\n\n", *n);
    return *n > 0 ? HTTP_MORE : HTTP_END;
}
static http_more endless(void *user, http_request *r, uint64_t timeout_ns, buf *out) {
    (void)user;
    (void)r;
    usleep((useconds_t)(timeout_ns / 10000));
    buf_adds(out, "data: more\n\n", NULL);
    return HTTP_MORE;
}
static void done(void *user, http_request *r) {
    http_note(r, "left", "%d", user ? *(int *)user : -1);
    streams_done++;
}

static void handler(void *user, http_request *r) {
    (void)user;
    static int count;
    handled++;
    while (hold && !http_gone(r)) usleep(1000);
    size_t len;
    const char *body = http_body(r, &len), *path = http_path(r);
    char text[64];
    if (http_check(r) != HTTP_FINE) {
        static const int status[] = {[HTTP_TOO_LARGE] = 413, [HTTP_NO_MEMORY] = 503, [HTTP_FOREIGN] = 403, [HTTP_NO_KEY] = 401};
        http_reply(r, status[http_check(r)], "text/plain", "no", 2);
    } else if (strcmp(path, "/stream") == 0) {
        count = 8;
        http_stream(r, &(http_events){.next = next_number, .done = done, .user = &count});
    } else if (strcmp(path, "/endless") == 0) {
        http_stream(r, &(http_events){.next = endless, .done = done});
    } else if (strcmp(path, "/nothing") == 0) {
        return; /* no reply: the connection is closed */
    } else {
        snprintf(text, sizeof text, "%s %zu", http_method(r), len);
        http_reply_header(r, "X-First", len ? (char[]){body[0], 0} : "");
        http_reply(r, 200, "text/plain", text, strlen(text));
    }
}

static http_server *started(const char *const *keys, const char *const *origins) {
    err e = {0};
    http_options o = http_defaults();
    o.port = 0;
    o.keys = keys;
    o.origins = origins;
    o.max_body = 1000;
    o.heartbeat_s = 1;
    http_server *s = http_start(&o, handler, NULL, &e);
    if (!s) fail_msg("%s", e.text);
    return s;
}

static int ask(const http_server *s, const char *method, const char *path, const char *headers, const char *body) {
    reply r = client_ask(http_port(s), method, path, headers, body, strlen(body));
    int status = r.status;
    reply_free(&r);
    return status;
}

static void test_keep_alive(void **state) {
    (void)state;
    http_server *s = started(NULL, NULL);
    int fd = client_open(http_port(s));
    for (int i = 0; i < 3; i++) {
        const char *request = "POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello";
        client_write(fd, request, strlen(request));
        reply r = client_reply(fd);
        assert_int_equal(r.status, 200);
        assert_string_equal(r.body, "POST 5");
        assert_non_null(strcasestr(r.all.data, "x-request-id: "));
        reply_free(&r);
    }
    close(fd);
    http_stop(s);
}

static void test_limits(void **state) {
    (void)state;
    http_server *s = started(NULL, NULL);
    static char large[4096];
    memset(large, 'a', sizeof large - 1);
    assert_int_equal(ask(s, "POST", "/", NULL, large), 413);
    reply r = client_ask(http_port(s), "POST", "/", NULL, large, 1000);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    /* The same in pieces, whose sum nobody announced. */
    int fd = client_open(http_port(s));
    const char *head = "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    client_write(fd, head, strlen(head));
    for (int i = 0; i < 4; i++) {
        client_write(fd, "200\r\n", 5);
        client_write(fd, large, 0x200);
        client_write(fd, "\r\n", 2);
    }
    client_write(fd, "0\r\n\r\n", 5);
    r = client_reply(fd);
    assert_int_equal(r.status, 413);
    reply_free(&r);
    close(fd);
    /* Headers without end. */
    fd = client_open(http_port(s));
    client_write(fd, "GET / HTTP/1.1\r\n", 16);
    for (int i = 0; i < 100; i++) {
        client_write(fd, "X-Long: ", 8);
        client_write(fd, large, 4000);
        client_write(fd, "\r\n", 2);
    }
    r = client_reply(fd);
    assert_true(r.status == 0 || (r.status >= 400 && r.status < 500));
    reply_free(&r);
    close(fd);
    assert_int_equal(ask(s, "GET", "/", NULL, ""), 200);
    http_stop(s);
}

static void test_garbage(void **state) {
    (void)state;
    http_server *s = started(NULL, NULL);
    uint64_t seed = test_seed();
    static const char *const openings[] = {"", "GET ", "POST / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nContent-Length: -5\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
                                           "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n"};
    for (int i = 0; i < 60; i++) {
        char noise[300];
        size_t n = rng_next(&seed) % sizeof noise;
        for (size_t k = 0; k < n; k++) noise[k] = (char)rng_next(&seed);
        int fd = client_open(http_port(s));
        const char *opening = openings[(size_t)i % (sizeof openings / sizeof *openings)];
        client_write(fd, opening, strlen(opening));
        client_write(fd, noise, n);
        close(fd);
    }
    assert_int_equal(ask(s, "GET", "/", NULL, ""), 200);
    assert_int_equal(ask(s, "GET", "/nothing", NULL, ""), 0);
    http_stop(s);
}

static void test_keys(void **state) {
    (void)state;
    const char *const keys[] = {"secret", "other", NULL};
    http_server *s = started(keys, NULL);
    assert_int_equal(ask(s, "GET", "/", NULL, ""), 401);
    assert_int_equal(ask(s, "GET", "/", "Authorization: Bearer secret\r\n", ""), 200);
    assert_int_equal(ask(s, "GET", "/", "authorization: bearer other\r\n", ""), 200);
    assert_int_equal(ask(s, "GET", "/", "x-api-key: other\r\n", ""), 200);
    assert_int_equal(ask(s, "GET", "/", "x-api-key: othe\r\n", ""), 401);
    assert_int_equal(ask(s, "GET", "/", "x-api-key: otherother\r\n", ""), 401);
    assert_int_equal(ask(s, "GET", "/", "Authorization: Basic secret\r\n", ""), 401);
    http_stop(s);
    assert_true(http_key_equal("abc", 3, "abc"));
    assert_false(http_key_equal("", 0, "abc"));
    assert_false(http_key_equal("abcabc", 6, "abc"));
    assert_false(http_key_equal("x", 1, ""));
}

static void test_other_sites(void **state) {
    (void)state;
    http_server *s = started(NULL, NULL);
    assert_int_equal(ask(s, "POST", "/", "Origin: http://evil.example\r\n", "{}"), 403);
    assert_int_equal(ask(s, "POST", "/", "Origin: null\r\n", "{}"), 403);
    assert_int_equal(ask(s, "OPTIONS", "/", "Origin: http://evil.example\r\n", ""), 403);
    assert_int_equal(ask(s, "POST", "/", "Origin: http://127.0.0.1\r\n", "{}"), 200);
    http_stop(s);
    const char *const origins[] = {"http://friend.example", NULL};
    s = started(NULL, origins);
    assert_int_equal(ask(s, "POST", "/", "Origin: http://evil.example\r\n", "{}"), 403);
    reply r = client_ask(http_port(s), "OPTIONS", "/", "Origin: http://friend.example\r\nAccess-Control-Request-Headers: x-api-key\r\n", "", 0);
    assert_int_equal(r.status, 204);
    assert_non_null(strstr(r.all.data, "Access-Control-Allow-Origin: http://friend.example"));
    assert_non_null(strstr(r.all.data, "Access-Control-Allow-Headers: x-api-key"));
    reply_free(&r);
    http_stop(s);
    assert_true(http_host_is_local("127.0.0.1:8080") && http_host_is_local("[::1]:8080") && http_host_is_local("LocalHost") && http_host_is_local("a.localhost:1"));
    assert_false(http_host_is_local("evil.example") || http_host_is_local("127.0.0.1.evil.example") || http_host_is_local("") || http_host_is_local("[::1"));
    assert_true(http_same_origin("http://a:80", "a:80"));
    assert_false(http_same_origin("a", "a") || http_same_origin("http://a.b", "a"));
}

static void test_streams(void **state) {
    (void)state;
    http_server *s = started(NULL, NULL);
    streams_done = 0;
    reply r = client_ask(http_port(s), "GET", "/stream", NULL, "", 0);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.all.data, "text/event-stream"));
    assert_non_null(strstr(r.body, ": heartbeat\n\n"));
    assert_non_null(strstr(r.body, "data: 1\n\n"));
    assert_non_null(strstr(r.body, "data: 0\n\n"));
    reply_free(&r);
    /* A client that leaves is noticed. */
    int fd = client_open(http_port(s));
    client_write(fd, "GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n", 43);
    buf in = {0};
    while (!in.data || !strstr(in.data, "more")) assert_true(client_read(fd, &in));
    buf_free(&in);
    close(fd);
    for (int i = 0; i < 500 && streams_done < 2; i++) usleep(10000);
    assert_int_equal(streams_done, 2);
    http_stop(s);
}

static void test_stop_while_busy(void **state) {
    (void)state;
    http_server *s = started(NULL, NULL);
    handled = 0;
    hold = 1;
    int fd = client_open(http_port(s)), stream = client_open(http_port(s)), idle = client_open(http_port(s));
    client_write(fd, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 36);
    for (int i = 0; i < 500 && handled < 1; i++) usleep(10000);
    hold = 0;
    client_write(stream, "GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n", 43);
    buf in = {0};
    assert_true(client_read(stream, &in));
    http_quiesce(s);
    http_settle(s, 10000000);
    http_stop(s); /* must return */
    while (client_read(stream, &in)) {}
    buf_free(&in);
    close(fd);
    close(stream);
    close(idle);
}

static void test_where_to_listen(void **state) {
    (void)state;
    http_options o = http_defaults();
    err e = {0};
    o.port = 0;
    o.host = "0.0.0.0";
    assert_null(http_start(&o, handler, NULL, &e));
    assert_int_equal(e.code, HEARTH_ARGUMENT);
    assert_non_null(strstr(e.text, "--api-key"));
    o.open = true;
    e = (err){0};
    http_server *s = http_start(&o, handler, NULL, &e);
    assert_non_null(s);
    o.host = "127.0.0.1";
    o.port = http_port(s);
    http_stop(s);
    o.open = false;
    const char *const keys[] = {"k", NULL};
    o.keys = keys;
    o.host = "0.0.0.0";
    o.port = 0;
    s = http_start(&o, handler, NULL, &e);
    assert_non_null(s);
    http_stop(s);
    o.host = "no such host";
    e = (err){0};
    assert_null(http_start(&o, handler, NULL, &e));
    assert_int_equal(e.code, HEARTH_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keep_alive),  cmocka_unit_test(test_limits),  cmocka_unit_test(test_garbage),         cmocka_unit_test(test_keys),
        cmocka_unit_test(test_other_sites), cmocka_unit_test(test_streams), cmocka_unit_test(test_stop_while_busy), cmocka_unit_test(test_where_to_listen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
