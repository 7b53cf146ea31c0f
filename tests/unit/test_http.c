/* test_http.c: the HTTP server with a handler that knows nothing. */
#include "tools/support.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/un.h>

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
    if (strcmp(path, "/admin") == 0 && http_is_admin(r)) {
        http_reply(r, 200, "text/plain", body, len);
    } else if (http_check(r) != HTTP_FINE) {
        static const int status[] = {[HTTP_TOO_LARGE] = 413, [HTTP_NO_MEMORY] = 503, [HTTP_FOREIGN] = 403, [HTTP_NO_KEY] = 401, [HTTP_BUSY_KEY] = 429};
        snprintf(text, sizeof text, "%d", http_retry_s(r));
        http_reply_header(r, "Retry-After", text);
        http_reply(r, status[http_check(r)], "text/plain", "no", 2);
    } else if (strcmp(path, "/stream") == 0) {
        count = 8;
        http_stream(r, &(http_events){.next = next_number, .done = done, .user = &count});
    } else if (strcmp(path, "/endless") == 0) {
        http_stream(r, &(http_events){.next = endless, .done = done});
    } else if (strcmp(path, "/tenant") == 0) {
        http_note(r, "say", "%s", "a \"b\" \n\xff c=d");
        http_note(r, "count", "%d", 7);
        http_charge(r, 100);
        const char *tenant = http_tenant(r) ? http_tenant(r) : "nobody", *query = http_query(r, "q");
        snprintf(text, sizeof text, "%s%s", tenant, query ? query : "");
        http_reply(r, 200, "text/plain", text, strlen(text));
    } else if (strcmp(path, "/nothing") == 0) {
        return; /* no reply: the connection is closed */
    } else {
        snprintf(text, sizeof text, "%s %zu", http_method(r), len);
        http_reply_header(r, "X-First", len ? (char[]){body[0], 0} : "");
        http_reply(r, 200, "text/plain", text, strlen(text));
    }
}

static http_keys *the_keys;
static http_options options_for(const char *const *keys, const char *const *origins) {
    err e = {0};
    http_options o = http_defaults();
    o.port = 0;
    o.origins = origins;
    o.max_body = 1000;
    o.heartbeat_s = 1;
    if (keys) o.keys = the_keys = http_keys_new(&e);
    for (; keys && *keys; keys++)
        if (!http_keys_add(o.keys, &(http_key){.key = *keys}, &e)) fail_msg("%s", e.text);
    return o;
}

static http_server *start(const http_options *o) {
    err e = {0};
    http_server *s = http_start(o, handler, NULL, &e);
    if (!s) fail_msg("%s", e.text);
    return s;
}

static http_server *started(const char *const *keys, const char *const *origins) {
    http_options o = options_for(keys, origins);
    return start(&o);
}

static void stop(http_server *s) {
    http_stop(s);
    http_keys_free(the_keys);
    the_keys = NULL;
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
    stop(s);
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
    stop(s);
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
    stop(s);
}

static void *keep_busy(void *until) {
    const _Atomic int *done = until;
    while (!*done) {}
    return NULL;
}

/* libmicrohttpd by itself dies in some of these rounds: connections must have ended before it is stopped. Busy cores let their threads come late. */
static void test_stop_while_refusing(void **state) {
    (void)state;
    _Atomic int done = 0;
    pthread_t busy[4];
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&busy[i], NULL, keep_busy, &done), 0);
    for (int round = 0; round < 40; round++) {
        http_server *s = started(NULL, NULL);
        for (int i = 0; i < 24; i++) {
            int fd = client_open(http_port(s));
            client_write(fd, "GET / HTTP/9.9\r\n\r\n", 18);
            close(fd);
        }
        assert_int_equal(ask(s, "GET", "/", NULL, ""), 200); /* they are accepted by now */
        stop(s);
    }
    done = 1;
    for (int i = 0; i < 4; i++) pthread_join(busy[i], NULL);
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
    stop(s);
}

static http_keys *keys_of(const char *text, err *e) {
    char path[400];
    snprintf(path, sizeof path, "%s/keys", temp_dir());
    spew(path, text, strlen(text));
    http_keys *k = http_keys_new(e);
    if (http_keys_read(k, path, e)) return k;
    http_keys_free(k);
    return NULL;
}

