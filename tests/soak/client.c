#include "soak/client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/clock.h"

/* Patience with one reply. */
enum { SILENCE_MS = 120000 };

uint64_t client_random(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static int dial(int port, int receive_bytes) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (receive_bytes) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

static void send_all(int fd, const char *data, size_t len) {
    for (ssize_t n; len > 0 && (n = send(fd, data, len, MSG_NOSIGNAL)) > 0; data += n) len -= (size_t)n;
}

static void send_request(int fd, const char *method, const char *path, const char *body) {
    buf b = {0};
    buf_addf(&b, NULL, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s", method, path, strlen(body), body);
    send_all(fd, b.data, b.len);
    buf_free(&b);
}

static void add_gap(tally *t, uint64_t ns) {
    if (t->n_gaps == t->cap_gaps) {
        size_t cap = t->cap_gaps ? 2 * t->cap_gaps : 1024;
        float *gaps = mem_realloc(t->gaps, cap, sizeof *gaps, NULL);
        if (!gaps) return;
        t->gaps = gaps;
        t->cap_gaps = cap;
    }
    t->gaps[t->n_gaps++] = (float)((double)ns * 1e-6);
}

/* Reads until the server closes; gaps between pieces of events are counted into t when it is given. False: it fell silent or broke off. */
static bool read_all(int fd, buf *in, tally *t, int pause_ms) {
    char part[8192];
    uint64_t last = 0;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, SILENCE_MS) <= 0) return false;
        ssize_t n = recv(fd, part, pause_ms ? 256 : sizeof part, 0);
        if (n == 0) return true;
        if (n < 0 || !buf_add(in, part, (size_t)n, NULL)) return false;
        uint64_t now = clock_ns();
        bool data = memmem(part, (size_t)n, "\"content\":", 10) != NULL;
        if (t && data && last) add_gap(t, now - last);
        if (data) last = now;
        if (pause_ms) usleep((useconds_t)pause_ms * 1000);
    }
}

static int status_of(const buf *reply) { return reply->len > 12 && strncmp(reply->data, "HTTP/1.1 ", 9) == 0 ? atoi(reply->data + 9) : 0; }

int client_request(int port, const char *method, const char *path, const char *body, buf *out) {
    int fd = dial(port, 0);
    if (fd < 0) return 0;
    send_request(fd, method, path, body);
    bool whole = read_all(fd, out, NULL, 0);
    close(fd);
    return whole ? status_of(out) : 0;
}

const char *client_body(const buf *reply) {
    const char *end = reply->data ? strstr(reply->data, "\r\n\r\n") : NULL;
    return end ? end + 4 : "";
}

/* ---- good requests ---- */

static const char *const topics[] = {"the sea", "a small cat", "the moon", "bread", "a train", "rain", "old maps", "a garden", "winter", "a lamp"};

static void chat_body(char *body, size_t cap, uint64_t *seed, bool stream) {
    snprintf(body, cap, "{\"messages\":[{\"role\":\"user\",\"content\":\"Tell me about %s and number %d.\"}],\"max_tokens\":%d,\"stream\":%s%s}", topics[client_random(seed) % 10],
             (int)(client_random(seed) % 50), 8 + (int)(client_random(seed) % 56), stream ? "true" : "false", stream ? ",\"stream_options\":{\"include_usage\":true}" : "");
}

static bool fail(tally *t, const char *what, const buf *reply) {
    t->good_failed++;
    if (!t->failure[0]) snprintf(t->failure, sizeof t->failure, "%s: %.200s", what, reply->data ? reply->data : "(nothing)");
    for (char *c = t->failure; *c; c++)
        if (*c == '\r' || *c == '\n') *c = ' ';
    return false;
}

