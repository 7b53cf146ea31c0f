/* soak.c: many clients against a running server for a while: streams, whole answers, clients that leave, that read slowly, that send nonsense or too much. Starts the
 * server itself, watches its memory and descriptors, and ends with a verdict.
 *
 *   soak PROGRAM SECONDS CLIENTS [option of hearth serve ...]
 *   soak PROGRAM SECONDS CLIENTS --kills N [option of hearth serve ...]   kill -9 N times meanwhile: see crash.c */
#include "soak/soak.h"

#include <pthread.h>
#include <signal.h>

#include "soak/client.h"

enum { MOST_SAMPLES = 100000 };

static soak_server server;
static _Atomic bool ending;
static bool polite;
static tally tallies[MOST_CLIENTS];
static double memory[MOST_SAMPLES];
static int n_samples;

bool check(bool fine, const char *what) {
    printf("%s %s\n", fine ? "ok    " : "FAILED", what);
    return fine;
}

/* ---- clients ---- */

static void *client(void *user) {
    tally *t = user;
    uint64_t seed = (uint64_t)(t - tallies) * 7919 + 12345 + polite;
    while (!ending && kill(server.pid, 0) == 0) client_round(server.port, &seed, polite, t);
    return NULL;
}

static void run_clients(int n, int seconds) {
    pthread_t threads[MOST_CLIENTS];
    ending = false;
    for (int i = 0; i < n; i++) pthread_create(&threads[i], NULL, client, &tallies[i]);
    for (int i = 0; i < 2 * seconds && n_samples < MOST_SAMPLES; i++) {
        usleep(500000);
        if (!polite) memory[n_samples++] = soak_memory_mb(&server);
    }
    ending = true;
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

/* ---- the verdict ---- */

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double most(int from, int to) {
    double m = 0;
    for (int i = from; i < to; i++)
        if (memory[i] > m) m = memory[i];
    return m;
}

static tally sum_up(int n, float **gaps) {
    tally sum = {0};
    for (int i = 0; i < n; i++) sum.n_gaps += tallies[i].n_gaps;
    *gaps = malloc((sum.n_gaps + 1) * sizeof **gaps);
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        const tally *t = &tallies[i];
        if (t->n_gaps) memcpy(*gaps + at, t->gaps, t->n_gaps * sizeof **gaps);
        at += t->n_gaps;
        sum.good += t->good, sum.good_failed += t->good_failed, sum.bad += t->bad, sum.bad_wrong += t->bad_wrong;
        sum.left += t->left, sum.slow += t->slow, sum.generating += t->generating;
        sum.prompt += t->prompt, sum.cached += t->cached, sum.completion += t->completion;
        if (t->failure[0] && !sum.failure[0]) memcpy(sum.failure, t->failure, sizeof sum.failure);
    }
    qsort(*gaps, sum.n_gaps, sizeof **gaps, by_value);
    return sum;
}

typedef struct counts {
    double requests, finished, prompt, cached, completion;
} counts;

static double metric(const char *text, const char *name) {
    for (const char *p = text; (p = strstr(p, name)) != NULL; p++)
        if ((p == text || p[-1] == '\n') && p[strlen(name)] == ' ') return atof(p + strlen(name));
    return -1;
}

/* What /metrics tells, once nothing runs any more. */
static counts look(void) {
    counts c = {0};
    for (int i = 0; i < 100; i++, usleep(100000)) {
        buf reply = {0};
        client_request(server.port, "GET", "/metrics", "", &reply);
        const char *m = client_body(&reply);
        c = (counts){metric(m, "hearth_requests_total"), metric(m, "hearth_answers_finished_total"), metric(m, "hearth_prompt_tokens_total"),
                     metric(m, "hearth_prompt_tokens_remembered_total"), metric(m, "hearth_completion_tokens_total")};
        bool idle = metric(m, "hearth_running") == 0 && metric(m, "hearth_waiting") == 0;
        buf_free(&reply);
        if (idle) break;
    }
    return c;
}

