/* messages.c: conversations as chat templates want them. */
#include <string.h>

#include "api/inner.h"

/* Content that is a string, or parts of type text, which are put together. New reference. */
static json_t *content_text(const json_t *content, size_t at, refusal *f) {
    if (json_is_string(content)) return json_incref((json_t *)content);
    if (!json_is_array(content)) {
        refuse(f, "messages", "messages[%zu].content must be a string or an array of parts.", at);
        return NULL;
    }
    buf text = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i), *value = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!type || (strcmp(type, "text") != 0 && strcmp(type, "refusal") != 0) || (strcmp(type, "text") == 0 && !json_is_string(value)))
            ok = refuse(f, "messages", "messages[%zu].content[%zu] must be of type 'text': this model reads nothing else.", at, i);
        if (ok && value) ok = buf_add(&text, json_string_value(value), json_string_length(value), &f->e);
    }
    json_t *s = ok ? text_json(text.data ? text.data : "", text.len) : NULL;
    buf_free(&text);
    return s;
}

/* Templates print arguments as JSON objects; the API carries them as text. */
static json_t *tool_calls(const json_t *calls, size_t at, refusal *f) {
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i), *function = json_object_get(call, "function");
        const json_t *name = json_object_get(function, "name"), *arguments = json_object_get(function, "arguments");
        json_t *object = json_is_string(arguments) ? json_loads(json_string_length(arguments) ? json_string_value(arguments) : "{}", JSON_ALLOW_NUL, NULL)
                                                   : json_incref((json_t *)arguments);
        if (!json_is_string(name) || !json_is_object(object)) {
            refuse(f, "messages", "messages[%zu].tool_calls[%zu] must have a function with a name and arguments that are a JSON object.", at, i);
            json_decref(object);
            json_decref(list);
            return NULL;
        }
        json_t *out = json_pack("{s:s, s:{s:O, s:o}}", "type", "function", "function", "name", name, "arguments", object);
        if (json_object_get(call, "id")) json_object_set(out, "id", json_object_get(call, "id"));
        json_array_append_new(list, out);
    }
    return list;
}

static bool role_is_known(const char *role) {
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i]) == 0) return true;
    return false;
}

static json_t *one_message(const json_t *m, size_t at, refusal *f) {
    const char *role = json_string_value(json_object_get(m, "role"));
    const json_t *content = json_object_get(m, "content"), *calls = json_object_get(m, "tool_calls");
    static const char *const copied[] = {"name", "tool_call_id", "reasoning_content"};
    static const char *const known[] = {"role", "content", "tool_calls", "name", "tool_call_id", "reasoning_content", "refusal", "annotations", "audio", "function_call"};
    if (!role_is_known(role)) {
        refuse(f, "messages", "messages[%zu].role must be system, developer, user, assistant or tool.", at);
        return NULL;
    }
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)m, name, v) {
        bool fine = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) fine |= strcmp(known[i], name) == 0;
        /* The last four are what a client sends back of an answer. */
        if (fine && (strcmp(name, "audio") == 0 || strcmp(name, "function_call") == 0)) fine = json_is_null(v);
        if (fine) continue;
        refuse_with(f, 400, "unknown_parameter", "messages", "messages[%zu] has a field '%.40s' that is not supported.", at, name);
        return NULL;
    }
    bool has_calls = json_is_array(calls) && json_array_size(calls) > 0;
    json_t *text = (!content || json_is_null(content)) && has_calls ? json_string("") : content_text(content, at, f);
    if (!text) return NULL;
    json_t *out = json_pack("{s:s, s:o}", "role", strcmp(role, "developer") == 0 ? "system" : role, "content", text);
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        json_t *value = json_object_get(m, copied[i]);
        if (json_is_string(value)) json_object_set(out, copied[i], value);
    }
    if (has_calls) {
        json_t *list = tool_calls(calls, at, f);
        if (!list) {
            json_decref(out);
            return NULL;
        }
        json_object_set_new(out, "tool_calls", list);
    }
    return out;
}

json_t *messages_from_openai(const json_t *messages, refusal *f) {
    if (!json_is_array(messages) || json_array_size(messages) == 0) {
        refuse(f, "messages", "'messages' must be an array with at least one message.");
        return NULL;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i);
        json_t *out = NULL;
        if (!json_is_object(m)) refuse(f, "messages", "messages[%zu] must be an object.", i);
        else out = one_message(m, i, f);
        if (!out) {
            json_decref(list);
            return NULL;
        }
        json_array_append_new(list, out);
    }
    return list;
}
