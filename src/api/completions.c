/* completions.c: /v1/completions: text that goes on, without a template. */
#include <string.h>
#include <time.h>

#include "api/inner.h"

enum { MOST_PROMPTS = 64 };

typedef struct completion {
    api *a;
    json_t *body;
    sampling s;
    const json_t *prompt, *stream_options;
    const char *model, *suffix;
    int64_t max_tokens, logprobs, best_of;
    bool stream, echo, include_usage;
    token_run prompts[MOST_PROMPTS];
    loop_ticket *tickets[MOST_PROMPTS];
    int n_prompts;
    char id[64];
    long created;
    int at;           /* streaming: the prompt whose answers are given out */
    bool *echoed;     /* per answer of that prompt */
} completion;

static void completion_free(completion *c) {
    if (!c) return;
    for (int i = 0; i < c->n_prompts; i++) {
        loop_ticket_free(c->tickets[i]);
        mem_free(c->prompts[i].ids);
    }
    mem_free(c->echoed);
    sampling_free(&c->s);
    json_decref(c->body);
    mem_free(c);
}

/* ---- the request ---- */

static bool token_prompt(completion *c, const json_t *ids, refusal *f) {
    token_run *t = &c->prompts[c->n_prompts++];
    t->ids = mem_alloc(json_array_size(ids), sizeof *t->ids, &f->e);
    if (!t->ids) return false;
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= c->a->info.n_vocab)
            return refuse(f, "prompt", "The tokens of 'prompt' must be from 0 to %d.", c->a->info.n_vocab - 1);
        t->ids[t->n++] = (int32_t)json_integer_value(id);
    }
    return t->n > 0 || refuse(f, "prompt", "'prompt' must not be empty.");
}

static bool add_prompt(completion *c, const json_t *p, refusal *f) {
    if (c->n_prompts >= MOST_PROMPTS) return refuse(f, "prompt", "'prompt' may hold %d prompts at most.", MOST_PROMPTS);
    if (json_is_array(p)) return token_prompt(c, p, f);
    if (!json_is_string(p)) return refuse(f, "prompt", "'prompt' must be a string, an array of strings, an array of tokens, or an array of those.");
    token_run *t = &c->prompts[c->n_prompts++];
    if (!text_tokenize(c->a, json_string_value(p), json_string_length(p), HEARTH_PARSE_SPECIAL | HEARTH_ADD_BOS, t, f)) return false;
    return t->n > 0 || refuse(f, "prompt", "'prompt' must not be empty.");
}

static bool read_prompts(completion *c, refusal *f) {
    if (!c->prompt) return refuse(f, "prompt", "'prompt' is missing.");
    if (!json_is_array(c->prompt) || json_is_integer(json_array_get(c->prompt, 0))) return add_prompt(c, c->prompt, f);
    if (json_array_size(c->prompt) == 0) return refuse(f, "prompt", "'prompt' must not be empty.");
    for (size_t i = 0; i < json_array_size(c->prompt); i++)
        if (!add_prompt(c, json_array_get(c->prompt, i), f)) return false;
    return true;
}

static bool read_completion(completion *c, const http_request *r, refusal *f) {
    sampling_init(&c->s, c->a);
    c->max_tokens = 16; /* as the API has it */
    c->logprobs = -1;
    c->best_of = 1;
    const field table[] = {
        {"model", FIELD_TEXT, &c->model, 0, 0, NULL},
        {"prompt", FIELD_JSON, &c->prompt, 0, 0, NULL},
        {"stream", FIELD_BOOL, &c->stream, 0, 0, NULL},
        {"stream_options", FIELD_JSON, &c->stream_options, 0, 0, NULL},
        {"max_tokens", FIELD_INT, &c->max_tokens, 1, 1e9, NULL},
        {"logprobs", FIELD_INT, &c->logprobs, 0, 20, NULL},
        {"echo", FIELD_BOOL, &c->echo, 0, 0, NULL},
        {"best_of", FIELD_INT, &c->best_of, 1, 20, NULL},
        {"suffix", FIELD_REFUSED, NULL, 0, 0, "text can only be continued"},
        {NULL, FIELD_BOOL, NULL, 0, 0, NULL},
    };
    const field options[] = {{"include_usage", FIELD_BOOL, &c->include_usage, 0, 0, NULL},
                             {"include_obfuscation", FIELD_MEANINGLESS, NULL, 0, 0, NULL},
                             {NULL, FIELD_BOOL, NULL, 0, 0, NULL}};
    if (!fields_read(c->body, table, c->s.table, f) || !model_is_known(c->a, c->model, f)) return false;
    if (c->stream_options && !c->stream) return refuse(f, "stream_options", "'stream_options' is only allowed when 'stream' is true.");
    if (c->stream_options && (!json_is_object(c->stream_options) || !fields_read(c->stream_options, options, NULL, f)))
        return f->e.code ? false : refuse(f, "stream_options", "'stream_options' must be an object.");
    if (c->best_of != 1 && c->best_of != c->s.n) return refuse(f, "best_of", "'best_of' must be equal to 'n'.");
    if (c->echo && c->logprobs >= 0) return refuse(f, "echo", "'echo' together with 'logprobs' is not supported.");
    c->s.max_tokens = c->max_tokens;
    c->s.request.n_logprobs = (int)c->logprobs;
    return sampling_finish(&c->s, c->a, r, f) && read_prompts(c, f);
}

