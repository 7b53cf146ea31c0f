/* server.c: the server on libmicrohttpd: collects requests, sends replies, feeds streams. */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/inner.h"

http_options http_defaults(void) {
    return (http_options){.host = "127.0.0.1", .port = 8080, .max_body = 16u << 20, .max_connections = 256, .idle_s = 60, .heartbeat_s = 5};
}

/* ---- the request ---- */

const char *http_method(const http_request *r) { return r->method; }
const char *http_path(const http_request *r) { return r->path; }
const char *http_id(const http_request *r) { return r->id; }
const char *http_header(const http_request *r, const char *name) { return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name); }
const char *http_query(const http_request *r, const char *name) { return MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, name); }

const char *http_body(const http_request *r, size_t *len) {
    *len = r->body.len;
    return r->body.data ? r->body.data : "";
}

void http_attach(http_request *r, void *thing, void (*release)(void *thing)) {
    r->attached = thing;
    r->release = release;
}
void *http_attached(const http_request *r) { return r->attached; }

http_trouble http_check(const http_request *r) { return r->trouble; }

bool http_gone(const http_request *r) {
    if (r->server->stopping) return true;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (!info) return true;
    /* Also when there is something left to read, such as the good-bye of TLS. */
    struct pollfd p = {.fd = info->connect_fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) != 0;
}

/* The library counts only bytes moved as activity: a long answer must not look like an idle client. */
static void refresh_timeout(http_request *r) {
    MHD_set_connection_option(r->connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    MHD_set_connection_option(r->connection, MHD_CONNECTION_OPTION_TIMEOUT, (unsigned)r->server->o.idle_s);
}

/* ---- the reply ---- */

void http_reply_header(http_request *r, const char *name, const char *value) {
    if (r->n_headers >= 16) return;
    char **h = r->headers[r->n_headers];
    h[0] = mem_strndup(name, strlen(name), NULL);
    h[1] = mem_strndup(value, strlen(value), NULL);
    r->n_headers++;
}

static void queue(http_request *r, int status, const char *type, struct MHD_Response *response) {
    if (!response) return; /* without a reply the connection is closed */
    if (type) MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "X-Request-Id", r->id);
    for (int i = 0; i < r->n_headers; i++)
        if (r->headers[i][0] && r->headers[i][1]) MHD_add_response_header(response, r->headers[i][0], r->headers[i][1]);
    guard_cors(r, response);
    refresh_timeout(r);
    r->status = status;
    r->replied = MHD_queue_response(r->connection, (unsigned)status, response) == MHD_YES;
    MHD_destroy_response(response);
}

void http_reply(http_request *r, int status, const char *type, const void *body, size_t len) {
    if (r->replied) return;
    r->sent = len;
    queue(r, status, type, MHD_create_response_from_buffer(len, (void *)body, MHD_RESPMEM_MUST_COPY));
}

/* Gets more to send; false at the end of the stream. */
static bool refill(http_request *r) {
    const uint64_t beat = (uint64_t)r->server->o.heartbeat_s * 1000000000u;
    const uint64_t step = 250000000u < beat ? 250000000u : beat;
    r->out.len = r->out_at = 0;
    while (r->out.len == 0) {
        if (r->at_end || http_gone(r)) return false;
        http_more more = r->events.next(r->events.user, r, step, &r->out);
        r->at_end = more == HTTP_END;
        if (r->out.len == 0 && !r->at_end && clock_ns() - r->last_sent >= beat && !buf_adds(&r->out, ": heartbeat\n\n", NULL)) return false;
    }
    r->last_sent = clock_ns();
    return true;
}

static ssize_t feed(void *user, uint64_t position, char *to, size_t max) {
    (void)position;
    http_request *r = user;
    if (r->out_at == r->out.len && !refill(r)) return r->at_end ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
    size_t n = r->out.len - r->out_at;
    if (n > max) n = max;
    memcpy(to, r->out.data + r->out_at, n);
    r->out_at += n;
    r->sent += n;
    refresh_timeout(r);
    return (ssize_t)n;
}

bool http_streaming(const http_request *r) { return r->streams; }

