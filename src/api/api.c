/* api.c: routes, errors, models, health. */
#include "api/api.h"

#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "api/inner.h"

api *api_new(hearth_engine *engine, loop *l, const api_options *options, err *e) {
    api *a = mem_zalloc(1, sizeof *a, e);
    if (!a) return NULL;
    a->engine = engine;
    a->loop = l;
    a->o = *options;
    if (engine) a->info = hearth_engine_info(engine);
    a->statuses = a->own_statuses;
    a->started = (long)time(NULL);
    if (engine) a->agents = agents_new(engine, e);
    if (engine && !a->agents) {
        mem_free(a);
        return NULL;
    }
    a->thinks = engine ? thinking_find(a->info.chat_template) : NULL;
    a->thoughts = thinking_bound(a->thinks, engine);
    a->n_shown = thinking_tokens(a->thinks, engine, a->shown, LOOP_SHOWN);
    shape_open(a);
    a->responses = a->own_responses = response_state_new(options->responses_dir, e);
    if (a->responses) return a;
    api_free(a);
    return NULL;
}

void api_free(api *a) {
    if (!a) return;
    agents_free(a->agents);
    shape_close(a);
    response_state_free(a->own_responses);
    mem_free(a);
}

/* ---- errors ---- */

static bool refuse_v(refusal *f, int status, const char *code, const char *param, const char *format, va_list args) {
    f->status = status;
    f->code = code;
    snprintf(f->param, sizeof f->param, "%s", param);
    f->e.code = HEARTH_ARGUMENT;
    vsnprintf(f->e.text, sizeof f->e.text, format, args);
    return false;
}

bool refuse(refusal *f, const char *param, const char *format, ...) {
    va_list args;
    va_start(args, format);
    refuse_v(f, 400, NULL, param, format, args);
    va_end(args);
    return false;
}

bool refuse_with(refusal *f, int status, const char *code, const char *param, const char *format, ...) {
    va_list args;
    va_start(args, format);
    refuse_v(f, status, code, param, format, args);
    va_end(args);
    return false;
}

int refusal_status(const refusal *f) {
    if (f->status) return f->status;
    switch (f->e.code) {
    case HEARTH_ARGUMENT:
    case HEARTH_FORMAT:
    case HEARTH_UNSUPPORTED: return 400;
    case HEARTH_CANCELLED:
    case HEARTH_MEMORY: return 503;
    case HEARTH_LIMIT: return 400;
    default: return 500;
    }
}

static const char *error_type(api_style style, int status) {
    bool openai = style == API_OPENAI;
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 409: return openai ? "conflict_error" : "invalid_request_error";
    case 404: return openai ? "invalid_request_error" : "not_found_error";
    case 413: return openai ? "invalid_request_error" : "request_too_large";
    case 429: return "rate_limit_error";
    case 503: return openai ? "server_error" : "overloaded_error";
    case 504: return openai ? "server_error" : "timeout_error";
    default: return status < 500 ? "invalid_request_error" : openai ? "server_error" : "api_error";
    }
}

json_t *api_error_json(api_style style, const refusal *f) {
    const char *type = error_type(style, refusal_status(f));
    const char *text = f->e.text[0] ? f->e.text : hearth_code_text(f->e.code);
    json_t *message = text_json(text, strlen(text));
    if (style == API_ANTHROPIC) return json_pack("{s:s, s:{s:s, s:o}}", "type", "error", "error", "type", type, "message", message);
    json_t *param = f->param[0] ? text_json(f->param, strlen(f->param)) : json_null();
    return json_pack("{s:{s:o, s:s, s:o, s:o}}", "error", "message", message, "type", type, "param", param, "code", f->code ? json_string(f->code) : json_null());
}