static bool submit(completion *c, const http_request *r, refusal *f) {
    if (c->n_prompts > 1 && c->s.agent && !c->s.agent_only_asked) return refuse(f, "prompt", "An agent goes on with one prompt, not with %d.", c->n_prompts);
    if (c->n_prompts == 1 && !sampling_take_agent(&c->s, c->a, r, true, f)) return false;
    for (int i = 0; i < c->n_prompts; i++)
        if (!(c->tickets[i] = sampling_submit(&c->s, c->a, &c->prompts[i], f))) return false;
    c->echoed = mem_zalloc((size_t)c->s.n, sizeof *c->echoed, &f->e);
    return c->echoed != NULL;
}

static loop_usage usage_of_all(completion *c) {
    loop_usage sum = {0};
    for (int i = 0; i < c->n_prompts && c->tickets[i]; i++) {
        loop_usage u = loop_ticket_usage(c->tickets[i]);
        sum.prompt_tokens += u.prompt_tokens;
        sum.cached_tokens += u.cached_tokens;
        sum.completion_tokens += u.completion_tokens;
        if (i == 0) sum.first_ns = u.first_ns;
    }
    return sum;
}

/* ---- the answer ---- */

static bool add_echo(const completion *c, int prompt, buf *out) {
    bool ok = true;
    for (size_t i = 0; ok && i < c->prompts[prompt].n; i++) {
        size_t len = 0;
        const char *bytes = hearth_token_bytes(c->a->engine, c->prompts[prompt].ids[i], false, &len);
        ok = !bytes || buf_add(out, bytes, len, NULL);
    }
    return ok;
}

/* The older form of log-probabilities: parallel arrays. Begins with the parts of the newer form. */
static json_t *old_logprobs(const json_t *parts, size_t *offset) {
    json_t *tokens = json_array(), *values = json_array(), *tops = json_array(), *offsets = json_array();
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *p = json_array_get(parts, i), *top = json_object_get(p, "top_logprobs");
        json_t *map = json_object();
        for (size_t k = 0; k < json_array_size(top); k++) {
            const json_t *one = json_array_get(top, k);
            json_object_set(map, json_string_value(json_object_get(one, "token")), json_object_get(one, "logprob"));
        }
        json_array_append(tokens, json_object_get(p, "token"));
        json_array_append(values, json_object_get(p, "logprob"));
        json_array_append_new(tops, map);
        json_array_append_new(offsets, json_integer((json_int_t)*offset));
        *offset += json_string_length(json_object_get(p, "token"));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", values, "top_logprobs", tops, "text_offset", offsets);
}

static json_t *choice_json(int index, const char *text, size_t len, json_t *logprobs, loop_finish finish) {
    json_t *word = finish == LOOP_RUNNING ? json_null() : json_string(finish == LOOP_LENGTH ? "length" : "stop");
    return json_pack("{s:i, s:o, s:o, s:o}", "index", index, "text", text_json(text, len), "logprobs", logprobs ? logprobs : json_null(), "finish_reason", word);
}

static json_t *envelope(const completion *c, json_t *choices) {
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", c->id, "object", "text_completion", "created", (json_int_t)c->created, "model", c->a->o.model,
                     "system_fingerprint", "hearth-" HEARTH_VERSION, "choices", choices);
}

static bool add_choices(completion *c, int prompt, const gathered *g, json_t *choices) {
    buf text = {0};
    for (int i = 0; i < c->s.n; i++) {
        text.len = 0;
        size_t offset = 0;
        if ((c->echo && !add_echo(c, prompt, &text)) || !buf_add(&text, g[i].text.data ? g[i].text.data : "", g[i].text.len, NULL)) break;
        json_t *logprobs = c->logprobs >= 0 ? old_logprobs(g[i].logprobs, &offset) : NULL;
        json_array_append_new(choices, choice_json(prompt * (int)c->s.n + i, text.data, text.len, logprobs, g[i].finish));
    }
    buf_free(&text);
    return true;
}

