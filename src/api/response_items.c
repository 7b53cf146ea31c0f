/* response_items.c: the items of OpenAI's Responses API as the messages of its chat API. */
#include <string.h>

#include "api/inner.h"

/* What stands between items and messages: calls and thoughts belong to the assistant's message they surround. */
typedef struct joiner {
    json_t *list;     /* messages */
    json_t *open;     /* the assistant's message that calls may still be added to; borrowed from list, or NULL */
    buf thoughts;     /* for the next one */
    refusal *f;
} joiner;

static bool only(const json_t *item, const char *const *known, size_t at, refusal *f) {
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)item, name, v) {
        bool fine = json_is_null(v);
        for (const char *const *k = known; *k && !fine; k++) fine = strcmp(*k, name) == 0;
        if (!fine) return refuse_with(f, 400, "unknown_parameter", "input", "input[%zu] has a field '%.40s' that is not supported.", at, name);
    }
    return true;
}

/* A string, or parts that are text. New reference. */
static json_t *parts_text(const json_t *content, size_t at, refusal *f) {
    if (json_is_string(content)) return json_incref((json_t *)content);
    static const char *const types[] = {"input_text", "output_text", "text", "reasoning_text", "summary_text"};
    buf text = {0};
    bool ok = json_is_array(content) || refuse(f, "input", "input[%zu] must have a text or an array of parts.", at);
    for (size_t i = 0; ok && i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i), *value = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        bool known = false;
        for (size_t k = 0; type && k < sizeof types / sizeof *types; k++) known |= strcmp(type, types[k]) == 0;
        if (type && strcmp(type, "refusal") == 0) continue;
        ok = known && json_is_string(value) ? buf_add(&text, json_string_value(value), json_string_length(value), &f->e)
                                            : refuse(f, "input", "input[%zu].content[%zu] must be of type 'input_text': this model reads nothing else.", at, i);
    }
    json_t *s = ok ? text_json(text.data ? text.data : "", text.len) : NULL;
    buf_free(&text);
    return s;
}

/* A new message of the assistant, with the thoughts before it. Takes content. */
static json_t *open_message(joiner *j, json_t *content) {
    json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content", content);
    if (j->thoughts.len) json_object_set_new(m, "reasoning_content", text_json(j->thoughts.data, j->thoughts.len));
    j->thoughts.len = 0;
    json_array_append_new(j->list, m);
    return j->open = m;
}

static bool add_message(joiner *j, const json_t *item, size_t at) {
    static const char *const known[] = {"type", "role", "content", "id", "status", "phase", NULL};
    const char *role = json_string_value(json_object_get(item, "role"));
    if (!only(item, known, at, j->f)) return false;
    if (!role) return refuse(j->f, "input", "input[%zu].role must be user, assistant, system or developer.", at);
    json_t *text = parts_text(json_object_get(item, "content"), at, j->f);
    if (!text) return false;
    if (strcmp(role, "assistant") == 0) return open_message(j, text) != NULL;
    j->open = NULL;
    if (strcmp(role, "user") == 0 || strcmp(role, "system") == 0 || strcmp(role, "developer") == 0)
        return json_array_append_new(j->list, json_pack("{s:s, s:o}", "role", role, "content", text)) == 0;
    json_decref(text);
    return refuse(j->f, "input", "input[%zu].role must be user, assistant, system or developer.", at);
}

static bool add_call(joiner *j, const json_t *item, size_t at) {
    static const char *const known[] = {"type", "id", "call_id", "name", "arguments", "status", NULL};
    const json_t *id = json_object_get(item, "call_id"), *name = json_object_get(item, "name"), *arguments = json_object_get(item, "arguments");
    if (!only(item, known, at, j->f)) return false;
    if (!json_is_string(id) || !json_is_string(name) || !json_is_string(arguments))
        return refuse(j->f, "input", "input[%zu] must have a call_id, a name and arguments, all of them strings.", at);
    if (!j->open) open_message(j, json_string(""));
    json_t *calls = json_object_get(j->open, "tool_calls");
    if (!calls) json_object_set_new(j->open, "tool_calls", calls = json_array());
    json_t *call = json_pack("{s:O, s:s, s:{s:O, s:O}}", "id", id, "type", "function", "function", "name", name, "arguments", arguments);
    return json_array_append_new(calls, call) == 0;
}

