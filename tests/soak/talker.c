#include "soak/talker.h"

#include <jansson.h>

static char expected[TALKERS][TALKER_TURNS][400];

static void question(const talker *t, char *out, size_t cap) {
    static const char *const about[] = {"the sea", "a dog", "the moon", "bread", "music", "a train", "winter", "my garden"};
    snprintf(out, cap, "%d.%d: What is %s?", t->number, t->turn, about[(t->number * 3 + t->turn) % 8]);
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
static bool look(talker *t, int *tokens, int *messages) {
    char path[100], name[40];
    buf in = {0};
    name_of(t, name, sizeof name);
    snprintf(path, sizeof path, "/v1/agents/%s", name);
    *tokens = *messages = 0;
    int status = client_request(t->port, "GET", path, "", &in);
    json_t *j = status == 200 ? json_loads(client_body(&in), 0, NULL) : NULL;
    if (status != 404 && status != 0 && status != 200) complain(t, "looking failed", client_body(&in));
    if (status == 200 && !j) status = 0; /* cut off */
    const json_t *list = json_object_get(j, "messages");
    *tokens = (int)json_integer_value(json_object_get(j, "tokens"));
    *messages = (int)json_array_size(list);
    for (int i = 0; i < *messages / 2 && i < TALKER_TURNS && !t->expecting; i++) {
        const char *answer = json_string_value(json_object_get(json_array_get(list, (size_t)(2 * i + 1)), "content"));
        if (!answer || strcmp(answer, expected[t->number][i]) != 0) complain(t, "an answer that is kept is another than before", answer ? answer : "(none)");
    }
    json_decref(j);
    buf_free(&in);
    return status != 0 && !t->wrong[0];
}

/* The next turn, of an agent that holds so many tokens and messages. False when the server went away before its end. */
static bool take_turn(talker *t, int tokens, int messages) {
    char text[300], body[700], path[100], name[40], answer[400] = "";
    int cached = -1;
    buf in = {0};
    name_of(t, name, sizeof name);
    question(t, text, sizeof text);
    bool stream = client_random(&t->seed) % 2;
    /* The first turn makes the agent; the others bring only what is new. They go before the rest of the load. */
    snprintf(path, sizeof path, messages ? "/v1/agents/%s/generate" : "/v1/chat/completions", name);
    snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"max_tokens\":%d,\"temperature\":0,\"priority\":1%s%s%s%s}", text, TALKER_ANSWER,
             messages ? "" : ",\"session\":\"", messages ? "" : name, messages ? "" : "\"", stream ? ",\"stream\":true,\"stream_options\":{\"include_usage\":true}" : "");
    int status = client_request(t->port, "POST", path, body, &in);
    if (status != 0 && status != 200 && status != 429) complain(t, "refused", client_body(&in));
    bool whole = status == 200 && (stream ? read_stream : read_whole)(client_body(&in), answer, sizeof answer, &cached);
    buf_free(&in);
    if (!whole) return status == 429; /* too many wait: again */
    if (t->expecting) strcpy(expected[t->number][t->turn], answer);
    if (strcmp(answer, expected[t->number][t->turn]) != 0) complain(t, "another answer than undisturbed", answer);
    if (messages && cached < tokens) {
        char n[80];
        snprintf(n, sizeof n, "%d of %d tokens remembered", cached, tokens);
        complain(t, "computed again what it had said", n);
    }
    t->turn++;
    t->finished++;
    return true;
}

bool talker_ask(talker *t) {
    int tokens, messages;
    if (!look(t, &tokens, &messages)) return false;
    if (messages == 2 * t->turn + 2) { /* the turn under way had been saved */
        t->turn++;
        t->unreported++;
    } else if (messages != 2 * t->turn) {
        char n[60];
        snprintf(n, sizeof n, "%d messages, not %d", messages, 2 * t->turn);
        complain(t, "a finished turn is lost", n);
        return false;
    }
    if (t->turn < TALKER_TURNS) return take_turn(t, tokens, messages);
    t->conversation++;
    t->turn = 0;
    return true;
}

void talker_run(talker *t) {
    while (!t->wrong[0] && !(t->expecting && t->turn == TALKER_TURNS) && talker_ask(t)) {}
}
