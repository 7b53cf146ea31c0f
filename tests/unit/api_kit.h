/* api_kit.h: the default model behind the routes, over HTTP, and what reads their answers. */
#ifndef TESTS_API_KIT_H
#define TESTS_API_KIT_H

#include "tools/support.h"

#include <jansson.h>

#include "api/api.h"
#include "unit/http_client.h"

static hearth_engine *engine;
static loop *the_loop;
static api *the_api;
static http_server *server;
static int port;
static const char *kit_responses_dir; /* NULL: in memory */
static const char *const *kit_aliases; /* other names of the model, or NULL */

/* Returns 0, or -1 after saying why. */
static inline int kit_start(const char *path, const hearth_engine_options *options) {
    err e = {0};
    engine = hearth_engine_open(path, options, &e);
    loop_options lo = loop_defaults();
    lo.max_queue = 4;
    the_loop = engine ? loop_new(engine, &lo, &e) : NULL;
    api_options ao = {.model = "ember", .aliases = kit_aliases, .sampler = hearth_sampler_defaults(), .responses_dir = kit_responses_dir};
    the_api = the_loop ? api_new(engine, the_loop, &ao, &e) : NULL;
    http_options ho = http_defaults();
    ho.port = 0;
    ho.max_body = 1 << 20;
    server = the_api ? http_start(&ho, api_handle, the_api, &e) : NULL;
    if (!server) print_error("%s\n", e.text);
    else port = http_port(server);
    return server ? 0 : -1;
}

static inline void kit_stop(void) {
    http_stop(server);
    loop_end(the_loop); /* nobody waits for what still runs */
    api_free(the_api);
    loop_free(the_loop);
    hearth_engine_close(engine);
}

static inline json_t *ask_with(const char *method, const char *path, const char *headers, const char *body, int *status) {
    reply r = client_ask(port, method, path, headers, body, strlen(body));
    *status = r.status;
    json_t *json = json_loads(r.body, JSON_ALLOW_NUL, NULL);
    if (!json) print_error("%s %s: %s\n", path, body, r.all.data);
    assert_non_null(json);
    reply_free(&r);
    return json;
}
static inline json_t *ask(const char *method, const char *path, const char *body, int *status) { return ask_with(method, path, NULL, body, status); }
static inline json_t *post(const char *path, const char *body, int *status) { return ask("POST", path, body, status); }

/* What is at "a.0.b". */
static inline const json_t *at(const json_t *j, const char *path) {
    char part[64];
    while (*path) {
        size_t n = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        j = json_is_array(j) ? json_array_get(j, (size_t)atoi(part)) : json_object_get(j, part);
        path += n + (path[n] == '.');
    }
    return j;
}
static inline const char *text_at(const json_t *j, const char *path) {
    const char *s = json_string_value(at(j, path));
    return s ? s : "(none)";
}
static inline int int_at(const json_t *j, const char *path) { return (int)json_integer_value(at(j, path)); }

/* The events of a stream, one after another, with the chunk sizes taken out. */
static inline buf stream(const char *path, const char *body) {
    reply r = client_ask(port, "POST", path, NULL, body, strlen(body));
    if (r.status != 200) print_error("%s %s: %s\n", path, body, r.all.data);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.all.data, "text/event-stream"));
    buf out = {0};
    for (const char *p = r.body; *p;) {
        size_t n = strtoul(p, (char **)&p, 16);
        if (n == 0) break;
        assert_true(buf_add(&out, p + 2, n, NULL));
        p += 2 + n + 2;
    }
    reply_free(&r);
    return out;
}

#endif
