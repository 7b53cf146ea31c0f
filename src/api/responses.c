/* responses.c: /v1/responses: OpenAI's newer API, which remembers. A response that is kept can be gone on from by its id, any number of times. */
#include <string.h>
#include <time.h>

#include "api/inner.h"

typedef struct response {
    api *a;
    json_t *body;
    sampling s;
    const json_t *input, *given_tools, *tool_choice, *text, *reasoning, *include, *metadata, *stream_options;
    const char *model, *instructions, *previous, *truncation, *service_tier, *effort, *summary;
    int64_t max_output_tokens, top_logprobs;
    bool stream, store, background, parallel_calls, logprobs;
    json_t *tools;   /* in the chat API's form; NULL: none are to be used */
    json_t *own;     /* this request's items */
    json_t *items;   /* those of the whole conversation */
    const char *tenant;
    loop_ticket *ticket;
    response_maker maker;
    char id[64];
    long created;
    bool begun;
} response;

static void response_free(response *p) {
    if (!p) return;
    loop_ticket_free(p->ticket);
    response_maker_close(&p->maker);
    sampling_free(&p->s);
    json_decref(p->tools);
    json_decref(p->own);
    json_decref(p->items);
    json_decref(p->body);
    mem_free(p);
}

/* ---- the request ---- */

static bool check_tools(response *p, refusal *f) {
    const char *choice = json_string_value(p->tool_choice), *type = json_string_value(json_object_get(p->tool_choice, "type"));
    if (p->given_tools && !(p->tools = tools_from_responses(p->given_tools, f))) return false;
    const bool any = json_array_size(p->tools) > 0, none = choice && strcmp(choice, "none") == 0;
    const bool must = any && choice && strcmp(choice, "required") == 0, may = !p->tool_choice || (choice && strcmp(choice, "auto") == 0);
    bool ok = true;
    if (must) ok = shape_call(p->a, &p->s, p->tools, NULL, f);
    else if (any && type && strcmp(type, "function") == 0 && json_is_string(json_object_get(p->tool_choice, "name")))
        ok = shape_call(p->a, &p->s, p->tools, json_string_value(json_object_get(p->tool_choice, "name")), f);
    else if (!none && !may) ok = refuse(f, "tool_choice", "'tool_choice' must be 'auto', 'none', 'required' or name one of the 'tools'.");
    if (none || !any) {
        json_decref(p->tools);
        p->tools = NULL;
    }
    return ok;
}

static bool check_text(response *p, refusal *f) {
    const json_t *format = NULL, *schema = NULL;
    const char *verbosity = "medium", *type = "text";
    const field outer[] = {{"format", FIELD_JSON, &format, 0, 0, NULL}, {"verbosity", FIELD_TEXT, &verbosity, 0, 0, NULL}, {NULL, FIELD_BOOL, NULL, 0, 0, NULL}};
    const field inner[] = {{"type", FIELD_TEXT, &type, 0, 0, NULL},
                           {"schema", FIELD_JSON, &schema, 0, 0, NULL},
                           {"name", FIELD_MEANINGLESS, NULL, 0, 0, NULL},
                           {"description", FIELD_MEANINGLESS, NULL, 0, 0, NULL},
                           {"strict", FIELD_MEANINGLESS, NULL, 0, 0, NULL}, /* schemas are always kept to */
                           {NULL, FIELD_BOOL, NULL, 0, 0, NULL}};
    if (!p->text) return true;
    if (!json_is_object(p->text) || !fields_read(p->text, outer, NULL, f)) return f->e.code ? false : refuse(f, "text", "'text' must be an object.");
    if (strcmp(verbosity, "medium") != 0) return refuse(f, "text.verbosity", "'text.verbosity' must be 'medium': there is no other.");
    if (!format) return true;
    if (!json_is_object(format) || !fields_read(format, inner, NULL, f)) return f->e.code ? false : refuse(f, "text.format", "'text.format' must be an object.");
    if (strcmp(type, "text") == 0) return true;
    if (strcmp(type, "json_object") == 0) return shape_grammar(p->a, &p->s, HEARTH_GRAMMAR_JSON, "", 0, "text.format", f);
    if (strcmp(type, "json_schema") == 0 && json_is_object(schema)) return shape_schema(p->a, &p->s, schema, "text.format.schema", f);
    return refuse(f, "text.format", "'text.format' must be of type 'text', 'json_object', or 'json_schema' with a schema.");
}

