/* fuzz_http.c: raw bytes to the HTTP server. The handler looks at all that a request has and answers whole or as a stream. */
#include "fuzz/loopback.h"
#include "http/http.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static http_more next(void *user, http_request *r, uint64_t timeout_ns, buf *out) {
    (void)timeout_ns;
    int *left = user;
    http_note(r, "left", "%d", *left);
    buf_addf(out, NULL, "data: %d\n\n", *left);
    return --*left > 0 ? HTTP_MORE : HTTP_END;
}

static void done(void *user, http_request *r) {
    (void)r;
    free(user);
}

static void handle(void *user, http_request *r) {
    (void)user;
    size_t len;
    const char *body = http_body(r, &len), *agent = http_header(r, "X-Agent");
    if (body[len] != 0) abort();
    http_note(r, "agent", "%s", agent ? agent : "");
    http_reply_header(r, "x-path", http_path(r));
    if (http_check(r) == HTTP_FINE && strncmp(http_path(r), "/s", 2) == 0) {
        int *left = malloc(sizeof *left);
        *left = (int)(len % 5) + 1;
        http_stream(r, &(http_events){.next = next, .done = done, .user = left});
    } else {
        http_reply(r, http_check(r) == HTTP_FINE ? 200 : 400, "text/plain", body, len);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static http_server *server;
    static const char *const origins[] = {"http://a.example", NULL};
    if (!server) {
        http_options o = http_defaults();
        o.unix_path = loopback_path();
        o.keys = http_keys_new(NULL);
        if (!o.keys || !http_keys_add(o.keys, &(http_key){.key = "key"}, NULL)) abort();
        o.origins = origins;
        o.max_body = 4096;
        o.idle_s = 2;
        server = http_start(&o, handle, NULL, NULL);
        if (!server) abort();
    }
    loopback(data, size, NULL, 0);
    return 0;
}