static bool judge(int n_clients, int seconds, int idle_descriptors) {
    float *gaps;
    tally s = sum_up(n_clients, &gaps);
    counts c = look();
    printf("%d clients, %d s: %lu good requests (%lu of them slow readers), %lu left early, %lu bad ones; %lu tokens in whole answers\n", n_clients, seconds, s.good, s.slow, s.left,
           s.bad, s.completion);
    if (s.n_gaps)
        printf("between tokens: p50 %.1f ms, p90 %.1f ms, p99 %.1f ms, longest %.1f ms (%zu)\n", gaps[s.n_gaps / 2], gaps[s.n_gaps * 9 / 10], gaps[s.n_gaps * 99 / 100],
               gaps[s.n_gaps - 1], s.n_gaps);
    for (int i = 0; i < 100 && soak_descriptors(&server) > idle_descriptors; i++) usleep(100000); /* connections that are being closed */
    int descriptors = soak_descriptors(&server);
    double early = most(n_samples / 4, n_samples / 2), late = most(n_samples * 3 / 4, n_samples);
    printf("memory: %.0f MB in the second quarter, %.0f MB in the last; descriptors: %d before, %d after\n", early, late, idle_descriptors, descriptors);
    bool ok = check(s.good > 0 && s.good_failed == 0, "good requests are answered");
    if (s.failure[0]) printf("       first failure: %s\n", s.failure);
    ok = check(s.bad_wrong == 0, "bad requests are refused with 4xx") && ok;
    ok = check(late <= early * 1.05 + 16, "memory stays flat") && ok;
    ok = check(descriptors <= idle_descriptors + 2, "no descriptors are lost") && ok;
    /* Those who left may have done so before the server knew of them. */
    ok = check(c.requests >= (double)s.generating && c.requests <= (double)(s.generating + s.left), "/metrics counts the requests that were made") && ok;
    ok = check(c.completion >= (double)s.completion && c.prompt >= (double)s.prompt && c.cached >= (double)s.cached, "/metrics counts the tokens that were read") && ok;
    free(gaps);
    return ok;
}

/* A while in which nobody leaves: what clients and server count must be the same. */
static bool count(int n_clients, int seconds) {
    float *gaps;
    counts before = look();
    for (int i = 0; i < n_clients; i++) {
        free(tallies[i].gaps);
        tallies[i] = (tally){0};
    }
    polite = true;
    run_clients(n_clients, seconds);
    counts c = look();
    tally s = sum_up(n_clients, &gaps);
    free(gaps);
    printf("counted by clients and by the server: requests %lu %.0f, answers %lu %.0f, tokens of prompts %lu %.0f, remembered %lu %.0f, generated %lu %.0f\n", s.generating,
           c.requests - before.requests, s.generating, c.finished - before.finished, s.prompt, c.prompt - before.prompt, s.cached, c.cached - before.cached, s.completion,
           c.completion - before.completion);
    bool ok = check(s.good > 0 && s.good_failed == 0, "good requests are answered");
    if (s.failure[0]) printf("       first failure: %s\n", s.failure);
    bool same = (double)s.generating == c.requests - before.requests && (double)s.generating == c.finished - before.finished && (double)s.prompt == c.prompt - before.prompt &&
                (double)s.cached == c.cached - before.cached && (double)s.completion == c.completion - before.completion;
    return check(same, "/metrics agrees with what the clients counted") && ok;
}

static bool soak(char **command, int seconds, int n) {
    if (!soak_start(&server, command, NULL)) return check(false, "the server starts");
    buf first = {0};
    client_request(server.port, "GET", "/health", "", &first);
    buf_free(&first);
    int idle = soak_descriptors(&server);
    run_clients(n, seconds);
    bool ok = judge(n, seconds, idle);
    ok = count(n, seconds / 10 > 2 ? seconds / 10 : 2) && ok;
    return check(soak_stop(&server), "the server ends in order") && ok;
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: soak PROGRAM SECONDS CLIENTS [--kills N] [option of hearth serve ...]\n");
        return 2;
    }
    int seconds = atoi(argv[2]), n = atoi(argv[3]), from = 4, kills = 0;
    if (argc > 5 && strcmp(argv[4], "--kills") == 0) {
        kills = atoi(argv[5]);
        from = 6;
    }
    char *command[64] = {argv[1], "serve", "--port", "0", "--quiet"};
    for (int i = from, k = 5; i < argc && k < 60; i++, k++) command[k] = argv[i];
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (n < 1 || n > MOST_CLIENTS || seconds < 4 || kills < 0) {
        fprintf(stderr, "soak: 1 to %d clients, at least 4 seconds\n", MOST_CLIENTS);
        return 2;
    }
    bool ok = kills ? crash(command, seconds, n, kills) : soak(command, seconds, n);
    printf("soak: %s\n", ok ? "passed" : "FAILED");
    return ok ? 0 : 1;
}