static void reply_whole(completion *c, http_request *r) {
    refusal f = {0};
    json_t *choices = json_array();
    int n = (int)c->s.n;
    bool ok = true;
    for (int i = 0; ok && i < c->n_prompts; i++) {
        gathered *g = mem_zalloc((size_t)n, sizeof *g, &f.e);
        ok = g && gather(c->a, r, c->tickets[i], n, c->logprobs >= 0 ? openai_logprob : NULL, (int)c->logprobs, g, &f) && add_choices(c, i, g, choices);
        if (g) gathered_free(g, n);
        mem_free(g);
    }
    loop_usage u = usage_of_all(c);
    note_usage(r, &u);
    if (ok) {
        sampling_settle(&c->s, r);
        json_t *json = envelope(c, json_incref(choices));
        json_object_set_new(json, "usage", openai_usage(&u));
        api_reply(c->a, r, 200, json);
    } else if (f.e.code != HEARTH_OK) {
        api_refuse(c->a, r, API_OPENAI, &f);
    }
    json_decref(choices);
}

static bool send_piece(completion *c, const loop_piece *p, buf *out) {
    buf text = {0};
    size_t offset = 0;
    bool ok = true;
    if (c->echo && !c->echoed[p->choice]) ok = add_echo(c, c->at, &text);
    c->echoed[p->choice] = true;
    ok = ok && buf_add(&text, p->text, p->len, NULL);
    json_t *parts = json_array(), *logprobs = NULL;
    for (size_t i = 0; c->logprobs >= 0 && i < p->n_tokens; i++) json_array_append_new(parts, openai_logprob(c->a, &p->tokens[i], (int)c->logprobs));
    if (c->logprobs >= 0) logprobs = old_logprobs(parts, &offset);
    json_decref(parts);
    if (ok && (text.len || logprobs || p->finish != LOOP_RUNNING)) {
        json_t *choices = json_array();
        json_array_append_new(choices, choice_json(c->at * (int)c->s.n + p->choice, text.data ? text.data : "", text.len, logprobs, p->finish));
        ok = event_data(out, NULL, envelope(c, choices));
    } else {
        json_decref(logprobs);
    }
    buf_free(&text);
    return ok;
}

static http_more next_event(void *user, http_request *r, uint64_t timeout_ns, buf *out) {
    completion *c = user;
    loop_piece piece;
    err e = {0};
    switch (loop_next(c->tickets[c->at], timeout_ns, &piece, &e)) {
    case LOOP_IDLE: return HTTP_IDLE;
    case LOOP_PIECE: return send_piece(c, &piece, out) ? HTTP_MORE : HTTP_END;
    case LOOP_DONE:
        if (++c->at < c->n_prompts) {
            memset(c->echoed, 0, (size_t)c->s.n * sizeof *c->echoed);
            return HTTP_MORE;
        }
        if (!sampling_saved(&c->s, r, timeout_ns)) {
            c->at--;
            return HTTP_IDLE;
        }
        if (c->include_usage) {
            loop_usage u = usage_of_all(c);
            json_t *json = envelope(c, json_array());
            json_object_set_new(json, "usage", openai_usage(&u));
            event_data(out, NULL, json);
        }
        break;
    case LOOP_FAILED:
        stream_failed(out, r, API_OPENAI, &e);
        break;
    }
    buf_adds(out, "data: [DONE]\n\n", NULL);
    return HTTP_END;
}

static void end_stream(void *user, http_request *r) {
    completion *c = user;
    loop_usage u = usage_of_all(c);
    note_usage(r, &u);
    completion_free(c);
}

void route_completions(api *a, http_request *r) {
    refusal f = {0};
    completion *c = mem_zalloc(1, sizeof *c, &f.e);
    if (c) {
        c->a = a;
        c->created = (long)time(NULL);
        snprintf(c->id, sizeof c->id, "cmpl-%s", http_id(r));
        c->body = api_body(r, &f);
    }
    if (!c || !c->body || !read_completion(c, r, &f) || !submit(c, r, &f)) {
        api_refuse(a, r, API_OPENAI, &f);
        completion_free(c);
    } else if (c->stream) {
        a->statuses[2]++;
        http_stream(r, &(http_events){.next = next_event, .done = end_stream, .user = c});
    } else {
        reply_whole(c, r);
        completion_free(c);
    }
}