static bool check_reasoning(response *p, refusal *f) {
    const char *context = "auto";
    const field table[] = {{"effort", FIELD_TEXT, &p->effort, 0, 0, NULL},
                           {"summary", FIELD_TEXT, &p->summary, 0, 0, NULL},
                           {"context", FIELD_TEXT, &context, 0, 0, NULL},
                           {"generate_summary", FIELD_REFUSED, NULL, 0, 0, "use 'summary'"},
                           {NULL, FIELD_BOOL, NULL, 0, 0, NULL}};
    if (!p->reasoning) return true;
    if (!json_is_object(p->reasoning) || !fields_read(p->reasoning, table, NULL, f)) return f->e.code ? false : refuse(f, "reasoning", "'reasoning' must be an object.");
    /* 'auto' is the best there is, which here is none: thoughts are given out whole. */
    if (p->summary && strcmp(p->summary, "auto") != 0) return refuse(f, "reasoning.summary", "'reasoning.summary' must be 'auto': thoughts are given out whole, not summarised.");
    return strcmp(context, "auto") == 0 || refuse(f, "reasoning.context", "'reasoning.context' must be 'auto': the chat template decides.");
}

static bool check_include(response *p, refusal *f) {
    static const char *const without[] = {"file_search_call.results", "web_search_call.results", "web_search_call.action.sources", "message.input_image.image_url",
                                          "computer_call_output.output.image_url", "code_interpreter_call.outputs"}; /* items that never occur here */
    if (p->include && !json_is_array(p->include)) return refuse(f, "include", "'include' must be an array.");
    for (size_t i = 0; i < json_array_size(p->include); i++) {
        const char *what = json_string_value(json_array_get(p->include, i));
        bool fine = what && strcmp(what, "reasoning.encrypted_content") == 0 && !p->a->thinks;
        for (size_t k = 0; what && k < sizeof without / sizeof *without; k++) fine |= strcmp(what, without[k]) == 0;
        if (what && strcmp(what, "message.output_text.logprobs") == 0) fine = p->logprobs = true;
        if (!fine) return refuse(f, "include", "include[%zu] is not supported: thoughts are given out as they are, and nothing else is left out.", i);
    }
    if (p->top_logprobs >= 0) p->logprobs = true;
    return true;
}

static bool check_rest(response *p, refusal *f) {
    if (p->background) return refuse(f, "background", "'background' must be false.");
    if (p->truncation && strcmp(p->truncation, "disabled") != 0) return refuse(f, "truncation", "'truncation' must be 'disabled': nothing is left out silently.");
    if (p->service_tier && strcmp(p->service_tier, "auto") != 0 && strcmp(p->service_tier, "default") != 0)
        return refuse(f, "service_tier", "'service_tier' must be 'auto' or 'default'.");
    if (p->metadata && (!json_is_object(p->metadata) || json_object_size(p->metadata) > 16)) return refuse(f, "metadata", "'metadata' must be an object of at most 16 keys.");
    const field options[] = {{"include_obfuscation", FIELD_MEANINGLESS, NULL, 0, 0, NULL}, {NULL, FIELD_BOOL, NULL, 0, 0, NULL}};
    if (p->stream_options && !(json_is_object(p->stream_options) && p->stream)) return refuse(f, "stream_options", "'stream_options' must be an object, and 'stream' true.");
    return !p->stream_options || fields_read(p->stream_options, options, NULL, f);
}

