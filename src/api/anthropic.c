/* anthropic.c: /v1/messages and /v1/messages/count_tokens. */
#include <string.h>

#include "api/inner.h"

typedef struct message {
    api *a;
    json_t *body, *tools; /* tools: in OpenAI's form, NULL without */
    sampling s;
    const json_t *messages, *system, *given_tools, *tool_choice, *thinking, *metadata, *output, *cache_control;
    const char *model, *service_tier, *speed, *effort;
    int64_t max_tokens;
    bool stream, one_call;
    int think;              /* -1: the model as it likes; 0: not, or not shown; 1 */
    bool hide_thoughts;     /* their blocks are empty */
    size_t cache_prefix;    /* tokens up to the last cache_control */
    loop_ticket *ticket;
    answer *answer;
    char id[64];
    /* streaming, and gathering */
    bool begun;
    int block;              /* the block that is open, or the next one */
    bool is_open;
    tool_event_kind open;   /* what is in it: thoughts, text or a call */
    buf *out;
    json_t *content;
    buf text, name;
} message;

static void message_free(message *m) {
    if (!m) return;
    loop_ticket_free(m->ticket);
    answer_free(m->answer);
    sampling_free(&m->s);
    json_decref(m->tools);
    json_decref(m->content);
    json_decref(m->body);
    buf_free(&m->text);
    buf_free(&m->name);
    mem_free(m);
}

/* ---- the request ---- */

static bool check_tool_choice(message *m, refusal *f) {
    const char *type = "auto", *name = NULL;
    bool one = false;
    const field table[] = {{"type", FIELD_TEXT, &type, 0, 0, NULL},
                           {"disable_parallel_tool_use", FIELD_BOOL, &one, 0, 0, NULL},
                           {"name", FIELD_TEXT, &name, 0, 0, NULL},
                           {NULL, FIELD_BOOL, NULL, 0, 0, NULL}};
    if (m->given_tools && !json_is_array(m->given_tools)) return refuse(f, "", "tools: must be an array");
    if (m->tool_choice && (!json_is_object(m->tool_choice) || !fields_read(m->tool_choice, table, NULL, f)))
        return f->e.code ? false : refuse(f, "", "tool_choice: must be an object");
    m->one_call = one;
    if (strcmp(type, "none") == 0 || json_array_size(m->given_tools) == 0) return true;
    m->tools = tools_from_anthropic(m->given_tools, f);
    if (!m->tools) return false;
    if (strcmp(type, "auto") == 0) return true;
    if (strcmp(type, "any") == 0) return shape_call(m->a, &m->s, m->tools, NULL, f);
    if (strcmp(type, "tool") == 0 && name) return shape_call(m->a, &m->s, m->tools, name, f);
    return refuse(f, "", "tool_choice.type: must be 'auto', 'any', 'none', or 'tool' with a name");
}

static bool check_thinking(message *m, bool count_only, refusal *f) {
    const char *type = "disabled", *display = NULL;
    int64_t budget = 0;
    const field table[] = {{"type", FIELD_TEXT, &type, 0, 0, NULL},
                           {"budget_tokens", FIELD_INT, &budget, 1024, 1e9, NULL},
                           {"display", FIELD_TEXT, &display, 0, 0, NULL},
                           {NULL, FIELD_BOOL, NULL, 0, 0, NULL}};
    if (m->thinking && (!json_is_object(m->thinking) || !fields_read(m->thinking, table, NULL, f))) return f->e.code ? false : refuse(f, "", "thinking: must be an object");
    if (display && strcmp(display, "summarized") != 0 && strcmp(display, "omitted") != 0) return refuse(f, "", "thinking.display: must be 'summarized' or 'omitted'");
    m->hide_thoughts = display && strcmp(display, "omitted") == 0;
    if (strcmp(type, "enabled") == 0) {
        if (budget == 0) return refuse(f, "", "thinking.budget_tokens: Field required");
        if (!count_only && budget >= m->max_tokens) return refuse(f, "", "max_tokens: must be greater than thinking.budget_tokens");
        if (!m->a->thinks) return refuse(f, "", "thinking.type: this model does not think");
        if (m->s.grammar) return refuse(f, "", "thinking: may not be enabled when the answer must have a shape or be a call");
        m->think = 1;
        m->s.request.thoughts = m->a->thoughts;
        m->s.request.thoughts.limit = (int)budget;
        if (m->a->thoughts.n_close == 0) return refuse(f, "", "thinking.budget_tokens: this model has no token that ends its thoughts; use 'adaptive'");
        return true;
    }
    if (strcmp(type, "adaptive") != 0 && strcmp(type, "disabled") != 0) return refuse(f, "", "thinking.type: must be 'enabled', 'adaptive' or 'disabled'");
    m->think = strcmp(type, "adaptive") == 0 ? -1 : 0;
    return true;
}

