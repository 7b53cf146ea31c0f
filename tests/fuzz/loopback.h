/* loopback.h: sends bytes to a server of this process and waits until it has closed the connection. */
#ifndef TESTS_FUZZ_LOOPBACK_H
#define TESTS_FUZZ_LOOPBACK_H

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Where the server listens: a unix socket, because thousands of connections a second use up the ports of an address. */
static inline const char *loopback_path(void) {
    static char path[64];
    if (!*path) snprintf(path, sizeof path, "/tmp/hearth-fuzz-%d.socket", (int)getpid());
    return path;
}

/* Sends the head and the body, says that no more will follow, reads the reply. Aborts when none comes, nor an end, within a minute. Returns the status or 0. */
static inline int loopback(const void *head, size_t head_len, const void *body, size_t body_len) {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", loopback_path());
    while (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0)
        if (fd < 0 || errno != EINTR) abort();
    if (head_len) send(fd, head, head_len, MSG_NOSIGNAL);
    if (body_len) send(fd, body, body_len, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    char start[16] = "", part[65536];
    size_t got = 0;
    for (ssize_t n;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = poll(&p, 1, 60000);
        if (ready == 0) abort();
        if (ready < 0) continue; /* a signal */
        if ((n = recv(fd, part, sizeof part, 0)) <= 0) break;
        for (ssize_t i = 0; i < n && got < sizeof start - 1; i++) start[got++] = part[i];
    }
    close(fd);
    return got > 12 ? atoi(start + 9) : 0;
}

#endif
