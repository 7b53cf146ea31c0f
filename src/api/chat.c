/* chat.c: /v1/chat/completions. */
#include <string.h>
#include <time.h>

#include "api/inner.h"

/* One request, from its fields to its last event. */
typedef struct chat {
    api *a;
    json_t *body;
    sampling s;
    const json_t *messages, *tools, *tool_choice, *stream_options, *template_variables, *modalities;
    const char *model, *reasoning_effort, *service_tier, *verbosity;
    char agent[80];        /* messages are only those that are new to it; "": all are given */
    json_t *all, *written; /* messages, the agent's and the new ones, to be kept; and as they are rendered. Owned */
    int64_t max_tokens, max_completion_tokens, top_logprobs;
    bool stream, logprobs, store, parallel_calls, include_usage, use_tools;
    bool goes_on;          /* the last message is an answer that is not complete ... */
    json_t *begun;         /* ... and this is what it says; owned */
    loop_ticket *ticket;
    char id[64];
    long created;
    /* streaming */
    bool *greeted;         /* per answer: the first chunk was sent */
    answer **answers;      /* per answer; NULL where all of it is text */
    bool in_thought;       /* the prompt opened one */
    buf *out;
    int choice;            /* whose events go to out */
} chat;

static void chat_free(chat *c) {
    if (!c) return;
    loop_ticket_free(c->ticket);
    for (int i = 0; c->answers && i < c->s.n; i++) answer_free(c->answers[i]);
    mem_free(c->answers);
    mem_free(c->greeted);
    sampling_free(&c->s);
    json_decref(c->all);
    json_decref(c->written);
    json_decref(c->begun);
    json_decref(c->body);
    mem_free(c);
}

/* ---- the request ---- */

static bool check_tools(chat *c, refusal *f) {
    const char *choice = json_string_value(c->tool_choice);
    if (c->tools && !json_is_array(c->tools)) return refuse(f, "tools", "'tools' must be an array.");
    for (size_t i = 0; i < json_array_size(c->tools); i++) {
        const json_t *t = json_array_get(c->tools, i);
        const char *type = json_string_value(json_object_get(t, "type"));
        if (!type || strcmp(type, "function") != 0 || !json_is_string(json_object_get(json_object_get(t, "function"), "name")))
            return refuse(f, "tools", "tools[%zu] must be of type 'function' and have a function with a name.", i);
    }
    c->use_tools = json_array_size(c->tools) > 0;
    if (!c->tool_choice || (choice && strcmp(choice, "auto") == 0 && c->use_tools)) return true;
    if (choice && strcmp(choice, "none") == 0) {
        c->use_tools = false;
        return true;
    }
    if (!c->use_tools) return refuse(f, "tool_choice", "'tool_choice' is only allowed when 'tools' are given.");
    if (choice && strcmp(choice, "required") == 0) return shape_call(c->a, &c->s, c->tools, NULL, f);
    const char *name = json_string_value(json_object_get(json_object_get(c->tool_choice, "function"), "name"));
    if (!name) return refuse(f, "tool_choice", "'tool_choice' must be 'auto', 'none', 'required' or name a function.");
    return shape_call(c->a, &c->s, c->tools, name, f);
}

static bool check_rest(chat *c, refusal *f) {
    if (c->store) return refuse(f, "store", "'store' must be false: nothing is stored for later retrieval.");
    if (c->service_tier && strcmp(c->service_tier, "auto") != 0 && strcmp(c->service_tier, "default") != 0)
        return refuse(f, "service_tier", "'service_tier' must be 'auto' or 'default'.");
    if (c->verbosity && strcmp(c->verbosity, "medium") != 0) return refuse(f, "verbosity", "'verbosity' must be 'medium': there is no other.");
    if (c->modalities && (json_array_size(c->modalities) != 1 || !json_is_string(json_array_get(c->modalities, 0)) || strcmp(json_string_value(json_array_get(c->modalities, 0)), "text") != 0))
        return refuse(f, "modalities", "'modalities' must be [\"text\"].");
    if (c->stream_options) {
        const field options[] = {{"include_usage", FIELD_BOOL, &c->include_usage, 0, 0, NULL},
                                 {"include_obfuscation", FIELD_MEANINGLESS, NULL, 0, 0, NULL},
                                 {NULL, FIELD_BOOL, NULL, 0, 0, NULL}};
        if (!json_is_object(c->stream_options)) return refuse(f, "stream_options", "'stream_options' must be an object.");
        if (!c->stream) return refuse(f, "stream_options", "'stream_options' is only allowed when 'stream' is true.");
        if (!fields_read(c->stream_options, options, NULL, f)) return false;
    }
    if (c->top_logprobs >= 0 && !c->logprobs) return refuse(f, "top_logprobs", "'top_logprobs' needs 'logprobs' to be true.");
    if (c->template_variables && !json_is_object(c->template_variables)) return refuse(f, "chat_template_kwargs", "'chat_template_kwargs' must be an object.");
    return true;
}