static bool check_output(message *m, refusal *f) {
    const json_t *format = NULL, *schema = NULL;
    const char *type = NULL;
    const field outer[] = {{"effort", FIELD_TEXT, &m->effort, 0, 0, NULL}, {"format", FIELD_JSON, &format, 0, 0, NULL}, {NULL, FIELD_BOOL, NULL, 0, 0, NULL}};
    const field inner[] = {{"type", FIELD_TEXT, &type, 0, 0, NULL}, {"schema", FIELD_JSON, &schema, 0, 0, NULL}, {NULL, FIELD_BOOL, NULL, 0, 0, NULL}};
    if (!m->output) return true;
    if (!json_is_object(m->output) || !fields_read(m->output, outer, NULL, f)) return f->e.code ? false : refuse(f, "", "output_config: must be an object");
    if (!format) return true;
    if (!json_is_object(format) || !fields_read(format, inner, NULL, f)) return f->e.code ? false : refuse(f, "", "output_config.format: must be an object");
    if (!type || strcmp(type, "json_schema") != 0 || !json_is_object(schema)) return refuse(f, "", "output_config.format: must be of type 'json_schema' and have a schema");
    return shape_schema(m->a, &m->s, schema, "output_config.format.schema", f);
}

static bool check_rest(message *m, bool count_only, refusal *f) {
    if (m->speed && strcmp(m->speed, "standard") != 0) return refuse(f, "", "speed: must be 'standard'");
    if (m->cache_control && !cache_control_is_fine(m->cache_control, "cache_control", f)) return false;
    if (m->service_tier && strcmp(m->service_tier, "auto") != 0 && strcmp(m->service_tier, "standard_only") != 0)
        return refuse(f, "", "service_tier: must be 'auto' or 'standard_only'");
    if (!count_only && m->max_tokens < 1) return refuse(f, "", "max_tokens: Field required");
    if (!m->model) return refuse(f, "", "model: Field required");
    const json_t *user = json_object_get(m->metadata, "user_id");
    if (json_is_string(user)) m->s.user = json_string_value(user);
    return model_is_known(m->a, m->model, f) && check_tool_choice(m, f) && check_output(m, f) && check_thinking(m, count_only, f);
}

