/* tools.c: finds tool calls in what a model writes, while it writes. Two ways of writing are known: <tool_call>{...}</tool_call> (Hermes, Qwen and many
 * others), and an answer that is nothing but one JSON object (Llama 3). What only looks like a call is given out as text. */
#include <string.h>

#include "api/inner.h"

static const char OPEN[] = "<tool_call>", CLOSE[] = "</tool_call>";
/* A call that never ends is text. */
enum { LONGEST_CALL = 1 << 20 };

struct tool_parser {
    bool bare_json, begun, in_call;
    int calls;
    buf held;
};

tool_parser *tool_parser_new(bool bare_json, err *e) {
    tool_parser *p = mem_zalloc(1, sizeof *p, e);
    if (p) p->bare_json = bare_json;
    return p;
}

void tool_parser_free(tool_parser *p) {
    if (!p) return;
    buf_free(&p->held);
    mem_free(p);
}

int tool_parser_calls(const tool_parser *p) { return p->calls; }

/* Gives out the first n held bytes as text. */
static bool give_text(tool_parser *p, size_t n, tool_sink *sink, void *user, err *e) {
    if (n == 0) return true;
    char next = p->held.data[n];
    p->held.data[n] = 0;
    bool ok = sink(user, &(tool_event){.kind = TOOL_TEXT, .text = p->held.data, .len = n});
    p->held.data[n] = next;
    memmove(p->held.data, p->held.data + n, p->held.len - n + 1);
    p->held.len -= n;
    return ok || err_nomem(e, n);
}

/* Tells of the call that these bytes are; *is_call is false when they are none. */
static bool give_call(tool_parser *p, const char *text, size_t len, tool_sink *sink, void *user, bool *is_call, err *e) {
    json_t *call = json_loadb(text, len, JSON_ALLOW_NUL, NULL);
    const json_t *name = json_object_get(call, "name");
    json_t *arguments = json_object_get(call, "arguments");
    if (!arguments) arguments = json_object_get(call, "parameters");
    *is_call = json_is_string(name) && (!arguments || json_is_object(arguments));
    bool ok = true;
    if (*is_call) {
        char *dumped = arguments ? json_dumps(arguments, JSON_COMPACT) : strdup("{}");
        ok = dumped && sink(user, &(tool_event){.kind = TOOL_CALL, .index = p->calls, .name = json_string_value(name), .arguments = dumped});
        p->calls++;
        free(dumped);
    }
    json_decref(call);
    return ok || err_nomem(e, len);
}

/* How many bytes at the end of the held ones may still become the tag, or are white space before it. */
static size_t maybe_tag(const tool_parser *p) {
    size_t most = strlen(OPEN) - 1, n = p->held.len;
    size_t keep = 0;
    for (size_t k = n < most ? n : most; k > 0 && keep == 0; k--)
        if (memcmp(p->held.data + n - k, OPEN, k) == 0) keep = k;
    while (keep < n && strchr(" \t\r\n", p->held.data[n - keep - 1])) keep++;
    return keep;
}

/* One step; *more when another may follow. */
static bool step(tool_parser *p, tool_sink *sink, void *user, bool *more, err *e) {
    *more = false;
    if (p->held.len == 0) return true;
    if (!p->in_call) {
        const char *tag = memmem(p->held.data, p->held.len, OPEN, strlen(OPEN));
        size_t n = tag ? (size_t)(tag - p->held.data) : p->held.len - maybe_tag(p);
        while (tag && n > 0 && strchr(" \t\r\n", p->held.data[n - 1])) n--;
        p->in_call = *more = tag != NULL;
        return give_text(p, n, sink, user, e);
    }
    const char *open = memmem(p->held.data, p->held.len, OPEN, strlen(OPEN));
    const char *json = open + strlen(OPEN), *end = memmem(json, (size_t)(p->held.data + p->held.len - json), CLOSE, strlen(CLOSE));
    if (!end && p->held.len < LONGEST_CALL) return true;
    bool is_call = false;
    if (end && !give_call(p, json, (size_t)(end - json), sink, user, &is_call, e)) return false;
    size_t used = end ? (size_t)(end + strlen(CLOSE) - p->held.data) : p->held.len;
    p->in_call = false;
    *more = true;
    if (!is_call) return give_text(p, used, sink, user, e);
    memmove(p->held.data, p->held.data + used, p->held.len - used + 1);
    p->held.len -= used;
    return true;
}

/* Whether the answer so far is, or may become, one bare object. */
static bool is_bare(tool_parser *p) {
    if (!p->bare_json || p->begun) return false;
    size_t i = 0;
    while (i < p->held.len && strchr(" \t\r\n", p->held.data[i])) i++;
    return i == p->held.len || (p->held.data[i] == '{' && p->held.len < LONGEST_CALL);
}

bool tool_parser_add(tool_parser *p, const char *text, size_t len, tool_sink *sink, void *user, err *e) {
    if (!buf_add(&p->held, text, len, e)) return false;
    if (is_bare(p)) return true;
    p->begun = true;
    for (bool more = true; more;)
        if (!step(p, sink, user, &more, e)) return false;
    return true;
}

bool tool_parser_end(tool_parser *p, tool_sink *sink, void *user, err *e) {
    bool is_call = false;
    if (is_bare(p) && p->held.len && !give_call(p, p->held.data, p->held.len, sink, user, &is_call, e)) return false;
    /* Some models leave the closing tag to the end of the answer. */
    if (p->in_call) {
        const char *json = (const char *)memmem(p->held.data, p->held.len, OPEN, strlen(OPEN)) + strlen(OPEN);
        if (!give_call(p, json, (size_t)(p->held.data + p->held.len - json), sink, user, &is_call, e)) return false;
    }
    if (is_call) p->held.len = 0;
    return p->held.len == 0 || give_text(p, p->held.len, sink, user, e);
}
