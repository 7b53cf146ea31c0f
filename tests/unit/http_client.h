/* http_client.h: a plain socket and just enough HTTP to test a server with. */
#ifndef TESTS_HTTP_CLIENT_H
#define TESTS_HTTP_CLIENT_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

static inline int client_open(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

/* What does not fit because the server closed the connection is dropped. */
static inline void client_write(int fd, const void *data, size_t len) {
    const char *p = data;
    while (len > 0) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);
        if (n <= 0) return;
        p += n;
        len -= (size_t)n;
    }
}

/* Reads more; false at the end, or after two minutes of silence. */
static inline bool client_read(int fd, buf *in) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    char part[16384];
    if (poll(&p, 1, 120000) <= 0) return false;
    ssize_t n = recv(fd, part, sizeof part, 0);
    return n > 0 && buf_add(in, part, (size_t)n, NULL);
}

typedef struct reply {
    int status;
    buf all;          /* with the head */
    const char *body; /* in all; of a chunked one with the sizes still in it */
} reply;

static inline void reply_free(reply *r) { buf_free(&r->all); }

/* One reply of a connection that stays open, or all there is until it closes. */
static inline reply client_reply(int fd) {
    reply r = {0};
    for (;;) {
        char *end = r.all.data ? strstr(r.all.data, "\r\n\r\n") : NULL;
        const char *length = end ? strcasestr(r.all.data, "\r\nContent-Length:") : NULL;
        if (length && length < end && r.all.len >= (size_t)(end + 4 - r.all.data) + strtoull(length + 17, NULL, 10)) break;
        if (end && !length && strstr(end, "\r\n0\r\n\r\n")) break;
        if (!client_read(fd, &r.all)) break;
    }
    assert_true(buf_addc(&r.all, 0, NULL));
    r.all.len--;
    if (r.all.len > 12 && strncmp(r.all.data, "HTTP/1.1 ", 9) == 0) r.status = atoi(r.all.data + 9);
    char *end = strstr(r.all.data, "\r\n\r\n");
    r.body = end ? end + 4 : "";
    return r;
}

static inline reply client_ask(int port, const char *method, const char *path, const char *headers, const char *body, size_t len) {
    int fd = client_open(port);
    buf out = {0};
    assert_true(buf_addf(&out, NULL, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: %zu\r\n%s\r\n", method, path, len, headers ? headers : ""));
    assert_true(buf_add(&out, body, len, NULL));
    client_write(fd, out.data, out.len);
    buf_free(&out);
    reply r = client_reply(fd);
    close(fd);
    return r;
}

#endif
