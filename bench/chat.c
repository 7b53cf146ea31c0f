#include "chat.h"

#include <curl/curl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { SILENCE_S = 300, MOST_LINE = 1 << 20 };

static void complain(chat *c, const char *what, const char *detail, size_t len) {
    if (c->failure[0]) return;
    snprintf(c->failure, sizeof c->failure, "%s: %.*s", what, (int)(len < 300 ? len : 300), detail);
    for (char *p = c->failure; *p; p++)
        if ((unsigned char)*p < ' ') *p = ' ';
}

/* ---- the stream ---- */

static void add_time(chat *c, uint64_t now) {
    if (c->n == c->cap) {
        size_t cap = c->cap ? 2 * c->cap : 1024;
        uint64_t *at = mem_realloc(c->at, cap, sizeof *at, NULL);
        if (!at) {
            complain(c, "out of memory", "", 0);
            return;
        }
        c->at = at;
        c->cap = cap;
    }
    c->at[c->n] = now;
    c->n++;
}

static int number(const json_t *j, const char *name) {
    const json_t *value = json_object_get(j, name);
    return json_is_integer(value) ? (int)json_integer_value(value) : -1;
}

/* One event: a piece of text, the usage, an error. */
static void read_event(chat *c, const char *data, size_t len, uint64_t now) {
    if (len == 6 && memcmp(data, "[DONE]", 6) == 0) {
        c->done = true;
        return;
    }
    json_t *j = json_loadb(data, len, 0, NULL);
    if (!j || json_object_get(j, "error")) complain(c, "not an event of a chat", data, len);
    const json_t *choice = json_array_get(json_object_get(j, "choices"), 0), *delta = json_object_get(choice, "delta");
    const char *text = json_string_value(c->server->plain ? json_object_get(choice, "text") : json_object_get(delta, "content"));
    if (!text || !*text) text = json_string_value(json_object_get(delta, "reasoning_content"));
    if (text && *text) add_time(c, now);
    const json_t *usage = json_object_get(j, "usage");
    if (json_is_object(usage)) {
        c->prompt_tokens = number(usage, "prompt_tokens");
        c->completion_tokens = number(usage, "completion_tokens");
        c->cached_tokens = number(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
    }
    json_decref(j);
}

static size_t take(char *data, size_t size, size_t n, void *user) {
    chat *c = user;
    const uint64_t now = clock_ns();
    if (c->line.len > MOST_LINE) complain(c, "an endless line", c->line.data, 60);
    for (size_t i = 0; i < size * n && !c->failure[0]; i++) {
        if (data[i] != '\n') {
            if (data[i] != '\r' && !buf_addc(&c->line, data[i], NULL)) complain(c, "out of memory", "", 0);
            continue;
        }
        if (c->line.len > 6 && memcmp(c->line.data, "data: ", 6) == 0) read_event(c, c->line.data + 6, c->line.len - 6, now);
        else if (c->line.len > 0 && c->line.data[0] != ':') complain(c, "not a stream of events", c->line.data, c->line.len);
        c->line.len = 0;
    }
    return c->failure[0] ? 0 : size * n;
}

static int look_whether_to_leave(void *user, curl_off_t a, curl_off_t b, curl_off_t d, curl_off_t e) {
    (void)a, (void)b, (void)d, (void)e;
    chat *c = user;
    c->left = c->leave && *c->leave;
    return c->left;
}

/* ---- requests ---- */

static CURL *request(const chat_server *s, const char *path, const char *body, struct curl_slist **headers) {
    char line[600];
    CURL *h = curl_easy_init();
    if (!h) return NULL;
    snprintf(line, sizeof line, "%s%s", s->url, path);
    curl_easy_setopt(h, CURLOPT_URL, line);
    curl_easy_setopt(h, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h, CURLOPT_PROXY, "");
    curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, (long)SILENCE_S);
    *headers = curl_slist_append(NULL, "Content-Type: application/json");
    *headers = curl_slist_append(*headers, "Expect:");
    snprintf(line, sizeof line, "Authorization: Bearer %s", s->key);
    if (s->key[0]) *headers = curl_slist_append(*headers, line);
    curl_easy_setopt(h, CURLOPT_HTTPHEADER, *headers);
    return h;
}