static void test_key_file(void **state) {
    (void)state;
    static const char *const wrong[] = {"", "# only words\n", "key tenant=\n", "key requests=0\n", "key requests=-1\n", "key tokens=x\n", "key tokens=1e99\n", "key word\n", "a\nb\na\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err e = {0};
        assert_null(keys_of(wrong[i], &e));
        assert_non_null(strstr(e.text, i < 2 ? "holds no key" : i == 8 ? ", line 3: a key is given twice" : ", line 1: "));
    }
    err e = {0};
    http_options o = options_for(NULL, NULL);
    o.keys = the_keys = keys_of("# who may\n\nalpha tenant=ann requests=2 # a few\n  beta\ttenant=bob tokens=60\r\nroot admin", &e);
    if (!the_keys) fail_msg("%s", e.text);
    http_server *s = start(&o);
    assert_int_equal(ask(s, "GET", "/", NULL, ""), 401);
    reply r = client_ask(http_port(s), "GET", "/tenant?q=%21", "x-api-key: alpha\r\n", "", 0);
    assert_string_equal(r.body, "ann!");
    reply_free(&r);
    /* Two a minute; looking is free, and so is another's key. */
    assert_int_equal(ask(s, "POST", "/", "x-api-key: alpha\r\n", ""), 200);
    assert_int_equal(ask(s, "POST", "/", "x-api-key: alpha\r\n", ""), 200);
    r = client_ask(http_port(s), "POST", "/", "x-api-key: alpha\r\n", "", 0);
    assert_int_equal(r.status, 429);
    const char *wait = strstr(r.all.data, "Retry-After: ");
    assert_non_null(wait);
    assert_in_range(atoi(wait + 13), 1, 30);
    reply_free(&r);
    assert_int_equal(ask(s, "GET", "/", "x-api-key: alpha\r\n", ""), 200);
    /* Tokens are counted when they are used: 100 of 60 leave a debt. */
    r = client_ask(http_port(s), "POST", "/tenant", "x-api-key: beta\r\n", "", 0);
    assert_string_equal(r.body, "bob");
    reply_free(&r);
    r = client_ask(http_port(s), "POST", "/", "x-api-key: beta\r\n", "", 0);
    assert_int_equal(r.status, 429);
    wait = strstr(r.all.data, "Retry-After: ");
    assert_in_range(atoi(wait + 13), 1, 41);
    reply_free(&r);
    assert_int_equal(ask(s, "POST", "/", "x-api-key: root\r\n", ""), 200);
    r = client_ask(http_port(s), "POST", "/admin", "x-api-key: root\r\n", "body", 4);
    assert_string_equal(r.body, "body");
    reply_free(&r);
    assert_int_equal(ask(s, "POST", "/admin", "x-api-key: beta\r\n", ""), 429);
    stop(s);
    /* A key that is only an administrator's leaves the rest open to this machine, and to no other. */
    o = options_for((const char *const[]){NULL}, NULL);
    assert_true(http_keys_add(the_keys, &(http_key){.key = "boss", .admin = true, .only_admin = true}, &e));
    assert_true(http_keys_admin(the_keys));
    s = start(&o);
    assert_int_equal(ask(s, "POST", "/", NULL, ""), 200);
    assert_int_equal(ask(s, "POST", "/", "x-api-key: anything\r\n", ""), 200);
    r = client_ask(http_port(s), "POST", "/admin", "x-api-key: boss\r\n", "body", 4);
    assert_string_equal(r.body, "body");
    reply_free(&r);
    http_stop(s);
    o.host = "0.0.0.0";
    assert_null(http_start(&o, handler, NULL, &e));
    http_keys_free(the_keys);
    the_keys = NULL;
}

