/* blocks.c: Anthropic's conversations, whose messages are lists of blocks, as chat templates want them. */
#include <string.h>

#include "api/inner.h"

static const char *type_of(const json_t *block) {
    const char *type = json_string_value(json_object_get(block, "type"));
    return type ? type : "";
}

bool cache_control_is_fine(const json_t *v, const char *where, refusal *f) {
    const char *type = NULL, *ttl = "5m";
    const field table[] = {{"type", FIELD_TEXT, &type, 0, 0, NULL}, {"ttl", FIELD_TEXT, &ttl, 0, 0, NULL}, {NULL, FIELD_BOOL, NULL, 0, 0, NULL}};
    if (!json_is_object(v) || !fields_read(v, table, NULL, f)) return f->e.code ? false : refuse(f, "", "%s: must be an object", where);
    if (!type || strcmp(type, "ephemeral") != 0) return refuse(f, "", "%s.type: must be 'ephemeral'", where);
    return strcmp(ttl, "5m") == 0 || strcmp(ttl, "1h") == 0 || refuse(f, "", "%s.ttl: must be '5m' or '1h'", where);
}

/* Whether any of these blocks has one. */
static bool has_cache_control(const json_t *blocks, const char *where, refusal *f) {
    bool found = false;
    for (size_t i = 0; json_is_array(blocks) && i < json_array_size(blocks) && f->e.code == HEARTH_OK; i++) {
        const json_t *v = json_object_get(json_array_get(blocks, i), "cache_control");
        if (!v || json_is_null(v)) continue;
        char place[64];
        snprintf(place, sizeof place, "%s.%zu.cache_control", where, i);
        found |= cache_control_is_fine(v, place, f);
    }
    return found;
}

size_t cache_control_messages(const json_t *messages, const json_t *system, const json_t *tools, bool *head, refusal *f) {
    size_t last = 0;
    *head = has_cache_control(tools, "tools", f) | has_cache_control(system, "system", f);
    for (size_t i = 0; i < json_array_size(messages); i++) {
        char where[48];
        snprintf(where, sizeof where, "messages.%zu.content", i);
        if (has_cache_control(json_object_get(json_array_get(messages, i), "content"), where, f)) last = i + 1;
    }
    return last;
}

/* Refuses what a block has beyond these, a NULL-terminated list. */
static bool only(const json_t *block, const char *const *known, const char *where, refusal *f) {
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)block, name, v) {
        bool fine = json_is_null(v);
        for (const char *const *k = known; *k && !fine; k++) fine = strcmp(*k, name) == 0;
        if (!fine) return refuse(f, "", "%s.%.40s: Extra inputs are not permitted", where, name);
    }
    return true;
}
static const char *const text_fields[] = {"type", "text", "cache_control", NULL};
static const char *const result_fields[] = {"type", "tool_use_id", "content", "is_error", "cache_control", NULL};
static const char *const use_fields[] = {"type", "id", "name", "input", "cache_control", "caller", NULL};
static const char *const thought_fields[] = {"type", "thinking", "signature", NULL};
static const char *const tool_fields[] = {"type", "name", "description", "input_schema", "cache_control", "strict", "input_examples", "eager_input_streaming", NULL};

/* Appends a string, or the text blocks of an array. */
static bool add_text(const json_t *content, const char *where, buf *out, refusal *f) {
    if (json_is_string(content)) return buf_add(out, json_string_value(content), json_string_length(content), &f->e);
    if (!json_is_array(content)) return refuse(f, "", "%s: must be a string or an array of text blocks.", where);
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i), *text = json_object_get(block, "text");
        if (strcmp(type_of(block), "text") != 0 || !json_is_string(text)) return refuse(f, "", "%s.%zu: must be a text block: this model reads nothing else.", where, i);
        char place[64];
        snprintf(place, sizeof place, "%s.%zu", where, i);
        if (!only(block, text_fields, place, f) || !buf_add(out, json_string_value(text), json_string_length(text), &f->e)) return false;
    }
    return true;
}

static json_t *take_text(buf *text) {
    json_t *s = text_json(text->data ? text->data : "", text->len);
    text->len = 0;
    return s;
}

/* A result of a tool becomes a message of its own. */
static bool add_result(const json_t *block, const char *where, json_t *list, refusal *f) {
    buf text = {0};
    const json_t *content = json_object_get(block, "content"), *id = json_object_get(block, "tool_use_id");
    const json_t *failed = json_object_get(block, "is_error");
    bool ok = only(block, result_fields, where, f) && (json_is_string(id) || refuse(f, "", "%s.tool_use_id: must be a string.", where));
    if (ok && json_is_true(failed)) ok = buf_adds(&text, "Error: ", &f->e);
    ok = ok && (!content || json_is_null(content) || add_text(content, where, &text, f));
    if (ok) json_array_append_new(list, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id, "content", take_text(&text)));
    buf_free(&text);
    return ok;
}

