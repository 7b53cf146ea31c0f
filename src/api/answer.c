/* answer.c: what a model writes, cut into thoughts, text and tool calls while it comes. How thoughts are marked is found in the chat template, from a table of
 * marker pairs; models that write in channels (gpt-oss) say with each message what it is. */
#include <string.h>

#include "api/inner.h"

/* Templates that contain either marker are of the kind. The first that fits is taken. */
struct thinking {
    const char *open, *close;
    bool channels;               /* messages with headers: open is how a header begins */
    const char *const *markers;  /* what must be seen of control tokens, NULL-terminated */
    const char *reply, *reply_end; /* around the answer that follows the thoughts; or NULL */
};

static const char *const channel_markers[] = {"<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>", NULL};
static const thinking kinds[] = {
    {"<|channel|>", "<|message|>", true, channel_markers, NULL, NULL}, /* gpt-oss */
    {"<think>", "</think>", false, NULL, "<response>", "</response>"}, /* Granite */
    {"<think>", "</think>", false, NULL, NULL, NULL},                  /* DeepSeek, Qwen and many others */
    {"[THINK]", "[/THINK]", false, NULL, NULL, NULL},                  /* Mistral */
    {"<|START_THINKING|>", "<|END_THINKING|>", false, NULL, NULL, NULL}, /* Cohere */
    {"<seed:think>", "</seed:think>", false, NULL, NULL, NULL},
    {"<thought>", "</thought>", false, NULL, NULL, NULL},
    {"<thinking>", "</thinking>", false, NULL, NULL, NULL},
    {"<reasoning>", "</reasoning>", false, NULL, NULL, NULL},
};

const thinking *thinking_find(const char *template) {
    for (size_t i = 0; template && i < sizeof kinds / sizeof *kinds; i++) {
        bool open = strstr(template, kinds[i].open) != NULL, close = strstr(template, kinds[i].close) != NULL;
        if (kinds[i].reply && !strstr(template, kinds[i].reply)) continue;
        if (kinds[i].channels ? open && close : open || close) return &kinds[i];
    }
    return NULL;
}

static int32_t one_token(const hearth_engine *engine, const char *text) {
    int32_t id;
    return hearth_tokenize(engine, text, strlen(text), HEARTH_PARSE_SPECIAL, &id, 1, NULL) == 1 ? id : HEARTH_TOKEN_NONE;
}

/* The token that this text is when it is one that is not shown unless asked for. */
static int32_t hidden_token(const hearth_engine *engine, const char *text) {
    int32_t id = one_token(engine, text);
    size_t len = 0;
    return id >= 0 && hearth_token_bytes(engine, id, false, &len) && len == 0 ? id : HEARTH_TOKEN_NONE;
}

int thinking_tokens(const thinking *k, const hearth_engine *engine, int32_t *out, int cap) {
    const char *const pair[] = {k ? k->open : NULL, k ? k->close : NULL, NULL};
    int n = 0;
    for (const char *const *m = k && k->markers ? k->markers : pair; *m && n < cap; m++) {
        int32_t id = hidden_token(engine, *m);
        if (id != HEARTH_TOKEN_NONE) out[n++] = id;
    }
    return n;
}

