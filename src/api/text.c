/* text.c: strings, tokens and templates, and the routes that show them. */
#include <string.h>

#include "api/inner.h"
#include "engine/retoken.h"

/* How many bytes at p (of n) are one well-formed character; 0: none. */
static size_t utf8_length(const unsigned char *p, size_t n) {
    if (p[0] < 0x80) return 1;
    size_t len = p[0] >= 0xC2 && p[0] < 0xE0 ? 2 : p[0] >= 0xE0 && p[0] < 0xF0 ? 3 : p[0] >= 0xF0 && p[0] < 0xF5 ? 4 : 0;
    if (len == 0 || len > n) return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) || (p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F)) return 0;
    return len;
}

json_t *text_json(const char *text, size_t len) {
    json_t *s = json_stringn(text, len);
    if (s) return s;
    buf clean = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < len;) {
        size_t n = utf8_length((const unsigned char *)text + i, len - i);
        ok = n ? buf_add(&clean, text + i, n, NULL) : buf_adds(&clean, "\xEF\xBF\xBD", NULL);
        i += n ? n : 1;
    }
    if (ok) s = json_stringn(clean.data ? clean.data : "", clean.len);
    buf_free(&clean);
    return s;
}

bool text_tokenize(const api *a, const char *text, size_t len, unsigned flags, token_run *out, refusal *f) {
    /* A token stands for at least one byte, but for those that a tokenizer adds. */
    size_t cap = len + 8;
    out->ids = mem_alloc(cap, sizeof *out->ids, &f->e);
    int64_t n = out->ids ? hearth_tokenize(a->engine, text, len, flags, out->ids, cap, &f->e) : -1;
    if (n > (int64_t)cap) {
        int32_t *ids = mem_realloc(out->ids, (size_t)n, sizeof *ids, &f->e);
        if (ids) out->ids = ids;
        n = ids ? hearth_tokenize(a->engine, text, len, flags, ids, (size_t)n, &f->e) : -1;
    }
    out->n = n > 0 ? (size_t)n : 0;
    return n >= 0;
}

/* Puts more behind the text, which it takes. */
static char *add_text(char *text, size_t *len, const char *more, err *e) {
    buf whole = {0};
    bool ok = buf_add(&whole, text, *len, e) && buf_adds(&whole, more, e);
    hearth_free(text);
    *len = whole.len;
    if (ok) return whole.data;
    buf_free(&whole);
    return NULL;
}

/* Ends the thought that the prompt opened. Takes text. */
static char *close_thought(const api *a, char *text, size_t *len, err *e) {
    char end[100];
    snprintf(end, sizeof end, "\n%s\n\n", thinking_close(a->thinks));
    return add_text(text, len, end, e);
}

bool text_render(const api *a, const json_t *variables, bool shaped, token_run *out, refusal *f) {
    char *json = json_dumps(variables, JSON_COMPACT);
    size_t len = 0;
    char *text = json ? hearth_chat_render(a->engine, json, &len, &f->e) : NULL;
    free(json);
    if (!text) {
        if (!json) err_nomem(&f->e, 0);
        else if (!f->param[0]) strcpy(f->param, "messages");
        return false;
    }
    out->in_thought = thinking_is_open(a->thinks, text, len);
    if (out->in_thought && (shaped || out->begun)) {
        out->in_thought = false;
        if (!(text = close_thought(a, text, &len, &f->e))) return false;
    }
    if (out->begun && !(text = add_text(text, &len, out->begun, &f->e))) return false;
    token_list tokens = {0};
    bool ok = !out->known ? text_tokenize(a, text, len, HEARTH_PARSE_SPECIAL, out, f)
                          : retoken(a->engine, out->known->tokens, out->known->n_tokens, text, len, &tokens, &f->e);
    if (out->known) out->ids = tokens.ids, out->n = tokens.n;
    hearth_free(text);
    return ok;
}

bool model_is_known(const api *a, const char *name, refusal *f) {
    if (a->models && models_is(a->models, name, a)) return true;
    if (!a->models && (!name || strcmp(name, a->o.model) == 0 || strcmp(name, "default") == 0)) return true;
    for (const char *const *other = a->o.aliases; !a->models && other && *other; other++)
        if (strcmp(*other, name) == 0) return true;
    char quoted[100];
    err_quote(quoted, sizeof quoted, name, strlen(name));
    return refuse_with(f, 404, "model_not_found", "model", "The model '%s' is not served here: use '%s', or give it this name with --alias.", quoted,
                       a->models ? models_default(a->models) : a->o.model);
}

/* ---- routes ---- */

static json_t *tokens_json(const token_run *t) {
    json_t *array = json_array();
    for (size_t i = 0; array && i < t->n; i++) json_array_append_new(array, json_integer(t->ids[i]));
    return array;
}

