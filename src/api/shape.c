/* shape.c: what an answer must look like: response_format, grammars, and calls that are asked for. A grammar learns while it is used, so the latest
 * ones are kept. */
#include <string.h>

#include "api/inner.h"
#include "engine/grammar.h"

void shape_open(api *a) { pthread_mutex_init(&a->shapes_lock, NULL); }

static void shape_drop(kept_shape *k) {
    hearth_grammar_free(k->grammar);
    mem_free(k->text);
    *k = (kept_shape){0};
}

void shape_close(api *a) {
    for (int i = 0; i < KEPT_SHAPES; i++) shape_drop(&a->shapes[i]);
    pthread_mutex_destroy(&a->shapes_lock);
}

/* The kept one, shared; NULL when there is none. */
static hearth_grammar *find(api *a, hearth_grammar_kind kind, const char *text, size_t len) {
    hearth_grammar *g = NULL;
    pthread_mutex_lock(&a->shapes_lock);
    for (int i = 0; i < KEPT_SHAPES && !g; i++) {
        kept_shape *k = &a->shapes[i];
        if (!k->grammar || k->kind != kind || k->len != len || memcmp(k->text, text, len) != 0) continue;
        k->used = ++a->shapes_clock;
        g = grammar_share(k->grammar);
    }
    pthread_mutex_unlock(&a->shapes_lock);
    return g;
}

static void keep(api *a, hearth_grammar_kind kind, const char *text, size_t len, hearth_grammar *g) {
    char *copy = mem_strndup(text, len, NULL);
    if (!copy) return;
    pthread_mutex_lock(&a->shapes_lock);
    kept_shape *oldest = &a->shapes[0];
    for (int i = 1; i < KEPT_SHAPES; i++)
        if (a->shapes[i].used < oldest->used) oldest = &a->shapes[i];
    shape_drop(oldest);
    *oldest = (kept_shape){.kind = kind, .text = copy, .len = len, .grammar = grammar_share(g), .used = ++a->shapes_clock};
    pthread_mutex_unlock(&a->shapes_lock);
}

bool shape_grammar(api *a, sampling *s, hearth_grammar_kind kind, const char *text, size_t len, const char *param, refusal *f) {
    if (s->grammar) return refuse(f, param, "'%s' cannot be combined with another demand on the shape of the answer.", param);
    if (s->ignore_eos) return refuse(f, "ignore_eos", "'ignore_eos' cannot be combined with '%s', which decides where the answer ends.", param);
    s->grammar = find(a, kind, text, len);
    if (!s->grammar) {
        err e = {0};
        s->grammar = hearth_grammar_new(a->engine, kind, text, len, &e);
        if (!s->grammar && e.code == HEARTH_MEMORY) return refuse_with(f, 503, NULL, "", "%s", e.text);
        if (!s->grammar) return refuse(f, param, "'%s' cannot be used: %s", param, e.text);
        keep(a, kind, text, len, s->grammar);
    }
    s->request.sampler.grammar = s->grammar;
    return true;
}

bool shape_schema(api *a, sampling *s, const json_t *schema, const char *param, refusal *f) {
    char *text = json_dumps(schema, JSON_COMPACT);
    bool ok = text ? shape_grammar(a, s, HEARTH_GRAMMAR_JSON_SCHEMA, text, strlen(text), param, f) : err_nomem(&f->e, 0);
    free(text);
    return ok;
}

bool shape_fields(api *a, sampling *s, refusal *f) {
    const json_t *format = s->response_format;
    const char *type = json_string_value(json_object_get(format, "type"));
    if (format && !type) return refuse(f, "response_format", "'response_format' must be an object with a 'type'.");
    if (type && strcmp(type, "json_object") == 0) {
        if (!shape_grammar(a, s, HEARTH_GRAMMAR_JSON, "", 0, "response_format", f)) return false;
    } else if (type && strcmp(type, "json_schema") == 0) {
        const json_t *schema = json_object_get(json_object_get(format, "json_schema"), "schema");
        if (!json_is_object(schema)) return refuse(f, "response_format", "'response_format.json_schema.schema' must be an object.");
        if (!shape_schema(a, s, schema, "response_format", f)) return false;
    } else if (type && strcmp(type, "text") != 0) {
        return refuse(f, "response_format", "'response_format.type' must be 'text', 'json_object' or 'json_schema'.");
    }
    if (s->json_schema && !shape_schema(a, s, s->json_schema, "json_schema", f)) return false;
    if (s->gbnf && !shape_grammar(a, s, HEARTH_GRAMMAR_GBNF, s->gbnf, strlen(s->gbnf), "grammar", f)) return false;
    return !s->regex || shape_grammar(a, s, HEARTH_GRAMMAR_REGEX, s->regex, strlen(s->regex), "regex", f);
}