static bool read_chat(chat *c, const http_request *r, refusal *f) {
    sampling_init(&c->s, c->a);
    if (c->agent[0]) c->s.agent = c->agent;
    c->max_tokens = c->max_completion_tokens = c->top_logprobs = -1;
    c->parallel_calls = true;
    const field table[] = {
        {"model", FIELD_TEXT, &c->model, 0, 0, NULL},
        {"messages", FIELD_JSON, &c->messages, 0, 0, NULL},
        {"stream", FIELD_BOOL, &c->stream, 0, 0, NULL},
        {"stream_options", FIELD_JSON, &c->stream_options, 0, 0, NULL},
        {"max_tokens", FIELD_INT, &c->max_tokens, 1, 1e9, NULL},
        {"max_completion_tokens", FIELD_INT, &c->max_completion_tokens, 1, 1e9, NULL},
        {"logprobs", FIELD_BOOL, &c->logprobs, 0, 0, NULL},
        {"top_logprobs", FIELD_INT, &c->top_logprobs, 0, 20, NULL},
        {"tools", FIELD_JSON, &c->tools, 0, 0, NULL},
        {"tool_choice", FIELD_JSON, &c->tool_choice, 0, 0, NULL},
        {"parallel_tool_calls", FIELD_BOOL, &c->parallel_calls, 0, 0, NULL},
        {"reasoning_effort", FIELD_TEXT, &c->reasoning_effort, 0, 0, NULL},
        {"chat_template_kwargs", FIELD_JSON, &c->template_variables, 0, 0, NULL},
        {"continue_final_message", FIELD_BOOL, &c->goes_on, 0, 0, NULL},
        {"store", FIELD_BOOL, &c->store, 0, 0, NULL},
        {"service_tier", FIELD_TEXT, &c->service_tier, 0, 0, NULL},
        {"modalities", FIELD_JSON, &c->modalities, 0, 0, NULL},
        {"metadata", FIELD_MEANINGLESS, NULL, 0, 0, NULL},
        {"safety_identifier", FIELD_MEANINGLESS, NULL, 0, 0, NULL},
        {"prompt_cache_key", FIELD_MEANINGLESS, NULL, 0, 0, NULL},
        {"prompt_cache_retention", FIELD_MEANINGLESS, NULL, 0, 0, NULL},
        {"prompt_cache_options", FIELD_MEANINGLESS, NULL, 0, 0, NULL},
        {"verbosity", FIELD_TEXT, &c->verbosity, 0, 0, NULL},
        {"prediction", FIELD_REFUSED, NULL, 0, 0, "nothing is predicted"},
        {"web_search_options", FIELD_REFUSED, NULL, 0, 0, "give a search as one of the 'tools'"},
        {"moderation", FIELD_REFUSED, NULL, 0, 0, NULL},
        {"functions", FIELD_REFUSED, NULL, 0, 0, "use 'tools'"},
        {"function_call", FIELD_REFUSED, NULL, 0, 0, "use 'tool_choice'"},
        {"audio", FIELD_REFUSED, NULL, 0, 0, "only text can be generated"},
        {NULL, FIELD_BOOL, NULL, 0, 0, NULL},
    };
    if (!fields_read(c->body, table, c->s.table, f) || !model_is_known(c->a, c->model, f) || !check_tools(c, f) || !check_rest(c, f))
        return false;
    if (c->max_tokens > 0 && c->max_completion_tokens > 0 && c->max_tokens != c->max_completion_tokens)
        return refuse(f, "max_tokens", "'max_tokens' and 'max_completion_tokens' cannot both be given.");
    c->s.max_tokens = c->max_completion_tokens > 0 ? c->max_completion_tokens : c->max_tokens;
    c->s.request.n_logprobs = c->logprobs ? (c->top_logprobs > 0 ? (int)c->top_logprobs : 0) : -1;
    return sampling_finish(&c->s, c->a, r, f);
}

