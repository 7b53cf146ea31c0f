/* test_server_kill.c: kill -9 of the real server at random moments while several agents talk to it. After each restart every agent is where its last finished turn left it, or
 * one turn further (the one that was under way); it goes on without computing anything it had said or heard; and what it says is what it says in a run that is never
 * disturbed. A number on the command line is how many rounds to run. */
#include "tools/support.h"

#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "unit/http_client.h"

enum { AGENTS = 4, TURNS = 4, ANSWER = 5 };
static int rounds = 4;

/* ---- the server ---- */

typedef struct process {
    pid_t pid;
    int out, port;
} process;

static process start_server(const char *store_dir) {
    int out[2];
    process p = {0};
    char store[700];
    snprintf(store, sizeof store, "%s/errors", temp_dir());
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    int errors = open(store, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    p.pid = fork();
    assert_true(p.pid >= 0);
    if (p.pid == 0) {
        dup2(out[1], 1);
        dup2(errors, 2);
        /* The exact kernels: the same bits in any company. */
        execl(hearth_program(), "hearth", "serve", "models/ember-30m-q8_0.gguf", "--port", "0", "--quiet", "--cpu", "ref", "--cache", "off", "--store-dir", store_dir, "--temperature", "0",
              (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    close(errors);
    p.out = out[0];
    buf line = {0};
    for (char c; read(p.out, &c, 1) == 1 && c != '\n';) assert_true(buf_addc(&line, c, NULL));
    const char *at = line.data ? strstr(line.data, "http://127.0.0.1:") : NULL;
    if (!at) fail_msg("the server does not say where it is: %s", line.data ? line.data : "");
    p.port = atoi(at + strlen("http://127.0.0.1:"));
    buf_free(&line);
    return p;
}

static void kill_server(process *p) {
    int status;
    kill(p->pid, SIGKILL);
    waitpid(p->pid, &status, 0);
    close(p->out);
    if (!WIFSIGNALED(status)) fail_msg("the server ended by itself with status %d", status);
}

/* One request, without asserts: the server may go away at any moment. False when it did. */
static bool request(int port, const char *method, const char *path, const char *body, buf *in) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok = connect(fd, (struct sockaddr *)&a, sizeof a) == 0;
    buf out = {0};
    ok = ok && buf_addf(&out, NULL, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s", method, path, strlen(body), body);
    if (ok) client_write(fd, out.data, out.len);
    in->len = 0;
    while (ok && client_read(fd, in)) {}
    buf_free(&out);
    close(fd);
    return ok && in->len > 12 && buf_addc(in, 0, NULL);
}

/* ---- the agents ---- */

typedef struct talker {
    int number, port;
    int conversation, turn;  /* turns that were answered to the end */
    uint64_t seed;
    char wrong[1000];        /* what should not have been */
} talker;

static char expected[AGENTS][TURNS][400];
static _Atomic uint64_t finished, unreported;
static bool expecting;       /* the undisturbed run, which makes the expectations */

static void question(int who, int turn, char *out, size_t cap) {
    static const char *const about[] = {"the sea", "a dog", "the moon", "bread", "music", "a train", "winter", "my garden"};
    snprintf(out, cap, "%d.%d: What is %s?", who, turn, about[(who * 3 + turn) % 8]);
}

static void name_of(const talker *t, char *out, size_t cap) { snprintf(out, cap, "friend%d-%d", t->number, t->conversation); }

static void complain(talker *t, const char *what, const char *detail) {
    if (!t->wrong[0]) snprintf(t->wrong, sizeof t->wrong, "agent %d of conversation %d, turn %d: %s: %.600s", t->number, t->conversation, t->turn, what, detail);
}

static const json_t *dig(const json_t *j, const char *a, const char *b, const char *c) {
    j = json_object_get(j, a);
    if (b) j = json_object_get(j, b);
    return c ? json_object_get(j, c) : j;
}

/* Puts together the text of a stream, and its count of tokens that were remembered. False when it does not come to its end. */
static bool read_stream(const char *body, char *text, size_t cap, int *cached) {
    size_t n = 0;
    text[0] = 0;
    for (const char *p = body; (p = strstr(p, "data: ")) != NULL;) {
        p += 6;
        if (strncmp(p, "[DONE]", 6) == 0) return true;
        size_t len = strcspn(p, "\n");
        json_t *j = json_loadb(p, len, 0, NULL);
        const char *piece = json_string_value(dig(json_array_get(json_object_get(j, "choices"), 0), "delta", "content", NULL));
        if (piece) n += (size_t)snprintf(text + n, cap - n, "%s", piece);
        const json_t *count = dig(j, "usage", "prompt_tokens_details", "cached_tokens");
        if (count) *cached = (int)json_integer_value(count);
        json_decref(j);
        if (n >= cap) return false;
    }
    return false;
}

static bool read_whole(const char *body, char *text, size_t cap, int *cached) {
    json_t *j = json_loads(body, 0, NULL);
    const char *content = json_string_value(dig(json_array_get(json_object_get(j, "choices"), 0), "message", "content", NULL));
    if (content) snprintf(text, cap, "%s", content);
    *cached = (int)json_integer_value(dig(j, "usage", "prompt_tokens_details", "cached_tokens"));
    bool whole = content != NULL;
    json_decref(j);
    return whole;
}

/* Looks where the agent is: *tokens, and how many messages it has; each answer must be the expected one. False when the server is gone. */
static bool look(talker *t, int *tokens, int *messages, buf *in) {
    char path[100], name[40];
    name_of(t, name, sizeof name);
    snprintf(path, sizeof path, "/v1/agents/%s", name);
    *tokens = *messages = 0;
    if (!request(t->port, "GET", path, "", in)) return false;
    const char *body = strstr(in->data, "\r\n\r\n");
    int status = atoi(in->data + 9);
    if (status == 404) return true;
    json_t *j = body ? json_loads(body + 4, 0, NULL) : NULL;
    if (!j) return false;
    if (status != 200) complain(t, "looking failed", body + 4);
    const json_t *list = json_object_get(j, "messages");
    *tokens = (int)json_integer_value(json_object_get(j, "tokens"));
    *messages = (int)json_array_size(list);
    for (int i = 0; i < *messages / 2 && i < TURNS && !expecting; i++) {
        const char *answer = json_string_value(json_object_get(json_array_get(list, (size_t)(2 * i + 1)), "content"));
        if (!answer || strcmp(answer, expected[t->number][i]) != 0) complain(t, "an answer that is kept is another than before", answer ? answer : "(none)");
    }
    json_decref(j);
    return true;
}

/* Asks the next question. False when the server went away. */
static bool ask(talker *t, buf *in) {
    int tokens, messages, cached = -1;
    if (!look(t, &tokens, &messages, in) || t->wrong[0]) return false;
    if (messages == 2 * t->turn + 2) { /* the turn under way had been saved */
        t->turn++;
        unreported++;
    } else if (messages != 2 * t->turn) {
        char n[60];
        snprintf(n, sizeof n, "%d messages, not %d", messages, 2 * t->turn);
        complain(t, "a finished turn is lost", n);
        return false;
    }
    if (t->turn == TURNS) {
        t->conversation++;
        t->turn = 0;
        return true;
    }
    char text[300], body[700], path[100], name[40], answer[400] = "";
    name_of(t, name, sizeof name);
    question(t->number, t->turn, text, sizeof text);
    bool stream = rng_next(&t->seed) % 2;
    /* The first turn makes the agent; the others bring only what is new. */
    snprintf(path, sizeof path, messages ? "/v1/agents/%s/generate" : "/v1/chat/completions", name);
    snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"max_tokens\":%d%s%s%s%s}", text, ANSWER, messages ? "" : ",\"session\":\"", messages ? "" : name,
             messages ? "" : "\"", stream ? ",\"stream\":true,\"stream_options\":{\"include_usage\":true}" : "");
    if (!request(t->port, "POST", path, body, in)) return false;
    const char *got = strstr(in->data, "\r\n\r\n");
    int status = atoi(in->data + 9);
    if (!got) return false;
    if (status != 200) complain(t, "refused", got + 4);
    if (!(stream ? read_stream : read_whole)(got + 4, answer, sizeof answer, &cached)) return false; /* cut off */
    if (expecting) strcpy(expected[t->number][t->turn], answer);
    if (strcmp(answer, expected[t->number][t->turn]) != 0) complain(t, "another answer than undisturbed", answer);
    if (messages && cached < tokens) {
        char n[80];
        snprintf(n, sizeof n, "%d of %d tokens remembered", cached, tokens);
        complain(t, "computed again what it had said", n);
    }
    t->turn++;
    finished++;
    return true;
}

static void *talk(void *user) {
    talker *t = user;
    buf in = {0};
    while (!t->wrong[0] && !(expecting && t->turn == TURNS) && ask(t, &in)) {}
    buf_free(&in);
    return NULL;
}

/* All agents talk until the server goes away, or (expecting) to their end. */
static void talk_all(talker *all, process *server, uint64_t kill_after_ns) {
    pthread_t threads[AGENTS];
    for (int i = 0; i < AGENTS; i++) {
        all[i].port = server->port;
        assert_int_equal(pthread_create(&threads[i], NULL, talk, &all[i]), 0);
    }
    if (kill_after_ns) {
        struct timespec pause = {.tv_sec = (time_t)(kill_after_ns / 1000000000u), .tv_nsec = (long)(kill_after_ns % 1000000000u)};
        nanosleep(&pause, NULL);
        kill_server(server);
    }
    for (int i = 0; i < AGENTS; i++) pthread_join(threads[i], NULL);
    if (!kill_after_ns) kill_server(server);
    for (int i = 0; i < AGENTS; i++)
        if (all[i].wrong[0]) fail_msg("%s", all[i].wrong);
}

static void survives_kill_9(void **state) {
    (void)state;
    uint64_t seed = test_seed();
    char store[700];
    static talker calm[AGENTS], all[AGENTS];
    for (int i = 0; i < AGENTS; i++) calm[i] = (talker){.number = i, .seed = rng_next(&seed)}, all[i] = calm[i];
    snprintf(store, sizeof store, "%s/calm", temp_dir());
    expecting = true;
    process server = start_server(store);
    talk_all(calm, &server, 0);
    expecting = false;
    for (int i = 0; i < AGENTS; i++) assert_int_equal(calm[i].turn, TURNS);
    finished = 0;
    snprintf(store, sizeof store, "%s/store", temp_dir());
    for (int round = 0; round < rounds; round++) {
        server = start_server(store);
        talk_all(all, &server, 20000000u + rng_next(&seed) % 1200000000u);
    }
    server = start_server(store); /* and once more to look at all of them */
    for (int i = 0; i < AGENTS; i++) {
        buf in = {0};
        all[i].port = server.port;
        if (!ask(&all[i], &in)) fail_msg("agent %d does not answer: %s", i, all[i].wrong);
        buf_free(&in);
    }
    kill_server(&server);
    /* Nothing was found damaged. */
    char path[800];
    snprintf(path, sizeof path, "%s/errors", temp_dir());
    buf errors = slurp(path);
    if (errors.len) fail_msg("the server complained: %.*s", (int)(errors.len < 1000 ? errors.len : 1000), errors.data);
    buf_free(&errors);
    print_message("# %d rounds, %lu turns finished, %lu saved unheard\n", rounds, (unsigned long)finished, (unsigned long)unreported);
    assert_true(finished > 0);
}

int main(int argc, char **argv) {
    if (argc > 1) rounds = atoi(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(survives_kill_9)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