static void test_log(void **state) {
    (void)state;
    for (int json = 0; json < 2; json++) {
        char *text = NULL;
        size_t len = 0;
        http_options o = options_for(NULL, NULL);
        o.log = open_memstream(&text, &len);
        o.log_json = json;
        http_server *s = start(&o);
        reply r = client_ask(http_port(s), "POST", "/tenant", "X-Request-Id: theirs\r\n", "", 0);
        char *id = strstr(r.all.data, "X-Request-Id: ");
        assert_non_null(id);
        id = strndup(id + 14, strcspn(id + 14, "\r"));
        http_stop(s);
        http_log(&o, "that's it");
        fclose(o.log);
        assert_non_null(strstr(text, id));
        if (json) {
            char *end = strchr(text, '\n');
            *end = 0;
            json_error_t why;
            json_t *line = json_loads(text, 0, &why);
            if (!line) fail_msg("%s: %s", why.text, text);
            assert_string_equal(json_string_value(json_object_get(line, "id")), id);
            assert_string_equal(json_string_value(json_object_get(line, "path")), "/tenant");
            assert_int_equal(json_integer_value(json_object_get(line, "status")), 200);
            assert_int_equal(json_integer_value(json_object_get(line, "count")), 7);
            assert_string_equal(json_string_value(json_object_get(line, "say")), "a \"b\" \\x0A\\xFF c=d");
            assert_true(json_is_number(json_object_get(line, "ms")));
            json_decref(line);
            line = json_loads(end + 1, 0, &why);
            assert_string_equal(json_string_value(json_object_get(line, "message")), "that's it");
            json_decref(line);
        } else {
            assert_non_null(strstr(text, " method=POST path=/tenant status=200 ms="));
            assert_non_null(strstr(text, " say=\"a 'b' \\x0A\\xFF c=d\" count=7\n"));
            assert_non_null(strstr(text, " message=\"that's it\"\n"));
        }
        free(id);
        free(text);
        reply_free(&r);
    }
}

/* ---- other ways to listen ---- */

static int ask_unix(const char *path) {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strcpy(a.sun_path, path);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    client_write(fd, request, strlen(request));
    reply r = client_reply(fd);
    int status = r.status;
    reply_free(&r);
    close(fd);
    return status;
}