static bool read_response(response *p, const http_request *r, refusal *f) {
    sampling_init(&p->s, p->a);
    p->max_output_tokens = p->top_logprobs = -1;
    p->store = p->parallel_calls = true;
    hearth_sampler_options *o = &p->s.request.sampler;
    const field table[] = {
        {"model", FIELD_TEXT, &p->model, 0, 0, NULL},
        {"input", FIELD_JSON, &p->input, 0, 0, NULL},
        {"instructions", FIELD_TEXT, &p->instructions, 0, 0, NULL},
        {"previous_response_id", FIELD_TEXT, &p->previous, 0, 0, NULL},
        {"stream", FIELD_BOOL, &p->stream, 0, 0, NULL},
        {"stream_options", FIELD_JSON, &p->stream_options, 0, 0, NULL},
        {"store", FIELD_BOOL, &p->store, 0, 0, NULL},
        {"background", FIELD_BOOL, &p->background, 0, 0, NULL},
        {"max_output_tokens", FIELD_INT, &p->max_output_tokens, 1, 1e9, NULL},
        {"temperature", FIELD_FLOAT, &o->temperature, 0, 2, NULL},
        {"top_p", FIELD_FLOAT, &o->top_p, 0, 1, NULL},
        {"top_logprobs", FIELD_INT, &p->top_logprobs, 0, 20, NULL},
        {"tools", FIELD_JSON, &p->given_tools, 0, 0, NULL},
        {"tool_choice", FIELD_JSON, &p->tool_choice, 0, 0, NULL},
        {"parallel_tool_calls", FIELD_BOOL, &p->parallel_calls, 0, 0, NULL},
        {"text", FIELD_JSON, &p->text, 0, 0, NULL},
        {"reasoning", FIELD_JSON, &p->reasoning, 0, 0, NULL},
        {"include", FIELD_JSON, &p->include, 0, 0, NULL},
        {"metadata", FIELD_JSON, &p->metadata, 0, 0, NULL},
        {"truncation", FIELD_TEXT, &p->truncation, 0, 0, NULL},
        {"service_tier", FIELD_TEXT, &p->service_tier, 0, 0, NULL},
        {"user", FIELD_TEXT, &p->s.user, 0, 0, NULL},
        {"session", FIELD_TEXT, &p->s.session, 0, 0, NULL},
        {"top_k", FIELD_INT, &p->s.top_k, 0, 1e6, NULL},
        {"min_p", FIELD_FLOAT, &o->min_p, 0, 1, NULL},
        {"seed", FIELD_INT, &p->s.seed, 0, 0, NULL},
        {"priority", FIELD_INT, &p->s.priority, -1000, 1000, NULL},
        {"timeout", FIELD_FLOAT, &p->s.limit_s, 0.001, 1e6, NULL},
        {"safety_identifier", FIELD_MEANINGLESS, NULL, 0, 0, NULL},
        {"prompt_cache_key", FIELD_MEANINGLESS, NULL, 0, 0, NULL},
        {"prompt_cache_retention", FIELD_MEANINGLESS, NULL, 0, 0, NULL},
        {"prompt_cache_options", FIELD_MEANINGLESS, NULL, 0, 0, NULL},
        {"max_tool_calls", FIELD_MEANINGLESS, NULL, 0, 0, NULL}, /* of tools that run on the server: there are none */
        {"conversation", FIELD_REFUSED, NULL, 0, 0, "use 'previous_response_id'"},
        {"prompt", FIELD_REFUSED, NULL, 0, 0, "write the prompt into 'input'"},
        {"context_management", FIELD_REFUSED, NULL, 0, 0, "shorten the conversation yourself"},
        {"moderation", FIELD_REFUSED, NULL, 0, 0, NULL},
        {NULL, FIELD_BOOL, NULL, 0, 0, NULL},
    };
    if (!fields_read(p->body, table, NULL, f) || !model_is_known(p->a, p->model, f)) return false;
    if (!check_tools(p, f) || !check_text(p, f) || !check_reasoning(p, f) || !check_include(p, f) || !check_rest(p, f)) return false;
    p->s.max_tokens = p->max_output_tokens;
    p->s.request.n_logprobs = p->logprobs ? (p->top_logprobs > 0 ? (int)p->top_logprobs : 0) : -1;
    return sampling_finish(&p->s, p->a, r, f);
}

/* ---- the conversation ---- */

enum { LONGEST_CHAIN = 10000 };

/* Puts the items of the response with this id, and of those before it, in front of the list. */
static bool recall_items(response *p, const char *previous, refusal *f) {
    json_t *records = json_array();
    char id[80];
    snprintf(id, sizeof id, "%s", previous);
    bool ok = true;
    while (ok && *id && json_array_size(records) < LONGEST_CHAIN) {
        json_t *record = response_state_get(p->a->responses, id, p->tenant);
        if (!record) {
            char quoted[100];
            err_quote(quoted, sizeof quoted, id, strlen(id));
            ok = refuse_with(f, 400, "previous_response_not_found", "previous_response_id", "Previous response with id '%s' not found.", quoted);
            break;
        }
        const char *before = json_string_value(json_object_get(json_object_get(record, "response"), "previous_response_id"));
        snprintf(id, sizeof id, "%s", before ? before : "");
        json_array_append_new(records, record);
    }
    for (size_t i = json_array_size(records); ok && i-- > 0;) {
        const json_t *record = json_array_get(records, i);
        json_array_extend(p->items, json_object_get(record, "input"));
        json_array_extend(p->items, json_object_get(json_object_get(record, "response"), "output"));
    }
    json_decref(records);
    return ok;
}