static bool read_message(message *m, const http_request *r, bool count_only, refusal *f) {
    sampling_init(&m->s, m->a);
    m->s.stop_name = "stop_sequences";
    hearth_sampler_options *o = &m->s.request.sampler;
    const field table[] = {
        {"model", FIELD_TEXT, &m->model, 0, 0, NULL},
        {"messages", FIELD_JSON, &m->messages, 0, 0, NULL},
        {"system", FIELD_JSON, &m->system, 0, 0, NULL},
        {"max_tokens", FIELD_INT, &m->max_tokens, 1, 1e9, NULL},
        {"stop_sequences", FIELD_JSON, &m->s.stop, 0, 0, NULL},
        {"stream", FIELD_BOOL, &m->stream, 0, 0, NULL},
        {"temperature", FIELD_FLOAT, &o->temperature, 0, 1, NULL},
        {"top_p", FIELD_FLOAT, &o->top_p, 0, 1, NULL},
        {"top_k", FIELD_INT, &m->s.top_k, 0, 1e6, NULL},
        {"tools", FIELD_JSON, &m->given_tools, 0, 0, NULL},
        {"tool_choice", FIELD_JSON, &m->tool_choice, 0, 0, NULL},
        {"thinking", FIELD_JSON, &m->thinking, 0, 0, NULL},
        {"metadata", FIELD_JSON, &m->metadata, 0, 0, NULL},
        {"service_tier", FIELD_TEXT, &m->service_tier, 0, 0, NULL},
        {"session", FIELD_TEXT, &m->s.session, 0, 0, NULL},
        {"cache_control", FIELD_JSON, &m->cache_control, 0, 0, NULL}, /* every prefix is remembered; this one is counted */
        {"output_config", FIELD_JSON, &m->output, 0, 0, NULL},
        {"speed", FIELD_TEXT, &m->speed, 0, 0, NULL},
        {"user_profile_id", FIELD_MEANINGLESS, NULL, 0, 0, NULL},
        {"container", FIELD_REFUSED, NULL, 0, 0, "nothing is executed on the server"},
        {"mcp_servers", FIELD_REFUSED, NULL, 0, 0, "give the tools in 'tools'"},
        {"context_management", FIELD_REFUSED, NULL, 0, 0, "shorten the messages yourself"},
        {"diagnostics", FIELD_REFUSED, NULL, 0, 0, NULL},
        {"inference_geo", FIELD_REFUSED, NULL, 0, 0, "everything is computed here"},
        {"workspace_id", FIELD_REFUSED, NULL, 0, 0, NULL},
        {NULL, FIELD_BOOL, NULL, 0, 0, NULL},
    };
    if (!fields_read(m->body, table, NULL, f) || !check_rest(m, count_only, f)) return false;
    m->s.max_tokens = m->max_tokens;
    return sampling_finish(&m->s, m->a, r, f);
}

/* These messages rendered, with the beginning of an answer or without. kept: gets them, new, in the form that the agent remembers; or NULL. */
static bool make_prompt(message *m, const json_t *given, bool begin, json_t **kept, token_run *prompt, refusal *f) {
    json_t *messages = messages_from_anthropic(given, m->system, f);
    if (!messages) return false;
    if (kept) *kept = json_incref(messages);
    if (m->tools && !template_has_tools(m->a)) {
        json_t *as_text = tools_as_text(messages, m->tools, f);
        json_decref(messages);
        if (!(messages = as_text)) return false;
    }
    if (m->s.turn) prompt->known = agent_turn_before(m->s.turn);
    json_t *variables = json_pack("{s:o}", "messages", messages);
    if (m->tools) json_object_set(variables, "tools", m->tools);
    if (!begin) json_object_set_new(variables, "add_generation_prompt", json_false());
    /* What cannot be switched off is left out of the answer. */
    bool ok = thinking_variables(m->a, variables, m->effort, m->think) || (m->think == 0 && !m->effort) || refuse(f, "", "output_config.effort: this model has no levels of effort");
    ok = ok && text_render(m->a, variables, m->s.grammar != NULL, prompt, f);
    json_decref(variables);
    return ok;
}

/* How many tokens of the prompt lie before the last cache_control: those up to the end of its message, or those that another conversation with the same system text and
 * tools would begin with. */
