/* response_maker.c: from what a model writes to the items of a response, and to the events that tell of them. */
#include <string.h>

#include "api/inner.h"

/* Takes rest. */
static bool emit(response_maker *m, const char *type, json_t *rest) {
    if (!m->out) {
        json_decref(rest);
        return true;
    }
    json_t *json = json_pack("{s:s, s:i}", "type", type, "sequence_number", m->sequence++);
    json_object_update(json, rest);
    json_decref(rest);
    return event_data(m->out, type, json);
}

bool response_event(response_maker *m, const char *type, const json_t *response) { return emit(m, type, json_pack("{s:O}", "response", response)); }

/* ---- one item ---- */

static json_t *text_of(const buf *b) { return text_json(b->data ? b->data : "", b->len); }

/* The part of the item that is open, as it is now. */
static json_t *part_json(const response_maker *m) {
    if (m->open == TOOL_THOUGHT) return json_pack("{s:s, s:o}", "type", "reasoning_text", "text", text_of(&m->text));
    return json_pack("{s:s, s:o, s:[], s:O}", "type", "output_text", "text", text_of(&m->text), "annotations", "logprobs", m->logprobs);
}

/* The item that is open, as it is now: begun, or with all that it has. */
static json_t *item_json(const response_maker *m, const char *status) {
    const bool whole = strcmp(status, "in_progress") != 0;
    json_t *content = json_array();
    if (m->open == TOOL_CALL) {
        json_decref(content);
        char call[80];
        snprintf(call, sizeof call, "call_%s_%d", m->id + strlen("resp_"), m->call);
        return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "type", "function_call", "id", m->item_id, "call_id", call, "status", status, "name", m->name.data, "arguments",
                         text_of(&m->text));
    }
    if (whole) json_array_append_new(content, part_json(m));
    if (m->open == TOOL_THOUGHT) return json_pack("{s:s, s:s, s:s, s:[], s:o}", "type", "reasoning", "id", m->item_id, "status", status, "summary", "content", content);
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "type", "message", "id", m->item_id, "status", status, "role", "assistant", "content", content);
}

/* Where an event belongs. */
static json_t *place(const response_maker *m) {
    json_t *json = json_pack("{s:s, s:i}", "item_id", m->item_id, "output_index", (int)json_array_size(m->output));
    if (m->open != TOOL_CALL) json_object_set_new(json, "content_index", json_integer(0));
    return json;
}

static json_t *with(json_t *object, const char *key, json_t *value) {
    json_object_set_new(object, key, value);
    return object;
}

static bool open_item(response_maker *m, tool_event_kind kind) {
    const char *prefix = kind == TOOL_CALL ? "fc" : kind == TOOL_THOUGHT ? "rs" : "msg";
    m->is_open = true;
    m->open = kind;
    m->text.len = 0;
    json_decref(m->logprobs);
    m->logprobs = json_array();
    snprintf(m->item_id, sizeof m->item_id, "%s_%s_%zu", prefix, m->id + strlen("resp_"), json_array_size(m->output));
    if (!buf_adds(&m->text, "", NULL)) return false;
    json_t *rest = json_pack("{s:i, s:o}", "output_index", (int)json_array_size(m->output), "item", item_json(m, "in_progress"));
    if (!emit(m, "response.output_item.added", rest)) return false;
    return kind == TOOL_CALL || emit(m, "response.content_part.added", with(place(m), "part", part_json(m)));
}

static bool close_item(response_maker *m, const char *status) {
    if (!m->is_open) return true;
    m->is_open = false;
    bool ok;
    if (m->open == TOOL_CALL) {
        ok = emit(m, "response.function_call_arguments.done", with(with(place(m), "arguments", text_of(&m->text)), "name", json_string(m->name.data)));
    } else {
        json_t *done = with(place(m), "text", text_of(&m->text));
        if (m->open == TOOL_TEXT) json_object_set(done, "logprobs", m->logprobs);
        ok = emit(m, m->open == TOOL_TEXT ? "response.output_text.done" : "response.reasoning_text.done", done) &&
             emit(m, "response.content_part.done", with(place(m), "part", part_json(m)));
    }
    json_t *item = item_json(m, status);
    ok = ok && emit(m, "response.output_item.done", json_pack("{s:i, s:O}", "output_index", (int)json_array_size(m->output), "item", item));
    return json_array_append_new(m->output, item) == 0 && ok;
}

/* Log-probabilities of the tokens so far go with the next text. */
static json_t *take_logprobs(response_maker *m) {
    json_t *list = m->waiting ? m->waiting : json_array();
    m->waiting = NULL;
    return list;
}

static bool add_words(response_maker *m, const tool_event *e) {
    if (m->is_open && m->open != e->kind && !close_item(m, "completed")) return false;
    if (!m->is_open && !open_item(m, e->kind)) return false;
    if (!buf_add(&m->text, e->text, e->len, NULL)) return false;
    json_t *rest = with(place(m), "delta", text_json(e->text, e->len)), *logprobs = take_logprobs(m);
    if (e->kind == TOOL_TEXT) {
        json_array_extend(m->logprobs, logprobs);
        json_object_set(rest, "logprobs", logprobs);
    }
    json_decref(logprobs);
    return emit(m, e->kind == TOOL_TEXT ? "response.output_text.delta" : "response.reasoning_text.delta", rest);
}

static bool hear(void *user, const tool_event *e) {
    response_maker *m = user;
    if (e->kind == TOOL_TEXT || e->kind == TOOL_THOUGHT) return add_words(m, e);
    if (e->index > 0 && m->one_call) return true;
    switch (e->kind) {
    case TOOL_CALL:
        m->name.len = 0;
        m->call = e->index;
        return close_item(m, "completed") && buf_adds(&m->name, e->name, NULL) && open_item(m, TOOL_CALL);
    case TOOL_ARGUMENTS:
        return buf_add(&m->text, e->text, e->len, NULL) && emit(m, "response.function_call_arguments.delta", with(place(m), "delta", text_json(e->text, e->len)));
    default: return close_item(m, m->cut ? "incomplete" : "completed");
    }
}

/* ---- the whole ---- */

bool response_maker_open(response_maker *m, const api *a, const char *id, bool in_thought, bool tools, bool one_call, err *e) {
    m->id = id;
    m->one_call = one_call;
    m->output = json_array();
    m->logprobs = json_array();
    return (m->answer = answer_new(a->thinks, in_thought, tools, e)) != NULL;
}

void response_maker_close(response_maker *m) {
    answer_free(m->answer);
    json_decref(m->output);
    json_decref(m->logprobs);
    json_decref(m->waiting);
    buf_free(&m->text);
    buf_free(&m->name);
}

bool response_maker_add(response_maker *m, const api *a, const loop_piece *p, int n_logprobs) {
    err e = {0};
    for (size_t i = 0; n_logprobs >= 0 && i < p->n_tokens; i++) {
        if (!m->waiting) m->waiting = json_array();
        json_array_append_new(m->waiting, openai_logprob(a, &p->tokens[i], n_logprobs));
    }
    m->cut = p->finish == LOOP_LENGTH;
    if (!answer_add(m->answer, p->text, p->len, hear, m, &e)) return false;
    if (p->finish == LOOP_RUNNING) return true;
    if (!answer_end(m->answer, hear, m, &e)) return false;
    /* A response has at least one item. */
    if (!m->is_open && json_array_size(m->output) == 0 && !open_item(m, TOOL_TEXT)) return false;
    return close_item(m, m->cut ? "incomplete" : "completed");
}