static bool read_items(response *p, refusal *f) {
    p->items = json_array();
    p->own = json_array();
    if (json_is_string(p->input)) json_array_append_new(p->own, json_pack("{s:s, s:s, s:O}", "type", "message", "role", "user", "content", p->input));
    else if (json_is_array(p->input)) json_array_extend(p->own, (json_t *)p->input);
    else return refuse(f, "input", "'input' must be a string or an array of items.");
    if (p->previous && !recall_items(p, p->previous, f)) return false;
    json_array_extend(p->items, p->own);
    return json_array_size(p->items) > 0 || refuse(f, "input", "'input' must not be empty.");
}

/* *chat: the conversation as messages of the chat API, new. */
static bool make_prompt(response *p, token_run *prompt, json_t **chat, refusal *f) {
    if (!read_items(p, f) || !(*chat = messages_from_items(p->items, p->instructions, f))) return false;
    json_t *messages = messages_from_openai(*chat, f);
    if (!messages) strcpy(f->param, "input");
    if (messages && p->tools && !template_has_tools(p->a)) {
        json_t *as_text = tools_as_text(messages, p->tools, f);
        json_decref(messages);
        messages = as_text;
    }
    if (!messages) return false;
    json_t *variables = json_pack("{s:o}", "messages", messages);
    if (p->tools) json_object_set(variables, "tools", p->tools);
    bool ok = thinking_variables(p->a, variables, p->effort, -1) ||
              refuse_with(f, 400, "unsupported_value", "reasoning.effort", "'reasoning.effort' cannot be '%.20s' with this model.", p->effort);
    ok = ok && text_render(p->a, variables, p->s.grammar != NULL, prompt, f);
    json_decref(variables);
    return ok;
}

static bool submit(response *p, const http_request *r, refusal *f) {
    token_run prompt = {0};
    json_t *chat = NULL;
    bool ok = sampling_take_agent(&p->s, p->a, r, true, f);
    if (ok && p->s.turn) prompt.known = agent_turn_before(p->s.turn);
    ok = ok && make_prompt(p, &prompt, &chat, f);
    answer_form form = {.in_thought = prompt.in_thought, .tools = p->tools != NULL, .one_call = !p->parallel_calls};
    snprintf(form.calls, sizeof form.calls, "call_%s", p->id + strlen("resp_"));
    ok = ok && sampling_keep(&p->s, p->a, chat, &form, f) && (p->ticket = sampling_submit(&p->s, p->a, &prompt, f));
    mem_free(prompt.ids);
    json_decref(chat);
    return ok && response_maker_open(&p->maker, p->a, p->id, prompt.in_thought, p->tools != NULL, !p->parallel_calls, &f->e);
}

/* ---- the response ---- */

static json_t *given_or(const json_t *given, json_t *otherwise) {
    if (!given) return otherwise;
    json_decref(otherwise);
    return json_incref((json_t *)given);
}

static json_t *text_or_null(const char *text) { return text ? json_string(text) : json_null(); }

static json_t *usage_json(const response *p) {
    loop_usage u = loop_ticket_usage(p->ticket);
    return json_pack("{s:i, s:{s:i}, s:i, s:{s:i}, s:i}", "input_tokens", u.prompt_tokens, "input_tokens_details", "cached_tokens", u.cached_tokens, "output_tokens",
                     u.completion_tokens, "output_tokens_details", "reasoning_tokens", answer_thought_tokens(p->maker.answer, p->a->engine), "total_tokens",
                     u.prompt_tokens + u.completion_tokens);
}

