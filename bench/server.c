/* server.c: what the users of a running server feel, whichever OpenAI-style server it is. Answers have the asked length whatever the weights are (ignore_eos, and a logit_bias
 * that leaves one visible token, where the server has /tokenize), prompts are new ones, and every answer is checked: an error, a broken stream or a short answer fails the run.
 *
 *   bench-server URL                 one chat, then --chats at once: tokens/s, time to the first token, time between tokens
 *   bench-server URL --join 4096     how long --chats running answers pause while a prompt of so many tokens is read */
#include <curl/curl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "chat.h"
#include "cli/cli.h"

enum { MOST_CHATS = 256, WARM_TOKENS = 8, RUNNING_TOKENS = 8, JOIN_TOKENS = 4 };

typedef struct bench {
    chat_server server;
    int chats, tokens, prompt, join;
    float max_stall, ratio;
    double words_per_token; /* of the prompts made here */
    double overhead;        /* tokens of a prompt of no words */
    unsigned serial;
} bench;

/* ---- prompts ---- */

/* Begins as no other one, so that nothing of it is known to the server. */
static char *make_prompt(bench *b, int words) {
    static const char *const some[] = {"river", "stone", "light", "garden", "winter", "paper", "music", "window", "bread", "train", "cloud", "lamp", "forest", "letter", "harbor", "clock"};
    buf out = {0};
    uint64_t x = clock_ns() * 2654435761u + ++b->serial;
    buf_addf(&out, NULL, "%lu.", (unsigned long)(clock_ns() / 1000 * 100 + b->serial % 100));
    for (int i = 0; i < words; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        buf_addf(&out, NULL, " %s", some[x >> 60]);
    }
    return out.data;
}

static char *make_prompt_of(bench *b, int tokens) {
    double words = ((double)tokens - b->overhead) * b->words_per_token;
    return make_prompt(b, words < 1 ? 1 : (int)(words + 0.5));
}

/* ---- chats ---- */

static void *run_one(void *user) {
    chat_run(user);
    return NULL;
}

static bool report_failure(const chat *c) {
    if (c->failure[0]) fprintf(stderr, "bench-server: %s\n", c->failure);
    return c->failure[0] != 0;
}

/* One short chat; false when it failed. */
static bool try_one(bench *b, int words, int *prompt_tokens) {
    char *prompt = make_prompt(b, words);
    chat c = {.server = &b->server, .prompt = prompt, .max_tokens = WARM_TOKENS};
    chat_run(&c);
    *prompt_tokens = c.prompt_tokens;
    bool ok = !report_failure(&c);
    chat_free(&c);
    mem_free(prompt);
    return ok;
}

/* Warms the server up and learns how many tokens a word of a prompt has. */
static bool calibrate(bench *b) {
    int few, many;
    if (!try_one(b, 20, &few) || !try_one(b, 220, &many)) return false;
    if (few <= 0 || many <= few) {
        fprintf(stderr, "bench-server: the server does not count the prompt's tokens\n");
        return false;
    }
    b->words_per_token = 200.0 / (many - few);
    b->overhead = few - 20 / b->words_per_token;
    return true;
}

/* ---- figures ---- */

typedef struct times {
    double *ms;
    size_t n, cap;
} times;

static void add(times *t, double ms) {
    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 1024;
        double *more = mem_realloc(t->ms, cap, sizeof *more, NULL);
        if (!more) abort();
        t->ms = more;
        t->cap = cap;
    }
    t->ms[t->n++] = ms;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(times *t, double q) {
    if (t->n == 0) return 0;
    qsort(t->ms, t->n, sizeof *t->ms, by_value);
    size_t i = (size_t)(q * (double)t->n);
    return t->ms[i < t->n ? i : t->n - 1];
}

/* Gaps of c whose end lies in [from, to]. */
static void add_gaps(times *t, const chat *c, uint64_t from, uint64_t to) {
    for (size_t i = 1; i < c->n; i++)
        if (c->at[i] >= from && c->at[i] <= to) add(t, (double)(c->at[i] - c->at[i - 1]) * 1e-6);
}

static void print_gaps(const char *what, times *t) {
    printf("%-34s p50 %7.1f  p99 %7.1f  longest %7.1f ms  (%zu)\n", what, quantile(t, 0.5), quantile(t, 0.99), quantile(t, 1), t->n);
}

/* ---- how fast ---- */

typedef struct speed {
    double decode, whole; /* tokens/s while all were answering; from the first request to the last token */
} speed;