loop_thoughts thinking_bound(const thinking *k, const hearth_engine *engine) {
    loop_thoughts h = {.open = HEARTH_TOKEN_NONE, .end = HEARTH_TOKEN_NONE};
    if (!k) return h;
    h.open = one_token(engine, k->channels ? "analysis" : k->open);
    h.end = one_token(engine, k->channels ? "<|end|>" : k->close);
    /* In channels the next message is the answer. */
    char text[96];
    if (k->channels) snprintf(text, sizeof text, "<|end|><|start|>assistant<|channel|>final<|message|>");
    else snprintf(text, sizeof text, "\n%s\n\n", k->close);
    int64_t n = hearth_tokenize(engine, text, strlen(text), HEARTH_PARSE_SPECIAL, h.close, LOOP_CLOSE, NULL);
    if (h.end != HEARTH_TOKEN_NONE && n <= LOOP_CLOSE) h.n_close = (int)n;
    return h;
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

bool thinking_is_open(const thinking *k, const char *prompt, size_t len) {
    if (!k || k->channels) return false;
    while (len > 0 && is_space(prompt[len - 1])) len--;
    size_t n = strlen(k->open);
    return len >= n && memcmp(prompt + len - n, k->open, n) == 0;
}

const char *thinking_close(const thinking *k) { return k->close; }

bool thinking_variables(const api *a, json_t *variables, const char *effort, int wish) {
    const char *template = a->info.chat_template ? a->info.chat_template : "";
    const bool levels = strstr(template, "reasoning_effort") != NULL, has_switch = strstr(template, "thinking") != NULL, none = effort && strcmp(effort, "none") == 0;
    /* An effort needs levels, or thoughts that can at least be had or not. */
    if (effort && !none && !levels && (wish == 0 || !a->thinks)) return false;
    if (effort && wish < 0) wish = !none;
    /* One who never thinks cannot be told to do so; one who always does, not to. */
    if ((wish == 1 && !a->thinks && !levels) || (wish == 0 && a->thinks && !has_switch)) return false;
    if (effort && !none && levels) json_object_set_new(variables, "reasoning_effort", json_string(effort));
    if (wish < 0) return true;
    /* The two names in use for the switch. */
    json_object_set_new(variables, "enable_thinking", json_boolean(wish));
    json_object_set_new(variables, "thinking", json_boolean(wish));
    return true;
}

/* ---- the parser ---- */

/* BEFORE: nothing but white space came. THOUGHT: between the markers, or in a message that is one. BETWEEN: white space after the thoughts. BODY: the answer, or a
 * message of it. HEADER: of a message in a channel. CALL: a message that is a call. OVER: nothing more is wanted. */
typedef enum state { BEFORE, THOUGHT, BETWEEN, BODY, HEADER, CALL, OVER } state;

struct answer {
    const thinking *kind; /* or NULL */
    tool_parser *tools;   /* or NULL */
    state state;
    bool started;         /* THOUGHT: something was given out of it */
    bool wrapped;         /* BODY: the answer has markers of its own */
    int calls;            /* in channels */
    buf held, thoughts;
    tool_sink *sink;
    void *user;
};

answer *answer_new(const thinking *kind, bool in_thought, bool tools, err *e) {
    answer *a = mem_zalloc(1, sizeof *a, e);
    if (!a) return NULL;
    a->kind = kind;
    a->state = !kind ? BODY : in_thought ? THOUGHT : BEFORE;
    if (tools && !(a->tools = tool_parser_new(true, e))) {
        mem_free(a);
        return NULL;
    }
    return a;
}

void answer_free(answer *a) {
    if (!a) return;
    tool_parser_free(a->tools);
    buf_free(&a->held);
    buf_free(&a->thoughts);
    mem_free(a);
}

int answer_thought_tokens(const answer *a, const hearth_engine *engine) {
    int32_t none;
    if (!a || a->thoughts.len == 0) return 0;
    int64_t n = hearth_tokenize(engine, a->thoughts.data, a->thoughts.len, 0, &none, 0, NULL);
    return n > 0 ? (int)n : 0;
}

int answer_calls(const answer *a) { return a->calls + (a->tools ? tool_parser_calls(a->tools) : 0); }

static void consume(answer *a, size_t n) {
    memmove(a->held.data, a->held.data + n, a->held.len - n + 1);
    a->held.len -= n;
}

static bool tell(answer *a, tool_event_kind kind, const char *text, size_t len, const char *name, err *e) {
    return a->sink(a->user, &(tool_event){.kind = kind, .text = text, .len = len, .index = a->calls - 1, .name = name}) || err_nomem(e, len);
}

/* Gives out the first n held bytes as what the state says that they are. */
static bool give(answer *a, size_t n, err *e) {
    if (n == 0) return true;
    char next = a->held.data[n];
    a->held.data[n] = 0;
    bool ok;
    if (a->state == THOUGHT) ok = buf_add(&a->thoughts, a->held.data, n, e) && tell(a, TOOL_THOUGHT, a->held.data, n, NULL, e);
    else if (a->state == CALL) ok = tell(a, TOOL_ARGUMENTS, a->held.data, n, NULL, e);
    else if (a->tools && !(a->kind && a->kind->channels)) ok = tool_parser_add(a->tools, a->held.data, n, a->sink, a->user, e);
    else ok = tell(a, TOOL_TEXT, a->held.data, n, NULL, e);
    a->held.data[n] = next;
    a->started = true;
    consume(a, n);
    return ok;
}

/* How many bytes at the end may still become the marker, with the white space before them when asked for. */
static size_t maybe(const buf *b, const char *marker, bool space) {
    size_t most = strlen(marker) - 1, keep = 0;
    for (size_t k = b->len < most ? b->len : most; k > 0 && keep == 0; k--)
        if (memcmp(b->data + b->len - k, marker, k) == 0) keep = k;
    while (space && keep < b->len && is_space(b->data[b->len - keep - 1])) keep++;
    return keep;
}

static void skip_space(answer *a) {
    size_t n = 0;
    while (n < a->held.len && is_space(a->held.data[n])) n++;
    consume(a, n);
}

/* ---- markers around the thoughts ---- */

static bool step_before(answer *a, bool *more) {
    size_t space = 0, n = strlen(a->kind->open);
    while (space < a->held.len && is_space(a->held.data[space])) space++;
    size_t left = a->held.len - space;
    if (left < n && memcmp(a->held.data + space, a->kind->open, left) == 0) return true;
    bool thinks = left >= n && memcmp(a->held.data + space, a->kind->open, n) == 0;
    if (thinks) consume(a, space + n);
    a->state = thinks ? THOUGHT : BODY;
    a->started = false;
    *more = true;
    return true;
}

static bool step_thought(answer *a, const char *end, bool *more, err *e) {
    if (!a->started) skip_space(a);
    const char *found = memmem(a->held.data, a->held.len, end, strlen(end));
    size_t n = found ? (size_t)(found - a->held.data) : a->held.len - maybe(&a->held, end, true), marker = n;
    while (found && n > 0 && is_space(a->held.data[n - 1])) n--;
    marker -= n;
    if (!give(a, n, e)) return false;
    if (!found) return true;
    consume(a, marker + strlen(end));
    a->state = BETWEEN;
    *more = true;
    return true;
}

/* Looks for the marker that some put before the answer. */
static bool step_between(answer *a, bool *more) {
    const char *mark = a->kind->reply;
    skip_space(a);
    if (a->held.len == 0) return true;
    size_t n = mark ? strlen(mark) : 0, same = n < a->held.len ? n : a->held.len;
    bool begins = mark && memcmp(a->held.data, mark, same) == 0;
    if (begins && same < n) return true;
    if (begins) consume(a, n);
    a->wrapped = begins;
    a->state = BODY;
    *more = true;
    return true;
}

/* The answer, up to its own marker; nothing is after that. */
static bool step_wrapped(answer *a, err *e) {
    const char *end = a->kind->reply_end, *found = memmem(a->held.data, a->held.len, end, strlen(end));
    if (!found) return give(a, a->held.len - maybe(&a->held, end, false), e);
    size_t n = (size_t)(found - a->held.data);
    if (n > 0 && !give(a, n, e)) return false;
    a->held.len = 0;
    a->state = OVER;
    return true;
}

/* ---- channels: <|start|>assistant<|channel|>NAME to=functions.TOOL<|message|>...<|end|> ---- */

static bool step_header(answer *a, bool *more, err *e) {
    static const char message[] = "<|message|>", call[] = "to=functions.";
    const char *end = memmem(a->held.data, a->held.len, message, strlen(message));
    if (!end) return true;
    size_t len = (size_t)(end - a->held.data);
    const char *name = memmem(a->held.data, len, call, strlen(call));
    bool thought = memmem(a->held.data, len, "analysis", 8) != NULL;
    a->state = name ? CALL : thought ? THOUGHT : BODY;
    a->started = false;
    bool ok = true;
    if (name) {
        char text[128];
        size_t n = 0;
        for (name += strlen(call); name + n < end && n < sizeof text - 1 && !is_space(name[n]) && name[n] != '<'; n++) text[n] = name[n];
        text[n] = 0;
        a->calls++;
        ok = tell(a, TOOL_CALL, "", 0, text, e);
    }
    consume(a, len + strlen(message));
    *more = true;
    return ok;
}

static bool step_message(answer *a, bool *more, err *e) {
    static const char end[] = "<|end|>";
    const char *found = memmem(a->held.data, a->held.len, end, strlen(end));
    size_t n = found ? (size_t)(found - a->held.data) : a->held.len - maybe(&a->held, end, false);
    if (!give(a, n, e)) return false;
    if (!found) return true;
    if (a->state == CALL && !tell(a, TOOL_CALL_END, "", 0, NULL, e)) return false;
    consume(a, strlen(end));
    a->state = HEADER;
    *more = true;
    return true;
}

/* An answer in channels begins with a header; one that does not is text. */
static bool step_first(answer *a, bool *more) {
    size_t n = a->held.len < 2 ? a->held.len : 2;
    if (memcmp(a->held.data, "<|", n) != 0) a->state = BODY, a->kind = NULL, *more = true;
    else if (n == 2) a->state = HEADER, *more = true;
    return true;
}

static bool steps(answer *a, err *e) {
    for (bool more = true; more && a->held.len > 0;) {
        const bool channels = a->kind && a->kind->channels;
        bool ok = true;
        more = false;
        switch (a->state) {
        case BEFORE: ok = channels ? step_first(a, &more) : step_before(a, &more); break;
        case THOUGHT: ok = channels ? step_message(a, &more, e) : step_thought(a, a->kind->close, &more, e); break;
        case BETWEEN: ok = step_between(a, &more); break;
        case BODY: ok = channels ? step_message(a, &more, e) : a->wrapped ? step_wrapped(a, e) : give(a, a->held.len, e); break;
        case OVER: a->held.len = 0; break;
        case HEADER: ok = step_header(a, &more, e); break;
        case CALL: ok = step_message(a, &more, e); break;
        }
        if (!ok) return false;
    }
    return true;
}

bool answer_add(answer *a, const char *text, size_t len, tool_sink *sink, void *user, err *e) {
    a->sink = sink;
    a->user = user;
    return buf_add(&a->held, text, len, e) && steps(a, e);
}

bool answer_end(answer *a, tool_sink *sink, void *user, err *e) {
    a->sink = sink;
    a->user = user;
    if (a->state == BEFORE) a->state = BODY;
    if (a->state == BETWEEN) a->state = BODY; /* the beginning of a marker, no more */
    if (a->state == HEADER || a->state == OVER) a->held.len = 0;
    while (a->state == THOUGHT && a->held.len > 0 && is_space(a->held.data[a->held.len - 1])) a->held.len--;
    if (!give(a, a->held.len, e)) return false;
    if (a->state == CALL && !tell(a, TOOL_CALL_END, "", 0, NULL, e)) return false;
    return !a->tools || tool_parser_end(a->tools, sink, user, e);
}

/* ---- a whole answer ---- */

json_t *call_json(const char *calls, int index, const char *name, const char *arguments) {
    char id[120];
    snprintf(id, sizeof id, "%s_%d", calls, index);
    return json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id, "type", "function", "function", "name", name, "arguments", text_json(arguments, strlen(arguments)));
}

