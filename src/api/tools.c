/* tools.c: finds tool calls in what a model writes, while it writes. Two ways of writing are known: <tool_call>{...}</tool_call> (Hermes, Qwen and many
 * others), and an answer that is nothing but one JSON object (Llama 3). A call that begins with its name is told as soon as the name is there, its arguments
 * as they come; one in another order is told when it is complete. What only looks like a call is given out as text. */
#include <string.h>

#include "api/inner.h"

static const char OPEN[] = "<tool_call>", CLOSE[] = "</tool_call>";
/* A call that never ends is text. */
enum { LONGEST_CALL = 1 << 20 };

/* PLAIN: text. HEAD: held is a call, from its '{', that may turn out to be none. ARGUMENTS: between the call's arguments' braces. TAIL: after them, up to the call's
 * own brace. AFTER: the closing tag may follow. */
typedef enum state { PLAIN, HEAD, ARGUMENTS, TAIL, AFTER } state;

struct tool_parser {
    state state;
    bool begun;   /* text or a call was given out: a bare object is no call any more */
    bool bare;    /* this call has no tags */
    int calls;
    buf held;
    int depth;    /* of braces and brackets in ARGUMENTS and TAIL */
    bool in_string, escaped;
    tool_sink *sink;
    void *user;
};

tool_parser *tool_parser_new(bool bare_json, err *e) {
    tool_parser *p = mem_zalloc(1, sizeof *p, e);
    if (p) p->begun = !bare_json;
    return p;
}

void tool_parser_free(tool_parser *p) {
    if (!p) return;
    buf_free(&p->held);
    mem_free(p);
}

int tool_parser_calls(const tool_parser *p) { return p->calls; }

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

static void consume(tool_parser *p, size_t n) {
    memmove(p->held.data, p->held.data + n, p->held.len - n + 1);
    p->held.len -= n;
}

/* Gives out the first n held bytes. */
static bool give(tool_parser *p, tool_event_kind kind, size_t n, err *e) {
    if (n == 0) return true;
    char next = p->held.data[n];
    p->held.data[n] = 0;
    bool ok = p->sink(p->user, &(tool_event){.kind = kind, .text = p->held.data, .len = n, .index = p->calls - 1});
    p->held.data[n] = next;
    consume(p, n);
    return ok || err_nomem(e, n);
}

static bool begin_call(tool_parser *p, const char *name, err *e) {
    p->begun = true;
    p->calls++;
    return p->sink(p->user, &(tool_event){.kind = TOOL_CALL, .index = p->calls - 1, .name = name, .text = ""}) || err_nomem(e, 0);
}

static bool end_call(tool_parser *p, err *e) {
    return p->sink(p->user, &(tool_event){.kind = TOOL_CALL_END, .index = p->calls - 1, .text = ""}) || err_nomem(e, 0);
}

/* Tells of the complete call that these bytes are; *is_call is false when they are none. */
static bool give_call(tool_parser *p, const char *text, size_t len, bool *is_call, err *e) {
    json_t *call = json_loadb(text, len, JSON_ALLOW_NUL, NULL);
    const json_t *name = json_object_get(call, "name");
    json_t *arguments = json_object_get(call, "arguments");
    if (!arguments) arguments = json_object_get(call, "parameters");
    *is_call = json_is_string(name) && (!arguments || json_is_object(arguments));
    bool ok = true;
    if (*is_call) {
        char *dumped = arguments ? json_dumps(arguments, JSON_COMPACT) : strdup("{}");
        ok = dumped ? begin_call(p, json_string_value(name), e) : err_nomem(e, len);
        ok = ok && (p->sink(p->user, &(tool_event){.kind = TOOL_ARGUMENTS, .text = dumped, .len = strlen(dumped), .index = p->calls - 1}) || err_nomem(e, len));
        ok = ok && end_call(p, e);
        free(dumped);
    }
    json_decref(call);
    return ok;
}

/* ---- the head of a call: {"name": "...", "arguments": { ---- */

typedef enum match { MATCH, NO_MATCH, NEED_MORE } match;

static void skip_space(const char *text, size_t len, size_t *at) {
    while (*at < len && is_space(text[*at])) (*at)++;
}

static match match_char(const char *text, size_t len, size_t *at, char c) {
    skip_space(text, len, at);
    if (*at == len) return NEED_MORE;
    return text[(*at)++] == c ? MATCH : NO_MATCH;
}