void api_refuse(api *a, http_request *r, api_style style, refusal *f) {
    int status = refusal_status(f);
    if (status == 429 || status == 503) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%d", http_retry_s(r) ? http_retry_s(r) : a->loop ? loop_retry_s(a->loop) : 1);
        http_reply_header(r, "Retry-After", seconds);
    }
    if (status == 401) http_reply_header(r, "WWW-Authenticate", "Bearer");
    http_note(r, "error", "%s", f->e.text);
    if (http_streaming(r)) models_last_event(r, style == API_ANTHROPIC ? "error" : NULL, api_error_json(style, f));
    else api_reply(a, r, status, api_error_json(style, f));
}

void api_reply(api *a, http_request *r, int status, json_t *json) {
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    static const char none[] = "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\",\"param\":null,\"code\":null}}";
    if (!text) status = 503;
    a->statuses[status / 100]++;
    http_reply(r, status, "application/json", text ? text : none, strlen(text ? text : none));
    free(text);
}

/* ---- models and health ---- */

json_t *api_model_json(const api *a, const char *name) {
    return json_pack("{s:s, s:s, s:I, s:s, s:{s:s, s:I, s:I, s:I, s:I}}", "id", name, "object", "model", "created", (json_int_t)a->started, "owned_by",
                     "hearth", "meta", "architecture", a->info.architecture, "n_ctx", (json_int_t)a->info.n_context, "n_params",
                     (json_int_t)a->info.n_parameters, "n_vocab", (json_int_t)a->info.n_vocab, "size", (json_int_t)a->info.n_weight_bytes);
}

static void route_models(api *a, http_request *r) {
    json_t *list = a->models ? models_json(a->models, NULL) : json_array();
    if (!a->models) json_array_append_new(list, api_model_json(a, a->o.model));
    for (const char *const *other = a->o.aliases; !a->models && other && *other; other++) json_array_append_new(list, api_model_json(a, *other));
    api_reply(a, r, 200, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

static void route_model(api *a, http_request *r) {
    refusal f = {0};
    const char *name = http_path(r) + strlen("/v1/models/");
    json_t *json = !model_is_known(a, name, &f) ? NULL : a->models ? models_json(a->models, name) : api_model_json(a, name);
    if (json) api_reply(a, r, 200, json);
    else api_refuse(a, r, API_OPENAI, &f);
}

loop_stats api_count(api *a, hearth_weights_stats *weights, hearth_kv_stats *kv) {
    loop_stats s = {0};
    hearth_weights_stats w = {0};
    hearth_kv_stats k = {0};
    if (a->models) models_count(a->models, &s, &w, &k);
    else s = loop_count(a->loop), w = hearth_engine_weights(a->engine), k = hearth_engine_kv(a->engine);
    if (weights) *weights = w;
    if (kv) *kv = k;
    return s;
}

static void route_health(api *a, http_request *r) {
    loop_stats s = api_count(a, NULL, NULL);
    const char *model = a->models ? models_default(a->models) : a->o.model;
    api_reply(a, r, 200, json_pack("{s:s, s:s, s:s, s:i, s:i}", "status", "ok", "model", model, "version", HEARTH_VERSION, "running", s.running, "waiting", s.waiting));
}

/* ---- routes ---- */

typedef struct route_entry {
    const char *method, *path; /* a path that ends with '*' stands for all that begin so */
    route *run;
    int without; /* what it does without; 0: it needs a key and a model */
} route_entry;
enum { NO_KEY = 1, NO_MODEL = 2 };

static const route_entry routes[] = {
    {"POST", "/v1/chat/completions", route_chat, 0},
    {"POST", "/v1/completions", route_completions, 0},
    {"POST", "/v1/embeddings", route_embeddings, 0},
    {"POST", "/v1/responses", route_responses, 0},
    {"POST", "/v1/responses/input_tokens", route_response_tokens, 0},
    {"GET", "/v1/responses/*", route_response_show, NO_MODEL},
    {"DELETE", "/v1/responses/*", route_response_delete, NO_MODEL},
    {"POST", "/v1/messages", route_messages, 0},
    {"POST", "/v1/messages/count_tokens", route_count_tokens, 0},
    {"GET", "/v1/agents", route_agents, 0},
    {"POST", "/v1/agents", route_agent_create, 0},
    {"GET", "/v1/agents/*", route_agent, 0},
    {"POST", "/v1/agents/*", route_agent_change, 0},
    {"DELETE", "/v1/agents/*", route_agent_delete, 0},
    {"GET", "/v1/models", route_models, NO_MODEL},
    {"GET", "/v1/models/*", route_model, NO_MODEL},
    {"POST", "/tokenize", route_tokenize, 0},
    {"POST", "/detokenize", route_detokenize, 0},
    {"POST", "/apply-template", route_apply_template, 0},
    {"GET", "/metrics", route_metrics, NO_MODEL},
    {"GET", "/health", route_health, NO_KEY | NO_MODEL},
    {"GET", "/health/live", route_health, NO_KEY | NO_MODEL},
    {"GET", "/health/ready", route_health, NO_KEY | NO_MODEL},
};

static bool path_matches(const char *pattern, const char *path) {
    size_t n = strlen(pattern);
    if (pattern[n - 1] == '*') return strncmp(pattern, path, n - 1) == 0;
    return strcmp(pattern, path) == 0;
}

/* The route of this path and method; *others tells of a method that the path knows when it is not this one. */
static const route_entry *find_route(const char *method, const char *path, const char **others) {
    if (strcmp(method, "HEAD") == 0) method = "GET";
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!path_matches(routes[i].path, path)) continue;
        if (strcmp(routes[i].method, method) == 0) return &routes[i];
        *others = routes[i].method;
    }
    return NULL;
}