/* The agent's messages and the new ones. */
static bool join_messages(chat *c, refusal *f) {
    if (!c->agent[0]) {
        c->all = json_incref((json_t *)c->messages);
        c->written = json_incref((json_t *)c->messages);
        return true;
    }
    if (!json_is_array(c->messages)) return refuse(f, "messages", "'messages' must be an array with at least one message.");
    c->all = agent_messages(agent_turn_before(c->s.turn), f);
    if (!c->all) return false;
    c->written = messages_written(c->all);
    return (json_array_extend(c->all, (json_t *)c->messages) == 0 && json_array_extend(c->written, (json_t *)c->messages) == 0) || err_nomem(&f->e, 0);
}

/* Takes the answer that is to be gone on with from the messages. */
static bool take_begun(chat *c, refusal *f) {
    if (!c->goes_on) return true;
    const size_t n = json_array_size(c->written);
    const json_t *last = json_array_get(c->written, n ? n - 1 : 0);
    const char *role = json_string_value(json_object_get(last, "role"));
    c->begun = json_incref(json_object_get(last, "content"));
    if (!role || strcmp(role, "assistant") != 0 || !json_is_string(c->begun) || json_object_get(last, "tool_calls") || strlen(json_string_value(c->begun)) != json_string_length(c->begun))
        return refuse(f, "continue_final_message", "'continue_final_message' needs a last message of the assistant that is text.");
    if (c->s.grammar || c->use_tools) return refuse(f, "continue_final_message", "'continue_final_message' does not go with tools or an answer of a given form.");
    /* The arrays may be the request's own. */
    json_t *all = json_copy(c->all), *written = json_copy(c->written);
    json_decref(c->all);
    json_decref(c->written);
    c->all = all;
    c->written = written;
    return (json_array_remove(all, n - 1) == 0 && json_array_remove(written, n - 1) == 0) || err_nomem(&f->e, 0);
}

/* What the ids of calls begin with. */
static void name_calls(const chat *c, int choice, char out[80]) { snprintf(out, 80, "call_%.50s_%d", c->id + strlen("chatcmpl-"), choice); }

static bool submit(chat *c, const http_request *r, refusal *f) {
    if (!sampling_take_agent(&c->s, c->a, r, !c->agent[0], f) || !join_messages(c, f) || !take_begun(c, f)) return false;
    json_t *messages = messages_from_openai(c->written, f);
    if (!messages) return false;
    if (c->use_tools && !template_has_tools(c->a)) {
        json_t *as_text = tools_as_text(messages, c->tools, f);
        json_decref(messages);
        if (!(messages = as_text)) return false;
    }
    json_t *variables = c->template_variables ? json_deep_copy(c->template_variables) : json_object();
    json_object_set_new(variables, "messages", messages);
    if (c->use_tools) json_object_set(variables, "tools", (json_t *)c->tools);
    token_run prompt = {.known = c->s.turn ? agent_turn_before(c->s.turn) : NULL, .begun = json_string_value(c->begun)};
    bool ok = thinking_variables(c->a, variables, c->reasoning_effort, -1) ||
              refuse_with(f, 400, "unsupported_value", "reasoning_effort", "'reasoning_effort' cannot be '%.20s' with this model.", c->reasoning_effort);
    ok = ok && text_render(c->a, variables, c->s.grammar != NULL, &prompt, f);
    c->in_thought = prompt.in_thought;
    answer_form form = {.in_thought = prompt.in_thought, .tools = c->use_tools, .one_call = !c->parallel_calls, .begun = prompt.begun};
    name_calls(c, 0, form.calls);
    ok = ok && sampling_keep(&c->s, c->a, c->all, &form, f) && (c->ticket = sampling_submit(&c->s, c->a, &prompt, f));
    mem_free(prompt.ids);
    json_decref(variables);
    return ok;
}

static bool open_answers(chat *c, err *e) {
    size_t n = (size_t)c->s.n;
    c->greeted = mem_zalloc(n, sizeof *c->greeted, e);
    c->answers = mem_zalloc(n, sizeof *c->answers, e);
    if (!c->greeted || !c->answers) return false;
    for (size_t i = 0; (c->use_tools || c->a->thinks) && i < n; i++)
        if (!(c->answers[i] = answer_new(c->a->thinks, c->in_thought, c->use_tools, e))) return false;
    return true;
}

static const char *finish_word(loop_finish finish, bool called) {
    return finish == LOOP_LENGTH ? "length" : called ? "tool_calls" : "stop";
}