/* n chats at once. While all of them answer nothing but decoding happens. */
static bool run_chats(bench *b, int n, speed *out) {
    static chat all[MOST_CHATS];
    static char *prompts[MOST_CHATS];
    pthread_t threads[MOST_CHATS];
    for (int i = 0; i < n; i++) {
        prompts[i] = make_prompt_of(b, b->prompt);
        all[i] = (chat){.server = &b->server, .prompt = prompts[i], .max_tokens = b->tokens};
    }
    for (int i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, run_one, &all[i]) != 0) abort();
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    bool ok = true;
    uint64_t began = UINT64_MAX, from = 0, to = UINT64_MAX, ended = 0;
    for (int i = 0; i < n; i++) ok = !report_failure(&all[i]) && ok;
    for (int i = 0; ok && i < n; i++) {
        const chat *c = &all[i];
        if (c->sent_ns < began) began = c->sent_ns;
        if (c->at[0] > from) from = c->at[0];
        if (c->at[c->n - 1] < to) to = c->at[c->n - 1];
        if (c->at[c->n - 1] > ended) ended = c->at[c->n - 1];
    }
    if (ok && to <= from) {
        fprintf(stderr, "bench-server: the first answer ended before the last began: ask for more --tokens\n");
        ok = false;
    }
    times first = {0}, between = {0};
    double tokens = 0, in_window = 0;
    long prompt_tokens = 0, cached = 0;
    for (int i = 0; ok && i < n; i++) {
        const chat *c = &all[i];
        size_t pieces = 0;
        for (size_t k = 0; k < c->n; k++) pieces += c->at[k] > from && c->at[k] <= to;
        /* A piece may hold more than a token. */
        in_window += (double)pieces * c->completion_tokens / (double)c->n;
        tokens += c->completion_tokens;
        prompt_tokens += c->prompt_tokens;
        cached += c->cached_tokens > 0 ? c->cached_tokens : 0;
        add(&first, (double)(c->at[0] - c->sent_ns) * 1e-6);
        add_gaps(&between, c, 0, UINT64_MAX);
    }
    if (ok) {
        *out = (speed){.decode = in_window / ((double)(to - from) * 1e-9), .whole = tokens / ((double)(ended - began) * 1e-9)};
        printf("%d chat%s, prompts of %ld tokens (%ld remembered), answers of %d\n", n, n == 1 ? "" : "s", prompt_tokens / n, cached / n, b->tokens);
        printf("  decode                           %8.2f tokens/s (%.2f with the prompts)\n", out->decode, out->whole);
        print_gaps("  first token", &first);
        print_gaps("  between tokens", &between);
    }
    mem_free(first.ms);
    mem_free(between.ms);
    for (int i = 0; i < n; i++) {
        chat_free(&all[i]);
        mem_free(prompts[i]);
    }
    return ok;
}

static bool run_speed(bench *b) {
    speed one, many;
    if (!run_chats(b, 1, &one) || !run_chats(b, b->chats, &many)) return false;
    printf("%d chats together decode %.2f times as fast as one\n", b->chats, many.decode / one.decode);
    return many.decode >= b->ratio * one.decode;
}

/* ---- joining ---- */

static bool wait_until_running(const chat *all, int n) {
    for (bool running = false; !running; usleep(1000)) {
        running = true;
        for (int i = 0; i < n; i++) {
            if (all[i].ended_ns) return false;
            running = running && all[i].n >= RUNNING_TOKENS;
        }
    }
    return true;
}

static bool report_join(const bench *b, const chat *all, const chat *joiner, uint64_t joined, uint64_t answered) {
    times before = {0}, during = {0};
    uint64_t all_run = 0;
    for (int i = 0; i < b->chats; i++)
        if (all[i].at[0] > all_run) all_run = all[i].at[0];
    for (int i = 0; i < b->chats; i++) {
        add_gaps(&before, &all[i], all_run, joined);
        add_gaps(&during, &all[i], joined, answered);
        if (all[i].at[all[i].n - 1] >= answered) continue;
        fprintf(stderr, "bench-server: an answer ended while the prompt was read: ask for more --tokens\n");
        return false;
    }
    printf("%d running chats, and a prompt of %d tokens joins (%d remembered)\n", b->chats, joiner->prompt_tokens, joiner->cached_tokens > 0 ? joiner->cached_tokens : 0);
    print_gaps("  between tokens before", &before);
    print_gaps("  between tokens while it is read", &during);
    printf("  its first token                  %8.2f s (%.1f tokens/s read)\n", (double)(joiner->at[0] - joiner->sent_ns) * 1e-9,
           joiner->prompt_tokens / ((double)(joiner->at[0] - joiner->sent_ns) * 1e-9));
    const double longest = quantile(&during, 1);
    bool kept = before.n > 0 && during.n > 0 && longest <= b->max_stall;
    printf("the longest pause is %.1f ms, %.1f more than usual: %s %.0f ms\n", longest, longest - quantile(&before, 0.5), kept ? "within" : "BEYOND", b->max_stall);
    mem_free(before.ms);
    mem_free(during.ms);
    return kept;
}

