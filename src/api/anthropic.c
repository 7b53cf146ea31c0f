/* anthropic.c: /v1/messages and /v1/messages/count_tokens. */
#include <string.h>

#include "api/inner.h"

typedef struct message {
    api *a;
    json_t *body, *tools; /* tools: in OpenAI's form, NULL without */
    sampling s;
    const json_t *messages, *system, *given_tools, *tool_choice, *thinking, *metadata;
    const char *model, *service_tier;
    int64_t max_tokens;
    bool stream, one_call;
    loop_ticket *ticket;
    tool_parser *parser;
    char id[64];
    /* streaming, and gathering */
    bool begun;
    int block;      /* the block that is open, or the next one */
    bool text_open;
    buf *out;
    json_t *content;
    buf text;
} message;

static void message_free(message *m) {
    if (!m) return;
    loop_ticket_free(m->ticket);
    tool_parser_free(m->parser);
    sampling_free(&m->s);
    json_decref(m->tools);
    json_decref(m->content);
    json_decref(m->body);
    buf_free(&m->text);
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

static bool check_rest(message *m, bool count_only, refusal *f) {
    const char *thinking = m->thinking ? json_string_value(json_object_get(m->thinking, "type")) : "disabled";
    if (!thinking || strcmp(thinking, "disabled") != 0) return refuse(f, "", "thinking.type: must be 'disabled': others are not supported yet");
    if (m->service_tier && strcmp(m->service_tier, "auto") != 0 && strcmp(m->service_tier, "standard_only") != 0)
        return refuse(f, "", "service_tier: must be 'auto' or 'standard_only'");
    if (!count_only && m->max_tokens < 1) return refuse(f, "", "max_tokens: Field required");
    if (!m->model) return refuse(f, "", "model: Field required");
    const json_t *user = json_object_get(m->metadata, "user_id");
    if (json_is_string(user)) m->s.user = json_string_value(user);
    return model_is_known(m->a, m->model, f) && check_tool_choice(m, f);
}

static bool read_message(message *m, const http_request *r, bool count_only, refusal *f) {
    sampling_init(&m->s, m->a);
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
        {"cache_control", FIELD_MEANINGLESS, NULL, 0, 0, NULL}, /* every prefix is remembered */
        {NULL, FIELD_BOOL, NULL, 0, 0, NULL},
    };
    if (!fields_read(m->body, table, NULL, f) || !check_rest(m, count_only, f)) return false;
    m->s.max_tokens = m->max_tokens;
    return sampling_finish(&m->s, m->a, r, f);
}

static bool make_prompt(message *m, token_run *prompt, refusal *f) {
    json_t *messages = messages_from_anthropic(m->messages, m->system, f);
    if (!messages || !sampling_keep(&m->s, messages, f)) {
        json_decref(messages);
        return false;
    }
    if (m->tools && !template_has_tools(m->a)) {
        json_t *as_text = tools_as_text(messages, m->tools, f);
        json_decref(messages);
        if (!(messages = as_text)) return false;
    }
    if (m->s.turn) prompt->known = agent_turn_before(m->s.turn);
    json_t *variables = json_pack("{s:o}", "messages", messages);
    if (m->tools) json_object_set(variables, "tools", m->tools);
    bool ok = text_render(m->a, variables, prompt, f);
    json_decref(variables);
    return ok;
}

static bool submit(message *m, const http_request *r, refusal *f) {
    token_run prompt = {0};
    bool ok = sampling_take_agent(&m->s, m->a, r, true, f) && make_prompt(m, &prompt, f) && (m->ticket = sampling_submit(&m->s, m->a, &prompt, f));
    mem_free(prompt.ids);
    if (ok && m->tools) ok = (m->parser = tool_parser_new(true, &f->e)) != NULL;
    return ok;
}

/* ---- the answer ---- */

static json_t *usage_json(const loop_usage *u) {
    return json_pack("{s:i, s:i, s:i, s:i}", "input_tokens", u->prompt_tokens - u->cached_tokens, "cache_read_input_tokens", u->cached_tokens,
                     "cache_creation_input_tokens", 0, "output_tokens", u->completion_tokens);
}

static const char *stop_reason(const message *m, loop_finish finish) {
    if (m->parser && tool_parser_calls(m->parser) > 0) return "tool_use";
    return finish == LOOP_LENGTH ? "max_tokens" : finish == LOOP_STOP ? "stop_sequence" : "end_turn";
}

static json_t *message_json(const message *m, json_t *content, json_t *reason, json_t *sequence, const loop_usage *u) {
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "id", m->id, "type", "message", "role", "assistant", "model", m->a->o.model, "content", content,
                     "stop_reason", reason, "stop_sequence", sequence, "usage", usage_json(u));
}

