/* blocks.c: Anthropic's conversations, whose messages are lists of blocks, as chat templates want them. */
#include <string.h>

#include "api/inner.h"

static const char *type_of(const json_t *block) {
    const char *type = json_string_value(json_object_get(block, "type"));
    return type ? type : "";
}

/* Appends a string, or the text blocks of an array. */
static bool add_text(const json_t *content, const char *where, buf *out, refusal *f) {
    if (json_is_string(content)) return buf_add(out, json_string_value(content), json_string_length(content), &f->e);
    if (!json_is_array(content)) return refuse(f, "", "%s: must be a string or an array of text blocks.", where);
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i), *text = json_object_get(block, "text");
        if (strcmp(type_of(block), "text") != 0 || !json_is_string(text)) return refuse(f, "", "%s.%zu: must be a text block: this model reads nothing else.", where, i);
        if (!buf_add(out, json_string_value(text), json_string_length(text), &f->e)) return false;
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
    bool ok = json_is_string(id) || refuse(f, "", "%s.tool_use_id: must be a string.", where);
    ok = ok && (!content || json_is_null(content) || add_text(content, where, &text, f));
    if (ok) json_array_append_new(list, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id, "content", take_text(&text)));
    buf_free(&text);
    return ok;
}

static bool add_use(const json_t *block, const char *where, json_t *calls, refusal *f) {
    const json_t *name = json_object_get(block, "name"), *input = json_object_get(block, "input"), *id = json_object_get(block, "id");
    if (!json_is_string(name) || !json_is_object(input) || !json_is_string(id)) return refuse(f, "", "%s: a tool_use block needs an id, a name and an input.", where);
    json_array_append_new(calls, json_pack("{s:s, s:O, s:{s:O, s:O}}", "type", "function", "id", id, "function", "name", name, "arguments", input));
    return true;
}

/* The blocks of one message, in the order in which they came. */
static bool add_blocks(const json_t *content, const char *role, size_t at, json_t *list, refusal *f) {
    buf text = {0};
    json_t *calls = json_array();
    bool user = strcmp(role, "user") == 0, ok = true;
    for (size_t i = 0; ok && i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i), *words = json_object_get(block, "text");
        const char *type = type_of(block);
        char where[64];
        snprintf(where, sizeof where, "messages.%zu.content.%zu", at, i);
        if (strcmp(type, "text") == 0 && json_is_string(words)) ok = buf_add(&text, json_string_value(words), json_string_length(words), &f->e);
        else if (user && strcmp(type, "tool_result") == 0) ok = add_result(block, where, list, f);
        else if (!user && strcmp(type, "tool_use") == 0) ok = add_use(block, where, calls, f);
        else if (!user && (strcmp(type, "thinking") == 0 || strcmp(type, "redacted_thinking") == 0)) continue; /* templates leave old thoughts out */
        else ok = refuse(f, "", "%s: a block of type '%.40s' is not supported here.", where, type);
    }
    if (ok && (text.len || json_array_size(calls) || !user)) {
        json_t *m = json_pack("{s:s, s:o}", "role", role, "content", take_text(&text));
        if (json_array_size(calls)) json_object_set(m, "tool_calls", calls);
        json_array_append_new(list, m);
    }
    json_decref(calls);
    buf_free(&text);
    return ok;
}

static bool add_message(const json_t *m, size_t at, json_t *list, refusal *f) {
    const char *role = json_string_value(json_object_get(m, "role")), *name;
    json_t *content = json_object_get(m, "content"), *v;
    json_object_foreach((json_t *)m, name, v) {
        if (strcmp(name, "role") != 0 && strcmp(name, "content") != 0) return refuse(f, "", "messages.%zu.%.40s: Extra inputs are not permitted", at, name);
    }
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0)) return refuse(f, "", "messages.%zu.role: must be 'user' or 'assistant'", at);
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
        if (!json_is_string(name) || !json_is_object(schema) || (*type && strcmp(type, "custom") != 0)) {
            refuse(f, "", "tools.%zu: must have a name and an input_schema; tools that run on the server are not supported", i);
            json_decref(list);
            return NULL;
        }
        json_t *function = json_pack("{s:O, s:O, s:O}", "name", name, "description", description ? description : name, "parameters", schema);
        json_array_append_new(list, json_pack("{s:s, s:o}", "type", "function", "function", function));
    }
    return list;
}