/* A JSON string; *start and *end are its quotes. */
static match match_string(const char *text, size_t len, size_t *at, size_t *start, size_t *end) {
    match m = match_char(text, len, at, '"');
    if (m != MATCH) return m;
    *start = *at - 1;
    for (; *at < len; (*at)++) {
        if (text[*at] == '\\') (*at)++;
        else if (text[*at] == '"') return *end = (*at)++, MATCH;
    }
    return NEED_MORE;
}

static bool is_key(const char *text, size_t start, size_t end, const char *key) { return end - start - 1 == strlen(key) && memcmp(text + start + 1, key, strlen(key)) == 0; }

/* How far the held bytes are such a head. *name is set on a match, the caller frees it; *at is then the place of the arguments' brace. *hopeless: the object is none
 * that a call could be, in whatever order. */
static match match_head(const char *text, size_t len, size_t *at, json_t **name, bool *hopeless) {
    static const char *const keys[] = {"name", "arguments", "parameters", "type", "id"};
    size_t start = 0, end = 0, n_start = 0, n_end = 0;
    match m;
    *at = 0;
    *hopeless = false;
    if ((m = match_char(text, len, at, '{')) != MATCH) return m;
    if ((m = match_string(text, len, at, &start, &end)) != MATCH) return *hopeless = m == NO_MATCH, m;
    bool known = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) known |= is_key(text, start, end, keys[i]);
    *hopeless = !known;
    if (!is_key(text, start, end, "name")) return NO_MATCH;
    if ((m = match_char(text, len, at, ':')) != MATCH || (m = match_string(text, len, at, &n_start, &n_end)) != MATCH) return m;
    if ((m = match_char(text, len, at, ',')) != MATCH || (m = match_string(text, len, at, &start, &end)) != MATCH) return m;
    if (!is_key(text, start, end, "arguments") && !is_key(text, start, end, "parameters")) return NO_MATCH;
    if ((m = match_char(text, len, at, ':')) != MATCH || (m = match_char(text, len, at, '{')) != MATCH) return m;
    (*at)--;
    *name = json_loadb(text + n_start, n_end - n_start + 1, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    return *name ? MATCH : NO_MATCH;
}

/* ---- steps: each sets *more when another may follow ---- */

/* How many bytes at the end of the held ones may still become the tag, or are white space before it. */
static size_t maybe_tag(const tool_parser *p) {
    size_t most = strlen(OPEN) - 1, n = p->held.len;
    size_t keep = 0;
    for (size_t k = n < most ? n : most; k > 0 && keep == 0; k--)
        if (memcmp(p->held.data + n - k, OPEN, k) == 0) keep = k;
    while (keep < n && is_space(p->held.data[n - keep - 1])) keep++;
    return keep;
}

static bool step_plain(tool_parser *p, bool *more, err *e) {
    size_t first = 0;
    if (!p->begun) {
        skip_space(p->held.data, p->held.len, &first);
        if (first == p->held.len) return true;
        if (p->held.data[first] == '{') {
            p->bare = *more = true;
            p->state = HEAD;
            return true;
        }
    }
    const char *tag = memmem(p->held.data, p->held.len, OPEN, strlen(OPEN));
    size_t n = tag ? (size_t)(tag - p->held.data) : p->held.len - maybe_tag(p);
    while (tag && n > 0 && is_space(p->held.data[n - 1])) n--;
    if (n > 0) p->begun = true;
    if (!give(p, TOOL_TEXT, n, e)) return false;
    if (!tag) return true;
    p->bare = false;
    p->state = HEAD;
    *more = true;
    return true;
}

/* What seemed to be a call is text after all: n bytes of it, to begin with. */
static bool give_up(tool_parser *p, size_t n, bool *more, err *e) {
    p->state = PLAIN;
    p->begun = *more = true;
    return give(p, TOOL_TEXT, n, e);
}

/* The bytes before the object: white space and, unless it is bare, the tag. */
static size_t head_start(const tool_parser *p) {
    size_t at = 0;
    skip_space(p->held.data, p->held.len, &at);
    return p->bare ? 0 : at + strlen(OPEN);
}

