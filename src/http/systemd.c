/* systemd.c: the two parts of systemd's protocol that a server needs: sockets that were opened for it, and telling how it fares. */
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "http/http.h"

enum { FIRST_FD = 3, MOST_FDS = 8 };

int http_given_sockets(int *first) {
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    int n = pid && count && strtol(pid, NULL, 10) == (long)getpid() ? atoi(count) : 0;
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    if (n < 0 || n > MOST_FDS) n = n < 0 ? 0 : MOST_FDS;
    for (int i = 0; i < n; i++) fcntl(FIRST_FD + i, F_SETFD, FD_CLOEXEC);
    *first = FIRST_FD;
    return n;
}

void http_tell_systemd(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof a.sun_path) return;
    size_t len = strlen(path);
    memcpy(a.sun_path, path, len);
    if (path[0] == '@') a.sun_path[0] = 0; /* a name that is no file */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    ssize_t sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL, (const struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
    (void)sent; /* nobody can be told of it */
    close(fd);
}
