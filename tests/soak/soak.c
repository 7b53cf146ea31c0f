/* soak.c: many clients against a running server for a while: streams, whole answers, clients that leave, that read slowly, that send nonsense or too much. Starts the
 * server itself, watches its memory and descriptors, and ends with a verdict.
 *
 *   soak PROGRAM SECONDS CLIENTS [option of hearth serve ...] */
#include "soak/client.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

enum { MOST_CLIENTS = 1024, MOST_SAMPLES = 100000 };

typedef struct sample {
    double rss_mb;
    int descriptors;
} sample;

static int port;
static pid_t server;
static _Atomic bool ending;
static tally tallies[MOST_CLIENTS];
static sample samples[MOST_SAMPLES];
static int n_samples;

/* ---- the server ---- */

static bool start_server(char **argv) {
    int fds[2];
    if (pipe(fds) != 0 || (server = fork()) < 0) return false;
    if (server == 0) {
        dup2(fds[1], 1);
        close(fds[0]);
        close(fds[1]);
        execv(argv[0], argv);
        _exit(127);
    }
    close(fds[1]);
    char line[1024] = "";
    size_t n = 0;
    for (ssize_t got; n < sizeof line - 1 && !strchr(line, '\n') && (got = read(fds[0], line + n, sizeof line - 1 - n)) > 0;) n += (size_t)got;
    const char *at = strstr(line, "127.0.0.1:");
    if (at) port = atoi(at + 10);
    return port > 0; /* the pipe stays open: the server may write to it */
}

static double rss_mb(void) {
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", (int)server);
    FILE *f = fopen(path, "r");
    double kb = 0;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "RssAnon:", 8) == 0) kb = atof(line + 8); /* not the mapped files, which the system may drop */
    if (f) fclose(f);
    return kb / 1024;
}

static int descriptors(void) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)server);
    DIR *d = opendir(path);
    int n = 0;
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n - 2;
}

/* ---- clients ---- */

static void *client(void *user) {
    tally *t = user;
    uint64_t seed = (uint64_t)(t - tallies) * 7919 + 12345;
    while (!ending && kill(server, 0) == 0) client_round(port, &seed, t);
    return NULL;
}

/* ---- the verdict ---- */

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double most(int from, int to) {
    double m = 0;
    for (int i = from; i < to; i++)
        if (samples[i].rss_mb > m) m = samples[i].rss_mb;
    return m;
}

static double metric(const char *text, const char *name) {
    for (const char *p = text; (p = strstr(p, name)) != NULL; p++)
        if ((p == text || p[-1] == '\n') && p[strlen(name)] == ' ') return atof(p + strlen(name));
    return -1;
}

static bool check(bool fine, const char *what) {
    printf("%s %s\n", fine ? "ok    " : "FAILED", what);
    return fine;
}

static tally sum_up(int n, float **gaps) {
    tally sum = {0};
    for (int i = 0; i < n; i++) sum.n_gaps += tallies[i].n_gaps;
    *gaps = malloc((sum.n_gaps + 1) * sizeof **gaps);
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        const tally *t = &tallies[i];
        memcpy(*gaps + at, t->gaps, t->n_gaps * sizeof **gaps);
        at += t->n_gaps;
        sum.good += t->good, sum.good_failed += t->good_failed, sum.bad += t->bad, sum.bad_wrong += t->bad_wrong;
        sum.left += t->left, sum.slow += t->slow, sum.tokens += t->tokens, sum.generating += t->generating;
        if (t->failure[0] && !sum.failure[0]) memcpy(sum.failure, t->failure, sizeof sum.failure);
    }
    qsort(*gaps, sum.n_gaps, sizeof **gaps, by_value);
    return sum;
}

static bool judge(int n_clients, int seconds, int idle_descriptors) {
    float *gaps;
    tally s = sum_up(n_clients, &gaps);
    buf metrics = {0};
    client_get(port, "/metrics", &metrics);
    double requests = metric(metrics.data ? metrics.data : "", "hearth_requests_total"), tokens = metric(metrics.data ? metrics.data : "", "hearth_completion_tokens_total");
    printf("%d clients, %d s: %lu good requests (%lu of them slow readers), %lu left early, %lu bad ones; %lu tokens in whole answers\n", n_clients, seconds, s.good, s.slow, s.left,
           s.bad, s.tokens);
    if (s.n_gaps)
        printf("between tokens: p50 %.1f ms, p90 %.1f ms, p99 %.1f ms, longest %.1f ms (%zu)\n", gaps[s.n_gaps / 2], gaps[s.n_gaps * 9 / 10], gaps[s.n_gaps * 99 / 100],
               gaps[s.n_gaps - 1], s.n_gaps);
    double early = most(n_samples / 4, n_samples / 2), late = most(n_samples * 3 / 4, n_samples);
    printf("memory: %.0f MB in the second quarter, %.0f MB in the last; descriptors: %d before, %d after\n", early, late, idle_descriptors, descriptors());
    bool ok = check(s.good > 0 && s.good_failed == 0, "good requests are answered");
    if (s.failure[0]) printf("       first failure: %s\n", s.failure);
    ok = check(s.bad_wrong == 0, "bad requests are refused with 4xx") && ok;
    ok = check(late <= early * 1.05 + 16, "memory stays flat") && ok;
    ok = check(descriptors() <= idle_descriptors + 2, "no descriptors are lost") && ok;
    /* Those who left may have done so before the server knew of them. */
    ok = check(requests >= (double)s.generating && requests <= (double)(s.generating + s.left), "/metrics counts the requests that were made") && ok;
    ok = check(tokens >= (double)s.tokens, "/metrics counts the tokens that were read") && ok;
    free(gaps);
    buf_free(&metrics);
    return ok;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: soak PROGRAM SECONDS CLIENTS [option of hearth serve ...]\n");
        return 2;
    }
    int seconds = atoi(argv[2]), n = atoi(argv[3]), status;
    char *command[64] = {argv[1], "serve", "--port", "0", "--quiet"};
    for (int i = 4, k = 5; i < argc && k < 63; i++, k++) command[k] = argv[i];
    signal(SIGPIPE, SIG_IGN);
    if (n < 1 || n > MOST_CLIENTS || seconds < 4 || !start_server(command)) {
        fprintf(stderr, "soak: the server does not start, or the numbers are wrong\n");
        return 2;
    }
    buf first = {0};
    client_get(port, "/health", &first);
    buf_free(&first);
    int idle = descriptors();
    pthread_t threads[MOST_CLIENTS];
    for (int i = 0; i < n; i++) pthread_create(&threads[i], NULL, client, &tallies[i]);
    for (int i = 0; i < 2 * seconds && n_samples < MOST_SAMPLES; i++) {
        usleep(500000);
        samples[n_samples++] = (sample){rss_mb(), descriptors()};
    }
    ending = true;
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 100 && descriptors() > idle; i++) usleep(100000); /* connections that are being closed */
    bool ok = judge(n, seconds, idle);
    kill(server, SIGTERM);
    ok = check(waitpid(server, &status, 0) == server && WIFEXITED(status) && WEXITSTATUS(status) == 0, "the server ends in order") && ok;
    printf("soak: %s\n", ok ? "passed" : "FAILED");
    return ok ? 0 : 1;
}