void route_tokenize(api *a, http_request *r) {
    refusal f = {0};
    const json_t *content = NULL;
    const char *model = NULL;
    bool special = true, bos = false;
    const field table[] = {
        {"model", FIELD_TEXT, &model, 0, 0, NULL},
        {"content", FIELD_JSON, &content, 0, 0, NULL},
        {"parse_special", FIELD_BOOL, &special, 0, 0, NULL},
        {"add_special", FIELD_BOOL, &bos, 0, 0, NULL},
        {NULL, FIELD_BOOL, NULL, 0, 0, NULL},
    };
    token_run tokens = {0};
    json_t *body = api_body(r, &f);
    bool ok = body && fields_read(body, table, NULL, &f) && model_is_known(a, model, &f);
    if (ok && !json_is_string(content)) ok = refuse(&f, "content", "'content' must be a string.");
    ok = ok && text_tokenize(a, json_string_value(content), json_string_length(content), (special ? HEARTH_PARSE_SPECIAL : 0u) | (bos ? HEARTH_ADD_BOS : 0u),
                             &tokens, &f);
    if (ok) api_reply(a, r, 200, json_pack("{s:o}", "tokens", tokens_json(&tokens)));
    else api_refuse(a, r, API_OPENAI, &f);
    mem_free(tokens.ids);
    json_decref(body);
}

static bool add_token_bytes(const api *a, const json_t *id, buf *text, refusal *f) {
    size_t len = 0;
    int64_t n = json_is_integer(id) ? (int64_t)json_integer_value(id) : -1;
    const char *bytes = n >= 0 && n < a->info.n_vocab ? hearth_token_bytes(a->engine, (int32_t)n, true, &len) : NULL;
    if (!bytes) return refuse(f, "tokens", "'tokens' must be an array of token ids from 0 to %d.", a->info.n_vocab - 1);
    return buf_add(text, bytes, len, &f->e);
}

void route_detokenize(api *a, http_request *r) {
    refusal f = {0};
    const json_t *tokens = NULL;
    const char *model = NULL;
    const field table[] = {{"model", FIELD_TEXT, &model, 0, 0, NULL}, {"tokens", FIELD_JSON, &tokens, 0, 0, NULL}, {NULL, FIELD_BOOL, NULL, 0, 0, NULL}};
    buf text = {0};
    json_t *body = api_body(r, &f);
    bool ok = body && fields_read(body, table, NULL, &f) && model_is_known(a, model, &f);
    if (ok && !json_is_array(tokens)) ok = refuse(&f, "tokens", "'tokens' must be an array of token ids.");
    for (size_t i = 0; ok && i < json_array_size(tokens); i++) ok = add_token_bytes(a, json_array_get(tokens, i), &text, &f);
    if (ok) api_reply(a, r, 200, json_pack("{s:o}", "content", text_json(text.data ? text.data : "", text.len)));
    else api_refuse(a, r, API_OPENAI, &f);
    buf_free(&text);
    json_decref(body);
}

void route_apply_template(api *a, http_request *r) {
    refusal f = {0};
    const json_t *messages = NULL, *tools = NULL, *more = NULL;
    const char *model = NULL;
    const field table[] = {
        {"model", FIELD_TEXT, &model, 0, 0, NULL},
        {"messages", FIELD_JSON, &messages, 0, 0, NULL},
        {"tools", FIELD_JSON, &tools, 0, 0, NULL},
        {"chat_template_kwargs", FIELD_JSON, &more, 0, 0, NULL},
        {NULL, FIELD_BOOL, NULL, 0, 0, NULL},
    };
    json_t *body = api_body(r, &f), *variables = NULL, *normal = NULL;
    bool ok = body && fields_read(body, table, NULL, &f) && model_is_known(a, model, &f) && (normal = messages_from_openai(messages, &f));
    if (ok && more && !json_is_object(more)) ok = refuse(&f, "chat_template_kwargs", "'chat_template_kwargs' must be an object.");
    if (ok) {
        variables = more ? json_deep_copy(more) : json_object();
        json_object_set(variables, "messages", normal);
        if (tools) json_object_set(variables, "tools", (json_t *)tools);
        char *json = json_dumps(variables, JSON_COMPACT);
        size_t len = 0;
        char *text = json ? hearth_chat_render(a->engine, json, &len, &f.e) : NULL;
        ok = text != NULL;
        if (ok) api_reply(a, r, 200, json_pack("{s:o}", "prompt", text_json(text, len)));
        else if (!json) err_nomem(&f.e, 0);
        hearth_free(text);
        free(json);
    }
    if (!ok) api_refuse(a, r, API_OPENAI, &f);
    json_decref(variables);
    json_decref(normal);
    json_decref(body);
}
