/* agents.c: /v1/agents, and the agents of other requests: conversations that are kept by name. */
#include <string.h>
#include <sys/random.h>

#include "api/inner.h"

/* How long a request waits for the one before it that has the agent, and how often it looks for its client meanwhile. */
static const uint64_t WAIT_NS = 5000000000u, LOOK_NS = 100000000u;
enum { TITLE_BYTES = 60 };

/* ---- the agent of a request ---- */

static bool refuse_agent(refusal *f, agents_result result, const err *e) {
    switch (result) {
    case AGENTS_UNKNOWN: return refuse_with(f, 404, "agent_not_found", "", "%s.", e->text);
    case AGENTS_EXISTS: return refuse_with(f, 409, "agent_exists", "id", "%s.", e->text);
    case AGENTS_BUSY: return refuse_with(f, 409, "agent_busy", "", "%s.", e->text);
    default:
        f->e = *e;
        if (f->e.code == HEARTH_IO) f->status = 503;
        return false;
    }
}

bool sampling_take_agent(sampling *s, api *a, const http_request *r, bool make, refusal *f) {
    if (!s->agent) return true;
    uint64_t until = clock_ns() + WAIT_NS;
    agents_result result;
    err e;
    do {
        e = (err){0};
        result = agents_take(a->agents, s->agent, s->request.tenant, make, s->agent_only_asked ? 0 : LOOK_NS, &s->turn, &e);
    } while (result == AGENTS_BUSY && !s->agent_only_asked && clock_ns() < until && !http_gone(r));
    return result == AGENTS_OK || s->agent_only_asked || refuse_agent(f, result, &e);
}

bool sampling_saved(sampling *s, http_request *r, uint64_t timeout_ns) {
    err e = {0};
    if (!s->turn || s->agent_only_asked) return true;
    if (!agent_turn_wait(s->turn, timeout_ns, &e)) return false;
    if (e.code != HEARTH_OK) http_note(r, "not_saved", "%s", e.text);
    return true;
}

void sampling_settle(sampling *s, http_request *r) {
    while (!sampling_saved(s, r, LOOK_NS) && !http_gone(r)) {}
}

/* ---- agents as JSON ---- */

/* The first words of the first message of the user, or null. */
static json_t *title_of(const json_t *messages) {
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i), *content = json_object_get(m, "content");
        const char *role = json_string_value(json_object_get(m, "role"));
        if (!role || strcmp(role, "user") != 0) continue;
        if (json_is_array(content)) content = json_object_get(json_array_get(content, 0), "text");
        const char *text = json_string_value(content);
        if (!text) return json_null();
        size_t n = strcspn(text, "\n");
        if (n > TITLE_BYTES) n = TITLE_BYTES;
        while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80) n--; /* not within a character */
        return text_json(text, n);
    }
    return json_null();
}

static json_t *agent_json(const api *a, const agent_info *i, bool with_messages) {
    static const char *const tiers[] = {"hot", "warm", "cold"};
    const agent_record *r = &i->record;
    json_t *messages = r->note_len ? json_loadb(r->note, r->note_len, JSON_ALLOW_NUL, NULL) : NULL;
    if (!json_is_array(messages)) {
        json_decref(messages);
        messages = json_array();
    }
    json_t *json = json_pack("{s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:b, s:b, s:I, s:o}", "id", text_json(r->name, strlen(r->name)), "object", "agent", "model",
                             i->this_model ? a->o.model : r->model, "created", (json_int_t)r->created, "last_used", (json_int_t)r->used, "tokens",
                             (json_int_t)r->n_tokens, "bytes", (json_int_t)i->bytes, "tier", tiers[i->tier], "pinned", (int)i->pinned, "running", (int)i->running,
                             "hits", (json_int_t)r->hits, "title", title_of(messages));
    if (with_messages && json) json_object_set_new(json, "messages", messages_shown(messages));
    json_decref(messages);
    return json;
}

/* Replies with the agent as it is now, or with why not. */
static void reply_agent(api *a, http_request *r, const char *name, int status, bool with_messages, agents_result result, err *e) {
    refusal f = {0};
    agent_info i;
    if (result == AGENTS_OK) result = agents_get(a->agents, name, http_tenant(r), &i, e);
    if (result == AGENTS_OK) {
        json_t *json = agent_json(a, &i, with_messages);
        agent_info_free(&i);
        api_reply(a, r, status, json);
        return;
    }
    if (e->code == HEARTH_OK) err_set(e, HEARTH_ARGUMENT, "the agent cannot be read");
    refuse_agent(&f, result, e);
    api_refuse(a, r, API_OPENAI, &f);
}

/* ---- routes ---- */

typedef struct agent_list {
    const api *a;
    json_t *list;
} agent_list;

