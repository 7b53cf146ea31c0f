/* connections.c: which connections are open, so that all of them can end before their daemon is stopped. libmicrohttpd (0.9.75) dies when it is stopped while a thread of its own
 * refuses a malformed request: it looks for the reply that a stopping daemon no longer takes. */
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/inner.h"

struct connection {
    int fd;
    connection *next, **link; /* link: what points here */
};

static const uint64_t END_NS = 500000000, CUT_NS = 2000000000; /* for what is on its way to be sent; after that for threads to end */

static void opened(http_server *s, struct MHD_Connection *c, void **context) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    connection *x = info ? mem_alloc(1, sizeof *x, NULL) : NULL;
    *context = x;
    if (!x) return; /* it is then cut when the daemon stops */
    pthread_mutex_lock(&s->connections_lock);
    *x = (connection){.fd = info->connect_fd, .next = s->connections, .link = &s->connections};
    if (x->next) x->next->link = &x->next;
    s->connections = x;
    if (s->stopping) shutdown(x->fd, SHUT_RD);
    pthread_mutex_unlock(&s->connections_lock);
}

static void closed(http_server *s, connection *x) {
    if (!x) return;
    pthread_mutex_lock(&s->connections_lock);
    *x->link = x->next;
    if (x->next) x->next->link = x->link;
    pthread_mutex_unlock(&s->connections_lock);
    mem_free(x);
}

/* The socket is still open when a connection is told to be closed, so no other one is cut by mistake. */
void connections_notify(void *user, struct MHD_Connection *c, void **context, enum MHD_ConnectionNotificationCode what) {
    if (what == MHD_CONNECTION_NOTIFY_STARTED) opened(user, c, context);
    else closed(user, *context);
}

static bool shut_all(http_server *s, int how) {
    pthread_mutex_lock(&s->connections_lock);
    for (connection *x = s->connections; x; x = x->next) shutdown(x->fd, how);
    const bool some = s->connections != NULL;
    pthread_mutex_unlock(&s->connections_lock);
    return some;
}

static bool wait_for_none(http_server *s, uint64_t limit_ns) {
    for (const uint64_t until = clock_ns() + limit_ns; clock_ns() < until; usleep(1000)) {
        pthread_mutex_lock(&s->connections_lock);
        const bool none = !s->connections;
        pthread_mutex_unlock(&s->connections_lock);
        if (none) return true;
    }
    return false;
}

void connections_end(http_server *s) {
    if (!shut_all(s, SHUT_RD) || wait_for_none(s, END_NS)) return;
    shut_all(s, SHUT_RDWR);
    wait_for_none(s, CUT_NS);
}