static json_t *usage_json(const chat *c) {
    loop_usage u = loop_ticket_usage(c->ticket);
    json_t *usage = openai_usage(&u);
    int n = 0;
    for (int i = 0; i < c->s.n; i++) n += answer_thought_tokens(c->answers[i], c->a->engine);
    json_object_set_new(usage, "completion_tokens_details", json_pack("{s:i}", "reasoning_tokens", n));
    return usage;
}

/* ---- the whole answer ---- */

static json_t *message_json(chat *c, const gathered *g, int i, bool *called) {
    *called = false;
    if (!c->answers[i])
        return json_pack("{s:s, s:o, s:n}", "role", "assistant", "content", text_json(g->text.data ? g->text.data : "", g->text.len), "refusal");
    err e = {0};
    char calls[80];
    name_calls(c, i, calls);
    json_t *message = answer_message(c->answers[i], g->text.data ? g->text.data : "", g->text.len, calls, !c->parallel_calls, &e);
    if (message) json_object_set_new(message, "refusal", json_null());
    *called = json_object_get(message, "tool_calls") != NULL;
    return message;
}

static void reply_whole(chat *c, http_request *r) {
    refusal f = {0};
    gathered *g = mem_zalloc((size_t)c->s.n, sizeof *g, &f.e);
    int n = (int)c->s.n;
    if (g && gather(c->a, r, c->ticket, n, c->logprobs ? openai_logprob : NULL, c->s.request.n_logprobs, g, &f)) {
        json_t *choices = json_array();
        for (int i = 0; i < n; i++) {
            bool called = false;
            json_t *message = message_json(c, &g[i], i, &called);
            json_t *logprobs = c->logprobs ? json_pack("{s:o, s:n}", "content", g[i].logprobs ? json_incref(g[i].logprobs) : json_array(), "refusal") : json_null();
            json_array_append_new(choices, json_pack("{s:i, s:o, s:o, s:s}", "index", i, "message", message, "logprobs", logprobs, "finish_reason",
                                                     finish_word(g[i].finish, called)));
        }
        sampling_settle(&c->s, r);
        loop_usage u = loop_ticket_usage(c->ticket);
        note_usage(r, &u);
        api_reply(c->a, r, 200, json_pack("{s:s, s:s, s:I, s:s, s:o, s:o, s:o, s:s}", "id", c->id, "object", "chat.completion", "created", (json_int_t)c->created,
                                          "model", c->a->o.model, "choices", choices, "usage", usage_json(c), "timings", timings_json(&u), "system_fingerprint", "hearth-" HEARTH_VERSION));
    } else if (f.e.code != HEARTH_OK) {
        api_refuse(c->a, r, API_OPENAI, &f);
    } else {
        http_note(r, "cancelled", "1");
    }
    if (g) gathered_free(g, n);
    mem_free(g);
}

/* ---- streaming ---- */

/* One chunk with these choices. Takes them. */
static bool chunk(chat *c, json_t *choices, json_t *usage, bool last) {
    json_t *json = json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", c->id, "object", "chat.completion.chunk", "created", (json_int_t)c->created, "model",
                             c->a->o.model, "system_fingerprint", "hearth-" HEARTH_VERSION, "choices", choices);
    if (usage) json_object_set_new(json, "usage", usage);
    else if (c->include_usage) json_object_set_new(json, "usage", json_null());
    loop_usage u = loop_ticket_usage(c->ticket);
    if (last && u.total_ns) json_object_set_new(json, "timings", timings_json(&u));
    return event_data(c->out, NULL, json);
}

static bool delta(chat *c, json_t *what, json_t *logprobs, const char *finish) {
    json_t *choice = json_pack("{s:i, s:o, s:o, s:o}", "index", c->choice, "delta", what, "logprobs", logprobs ? logprobs : json_null(), "finish_reason",
                               finish ? json_string(finish) : json_null());
    json_t *choices = json_array();
    json_array_append_new(choices, choice);
    return chunk(c, choices, NULL, finish != NULL);
}