static bool find_cache_prefix(message *m, const token_run *prompt, refusal *f) {
    bool head = false;
    const size_t n = cache_control_messages(m->messages, m->system, m->given_tools, &head, f);
    if (f->e.code != HEARTH_OK) return false;
    if (m->cache_control || n == json_array_size(m->messages)) m->cache_prefix = prompt->n;
    if (m->cache_prefix || (n == 0 && !head)) return true;
    json_t *some = n ? json_array() : json_pack("[{s:s, s:s}]", "role", "user", "content", "\x01");
    for (size_t i = 0; i < n; i++) json_array_append(some, json_array_get(m->messages, i));
    token_run part = {0};
    refusal ignored = {0}; /* a template may refuse a conversation that ends there */
    if (make_prompt(m, some, false, NULL, &part, &ignored))
        while (m->cache_prefix < part.n && m->cache_prefix < prompt->n && part.ids[m->cache_prefix] == prompt->ids[m->cache_prefix]) m->cache_prefix++;
    mem_free(part.ids);
    json_decref(some);
    return true;
}

static bool submit(message *m, const http_request *r, refusal *f) {
    token_run prompt = {0};
    json_t *kept = NULL;
    bool ok = sampling_take_agent(&m->s, m->a, r, true, f) && make_prompt(m, m->messages, true, &kept, &prompt, f) && find_cache_prefix(m, &prompt, f);
    m->s.request.thoughts.inside = prompt.in_thought;
    answer_form form = {.in_thought = prompt.in_thought, .tools = m->tools != NULL, .one_call = m->one_call};
    snprintf(form.calls, sizeof form.calls, "toolu_%s", m->id + strlen("msg_"));
    ok = ok && sampling_keep(&m->s, m->a, kept, &form, f) && (m->ticket = sampling_submit(&m->s, m->a, &prompt, f));
    mem_free(prompt.ids);
    json_decref(kept);
    return ok && (m->answer = answer_new(m->a->thinks, prompt.in_thought, m->tools != NULL, &f->e));
}

/* ---- the answer ---- */

static json_t *usage_json(const message *m) {
    const loop_usage u = loop_ticket_usage(m->ticket);
    const int read = u.cached_tokens, made = (int)m->cache_prefix > read ? (int)m->cache_prefix - read : 0;
    return json_pack("{s:i, s:i, s:i, s:{s:i, s:i}, s:i, s:s}", "input_tokens", u.prompt_tokens - read - made, "cache_read_input_tokens", read,
                     "cache_creation_input_tokens", made, "cache_creation", "ephemeral_5m_input_tokens", made, "ephemeral_1h_input_tokens", 0, "output_tokens",
                     u.completion_tokens, "service_tier", "standard");
}

static const char *stop_reason(const message *m, loop_finish finish) {
    if (finish == LOOP_LENGTH) return "max_tokens";
    if (answer_calls(m->answer) > 0) return "tool_use";
    return finish == LOOP_STOP ? "stop_sequence" : "end_turn";
}

static json_t *message_json(const message *m, json_t *content, json_t *reason, json_t *sequence) {
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "id", m->id, "type", "message", "role", "assistant", "model", m->a->o.model, "content", content,
                     "stop_reason", reason, "stop_sequence", sequence, "usage", usage_json(m));
}

static json_t *use_json(const message *m, int index, const char *name, json_t *input) {
    char id[96];
    snprintf(id, sizeof id, "toolu_%s_%d", m->id + strlen("msg_"), index);
    return json_pack("{s:s, s:s, s:s, s:o}", "type", "tool_use", "id", id, "name", name, "input", input);
}

/* Whether this event is not for the client: thoughts that were not asked for, calls beyond the one that is allowed. */
static bool is_dropped(const message *m, const tool_event *e) {
    return e->kind == TOOL_THOUGHT ? m->think == 0 : e->kind != TOOL_TEXT && e->index > 0 && m->one_call;
}

/* Thoughts carry a signature, which is not looked at when they come back. */
static json_t *block_json(const message *m, tool_event_kind kind) {
    json_t *text = text_json(m->text.data ? m->text.data : "", m->text.len);
    if (kind == TOOL_THOUGHT) return json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking", text, "signature", m->id);
    return json_pack("{s:s, s:o}", "type", "text", "text", text);
}