static void test_unix(void **state) {
    (void)state;
    char path[90];
    err e = {0};
    struct stat st;
    snprintf(path, sizeof path, "%s/socket", temp_dir());
    http_options o = options_for(NULL, NULL);
    o.unix_path = path;
    http_server *s = start(&o);
    assert_int_equal(http_port(s), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(ask_unix(path), 200);
    assert_null(http_start(&o, handler, NULL, &e)); /* it is taken */
    assert_int_equal(ask_unix(path), 200);
    stop(s);
    assert_int_not_equal(stat(path, &st), 0);
    /* What a killed server left behind is in nobody's way; a file is. */
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strcpy(a.sun_path, path);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    close(fd);
    s = start(&o);
    assert_int_equal(ask_unix(path), 200);
    stop(s);
    spew(path, "x", 1);
    e = (err){0};
    assert_null(http_start(&o, handler, NULL, &e));
    assert_non_null(strstr(e.text, "no socket"));
    assert_int_equal(stat(path, &st), 0);
    char far[200];
    memset(far, 'x', sizeof far - 1);
    far[sizeof far - 1] = 0;
    o.unix_path = far;
    e = (err){0};
    assert_null(http_start(&o, handler, NULL, &e));
    assert_int_equal(e.code, HEARTH_ARGUMENT);
}

static void test_given_sockets(void **state) {
    (void)state;
    int first;
    char number[20];
    assert_int_equal(http_given_sockets(&first), 0);
    setenv("LISTEN_FDS", "2", 1);
    setenv("LISTEN_PID", "1", 1); /* another's */
    assert_int_equal(http_given_sockets(&first), 0);
    snprintf(number, sizeof number, "%d", (int)getpid());
    setenv("LISTEN_FDS", "2", 1);
    setenv("LISTEN_PID", number, 1);
    assert_int_equal(http_given_sockets(&first), 2);
    assert_int_equal(first, 3);
    assert_null(getenv("LISTEN_FDS"));
    /* Two of them side by side. */
    int fds[2];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    for (int i = 0; i < 2; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        fds[i] = dup2(fd, 40 + i);
        close(fd);
        a.sin_port = 0;
        assert_int_equal(bind(fds[i], (struct sockaddr *)&a, sizeof a), 0);
        assert_int_equal(listen(fds[i], 5), 0);
    }
    assert_int_equal(getsockname(fds[1], (struct sockaddr *)&a, &len), 0);
    http_options o = options_for(NULL, NULL);
    o.first_socket = 40;
    o.n_sockets = 2;
    http_server *s = start(&o);
    assert_int_equal(ask(s, "GET", "/", NULL, ""), 200);
    reply r = client_ask(ntohs(a.sin_port), "GET", "/", NULL, "", 0);
    assert_int_equal(r.status, 200);
    reply_free(&r);
    stop(s);
    /* What systemd is told. */
    char path[90], text[64];
    snprintf(path, sizeof path, "%s/notify", temp_dir());
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct sockaddr_un u = {.sun_family = AF_UNIX};
    strcpy(u.sun_path, path);
    assert_int_equal(bind(fd, (struct sockaddr *)&u, sizeof u), 0);
    setenv("NOTIFY_SOCKET", path, 1);
    http_tell_systemd("READY=1");
    ssize_t n = recv(fd, text, sizeof text, 0);
    assert_int_equal(n, 7);
    assert_memory_equal(text, "READY=1", 7);
    unsetenv("NOTIFY_SOCKET");
    close(fd);
}

/* With OpenSSL as the client, where it is installed. */
static void test_tls(void **state) {
    (void)state;
    char cert[300], key[300], target[40];
    err e = {0};
    buf out = {0};
    snprintf(cert, sizeof cert, "%s/cert.pem", temp_dir());
    snprintf(key, sizeof key, "%s/key.pem", temp_dir());
    http_options o = options_for(NULL, NULL);
    o.tls_cert = cert;
    assert_null(http_start(&o, handler, NULL, &e));
    assert_non_null(strstr(e.text, "--tls-key"));
    o.tls_key = key;
    spew(cert, "no", 2);
    spew(key, "pem", 3);
    e = (err){0};
    assert_null(http_start(&o, handler, NULL, &e));
    assert_non_null(strstr(e.text, "cannot be used for TLS"));
    if (access("/usr/bin/openssl", X_OK) != 0) skip();
    const char *const make[] = {"/usr/bin/openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost", "-keyout", key, "-out", cert, NULL};
    assert_int_equal(run_program(make, "", 0, NULL, NULL, 30), 0);
    http_server *s = start(&o);
    snprintf(target, sizeof target, "127.0.0.1:%d", http_port(s));
    const char *const client[] = {"/usr/bin/openssl", "s_client", "-quiet", "-connect", target, "-CAfile", cert, "-verify_return_error", NULL};
    const char request[] = "POST /tls HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";
    run_program(client, request, strlen(request), &out, NULL, 30);
    assert_non_null(out.data);
    assert_non_null(strstr(out.data, "POST 2"));
    buf_free(&out);
    stop(s);
}

static void test_other_sites(void **state) {
    (void)state;
    http_server *s = started(NULL, NULL);
    assert_int_equal(ask(s, "POST", "/", "Origin: http://evil.example\r\n", "{}"), 403);
    assert_int_equal(ask(s, "POST", "/", "Origin: null\r\n", "{}"), 403);
    assert_int_equal(ask(s, "OPTIONS", "/", "Origin: http://evil.example\r\n", ""), 403);
    assert_int_equal(ask(s, "POST", "/", "Origin: http://127.0.0.1\r\n", "{}"), 200);
    stop(s);
    const char *const origins[] = {"http://friend.example", NULL};
    s = started(NULL, origins);
    assert_int_equal(ask(s, "POST", "/", "Origin: http://evil.example\r\n", "{}"), 403);
    reply r = client_ask(http_port(s), "OPTIONS", "/", "Origin: http://friend.example\r\nAccess-Control-Request-Headers: x-api-key\r\n", "", 0);
    assert_int_equal(r.status, 204);
    assert_non_null(strstr(r.all.data, "Access-Control-Allow-Origin: http://friend.example"));
    assert_non_null(strstr(r.all.data, "Access-Control-Allow-Headers: x-api-key"));
    reply_free(&r);
    stop(s);
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
    stop(s);
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
    stop(s); /* must return */
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
    assert_non_null(strstr(e.text, "--keys"));
    o.open = true;
    e = (err){0};
    http_server *s = http_start(&o, handler, NULL, &e);
    assert_non_null(s);
    http_stop(s);
    o = options_for((const char *const[]){"k", NULL}, NULL);
    o.host = "0.0.0.0";
    o.port = 0;
    s = http_start(&o, handler, NULL, &e);
    assert_non_null(s);
    stop(s);
    o.host = "no such host";
    e = (err){0};
    assert_null(http_start(&o, handler, NULL, &e));
    assert_int_equal(e.code, HEARTH_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keep_alive),  cmocka_unit_test(test_limits),  cmocka_unit_test(test_garbage),         cmocka_unit_test(test_stop_while_refusing), cmocka_unit_test(test_keys),
        cmocka_unit_test(test_key_file), cmocka_unit_test(test_log), cmocka_unit_test(test_unix), cmocka_unit_test(test_given_sockets), cmocka_unit_test(test_tls),
        cmocka_unit_test(test_other_sites), cmocka_unit_test(test_streams), cmocka_unit_test(test_stop_while_busy), cmocka_unit_test(test_where_to_listen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