static bool add_output(joiner *j, const json_t *item, size_t at) {
    static const char *const known[] = {"type", "id", "call_id", "output", "status", NULL};
    const json_t *id = json_object_get(item, "call_id");
    if (!only(item, known, at, j->f)) return false;
    if (!json_is_string(id)) return refuse(j->f, "input", "input[%zu].call_id must be a string.", at);
    json_t *text = parts_text(json_object_get(item, "output"), at, j->f);
    if (!text) return false;
    j->open = NULL;
    return json_array_append_new(j->list, json_pack("{s:s, s:O, s:o}", "role", "tool", "tool_call_id", id, "content", text)) == 0;
}

static bool add_thought(joiner *j, const json_t *item, size_t at) {
    static const char *const known[] = {"type", "id", "summary", "content", "status", NULL};
    const json_t *content = json_object_get(item, "content");
    if (!only(item, known, at, j->f)) return false;
    j->open = NULL;
    if (!content || json_is_null(content)) return true;
    json_t *text = parts_text(content, at, j->f);
    bool ok = text && buf_add(&j->thoughts, json_string_value(text), json_string_length(text), &j->f->e);
    json_decref(text);
    return ok;
}

json_t *messages_from_items(const json_t *items, const char *instructions, refusal *f) {
    static const struct {
        const char *type;
        bool (*add)(joiner *j, const json_t *item, size_t at);
    } kinds[] = {{"message", add_message}, {"function_call", add_call}, {"function_call_output", add_output}, {"reasoning", add_thought}};
    joiner j = {.list = json_array(), .f = f};
    if (instructions) json_array_append_new(j.list, json_pack("{s:s, s:s}", "role", "system", "content", instructions));
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(items); i++) {
        const json_t *item = json_array_get(items, i), *given = json_object_get(item, "type");
        const char *type = given ? json_string_value(given) : "message";
        size_t k = 0;
        while (type && k < sizeof kinds / sizeof *kinds && strcmp(kinds[k].type, type) != 0) k++;
        if (!json_is_object(item) || !type || k == sizeof kinds / sizeof *kinds)
            ok = refuse(f, "input", "input[%zu] must be a message, a function_call, a function_call_output or a reasoning item.", i);
        else ok = kinds[k].add(&j, item, i);
    }
    buf_free(&j.thoughts);
    if (ok) return j.list;
    if (f->e.code == HEARTH_OK) err_nomem(&f->e, 0);
    json_decref(j.list);
    return NULL;
}

json_t *tools_from_responses(const json_t *tools, refusal *f) {
    static const char *const known[] = {"type", "name", "description", "parameters", "strict", NULL};
    json_t *list = json_array();
    bool ok = json_is_array(tools) || refuse(f, "tools", "'tools' must be an array.");
    for (size_t i = 0; ok && i < json_array_size(tools); i++) {
        const json_t *t = json_array_get(tools, i), *name = json_object_get(t, "name");
        const char *type = json_string_value(json_object_get(t, "type")), *key;
        json_t *function = json_object(), *v;
        if (!type || strcmp(type, "function") != 0 || !json_is_string(name))
            ok = refuse(f, "tools", "tools[%zu] must be of type 'function' and have a name; tools that run on the server are not supported.", i);
        json_object_foreach((json_t *)t, key, v) {
            bool fine = json_is_null(v);
            for (const char *const *k = known; *k && !fine; k++) fine = strcmp(*k, key) == 0;
            if (ok && !fine) ok = refuse(f, "tools", "tools[%zu] has a field '%.40s' that is not supported.", i, key);
            if (fine && !json_is_null(v) && strcmp(key, "type") != 0 && strcmp(key, "strict") != 0) json_object_set(function, key, v);
        }
        json_array_append_new(list, json_pack("{s:s, s:o}", "type", "function", "function", function));
    }
    if (ok) return list;
    json_decref(list);
    return NULL;
}