static bool flush(message *m) {
    if (!m->is_open) return true;
    m->is_open = false;
    return json_array_append_new(m->content, block_json(m, m->open)) == 0;
}

static bool add_whole(void *user, const tool_event *e) {
    message *m = user;
    if (is_dropped(m, e)) return true;
    if (e->kind == TOOL_TEXT || e->kind == TOOL_THOUGHT) {
        if (m->is_open && m->open != e->kind && !flush(m)) return false;
        if (!m->is_open) m->text.len = 0;
        m->is_open = true;
        m->open = e->kind;
        return (e->kind == TOOL_THOUGHT && m->hide_thoughts) || buf_add(&m->text, e->text, e->len, NULL);
    }
    if (e->kind == TOOL_ARGUMENTS) return buf_add(&m->text, e->text, e->len, NULL);
    if (e->kind == TOOL_CALL) {
        bool ok = flush(m);
        m->text.len = m->name.len = 0;
        return ok && buf_adds(&m->name, e->name, NULL);
    }
    json_t *input = json_loadb(m->text.data ? m->text.data : "", m->text.len, JSON_ALLOW_NUL, NULL);
    m->text.len = 0;
    return json_array_append_new(m->content, use_json(m, e->index, m->name.data, input ? input : json_object())) == 0;
}

static void reply_whole(message *m, http_request *r) {
    refusal f = {0};
    gathered g = {0};
    if (gather(m->a, r, m->ticket, 1, NULL, 0, &g, &f)) {
        const char *text = g.text.data ? g.text.data : "";
        m->content = json_array();
        bool ok = answer_add(m->answer, text, g.text.len, add_whole, m, &f.e) && answer_end(m->answer, add_whole, m, &f.e);
        sampling_settle(&m->s, r);
        loop_usage u = loop_ticket_usage(m->ticket);
        note_usage(r, &u);
        if (ok && flush(m))
            api_reply(m->a, r, 200, message_json(m, json_incref(m->content), json_string(stop_reason(m, g.finish)), g.stop ? json_string(g.stop) : json_null()));
        else api_refuse(m->a, r, API_ANTHROPIC, &f);
    } else if (f.e.code != HEARTH_OK) {
        api_refuse(m->a, r, API_ANTHROPIC, &f);
    }
    gathered_free(&g, 1);
}

/* ---- streaming ---- */

/* Takes rest. */
static bool event(message *m, const char *type, json_t *rest) {
    json_t *json = json_pack("{s:s}", "type", type);
    json_object_update(json, rest);
    json_decref(rest);
    return event_data(m->out, type, json);
}

static bool begin(message *m) {
    if (m->begun) return true;
    m->begun = true;
    json_t *empty = message_json(m, json_array(), json_null(), json_null());
    return event(m, "message_start", json_pack("{s:o}", "message", empty)) && event(m, "ping", json_object());
}

static bool delta(message *m, const char *type, const char *key, json_t *value) {
    return event(m, "content_block_delta", json_pack("{s:i, s:{s:s, s:o}}", "index", m->block, "delta", "type", type, key, value));
}

static bool open_block(message *m, tool_event_kind kind, json_t *block) {
    m->is_open = true;
    m->open = kind;
    return event(m, "content_block_start", json_pack("{s:i, s:o}", "index", m->block, "content_block", block));
}

static bool close_block(message *m) {
    if (!m->is_open) return true;
    m->is_open = false;
    if (m->open == TOOL_THOUGHT && !delta(m, "signature_delta", "signature", json_string(m->id))) return false;
    return event(m, "content_block_stop", json_pack("{s:i}", "index", m->block++));
}

