/* bench_child.c: runs another program, keeps what it prints, and notes when it printed first. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/bench.h"

extern char **environ;

enum { MOST_OUTPUT = 16 << 20, KEPT_COMPLAINT = 4096 };

static void close_end(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static bool start(const char *const *argv, int out, int complaints, pid_t *pid, err *e) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, complaints, STDERR_FILENO);
    int rc = posix_spawn(pid, argv[0], &actions, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return rc == 0 || err_set(e, HEARTH_IO, "%s cannot be started: %s", argv[0], strerror(rc));
}

/* Reads once; closes the end when nothing more comes. */
static bool take(int *fd, buf *to, err *e) {
    char chunk[65536];
    ssize_t n = read(*fd, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) return true;
    if (n <= 0) {
        close_end(fd);
        return true;
    }
    return buf_add(to, chunk, (size_t)n, e);
}

/* The last line that is not blank. */
static void keep_last_line(bench_child *c, const buf *complaint) {
    size_t end = complaint->len;
    while (end > 0 && strchr(" \t\r\n", complaint->data[end - 1])) end--;
    size_t begin = end;
    while (begin > 0 && complaint->data[begin - 1] != '\n') begin--;
    err_quote(c->complaint, sizeof c->complaint, end > 0 ? complaint->data + begin : "", end - begin);
}

static bool listen_to(int *out, int *complaints, uint64_t began, bench_child *c, buf *complaint, err *e) {
    while (*out >= 0 || *complaints >= 0) {
        struct pollfd fds[2] = {{.fd = *out, .events = POLLIN}, {.fd = *complaints, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR) return err_set(e, HEARTH_IO, "cannot listen to a program: %s", strerror(errno));
        if (fds[0].revents && !take(out, &c->out, e)) return false;
        if (c->out.len > 0 && isnan(c->first_byte)) c->first_byte = (double)(clock_ns() - began) * 1e-9;
        if (fds[1].revents && !take(complaints, complaint, e)) return false;
        if (fds[1].revents && c->hear) {
            keep_last_line(c, complaint);
            c->hear(c->complaint);
        }
        if (complaint->len > KEPT_COMPLAINT) {
            memmove(complaint->data, complaint->data + complaint->len - KEPT_COMPLAINT, KEPT_COMPLAINT + 1);
            complaint->len = KEPT_COMPLAINT;
        }
    }
    return true;
}

bool bench_child_run(const char *const *argv, bench_child *c, err *e) {
    *c = (bench_child){.hear = c->hear, .out = {.limit = MOST_OUTPUT}, .first_byte = NAN};
    int out[2] = {-1, -1}, complaints[2] = {-1, -1};
    buf complaint = {0};
    pid_t pid = -1;
    if (pipe2(out, O_CLOEXEC) || pipe2(complaints, O_CLOEXEC)) err_set(e, HEARTH_IO, "no pipe to a program: %s", strerror(errno));
    uint64_t began = clock_ns();
    bool ok = complaints[1] >= 0 && start(argv, out[1], complaints[1], &pid, e);
    close_end(&out[1]);
    close_end(&complaints[1]);
    ok = ok && listen_to(&out[0], &complaints[0], began, c, &complaint, e);
    close_end(&out[0]);
    close_end(&complaints[0]);
    if (pid > 0) {
        int status = 0;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
        c->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    keep_last_line(c, &complaint);
    buf_free(&complaint);
    return ok;
}

void bench_child_free(bench_child *c) { buf_free(&c->out); }