static bool refuse_trouble(http_request *r, bool without_key, refusal *f) {
    switch (http_check(r)) {
    case HTTP_FINE: return true;
    case HTTP_TOO_LARGE: return refuse_with(f, 413, NULL, "", "The body of the request is too large.");
    case HTTP_NO_MEMORY: return refuse_with(f, 503, NULL, "", "There is not enough memory for the request.");
    case HTTP_FOREIGN: return refuse_with(f, 403, NULL, "", "Requests from this site or under this host name are not allowed: start the server with --cors, --api-key or --open.");
    case HTTP_BUSY_KEY:
        return without_key || refuse_with(f, 429, "rate_limit_exceeded", "", "This key may not be used so often: try again in %d seconds.", http_retry_s(r));
    case HTTP_NO_KEY: break;
    }
    return without_key || refuse_with(f, 401, "invalid_api_key", "", "A valid key is needed: send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'.");
}

void api_handle(void *user, http_request *r) {
    api *a = user;
    refusal f = {0};
    const char *path = http_path(r), *others = NULL;
    const route_entry *entry = find_route(http_method(r), path, &others);
    api_style style = strncmp(path, "/v1/messages", 12) == 0 ? API_ANTHROPIC : API_OPENAI;
    bool get = strcmp(http_method(r), "GET") == 0 || strcmp(http_method(r), "HEAD") == 0;
    if (admin_handle(a, r)) return;
    if (!refuse_trouble(r, entry && entry->without & NO_KEY, &f)) {
        /* The page itself holds no secret; it asks for the key. */
        if (http_check(r) == HTTP_NO_KEY && get && page_serve(r, path)) return;
        api_refuse(a, r, style, &f);
    } else if (entry && a->models && !(entry->without & NO_MODEL)) {
        models_run(a->models, r, entry->run, style);
    } else if (entry) {
        entry->run(a, r);
    } else if (others) {
        http_reply_header(r, "Allow", others);
        refuse_with(&f, 405, "method_not_allowed", "", "%s is asked with %s, not %.10s.", path, others, http_method(r));
        api_refuse(a, r, style, &f);
    } else if (!get || !page_serve(r, path)) {
        char quoted[100];
        err_quote(quoted, sizeof quoted, path, strlen(path));
        refuse_with(&f, 404, "not_found", "", "There is nothing at %s.", quoted);
        api_refuse(a, r, style, &f);
    }
}