typedef struct whole {
    const char *ids;
    bool one_call;
    buf text, thoughts, name, arguments;
    json_t *calls; /* or NULL */
} whole;

static bool add_whole(void *user, const tool_event *e) {
    whole *w = user;
    switch (e->kind) {
    case TOOL_THOUGHT: return buf_add(&w->thoughts, e->text, e->len, NULL);
    case TOOL_TEXT: return buf_add(&w->text, e->text, e->len, NULL);
    case TOOL_CALL:
        w->name.len = w->arguments.len = 0;
        return buf_adds(&w->name, e->name, NULL) && buf_adds(&w->arguments, "", NULL);
    case TOOL_ARGUMENTS: return buf_add(&w->arguments, e->text, e->len, NULL);
    case TOOL_CALL_END: break;
    }
    if (e->index > 0 && w->one_call) return true;
    if (!w->calls) w->calls = json_array();
    return json_array_append_new(w->calls, call_json(w->ids, e->index, w->name.data, w->arguments.data)) == 0;
}

json_t *answer_message(answer *a, const char *text, size_t len, const char *calls, bool one_call, err *e) {
    whole w = {.ids = calls, .one_call = one_call};
    json_t *message = NULL;
    if (answer_add(a, text, len, add_whole, &w, e) && answer_end(a, add_whole, &w, e)) {
        json_t *content = w.text.len || !w.calls ? text_json(w.text.data ? w.text.data : "", w.text.len) : json_null();
        message = json_pack("{s:s, s:o}", "role", "assistant", "content", content);
        if (w.thoughts.len) json_object_set_new(message, "reasoning_content", text_json(w.thoughts.data, w.thoughts.len));
        if (w.calls) json_object_set(message, "tool_calls", w.calls);
    }
    json_decref(w.calls);
    buf_free(&w.text);
    buf_free(&w.thoughts);
    buf_free(&w.name);
    buf_free(&w.arguments);
    return message;
}