static bool step_head(tool_parser *p, bool *more, err *e) {
    size_t start = head_start(p), at;
    const char *text = p->held.data + start;
    size_t len = p->held.len - start;
    json_t *name = NULL;
    bool hopeless;
    match m = match_head(text, len, &at, &name, &hopeless);
    const char *close = p->bare ? NULL : memmem(text, len, CLOSE, strlen(CLOSE));
    if (m == MATCH && close && close < text + at) { /* the call ended before */
        json_decref(name);
        m = NO_MATCH;
    }
    if (m == MATCH) {
        bool ok = begin_call(p, json_string_value(name), e);
        json_decref(name);
        consume(p, start + at);
        p->state = ARGUMENTS;
        p->depth = 0;
        p->in_string = p->escaped = false;
        *more = true;
        return ok;
    }
    if ((p->bare && hopeless) || p->held.len >= LONGEST_CALL) return give_up(p, start, more, e); /* there may be a call further on */
    if (!close) return true;
    size_t used = (size_t)(close + strlen(CLOSE) - p->held.data);
    bool is_call = false;
    if (!give_call(p, text, (size_t)(close - text), &is_call, e)) return false;
    if (!is_call) return give_up(p, used, more, e);
    consume(p, used);
    p->state = PLAIN;
    *more = true;
    return true;
}

/* Scans on until depth falls to zero; returns how many bytes belong to the value. *done tells whether it ended. */
static size_t scan(tool_parser *p, bool *done) {
    for (size_t i = 0; i < p->held.len; i++) {
        char c = p->held.data[i];
        if (p->in_string) {
            if (p->escaped) p->escaped = false;
            else if (c == '\\') p->escaped = true;
            else if (c == '"') p->in_string = false;
        } else if (c == '"') {
            p->in_string = true;
        } else if (c == '{' || c == '[') {
            p->depth++;
        } else if ((c == '}' || c == ']') && --p->depth == 0) {
            *done = true;
            return i + 1;
        }
    }
    return p->held.len;
}

static bool step_arguments(tool_parser *p, bool *more, err *e) {
    bool done = false;
    size_t n = scan(p, &done);
    if (!give(p, TOOL_ARGUMENTS, n, e)) return false;
    if (!done) return true;
    p->state = TAIL;
    p->depth = 1;
    *more = true;
    return end_call(p, e);
}

static bool step_tail(tool_parser *p, bool *more) {
    bool done = false;
    consume(p, scan(p, &done));
    if (done) p->state = AFTER, *more = true;
    return true;
}

static bool step_after(tool_parser *p, bool *more) {
    size_t at = 0, n = strlen(CLOSE);
    skip_space(p->held.data, p->held.len, &at);
    size_t left = p->held.len - at;
    if (left < n && memcmp(p->held.data + at, CLOSE, left) == 0) return true; /* nothing, or the beginning of it */
    if (left >= n && memcmp(p->held.data + at, CLOSE, n) == 0) consume(p, at + n);
    p->state = PLAIN;
    *more = true;
    return true;
}

static bool steps(tool_parser *p, err *e) {
    for (bool more = true; more && p->held.len > 0;) {
        more = false;
        bool ok = true;
        switch (p->state) {
        case PLAIN: ok = step_plain(p, &more, e); break;
        case HEAD: ok = step_head(p, &more, e); break;
        case ARGUMENTS: ok = step_arguments(p, &more, e); break;
        case TAIL: ok = step_tail(p, &more); break;
        case AFTER: ok = step_after(p, &more); break;
        }
        if (!ok) return false;
    }
    return true;
}

bool tool_parser_add(tool_parser *p, const char *text, size_t len, tool_sink *sink, void *user, err *e) {
    p->sink = sink;
    p->user = user;
    return buf_add(&p->held, text, len, e) && steps(p, e);
}

bool tool_parser_end(tool_parser *p, tool_sink *sink, void *user, err *e) {
    p->sink = sink;
    p->user = user;
    if (p->state == ARGUMENTS) return end_call(p, e); /* the answer was cut off */
    if (p->state == TAIL || p->state == AFTER) return true;
    if (p->state == HEAD) { /* some models leave the closing tag to the end of the answer */
        size_t start = head_start(p);
        bool is_call = false;
        if (!give_call(p, p->held.data + start, p->held.len - start, &is_call, e)) return false;
        if (is_call) return true;
    }
    return give(p, TOOL_TEXT, p->held.len, e);
}
