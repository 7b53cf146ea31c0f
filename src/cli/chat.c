#include "cli/chat.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/interrupt.h"

static bool use_messages(chat *c, json_t *file, const char *path, err *e);
static json_t *all_messages(const chat *c, err *e);

/* What was said before, from the note that is kept with the agent. A system message that was given now counts. */
static bool go_on(chat *c, err *e) {
    size_t len;
    const char *note = hearth_session_note(c->session, &len);
    if (!note) return true;
    char *given = c->system;
    c->system = NULL;
    json_t *messages = json_loadb(note, len, 0, NULL);
    if (messages && json_is_array(messages)) {
        bool ok = use_messages(c, messages, c->agent, e);
        if (ok && given) ok = chat_set_system(c, given, e);
        mem_free(given);
        return ok;
    }
    json_decref(messages);
    c->system = given;
    return err_set(e, HEARTH_ARGUMENT, "the agent '%s' was made by another program and has no messages to go on with", c->agent);
}

/* The messages go with the agent. */
static bool remember(chat *c, err *e) {
    if (!c->agent) return true;
    json_t *messages = all_messages(c, e);
    char *text = messages ? json_dumps(messages, JSON_COMPACT) : NULL;
    json_decref(messages);
    bool ok = text ? hearth_session_set_note(c->session, text, strlen(text), e) : err_nomem(e, sizeof(json_t));
    free(text);
    return ok;
}

bool chat_open(chat *c, const char *model, err *e) {
    c->g.engine.store |= c->agent != NULL;
    c->messages = json_array();
    if (!c->messages) return err_nomem(e, sizeof(json_t));
    if (!(c->engine = hearth_engine_open(model, &c->g.engine, e))) return false;
    if (!hearth_engine_info(c->engine).chat_template)
        return err_set(e, HEARTH_UNSUPPORTED, "%s: this model has no chat template, so it can only continue text: use hearth run", model);
    return (c->sampler = cli_generate_sampler(&c->g, c->engine, e)) && (c->session = hearth_session_open(c->engine, c->agent, NULL, e)) && (c->known = go_on(c, e));
}

void chat_close(chat *c) {
    if (c->known) remember(c, NULL); /* what was taken back since the last answer */
    hearth_session_free(c->session);
    hearth_sampler_free(c->sampler);
    hearth_engine_close(c->engine);
    json_decref(c->messages);
    mem_free(c->system);
}

bool chat_set_system(chat *c, const char *text, err *e) {
    char *copy = text && *text ? mem_strndup(text, strlen(text), e) : NULL;
    if (text && *text && !copy) return false;
    mem_free(c->system);
    c->system = copy;
    return true;
}

/* ---- messages ---- */

/* The length of the whole UTF-8 character at s as JSON accepts it (no surrogates, nothing overlong), or 0. */
static size_t character(const unsigned char *s, size_t len) {
    size_t n = s[0] < 0x80 ? 1 : s[0] >= 0xC2 && s[0] < 0xE0 ? 2 : (s[0] & 0xF0) == 0xE0 ? 3 : s[0] >= 0xF0 && s[0] < 0xF5 ? 4 : 0;
    if (n == 0 || n > len) return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if (n == 3 && ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] >= 0xA0))) return 0;
    if (n == 4 && ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] >= 0x90))) return 0;
    return n;
}

/* Text for a template has to be UTF-8: what is not becomes U+FFFD, and a NUL is left out. */
static json_t *clean_text(const char *text, size_t len, err *e) {
    buf clean = {0};
    bool ok = buf_reserve(&clean, len, e);
    for (size_t i = 0; ok && i < len;) {
        size_t n = character((const unsigned char *)text + i, len - i);
        if (n == 0) ok = buf_adds(&clean, "\xEF\xBF\xBD", e);
        else if (text[i]) ok = buf_add(&clean, text + i, n, e);
        i += n ? n : 1;
    }
    json_t *string = ok ? json_stringn(clean.data, clean.len) : NULL;
    if (ok && !string) err_nomem(e, clean.len);
    buf_free(&clean);
    return string;
}

static bool add_message(json_t *messages, const char *role, const char *text, size_t len, err *e) {
    json_t *content = clean_text(text, len, e);
    if (!content) return false;
    return json_array_append_new(messages, json_pack("{s:s, s:o}", "role", role, "content", content)) == 0 || err_nomem(e, len);
}

static bool last_is(const chat *c, const char *role) {
    size_t n = json_array_size(c->messages);
    const char *last = n ? json_string_value(json_object_get(json_array_get(c->messages, n - 1), "role")) : NULL;
    return last && strcmp(last, role) == 0;
}

static void drop_last(chat *c) { json_array_remove(c->messages, json_array_size(c->messages) - 1); }

bool chat_undo(chat *c) {
    while (json_array_size(c->messages) > 0) {
        bool was_user = last_is(c, "user");
        drop_last(c);
        if (was_user) return true;
    }
    return false;
}

void chat_reset(chat *c) { json_array_clear(c->messages); }

/* The system message, if any, and the others. */
static json_t *all_messages(const chat *c, err *e) {
    json_t *all = json_array();
    bool ok = all != NULL;
    if (ok && c->system) ok = add_message(all, "system", c->system, strlen(c->system), e);
    if (ok) ok = json_array_extend(all, c->messages) == 0;
    if (ok) return all;
    json_decref(all);
    err_nomem(e, sizeof(json_t));
    return NULL;
}

/* ---- a turn ---- */