static bool add_agent(void *user, const agent_info *i) {
    agent_list *l = user;
    return json_array_append_new(l->list, agent_json(l->a, i, false)) == 0;
}

/* ?limit=N&after=NAME. */
static bool read_range(const http_request *r, agents_range *range, refusal *f) {
    const char *limit = http_query(r, "limit");
    char *end = NULL;
    *range = (agents_range){.most = SIZE_MAX, .after = http_query(r, "after")};
    if (!limit) return true;
    range->most = strtoul(limit, &end, 10);
    return (*limit >= '1' && *limit <= '9' && !*end) || refuse(f, "limit", "'limit' must be a whole number from 1 on.");
}

void route_agents(api *a, http_request *r) {
    refusal f = {0};
    agents_range range;
    bool more;
    agent_list l = {.a = a, .list = json_array()};
    if (read_range(r, &range, &f) && agents_list(a->agents, http_tenant(r), &range, &more, add_agent, &l, &f.e)) {
        api_reply(a, r, 200, json_pack("{s:s, s:o, s:b}", "object", "list", "data", l.list, "has_more", more));
        return;
    }
    json_decref(l.list);
    api_refuse(a, r, API_OPENAI, &f);
}

static void new_name(char out[24]) {
    uint64_t random = clock_ns();
    if (getrandom(&random, sizeof random, 0) != sizeof random) random = clock_ns();
    snprintf(out, 24, "agent-%012llx", (unsigned long long)(random & 0xFFFFFFFFFFFFu));
}

/* Makes an agent as the body says; from is that of the path, or NULL. */
static void create(api *a, http_request *r, const char *from) {
    refusal f = {0};
    err e = {0};
    char made[24];
    const char *id = NULL, *given = NULL;
    const field table[] = {
        {"id", FIELD_TEXT, &id, 0, 0, NULL},
        {"from", from ? FIELD_REFUSED : FIELD_TEXT, &given, 0, 0, "the agent in the path is forked"},
        {NULL, FIELD_BOOL, NULL, 0, 0, NULL},
    };
    json_t *body = api_body(r, &f);
    if (body && fields_read(body, table, NULL, &f)) {
        new_name(made);
        if (!id) id = made;
        if (!from) from = given;
        const char *tenant = http_tenant(r);
        agents_result result = from ? agents_fork(a->agents, from, id, tenant, &e) : agents_create(a->agents, id, tenant, &e);
        reply_agent(a, r, id, 201, false, result, &e);
    } else {
        api_refuse(a, r, API_OPENAI, &f);
    }
    json_decref(body);
}

void route_agent_create(api *a, http_request *r) { create(a, r, NULL); }

static const char *name_in_path(const http_request *r) { return http_path(r) + strlen("/v1/agents/"); }

void route_agent(api *a, http_request *r) {
    err e = {0};
    reply_agent(a, r, name_in_path(r), 200, true, AGENTS_OK, &e);
}

void route_agent_delete(api *a, http_request *r) {
    refusal f = {0};
    err e = {0};
    const char *name = name_in_path(r);
    agents_result result = agents_remove(a->agents, name, http_tenant(r), &e);
    if (result == AGENTS_OK) {
        api_reply(a, r, 200, json_pack("{s:o, s:s, s:b}", "id", text_json(name, strlen(name)), "object", "agent.deleted", "deleted", 1));
        return;
    }
    refuse_agent(&f, result, &e);
    api_refuse(a, r, API_OPENAI, &f);
}

/* ---- rewinding ---- */

/* How many of the agent's tokens the first n messages take. *whole: those messages and nothing but them are at its start. */
static bool tokens_of(const api *a, const agent_record *record, const json_t *messages, size_t n, size_t *tokens, bool *whole, refusal *f) {
    *tokens = 0;
    *whole = true;
    if (n == 0) return true;
    json_t *first = json_array();
    for (size_t i = 0; i < n; i++) json_array_append(first, json_array_get(messages, i));
    json_t *written = messages_written(first), *normal = written ? messages_from_openai(written, f) : NULL;
    json_t *variables = normal ? json_pack("{s:O, s:b}", "messages", normal, "add_generation_prompt", 0) : NULL;
    token_run run = {.known = record};
    bool ok = variables && text_render(a, variables, false, &run, f);
    while (ok && *tokens < run.n && *tokens < record->n_tokens && run.ids[*tokens] == record->tokens[*tokens]) (*tokens)++;
    /* The end of the last answer is not among the agent's tokens: the next turn brings it. */
    *whole = ok && (*tokens == run.n || *tokens == record->n_tokens);
    mem_free(run.ids);
    json_decref(variables);
    json_decref(normal);
    json_decref(written);
    json_decref(first);
    return ok;
}

