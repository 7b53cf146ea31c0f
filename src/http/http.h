/* http.h: a small HTTP server: whole requests in, whole replies or streams of events out. Knows nothing of what they mean.
 *
 * Every connection has a thread of its own, so a handler may block; it should look at http_gone now and then. */
#ifndef HTTP_HTTP_H
#define HTTP_HTTP_H

#include <stdio.h>

#include "base/mem.h"

typedef struct http_server http_server;
typedef struct http_request http_request;

typedef struct http_options {
    const char *host;           /* a name or an address */
    int port;                   /* 0: any that is free */
    const char *const *keys;    /* NULL-terminated; a request must bring one of them. NULL or none: no key is asked for */
    const char *const *origins; /* NULL-terminated; pages from there may use the server; "*" is any. NULL: only pages of its own */
    bool open;                  /* listen beyond this machine although there is no key */
    size_t max_body;            /* bytes */
    int max_connections;
    int idle_s;                 /* a connection that moves nothing for so long is closed */
    int heartbeat_s;            /* streams say that they live */
    FILE *log;                  /* one line per request; NULL: none */
} http_options;
/* 127.0.0.1:8080, 16 MiB, 256 connections, 60 s, 5 s. */
http_options http_defaults(void);

typedef void http_handler(void *user, http_request *r);
/* Options are copied but for what they point to, which must live as long as the server. */
http_server *http_start(const http_options *o, http_handler *handler, void *user, err *e);
int http_port(const http_server *s);
/* No new connections; those that are there go on. */
void http_quiesce(http_server *s);
/* Waits until no request is being handled, but not longer. */
void http_settle(http_server *s, uint64_t limit_ns);
/* Closes what is left and frees the server. */
void http_stop(http_server *s);

/* ---- the request ---- */

const char *http_method(const http_request *r);
const char *http_path(const http_request *r);
const char *http_id(const http_request *r); /* unique; also in the reply and in the log */
const char *http_header(const http_request *r, const char *name); /* or NULL */
const char *http_query(const http_request *r, const char *name);  /* of ?name=value in the address; or NULL */
const char *http_body(const http_request *r, size_t *len);        /* never NULL, NUL-terminated */

/* Something of the handler's that goes with the request and is released when it is over, its stream included. At most one. */
void http_attach(http_request *r, void *thing, void (*release)(void *thing));
void *http_attached(const http_request *r); /* or NULL */

/* What must be answered with an error before anything else: the body was too large or could not be kept (then there is none), the request comes from a page that may
 * not use the server, or it brings no key where one is asked for (HTTP_NO_KEY; a handler may let it pass). */
typedef enum http_trouble { HTTP_FINE, HTTP_TOO_LARGE, HTTP_NO_MEMORY, HTTP_FOREIGN, HTTP_NO_KEY } http_trouble;
http_trouble http_check(const http_request *r);

/* Whether the client closed the connection, or the server is stopping. */
bool http_gone(const http_request *r);

/* Adds "name=value" to the request's line in the log. */
void http_note(http_request *r, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* ---- the reply: one of these, once ---- */

void http_reply_header(http_request *r, const char *name, const char *value); /* before it */
void http_reply(http_request *r, int status, const char *type, const void *body, size_t len);

/* A stream of events. next appends to out what there is, waiting at most timeout_ns for it; HTTP_END ends the stream after that. done frees user;
 * it is called also when the client left. */
typedef enum http_more { HTTP_IDLE, HTTP_MORE, HTTP_END } http_more;
typedef struct http_events {
    http_more (*next)(void *user, http_request *r, uint64_t timeout_ns, buf *out);
    void (*done)(void *user, http_request *r);
    void *user;
} http_events;
/* Called by next itself, it lets other events go on in its place; the done of the former ones is not called then. */
void http_stream(http_request *r, const http_events *events);
bool http_streaming(const http_request *r); /* whether it was called */

/* ---- for tests ---- */

/* Whether the n bytes of given equal key, in a time that does not depend on key. */
bool http_key_equal(const char *given, size_t n, const char *key);
/* Whether an Origin header names the host of a Host header. */
bool http_same_origin(const char *origin, const char *host);
/* Whether a Host header names this machine by a name that no other site's DNS can take, or any address. */
bool http_host_is_local(const char *host);

#endif