static bool render(const chat *c, cli_tokens *tokens, err *e) {
    json_t *messages = all_messages(c, e);
    if (!messages) return false;
    json_t *variables = json_pack("{s:o}", "messages", messages);
    char *json = variables ? json_dumps(variables, JSON_COMPACT) : NULL;
    json_decref(variables);
    if (!json) return err_nomem(e, sizeof(json_t));
    size_t len = 0;
    char *text = hearth_chat_render(c->engine, json, &len, e);
    free(json);
    bool ok = text && talk_tokens(c->engine, c->session, text, len, tokens, e);
    hearth_free(text);
    return ok;
}

static void say_how_it_ended(const chat *c, hearth_finish finish) {
    if (c->output_gone) return;
    if (finish == HEARTH_FINISH_CALLER) {
        fprintf(stderr, "[stopped]\n");
    } else if (finish == HEARTH_FINISH_LENGTH) {
        bool full = hearth_session_length(c->session) >= (size_t)hearth_engine_info(c->engine).n_context;
        fprintf(stderr, full ? "[the context is full: /undo takes back a turn, /reset begins anew, --context N makes room]\n"
                             : "[cut off after -n tokens]\n");
    }
}

/* Answers the messages there are, and adds the answer to them. */
static bool answer(chat *c, err *e) {
    cli_tokens tokens = {0};
    buf said = {0};
    talk_output out = {.copy = &said};
    hearth_finish finish = HEARTH_FINISH_CALLER;
    interrupt_clear();
    bool ok = render(c, &tokens, e) &&
              talk_read(c->engine, c->session, &tokens, "/undo takes back a turn, /reset begins anew, --context N makes room", &c->last, e);
    if (ok && interrupt_pending()) ok = err_set(e, HEARTH_CANCELLED, "stopped before the answer began; the message is taken back");
    if (ok) {
        ok = talk_answer(c->session, c->sampler, &c->g.generate, NULL, NULL, &out, &c->last, &finish, e);
        ok = talk_write_end(&out, e) && ok;
        c->output_gone = out.broken;
        if (ok) {
            say_how_it_ended(c, finish);
            ok = add_message(c->messages, "assistant", said.data ? said.data : "", said.len, e) && remember(c, e);
        }
    }
    interrupt_clear();
    cli_tokens_free(&tokens);
    buf_free(&said);
    return ok;
}

bool chat_say(chat *c, const char *text, size_t len, err *e) {
    if (!add_message(c->messages, "user", text, len, e)) return false;
    if (answer(c, e)) return true;
    drop_last(c);
    return false;
}

bool chat_retry(chat *c, err *e) {
    json_t *old = NULL;
    if (last_is(c, "assistant")) {
        old = json_incref(json_array_get(c->messages, json_array_size(c->messages) - 1));
        drop_last(c);
    }
    bool ok = last_is(c, "user") ? answer(c, e) : err_set(e, HEARTH_ARGUMENT, "there is nothing to answer yet");
    if (!ok && old) json_array_append(c->messages, old);
    json_decref(old);
    return ok;
}

/* ---- files ---- */

bool chat_save(const chat *c, const char *path, err *e) {
    json_t *messages = all_messages(c, e);
    if (!messages) return false;
    json_t *object = json_pack("{s:s, s:o}", "model", hearth_engine_info(c->engine).name, "messages", messages);
    char *json = object ? json_dumps(object, JSON_INDENT(2)) : NULL;
    json_decref(object);
    file_writer w;
    bool ok = json ? file_writer_open(&w, path, e) : err_nomem(e, sizeof(json_t));
    if (ok) {
        ok = file_writer_add(&w, json, strlen(json), e) && file_writer_add(&w, "\n", 1, e);
        if (ok) ok = file_writer_commit(&w, e);
        else file_writer_abort(&w);
    }
    free(json);
    return ok;
}

static bool check_messages(const json_t *messages, const char *path, err *e) {
    size_t i;
    json_t *m;
    if (!json_is_array(messages)) return err_set(e, HEARTH_FORMAT, "%s: there is no list of messages in it", path);
    json_array_foreach(messages, i, m) {
        if (!json_is_string(json_object_get(m, "role")) || !json_is_string(json_object_get(m, "content")))
            return err_set(e, HEARTH_FORMAT, "%s: message %zu needs a role and a content, both text", path, i + 1);
    }
    return true;
}

/* Takes the file's messages in place of those there are. The file is given away. */
static bool use_messages(chat *c, json_t *file, const char *path, err *e) {
    json_t *messages = json_is_object(file) ? json_object_get(file, "messages") : file;
    bool ok = check_messages(messages, path, e);
    const json_t *first = ok ? json_array_get(messages, 0) : NULL;
    bool has_system = first && strcmp(json_string_value(json_object_get(first, "role")), "system") == 0;
    ok = ok && chat_set_system(c, has_system ? json_string_value(json_object_get(first, "content")) : NULL, e);
    if (ok) {
        json_t *kept = json_deep_copy(messages);
        if (kept && has_system) json_array_remove(kept, 0);
        ok = kept != NULL || err_nomem(e, sizeof(json_t));
        if (ok) json_decref(c->messages), c->messages = kept;
    }
    json_decref(file);
    return ok;
}

bool chat_load(chat *c, const char *path, err *e) {
    buf text = {0};
    json_error_t why;
    if (!file_read(path, 256u << 20, &text, e)) {
        buf_free(&text);
        return false;
    }
    json_t *file = json_loadb(text.data ? text.data : "", text.len, 0, &why);
    buf_free(&text);
    if (!file) return err_set(e, HEARTH_FORMAT, "%s: not JSON: %s in line %d", path, why.text, why.line);
    return use_messages(c, file, path, e);
}
