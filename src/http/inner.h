/* inner.h: what the files of this room share. */
#ifndef HTTP_INNER_H
#define HTTP_INNER_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "http/http.h"

enum { MOST_DAEMONS = 8 };

typedef struct key_entry key_entry;
typedef struct connection connection;

struct http_server {
    http_options o;
    http_handler *handler;
    void *user;
    struct MHD_Daemon *daemons[MOST_DAEMONS]; /* one for each socket */
    int n_daemons;
    int listeners[MOST_DAEMONS], n_quiet; /* their sockets, after quiesce */
    bool own_path;        /* the unix socket was made here */
    buf cert, key;        /* of TLS */
    int port;
    uint64_t run;         /* part of the ids, so that those of two runs differ */
    _Atomic uint64_t count;
    _Atomic int active;
    _Atomic bool stopping;
    pthread_mutex_t connections_lock;
    connection *connections; /* that are open */
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
    key_entry *key;       /* that it brought; NULL: none that is known */
    int retry_s;
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

/* connections.c */
void connections_notify(void *user, struct MHD_Connection *c, void **context, enum MHD_ConnectionNotificationCode what);
/* Reads no more requests, and waits a moment for the replies that are on their way. No connection is accepted any more. */
void connections_end(http_server *s);

/* guard.c */
void guard_check(http_request *r);
/* The Access-Control headers that this request deserves. */
void guard_cors(http_request *r, struct MHD_Response *response);
bool guard_address(const http_options *o, const struct sockaddr *address, err *e);

/* keys.c */
bool keys_asked(const http_keys *k); /* whether there is one that is not only an administrator's */
key_entry *keys_find(const http_keys *k, const char *given);
bool key_opens_api(const key_entry *x);
bool key_is_admin(const key_entry *x);
const char *key_tenant(const key_entry *x);
/* Counts one request; seconds to wait when it is one too many, else 0. */
int key_take(http_keys *k, key_entry *x, uint64_t now);
void key_charge(http_keys *k, key_entry *x, double tokens);

/* listen.c */
bool listen_start(http_server *s, MHD_AccessHandlerCallback access, MHD_RequestCompletedCallback completed, err *e);
void listen_quiesce(http_server *s);
void listen_stop(http_server *s);

/* log.c */
void log_request(const http_request *r, bool whole);

#endif