/* From the wish (one of them is negative) to both: the tokens that stay and the messages that stay. */
static bool find_place(const api *a, const agent_record *record, const json_t *messages, int64_t *n_tokens, int64_t *n_messages, refusal *f) {
    size_t tokens, all = json_array_size(messages);
    bool whole;
    if (*n_messages >= 0) {
        if ((size_t)*n_messages > all) return refuse(f, "messages", "The agent has only %zu messages.", all);
        if (!tokens_of(a, record, messages, (size_t)*n_messages, &tokens, &whole, f)) return false;
        *n_tokens = (int64_t)tokens;
        return true;
    }
    if ((size_t)*n_tokens > record->n_tokens) return refuse(f, "tokens", "The agent has only %zu tokens.", record->n_tokens);
    for (size_t n = all;; n--) {
        if (!tokens_of(a, record, messages, n, &tokens, &whole, f)) return false;
        *n_messages = (int64_t)n;
        if (n == 0 || (whole && tokens <= (size_t)*n_tokens)) return true;
    }
}

static void rewind_agent(api *a, http_request *r, const char *name) {
    refusal f = {0};
    err e = {0};
    agent_info i = {0};
    int64_t tokens = -1, n = -1;
    const field table[] = {
        {"tokens", FIELD_INT, &tokens, 0, 1e9, NULL},
        {"messages", FIELD_INT, &n, 0, 1e9, NULL},
        {NULL, FIELD_BOOL, NULL, 0, 0, NULL},
    };
    json_t *body = api_body(r, &f), *messages = NULL;
    bool ok = body && fields_read(body, table, NULL, &f);
    if (ok && (tokens < 0) == (n < 0)) ok = refuse(&f, "tokens", "Give either 'tokens' or 'messages': how many stay.");
    agents_result result = ok ? agents_get(a->agents, name, http_tenant(r), &i, &e) : AGENTS_OK;
    if (ok && result != AGENTS_OK) ok = refuse_agent(&f, result, &e);
    if (ok) messages = i.record.note_len ? json_loadb(i.record.note, i.record.note_len, JSON_ALLOW_NUL, NULL) : json_array();
    ok = ok && find_place(a, &i.record, messages, &tokens, &n, &f);
    if (ok) {
        for (size_t k = json_array_size(messages); k > (size_t)n; k--) json_array_remove(messages, k - 1);
        char *note = json_array_size(messages) ? json_dumps(messages, JSON_COMPACT) : NULL;
        result = agents_rewind(a->agents, name, http_tenant(r), (size_t)tokens, note ? note : "", note ? strlen(note) : 0, &e);
        free(note);
        reply_agent(a, r, name, 200, false, result, &e);
    } else {
        api_refuse(a, r, API_OPENAI, &f);
    }
    agent_info_free(&i);
    json_decref(messages);
    json_decref(body);
}

static void pin_agent(api *a, http_request *r, const char *name) {
    refusal f = {0};
    err e = {0};
    const json_t *pinned = NULL;
    const field table[] = {{"pinned", FIELD_JSON, &pinned, 0, 0, NULL}, {NULL, FIELD_BOOL, NULL, 0, 0, NULL}};
    json_t *body = api_body(r, &f);
    bool ok = body && fields_read(body, table, NULL, &f);
    if (ok && !json_is_boolean(pinned)) ok = refuse(&f, "pinned", "'pinned' must be a boolean.");
    if (ok) reply_agent(a, r, name, 200, false, agents_pin(a->agents, name, http_tenant(r), json_is_true(pinned), &e), &e);
    else api_refuse(a, r, API_OPENAI, &f);
    json_decref(body);
}

static void fork_agent(api *a, http_request *r, const char *name) { create(a, r, name); }

static void evict_agent(api *a, http_request *r, const char *name) {
    err e = {0};
    reply_agent(a, r, name, 200, false, agents_evict(a->agents, name, http_tenant(r), &e), &e);
}

/* POST /v1/agents/NAME/WHAT. */
void route_agent_change(api *a, http_request *r) {
    static const struct {
        const char *what;
        void (*run)(api *a, http_request *r, const char *name);
    } changes[] = {{"generate", chat_with_agent}, {"fork", fork_agent}, {"rewind", rewind_agent}, {"pin", pin_agent}, {"evict", evict_agent}};
    refusal f = {0};
    const char *rest = name_in_path(r), *slash = strrchr(rest, '/');
    char *name = slash ? mem_strndup(rest, (size_t)(slash - rest), &f.e) : NULL;
    for (size_t i = 0; name && i < sizeof changes / sizeof *changes; i++) {
        if (strcmp(slash + 1, changes[i].what) != 0) continue;
        changes[i].run(a, r, name);
        mem_free(name);
        return;
    }
    mem_free(name);
    refuse_with(&f, 404, "not_found", "", "An agent can be asked with /generate, and changed with /fork, /rewind, /pin and /evict.");
    api_refuse(a, r, API_OPENAI, &f);
}