static bool send_event(void *user, const tool_event *e) {
    chat *c = user;
    if (e->kind == TOOL_TEXT) return delta(c, json_pack("{s:o}", "content", text_json(e->text, e->len)), NULL, NULL);
    if (e->kind == TOOL_THOUGHT) return delta(c, json_pack("{s:o}", "reasoning_content", text_json(e->text, e->len)), NULL, NULL);
    if (e->kind == TOOL_CALL_END || (e->index > 0 && !c->parallel_calls)) return true;
    char calls[80];
    name_calls(c, c->choice, calls);
    json_t *call = e->kind == TOOL_CALL ? call_json(calls, e->index, e->name, "") : json_pack("{s:{s:o}}", "function", "arguments", text_json(e->text, e->len));
    json_object_set_new(call, "index", json_integer(e->index));
    return delta(c, json_pack("{s:[o]}", "tool_calls", call), NULL, NULL);
}

/* NULL unless asked for and there. */
static json_t *piece_logprobs(chat *c, const loop_piece *p) {
    if (!c->logprobs || p->n_tokens == 0) return NULL;
    json_t *list = json_array();
    for (size_t i = 0; i < p->n_tokens; i++) json_array_append_new(list, openai_logprob(c->a, &p->tokens[i], c->s.request.n_logprobs));
    return json_pack("{s:o, s:n}", "content", list, "refusal");
}

static bool send_text(chat *c, const loop_piece *p) {
    json_t *logprobs = piece_logprobs(c, p);
    if (p->len == 0 && !logprobs) return true;
    return delta(c, json_pack("{s:o}", "content", text_json(p->text, p->len)), logprobs, NULL);
}

/* Text that is cut up may come later than its tokens, so their log-probabilities come by themselves. */
static bool send_cut(chat *c, answer *a, const loop_piece *p) {
    err e = {0};
    json_t *logprobs = piece_logprobs(c, p);
    if (logprobs && !delta(c, json_object(), logprobs, NULL)) return false;
    return answer_add(a, p->text, p->len, send_event, c, &e) && (p->finish == LOOP_RUNNING || answer_end(a, send_event, c, &e));
}

static bool send_piece(chat *c, const loop_piece *p) {
    answer *a = c->answers[p->choice];
    c->choice = p->choice;
    bool ok = true;
    if (!c->greeted[p->choice]) {
        c->greeted[p->choice] = true;
        ok = delta(c, json_pack("{s:s, s:s}", "role", "assistant", "content", ""), NULL, NULL);
    }
    ok = ok && (a ? send_cut(c, a, p) : send_text(c, p));
    if (ok && p->finish != LOOP_RUNNING) ok = delta(c, json_object(), NULL, finish_word(p->finish, a && answer_calls(a) > 0));
    return ok;
}

static http_more next_event(void *user, http_request *r, uint64_t timeout_ns, buf *out) {
    (void)r;
    chat *c = user;
    loop_piece piece;
    err e = {0};
    c->out = out;
    switch (loop_next(c->ticket, timeout_ns, &piece, &e)) {
    case LOOP_IDLE: return HTTP_IDLE;
    case LOOP_PIECE: return send_piece(c, &piece) ? HTTP_MORE : HTTP_END;
    case LOOP_DONE:
        if (!sampling_saved(&c->s, r, timeout_ns)) return HTTP_IDLE;
        if (c->include_usage) chunk(c, json_array(), usage_json(c), true);
        break;
    case LOOP_FAILED:
        stream_failed(out, r, API_OPENAI, &e);
        break;
    }
    buf_adds(out, "data: [DONE]\n\n", NULL);
    return HTTP_END;
}

static void end_stream(void *user, http_request *r) {
    chat *c = user;
    loop_usage u = loop_ticket_usage(c->ticket);
    note_usage(r, &u);
    chat_free(c);
}

void chat_with_agent(api *a, http_request *r, const char *agent) {
    refusal f = {0};
    chat *c = mem_zalloc(1, sizeof *c, &f.e);
    if (c) {
        c->a = a;
        c->created = (long)time(NULL);
        if (agent) snprintf(c->agent, sizeof c->agent, "%s", agent);
        snprintf(c->id, sizeof c->id, "chatcmpl-%s", http_id(r));
        c->body = api_body(r, &f);
    }
    if (!c || !c->body || !read_chat(c, r, &f) || !submit(c, r, &f) || !open_answers(c, &f.e)) {
        api_refuse(a, r, API_OPENAI, &f);
        chat_free(c);
    } else if (c->stream) {
        a->statuses[2]++;
        http_stream(r, &(http_events){.next = next_event, .done = end_stream, .user = c});
    } else {
        reply_whole(c, r);
        chat_free(c);
    }
}

void route_chat(api *a, http_request *r) { chat_with_agent(a, r, NULL); }