/* The number after either name, the first of its kind in the reply: there is one usage in each. */
static uint64_t number_after(const buf *reply, const char *name, const char *or_name) {
    const char *at = strstr(reply->data, name);
    if (!at) at = strstr(reply->data, name = or_name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

static void count_tokens(tally *t, const buf *reply) {
    t->prompt += number_after(reply, "\"prompt_tokens\":", "\"input_tokens\":");
    t->cached += number_after(reply, "\"cached_tokens\":", "\"cached_tokens\":");
    t->completion += number_after(reply, "\"completion_tokens\":", "\"output_tokens\":");
}

/* A request that must be answered, whose reply must end with or hold the given text. */
static void good(int port, tally *t, const char *path, const char *body, const char *sign, bool slow) {
    buf reply = {0};
    bool stream = strstr(body, "\"stream\":true") != NULL;
    int fd = dial(port, slow ? 2048 : 0);
    t->good++;
    t->slow += slow;
    t->generating++;
    if (fd < 0) {
        fail(t, "no connection", &reply);
        return;
    }
    send_request(fd, "POST", path, body);
    bool whole = read_all(fd, &reply, stream && !slow ? t : NULL, slow ? 20 : 0);
    close(fd);
    if (!whole || status_of(&reply) != 200 || !strstr(reply.data, sign) || strstr(reply.data, "\"error\":{")) fail(t, path, &reply);
    else count_tokens(t, &reply);
    buf_free(&reply);
}

static void leave_early(int port, uint64_t *seed, tally *t) {
    char body[512], part[512];
    chat_body(body, sizeof body, seed, client_random(seed) % 4 != 0);
    int fd = dial(port, 0);
    t->left++;
    if (fd < 0) return;
    send_request(fd, "POST", "/v1/chat/completions", body);
    int pieces = (int)(client_random(seed) % 6);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (int i = 0; i < pieces && poll(&p, 1, 5000) > 0 && recv(fd, part, sizeof part, 0) > 0; i++) {}
    struct linger at_once = {.l_onoff = 1};
    if (client_random(seed) % 2) setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

/* ---- bad requests ---- */

static void expect_refusal(int fd, tally *t, bool may_close, const char *sign) {
    buf reply = {0};
    bool whole = read_all(fd, &reply, NULL, 0);
    int status = status_of(&reply);
    bool fine = status / 100 == 4 ? !sign || strstr(reply.data, sign) : may_close && (status == 0 || !whole);
    if (!fine) {
        t->bad_wrong++;
        if (!t->failure[0]) snprintf(t->failure, sizeof t->failure, "not refused: %.200s", reply.data ? reply.data : "(nothing)");
    }
    close(fd);
    buf_free(&reply);
}

static void malformed(int port, uint64_t *seed, tally *t) {
    static const struct { const char *path, *body, *sign; } cases[] = {
        {"/v1/chat/completions", "{\"messages\":", "\"error\""},
        {"/v1/chat/completions", "{\"messages\":[{\"role\":\"king\",\"content\":\"x\"}]}", "\"param\":\"messages\""},
        {"/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"top_p\":7}", "\"param\":\"top_p\""},
        {"/v1/messages", "{\"model\":\"nobody\",\"max_tokens\":5,\"messages\":[]}", "\"type\":\"error\""},
        {"/v1/responses", "{\"input\":7}", "\"param\":\"input\""},
        {"/v1/embeddings", "[]", "\"error\""},
        {"/v1/completions", "\xff\xfe{}", "\"error\""},
        {"/v1/nothing", "{}", "\"error\""},
    };
    int fd = dial(port, 0), i = (int)(client_random(seed) % 10);
    t->bad++;
    if (fd < 0) return;
    if (i < 8) {
        send_request(fd, "POST", cases[i].path, cases[i].body);
        expect_refusal(fd, t, false, cases[i].sign);
        return;
    }
    char noise[512];
    for (size_t k = 0; k < sizeof noise; k++) noise[k] = (char)client_random(seed);
    send_all(fd, noise, sizeof noise);
    shutdown(fd, SHUT_WR);
    expect_refusal(fd, t, true, NULL);
}

static void oversized(int port, uint64_t *seed, tally *t) {
    int fd = dial(port, 0);
    buf b = {0};
    t->bad++;
    if (fd < 0) return;
    switch (client_random(seed) % 3) {
    case 0: /* promised */
        buf_adds(&b, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\n{", NULL);
        break;
    case 1: /* in the head */
        buf_adds(&b, "GET / HTTP/1.1\r\nHost: localhost\r\nx: ", NULL);
        for (int i = 0; i < 20000; i++) buf_adds(&b, "0123456789", NULL);
        buf_adds(&b, "\r\n\r\n", NULL);
        break;
    default: { /* more tokens than the model takes */
        buf text = {0};
        for (int i = 0; i < 40000; i++) buf_adds(&text, "word ", NULL);
        buf_addf(&b, NULL, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n{\"prompt\":\"%s\"}", text.len + 13, text.data);
        buf_free(&text);
    }
    }
    send_all(fd, b.data, b.len);
    shutdown(fd, SHUT_WR);
    expect_refusal(fd, t, true, NULL);
    buf_free(&b);
}

void client_round(int port, uint64_t *seed, bool polite, tally *t) {
    char body[512];
    int kind = (int)(client_random(seed) % (polite ? 76 : 100));
    if (kind < 55) {
        chat_body(body, sizeof body, seed, true);
        good(port, t, "/v1/chat/completions", body, "data: [DONE]", false);
    } else if (kind < 65) {
        chat_body(body, sizeof body, seed, false);
        good(port, t, "/v1/chat/completions", body, "\"finish_reason\"", false);
    } else if (kind < 68) {
        good(port, t, "/v1/responses", "{\"input\":\"Who are you?\",\"max_output_tokens\":20,\"stream\":true}", "\"type\":\"response.", false);
    } else if (kind < 71) {
        good(port, t, "/v1/embeddings", "{\"input\":\"A few words.\",\"dimensions\":8}", "\"embedding\"", false);
    } else if (kind < 76) {
        chat_body(body, sizeof body, seed, true);
        good(port, t, "/v1/chat/completions", body, "data: [DONE]", true);
    } else if (kind < 88) {
        leave_early(port, seed, t);
    } else if (kind < 95) {
        malformed(port, seed, t);
    } else {
        oversized(port, seed, t);
    }
}