/* status: in_progress, completed, incomplete or failed, the last with an error. */
static json_t *response_json(const response *p, const char *status, const err *error) {
    const bool over = strcmp(status, "in_progress") != 0, cut = strcmp(status, "incomplete") == 0;
    const hearth_sampler_options *o = &p->s.request.sampler;
    json_t *json = json_pack("{s:s, s:s, s:I, s:s, s:s, s:O}", "id", p->id, "object", "response", "created_at", (json_int_t)p->created, "status", status, "model",
                             p->a->o.model, "output", p->maker.output);
    const struct {
        const char *name;
        json_t *value;
    } rest[] = {
        {"error", error ? json_pack("{s:s, s:s}", "code", "server_error", "message", error->text) : json_null()},
        {"incomplete_details", cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null()},
        {"instructions", text_or_null(p->instructions)},
        {"max_output_tokens", p->max_output_tokens > 0 ? json_integer(p->max_output_tokens) : json_null()},
        {"previous_response_id", text_or_null(p->previous)},
        {"reasoning", json_pack("{s:o, s:o}", "effort", text_or_null(p->effort), "summary", text_or_null(p->summary))},
        {"text", given_or(p->text, json_pack("{s:{s:s}}", "format", "type", "text"))},
        {"tools", given_or(p->given_tools, json_array())},
        {"tool_choice", given_or(p->tool_choice, json_string("auto"))},
        {"metadata", given_or(p->metadata, json_object())},
        {"usage", over && !error ? usage_json(p) : json_null()},
        {"parallel_tool_calls", json_boolean(p->parallel_calls)},
        {"store", json_boolean(p->store)},
        {"background", json_false()},
        {"temperature", json_real((double)o->temperature)},
        {"top_p", json_real((double)o->top_p)},
        {"top_logprobs", json_integer(p->top_logprobs > 0 ? p->top_logprobs : 0)},
        {"truncation", json_string("disabled")},
        {"service_tier", json_string("default")},
        {"user", text_or_null(p->s.user)},
    };
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) json_object_set_new(json, rest[i].name, rest[i].value);
    if (over) json_object_set_new(json, "completed_at", json_integer((json_int_t)time(NULL)));
    return json;
}

/* The finished response; kept before the client hears of its end, so that it may go on at once. */
static json_t *finish(response *p, err *e) {
    json_t *json = response_json(p, p->maker.cut ? "incomplete" : "completed", NULL);
    if (!p->store) return json;
    json_t *record = json_pack("{s:O, s:O}", "response", json, "input", p->own);
    bool ok = record && response_state_put(p->a->responses, p->id, p->tenant, record, e);
    json_decref(record);
    if (ok) return json;
    json_decref(json);
    return NULL;
}

static void reply_whole(response *p, http_request *r) {
    refusal f = {0};
    err e = {0};
    for (;;) {
        loop_piece piece;
        loop_news news = loop_next(p->ticket, API_LOOK_NS, &piece, &e);
        if (news == LOOP_IDLE && http_gone(r)) {
            http_note(r, "cancelled", "1");
            return;
        }
        if (news == LOOP_PIECE && !response_maker_add(&p->maker, p->a, &piece, p->s.request.n_logprobs)) news = err_nomem(&e, 0) ? LOOP_DONE : LOOP_FAILED;
        if (news == LOOP_FAILED) {
            refuse_ticket(&f, &e);
            api_refuse(p->a, r, API_OPENAI, &f);
            return;
        }
        if (news == LOOP_DONE) break;
    }
    sampling_settle(&p->s, r);
    loop_usage u = loop_ticket_usage(p->ticket);
    note_usage(r, &u);
    json_t *json = finish(p, &f.e);
    if (json) api_reply(p->a, r, 200, json);
    else api_refuse(p->a, r, API_OPENAI, &f);
}

/* ---- streaming ---- */

static bool tell(response *p, const char *type, json_t *json) {
    bool ok = json && response_event(&p->maker, type, json);
    json_decref(json);
    return ok;
}

static bool begin(response *p) {
    if (p->begun) return true;
    p->begun = true;
    return tell(p, "response.created", response_json(p, "in_progress", NULL)) && tell(p, "response.in_progress", response_json(p, "in_progress", NULL));
}

static http_more next_event(void *user, http_request *r, uint64_t timeout_ns, buf *out) {
    response *p = user;
    loop_piece piece;
    err e = {0};
    p->maker.out = out;
    if (!p->begun) return begin(p) ? HTTP_MORE : HTTP_END;
    loop_news news = loop_next(p->ticket, timeout_ns, &piece, &e);
    if (news == LOOP_IDLE) return HTTP_IDLE;
    if (news == LOOP_PIECE) return response_maker_add(&p->maker, p->a, &piece, p->s.request.n_logprobs) ? HTTP_MORE : HTTP_END;
    if (news == LOOP_DONE && !sampling_saved(&p->s, r, timeout_ns)) return HTTP_IDLE;
    json_t *json = news == LOOP_DONE ? finish(p, &e) : NULL;
    if (json) {
        tell(p, p->maker.cut ? "response.incomplete" : "response.completed", json);
    } else {
        http_note(r, "error", "%s", e.text);
        tell(p, "response.failed", response_json(p, "failed", &e));
    }
    return HTTP_END;
}