/* {"name": one of them, "arguments": what it takes}, which tool_parser knows as a call. */
bool shape_call(api *a, sampling *s, const json_t *tools, const char *name, refusal *f) {
    json_t *any = json_array();
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        const char *own = json_string_value(json_object_get(function, "name"));
        json_t *parameters = json_object_get(function, "parameters");
        if (name && strcmp(name, own) != 0) continue;
        parameters = json_is_object(parameters) && json_object_size(parameters) ? json_incref(parameters) : json_pack("{s:s}", "type", "object");
        json_array_append_new(any, json_pack("{s:s, s:{s:{s:s}, s:o}, s:[s, s], s:b}", "type", "object", "properties", "name", "const", own, "arguments", parameters,
                                             "required", "name", "arguments", "additionalProperties", 0));
    }
    bool ok = json_array_size(any) > 0 || refuse(f, "tool_choice", "'tool_choice' names a function that is not among the 'tools'.");
    json_t *schema = json_array_size(any) == 1 ? json_incref(json_array_get(any, 0)) : json_pack("{s:O}", "anyOf", any);
    ok = ok && shape_schema(a, s, schema, "tools", f);
    json_decref(schema);
    json_decref(any);
    return ok;
}

/* ---- tools for templates that know none ---- */

static const char preface[] = "You can call functions. To call one, answer with a JSON object in <tool_call></tool_call> tags:\n<tool_call>\n"
                              "{\"name\": \"the function's name\", \"arguments\": {}}\n</tool_call>\nThe functions are:\n";

bool template_has_tools(const api *a) { return a->info.chat_template && strstr(a->info.chat_template, "tools"); }

/* The system message gets the list of functions; calls and results become text. */
json_t *tools_as_text(const json_t *messages, const json_t *tools, refusal *f) {
    buf text = {0};
    json_t *list = json_array();
    size_t first = 0;
    const json_t *head = json_array_get(messages, 0);
    const char *role = json_string_value(json_object_get(head, "role"));
    bool ok = true;
    if (role && strcmp(role, "system") == 0) {
        first = 1;
        const json_t *content = json_object_get(head, "content");
        ok = buf_add(&text, json_string_value(content), json_string_length(content), &f->e) && buf_adds(&text, "\n\n", &f->e);
    }
    ok = ok && buf_adds(&text, preface, &f->e);
    for (size_t i = 0; ok && i < json_array_size(tools); i++) {
        char *one = json_dumps(json_object_get(json_array_get(tools, i), "function"), JSON_COMPACT);
        ok = one && buf_adds(&text, one, &f->e) && buf_addc(&text, '\n', &f->e);
        free(one);
    }
    if (ok) json_array_append_new(list, json_pack("{s:s, s:o}", "role", "system", "content", text_json(text.data, text.len)));
    for (size_t i = first; ok && i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i), *content = json_object_get(m, "content"), *calls = json_object_get(m, "tool_calls");
        const char *own = json_string_value(json_object_get(m, "role"));
        bool result = strcmp(own, "tool") == 0;
        text.len = 0;
        ok = (!result || buf_adds(&text, "<tool_response>\n", &f->e)) && buf_add(&text, json_string_value(content), json_string_length(content), &f->e) &&
             (!result || buf_adds(&text, "\n</tool_response>", &f->e));
        for (size_t k = 0; ok && k < json_array_size(calls); k++) {
            char *one = json_dumps(json_object_get(json_array_get(calls, k), "function"), JSON_COMPACT);
            ok = one && buf_addf(&text, &f->e, "%s<tool_call>\n%s\n</tool_call>", text.len ? "\n" : "", one);
            free(one);
        }
        if (ok) json_array_append_new(list, json_pack("{s:s, s:o}", "role", result ? "user" : own, "content", text_json(text.data ? text.data : "", text.len)));
    }
    buf_free(&text);
    if (ok) return list;
    if (f->e.code == HEARTH_OK) err_nomem(&f->e, 0);
    json_decref(list);
    return NULL;
}
