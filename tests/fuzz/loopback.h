/* loopback.h: sends bytes to a server of this process and waits until it has closed the connection. */
#ifndef TESTS_FUZZ_LOOPBACK_H
#define TESTS_FUZZ_LOOPBACK_H

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Sends the head and the body, says that no more will follow, reads the reply. Aborts when none comes, nor an end, within a minute. Returns the status or 0. */
static inline int loopback(int port, const void *head, size_t head_len, const void *body, size_t body_len) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct linger at_once = {.l_onoff = 1}; /* many connections a second leave no ports otherwise */
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    /* Connections that the server ended keep their ports for a minute; thousands a second use up all. */
    for (int tries = 0; fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0; tries++) {
        if (fd < 0 || errno != EADDRNOTAVAIL || tries == 700) abort();
        usleep(100000);
    }
    if (head_len) send(fd, head, head_len, MSG_NOSIGNAL);
    if (body_len) send(fd, body, body_len, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    char start[16] = "", part[65536];
    size_t got = 0;
    for (ssize_t n;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 60000) == 0) abort();
        if ((n = recv(fd, part, sizeof part, 0)) <= 0) break;
        for (ssize_t i = 0; i < n && got < sizeof start - 1; i++) start[got++] = part[i];
    }
    close(fd);
    return got > 12 ? atoi(start + 9) : 0;
}

#endif
