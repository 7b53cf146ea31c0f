#include "soak/server.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

bool soak_start(soak_server *s, char **argv, const char *errors) {
    int fds[2], err = errors ? open(errors, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    *s = (soak_server){0};
    if (pipe2(fds, O_CLOEXEC) != 0 || (s->pid = fork()) < 0) return false;
    if (s->pid == 0) {
        dup2(fds[1], 1);
        if (err >= 0) dup2(err, 2);
        execv(argv[0], argv);
        _exit(127);
    }
    close(fds[1]);
    if (err >= 0) close(err);
    s->out = fds[0]; /* stays open: the server may write to it */
    char line[1024] = "";
    size_t n = 0;
    for (ssize_t got; n < sizeof line - 1 && !strchr(line, '\n') && (got = read(s->out, line + n, sizeof line - 1 - n)) > 0;) n += (size_t)got;
    const char *at = strstr(line, "127.0.0.1:");
    if (at) s->port = atoi(at + 10);
    return s->port > 0;
}

void soak_kill(soak_server *s) {
    int status;
    kill(s->pid, SIGKILL);
    waitpid(s->pid, &status, 0);
    close(s->out);
}

bool soak_stop(soak_server *s) {
    int status;
    kill(s->pid, SIGTERM);
    bool ok = waitpid(s->pid, &status, 0) == s->pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    close(s->out);
    return ok;
}

double soak_memory_mb(const soak_server *s) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", (int)s->pid);
    FILE *f = fopen(path, "r");
    double kb = 0;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "RssAnon:", 8) == 0) kb = atof(line + 8);
    if (f) fclose(f);
    return kb / 1024;
}

int soak_descriptors(const soak_server *s) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)s->pid);
    DIR *d = opendir(path);
    int n = 0;
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n - 2;
}
