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

static json_t *reply_json(const turn_note *n, const char *text, size_t len) {
    err e = {0};
    answer *a = n->form.tools || n->thinks ? answer_new(n->thinks, n->form.in_thought, n->form.tools, &e) : NULL;
    json_t *reply = a ? answer_message(a, text, len, n->form.calls, n->form.one_call, &e) : NULL;
    if (!reply) reply = json_pack("{s:s, s:o}", "role", "assistant", "content", text_json(text, len));
    else if (json_object_size(reply) > 2) json_object_set_new(reply, "written", text_json(text, len)); /* there is more than text */
    answer_free(a);
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