static bool add_use(const json_t *block, const char *where, json_t *calls, refusal *f) {
    const json_t *name = json_object_get(block, "name"), *input = json_object_get(block, "input"), *id = json_object_get(block, "id");
    if (!only(block, use_fields, where, f)) return false;
    if (!json_is_string(name) || !json_is_object(input) || !json_is_string(id)) return refuse(f, "", "%s: a tool_use block needs an id, a name and an input.", where);
    json_array_append_new(calls, json_pack("{s:s, s:O, s:{s:O, s:O}}", "type", "function", "id", id, "function", "name", name, "arguments", input));
    return true;
}

static bool add_thought(const json_t *block, const char *where, buf *out, refusal *f) {
    const json_t *thought = json_object_get(block, "thinking");
    if (!json_is_string(thought)) return refuse(f, "", "%s.thinking: must be a string", where);
    return buf_add(out, json_string_value(thought), json_string_length(thought), &f->e);
}

/* The blocks of one message, in the order in which they came. */
static bool add_blocks(const json_t *content, const char *role, size_t at, json_t *list, refusal *f) {
    buf text = {0}, thoughts = {0};
    json_t *calls = json_array();
    const bool user = strcmp(role, "user") == 0, assistant = strcmp(role, "assistant") == 0;
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i), *words = json_object_get(block, "text");
        const char *type = type_of(block);
        char where[64];
        snprintf(where, sizeof where, "messages.%zu.content.%zu", at, i);
        if (strcmp(type, "text") == 0 && json_is_string(words)) ok = only(block, text_fields, where, f) && buf_add(&text, json_string_value(words), json_string_length(words), &f->e);
        else if (user && strcmp(type, "tool_result") == 0) ok = add_result(block, where, list, f);
        else if (assistant && strcmp(type, "tool_use") == 0) ok = add_use(block, where, calls, f);
        else if (assistant && strcmp(type, "thinking") == 0) ok = only(block, thought_fields, where, f) && add_thought(block, where, &thoughts, f);
        else ok = refuse(f, "", "%s: a block of type '%.40s' is not supported here.", where, type);
    }
    if (ok && (text.len || json_array_size(calls) || !user)) {
        json_t *m = json_pack("{s:s, s:o}", "role", role, "content", take_text(&text));
        if (json_array_size(calls)) json_object_set(m, "tool_calls", calls);
        if (thoughts.len) json_object_set_new(m, "reasoning_content", take_text(&thoughts));
        json_array_append_new(list, m);
    }
    json_decref(calls);
    buf_free(&text);
    buf_free(&thoughts);
    return ok;
}

static bool add_message(const json_t *m, size_t at, json_t *list, refusal *f) {
    const char *role = json_string_value(json_object_get(m, "role")), *name;
    json_t *content = json_object_get(m, "content"), *v;
    json_object_foreach((json_t *)m, name, v) {
        if (strcmp(name, "role") != 0 && strcmp(name, "content") != 0) return refuse(f, "", "messages.%zu.%.40s: Extra inputs are not permitted", at, name);
    }
    static const char *const roles[] = {"user", "assistant", "system"};
    bool fine = false;
    for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++) fine |= strcmp(role, roles[i]) == 0;
    if (!fine) return refuse(f, "", "messages.%zu.role: must be 'user', 'assistant' or 'system'", at);
    if (json_is_array(content)) return add_blocks(content, role, at, list, f);
    if (!json_is_string(content)) return refuse(f, "", "messages.%zu.content: must be a string or an array of blocks", at);
    return json_array_append_new(list, json_pack("{s:s, s:O}", "role", role, "content", content)) == 0 || err_nomem(&f->e, 0);
}

json_t *messages_from_anthropic(const json_t *messages, const json_t *system, refusal *f) {
    if (!json_is_array(messages) || json_array_size(messages) == 0) {
        refuse(f, "", "messages: at least one message is required");
        return NULL;
    }
    json_t *list = json_array();
    bool ok = true;
    if (system) {
        buf text = {0};
        ok = add_text(system, "system", &text, f);
        if (ok) json_array_append_new(list, json_pack("{s:s, s:o}", "role", "system", "content", take_text(&text)));
        buf_free(&text);
    }
    for (size_t i = 0; ok && i < json_array_size(messages); i++) ok = add_message(json_array_get(messages, i), i, list, f);
    if (ok) return list;
    json_decref(list);
    return NULL;
}

json_t *tools_from_anthropic(const json_t *tools, refusal *f) {
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *t = json_array_get(tools, i), *name = json_object_get(t, "name"), *schema = json_object_get(t, "input_schema");
        const json_t *description = json_object_get(t, "description");
        const char *type = type_of(t);
        char where[32];
        snprintf(where, sizeof where, "tools.%zu", i);
        bool fine = json_is_string(name) && json_is_object(schema) && (!*type || strcmp(type, "custom") == 0);
        if (!fine || !only(t, tool_fields, where, f)) {
            if (!fine) refuse(f, "", "tools.%zu: must have a name and an input_schema; tools that run on the server are not supported", i);
            json_decref(list);
            return NULL;
        }
        json_t *function = json_pack("{s:O, s:O, s:O}", "name", name, "description", description ? description : name, "parameters", schema);
        json_array_append_new(list, json_pack("{s:s, s:o}", "type", "function", "function", function));
    }
    return list;
}