static void end_stream(void *user, http_request *r) {
    response *p = user;
    loop_usage u = loop_ticket_usage(p->ticket);
    note_usage(r, &u);
    response_free(p);
}

/* ---- routes ---- */

static response *response_new(api *a, const http_request *r, refusal *f) {
    response *p = mem_zalloc(1, sizeof *p, &f->e);
    if (!p) return NULL;
    p->a = a;
    p->tenant = http_tenant(r);
    p->created = (long)time(NULL);
    snprintf(p->id, sizeof p->id, "resp_%s", http_id(r));
    p->body = api_body(r, f);
    return p;
}

void route_responses(api *a, http_request *r) {
    refusal f = {0};
    response *p = response_new(a, r, &f);
    if (!p || !p->body || !read_response(p, r, &f) || !submit(p, r, &f)) {
        api_refuse(a, r, API_OPENAI, &f);
        response_free(p);
    } else if (p->stream) {
        a->statuses[2]++;
        http_stream(r, &(http_events){.next = next_event, .done = end_stream, .user = p});
    } else {
        reply_whole(p, r);
        response_free(p);
    }
}

void route_response_tokens(api *a, http_request *r) {
    refusal f = {0};
    token_run prompt = {0};
    json_t *chat = NULL;
    response *p = response_new(a, r, &f);
    if (p && p->body && read_response(p, r, &f) && make_prompt(p, &prompt, &chat, &f))
        api_reply(a, r, 200, json_pack("{s:s, s:I}", "object", "response.input_tokens", "input_tokens", (json_int_t)prompt.n));
    else api_refuse(a, r, API_OPENAI, &f);
    mem_free(prompt.ids);
    json_decref(chat);
    response_free(p);
}

/* The id in the path, up to what follows it. */
static const char *path_id(const http_request *r, char *id, size_t cap) {
    const char *from = http_path(r) + strlen("/v1/responses/");
    size_t n = strcspn(from, "/");
    snprintf(id, cap, "%.*s", n < cap ? (int)n : 0, from);
    return from + n;
}

static bool refuse_id(refusal *f, const char *id) {
    char quoted[100];
    err_quote(quoted, sizeof quoted, id, strlen(id));
    return refuse_with(f, 404, NULL, "", "Response with id '%s' not found.", quoted);
}

static json_t *items_list(const json_t *record, const char *id) {
    json_t *data = json_array();
    for (size_t i = json_array_size(json_object_get(record, "input")); i-- > 0;) { /* newest first */
        json_t *item = json_copy(json_array_get(json_object_get(record, "input"), i));
        char own[128];
        snprintf(own, sizeof own, "item_%s_%zu", id, i);
        if (!json_object_get(item, "id")) json_object_set_new(item, "id", json_string(own));
        json_array_append_new(data, item);
    }
    json_t *first = json_object_get(json_array_get(data, 0), "id"), *last = json_object_get(json_array_get(data, json_array_size(data) - 1), "id");
    return json_pack("{s:s, s:O?, s:O?, s:b, s:o}", "object", "list", "first_id", first, "last_id", last, "has_more", 0, "data", data);
}

void route_response_show(api *a, http_request *r) {
    refusal f = {0};
    char id[80];
    const char *rest = path_id(r, id, sizeof id);
    const bool items = strcmp(rest, "/input_items") == 0;
    json_t *record = *rest == 0 || items ? response_state_get(a->responses, id, http_tenant(r)) : NULL;
    if (record && items) {
        api_reply(a, r, 200, items_list(record, id));
    } else if (record) {
        api_reply(a, r, 200, json_incref(json_object_get(record, "response")));
    } else {
        refuse_id(&f, id);
        api_refuse(a, r, API_OPENAI, &f);
    }
    json_decref(record);
}

void route_response_delete(api *a, http_request *r) {
    refusal f = {0};
    char id[80];
    const char *rest = path_id(r, id, sizeof id);
    if (*rest == 0 && response_state_drop(a->responses, id, http_tenant(r))) {
        api_reply(a, r, 200, json_pack("{s:s, s:s, s:b}", "id", id, "object", "response", "deleted", 1));
    } else {
        refuse_id(&f, id);
        api_refuse(a, r, API_OPENAI, &f);
    }
}