/* Greedy, and of the asked length whatever the weights are. */
static char *body_of(const chat *c) {
    json_t *j = json_pack("{s:i,s:f,s:b,s:b,s:{s:b}}", "max_tokens", c->max_tokens, "temperature", 0.0, "ignore_eos", 1, "stream", 1, "stream_options", "include_usage", 1);
    if (c->server->plain) json_object_set_new(j, "prompt", json_string(c->prompt));
    else json_object_set_new(j, "messages", json_pack("[{s:s,s:s}]", "role", "user", "content", c->prompt));
    char id[20];
    snprintf(id, sizeof id, "%d", (int)c->server->word);
    if (c->server->word >= 0) json_object_set_new(j, "logit_bias", json_pack("{s:i}", id, 100));
    if (c->server->model[0]) json_object_set_new(j, "model", json_string(c->server->model));
    char *text = json_dumps(j, JSON_COMPACT);
    json_decref(j);
    return text;
}

static void judge(chat *c, CURLcode code, long status) {
    char detail[100];
    if (c->left && code == CURLE_ABORTED_BY_CALLBACK) return;
    if (code != CURLE_OK) complain(c, "the request failed", curl_easy_strerror(code), strlen(curl_easy_strerror(code)));
    snprintf(detail, sizeof detail, "HTTP status %ld", status);
    if (status != 200) complain(c, detail, c->line.data ? c->line.data : "", c->line.len);
    if (!c->done) complain(c, "the stream broke off", "", 0);
    snprintf(detail, sizeof detail, "%d tokens, not %d", c->completion_tokens, c->max_tokens);
    if (c->completion_tokens != c->max_tokens) complain(c, "a short answer", detail, strlen(detail));
    snprintf(detail, sizeof detail, "%zu pieces of text for %d tokens", (size_t)c->n, c->completion_tokens);
    if (c->n == 0 || c->n > (size_t)c->max_tokens + 1) complain(c, "not a stream of tokens", detail, strlen(detail));
}

void chat_run(chat *c) {
    struct curl_slist *headers = NULL;
    char *body = body_of(c);
    CURL *h = body ? request(c->server, c->server->plain ? "/v1/completions" : "/v1/chat/completions", body, &headers) : NULL;
    if (!h) {
        complain(c, "out of memory", "", 0);
    } else {
        long status = 0;
        c->prompt_tokens = c->cached_tokens = c->completion_tokens = -1;
        curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, take);
        curl_easy_setopt(h, CURLOPT_WRITEDATA, c);
        curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, look_whether_to_leave);
        curl_easy_setopt(h, CURLOPT_XFERINFODATA, c);
        curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
        c->sent_ns = clock_ns();
        CURLcode code = curl_easy_perform(h);
        c->ended_ns = clock_ns();
        curl_easy_getinfo(h, CURLINFO_RESPONSE_CODE, &status);
        judge(c, code, status);
    }
    curl_easy_cleanup(h);
    curl_slist_free_all(headers);
    free(body);
}

void chat_free(chat *c) {
    mem_free(c->at);
    buf_free(&c->line);
}

/* ---- a token that can be seen ---- */

static size_t collect(char *data, size_t size, size_t n, void *user) { return buf_add(user, data, size * n, NULL) ? size * n : 0; }

int32_t chat_find_word(const chat_server *server) {
    struct curl_slist *headers = NULL;
    buf reply = {.limit = MOST_LINE};
    int32_t id = -1;
    CURL *h = request(server, "/tokenize", "{\"content\":\"over the\"}", &headers);
    if (!h) return -1;
    curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, collect);
    curl_easy_setopt(h, CURLOPT_WRITEDATA, &reply);
    curl_easy_setopt(h, CURLOPT_FAILONERROR, 1L);
    if (curl_easy_perform(h) == CURLE_OK && reply.data) {
        json_t *j = json_loads(reply.data, 0, NULL), *tokens = json_object_get(j, "tokens");
        const json_t *last = json_array_get(tokens, json_array_size(tokens) - 1);
        if (json_is_integer(last)) id = (int32_t)json_integer_value(last);
        json_decref(j);
    }
    curl_easy_cleanup(h);
    curl_slist_free_all(headers);
    buf_free(&reply);
    return id;
}
