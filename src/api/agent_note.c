/* agent_note.c: the messages that are kept with an agent. An answer is kept in the form of the API: text, thoughts and tool calls apart; and where these differ from what the model
 * wrote, that is kept beside them ("written"), because only it gives the same tokens again. */
#include <string.h>

#include "api/inner.h"

/* What is needed to make a note of a turn, when it has ended. */
typedef struct turn_note {
    json_t *messages;
    const thinking *thinks;
    answer_form form;
    char *begun; /* what form.begun points at, or NULL */
} turn_note;

static void note_free(void *user) {
    turn_note *n = user;
    json_decref(n->messages);
    mem_free(n->begun);
    mem_free(n);
}

/* An answer, cut up. */
typedef struct cut {
    const answer_form *form;
    buf text, thoughts, name, arguments;
    json_t *calls; /* or NULL */
} cut;

static bool add_event(void *user, const tool_event *e) {
    cut *c = user;
    switch (e->kind) {
    case TOOL_THOUGHT: return buf_add(&c->thoughts, e->text, e->len, NULL);
    case TOOL_TEXT: return buf_add(&c->text, e->text, e->len, NULL);
    case TOOL_CALL:
        c->name.len = c->arguments.len = 0;
        return buf_adds(&c->name, e->name, NULL) && buf_adds(&c->arguments, "", NULL);
    case TOOL_ARGUMENTS: return buf_add(&c->arguments, e->text, e->len, NULL);
    case TOOL_CALL_END: break;
    }
    if (e->index > 0 && c->form->one_call) return true;
    char id[100];
    snprintf(id, sizeof id, "%s_%d", c->form->calls, e->index);
    if (!c->calls) c->calls = json_array();
    json_t *call = json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id, "type", "function", "function", "name", c->name.data, "arguments", text_json(c->arguments.data, c->arguments.len));
    return json_array_append_new(c->calls, call) == 0;
}

static json_t *cut_json(const cut *c, const char *written, size_t len) {
    json_t *content = c->text.len || !c->calls ? text_json(c->text.data ? c->text.data : "", c->text.len) : json_null();
    json_t *reply = json_pack("{s:s, s:o}", "role", "assistant", "content", content);
    if (c->thoughts.len) json_object_set_new(reply, "reasoning_content", text_json(c->thoughts.data, c->thoughts.len));
    if (c->calls) json_object_set(reply, "tool_calls", c->calls);
    if (c->thoughts.len || c->calls) json_object_set_new(reply, "written", text_json(written, len));
    return reply;
}

static json_t *reply_json(const turn_note *n, const char *text, size_t len) {
    cut c = {.form = &n->form};
    err e = {0};
    json_t *reply = NULL;
    answer *a = n->form.tools || n->thinks ? answer_new(n->thinks, n->form.in_thought, n->form.tools, &e) : NULL;
    if (a && answer_add(a, text, len, add_event, &c, &e) && answer_end(a, add_event, &c, &e)) reply = cut_json(&c, text, len);
    if (!reply) reply = json_pack("{s:s, s:o}", "role", "assistant", "content", text_json(text, len));
    answer_free(a);
    json_decref(c.calls);
    buf_free(&c.text);
    buf_free(&c.thoughts);
    buf_free(&c.name);
    buf_free(&c.arguments);
    return reply;
}

static char *make_note(void *user, const char *text, size_t len, size_t *note_len) {
    turn_note *n = user;
    buf whole = {0};
    bool ok = buf_adds(&whole, n->begun ? n->begun : "", NULL) && buf_add(&whole, text, len, NULL) &&
              json_array_append_new(n->messages, reply_json(n, whole.data, whole.len)) == 0;
    char *dumped = ok ? json_dumps(n->messages, JSON_COMPACT) : NULL;
    buf_free(&whole);
    *note_len = dumped ? strlen(dumped) : 0;
    char *note = dumped ? mem_strndup(dumped, *note_len, NULL) : NULL;
    free(dumped);
    if (!note) *note_len = 0;
    return note;
}

bool sampling_keep(sampling *s, const api *a, const json_t *messages, const answer_form *form, refusal *f) {
    if (!s->turn) return true;
    turn_note *n = mem_zalloc(1, sizeof *n, &f->e);
    if (!n) return false;
    /* A copy, because another thread reads it. */
    *n = (turn_note){.messages = json_deep_copy(messages), .thinks = a->thinks, .form = *form};
    if (form->begun) n->begun = mem_strndup(form->begun, strlen(form->begun), &f->e);
    n->form.begun = n->begun;
    if (!n->messages || (form->begun && !n->begun)) {
        note_free(n);
        return err_nomem(&f->e, 0);
    }
    agent_turn_keep(s->turn, make_note, n, note_free);
    return true;
}

json_t *agent_messages(const agent_record *record, refusal *f) {
    json_t *messages = record->note_len ? json_loadb(record->note, record->note_len, JSON_ALLOW_NUL, NULL) : record->n_tokens ? NULL : json_array();
    if (json_is_array(messages)) return messages;
    json_decref(messages);
    refuse(f, "", "The agent was made without messages, so that it can only be asked with all of them.");
    return NULL;
}

json_t *messages_written(const json_t *messages) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i), *written = json_object_get(m, "written");
        json_array_append_new(list, written ? json_pack("{s:O, s:O}", "role", json_object_get(m, "role"), "content", written) : json_incref(m));
    }
    return list;
}

json_t *messages_shown(const json_t *messages) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < json_array_size(messages); i++) {
        json_t *m = json_copy(json_array_get(messages, i));
        json_object_del(m, "written");
        json_array_append_new(list, m);
    }
    return list;
}
