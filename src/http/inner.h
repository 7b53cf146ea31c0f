/* inner.h: what the files of this room share. */
#ifndef HTTP_INNER_H
#define HTTP_INNER_H

#include <microhttpd.h>
#include <stdatomic.h>

#include "http/http.h"

struct http_server {
    http_options o;
    http_handler *handler;
    void *user;
    struct MHD_Daemon *daemon;
    int port;
    int listener;         /* after quiesce; -1 before */
    uint64_t run;         /* part of the ids, so that those of two runs differ */
    _Atomic uint64_t count;
    _Atomic int active;
    _Atomic bool stopping;
};

struct http_request {
    http_server *server;
    struct MHD_Connection *connection;
    const char *method;
    char *path;
    char id[32];
    uint64_t began;
    buf body, notes;
    http_trouble trouble;
    bool replied;
    int status;
    uint64_t sent;         /* bytes of the body */
    char *headers[16][2];
    int n_headers;
    void *attached;
    void (*release)(void *thing);
    bool streams, at_end;
    http_events events;
    buf out;               /* of the stream, not sent yet */
    size_t out_at;
    uint64_t last_sent;
};

/* guard.c */
http_trouble guard_check(const http_request *r);
/* The Access-Control headers that this request deserves. */
void guard_cors(http_request *r, struct MHD_Response *response);
bool guard_address(const http_options *o, const struct sockaddr *address, err *e);

#endif