static json_t *use_json(const message *m, const tool_event *e, bool with_input) {
    char id[96];
    snprintf(id, sizeof id, "toolu_%s_%d", m->id + strlen("msg_"), e->index);
    json_t *input = with_input ? json_loads(e->arguments, JSON_ALLOW_NUL, NULL) : NULL;
    return json_pack("{s:s, s:s, s:s, s:o}", "type", "tool_use", "id", id, "name", e->name, "input", input ? input : json_object());
}

static bool flush_text(message *m) {
    if (m->text.len == 0) return true;
    json_t *block = json_pack("{s:s, s:o}", "type", "text", "text", text_json(m->text.data, m->text.len));
    m->text.len = 0;
    return json_array_append_new(m->content, block) == 0;
}

static bool add_whole(void *user, const tool_event *e) {
    message *m = user;
    if (e->kind == TOOL_TEXT) return buf_add(&m->text, e->text, e->len, NULL);
    if (e->index > 0 && m->one_call) return true;
    return flush_text(m) && json_array_append_new(m->content, use_json(m, e, true)) == 0;
}

static void reply_whole(message *m, http_request *r) {
    refusal f = {0};
    gathered g = {0};
    if (gather(m->a, r, m->ticket, 1, NULL, 0, &g, &f)) {
        const char *text = g.text.data ? g.text.data : "";
        m->content = json_array();
        bool ok = m->parser ? tool_parser_add(m->parser, text, g.text.len, add_whole, m, &f.e) && tool_parser_end(m->parser, add_whole, m, &f.e)
                            : buf_add(&m->text, text, g.text.len, &f.e);
        sampling_settle(&m->s, r);
        loop_usage u = loop_ticket_usage(m->ticket);
        note_usage(r, &u);
        if (ok && flush_text(m))
            api_reply(m->a, r, 200, message_json(m, json_incref(m->content), json_string(stop_reason(m, g.finish)), g.stop ? json_string(g.stop) : json_null(), &u));
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
    loop_usage u = loop_ticket_usage(m->ticket);
    u.completion_tokens = 1;
    json_t *empty = message_json(m, json_array(), json_null(), json_null(), &u);
    return event(m, "message_start", json_pack("{s:o}", "message", empty)) && event(m, "ping", json_object());
}

static bool close_text(message *m) {
    if (!m->text_open) return true;
    m->text_open = false;
    return event(m, "content_block_stop", json_pack("{s:i}", "index", m->block++));
}

static bool send_event(void *user, const tool_event *e) {
    message *m = user;
    if (e->kind == TOOL_TEXT) {
        if (!m->text_open) {
            m->text_open = true;
            if (!event(m, "content_block_start", json_pack("{s:i, s:{s:s, s:s}}", "index", m->block, "content_block", "type", "text", "text", ""))) return false;
        }
        return event(m, "content_block_delta", json_pack("{s:i, s:{s:s, s:o}}", "index", m->block, "delta", "type", "text_delta", "text", text_json(e->text, e->len)));
    }
    if (e->index > 0 && m->one_call) return true;
    bool ok = close_text(m) && event(m, "content_block_start", json_pack("{s:i, s:o}", "index", m->block, "content_block", use_json(m, e, false))) &&
              event(m, "content_block_delta", json_pack("{s:i, s:{s:s, s:s}}", "index", m->block, "delta", "type", "input_json_delta", "partial_json", e->arguments)) &&
              event(m, "content_block_stop", json_pack("{s:i}", "index", m->block));
    m->block++;
    return ok;
}

static bool send_piece(message *m, const loop_piece *p) {
    err e = {0};
    bool ok = begin(m);
    if (m->parser) ok = ok && tool_parser_add(m->parser, p->text, p->len, send_event, m, &e) && (p->finish == LOOP_RUNNING || tool_parser_end(m->parser, send_event, m, &e));
    else if (p->len) ok = ok && send_event(m, &(tool_event){.kind = TOOL_TEXT, .text = p->text, .len = p->len});
    if (!ok || p->finish == LOOP_RUNNING) return ok;
    loop_usage u = loop_ticket_usage(m->ticket);
    json_t *delta = json_pack("{s:s, s:o}", "stop_reason", stop_reason(m, p->finish), "stop_sequence", p->stop ? json_string(p->stop) : json_null());
    return close_text(m) && event(m, "message_delta", json_pack("{s:o, s:o}", "delta", delta, "usage", usage_json(&u)));
}

static http_more next_event(void *user, http_request *r, uint64_t timeout_ns, buf *out) {
    message *m = user;
    loop_piece piece;
    refusal f = {0};
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
        refuse_ticket(&f, &e);
        event_data(out, "error", api_error_json(API_ANTHROPIC, &f));
        http_note(r, "error", "%s", e.text);
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
    if (m && m->body && read_message(m, r, true, &f) && make_prompt(m, &prompt, &f)) api_reply(a, r, 200, json_pack("{s:I}", "input_tokens", (json_int_t)prompt.n));
    else api_refuse(a, r, API_ANTHROPIC, &f);
    mem_free(prompt.ids);
    message_free(m);
}