static bool run_join(bench *b) {
    static chat all[MOST_CHATS];
    static char *prompts[MOST_CHATS];
    static _Atomic bool leave;
    pthread_t threads[MOST_CHATS];
    for (int i = 0; i < b->chats; i++) {
        prompts[i] = make_prompt_of(b, b->prompt);
        all[i] = (chat){.server = &b->server, .prompt = prompts[i], .max_tokens = b->tokens, .leave = &leave};
    }
    for (int i = 0; i < b->chats; i++)
        if (pthread_create(&threads[i], NULL, run_one, &all[i]) != 0) abort();
    char *prompt = make_prompt_of(b, b->join);
    chat joiner = {.server = &b->server, .prompt = prompt, .max_tokens = JOIN_TOKENS};
    bool ok = wait_until_running(all, b->chats);
    if (ok) chat_run(&joiner);
    usleep(ok && joiner.n > 0 ? 500000 : 0); /* gaps that were under way end */
    leave = true;
    for (int i = 0; i < b->chats; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < b->chats; i++) ok = !report_failure(&all[i]) && ok;
    ok = ok && !report_failure(&joiner) && report_join(b, all, &joiner, joiner.sent_ns, joiner.at[0]);
    for (int i = 0; i < b->chats; i++) {
        chat_free(&all[i]);
        mem_free(prompts[i]);
    }
    chat_free(&joiner);
    mem_free(prompt);
    return ok;
}

/* ---- the command ---- */

int main(int argc, char **argv) {
    bench b = {.server = {.key = "", .model = "", .word = -1}, .chats = 0, .tokens = 0, .prompt = 64, .max_stall = 100};
    const cli_option options[] = {
        {"--chats", 'n', CLI_INT, &b.chats, "N", "at once (default 8; with --join 4)", 1, MOST_CHATS},
        {"--tokens", 0, CLI_INT, &b.tokens, "N", "of each answer (default 128; with --join 4000, of which only those until the prompt is read are waited for)", 2, 1e6},
        {"--prompt", 0, CLI_INT, &b.prompt, "N", "tokens of each prompt, about (default 64)", 1, 1e6},
        {"--ratio", 0, CLI_FLOAT, &b.ratio, "X", "fail unless all together decode X times as fast as one (default 0)", 0, 1e6},
        {"--join", 0, CLI_INT, &b.join, "N", "measure the pauses while a prompt of so many tokens joins", 1, 1e7},
        {"--max-stall", 0, CLI_FLOAT, &b.max_stall, "MS", "with --join: fail when a pause is longer (default 100)", 0, 1e9},
        {"--plain", 0, CLI_FLAG, &b.server.plain, NULL, "ask /v1/completions, for models without a chat template", 0, 0},
        {"--model", 0, CLI_TEXT, &b.server.model, "NAME", "the model to ask for (default: the server's own choice)", 0, 0},
        {"--key", 0, CLI_TEXT, &b.server.key, "KEY", "the server's key", 0, 0},
        {NULL, 0, CLI_FLAG, NULL, NULL, NULL, 0, 0},
    };
    const cli_spec spec = {.usage = "bench-server URL [options]", .about = "Measures what the users of an OpenAI-style server feel. The status is 1 when any answer fails.", .options = options,
                           .min_args = 1, .max_args = 1};
    int status;
    if (cli_parse(&spec, argc, argv, &b.server.url, &status) < 0) return status;
    if (!b.chats) b.chats = b.join ? 4 : 8;
    if (!b.tokens) b.tokens = b.join ? 4000 : 128;
    setvbuf(stdout, NULL, _IOLBF, 0);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    b.server.word = chat_find_word(&b.server);
    if (b.server.word < 0) printf("the server has no /tokenize: pieces without text are not seen\n");
    bool ok = calibrate(&b) && (b.join ? run_join : run_speed)(&b);
    curl_global_cleanup();
    return ok ? 0 : 1;
}