void http_stream(http_request *r, const http_events *events) {
    if (r->streams) r->events = *events;
    if (r->replied) return;
    r->streams = true;
    r->events = *events;
    r->last_sent = clock_ns();
    http_reply_header(r, "Cache-Control", "no-cache");
    http_reply_header(r, "X-Accel-Buffering", "no");
    queue(r, 200, "text/event-stream; charset=utf-8", MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16 << 10, feed, r, NULL));
}

/* ---- the library's side ---- */

static http_request *request_new(http_server *s, struct MHD_Connection *c, const char *url, const char *method) {
    http_request *r = mem_zalloc(1, sizeof *r, NULL);
    if (!r) return NULL;
    r->server = s;
    r->connection = c;
    r->method = method; /* lives as long as the request */
    r->began = clock_ns();
    r->body.limit = s->o.max_body;
    r->notes.limit = 4096;
    snprintf(r->id, sizeof r->id, "%08" PRIx64 "-%" PRIu64, s->run & 0xffffffffu, ++s->count);
    r->path = mem_strndup(url, strlen(url), NULL);
    if (!r->path) {
        mem_free(r);
        return NULL;
    }
    s->active++;
    return r;
}

static void on_completed(void *user, struct MHD_Connection *c, void **context, enum MHD_RequestTerminationCode code) {
    (void)user;
    (void)c;
    http_request *r = *context;
    if (!r) return;
    *context = NULL;
    if (r->streams) r->events.done(r->events.user, r);
    if (r->release) r->release(r->attached);
    log_request(r, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    for (int i = 0; i < r->n_headers; i++) mem_free(r->headers[i][0]), mem_free(r->headers[i][1]);
    buf_free(&r->body);
    buf_free(&r->notes);
    buf_free(&r->out);
    mem_free(r->path);
    r->server->active--;
    mem_free(r);
}

static void answer(http_request *r) {
    if (strcmp(r->method, "OPTIONS") == 0 && r->trouble != HTTP_FOREIGN) {
        http_reply_header(r, "Allow", "GET, POST, DELETE, OPTIONS");
        http_reply(r, 204, NULL, "", 0);
        return;
    }
    r->server->handler(r->server->user, r);
}

/* Called once when the headers are there, for every piece of the body, and once at its end. */
static enum MHD_Result on_access(void *user, struct MHD_Connection *c, const char *url, const char *method, const char *version, const char *data,
                                 size_t *size, void **context) {
    (void)version;
    http_server *s = user;
    http_request *r = *context;
    if (!r) {
        r = *context = request_new(s, c, url, method);
        if (!r) return MHD_NO;
        const char *length = http_header(r, "Content-Length");
        guard_check(r);
        if (!length || strtoull(length, NULL, 10) <= s->o.max_body) return MHD_YES;
        /* Answered before the body is sent; the connection ends with it. */
        if (r->trouble != HTTP_FOREIGN) r->trouble = HTTP_TOO_LARGE;
    } else if (*size > 0) {
        err e = {0};
        bool wanted = r->trouble == HTTP_FINE || (r->trouble == HTTP_NO_KEY && http_is_admin(r));
        if (wanted && !buf_add(&r->body, data, *size, &e)) {
            r->trouble = e.code == HEARTH_MEMORY ? HTTP_NO_MEMORY : HTTP_TOO_LARGE;
            buf_free(&r->body);
        }
        *size = 0;
        return MHD_YES;
    }
    if (!r->replied) answer(r);
    return r->replied ? MHD_YES : MHD_NO;
}

http_server *http_start(const http_options *o, http_handler *handler, void *user, err *e) {
    http_server *s = mem_zalloc(1, sizeof *s, e);
    if (!s) return NULL;
    s->o = *o;
    s->handler = handler;
    s->user = user;
    pthread_mutex_init(&s->connections_lock, NULL);
    if (getrandom(&s->run, sizeof s->run, 0) != sizeof s->run) s->run = clock_ns();
    if (listen_start(s, on_access, on_completed, e)) return s;
    http_stop(s);
    return NULL;
}

int http_port(const http_server *s) { return s->port; }

void http_quiesce(http_server *s) { listen_quiesce(s); }

void http_settle(http_server *s, uint64_t limit_ns) {
    uint64_t until = clock_ns() + limit_ns;
    while (s->active > 0 && clock_ns() < until) usleep(2000);
}

void http_stop(http_server *s) {
    if (!s) return;
    listen_stop(s);
    pthread_mutex_destroy(&s->connections_lock);
    mem_free(s);
}