static bool send_words(message *m, const tool_event *e) {
    bool thought = e->kind == TOOL_THOUGHT;
    if (m->is_open && m->open != e->kind && !close_block(m)) return false;
    if (!m->is_open) {
        json_t *block = thought ? json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "", "signature", "") : json_pack("{s:s, s:s}", "type", "text", "text", "");
        if (!open_block(m, e->kind, block)) return false;
    }
    if (thought && m->hide_thoughts) return true;
    return delta(m, thought ? "thinking_delta" : "text_delta", thought ? "thinking" : "text", text_json(e->text, e->len));
}

static bool send_event(void *user, const tool_event *e) {
    message *m = user;
    if (is_dropped(m, e)) return true;
    switch (e->kind) {
    case TOOL_CALL: return close_block(m) && open_block(m, TOOL_CALL, use_json(m, e->index, e->name, json_object()));
    case TOOL_ARGUMENTS: return delta(m, "input_json_delta", "partial_json", text_json(e->text, e->len));
    case TOOL_CALL_END: return close_block(m);
    default: return send_words(m, e);
    }
}

static bool send_piece(message *m, const loop_piece *p) {
    err e = {0};
    bool ok = begin(m) && answer_add(m->answer, p->text, p->len, send_event, m, &e) && (p->finish == LOOP_RUNNING || answer_end(m->answer, send_event, m, &e));
    if (!ok || p->finish == LOOP_RUNNING) return ok;
    json_t *reason = json_pack("{s:s, s:o}", "stop_reason", stop_reason(m, p->finish), "stop_sequence", p->stop ? json_string(p->stop) : json_null());
    return close_block(m) && event(m, "message_delta", json_pack("{s:o, s:o}", "delta", reason, "usage", usage_json(m)));
}

static http_more next_event(void *user, http_request *r, uint64_t timeout_ns, buf *out) {
    message *m = user;
    loop_piece piece;
    err e = {0};
    m->out = out;
    switch (loop_next(m->ticket, timeout_ns, &piece, &e)) {
    case LOOP_IDLE: return HTTP_IDLE;
    case LOOP_PIECE: return send_piece(m, &piece) ? HTTP_MORE : HTTP_END;
    case LOOP_DONE:
        if (!sampling_saved(&m->s, r, timeout_ns)) return HTTP_IDLE;
        event(m, "message_stop", json_object());
        break;
    case LOOP_FAILED:
        stream_failed(out, r, API_ANTHROPIC, &e);
        break;
    }
    return HTTP_END;
}

static void end_stream(void *user, http_request *r) {
    message *m = user;
    loop_usage u = loop_ticket_usage(m->ticket);
    note_usage(r, &u);
    message_free(m);
}

/* ---- routes ---- */

static message *message_new(api *a, const http_request *r, refusal *f) {
    message *m = mem_zalloc(1, sizeof *m, &f->e);
    if (!m) return NULL;
    m->a = a;
    snprintf(m->id, sizeof m->id, "msg_%s", http_id(r));
    m->body = api_body(r, f);
    return m;
}

void route_messages(api *a, http_request *r) {
    refusal f = {0};
    message *m = message_new(a, r, &f);
    if (!m || !m->body || !read_message(m, r, false, &f) || !submit(m, r, &f)) {
        api_refuse(a, r, API_ANTHROPIC, &f);
        message_free(m);
    } else if (m->stream) {
        a->statuses[2]++;
        http_stream(r, &(http_events){.next = next_event, .done = end_stream, .user = m});
    } else {
        reply_whole(m, r);
        message_free(m);
    }
}

void route_count_tokens(api *a, http_request *r) {
    refusal f = {0};
    token_run prompt = {0};
    message *m = message_new(a, r, &f);
    if (m && m->body && read_message(m, r, true, &f) && make_prompt(m, m->messages, true, NULL, &prompt, &f)) api_reply(a, r, 200, json_pack("{s:I}", "input_tokens", (json_int_t)prompt.n));
    else api_refuse(a, r, API_ANTHROPIC, &f);
    mem_free(prompt.ids);
    message_free(m);
}
