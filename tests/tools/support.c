#include "tools/support.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "kernels/kernels.h"
#include "quant/quant.h"

const char *kit_path(const char *relative) {
    static char paths[8][4096];
    static int turn;
    const char *root = getenv("HEARTH_CONFORMANCE");
    if (!root) root = "../shared/conformance";
    if (access(root, R_OK) != 0) return NULL;
    char *out = paths[turn++ % 8];
    snprintf(out, sizeof paths[0], "%s/%s", root, relative);
    return out;
}

void need_kit(void) {
    if (kit_path("")) return;
    static bool said;
    if (!said) printf("skipped: the conformance kit is not beside the repository\n");
    said = true;
    skip();
}

const char *exact_cpu(void) {
    const kernels *const *k = kernels_all();
    while (!(*k)->usable() || (*k)->attention_many || kernels_matmul(*k, QUANT_Q8_0)->many) k++; /* the last is ref, which is always usable */
    return (*k)->name;
}

uint64_t test_seed(void) {
    static uint64_t seed;
    if (!seed) {
        const char *s = getenv("HEARTH_SEED");
        seed = s ? strtoull(s, NULL, 0) : (uint64_t)time(NULL) * 1000003u + (uint64_t)getpid();
        printf("# HEARTH_SEED=%llu\n", (unsigned long long)seed);
    }
    return seed;
}

uint64_t rng_next(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

double rng_double(uint64_t *state) { return (double)(rng_next(state) >> 11) * 0x1p-53; }

double rng_normal(uint64_t *state) {
    double u = rng_double(state), v = rng_double(state);
    return sqrt(-2 * log(u + 1e-300)) * cos(6.283185307179586 * v);
}

const char *hearth_program(void) {
    static char path[4096];
    const char *build = getenv("HEARTH_TEST_BUILD");
    snprintf(path, sizeof path, "%s/hearth", build ? build : "build");
    return path;
}

static void child(const char *const *argv, int in, int out, int error) {
    dup2(in, 0);
    dup2(out, 1);
    dup2(error, 2);
    for (int i = 3; i < 256; i++) close(i);
    signal(SIGPIPE, SIG_DFL);
    execvp(argv[0], (char *const *)argv);
    _exit(127);
}

static void drain(int *fd, buf *to) {
    char chunk[65536];
    ssize_t n = read(*fd, chunk, sizeof chunk);
    if (n > 0 && to) buf_add(to, chunk, (size_t)n, NULL);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
        close(*fd);
        *fd = -1;
    }
}

int run_program(const char *const *argv, const void *input, size_t input_len, buf *out, buf *err_out, int timeout_s) {
    int in[2], o[2], er[2];
    if (pipe2(in, O_CLOEXEC) || pipe2(o, O_CLOEXEC) || pipe2(er, O_CLOEXEC)) fail_msg("pipe: %s", strerror(errno));
    signal(SIGPIPE, SIG_IGN);
    pid_t pid = fork();
    if (pid < 0) fail_msg("fork: %s", strerror(errno));
    if (pid == 0) child(argv, in[0], o[1], er[1]);
    close(in[0]);
    close(o[1]);
    close(er[1]);
    fcntl(in[1], F_SETFL, O_NONBLOCK);
    uint64_t deadline = clock_ns() + (uint64_t)timeout_s * 1000000000u;
    const char *p = input;
    bool killed = false;
    while (o[0] >= 0 || er[0] >= 0) {
        if (in[1] >= 0 && input_len == 0) close(in[1]), in[1] = -1;
        struct pollfd fds[3] = {{o[0], POLLIN, 0}, {er[0], POLLIN, 0}, {in[1], POLLOUT, 0}};
        int64_t left = ((int64_t)deadline - (int64_t)clock_ns()) / 1000000;
        if (left <= 0 && !killed) kill(pid, SIGKILL), killed = true;
        poll(fds, 3, killed ? 1000 : (int)(left > 1000 ? 1000 : left + 1));
        if (fds[0].revents) drain(&o[0], out);
        if (fds[1].revents) drain(&er[0], err_out);
        if (fds[2].revents) {
            ssize_t n = write(in[1], p, input_len);
            if (n > 0) p += n, input_len -= (size_t)n;
            else if (errno != EAGAIN && errno != EINTR) input_len = 0;
        }
    }
    if (in[1] >= 0) close(in[1]);
    int status;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    if (killed) return 124;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static char temp_path[64];
static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw) {
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}
static void remove_temp(void) { nftw(temp_path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

const char *temp_dir(void) {
    if (!temp_path[0]) {
        strcpy(temp_path, "/tmp/hearth-test-XXXXXX");
        if (!mkdtemp(temp_path)) fail_msg("mkdtemp: %s", strerror(errno));
        atexit(remove_temp);
    }
    return temp_path;
}

buf slurp(const char *path) {
    buf b = {0};
    err e = {0};
    if (!file_read(path, SIZE_MAX / 2, &b, &e)) fail_msg("%s", e.text);
    return b;
}

void spew(const char *path, const void *data, size_t len) {
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, len, f) != len || fclose(f) != 0) fail_msg("%s: cannot write", path);
}
