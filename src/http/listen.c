/* listen.c: where the server listens: an address, a unix socket, or sockets that it was given; with or without TLS. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "http/inner.h"

enum { HEADER_BYTES = 64 << 10, BACKLOG = 128 };

/* ---- sockets ---- */

/* A socket that nobody listens on any more is in the way of a new one. */
static bool clear_path(const char *path, const struct sockaddr_un *a, err *e) {
    struct stat st;
    if (lstat(path, &st) != 0) return errno == ENOENT || err_set(e, HEARTH_IO, "cannot examine %s: %s", path, strerror(errno));
    if (!S_ISSOCK(st.st_mode)) return err_set(e, HEARTH_ARGUMENT, "%s is there and no socket: give another path to --unix", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool alive = fd >= 0 && connect(fd, (const struct sockaddr *)a, sizeof *a) == 0;
    if (fd >= 0) close(fd);
    if (alive) return err_set(e, HEARTH_IO, "another server listens on %s", path);
    return unlink(path) == 0 || err_set(e, HEARTH_IO, "cannot delete the old socket %s: %s", path, strerror(errno));
}

/* Only its owner may connect. */
static int open_unix(const char *path, err *e) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path) {
        err_set(e, HEARTH_ARGUMENT, "the path of a unix socket may have %zu bytes at most: %s", sizeof a.sun_path - 1, path);
        return -1;
    }
    strcpy(a.sun_path, path);
    if (!clear_path(path, &a, e)) return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    mode_t old = umask(0177);
    bool ok = fd >= 0 && bind(fd, (const struct sockaddr *)&a, sizeof a) == 0;
    umask(old);
    if (ok && listen(fd, BACKLOG) == 0) return fd;
    err_set(e, HEARTH_IO, "cannot listen on %s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
}

static int open_address(const http_options *o, err *e) {
    char port[16];
    snprintf(port, sizeof port, "%d", o->port);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int problem = getaddrinfo(o->host, port, &hints, &found);
    if (problem != 0) {
        err_set(e, HEARTH_ARGUMENT, "the address of '%s' is not known: %s", o->host, gai_strerror(problem));
        return -1;
    }
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    bool ok = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0;
    /* Both kinds of addresses where the system would have it otherwise. */
    int off = 0;
    if (ok && found->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    ok = ok && bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0;
    freeaddrinfo(found);
    if (ok) return fd;
    err_set(e, HEARTH_IO, "cannot listen on %s port %d: %s", o->host, o->port, strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
}

/* ---- listening ---- */

static int port_of(const struct sockaddr_storage *a) {
    if (a->ss_family == AF_INET) return ntohs(((const struct sockaddr_in *)(const void *)a)->sin_port);
    return a->ss_family == AF_INET6 ? ntohs(((const struct sockaddr_in6 *)(const void *)a)->sin6_port) : 0;
}

/* Takes fd. A unix socket is not encrypted: nobody can listen in between. */
static bool listen_on(http_server *s, int fd, MHD_AccessHandlerCallback access, MHD_RequestCompletedCallback completed, err *e) {
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    bool ok = getsockname(fd, (struct sockaddr *)&a, &len) == 0 || err_set(e, HEARTH_IO, "a socket that was given is none: %s", strerror(errno));
    ok = ok && guard_address(&s->o, (const struct sockaddr *)&a, e);
    bool local = a.ss_family == AF_UNIX, tls = s->cert.len > 0 && !local;
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL | MHD_USE_ITC;
    if (a.ss_family == AF_INET6) flags |= MHD_USE_IPv6;
    if (tls) flags |= MHD_USE_TLS;
    const struct MHD_OptionItem secure[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, s->cert.data}, {MHD_OPTION_HTTPS_MEM_KEY, 0, s->key.data}, {MHD_OPTION_END, 0, NULL}};
    const struct MHD_OptionItem plain[] = {{MHD_OPTION_END, 0, NULL}};
    struct MHD_Daemon *d = NULL;
    if (ok) {
        d = MHD_start_daemon(flags, 0, NULL, NULL, access, s, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_NOTIFY_COMPLETED, completed, s, MHD_OPTION_NOTIFY_CONNECTION,
                             connections_notify, s, MHD_OPTION_CONNECTION_LIMIT, (unsigned)s->o.max_connections, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)s->o.idle_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                             (size_t)HEADER_BYTES, MHD_OPTION_ARRAY, tls ? secure : plain, MHD_OPTION_END);
        if (!d && tls) err_set(e, HEARTH_ARGUMENT, "%s and %s cannot be used for TLS: they must hold a certificate and its key in PEM", s->o.tls_cert, s->o.tls_key);
        else if (!d) err_set(e, HEARTH_IO, "the HTTP server cannot be started");
    }
    if (!d) {
        close(fd);
        return false;
    }
    if (!s->port) s->port = port_of(&a);
    s->daemons[s->n_daemons++] = d;
    return true;
}

static bool read_tls(http_server *s, err *e) {
    const http_options *o = &s->o;
    if (!o->tls_cert && !o->tls_key) return true;
    if (!o->tls_cert || !o->tls_key) return err_set(e, HEARTH_ARGUMENT, "TLS needs both --tls-cert and --tls-key");
    if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES) return err_set(e, HEARTH_UNSUPPORTED, "the installed libmicrohttpd was built without TLS");
    return file_read(o->tls_cert, 1 << 20, &s->cert, e) && file_read(o->tls_key, 1 << 20, &s->key, e) &&
           ((s->cert.len && s->key.len) || err_set(e, HEARTH_FORMAT, "%s or %s is empty", o->tls_cert, o->tls_key));
}

bool listen_start(http_server *s, MHD_AccessHandlerCallback access, MHD_RequestCompletedCallback completed, err *e) {
    if (!read_tls(s, e)) return false;
    for (int i = 0; i < s->o.n_sockets; i++) {
        if (s->n_daemons >= MOST_DAEMONS) return err_set(e, HEARTH_ARGUMENT, "more than %d sockets are given", MOST_DAEMONS);
        if (!listen_on(s, s->o.first_socket + i, access, completed, e)) return false;
    }
    if (s->o.n_sockets > 0) return true;
    int fd = s->o.unix_path ? open_unix(s->o.unix_path, e) : open_address(&s->o, e);
    s->own_path = s->o.unix_path && fd >= 0;
    return fd >= 0 && listen_on(s, fd, access, completed, e);
}

void listen_quiesce(http_server *s) {
    for (int i = s->n_quiet; i < s->n_daemons; i++) s->listeners[s->n_quiet++] = MHD_quiesce_daemon(s->daemons[i]);
}

void listen_stop(http_server *s) {
    listen_quiesce(s);
    s->stopping = true;
    connections_end(s);
    for (int i = 0; i < s->n_daemons; i++) {
        MHD_stop_daemon(s->daemons[i]);
        if (s->listeners[i] >= 0) close(s->listeners[i]);
    }
    if (s->own_path) unlink(s->o.unix_path);
    buf_free(&s->cert);
    buf_free(&s->key);
}
